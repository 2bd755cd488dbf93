"""A request to an actor, as a plain state machine: QUEUED, RUNNING, DONE.

It awaits nothing and starts nothing; each step tells the one who made it what is to be done next. So the questions
that decide correctness (may the handler start, who gets the answer, is a value to be discarded) are answered in one
synchronous place that a test can drive through every order of events.

Three parties act on a request and may do so in any order, since either backend may cancel any of them at any await:

- the *actor* begins and finishes it,
- the *caller* takes its outcome, or leaves without one,
- the *shell* gives it up: the incarnation died under it, or it outlived its bound.

At most one outcome is ever recorded, it is delivered at most once, and a value that nobody took is discarded exactly
once, also when it comes after the request was given up.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Awaitable, Callable
from contextvars import Context, ContextVar
from typing import Any

import anyio
from attrs import define, field, frozen

Discard = Callable[[Any], Awaitable[None] | None]


class RequestState(enum.Enum):
    """Where a request is."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"


class Leave(enum.Enum):
    """What is to be done about a request whose caller leaves."""

    WITHDRAW = "withdraw"
    """Take it out of the mailbox: its handler never starts."""
    CANCEL = "cancel"
    """Cancel its handler, and wait for the handler's end."""
    DISCARD = "discard"
    """Discard the value that is there."""
    NOTHING = "nothing"
    """Let it go on, or it is over already."""


class Finish(enum.Enum):
    """What is to be done about a handler that has ended."""

    DELIVER = "deliver"
    """Wake the caller: it takes the outcome."""
    DISCARD = "discard"
    """Nobody takes the value: discard it."""
    REPORT = "report"
    """Nobody takes the error: it is the actor's own failure."""
    NOTHING = "nothing"
    """Nobody takes it, and nothing is lost by that."""


@frozen
class Value:
    """The handler returned."""

    value: object


@frozen
class Raised:
    """The handler raised an exception of its own."""

    error: BaseException


@frozen
class Gone:
    """The actor died under the request, or was stopped before it began."""

    cause: BaseException | None


@frozen
class Stopped:
    """The handler ended by the cancellation it was sent, for its caller's leaving or its deadline."""


Outcome = Value | Raised | Gone | Stopped


@define(eq=False)
class Request:
    """One message on its way through an actor.

    Attributes:
        number: unique within the actor, in order of arrival.
        message: what the handler gets.
        address: the actor's.
        told: it is a tell: there is no caller, nobody takes its outcome.
        detached: its handler goes on when its caller leaves.
        deadline: the caller's, in the time of `anyio.current_time`; infinite when it has none.
        context: the context variables its handler runs with.
        parent: the request whose handler asked, for `SelfAsk`.
        discard: what to do with a value that nobody takes.
        outcome: what came of it, None until DONE.
        attended: somebody waits for its end.
        left: its caller will take no value.
        delivered: its caller has taken the outcome.
        discarded: its discard hook is due or has run.
    """

    number: int
    message: object
    address: str
    told: bool = False
    detached: bool = False
    deadline: float = math.inf
    context: Context | None = None
    parent: Request | None = None
    discard: Discard | None = None
    state: RequestState = field(default=RequestState.QUEUED, init=False)
    outcome: Outcome | None = field(default=None, init=False)
    attended: bool = field(init=False)
    left: bool = field(default=False, init=False)
    delivered: bool = field(default=False, init=False)
    discarded: bool = field(default=False, init=False)
    # What the actor hangs on to it; the machine itself does not look at these.
    owner: object = field(default=None, init=False)
    life: Any = field(default=None, init=False)
    scope: anyio.CancelScope | None = field(default=None, init=False)
    done: anyio.Event | None = field(default=None, init=False)
    ended: anyio.Event | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.attended = not self.told

    def begin(self) -> None:
        """The actor took it from its mailbox and starts the handler."""
        assert self.state is RequestState.QUEUED, f"request {self.number} begun while {self.state.value}"
        self.state = RequestState.RUNNING

    def finish(self, outcome: Outcome) -> Finish:
        """The handler ended with `outcome`. Returns what is to be done about it."""
        first = self._record(outcome)
        if isinstance(outcome, Value):
            if first and self.attended and not self.left:
                return Finish.DELIVER
            return Finish.DISCARD if self._claim_discard() else Finish.NOTHING
        if first and self.attended:
            return Finish.DELIVER
        return Finish.REPORT if isinstance(outcome, Raised) else Finish.NOTHING

    def give_up(self, cause: BaseException | None) -> bool:
        """The actor is gone and with it the outcome. Returns whether there was none yet."""
        return self._record(Gone(cause))

    def leave(self) -> Leave:
        """The caller will take no value. Returns what is to be done about it."""
        if self.left or self.delivered:
            return Leave.NOTHING
        self.left = True
        if self.state is RequestState.DONE:
            return Leave.DISCARD if isinstance(self.outcome, Value) and self._claim_discard() else Leave.NOTHING
        if self.detached:
            self.attended = False
            return Leave.NOTHING
        if self.state is RequestState.QUEUED:
            self._record(Stopped())
            return Leave.WITHDRAW
        return Leave.CANCEL

    def unattend(self) -> None:
        """Nobody waits for the handler's end any longer: its errors are the actor's own."""
        self.attended = False

    def deliver(self) -> Outcome:
        """The caller takes the outcome."""
        assert self.outcome is not None, f"request {self.number} delivered while {self.state.value}"
        assert not self.delivered, f"request {self.number} delivered twice"
        self.delivered = True
        return self.outcome

    def _record(self, outcome: Outcome) -> bool:
        if self.state is RequestState.DONE:
            return False
        self.state, self.outcome = RequestState.DONE, outcome
        return True

    def _claim_discard(self) -> bool:
        """Claim the one run of the discard hook."""
        if self.discard is None or self.discarded:
            return False
        self.discarded = True
        return True


handling: ContextVar[Request | None] = ContextVar("proctor_handling", default=None)
"""The request whose handler is running here; handlers' child tasks inherit it."""
