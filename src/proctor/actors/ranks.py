"""Ranks, and the leases that the running code holds.

Deadlock freedom by order: leases are taken in increasing rank, so no ring of tasks can each wait for a permit that the
next one holds. The check is made before a lease queues, from what the code already holds.

What is held travels in a context variable, as a chain from the innermost lease outwards. A context variable and not a
table by task: child tasks inherit it, and so take leases above those that their parents hold; and it costs one `set`
and one `reset` a lease. A lease that was given back stays in the chains that children inherited; it is skipped. The
token of the `set` also tells, at no cost, whether a lease is left in the context that entered it: `reset` refuses any
other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from attrs import frozen

from proctor.errors import RankError

if TYPE_CHECKING:
    from proctor.actors.lease import Lease


@frozen
class Rank:
    """A step of a ladder on which leases are taken upwards only. The kernel knows no names: a program makes its own.

    Attributes:
        name: for messages, and for `only`.
        level: higher is taken later.
        leaf: nothing may be taken while a lease of this rank is held.
        nests: a lease of this rank may be taken under another of the same rank.
        only: names of the ranks that may be taken under this one; None for every higher one.
    """

    name: str
    level: int
    leaf: bool = False
    nests: bool = False
    only: frozenset[str] | None = None

    def admits(self, inner: Rank) -> bool:
        """Whether a lease of rank `inner` may be taken while one of this rank is held."""
        if self.leaf:
            return False
        if inner.level == self.level:
            return inner.name == self.name and self.nests
        return inner.level > self.level and (self.only is None or inner.name in self.only)


held: ContextVar[Lease | None] = ContextVar("proctor_held_lease", default=None)


def innermost() -> Lease | None:
    """The innermost lease that the running code holds, its own or inherited; None when it holds none."""
    lease = held.get()
    while lease is not None and not lease.held:
        lease = lease.outer
    return lease


def held_leases() -> Iterator[Lease]:
    """The leases that the running code holds, its own and inherited, innermost first."""
    lease = held.get()
    while lease is not None:
        if lease.held:
            yield lease
        lease = lease.outer


def check(outer: Lease | None, wanted: Lease) -> None:
    """Refuse a lease that is out of order; `outer` is the innermost one held.

    Looking at the innermost ranked one is enough: it passed this check against all that were held when it was taken.

    Raises:
        RankError: naming both places.
    """
    rank = wanted.limiter.rank
    while outer is not None and (not outer.held or outer.limiter.rank is None):
        outer = outer.outer
    if rank is None or outer is None:
        return
    over = outer.limiter.rank
    if over is None or over.admits(rank):
        return
    if over.leaf:
        rule = f"{over.name} is a leaf: nothing may be taken under it"
    elif over.only is not None and rank.level > over.level:
        rule = f"under {over.name} only {', '.join(sorted(over.only)) or 'nothing'} may be taken"
    elif over.name == rank.name:
        rule = f"leases of rank {rank.name} do not nest; take several at once with lease_all"
    else:
        rule = f"leases are taken in increasing rank, and {rank.name} comes before {over.name}"
    raise RankError(
        f"{wanted.describe()} was asked for while {outer.describe()} is held. {rule}. "
        f"Take it before the other, or give the other back first."
    )


def entered_here(lease: Lease) -> bool:
    """Whether a held lease was entered by the running task itself, not inherited from a parent.

    Only the context in which a variable was set may reset it. So the test is a reset; the value and a token that undoes
    to the same earlier value are put back at once.
    """
    if lease.token is None:
        return False
    current = held.get()
    try:
        held.reset(lease.token)
    except ValueError:
        return False
    lease.token = held.set(current)
    return True


def own_leases() -> list[Lease]:
    """The leases that the running task entered itself and still holds, innermost first."""
    return [lease for lease in held_leases() if entered_here(lease)]


@contextmanager
def holding_nothing() -> Iterator[None]:
    """Run a block as code that holds no lease: for work that is no part of what its caller does.

    A call back from a worker thread, or a nested evaluation, takes its leases in an order of its own. What was held
    before is held again after the block.
    """
    token = held.set(None)
    try:
        yield
    finally:
        held.reset(token)
