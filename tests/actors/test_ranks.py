"""Ranks: leases are taken upwards, and whoever does otherwise is told before it waits."""

from __future__ import annotations

from contextvars import copy_context

import anyio
import pytest

from proctor.actors import Limiter, Rank, held_leases, holding_nothing, lease_all
from proctor.errors import RankError
from proctor.testing import settle

SAMPLE = Rank("SAMPLE", 1)
SCOPE = Rank("SCOPE", 2, nests=True)
CONNECTION = Rank("CONNECTION", 3, only=frozenset({"PROCESS"}))
START = Rank("START", 4)
PROCESS = Rank("PROCESS", 5, leaf=True)
THREAD = Rank("THREAD", 6, leaf=True)


def limiter(rank: Rank | None, limit: int | None = 5) -> Limiter:
    return Limiter(limit, name=rank.name.lower() if rank else "free", rank=rank)


async def test_leases_are_taken_upwards() -> None:
    async with limiter(SAMPLE).lease(), limiter(SCOPE).lease(), limiter(CONNECTION).lease(), limiter(PROCESS).lease():
        assert [lease.limiter.name for lease in held_leases()] == ["process", "connection", "scope", "sample"]
    assert list(held_leases()) == []


@pytest.mark.parametrize(
    ("outer", "inner", "rule"),
    [
        (SCOPE, SAMPLE, "SAMPLE comes before SCOPE"),
        (SAMPLE, SAMPLE, "leases of rank SAMPLE do not nest"),
        (PROCESS, THREAD, "PROCESS is a leaf"),
        (CONNECTION, START, "under CONNECTION only PROCESS may be taken"),
    ],
)
async def test_out_of_order_is_refused_with_both_places_before_it_queues(outer: Rank, inner: Rank, rule: str) -> None:
    full = limiter(inner, limit=0)
    async with limiter(outer).lease():
        with pytest.raises(RankError, match=rule) as caught:
            async with full.lease():
                pass
        with pytest.raises(RankError):
            full.try_lease()
        with pytest.raises(RankError):
            async with lease_all([limiter(THREAD).lease(), full.lease()]):
                pass
    assert full.waiting == full.statistics().arrived == 0
    text = str(caught.value)
    assert f"the lease of '{inner.name.lower()}', rank {inner.name} asked for at {__file__}:" in text
    assert f"the lease of '{outer.name.lower()}', rank {outer.name} asked for at {__file__}:" in text


async def test_scopes_nest_and_a_limiter_without_a_rank_takes_no_part() -> None:
    async with limiter(SCOPE).lease(), limiter(SCOPE).lease(), limiter(None).lease():
        with pytest.raises(RankError):
            async with limiter(SAMPLE).lease():
                pass
    async with limiter(None).lease(), limiter(SAMPLE).lease(), limiter(None).lease():
        pass


async def test_ranks_of_one_level_and_different_names_do_not_mix() -> None:
    async with limiter(Rank("LEFT", 2, nests=True)).lease():
        with pytest.raises(RankError):
            async with limiter(Rank("RIGHT", 2, nests=True)).lease():
                pass


async def test_child_tasks_inherit_what_is_held_and_ignore_what_was_given_back() -> None:
    go_on = anyio.Event()
    outcome: list[str] = []

    async def child() -> None:
        with pytest.raises(RankError):
            async with limiter(SAMPLE).lease():
                pass
        outcome.append("refused while the parent holds it")
        await go_on.wait()
        async with limiter(SAMPLE).lease():
            outcome.append("taken once it was given back")

    async with anyio.create_task_group() as tasks:
        async with limiter(SCOPE).lease():
            tasks.start_soon(child)
            await settle()
        go_on.set()
    assert len(outcome) == 2


async def test_a_lease_in_line_again_holds_no_rank() -> None:
    scopes = limiter(SCOPE, limit=1)
    outcome: list[str] = []

    async def child() -> None:
        async with limiter(SAMPLE).lease():
            outcome.append("taken")

    async with anyio.create_task_group() as tasks, scopes.lease() as lease:
        scopes.pause()

        def settled(now: float) -> None:
            tasks.start_soon(child)

        tasks.start_soon(resume_when_taken, scopes, outcome)
        await lease.requeue(settled)
        with pytest.raises(RankError):
            await child()
    assert outcome == ["taken"]


async def resume_when_taken(scopes: Limiter, outcome: list[str]) -> None:
    while not outcome:
        await settle()
    scopes.resume()


async def test_a_block_may_start_as_if_nothing_were_held() -> None:
    async with limiter(PROCESS).lease():
        with holding_nothing():
            assert list(held_leases()) == []
            async with limiter(SAMPLE).lease():
                pass
        with pytest.raises(RankError):
            async with limiter(SAMPLE).lease():
                pass


async def test_what_a_copied_context_holds_is_inherited_too() -> None:
    async with limiter(SCOPE).lease():
        context = copy_context()
    assert context.run(lambda: list(held_leases())) == []
    async with limiter(SCOPE).lease():
        assert len(copy_context().run(lambda: list(held_leases()))) == 1
