"""Where the blocking work of logs is done when it is asked for from an event loop."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import anyio
import anyio.to_thread

T = TypeVar("T")


class RunInThread(Protocol):
    """Runs a blocking call in a thread, as `Runtime.to_thread` does."""

    def __call__(self, function: Callable[..., T], /, *args: Any) -> Awaitable[T]: ...


def default_threads() -> RunInThread:
    """The engine threads of the current runtime; outside of one, a thread of anyio's."""
    from proctor.runtime.runtime import current_runtime

    runtime = current_runtime()
    if runtime is not None:
        return runtime.to_thread
    return functools.partial(anyio.to_thread.run_sync, limiter=anyio.CapacityLimiter(1))


async def in_thread(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Call a function that blocks without holding the event loop."""
    return await default_threads()(functools.partial(function, *args, **kwargs))
