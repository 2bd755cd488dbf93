"""What an actor is made from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar, get_args

from attrs import field, frozen

from proctor.actors.checks import check, check_name

if TYPE_CHECKING:
    from proctor.actors.context import ActorContext
    from proctor.actors.limiter import Limiter

S_co = TypeVar("S_co", covariant=True)

RestartKind = Literal["permanent", "transient", "temporary"]
LeaseKind = Literal["drain", "adopt", "revoke"]
RESTARTS: Final = get_args(RestartKind)
LEASES: Final = get_args(LeaseKind)


@frozen
class ChildSpec(Generic[S_co]):
    """How to start an actor, and what its supervisor does when it fails.

    Args:
        name: unique among the supervisor's children.
        open: given an `ActorContext`, returns the async context manager whose value is the actor's state. A state that
            takes messages has `async def handle(self, message)`; one that keeps leases over a restart may have
            `def adopts(self, lease) -> bool`.
        limiter: the actor's limiter; it survives restarts and is closed when the actor is gone.
        restart: `permanent`: after every end; `transient`: after a failure; `temporary`: never.
        leases: what becomes of the limiter's leases when an incarnation dies. `drain`: they go on with the old state,
            whose context stays open until they are left. `adopt`: they go over to the next incarnation, those that its
            state does not adopt are revoked. `revoke`: they are revoked at once.
        mailbox: how many tells may be queued, at least 1.
        handlers: how many requests are handled at once, None for any number. With 1 they are handled in order.
        bound: seconds that a handler, a discard hook or the closing of the context may take to end once cancelled.
        grace: seconds that running handlers may go on when the actor is stopped; None for the supervisor's.
    """

    name: str
    open: Callable[[ActorContext[Any]], AbstractAsyncContextManager[S_co]]
    limiter: Limiter | None = field(default=None, kw_only=True)
    restart: RestartKind = field(default="permanent", kw_only=True)
    leases: LeaseKind = field(default="drain", kw_only=True)
    mailbox: int = field(default=64, kw_only=True)
    handlers: int | None = field(default=1, kw_only=True)
    bound: float = field(default=5.0, kw_only=True)
    grace: float | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        owner = f"ChildSpec of {self.name!r}"
        check_name(owner, self.name)
        check(owner, "restart", self.restart, self.restart in RESTARTS, f"one of {', '.join(RESTARTS)}")
        check(owner, "leases", self.leases, self.leases in LEASES, f"one of {', '.join(LEASES)}")
        check(owner, "mailbox", self.mailbox, self.mailbox >= 1, "at least 1 message")
        check(owner, "handlers", self.handlers, self.handlers is None or self.handlers >= 1, "at least 1, or None")
        check(owner, "bound", self.bound, self.bound >= 0, "at least 0 seconds")
        check(owner, "grace", self.grace, self.grace is None or self.grace >= 0, "at least 0 seconds, or None")
