"""Waits that can never end: a task that waits for its own permits, and rings of tasks that wait for each other.

The first is seen when the lease is asked for and raises at once. The second is looked for once, a second after a
waiter queued, in that waiter's own task, and only by waiters that hold something themselves: nobody else can be part
of a ring, and whichever task closes a ring is one of them. So no timer runs for anybody else and none is periodic.

A correct program must never be accused. Hence:

- Only leases that the waiting *task itself* entered count as held by it. What it inherited is its parent's, and a
  parent may well release while its child waits.
- A limiter is lost only if it is full, neither paused nor closed, and *every* lease on it belongs to a task that is
  itself lost: one holder that can still run will release. (So the search is for the greatest set of waits that only
  each other could end, not for a cycle.)
- A wait ends by itself at its deadline. If the waits of a ring have different deadlines, the first to give up lets the
  others on, and nobody is accused. One deadline around them all, such as a test's, frees nobody and changes nothing.
- Waits the kernel does not see (a nursery, a channel, an ask) count as able to end.

Rejected: a periodic detector (a timer that runs for the sake of programs that have no deadlock) and searching at every
enqueue (most rings of a second ago were resolved by a release since; the search costs most when most wait).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import anyio
from attrs import define

from proctor.actors import ranks
from proctor.errors import DeadlockError

if TYPE_CHECKING:
    from proctor.actors.lease import Lease
    from proctor.actors.limiter import Limiter
    from proctor.actors.places import Places

PATIENCE: Final = 1.0
"""Seconds a waiter has queued when the ring it may be part of is looked for."""


@define(eq=False)
class Wait:
    """A task that waits for a lease, or for the parts of a joint one.

    Attributes:
        leases: what it waits for. own: what its task holds meanwhile.
        event: set once the wait has ended; nobody else ever waits on it, see docs/explanation/why-leases.md.
        task: the task's name and deadline: when the wait ends by itself; both known once it was looked at.
    """

    leases: tuple[Lease, ...]
    own: tuple[Lease, ...]
    event: anyio.Event
    task: str = ""
    deadline: float | None = None

    async def end(self) -> None:
        """Wait until granted or refused, as a task that holds something itself: it may be part of a ring.

        Raises:
            DeadlockError: only the waits of a ring that this one closed could end each other.
        """
        for lease in self.own:
            lease.blocked = self
        try:
            looking = True
            while looking and not self.event.is_set():
                with anyio.move_on_after(PATIENCE):
                    await self.event.wait()
                if not self.event.is_set():
                    self.task = anyio.get_current_task().name or "a task"
                    self.deadline = anyio.current_effective_deadline()
                    check_ring(self)
                    # Nobody is lost behind a paused limiter; the ring closes when it is resumed, so look once more.
                    looking = any(lease.limiter.paused for lease in (*self.leases, *self.own))
            await self.event.wait()
        finally:
            for lease in self.own:
                lease.blocked = None


def check_self(wanted: Iterable[Lease], own: Iterable[Lease]) -> None:
    """Refuse to wait for permits that are all held by the task that would wait.

    Raises:
        DeadlockError: naming the limiter and where its permits were taken.
    """
    for lease in wanted:
        limiter = lease.limiter
        mine = [each for each in own if each.limiter is limiter]
        if mine and limiter.full and len(mine) == limiter.used:
            raise DeadlockError(
                f"{lease.describe()} would wait for ever: this task holds every place of it itself: "
                f"{_listed(each.describe() for each in mine)}. Use the lease it has, or take them together with a "
                f"larger limit."
            )


def check_ring(wait: Wait) -> None:
    """Look for a ring through `wait`.

    Raises:
        DeadlockError: naming who holds what and who waits for what.
    """
    lost = _lost(_reachable(wait))
    # A wait not yet looked at has no known deadline; it will be looked at in its turn, after this one.
    if wait not in lost or any(each.deadline != wait.deadline for each in lost):
        return
    ring = [each for each in lost if each is wait or wait in _reachable(each)]
    if len(ring) < 2 and wait not in _awaited(wait):
        return
    raise DeadlockError(
        "these tasks wait for each other and none can go on:\n"
        + "\n".join(f"  {_line(each)}" for each in ring)
        + "\nThis one is refused so that the others may go on. Give the limiters ranks, take their leases in the same "
        "order everywhere, or take them together with lease_all."
    )


def holders_behind(limiters: Iterable[Places]) -> set[Lease]:
    """The leases that have to end, or whose tasks have to go on, before there is a place of each of `limiters`."""
    found: set[Lease] = set()
    todo = [holder for limiter in limiters for holder in limiter.holders()]
    while todo:
        lease = todo.pop()
        if lease not in found:
            found.add(lease)
            if lease.blocked is not None:
                todo.extend(holder for wanted in lease.blocked.leases for holder in wanted.limiter.holders())
    return found


def _awaited(wait: Wait) -> set[Wait]:
    """The waits that hold up `wait`: those of the holders of a limiter whose holders all wait themselves."""
    found: set[Wait] = set()
    for lease in wait.leases:
        waits = {holder.blocked for holder in lease.limiter.holders()} if _stuck(lease.limiter) else set()
        found.update(each for each in waits if each is not None)
    return found


def _stuck(limiter: Limiter) -> bool:
    """Whether only its holders could make room, and each of them waits. Ends at the first that does not."""
    return limiter.full and not limiter.stopped and all(holder.blocked is not None for holder in limiter.holders())


def _reachable(wait: Wait) -> list[Wait]:
    found: dict[Wait, None] = {}
    todo = [wait]
    while todo:
        each = todo.pop()
        if each not in found:
            found[each] = None
            todo.extend(_awaited(each))
    return list(found)


def _lost(waits: list[Wait]) -> list[Wait]:
    """The waits among `waits` that only others among them could end."""
    lost = set(waits)

    def is_lost(limiter: Limiter) -> bool:
        return _stuck(limiter) and all(holder.blocked in lost for holder in limiter.holders())

    changed = True
    while changed:
        kept = {each for each in lost if any(is_lost(lease.limiter) for lease in each.leases)}
        changed = len(kept) < len(lost)
        lost = kept
    return [each for each in waits if each in lost]


def _line(wait: Wait) -> str:
    return (
        f"{wait.task or 'a task'} holds {_listed(lease.describe() for lease in wait.own)} "
        f"and waits for {_listed(lease.describe() for lease in wait.leases)}"
    )


def _listed(names: Iterable[str]) -> str:
    return " and ".join(names)


def own_of_waiter(outer: Lease | None) -> tuple[Lease, ...]:
    """What the running task holds itself; `outer` spares the search where it holds nothing at all."""
    return () if outer is None else tuple(ranks.own_leases())
