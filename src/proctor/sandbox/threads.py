"""Blocking calls of sandboxes, in the threads of the engine where there is a runtime."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from proctor.runtime import current_runtime

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call a blocking function in a thread; a cancelled caller waits for its end."""
    runtime = current_runtime()
    if runtime is not None:
        return await runtime.to_thread(function, *args)
    return await anyio.to_thread.run_sync(function, *args)


async def in_stoppable_thread(function: Callable[[*Ts, threading.Event], T], *args: *Ts) -> T:
    """Call a blocking function that looks, in between its steps, whether an event is set: its caller was cancelled.

    Whoever is cancelled while a thread works for him waits for its end, so it must be told.
    """
    stop = threading.Event()
    outcome: list[T] = []
    failed: list[Exception] = []

    async def stop_when_cancelled() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            stop.set()

    async with anyio.create_task_group() as nursery:
        nursery.start_soon(stop_when_cancelled)
        try:
            outcome.append(await in_thread(function, *args, stop))
        except Exception as error:
            failed.append(error)  # a nursery would make a group of it
        nursery.cancel_scope.cancel()
    if failed:
        raise failed[0]
    return outcome[0]
