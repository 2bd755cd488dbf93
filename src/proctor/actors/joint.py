"""Joint leases: places of several limiters, all at once or none.

Taking one after the other would hold the first while waiting for the second. A joint waiter stands in every queue with
one ordinary item each:

1. At the head of a queue it *parks*: it steps aside, and lets those behind it pass.
2. Once it is parked in all its queues it is *armed*: from now on it is first wherever a place comes free, but for those
   armed earlier, and is granted in the step in which all its limiters have a place.
3. Until then it *keeps* places: one of each limiter, up the ladder of ranks, as far as there are any.

So it holds nothing while it waits, and cannot starve: every queue brings it to the head as it would a single waiter,
and armed it waits only for places to be given back.

To keep a place is to hold one while waiting for another, so it follows the rule that holding follows: upwards. A place
is kept only if all limiters before it on the ladder (by rank, then by name, so that all joint waiters agree) have one.
Kept in any other order, it could be what some task needs that holds the place waited for, and the two would wait for
each other. Limiters of one rank, or of none, may be taken in any order by programs that nest them. So a place is not
kept either while a task waits for it that holds, itself or through others, what the joint waiter waits for.

A limiter that is paused, or whose limit is 0, parks nobody: a place elsewhere is not held back for as long as an
operator chooses. Rejected: keeping from the start (each queue then idles a place for as long as the longest of the
others), not keeping at all (single waiters take every place as it comes free, and the joint one starves), and keeping
everywhere at once (the deadlock above).
"""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, final

from anyio import CancelScope, Event
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from attrs import define, field

from proctor.actors import ranks
from proctor.actors.lease import NEW, WAITING, Lease
from proctor.actors.waitgraph import Wait, check_self, holders_behind
from proctor.errors import DeadlockError, LeaseMisuse

if TYPE_CHECKING:
    from proctor.actors.places import Places


