"""A lease: one place of a limiter, held by the task that entered it.

A lease is an object and not a property of its task: a task may hold several, of one limiter too. They are left in
reverse order, in the task that entered them, because what is held is a chain in a context variable (ranks.py) and a
revocable lease carries a cancel scope, both of which only nest.

The places are the limiter's; this module is what happens in the caller's task: entering, waiting, leaving, and telling
apart the ways in which a lease can be misused.
"""

from __future__ import annotations

import sys
from contextvars import Token
from enum import Enum
from types import CodeType, TracebackType
from typing import TYPE_CHECKING, Any, Final, final

from anyio import CancelScope, Event
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from attrs import define, field

from proctor.actors import ranks
from proctor.actors.waitgraph import Wait, check_self
from proctor.errors import LeaseMisuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterator

    from proctor.actors.admission import Key, Order, Share
    from proctor.actors.joint import JointLease
    from proctor.actors.limiter import Limiter
    from proctor.actors.scope import LeaseScope

CO_ASYNC_GENERATOR: Final = 0x200


class State(Enum):
    """Where a lease stands."""

    NEW = "not entered"
    WAITING = "waiting"
    GRANTED = "granted"
    HELD = "held"
    ENDED = "ended"


NEW: Final = State.NEW
WAITING: Final = State.WAITING
GRANTED: Final = State.GRANTED
HELD: Final = State.HELD
ENDED: Final = State.ENDED


