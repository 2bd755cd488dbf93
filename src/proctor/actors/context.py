"""What an actor's own code sees of its incarnation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attrs import define

if TYPE_CHECKING:
    from proctor.actors.incarnation import Incarnation
    from proctor.actors.limiter import Limiter

S = TypeVar("S")


@define(eq=False)
class ActorContext(Generic[S]):
    """What a spec's `open` is given: the incarnation as its own code sees it."""

    _incarnation: Incarnation[S]

    @property
    def address(self) -> str:
        """The actor's address, `supervisor/…/name`."""
        return self._incarnation.shell.address

    @property
    def limiter(self) -> Limiter | None:
        """The actor's limiter, the same one in every incarnation."""
        return self._incarnation.shell.spec.limiter

    @property
    def incarnation(self) -> int:
        """Which incarnation this is, counted from 1."""
        return self._incarnation.number

    @property
    def stopping(self) -> bool:
        """Whether the actor is stopped for good: no incarnation follows this one."""
        return self._incarnation.shell.gone is not None

    def start_soon(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: str | None = None) -> None:
        """Run `fn(*args)` in the incarnation's nursery; its failure is the incarnation's.

        Called while the context is being opened, it starts once that is done. It runs with the actor's own context
        variables, not with those of a request.
        """
        self._incarnation.start_soon(fn, args, name)

    def stop(self) -> None:
        """End the incarnation as done: a `permanent` actor is restarted, others are gone."""
        self._incarnation.finish()
