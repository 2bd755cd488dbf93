"""Deadlock freedom: ranks, rings, and that no correct program is accused."""

from __future__ import annotations

import anyio
import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from proctor.actors import Limiter
from proctor.actors.ledger import LimiterEvent
from proctor.errors import DeadlockError
from proctor.testing import run_virtual
from proctor.testing.plan import Admin, Client, Plan
from proctor.testing.stage import check, play
from proctor.testing.strategies import plans, scaled, times


@scaled(2)
@given(plan=plans(actions=("pause", "resume"), most_operations=2))
def test_plans_that_respect_ranks_never_deadlock(backend: str, plan: Plan) -> None:
    """Invariants 20 and 21: the plan ends, and nobody is accused. (It would not end, or have a violation.)"""
    played = check(play(plan, backend))
    assert not {outcome.status for outcome in played.outcomes} & {"deadlock", "rank", "unfinished"}


@scaled(2)
@given(
    limits=st.tuples(*[st.sampled_from([1, 1, 2])] * 3),
    wants=st.lists(
        st.builds(
            Client,
            chain=st.sampled_from([(0, 1), (0, 1), (1, 2), (0, 1, 2), (0, 2), (1,), (2,)]),
            joint=st.booleans(),
            delay=times(4),
            step=times(3),
            hold=times(4),
            order=st.integers(0, 2),
        ),
        min_size=3,
        max_size=7,
    ),
)
def test_chains_and_joint_leases_over_the_same_limiters_never_deadlock(
    backend: str, limits: tuple[int, int, int], wants: list[Client]
) -> None:
    """Invariant 20: what is reserved for a joint waiter may be what the holder of its other place waits for."""
    clients = tuple(evolve(client, joint=client.joint and len(client.chain) > 1) for client in wants)
    played = check(play(Plan(limits=limits, clients=clients, mend=False), backend))
    assert {outcome.status for outcome in played.outcomes} == {"done"}


@scaled(2)
@given(plan=plans(most_operations=0, ranked=False))
def test_without_ranks_a_program_goes_on_or_is_told(backend: str, plan: Plan) -> None:
    """Invariant 21: a deadlock is never silent. (The watchdog would end the run.)

    No operator meddles: the graph is looked at once, a second after a wait began, and a pause may hide a ring then.
    """
    check(play(plan, backend))


@scaled(2)
@given(
    clients=st.lists(
        st.builds(
            Client,
            chain=st.permutations([0, 1, 2]).map(tuple) | st.permutations([0, 1]).map(tuple),
            delay=times(4),
            step=times(2),
            hold=times(2),
        ),
        min_size=1,
        max_size=5,
    ),
    limits=st.tuples(*[st.integers(1, 2)] * 3),
)
def test_out_of_rank_is_refused_before_it_queues(
    backend: str, clients: list[Client], limits: tuple[int, int, int]
) -> None:
    """Invariant 19. Each client is a group of its own, so that its events can be told apart."""
    numbered = tuple(evolve(client, group=number) for number, client in enumerate(clients))
    plan = Plan(limits=limits, clients=numbered, weights=(1.0,) * len(clients), mend=False)
    played = check(play(plan, backend))
    for number, client in enumerate(numbered):
        descents = [n for n, m in zip(client.chain[1:], client.chain, strict=False) if n < m]
        assert played.outcomes[number].status == ("rank" if descents else "done")
        if descents:
            reached = client.chain[: client.chain.index(descents[0])]
            asked = {e.name for e in played.events if isinstance(e, LimiterEvent) and e.group == number}
            assert asked == {f"limiter {n}" for n in reached}


