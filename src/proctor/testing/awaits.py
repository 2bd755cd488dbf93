"""Counting awaits: run code up to the k-th place where it waits, and cancel it there.

A fault of clean-up shows only when the cancellation comes at one certain await, so a test tries them all. The driver
stands between the code and the loop, on either backend, and sees each time that the code really waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import Any, Generic, TypeVar

import anyio
from attrs import define, field

T = TypeVar("T")


@define(eq=False)
class Awaits:
    """Counts how often driven code waits, and cancels `scope` at one of them.

    Args:
        at: the number of the await at which to cancel, from 1; None only counts.
        scope: what is cancelled.
    """

    at: int | None = None
    scope: anyio.CancelScope | None = None
    count: int = field(default=0, init=False)

    async def drive(self, awaitable: Awaitable[T]) -> T:
        """Await something, counting."""
        return await _Driven(self, awaitable)

    def waits(self) -> None:
        """Driven code waits now."""
        self.count += 1
        if self.count == self.at and self.scope is not None:
            self.scope.cancel()


@define(eq=False)
class _Driven(Generic[T]):
    awaits: Awaits
    awaitable: Awaitable[T]

    def __await__(self) -> Generator[Any, Any, T]:
        inner: Any = self.awaitable.__await__()
        step, value = inner.send, None
        while True:
            try:
                asked = step(value)
            except StopIteration as done:
                result: T = done.value
                return result
            self.awaits.waits()
            try:
                step, value = inner.send, (yield asked)
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:
                step, value = inner.throw, error
