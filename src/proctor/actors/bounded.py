"""Small things about cancellation that several modules of the kernel need."""

from __future__ import annotations

from collections.abc import Iterator

import anyio


async def wait_bounded(event: anyio.Event, seconds: float) -> bool:
    """Wait for `event` whatever cancels the caller, but no longer than `seconds`.

    A native cancellation (`asyncio.Task.cancel`) gets through a shield. It is absorbed here, as asyncio's own task
    group does while it waits for its children: use this only on the way out of a cancellation that is raised again
    afterwards.

    Returns:
        Whether the event is set.
    """
    deadline = anyio.current_time() + seconds
    while not event.is_set() and anyio.current_time() < deadline:
        try:
            with anyio.CancelScope(shield=True, deadline=deadline):
                await event.wait()
        except anyio.get_cancelled_exc_class():
            continue
    return event.is_set()


async def wait_until(event: anyio.Event, deadline: float) -> bool:
    """Wait for `event` until `deadline`. Returns whether it is set."""
    if not event.is_set():
        with anyio.CancelScope(deadline=deadline):
            await event.wait()
    return event.is_set()


def without_cancellations(error: BaseException) -> BaseException | None:
    """`error` with every cancellation taken out of its groups; None when nothing else was in it."""
    cancelled = anyio.get_cancelled_exc_class()
    if isinstance(error, cancelled):
        return None
    if isinstance(error, BaseExceptionGroup):
        return error.split(cancelled)[1]
    return error


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions in `error` that are no groups, in order."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from leaves(each)
    else:
        yield error


def is_declared(error: BaseException, faults: tuple[type[Exception], ...]) -> bool:
    """Whether every leaf of `error` is one of `faults`."""
    return all(isinstance(leaf, faults) for leaf in leaves(error))