@scaled(2)
@given(
    starts=st.lists(times(4), min_size=2, max_size=4),
    wants=st.lists(times(4), min_size=4, max_size=4),
    bystanders=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=4),
)
def test_a_ring_is_found_a_second_after_it_closed_and_named(
    backend: str, starts: list[int], wants: list[int], bystanders: list[tuple[int, int]]
) -> None:
    """Invariant 21. Client n holds limiter n and, when all hold theirs, wants limiter n + 1; bystanders only wait."""
    size = len(starts)
    steps = [max(starts) + 1 + want - start for start, want in zip(starts, wants, strict=False)]
    clients = [Client(chain=(n, (n + 1) % size), delay=starts[n], step=steps[n], hold=1, group=n) for n in range(size)]
    waiting = [Client(chain=(n % size,), delay=max(starts) + late, hold=1, group=size) for n, late in bystanders]
    plan = Plan(limits=(1,) * size, clients=(*clients, *waiting), weights=(1.0,) * (size + 1), ranked=False, mend=False)
    played = play(plan, backend)
    closed = max(start + step for start, step in zip(starts, steps, strict=True))
    accused = [outcome for outcome in played.outcomes if outcome.status == "deadlock"]
    assert len(accused) == 1, played.outcomes
    assert accused[0].ended == closed + 1
    for n in range(size):
        assert f"'limiter {n}'" in accused[0].detail
    others = [outcome.status for outcome in played.outcomes if outcome.status != "deadlock"]
    assert set(others) == {"done"}


@scaled(4)
@given(
    limit=st.integers(1, 2),
    asks=st.lists(st.tuples(times(4), times(4)), min_size=1, max_size=4),
    releases=times(8),
    nested=st.booleans(),
)
def test_a_child_that_waits_for_what_its_parent_will_release_is_not_accused(
    backend: str, limit: int, asks: list[tuple[int, int]], releases: int, *, nested: bool
) -> None:
    """Invariant 21: a correct program is never accused."""

    async def main() -> int:
        shared, own = Limiter(limit, name="shared"), Limiter(1, name="own")
        served = 0

        async def child(delay: int, hold: int) -> None:
            nonlocal served
            await anyio.sleep(delay)
            if nested:
                async with own.lease(), shared.lease():
                    await anyio.sleep(hold)
            else:
                async with shared.lease():
                    await anyio.sleep(hold)
            served += 1

        async with anyio.create_task_group() as tg, shared.lease():
            for delay, hold in asks:
                tg.start_soon(child, delay, hold)
            await anyio.sleep(releases)
        return served

    assert run_virtual(backend, main) == len(asks)


@scaled(4)
@given(limit=st.integers(1, 3), extra=st.integers(1, 2), at=times(3))
def test_waiting_for_ones_own_places_is_refused_at_once(backend: str, limit: int, extra: int, at: int) -> None:
    """Invariant 21, for a ring of one task: no second passes."""

    async def main() -> None:
        limiter = Limiter(limit, name="own")
        await anyio.sleep(at)

        async def nest(depth: int) -> None:
            async with limiter.lease():
                if depth > 1:
                    await nest(depth - 1)

        with pytest.raises(DeadlockError, match="'own'"):
            await nest(limit + extra)
        assert anyio.current_time() == at
        assert (limiter.used, limiter.waiting) == (0, 0)

    run_virtual(backend, main)


@scaled(4)
@given(timeout=times(3), closes=times(3))
def test_a_wait_in_a_ring_that_ends_by_itself_is_not_accused(backend: str, timeout: int, closes: int) -> None:
    """Invariant 21: one deadline in the ring lets the others go on."""
    impatient = Client(chain=(0, 1), step=closes, timeout=closes + timeout, hold=1)
    patient = Client(chain=(1, 0), step=closes, hold=1, group=1)
    plan = Plan(limits=(1, 1), clients=(impatient, patient), ranked=False, mend=False)
    played = play(plan, backend)
    assert [outcome.status for outcome in played.outcomes] == ["timeout", "done"]


def test_admin_is_no_client() -> None:
    """Plans print so that they can be pinned."""
    plan = Plan(admin=(Admin(1, "resize", 0, 2),), clients=(Client(),))
    assert eval(repr(plan)) == plan
