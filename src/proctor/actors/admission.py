"""Who is next: the interface of admission policies, and the stride-fair queue that limiters use unless told otherwise.

A policy is synchronous and pure: no clock of its own, no tasks. It only decides the order; the limiter counts places,
wakes tasks and keeps ranks, so that whatever the policy there is one queue in front of a resource.

`FairQueue` is stride scheduling. Each group has a virtual time that grows by 1/weight with every place it is given, and
the group with the least is served next. The queue's own virtual time grows with every place by 1 over the weights of
all groups that wait: it is where a group stands that always had its share. A group that comes, or comes back after
having been idle, starts there: no credit for the time in which it asked for nothing, and what it was given before is
still owed. (But no later than one place of its own after the least served: so two groups that both wait never differ
by more than one place of each.) When nobody waits any more all debts are forgotten, so the numbers stay small.

Rejected: lottery scheduling (fair on average only, and it needs chance); deficit round robin (its error is a whole
round of groups, stride's is one grant each); starting at the virtual time of the last service (groups that come anew,
again and again, would all go before one that was served before); one heap over all waiters keyed by finish tags (a
weight or an order that changes would have to re-key every waiter of the group).

Within a group waiters stand in buckets, one for each distinct order, each an `OrderedDict`; a heap holds the distinct
orders. So withdrawing a waiter is O(1) wherever it stands. Rejected: a heap of waiters with tombstones (20,000
cancelled waiters would have to be walked by the next grant) and a plain dict (finding its first entry walks the deleted
ones).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, Protocol, TypeAlias

from attrs import define, field

from proctor.errors import OptionError

Order: TypeAlias = tuple[int, ...] | int | None
Key: TypeAlias = tuple[tuple[int, ...], int, int]
"""A bucket of a group: order; 0 for one that came back and 1 for those that did not; arrival of one that came back."""

UNORDERED: Final[Key] = ((), 1, 0)


class AdmissionPolicy(Protocol):
    """Who is granted next. Every call is one synchronous step; `now` is in seconds on the loop's monotonic clock.

    The limiter calls `poll` after every enqueue, withdraw, abandon, release, requeue, resize and resume, but never
    while it is paused. A policy may be told of a requeue by a method `requeue(item, now)`; without it, it is expected
    to put the item back itself, in the `settle` of `Lease.requeue` or earlier.
    """

    def enqueue(self, item: Any, now: float) -> None:
        """`item` wants a place."""

    def withdraw(self, item: Any, now: float) -> None:
        """`item` was cancelled while it waited."""

    def abandon(self, item: Any, now: float) -> None:
        """`item` was granted and cancelled before it woke: its work was never begun."""

    def release(self, item: Any, now: float) -> None:
        """`item` gives its place back."""

    def poll(self, now: float, room: int | None) -> Sequence[Any]:
        """The items to be granted now, in this order, at most `room` of them (None: any number)."""
        ...

    def next_wakeup(self, now: float) -> float | None:
        """When to poll though nothing has happened, in absolute seconds; None if only an event can help."""


def key_of(order: Order) -> Key:
    """The bucket for whoever waits for the first time."""
    if order is None:
        return UNORDERED
    return ((order,) if isinstance(order, int) else order, 1, 0)


def key_of_returned(order: Order, arrival: int) -> Key:
    """The bucket for one that was served before. All others of its order that wait arrived later: it goes first."""
    return (key_of(order)[0], 0, arrival)


@define(eq=False)
class Share:
    """What a group of a `FairQueue` is entitled to, and its waiters.

    Attributes:
        group: its name. weight: places it gets for each one that a group of weight 1 gets.
        members: items of the group that wait or hold a place.
        passed: its virtual time, which a grant moves on by `stride`. waiting: items of it that wait in the queue.
    """

    group: Hashable
    weight: float
    members: int = 0
    passed: float = 0.0
    epoch: int = 0
    waiting: int = 0
    turn: int = 0
    stride: float = field(init=False)
    _orders: list[Key] = field(factory=list, init=False)
    _buckets: dict[Key, OrderedDict[Queued, None]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.stride = 1 / self.weight

    def bucket(self, key: Key) -> OrderedDict[Queued, None]:
        """A new bucket, for a key that has none."""
        heappush(self._orders, key)
        made = self._buckets[key] = OrderedDict()
        return made

    def first(self) -> Any:
        """The item that is served next within the group; there must be one."""
        while True:
            bucket = self._buckets[self._orders[0]]
            if bucket:
                return next(iter(bucket))
            del self._buckets[heappop(self._orders)]

    def sweep(self) -> None:
        """Forget the buckets that withdrawals emptied, once they are more than the waiting items."""
        if len(self._orders) <= 2 * self.waiting + 8:
            return
        self._buckets = {key: bucket for key, bucket in self._buckets.items() if bucket}
        self._orders = list(self._buckets)
        heapify(self._orders)


class Queued(Protocol):
    """What a `FairQueue` keeps in line: leases, or the tickets it makes itself.

    Attributes:
        share: the group it belongs to.
        key: the bucket it stands in. charged: the epoch in which its last grant was charged. Both are the queue's own.
    """

    share: Share
    key: Key
    charged: int


@define(eq=False)
class Ticket:
    """An item for those who use a `FairQueue` without a limiter.

    Attributes:
        order: its place within the group. arrival: its number, in the order in which tickets were made.
    """

    share: Share
    order: tuple[int, ...]
    arrival: int
    key: Key
    charged: int = -1


@define(eq=False)
class FairQueue:
    """Stride-fair between groups by weight; within a group by order, then by arrival.

    Room alone decides how many leave, so a limiter with this policy may admit without asking while nobody waits, and
    may take part in `lease_all`. A subclass may decide otherwise who is next.
    """

    virtual: float = field(default=0.0, init=False)
    waiting: int = field(default=0, init=False)
    _shares: dict[Hashable, Share] = field(factory=dict, init=False)
    _active: list[tuple[float, int, Share]] = field(factory=list, init=False)
    _weight: float = field(default=0.0, init=False)
    _step: float = field(default=0.0, init=False)
    _turn: int = field(default=0, init=False)
    _epoch: int = field(default=0, init=False)
    _made: int = field(default=0, init=False)
    _prune_at: int = field(default=64, init=False)

    # -- what a limiter without a queue in front of it needs: membership of groups

    def join(self, group: Hashable, weight: float) -> Share:
        """Count one more member of a group.

        Raises:
            OptionError: the group has members, of another weight.
        """
        share = self._shares.get(group)
        if share is None:
            share = self._admit_group(group, weight)
        elif share.weight != weight:
            if share.members:
                raise OptionError(
                    f"weight={weight:g} for group {group!r}, which has {share.members} lease(s) of weight "
                    f"{share.weight:g}: the weight belongs to the group, give all its leases the same"
                )
            share.weight, share.stride = weight, 1 / weight
        share.members += 1
        return share

    def leave(self, share: Share) -> None:
        """Count one member of a group less."""
        share.members -= 1

    def item(self, group: Hashable = None, weight: float = 1.0, order: Order = None) -> Ticket:
        """A new item, which counts as a member of its group until it is released, withdrawn or abandoned.

        Raises:
            OptionError: the group has members, of another weight.
        """
        self._made += 1
        key = key_of(order)
        return Ticket(self.join(group, weight), key[0], self._made, key)

    # -- AdmissionPolicy

    def enqueue(self, item: Queued, now: float) -> None:
        share = item.share
        if not share.waiting:
            self._rejoin(share)
        key = item.key
        bucket = share._buckets.get(key)
        if bucket is None:
            bucket = share.bucket(key)
        bucket[item] = None
        share.waiting += 1
        self.waiting += 1

    def requeue(self, item: Ticket, now: float) -> None:
        """Wait again, at the same order and arrival."""
        item.key = key_of_returned(item.order, item.arrival)
        self.enqueue(item, now)

    def withdraw(self, item: Queued, now: float) -> None:
        self.remove(item)
        self.leave(item.share)

    def abandon(self, item: Queued, now: float) -> None:
        self.refund(item)
        self.leave(item.share)

    def release(self, item: Queued, now: float) -> None:
        self.leave(item.share)

    def poll(self, now: float, room: int | None) -> list[Any]:
        granted: list[Any] = []
        while (room is None or len(granted) < room) and (item := self.head()) is not None:
            self.take(item)
            granted.append(item)
        return granted

    def next_wakeup(self, now: float) -> float | None:
        return None

    # -- poll in steps, for limiters with joint waiters

    def head(self) -> Any:
        """Who would be served next; None when nobody waits."""
        active = self._active
        share = active[0][2] if len(active) == 1 and active[0][2].waiting else self._least()
        return None if share is None else share.first()

    def take(self, item: Queued) -> None:
        """Serve a waiting item: take it out and charge its group."""
        share = item.share
        self.virtual += self._step
        share.passed += share.stride
        item.charged = self._epoch
        del share._buckets[item.key][item]
        share.waiting -= 1
        self.waiting -= 1
        if not share.waiting:
            self._retire(share)

    def remove(self, item: Queued) -> None:
        """Take a waiting item out without serving it."""
        share = item.share
        del share._buckets[item.key][item]
        share.waiting -= 1
        share.sweep()
        self.waiting -= 1
        if not share.waiting:
            self._retire(share)

    def charge(self, item: Queued) -> None:
        """Charge one place to the group of an item that is not in the queue."""
        share = item.share
        if not share.waiting:
            self._refresh(share)
        share.passed += share.stride
        item.charged = self._epoch

    def refund(self, item: Queued) -> None:
        """Take back what the last grant of `item` was charged, if it is still owed."""
        share = item.share
        if item.charged == self._epoch == share.epoch:
            share.passed -= share.stride
            if share.waiting:
                self._push(share)

    # -- groups

    def shares(self) -> list[Share]:
        """The groups that have members, in the order in which they came."""
        return [share for share in self._shares.values() if share.members]

    def lag(self, share: Share) -> float:
        """Places by which a waiting group is behind its share (positive) or ahead of it; 0 for one that is idle."""
        return (self.virtual - share.passed) * share.weight if share.waiting else 0.0

    def _least(self) -> Share | None:
        """The waiting group that has been served least; None when nobody waits."""
        active = self._active
        while active:
            passed, turn, share = active[0]
            if turn != share.turn or not share.waiting:
                heappop(active)
            elif passed != share.passed and len(active) > 1:
                # It was served since it got this place.
                self._turn = share.turn = self._turn + 1
                heapreplace(active, (share.passed, share.turn, share))
            else:
                return share
        return None

    def _rejoin(self, share: Share) -> None:
        """An idle group waits again."""
        self._refresh(share)
        self._weigh(share.weight)
        self._push(share)

    def _retire(self, share: Share) -> None:
        """A group waits no more."""
        if self.waiting:
            self._weigh(-share.weight)
        else:
            self._forget_debts()

    def _weigh(self, change: float) -> None:
        self._weight += change
        # Weights that are very far apart may vanish in each other.
        self._step = 1 / self._weight if self._weight > 0 else 0.0

    def _refresh(self, share: Share) -> None:
        """Bring an idle group to the present virtual time, without credit for having been idle."""
        if share.epoch != self._epoch:
            share.epoch, share.passed = self._epoch, 0.0
        start = self.virtual
        least = self._least()
        if least is not None:
            self.virtual = max(self.virtual, least.passed)
            start = min(self.virtual, least.passed + share.stride)
        share.passed = max(share.passed, start)

    def _push(self, share: Share) -> None:
        """Give a group its place among the waiting ones; an earlier place is left to be skipped.

        A place is where the group stood when it got it. It may since have been served and stand later, which `head`
        mends when the place comes up; never earlier.
        """
        self._turn = share.turn = self._turn + 1
        heappush(self._active, (share.passed, share.turn, share))
        if len(self._active) > 2 * len(self._shares) + 64:
            self._active = [entry for entry in self._active if entry[2].turn == entry[1] and entry[2].waiting]
            heapify(self._active)

    def _forget_debts(self) -> None:
        self._epoch += 1
        self.virtual = self._weight = self._step = 0.0
        self._active.clear()

    def _admit_group(self, group: Hashable, weight: float) -> Share:
        if len(self._shares) >= self._prune_at:
            self._shares = {
                share.group: share
                for share in self._shares.values()
                if share.members or (share.epoch == self._epoch and share.passed > self.virtual)
            }
            self._prune_at = max(64, 2 * len(self._shares))
        share = self._shares[group] = Share(group, weight, epoch=self._epoch)
        return share
