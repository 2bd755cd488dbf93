"""Hypothesis strategies for plans, so that programs built on the kernel can be tested as the kernel is.

Needs Hypothesis, which is imported here only.
"""

from __future__ import annotations

from typing import Final

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from proctor.testing.plan import Action, Admin, Client, Plan

LATEST: Final = 8
"""Times are whole seconds from 0 to this, so that many coincide."""

EARLY: Final = 4
"""Clients start early, so that they meet."""

ACTIONS: Final[tuple[Action, ...]] = ("resize", "resize", "pause", "resume", "revoke", "close")


def scaled(divisor: int) -> settings:
    """Settings for a property that costs `divisor` times as much as a plain one: so many fewer examples."""
    return settings(max_examples=max(1, settings().max_examples // divisor))


def times(latest: int = LATEST) -> SearchStrategy[int]:
    """A time or a duration."""
    return st.integers(0, latest)


@st.composite
def clients(
    draw: st.DrawFn,
    limiters: int,
    *,
    groups: int = 3,
    timeouts: bool = True,
    joints: bool = True,
    tries: bool = True,
    native: bool = True,
    orders: bool = True,
    failures: bool = True,
    requeues: bool = True,
    revocable: bool = True,
    ranked: bool = True,
) -> Client:
    """A client; if `ranked`, its chain respects the ranks of a plan's limiters."""
    wanted = draw(st.sets(st.integers(0, limiters - 1), min_size=1, max_size=min(3, limiters)))
    timeout = draw(st.none() | times()) if timeouts else None
    way = draw(st.sampled_from(["plain", "plain", "joint", "try", "requeue"]))
    return Client(
        chain=tuple(sorted(wanted) if ranked else draw(st.permutations(sorted(wanted)))),
        group=draw(st.integers(0, groups - 1)),
        delay=draw(times(EARLY)),
        step=draw(times(3)) if len(wanted) > 1 else 0,
        hold=draw(times()),
        timeout=timeout,
        order=draw(st.none() | st.integers(0, 2)) if orders else None,
        joint=joints and way == "joint" and len(wanted) > 1,
        native=native and timeout is not None and draw(st.booleans()),
        tries=tries and way == "try",
        revocable=revocable and draw(st.booleans()),
        requeues=requeues and way == "requeue",
        fails=failures and draw(st.sampled_from([False, False, False, True])),
    )


@st.composite
def operations(draw: st.DrawFn, limiters: int, *, actions: tuple[Action, ...] = ACTIONS, lowest: int = 0) -> Admin:
    """Something done to a limiter."""
    action = draw(st.sampled_from(actions))
    value = draw(st.integers(lowest, 4)) if action == "resize" else draw(st.integers(-1, 2))
    return Admin(draw(times()), action, draw(st.integers(0, limiters - 1)), value)


@st.composite
def plans(
    draw: st.DrawFn,
    *,
    most_limiters: int = 3,
    most_clients: int = 8,
    most_operations: int = 4,
    jitter: bool = True,
    unlimited: bool = True,
    actions: tuple[Action, ...] = ACTIONS,
    ranked: bool = True,
) -> Plan:
    """A plan of every kind: several limiters, groups of different weights, joint leases, operations, cancellations.

    Args:
        ranked: clients take their leases in the order of the limiters; else in any order, and limiters have no ranks.
    """
    limit = st.sampled_from([1, 1, 1, 2, 3, *([None] if unlimited else [])])  # mostly tight
    limits = draw(st.lists(limit, min_size=1, max_size=most_limiters))
    count = len(limits)
    return Plan(
        limits=tuple(limits),
        clients=tuple(draw(st.lists(clients(count, ranked=ranked), min_size=2, max_size=most_clients))),
        admin=tuple(draw(st.lists(operations(count, actions=actions), max_size=most_operations))),
        weights=draw(st.tuples(*[st.sampled_from([0.5, 1.0, 2.0, 3.0])] * 3)),
        jitter=draw(st.none() | st.integers(0, 1000)) if jitter else None,
        ranked=ranked,
    )


@st.composite
def crowded_plans(draw: st.DrawFn, *, most_clients: int = 16) -> Plan:
    """One limiter with a small limit and long queues: what fairness and order are seen in."""
    simple = clients(1, timeouts=False, joints=False, tries=False, native=False, failures=False, requeues=False)
    return Plan(
        limits=(draw(st.integers(1, 2)),),
        clients=tuple(draw(st.lists(simple, min_size=4, max_size=most_clients))),
        weights=draw(st.tuples(*[st.sampled_from([0.5, 1.0, 2.0, 3.0])] * 3)),
    )
