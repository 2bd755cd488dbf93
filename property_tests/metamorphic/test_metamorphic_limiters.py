"""Two runs that differ in one thing, and what may not differ with it."""

from __future__ import annotations

import anyio
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from proctor.actors.ledger import Event, Ledger, LimiterEvent
from proctor.testing import run_virtual
from proctor.testing.monitor import normalised
from proctor.testing.plan import Admin, Client, Outcome, Plan
from proctor.testing.stage import Played, Stage, check, play
from proctor.testing.strategies import clients, plans, scaled, times


def simple_plans(*, timeouts: bool = True, groups: int = 1) -> st.SearchStrategy[Plan]:
    """One limiter, clients that only lease, hold and time out."""
    client = clients(
        1, groups=groups, timeouts=timeouts, joints=False, tries=False, native=False, requeues=False, revocable=False
    )
    return st.builds(
        Plan,
        limits=st.tuples(st.integers(1, 3)),
        clients=st.lists(client, min_size=1, max_size=10).map(tuple),
        weights=st.just((1.0, 1.0, 1.0)),
    )


@scaled(2)
@given(plan=simple_plans(groups=3), at=times(), to=st.integers(0, 2))
def test_shrinking_changes_no_holders_outcome(backend: str, plan: Plan, at: int, to: int) -> None:
    """Invariant 10: those inside when the limit falls end as they would have."""
    limit = plan.limits[0]
    assert limit is not None
    shrunk = check(play(evolve(plan, admin=(Admin(at, "resize", 0, min(to, limit)),)), backend))
    plain = check(play(plan, backend))
    for number, outcome in enumerate(plain.outcomes):
        if any(body.began < at <= body.ended for body in outcome.bodies):
            assert shrunk.outcomes[number] == outcome


@scaled(4)
@given(plan=simple_plans())
def test_one_who_gives_up_waiting_changes_nobody_else(backend: str, plan: Plan) -> None:
    """Invariant 12: its body never started, and without it the others fare the same."""
    plain = check(play(evolve(plan, clients=numbered(plan)), backend))
    for number in withdrawn(plain):
        assert plain.outcomes[number].bodies == ()
        # It stays as a task (so that the others are as old as before) but comes when all is over.
        late = evolve(plain.plan.clients[number], delay=100, timeout=None)
        without = [late if n == number else client for n, client in enumerate(plain.plan.clients)]
        other = check(play(evolve(plain.plan, clients=tuple(without)), backend))
        for n, outcome in enumerate(plain.outcomes):
            if n != number:
                assert other.outcomes[n] == outcome


def numbered(plan: Plan) -> tuple[Client, ...]:
    """The clients, with orders that tell them apart in the ledger and are those of their number."""
    return tuple(evolve(client, order=number) for number, client in enumerate(plan.clients))


def withdrawn(played: Played) -> list[int]:
    """The clients that were cancelled while they waited."""
    return [
        event.order
        for event in played.events
        if isinstance(event, LimiterEvent) and event.kind == "withdrawn" and isinstance(event.order, int)
    ]


@scaled(4)
@given(plan=plans(), seed=st.integers(0, 3))
def test_the_same_seed_and_plan_give_the_same_ledger(backend: str, plan: Plan, seed: int) -> None:
    """Invariant 35."""
    one, two = play(plan, backend, seed=seed), play(plan, backend, seed=seed)
    assert one.outcomes == two.outcomes
    assert normalised(one.events) == normalised(two.events)


@scaled(4)
@given(one=plans(jitter=False), two=plans(jitter=False))
def test_two_sets_of_limiters_in_one_loop_do_not_see_each_other(backend: str, one: Plan, two: Plan) -> None:
    """Invariant 36, for the kernel: each ledger is as if it were alone."""

    async def together() -> list[tuple[dict[int, Outcome], list[Event]]]:
        found: list[tuple[dict[int, Outcome], list[Event]]] = []
        async with anyio.create_task_group() as tg:
            for plan in (one, two):
                events: list[Event] = []
                stage = Stage(plan, backend, Ledger())
                stage.ledger.subscribe(events.append)
                tg.start_soon(stage.play)
                found.append((stage.outcomes, events))
        return found

    for plan, (outcomes, events) in zip((one, two), run_virtual(backend, together), strict=True):
        alone = play(plan, backend)
        assert tuple(outcomes[n] for n in range(len(plan.clients))) == alone.outcomes
        assert normalised(events) == normalised(alone.events)


@scaled(4)
@given(
    plan=plans(actions=("resize", "pause", "resume")),
    limits=st.lists(st.integers(1, 3), min_size=3, max_size=3),
    delays=st.lists(times(), min_size=8, max_size=8),
)
def test_what_clients_come_to_does_not_depend_on_limits_timing_or_backend(
    backend: str, plan: Plan, limits: list[int], delays: list[int]
) -> None:
    """Invariant 33, for the kernel: clients that neither time out nor refuse to wait."""
    patient = tuple(evolve(client, timeout=None, tries=False, native=False) for client in plan.clients)
    plan = evolve(plan, clients=patient)
    moved = tuple(evolve(client, delay=delay) for client, delay in zip(patient, delays, strict=False))
    other = evolve(plan, limits=tuple(limits[: len(plan.limits)]), clients=moved, weights=(1.0, 2.0, 3.0))
    results = [
        [outcome.status for outcome in play(each, on).outcomes]
        for each, on in ((plan, backend), (other, backend), (plan, "trio" if backend != "trio" else "asyncio"))
    ]
    assert results[0] == results[1] == results[2]
