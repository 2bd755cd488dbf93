"""A limiter: so many places that are leased, one queue in front of them, and what may be done to both while it runs.

This is the face; the steps are in places.py, what happens in the task that takes a lease in lease.py, who is next in
admission.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable
from typing import Any, final

from attrs import define

from proctor.actors.admission import Order
from proctor.actors.lease import WAITING, Lease
from proctor.actors.places import CLOSED, Places
from proctor.actors.statistics import GroupStatistics, LimiterStatistics
from proctor.errors import LeaseMisuse, LeaseRevoked, LimiterClosed, OptionError


@final
@define(eq=False, repr=False)
class Limiter(Places):
    """A number of places that are leased, and one queue in front of them.

    It belongs to one event loop and is not thread-safe.

    Args:
        limit: places there are; None is unlimited, 0 admits nobody.
        name: for messages, the ledger and statistics.
        rank: its step on the ladder in which leases are taken; None takes part in no order.
        admission: who is next; a `FairQueue` unless given. A policy belongs to one limiter.
        ledger: where its events go.

    Attributes:
        on_wakeup: called after each poll of a policy of your own with the time it wants to be polled at, or None. The
            owner of the limiter is to call `poll` then; the limiter itself runs no timer.

    Raises:
        OptionError: the limit is negative or no whole number.
    """

    def __attrs_post_init__(self) -> None:
        _check_limit(self.name, self._limit)
        Places.__attrs_post_init__(self)

    def __repr__(self) -> str:
        return f"<Limiter {self.name!r}, {len(self._holders)} of {self._limit} used, {len(self._waiting)} waiting>"

    # -- leases

    def lease(
        self,
        *,
        group: Hashable = None,
        weight: float = 1.0,
        order: Order = None,
        item: Any = None,
        revocable: bool = False,
    ) -> Lease:
        """A lease to be entered with ``async with``, which waits for a place.

        Args:
            group: whose share it is counted to.
            weight: places the group gets for each one that a group of weight 1 gets, while both wait.
            order: place within the group, lower first; equal ones in order of arrival.
            item: ready-made, for a policy of your own. Its `group`, `weight` and `order`, if it has them, are shown.
            revocable: whether `revoke` may take it back. It then carries a cancel scope.

        Raises:
            OptionError: the weight is not above 0, or the order is not made of integers.
            On entering: RankError, DeadlockError, LimiterClosed, LeaseMisuse, OptionError for a weight in conflict with
            the group's, and below an ended lease scope the scope's error.
        """
        if weight != 1.0 and not 0 < weight < math.inf:
            raise OptionError(f"limiter {self.name!r}: weight={weight!r} must be a finite number above 0")
        if order is not None:
            _check_order(self.name, order)
        if item is not None or self._queue is None:
            self._check_item(item)
            group = getattr(item, "group", None) if group is None else group
            weight, order = getattr(item, "weight", weight), getattr(item, "order", order)
        frame = sys._getframe(1)
        return Lease(self, group, weight, order, item, revocable, frame.f_code, frame.f_lasti)

    def _check_item(self, item: Any) -> None:
        if item is None:
            raise LeaseMisuse(f"limiter {self.name!r} admits ready-made items only: give its lease an item=")
        if self._queue is not None:
            raise LeaseMisuse(
                f"limiter {self.name!r} makes its items itself, from group, weight and order: give it no item="
            )

    def try_lease(
        self,
        *,
        group: Hashable = None,
        weight: float = 1.0,
        order: Order = None,
        item: Any = None,
        revocable: bool = False,
    ) -> Lease | None:
        """A lease if there is a place at this moment and nobody waits for one, else None.

        The place is taken by the call: leave the lease with a plain ``with``. Arguments and errors are those of
        `lease`.
        """
        lease = self.lease(group=group, weight=weight, order=order, item=item, revocable=revocable)
        frame = sys._getframe(1)
        lease.code, lease.instruction = frame.f_code, frame.f_lasti
        outer = lease.prepare()
        if self._refusal is not None:
            raise self._refusal()
        if not self.at_once(lease) and not self._admitted_by_policy(lease):
            return None
        lease.begin(outer, scope=False)
        return lease

    # -- live changes

    def resize(self, limit: int | None) -> None:
        """Change the number of places. Growing admits at once; shrinking disturbs no holder.

        Raises:
            OptionError: the limit is negative or no whole number.
        """
        _check_limit(self.name, limit)
        self._limit = limit
        self._record("resized")
        self._changed_room()

    def pause(self, by: Hashable = None) -> None:
        """Admit nobody until resumed. Each `by` pauses for itself: all that paused must resume."""
        self._pauses.add(by)
        self._record("paused", detail=by)
        self._changed_room()

    def resume(self, by: Hashable = None) -> None:
        """Take back what `pause` with the same `by` did; without one, nothing changes."""
        self._pauses.discard(by)
        self._record("resumed", detail=by)
        self.poll()

    def close(
        self, cause: BaseException | str | None = None, *, error: Callable[[str], Exception] = LimiterClosed
    ) -> None:
        """Refuse everybody who waits and everybody who comes. Holders keep their places until they leave.

        Args:
            cause: why; an exception becomes the `__cause__` of what is raised.
            error: makes that exception from a text.

        Raises:
            LimiterClosed: it is closed already.
        """
        if self._refusal is not None:
            raise LimiterClosed(f"limiter {self.name!r} is closed twice: only its owner closes it, once")
        because = f": {cause}" if cause is not None and str(cause) else ""

        def refusal() -> Exception:
            made = error(f"limiter {self.name!r} is closed{because}")
            made.__cause__ = cause if isinstance(cause, BaseException) else None
            return made

        self._refusal = refusal
        self._pauses.add(CLOSED)
        self._record("closed", detail=cause)
        for lease in list(self._waiting):
            if lease.state is WAITING:
                (lease.joint or self).refuse(lease, refusal())

    def revoke(self, reason: object, *, where: Callable[[Lease], bool] | None = None) -> int:
        """Take revocable leases back: their bodies are cancelled and see `LeaseRevoked`.

        Args:
            reason: for the error. where: which of the held revocable leases; all unless given.

        Returns:
            How many were asked to leave now. Each counts until it has left; nobody is asked twice.
        """
        taken = [
            each
            for each in self._holders
            if each.revocable and each.taken_back is None and (where is None or where(each))
        ]
        for lease in taken:
            self.take_back(lease, LeaseRevoked(reason))
        return len(taken)

    # -- what is to be seen

    @property
    def limit(self) -> int | None:
        """Places there are; None is unlimited. A policy that counts for itself may have a `limit` of its own."""
        if self._queue is None and self._limit is None:
            return getattr(self._policy, "limit", None)
        return self._limit

    @property
    def used(self) -> int:
        """Places taken."""
        return len(self._holders)

    @property
    def waiting(self) -> int:
        """Leases that wait."""
        return len(self._waiting)

    @property
    def paused(self) -> bool:
        """Whether somebody has paused it."""
        return bool(self._pauses - {CLOSED})

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._refusal is not None

    def statistics(self) -> LimiterStatistics:
        """The limiter as it is now."""
        waiting = list(self._waiting)
        joint = sum(lease.joint is not None for lease in waiting)
        return LimiterStatistics(
            name=self.name,
            limit=self.limit,
            used=len(self._holders),
            waiting=len(waiting),
            waiting_single=len(waiting) - joint,
            waiting_joint=joint,
            reserved=0 if self._limit is None else min(self.kept(), max(0, self._limit - len(self._holders))),
            arrived=self._arrived,
            paused=self.paused,
            closed=self.closed,
            next_wakeup=None if self._queue is not None else self._policy.next_wakeup(self._ledger.now()),
            groups=self._group_statistics(waiting),
            note=self._note(),
        )

    def _note(self) -> str:
        tell = None if self._queue is not None else getattr(self._policy, "note", None)
        return tell(self._ledger.now()) if tell is not None else ""

    def _group_statistics(self, waiting: list[Lease]) -> tuple[GroupStatistics, ...]:
        counts: dict[Hashable, list[Any]] = {}
        for column, leases in ((2, self._holders), (3, waiting)):
            for lease in leases:
                row = counts.setdefault(lease.group, [lease.group, lease.weight, 0, 0, 0.0])
                row[column] += 1
                if self._queue is not None:
                    row[4] = self._queue.lag(lease.share)
        return tuple(GroupStatistics(*row) for row in counts.values())


def _check_limit(name: str, limit: int | None) -> None:
    if limit is None:
        return
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise OptionError(f"limiter {name!r}: limit={limit!r} is no whole number of places; None is unlimited")
    if limit < 0:
        raise OptionError(f"limiter {name!r}: limit={limit} is negative; 0 admits nobody, None is unlimited")


def _check_order(name: str, order: Order) -> None:
    if isinstance(order, int) or (isinstance(order, tuple) and all(isinstance(each, int) for each in order)):
        return
    raise OptionError(f"limiter {name!r}: order={order!r} must be an integer or a tuple of integers; lower is first")
