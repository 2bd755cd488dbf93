"""Joint leases: all places at once or none, and nobody starves."""

from __future__ import annotations

import anyio
import pytest

from proctor.actors import Lease, Limiter, Rank, lease_all
from proctor.errors import LeaseRevoked, LimiterClosed, OptionError
from proctor.testing import settle

SAMPLE = Rank("SAMPLE", 1)
SANDBOX = Rank("SANDBOX", 2)


async def hold(limiter: Limiter, seconds: float, order: int | None = None) -> None:
    async with limiter.lease(order=order):
        await anyio.sleep(seconds)


def pair(a: int | None = 1, b: int | None = 1) -> tuple[Limiter, Limiter]:
    return Limiter(a, name="slots", rank=SAMPLE), Limiter(b, name="sandboxes", rank=SANDBOX)


async def test_places_of_all_are_taken_at_once_where_there_is_room() -> None:
    a, b = pair()
    async with lease_all([a.lease(), b.lease()]) as leases:
        assert [lease.limiter.name for lease in leases] == ["slots", "sandboxes"]
        assert (a.used, b.used) == (1, 1)
    assert (a.used, b.used) == (0, 0)


async def test_nothing_is_held_while_waiting() -> None:
    a, b = pair()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, b, 5)
        await settle()
        tasks.start_soon(both, [a, b], [])
        await settle()
        assert (a.used, a.waiting, b.waiting) == (0, 1, 1)
        assert a.statistics().waiting_joint == 1
    assert (a.used, b.used, a.waiting, b.waiting) == (0, 0, 0, 0)


async def both(limiters: list[Limiter], diary: list[str], name: str = "both", seconds: float = 1) -> None:
    async with lease_all([limiter.lease() for limiter in limiters]):
        diary.append(f"{anyio.current_time():g} {name}")
        await anyio.sleep(seconds)


async def test_others_pass_until_it_is_at_the_head_of_all_its_queues_and_then_it_reserves() -> None:
    a, b = pair(1, 1)
    diary: list[str] = []

    async def single(limiter: Limiter, name: str) -> None:
        async with limiter.lease():
            diary.append(f"{anyio.current_time():g} {name}")
            await anyio.sleep(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, b, 2)
        await settle()
        tasks.start_soon(single, b, "ahead")
        await settle()
        tasks.start_soon(both, [a, b], diary)
        await settle()
        tasks.start_soon(single, a, "passes")  # the joint one is second in b: a has room, and this one takes it
        await settle()
        await anyio.sleep(2)  # now `ahead` is inside b: the joint one is first in both, and a is reserved
        tasks.start_soon(single, a, "behind")
        await settle()
        assert a.statistics().reserved == 1
        assert a.used == 0, "a has room that is kept"
        assert a.try_lease() is None
    assert diary == ["0 passes", "2 ahead", "3 both", "4 behind"]


async def test_it_does_not_starve_under_a_stream_of_single_waiters() -> None:
    a, b = pair(2, 2)
    diary: list[str] = []

    async def stream(limiter: Limiter) -> None:
        for _ in range(50):
            await hold(limiter, 1)

    async with anyio.create_task_group() as tasks:
        for limiter in (a, b):
            for delay in (0.0, 0.5):
                tasks.start_soon(stream, limiter)
                tasks.start_soon(stream, limiter)
                await anyio.sleep(delay / 2)
        tasks.start_soon(both, [a, b], diary)
    assert float(diary[0].split()[0]) < 6


async def test_two_that_want_the_same_places_both_get_them() -> None:
    a, b = pair()
    c = Limiter(1, name="c")
    diary: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, a, 1)
        tasks.start_soon(hold, b, 2)
        await settle()
        tasks.start_soon(both, [a, b], diary, "first")
        await settle()
        tasks.start_soon(both, [b, a], diary, "second")
        tasks.start_soon(both, [b, c], diary, "third")
    assert diary[0].split()[1] == "first"
    assert sorted(line.split()[1] for line in diary) == ["first", "second", "third"]


async def test_cancelled_it_gives_way_to_whom_it_held_back() -> None:
    a, b = pair()
    diary: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, b, 9)
        await settle()
        with anyio.move_on_after(3) as scope:
            async with anyio.create_task_group() as inner:
                inner.start_soon(both, [a, b], diary)
                await settle()
                tasks.start_soon(both, [a], diary, "single")
                await anyio.sleep_forever()
        assert scope.cancelled_caught
    assert diary == ["3 single"]
    assert (a.used, b.used, a.waiting, b.waiting, a.statistics().reserved) == (0, 0, 0, 0, 0)


async def test_cancelled_between_grant_and_wake_up_it_gives_everything_back() -> None:
    a, b = pair(1, 0)
    async with anyio.create_task_group() as tasks:
        scope = anyio.CancelScope()

        async def joint() -> None:
            with scope:
                await both([a, b], [])
                pytest.fail("the body ran")

        tasks.start_soon(joint)
        await settle()
        b.resize(1)
        assert (a.used, b.used) == (1, 1)
        scope.cancel()
    assert (a.used, b.used) == (0, 0)


