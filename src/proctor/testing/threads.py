"""Which worker threads are at work, so that virtual time waits for them.

A thread that called back into the loop (`anyio.from_thread`) waits for the loop, and the loop may have to move time
to answer: such threads do not hold the clock. Neither library counts them. On asyncio they are recognised by the
frames of the thread, with the future that only the loop completes; on trio by the frames of the task that answers,
since there the thread takes the answer out of its queue before it can be seen to go on. (A wrapper around
``anyio.from_thread`` would miss callers that imported it earlier.) A thread whose caller was cancelled and left it
behind holds the clock too: somebody may wait for its end in another way.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any, Final

from proctor.testing.blocked import coroutine_frames

CALLBACKS: Final = frozenset({"run_async_from_thread", "run_sync_from_thread"})
ANSWERS: Final = frozenset({"run", "run_system"})
DEPTH: Final = 8
"""Frames to look at from the inside: those of the future's wait."""


def asyncio_threads_at_work(loop: Any) -> int:
    """Threads of anyio and of asyncio's own executor that work for `loop`."""
    busy = 0
    for thread in threading.enumerate():
        if getattr(thread, "loop", None) is not loop or getattr(thread, "stopping", False):
            continue
        if thread not in getattr(thread, "idle_workers", ()):
            busy += not _waits_for_loop(sys._current_frames().get(thread.ident or 0))
    executor = getattr(loop, "_default_executor", None)
    if executor is not None:
        busy += len(executor._threads) - executor._idle_semaphore._value
    return busy


def trio_threads_at_work() -> int:
    """Threads that work for the running trio loop."""
    from trio.testing import active_thread_count

    from proctor.testing.trio_clock import all_tasks

    busy = active_thread_count()
    if busy:
        busy -= sum(_answers_a_thread(task.coro) for task in all_tasks())
    return max(0, busy) + _abandoned_trio_threads()


def _waits_for_loop(frame: FrameType | None) -> bool:
    """Whether an asyncio worker thread waits for an answer that the loop still owes."""
    inner = ""
    for _ in range(DEPTH):
        if frame is None:
            return False
        if frame.f_code.co_name in CALLBACKS:
            future = frame.f_locals.get("f")
            return inner == "result" and future is not None and not future.done()
        inner, frame = frame.f_code.co_name, frame.f_back
    return False


def _answers_a_thread(coroutine: object) -> bool:
    return any(
        frame.f_code.co_name in ANSWERS and frame.f_code.co_filename.endswith("_threads.py")
        for frame in coroutine_frames(coroutine)
    )


def _abandoned_trio_threads() -> int:
    """Threads at work for the running loop whose callers were cancelled; trio itself counts only the others."""
    import trio

    token = trio.lowlevel.current_trio_token()
    abandoned = 0
    for frame in sys._current_frames().values():
        current: FrameType | None = frame
        while current is not None:
            if current.f_code.co_name == "worker_fn" and current.f_locals.get("current_trio_token") is token:
                abandoned += current.f_locals["task_register"][0] is None
                break
            current = current.f_back
    return abandoned
