"""Order and fairness, seen in long queues in front of one small limiter."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proctor.actors.ledger import LimiterEvent
from proctor.testing.plan import Admin, Client, Plan
from proctor.testing.stage import check, play
from proctor.testing.strategies import crowded_plans, scaled, times


@scaled(2)
@given(plan=crowded_plans())
def test_order_and_shares_are_kept_in_a_crowd(backend: str, plan: Plan) -> None:
    """Invariants 6, 7 and 24, by the Monitor."""
    check(play(plan, backend))


@scaled(2)
@given(
    weights=st.tuples(*[st.sampled_from([0.5, 1.0, 2.0, 3.0])] * 3),
    first=st.lists(st.integers(0, 1), min_size=8, max_size=14),
    late=st.lists(st.tuples(st.integers(2, 6), st.integers(1, 2)), min_size=2, max_size=8),
)
def test_a_group_that_comes_late_has_no_credit_for_having_been_idle(
    backend: str, weights: tuple[float, float, float], first: list[int], late: list[tuple[int, int]]
) -> None:
    """Invariant 9, by the Monitor: from its coming on it shares like the others, which have long been served."""
    clients = [Client(group=group) for group in first] + [Client(group=group, delay=delay) for delay, group in late]
    check(play(Plan(limits=(1,), clients=tuple(clients), weights=weights, mend=False), backend))


@scaled(4)
@given(
    limit=st.integers(1, 3),
    holds=st.lists(st.integers(1, 8), min_size=1, max_size=14),
    groups=st.lists(st.integers(0, 2), min_size=14, max_size=14),
)
def test_a_limiter_never_idles_a_place_that_somebody_wants(
    backend: str, limit: int, holds: list[int], groups: list[int]
) -> None:
    """Invariant 34: makespan <= total work / limit + the longest."""
    clients = tuple(Client(hold=hold, group=group) for hold, group in zip(holds, groups, strict=False))
    played = check(play(Plan(limits=(limit,), clients=clients, mend=False), backend))
    assert played.duration <= sum(holds) / limit + max(holds)


@scaled(4)
@given(
    before=st.integers(0, 3),
    after=st.integers(0, 8),
    waiting=st.integers(0, 8),
    at=times(4),
    groups=st.lists(st.integers(0, 2), min_size=11, max_size=11),
)
def test_growing_admits_as_many_as_there_is_new_room_for_at_once(
    backend: str, before: int, after: int, waiting: int, at: int, groups: list[int]
) -> None:
    """Invariant 11."""
    clients = tuple(Client(hold=50, group=group) for group in groups[: before + waiting])
    plan = Plan(limits=(before,), clients=clients, admin=(Admin(at, "resize", 0, after),), mend=after == 0)
    played = check(play(plan, backend))
    resized = next(n for n, event in enumerate(played.events) if event.kind == "resized")
    state = played.events[resized - 1] if resized else None
    held = state.used if isinstance(state, LimiterEvent) else 0
    queued = state.waiting if isinstance(state, LimiterEvent) else 0
    admitted = 0
    for event in played.events[resized + 1 :]:
        if event.kind != "granted" or event.time != at:
            break
        admitted += 1
    if at == 0:  # clients that start in this very instant may come after the resize
        assert held + admitted >= min(len(clients), after)
    else:
        assert admitted == max(0, min(queued, after - held))


@scaled(4)
@given(
    limit=st.integers(1, 3),
    holds=st.lists(st.integers(2, 8), min_size=1, max_size=4),
    joint=st.booleans(),
    tries=st.lists(st.tuples(times(), st.integers(0, 1), times(2)), min_size=1, max_size=6),
)
def test_try_lease_fails_while_anybody_waits(
    backend: str, limit: int, holds: list[int], tries: list[tuple[int, int, int]], *, joint: bool
) -> None:
    """Invariant 8, also when a joint lease waits for another limiter and this one has room."""
    holders = [Client(hold=hold) for hold in holds]
    waiter = Client(chain=(0, 1), joint=True, delay=1) if joint else Client(delay=1)
    tried = [Client(chain=(n,), tries=True, delay=delay, hold=hold) for delay, n, hold in tries]
    check(play(Plan(limits=(1, limit), clients=(*holders, waiter, *tried), mend=False), backend))


@scaled(4)
@given(
    limit=st.integers(1, 2),
    clients=st.lists(st.tuples(times(), times(), st.integers(0, 2)), min_size=1, max_size=8),
    at=times(),
    joint=st.booleans(),
)
def test_closing_refuses_who_waits_and_who_comes_and_lets_holders_end(
    backend: str, limit: int, clients: list[tuple[int, int, int]], at: int, *, joint: bool
) -> None:
    """Invariant 5 at the end of a limiter."""
    chain = (0, 1) if joint else (0,)
    made = [Client(chain=chain, joint=joint, delay=delay, hold=hold, group=group) for delay, hold, group in clients]
    plan = Plan(limits=(limit, None), clients=tuple(made), admin=(Admin(at, "close"),), mend=False)
    for client, outcome in zip(made, check(play(plan, backend)).outcomes, strict=True):
        if outcome.status == "done":
            assert outcome.bodies[0].began <= at
            assert outcome.ended == outcome.bodies[0].began + client.hold
        else:
            assert outcome.status == "closed"
            assert outcome.bodies == ()
            assert outcome.ended == max(at, client.delay)


@scaled(4)
@given(
    limits=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    at=times(4),
    one=st.lists(st.tuples(times(6), st.integers(1, 3)), max_size=10),
    other=st.lists(st.tuples(times(6), st.integers(1, 3)), max_size=10),
)
def test_a_joint_waiter_does_not_starve(
    backend: str, limits: tuple[int, int], at: int, one: list[tuple[int, int]], other: list[tuple[int, int]]
) -> None:
    """Invariant 24: it is served after a bounded number of others, however many come later."""
    singles = [Client(chain=(n,), delay=delay, hold=hold) for n, of in enumerate((one, other)) for delay, hold in of]
    later = [Client(chain=(n,), delay=delay, hold=3) for n in (0, 1) for delay in range(7, 40)]
    joint = Client(chain=(0, 1), joint=True, delay=at, hold=1)
    played = check(play(Plan(limits=limits, clients=(joint, *singles, *later), mend=False), backend))
    ahead = max(
        [
            event.waiting
            for event in played.events
            if isinstance(event, LimiterEvent) and event.kind == "queued" and event.joint
        ],
        default=0,
    )
    longest = 3
    started = played.outcomes[0].bodies[0].began
    assert started <= at + (ahead + 1 + len(limits)) * longest