@final
@define(eq=False, repr=False)
class JointLease:
    """Several leases that are entered and left as one. Made by `lease_all` only.

    Attributes:
        parts: in the order in which they were asked for.
    """

    parts: tuple[Lease, ...]
    parked: set[Lease] = field(factory=set, init=False)
    cancel_scope: CancelScope | None = field(default=None, init=False)
    event: Event | None = field(default=None, init=False)
    refusal: Exception | None = field(default=None, init=False)
    ladder: tuple[Lease, ...] = field(default=(), init=False)

    async def __aenter__(self) -> tuple[Lease, ...]:
        outer = self._prepare()
        yielded = all(part.limiter.has_room() for part in self.parts)
        if yielded:
            await checkpoint()
        if not self._at_once():
            own = () if outer is None else tuple(ranks.own_leases())
            check_self(self.parts, own)
            self._enqueue()
            if self._waiting or not yielded:
                await self._wait_turn(own)
        self._begin(outer)
        return self.parts

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        swallowed = False
        scope, self.cancel_scope = self.cancel_scope, None
        try:
            if scope is not None:
                swallowed = bool(scope.__exit__(exc_type, exc, traceback))
        finally:
            misuses = [misuse for part in reversed(self.ladder or self.parts) if (misuse := part.leave()) is not None]
            if misuses:
                raise misuses[0]
        if scope is not None and scope.cancelled_caught and (error := self._taken_back()) is not None:
            raise error from None
        return swallowed

    # -- steps, for the limiters

    def park(self, part: Lease) -> None:
        """`part` is at the head of its queue and was taken out of it."""
        self.parked.add(part)
        if len(self.parked) == len(self.parts):
            for each in self.parts:
                each.limiter.reserve(each)
            self.serve()

    def serve(self) -> None:
        """Take a place of every limiter if each has one for us."""
        if not all(part.limiter.has_place_for(self) for part in self.parts):
            return
        for part in self.parts:
            part.limiter.grant_reserved(part)
        if self.event is not None:
            self.event.set()

    def keeps(self, limiter: Places) -> bool:
        """Whether a place of `limiter` is kept for us."""
        for part in self.ladder:
            if part.limiter is limiter:
                return not self._waits_for_one_in_line(limiter)
            if not part.limiter.has_place_for(self):
                return False
        return False

    def _waits_for_one_in_line(self, limiter: Places) -> bool:
        """Whether a task that waits for `limiter` holds what we wait for: only nesting within a rank makes it so."""
        others = [part.limiter for part in self.parts if part.limiter is not limiter and part.limiter.exhausted]
        level = level_of(limiter)
        needed = holders_behind(other for other in others if level is None or level_of(other) in {level, None})
        return bool(needed) and any(
            held in needed for waiter in limiter.waiters() if waiter.joint is not self for held in waiter.held_around()
        )

    def refuse(self, part: Lease, error: Exception) -> None:
        """End the wait of all parts with an error."""
        self._withdraw("refused", error)
        self.refusal = error
        if self.event is not None:
            self.event.set()

    # -- steps, in the task

    @property
    def _waiting(self) -> bool:
        return self.parts[0].state is WAITING

    def _taken_back(self) -> Exception | None:
        return next((part.taken_back for part in self.parts if part.taken_back is not None), None)

    def _prepare(self) -> Lease | None:
        outer = None
        for part in self.parts:
            if part.joint is not None and part.joint is not self:
                raise LeaseMisuse(f"{part.describe()} is part of another joint lease")
            outer = part.prepare()
        for part in self.parts:
            part.joint = self
        # Entered upwards and left downwards, so that what is innermost has the highest rank. Names, and for equal ones
        # identities, make it one order for all joint waiters.
        self.ladder = tuple(
            sorted(self.parts, key=lambda part: (level_of(part.limiter) or 0, part.limiter.name, id(part.limiter)))
        )
        return outer

    def _at_once(self) -> bool:
        if not all(part.limiter.open_to_all() for part in self.parts):
            return False
        taken: list[Lease] = []
        try:
            for part in self.parts:
                part.limiter.at_once(part)
                taken.append(part)
        except BaseException:
            for part in taken:
                part.limiter.abandon(part)
            raise
        return True

    def _enqueue(self) -> None:
        try:
            for part in self.parts:
                part.limiter.admit_waiter(part)
        except BaseException:
            self._withdraw("withdrawn")
            raise
        for part in self.parts:
            part.limiter.poll()

    def _begin(self, outer: Lease | None) -> None:
        if (error := self._taken_back()) is not None:
            for part in self.parts:
                part.limiter.abandon(part)
            raise error
        for part in self.ladder:
            part.begin(outer)
            outer = part
        if any(part.revocable for part in self.parts):
            self.cancel_scope = scope = CancelScope()
            scope.__enter__()

    async def _wait_turn(self, own: tuple[Lease, ...]) -> None:
        self.event = event = Event()
        if not self._waiting:
            event.set()
        try:
            if own:
                await Wait(self.parts, own, event).end()
            else:
                await event.wait()
            await checkpoint_if_cancelled()
        except BaseException as error:
            self._give_up(error)
            raise
        finally:
            self.event = None
        if self.refusal is not None:
            raise self.refusal

    def _give_up(self, error: BaseException) -> None:
        if self._waiting:
            self._withdraw("refused" if isinstance(error, DeadlockError) else "withdrawn", error)
        else:
            for part in self.parts:
                part.limiter.give_up(part, error)

    def _withdraw(self, kind: str, detail: object = None) -> None:
        """Out of all queues, then whoever was held back by us is served."""
        waiting = [part for part in self.parts if part.state is WAITING]
        for part in waiting:
            part.limiter.take_out(part, kind, detail)
        for part in waiting:
            part.limiter.poll()


def level_of(limiter: Places) -> int | None:
    """The level of a limiter's rank, None where it has none."""
    return None if limiter.rank is None else limiter.rank.level


def lease_all(wants: Iterable[Lease]) -> JointLease:
    """Several places at once or none, for ``async with``.

    Args:
        wants: leases asked for and not entered: ``lease_all([slots.lease(group=task), sandboxes.lease(group=task)])``.
            The limiters may be of one rank, and all must be above what is held already. Each may occur once.

    Returns:
        A context manager whose value is the tuple of leases. It is revocable if one of them is, and then as a whole.

    Raises:
        LeaseMisuse: no wants, a limiter twice, a lease entered before, or a limiter whose policy does not go by room.
    """
    parts = tuple(wants)
    if not parts:
        raise LeaseMisuse("lease_all([]) has nothing to wait for: give it at least one limiter.lease(...)")
    seen: set[int] = set()
    for part in parts:
        if part.state is not NEW:
            raise LeaseMisuse(f"{part.describe()} was entered before: lease_all takes leases that are not entered")
        if not part.limiter.heeds_room:
            raise LeaseMisuse(
                f"{part.describe()} cannot be part of a joint lease: the limiter's admission policy does not go by room"
            )
        if id(part.limiter) in seen:
            raise LeaseMisuse(f"{part.describe()} is the second of this limiter in one lease_all: it takes one of each")
        seen.add(id(part.limiter))
    return JointLease(parts)
