"""`collect`: run awaitables together on either backend."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Any, Final, TypeVar, cast

import anyio

from proctor.log.transcript import span

T = TypeVar("T")

_NOTHING: Final = object()


async def collect(*awaitables: Awaitable[T]) -> list[T]:
    """Await several things at once.

    The first that fails cancels the others; its exception is raised as it is, not in a group, and a note on it tells
    of others that failed before they could be stopped. Each runs in a span of its own, so that what it does stays
    together in the transcript.

    Args:
        awaitables: such as coroutines, each awaited once.

    Returns:
        The results, in the order of the awaitables.

    Raises:
        Exception: of the first that failed.
    """
    results: list[Any] = [_NOTHING] * len(awaitables)
    errors: list[Exception] = []

    async def run(place: int, awaitable: Awaitable[T]) -> None:
        if errors:
            _drop(awaitable)
            return
        try:
            async with span(f"task-{place + 1}", type="task"):
                results[place] = await awaitable
        except Exception as error:
            errors.append(error)
            nursery.cancel_scope.cancel()

    async with anyio.create_task_group() as nursery:
        for place, awaitable in enumerate(awaitables):
            nursery.start_soon(run, place, awaitable)
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"another one that was collected failed too: {type(other).__name__}: {other}")
        raise errors[0]
    if any(result is _NOTHING for result in results):
        # Only asyncio can do this: a task or future that was cancelled from outside.
        raise RuntimeError("collect: something that was awaited had been cancelled by someone else")
    return cast("list[T]", results)


def _drop(awaitable: Awaitable[Any]) -> None:
    """Close what will not be awaited, which for a coroutine would be a warning."""
    if inspect.iscoroutine(awaitable):
        awaitable.close()
