"""The places of a limiter and the line in front of them: the synchronous steps of which everything else is made.

Admission is one synchronous step: nothing between "is there room" and "the place is taken" awaits, so two tasks cannot
both pass a check, and whatever makes room (a release, a resize, a cancelled waiter) wakes the next in the same step.

Why not `anyio.CapacityLimiter`: one place a task, no order but arrival, no weights, an over-grant after shrink and grow
on older versions, and no way to say who waits for whom. Why a private event a waiter, and not one semaphore or
condition they all park on: cancelling n tasks that wait on one primitive takes n² steps on asyncio. Why the places are
a dict of leases and not a number: the number would be a second truth, and the wait-for graph, `revoke` and error texts
need the holders.

For tests that plant faults: each decision is one small method. Here `at_once`, `open_to_all`, `_grant`, `_serve`,
`take_out`, `abandon`, `release`, `_changed_room`, `reserve`, `has_place_for`; in admission.py `FairQueue._rejoin`,
`charge`, `refund` and `Share.first`; in ranks.py `check`; in waitgraph.py `check_self` and `check_ring`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Final

from anyio import Event
from attrs import define, field

from proctor.actors.admission import UNORDERED, AdmissionPolicy, FairQueue, key_of, key_of_returned
from proctor.actors.lease import ENDED, GRANTED, WAITING, Lease
from proctor.actors.ledger import Ledger, LimiterEvent
from proctor.actors.ranks import Rank
from proctor.actors.scope import current
from proctor.errors import DeadlockError, KernelError, LeaseMisuse

if TYPE_CHECKING:
    from proctor.actors.joint import JointLease


CLOSED: Final = object()
"""What a closed limiter is paused by, for ever."""


@define(eq=False)
class Places:
    """So many places, who holds them, and who waits for one. `Limiter` is its public face."""

    _limit: int | None
    name: str = field(kw_only=True)
    rank: Rank | None = field(default=None, kw_only=True)
    _policy: AdmissionPolicy = field(factory=FairQueue, kw_only=True, alias="admission")
    _ledger: Ledger = field(factory=Ledger, kw_only=True, alias="ledger")
    on_wakeup: Callable[[float | None], object] | None = field(default=None, init=False)
    _queue: FairQueue | None = field(default=None, init=False)
    _holders: dict[Lease, None] = field(factory=dict, init=False)
    _waiting: dict[Lease, None] = field(factory=dict, init=False)
    _items: dict[int, Lease] = field(factory=dict, init=False)
    _reserved: dict[JointLease, Lease] = field(factory=dict, init=False)
    _unparked: int = field(default=0, init=False)
    _arrived: int = field(default=0, init=False)
    _pauses: set[Hashable] = field(factory=set, init=False)
    _refusal: Callable[[], Exception] | None = field(default=None, init=False)
    event_type: type[Event] | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        # Whoever passes a policy or a ledger on may have none.
        if self._policy is None:
            self._policy = FairQueue()
        if self._ledger is None:
            self._ledger = Ledger()
        if isinstance(self._policy, FairQueue):
            self._queue = self._policy

    @property
    def full(self) -> bool:
        """Whether every place is taken, by at least one lease."""
        return self._limit is not None and bool(self._holders) and len(self._holders) >= self._limit

    @property
    def stopped(self) -> bool:
        """Whether it is paused or closed."""
        return bool(self._pauses)

    @property
    def heeds_room(self) -> bool:
        """Whether room alone decides how many are admitted, so that it may take part in `lease_all`."""
        return self._queue is not None

    @property
    def exhausted(self) -> bool:
        """Whether there is no place now, kept or not."""
        return bool(self._pauses) or (self._limit is not None and len(self._holders) >= self._limit)

    def waiters(self) -> Iterable[Lease]:
        """The leases that wait, in the order in which they came."""
        return self._waiting.keys()

    def holders(self) -> Iterable[Lease]:
        """The leases that hold a place, oldest first."""
        return self._holders.keys()

    # -- arriving

    def has_room(self) -> bool:
        """Whether a place might be had without waiting; only to choose how to yield."""
        if self._queue is None:
            return not self._waiting
        return self._limit is None or len(self._holders) < self._limit

    def open_to_all(self) -> bool:
        """Whether whoever comes may have a place without asking the policy."""
        return (
            self._queue is not None
            and not self._waiting
            and not self._pauses
            and (self._limit is None or len(self._holders) < self._limit)
        )

    def at_once(self, lease: Lease) -> bool:
        """Take a place for `lease` if that needs no asking."""
        if not self.open_to_all():
            return False
        self._arrive(lease)
        lease.state = GRANTED
        self._holders[lease] = None
        if self._ledger.listeners:
            self._record("granted", lease)
        return True

    def enqueue(self, lease: Lease) -> None:
        """Put `lease` in line and serve whoever is next, perhaps itself."""
        self.admit_waiter(lease)
        limit = self._limit
        if limit is None or len(self._holders) < limit or self._unparked or self._queue is None:
            self.poll()

    def admit_waiter(self, lease: Lease) -> None:
        """Put `lease` in line."""
        if self._refusal is not None:
            raise self._refusal()
        waiting = self._waiting
        if not waiting:
            self.event_type = None  # whoever waited before may have waited in another loop
        queue = self._queue
        if queue is None:
            self._admit_item(lease)
        else:
            self._arrive(lease)
            lease.state = WAITING
            waiting[lease] = None
            lease.key = UNORDERED if lease.order is None else key_of(lease.order)
            if lease.joint is not None:
                self._unparked += 1
            queue.enqueue(lease, 0.0)  # it never looks at the time
        if self._ledger.listeners:
            self._record("queued", lease)

    def _admit_item(self, lease: Lease) -> None:
        """Put a lease in line whose policy counts for itself and knows it by its item."""
        if id(lease.item) in self._items:
            raise LeaseMisuse(
                f"{lease.describe()} has an item that is in use: an item wants or has one place at a time"
            )
        self._arrive(lease)
        lease.state = WAITING
        self._waiting[lease] = None
        self._items[id(lease.item)] = lease
        self._policy.enqueue(lease.item, self._ledger.now())

    def _arrive(self, lease: Lease) -> None:
        """Count `lease` in its group and its scope.

        Raises:
            OptionError: its weight is not its group's. Below an ended scope, the scope's error.
        """
        scope = current.get()
        if scope is not None:
            scope.check(lease)
        if self._queue is not None:
            lease.share = self._queue.join(lease.group, lease.weight)
        self._arrived += 1
        lease.number = self._arrived
        if scope is not None:
            lease.scope, lease.revocable = scope, True
            scope.add(lease)

    def _admitted_by_policy(self, lease: Lease) -> bool:
        """For `try_lease`: whether a policy that counts for itself grants it in this step."""
        if self._queue is not None or self._waiting or self._pauses:
            return False
        self.enqueue(lease)
        if lease.state is GRANTED:
            return True
        self.take_out(lease, "withdrawn")
        self.poll()
        return False

    # -- leaving: steps of a lease

    def release(self, lease: Lease) -> None:
        """A lease that was held gives its place back."""
        del self._holders[lease]
        queue = self._queue
        if queue is None:
            self._policy.release(lease.item, self._ledger.now())
        else:
            queue.leave(lease.share)
        self._end(lease)
        if self._ledger.listeners:
            self._record("released", lease)
        if self._waiting or queue is None:
            self.poll()

    def abandon(self, lease: Lease) -> None:
        """A lease that was granted gives its place back before its body began."""
        del self._holders[lease]
        if self._queue is not None:
            self._queue.abandon(lease, 0.0)
        else:
            self._policy.abandon(lease.item, self._ledger.now())
        self._end(lease)
        self._record("abandoned", lease)
        self.poll()

    def give_up(self, lease: Lease, error: BaseException) -> None:
        """The task of a lease stopped waiting, for `error`: give back whatever it has come to have."""
        if lease.state is GRANTED:
            self.abandon(lease)
        elif lease.state is WAITING:
            self.take_out(lease, *outcome_of(error))
            self.poll()

    def refuse(self, lease: Lease, error: Exception) -> None:
        """End the wait of a single lease with an error."""
        self.take_out(lease, "refused", error)
        lease.taken_back = error
        if lease.event is not None:
            lease.event.set()
        self.poll()

    def take_out(self, lease: Lease, kind: str, detail: object = None) -> None:
        """Out of the line without a place."""
        del self._waiting[lease]
        joint = lease.joint
        if self._queue is None:
            self._policy.withdraw(lease.item, self._ledger.now())
        elif joint is not None and lease in joint.parked:
            self._reserved.pop(joint, None)
            self._queue.leave(lease.share)
        else:
            self._unparked -= joint is not None
            self._queue.withdraw(lease, 0.0)
        self._end(lease)
        self._record(kind, lease, detail)

    def take_back(self, lease: Lease, error: Exception) -> None:
        """Ask a revocable holder to leave; its body is cancelled and sees `error`."""
        if lease.taken_back is not None:
            return
        lease.taken_back = error
        self._record("revoked", lease, error)
        scope = lease.cancel_scope if lease.joint is None else lease.joint.cancel_scope
        if scope is not None:
            scope.cancel()

    def requeue(self, lease: Lease, settle: Callable[[float], object] | None) -> None:
        """One step: settle, give the place back, wait as the same item, serve whoever is next."""
        now = self._ledger.now()
        if settle is not None:
            settle(now)
        del self._holders[lease]
        if self._refusal is not None:
            self._refuse_requeue(lease, now)
            raise self._refusal()
        if self._queue is not None:
            lease.key = key_of_returned(lease.order, lease.number)
            self._queue.enqueue(lease, now)
        lease.state = WAITING
        self._waiting[lease] = None
        self._record("requeued", lease)
        self.poll()

    def _refuse_requeue(self, lease: Lease, now: float) -> None:
        """A lease went back in line of a limiter that is closed; a policy of its own was told and has it again."""
        if self._queue is not None:
            self._queue.leave(lease.share)
        else:
            self._policy.withdraw(lease.item, now)
        self._end(lease)
        self._record("released", lease)

    def _end(self, lease: Lease) -> None:
        """A lease has ended, in whichever way."""
        lease.state = ENDED
        if self._queue is None:
            del self._items[id(lease.item)]
        if lease.scope is not None:
            lease.scope.drop(lease)

    # -- serving

    def poll(self) -> None:
        """Admit whoever the policy says is next. The owner calls it at the time `on_wakeup` was told."""
        if self._queue is not None:
            if self._reserved:
                self._serve_around()
            elif self._waiting and not self._pauses:
                self._serve(self._queue)
            return
        wakeup = None
        if not self._pauses:
            now = self._ledger.now()
            self._ask(now)
            wakeup = self._policy.next_wakeup(now)
        if self.on_wakeup is not None:
            self.on_wakeup(wakeup)

    def _ask(self, now: float) -> None:
        """Admit whom a policy that counts for itself lets go."""
        room = None if self._limit is None else max(0, self._limit - len(self._holders))
        for item in self._policy.poll(now, room):
            lease = self._items.get(id(item))
            if lease is None or lease.state is not WAITING:
                raise KernelError(
                    f"the admission policy of limiter {self.name!r} granted {item!r}, which does not wait"
                )
            self._grant(lease)

    def _serve(self, queue: FairQueue) -> None:
        """Admit from a queue as long as there is room, joint waiters first that have reserved theirs."""
        if self._reserved:
            for joint in list(self._reserved):
                joint.serve()
        room = self._room()
        while room or self._unparked:
            lease: Lease | None = queue.head()
            if lease is None:
                return
            if lease.joint is not None and self._limit != 0:
                queue.remove(lease)
                self._unparked -= 1
                lease.joint.park(lease)
            elif room:
                queue.take(lease)
                self._grant(lease)
                if len(self._holders) == self._limit and not self._unparked:
                    return
            else:
                return
            room = self._room()

    def _serve_around(self) -> None:
        """Serve, and then the limiters of the joint waiters that are armed here.

        A place may no longer be kept there because of what happened here; and so on, wherever somebody was served.
        """
        todo: list[Places] = [self]
        started = False
        while todo:
            limiter = todo.pop()
            waiting = len(limiter._waiting)
            armed = list(limiter._reserved)
            if limiter._queue is not None and not limiter._pauses:
                limiter._serve(limiter._queue)
            if not started or len(limiter._waiting) < waiting:
                started = True
                neighbours = {part.limiter: None for joint in (*armed, *limiter._reserved) for part in joint.parts}
                todo.extend(each for each in neighbours if each is not limiter and each not in todo)

    def _room(self) -> bool:
        """Whether there is a place that is not kept for a joint waiter."""
        if self._limit is None:
            return True
        free = self._limit - len(self._holders)
        return free > 0 and (not self._reserved or free > self.kept())

    def kept(self, ahead_of: JointLease | None = None) -> int:
        """Places kept for joint waiters; only for those armed before `ahead_of`, if given."""
        kept = 0
        for joint in self._reserved:
            if joint is ahead_of:
                break
            kept += joint.keeps(self)
        return kept

    def _changed_room(self) -> None:
        """There may be more places than before."""
        self.poll()

    def _grant(self, lease: Lease) -> None:
        """Give a waiter its place and wake it."""
        del self._waiting[lease]
        lease.state = GRANTED
        self._holders[lease] = None
        if self._ledger.listeners:
            self._record("granted", lease)
        if lease.event is not None:
            lease.event.set()

    def reserve(self, part: Lease) -> None:
        """The joint waiter of `part` is armed."""
        assert part.joint is not None
        self._reserved[part.joint] = part
        self._record("armed", part)

    def has_place_for(self, joint: JointLease) -> bool:
        """Whether there is a place for an armed joint waiter besides those kept for whoever was armed earlier."""
        if self._pauses:
            return False
        return self._limit is None or self._limit - len(self._holders) > self.kept(ahead_of=joint)

    def grant_reserved(self, part: Lease) -> None:
        """Give the part of an armed joint waiter its place."""
        assert part.joint is not None
        assert self._queue is not None
        del self._reserved[part.joint]
        self._queue.charge(part)
        self._grant(part)

    # -- the ledger

    def _record(self, kind: str, lease: Lease | None = None, detail: object = None) -> None:
        ledger = self._ledger
        if not ledger.listeners:
            return
        joint = lease.joint if lease is not None else None
        ledger.emit(
            LimiterEvent(
                ledger.now(),
                kind,
                self.name,
                item=lease.number if lease is not None else 0,
                group=lease.group if lease is not None else None,
                used=len(self._holders),
                limit=self._limit,
                waiting=len(self._waiting),
                weight=lease.weight if lease is not None else 1.0,
                order=lease.order if lease is not None else None,
                joint=() if joint is None else tuple((part.limiter.name, part.number) for part in joint.parts),
                detail=detail,
            )
        )


def outcome_of(error: BaseException) -> tuple[str, object]:
    """How the ledger calls the end of a wait that `error` ended, and why."""
    return ("refused", error) if isinstance(error, DeadlockError) else ("withdrawn", None)