@final
@define(eq=False, repr=False)
class Lease:
    """One place of a limiter. Made by `Limiter.lease` (``async with``) and `Limiter.try_lease` (``with``) only.

    Attributes:
        limiter: whose place it is. group, weight, order: as asked for.
        item: what the admission policy calls it by; None under a `FairQueue`, which knows the lease itself.
        revocable: whether the limiter may take it back.
        number: its number within its limiter in order of arrival, 0 before it arrived.
        state: where it stands. taken_back: why it was refused, or revoked.
        cancel_scope: of a revocable lease that is held: what `Limiter.revoke` cancels.
    """

    limiter: Limiter
    group: Hashable
    weight: float
    order: Order
    item: Any
    revocable: bool
    code: CodeType
    instruction: int
    number: int = field(default=0)
    state: State = field(default=NEW)
    cancel_scope: CancelScope | None = field(default=None)
    # Of its limiter, its lease scope and the joint lease it is part of.
    share: Share = field(init=False)
    scope: LeaseScope | None = field(default=None)
    joint: JointLease | None = field(default=None)
    key: Key = field(init=False)
    charged: int = field(default=-1)
    event: Event | None = field(default=None)
    taken_back: Exception | None = field(default=None)
    # Its place in the chain of held leases, and the wait of the task that holds it.
    token: Token[Lease | None] | None = field(default=None)
    outer: Lease | None = field(default=None)
    blocked: Wait | None = field(default=None)

    # -- async with limiter.lease(...)

    def __aenter__(self) -> Awaitable[Lease]:
        # Not `async`: what is awaited is the one coroutine that has to wait, with no frame of ours above it.
        outer = ranks.held.get()
        if outer is not None or self.state is not NEW:
            outer = self.prepare()
        if self.limiter.has_room():
            return self._try_at_once(outer)
        own = () if outer is None else self._own()
        self.limiter.enqueue(self)
        return self._wait_turn(outer, own)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self.cancel_scope is not None:
            return self._leave_revocable(exc_type, exc, traceback)
        misuse = self.leave()
        if misuse is not None:
            raise misuse
        return False

    # -- with limiter.try_lease() as lease

    def __enter__(self) -> Lease:
        if not self.held or self.cancel_scope is not None:
            raise LeaseMisuse(
                f"{self.describe()} is {self.state.value}: plain `with` is for what try_lease() returned, once; "
                f"limiter.lease() is entered with `async with`"
            )
        if self.revocable:
            self._open_scope()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if self.cancel_scope is not None:
            return self._leave_revocable(exc_type, exc, traceback)
        misuse = self.leave()
        if misuse is not None:
            raise misuse
        return False

    # -- while held

    async def requeue(self, settle: Callable[[float], object] | None = None) -> None:
        """Give the place back and wait for one again as the same item: in its group, at its order.

        In one synchronous step `settle` is called, the place given back and whoever is next admitted; only then this
        waits. While it waits the lease holds neither place nor rank.

        Args:
            settle: called with the time (seconds, the loop's clock) before the place is given back. The owner of an
                admission policy of its own settles its books here and puts the item back in line.

        Raises:
            LeaseMisuse: the lease is not held, not by this task, not its innermost, or part of a joint lease.
            LimiterClosed: the limiter is closed.
        """
        self._check_requeue()
        own = tuple(each for each in ranks.own_leases() if each is not self)
        self.limiter.requeue(self, settle)
        await self._wait_turn(self.outer, own)

    @property
    def held(self) -> bool:
        """Whether its task holds the place now; not while it is back in line (`requeue`)."""
        return self.state is HELD

    def __repr__(self) -> str:
        return f"<Lease of {self.limiter.name!r}, number {self.number}, {self.state.value}>"

    def describe(self) -> str:
        """Limiter, rank, group and place in the code, for messages."""
        rank = f", rank {self.limiter.rank.name}" if self.limiter.rank else ""
        group = f", group {self.group!r}" if self.group is not None else ""
        return f"the lease of {self.limiter.name!r}{rank}{group} asked for at {self.place}"

    @property
    def place(self) -> str:
        """Where in the code the lease was asked for, as ``file:line``."""
        lines = (line for start, end, line in self.code.co_lines() if start <= self.instruction < end)
        return f"{self.code.co_filename}:{next(lines, None) or self.code.co_firstlineno}"

    def held_around(self) -> Iterator[Lease]:
        """The leases held where this one was asked for, innermost first."""
        lease = self.outer
        while lease is not None:
            if lease.held:
                yield lease
            lease = lease.outer

    # -- steps, also of joint leases

    def prepare(self) -> Lease | None:
        """Before anything is awaited: refuse misuse and wrong ranks. Returns the innermost lease held, if any."""
        if self.state is not NEW:
            raise LeaseMisuse(
                f"{self.describe()} was entered before: a lease is entered once, ask for each with limiter.lease()"
            )
        outer = ranks.held.get()
        if outer is not None:
            self.outer = outer = ranks.innermost()
            ranks.check(outer, self)
        return outer

    def begin(self, outer: Lease | None, *, scope: bool = True) -> None:
        """From granted to held, in the task that will hold it; with its cancel scope unless `__enter__` will follow."""
        if self.taken_back is not None:
            self.limiter.abandon(self)
            raise self.taken_back
        self.state = HELD
        if self.token is not None:
            return  # it was in line again, and still is in the chain
        self.outer = outer
        self.token = ranks.held.set(self)
        if scope and self.revocable and self.joint is None:
            self._open_scope()

    def leave(self) -> LeaseMisuse | None:
        """Give the place back, whatever is wrong; returns what was wrong."""
        if self.token is None:
            what = "was never entered" if self.state is NEW else "was left before: it is left once, by its `with` block"
            return LeaseMisuse(f"{self.describe()} is left, but {what}")
        misuse = None
        if ranks.held.get() is self:
            try:
                ranks.held.reset(self.token)
            except ValueError:
                misuse = self._left_wrongly(in_order=True)
        else:
            misuse = self._left_wrongly(in_order=False)
        self.token = None
        if self.state is HELD:
            self.limiter.release(self)
        return misuse

    def _leave_revocable(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        scope, self.cancel_scope = self.cancel_scope, None
        assert scope is not None
        misuse: LeaseMisuse | None = None
        try:
            swallowed = bool(scope.__exit__(exc_type, exc, traceback))
        finally:
            # A scope that is left in another task or out of order raises; what is to be done about it our text says.
            if (misuse := self.leave()) is not None:
                raise misuse
        if scope.cancelled_caught and self.taken_back is not None:
            raise self.taken_back from None
        return swallowed

    async def _try_at_once(self, outer: Lease | None) -> Lease:
        # Before the place is taken: what is not held cannot leak.
        await checkpoint()
        if not self.limiter.at_once(self):
            own = () if outer is None else self._own()
            self.limiter.enqueue(self)
            if self.state is WAITING:
                return await self._wait_turn(outer, own)
        self.begin(outer)
        return self

    def _own(self) -> tuple[Lease, ...]:
        """What the task holds itself; refuses a wait that only it could end."""
        own = tuple(ranks.own_leases())
        if own:
            check_self((self,), own)
        return own

    async def _wait_turn(self, outer: Lease | None, own: tuple[Lease, ...]) -> Lease:
        limiter = self.limiter
        # `Event()` finds out each time which backend runs; those who wait at one time share one.
        kind = limiter.event_type
        if kind is None:
            event = Event()
            limiter.event_type = type(event)
        else:
            event = kind()
        self.event = event
        if self.state is not WAITING:
            event.set()
        try:
            if own:
                await Wait((self,), own, event).end()
            else:
                await event.wait()
            # A cancellation that came between the grant and this line belongs to the wait, not to the body: on neither
            # backend does a task that was rescheduled already see it before its next checkpoint.
            await checkpoint_if_cancelled()
        except BaseException as error:
            limiter.give_up(self, error)
            raise
        self.event = None
        if self.state is ENDED:
            raise self.taken_back or LeaseMisuse(f"{self.describe()} was taken out of line")
        self.begin(outer)
        return self

    def _open_scope(self) -> None:
        self.cancel_scope = scope = CancelScope()
        scope.__enter__()
        if self.taken_back is not None:
            scope.cancel()

    def _check_requeue(self) -> None:
        if self.joint is not None:
            raise LeaseMisuse(f"{self.describe()} is part of a joint lease, which cannot go back in line by parts")
        if not self.held or self.token is None:
            raise LeaseMisuse(f"{self.describe()} is {self.state.value}: only one that is held can go back in line")
        if ranks.held.get() is not self or not ranks.entered_here(self):
            raise LeaseMisuse(
                f"{self.describe()} can go back in line only in the task that entered it and while it is the innermost "
                f"lease there: one taken under it would be held without it"
            )

    def _left_wrongly(self, *, in_order: bool) -> LeaseMisuse:
        elsewhere = in_order or not ranks.entered_here(self)
        how = "in another task than entered it" if elsewhere else "before a lease that was taken after it"
        generator = _generator_in_caller()
        if generator is not None:
            return LeaseMisuse(
                f"{self.describe()} was held across the `yield` of the async generator {generator!r} and is left "
                f"{how}. What runs between the yields belongs to the generator's caller: take the lease there, or "
                f"make the generator an @asynccontextmanager. The place was given back"
            )
        rule = "a lease is left by the task that entered it" if elsewhere else "leases are left in reverse order"
        return LeaseMisuse(f"{self.describe()} is left {how}: {rule}, use `with` blocks. The place was given back")


def _generator_in_caller() -> str | None:
    """The name of the function that leaves the lease, if it is an async generator."""
    frame = sys._getframe(1)
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("proctor.actors."):
        frame = frame.f_back  # type: ignore[assignment]
    if frame is None or not frame.f_code.co_flags & CO_ASYNC_GENERATOR:
        return None
    return frame.f_code.co_qualname