async def test_a_paused_limiter_or_one_of_limit_0_has_nothing_reserved_for_it_elsewhere() -> None:
    a, b = pair(1, 1)
    b.pause()
    diary: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(both, [a, b], diary)
        await settle()
        await both([a], diary, "single")
        b.resize(0)
        b.resume()
        await both([a], diary, "single")
        b.resize(1)
    assert diary == ["0 single", "1 single", "2 both"]


async def test_closing_one_limiter_refuses_all_of_it() -> None:
    a, b = pair(1, 0)
    async with anyio.create_task_group() as tasks:

        async def joint() -> None:
            with pytest.raises(LimiterClosed, match="'sandboxes' is closed"):
                await both([a, b], [])

        tasks.start_soon(joint)
        await settle()
        b.close()
    assert (a.waiting, b.waiting) == (0, 0)
    with pytest.raises(LimiterClosed):
        await both([a, b], [])
    assert (a.used, a.waiting) == (0, 0)


async def test_revoking_one_part_ends_the_whole() -> None:
    a, b = pair()
    with pytest.raises(LeaseRevoked, match="the engine restarts"):
        async with lease_all([a.lease(), b.lease(revocable=True)]) as leases:
            assert leases[0].cancel_scope is leases[1].cancel_scope is None
            b.revoke("the engine restarts")
            await anyio.sleep(1)
    assert (a.used, b.used) == (0, 0)


async def test_revoked_between_grant_and_wake_up_its_body_never_starts() -> None:
    a, b = pair(1, 0)
    async with anyio.create_task_group() as tasks:

        async def joint() -> None:
            with pytest.raises(LeaseRevoked):
                async with lease_all([a.lease(), b.lease(revocable=True)]):
                    pytest.fail("the body ran")

        tasks.start_soon(joint)
        await settle()
        b.resize(1)
        assert b.revoke("the engine restarts") == 1
    assert (a.used, b.used) == (0, 0)


async def test_limiters_of_one_rank_may_be_taken_together_and_are_left_in_order() -> None:
    rank, above = Rank("SCOPE", 1), Rank("PROCESS", 2)
    a, b, c = (Limiter(1, name=name, rank=each) for name, each in [("a", above), ("b", rank), ("c", rank)])
    async with lease_all([a.lease(), b.lease(), c.lease()]) as leases:
        assert all(lease.held for lease in leases)
    assert (a.used, b.used, c.used) == (0, 0, 0)


@pytest.mark.parametrize("paused", [True, False])
async def test_a_part_that_is_refused_leaves_nothing_behind(paused: bool) -> None:
    a, b = Limiter(1, name="a"), Limiter(2, name="b")
    async with b.lease(group="g", weight=2):
        if paused:
            b.pause()
        with pytest.raises(OptionError, match="the weight belongs to the group"):
            async with lease_all([a.lease(), b.lease(group="g", weight=3)]):
                pytest.fail("the body ran")
        assert (a.used, a.waiting, b.used, b.waiting) == (0, 0, 1, 0)
    lease = a.try_lease()
    assert isinstance(lease, Lease)
    with lease:
        pass


async def test_no_place_is_kept_above_the_one_waited_for() -> None:
    slots, sandboxes = pair()
    diary: list[str] = []

    async def sample() -> None:
        async with slots.lease():
            await anyio.sleep(1)
            async with anyio.create_task_group() as children:
                children.start_soon(both, [sandboxes], diary, "child", 1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(sample)
        await settle()
        tasks.start_soon(both, [slots, sandboxes], diary)
    assert diary == ["1 child", "2 both"]


@pytest.mark.parametrize("names", ["ab", "ba"])
async def test_no_place_is_kept_from_whom_the_place_waited_for_depends_on(names: str) -> None:
    x, y = [Limiter(1, name=name) for name in names]
    z = Limiter(1, name="z")
    diary: list[str] = []

    async def nests(limiters: list[Limiter], seconds: float) -> None:
        async with limiters[0].lease():
            await anyio.sleep(seconds)
            async with limiters[1].lease():
                await anyio.sleep(1)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(nests, [x, z], 1)  # waits for z, held by ...
        tasks.start_soon(nests, [z, y], 2)  # ... which wants y
        await settle()
        tasks.start_soon(both, [y], diary, "holds y", 1.5)
        await settle()
        tasks.start_soon(both, [x, y], diary)
        await settle()
        tasks.start_soon(both, [y], diary, "behind")
    assert diary[0] == "0 holds y"
    assert sorted(line.split()[1] for line in diary[1:]) == ["behind", "both"]


async def test_a_pause_frees_what_was_kept_above() -> None:
    slots, sandboxes = pair()
    processes = Limiter(1, name="processes", rank=Rank("PROCESS", 3))
    diary: list[str] = []
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(hold, processes, 9)
        await settle()
        tasks.start_soon(both, [slots, sandboxes, processes], diary)
        await settle()
        tasks.start_soon(both, [sandboxes], diary, "single")
        await settle()
        assert diary == []
        assert sandboxes.statistics().reserved == 1
        await anyio.sleep(1)
        slots.pause()
        assert sandboxes.statistics().reserved == 0
        await settle()
        assert diary == ["1 single"]
        slots.resume()
    assert diary == ["1 single", "9 both"]
