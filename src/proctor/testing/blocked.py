"""The text of a deadlock: every task with the place where it waits, and for leases who holds what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any, Final

from proctor.actors.waitgraph import Wait

LIBRARIES: Final = (
    "/asyncio/",
    "/anyio/",
    "/trio/",
    "/outcome/",
    "/contextlib.py",
    "/proctor/testing/virtual.py",
    "/proctor/testing/watch.py",
    "/proctor/testing/jitter.py",
    "/proctor/actors/",
)
MANY: Final = 50
HOLDERS: Final = 5


def describe_blocked(backend: str) -> str:
    """Say where each task of the running loop waits. Called from inside the loop."""
    tasks = list(_trio_tasks() if backend == "trio" else _asyncio_tasks())
    lines = [f"  {name}: {place}" for name, place in tasks[:MANY]]
    if len(tasks) > MANY:
        lines.append(f"  … and {len(tasks) - MANY} more")
    return "\n".join(["virtual time stands still: nothing can run and no timer is pending; blocked tasks:", *lines])


def _asyncio_tasks() -> Iterator[tuple[str, str]]:
    import asyncio

    for task in sorted(asyncio.all_tasks(asyncio.get_running_loop()), key=lambda task: task.get_name()):
        yield task.get_name(), _place(task.get_coro())


def _trio_tasks() -> Iterator[tuple[str, str]]:
    from proctor.testing.trio_clock import main_tasks

    for task in main_tasks():
        yield task.name, _place(task.coro)


def _place(coroutine: object) -> str:
    """The innermost frame that is not a library's, as ``file:line in function``, and the leases waited for there."""
    frames = list(coroutine_frames(coroutine))
    places = [_frame_place(frame) for frame in frames]
    own = [text for path, text in places if not any(part in path for part in LIBRARIES)]
    place = own[-1] if own else places[-1][1] if places else repr(coroutine)
    waits = [value for frame in frames for value in frame.f_locals.values() if isinstance(value, Wait)]
    return "".join([place, *(f"\n    waits for {line}" for line in _wanted(waits[-1:]))])


def _wanted(waits: list[Wait]) -> Iterator[str]:
    """The edges of the wait-for graph that start at a task."""
    for wait in waits:
        for lease in wait.leases:
            limiter = lease.limiter
            yield f"{lease.describe()}: {limiter.used} of {limiter.limit} places taken, {limiter.waiting} waiting"
            for holder in list(limiter.holders())[:HOLDERS]:
                yield f"  held: {holder.describe()}{', itself waiting' if holder.blocked else ''}"


def coroutine_frames(coroutine: object) -> Iterator[FrameType]:
    """The frames of a suspended coroutine, outermost first."""
    current: Any = coroutine
    while current is not None:
        frame = (
            getattr(current, "cr_frame", None)
            or getattr(current, "ag_frame", None)
            or getattr(current, "gi_frame", None)
        )
        if not isinstance(frame, FrameType):
            return
        yield frame
        current = (
            getattr(current, "cr_await", None)
            or getattr(current, "ag_await", None)
            or getattr(current, "gi_yieldfrom", None)
        )


def _frame_place(frame: FrameType) -> tuple[str, str]:
    code: CodeType = frame.f_code
    return code.co_filename, f"{code.co_filename}:{frame.f_lineno} in {code.co_qualname}"
