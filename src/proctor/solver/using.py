"""A context variable's value for the length of a block."""

from __future__ import annotations

from contextvars import ContextVar, Token
from types import TracebackType
from typing import Generic, TypeVar

from attrs import define, field

T = TypeVar("T")


@define(eq=False)
class Using(Generic[T]):
    """``with Using(variable, value):`` in this task and in those started below it.

    A class, not a decorated generator: resetting over a generator's yield fails when it is closed by another task.
    """

    variable: ContextVar[T | None]
    value: T
    _token: Token[T | None] | None = field(default=None, init=False)

    def __enter__(self) -> T:
        self._token = self.variable.set(self.value)
        return self.value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._token is not None:
            self.variable.reset(self._token)
