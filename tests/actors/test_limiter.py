"""Limiters as their users see them: who gets in, when, and what a change to a running one does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import define, field

from proctor.actors import Lease, Limiter
from proctor.errors import ActorGone, KernelError, LeaseMisuse, LeaseRevoked, LimiterClosed, OptionError
from proctor.testing import run_virtual, settle


@define
class Crowd:
    """Tasks that take a lease and hold it until they are told to go; what they did, in order."""

    limiter: Limiter
    tasks: Any
    inside: list[str] = field(factory=list)
    was_inside: list[str] = field(factory=list)
    errors: dict[str, BaseException] = field(factory=dict)
    doors: dict[str, anyio.Event] = field(factory=dict)
    scopes: dict[str, anyio.CancelScope] = field(factory=dict)

    async def come(self, *names: str, **options: Any) -> None:
        """Let tasks arrive, one after the other."""
        for name in names:
            self.doors[name] = anyio.Event()
            self.tasks.start_soon(self._visit, name, options)
            await settle()

    async def go(self, *names: str) -> None:
        """Let tasks leave, at once."""
        for name in names:
            self.doors[name].set()
        await settle()

    async def cancel(self, *names: str) -> None:
        for name in names:
            self.scopes[name].cancel()
        await settle()

    async def _visit(self, name: str, options: dict[str, Any]) -> None:
        with anyio.CancelScope() as self.scopes[name]:
            try:
                async with self.limiter.lease(**options):
                    self.inside.append(name)
                    self.was_inside.append(name)
                    try:
                        await self.doors[name].wait()
                    finally:
                        self.inside.remove(name)
            except Exception as error:
                self.errors[name] = error


async def crowded(limit: int | None, play: Callable[[Crowd], Awaitable[None]], **options: Any) -> Crowd:
    limiter = Limiter(limit, name="door", **options)
    async with anyio.create_task_group() as tasks:
        crowd = Crowd(limiter, tasks)
        await play(crowd)
        tasks.cancel_scope.cancel()
    assert (limiter.used, limiter.waiting) == (0, 0)
    return crowd


async def test_as_many_are_inside_as_there_are_places_and_a_leaver_lets_the_next_in() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come("a", "b", "c", "d")
        assert crowd.inside == ["a", "b"]
        assert (crowd.limiter.used, crowd.limiter.waiting) == (2, 2)
        await crowd.go("a")
        assert crowd.inside == ["b", "c"]
        await crowd.go("b", "c")
        assert crowd.inside == ["d"]

    await crowded(2, play)


async def test_no_limit_lets_everybody_in_and_limit_0_nobody() -> None:
    async def play_open(crowd: Crowd) -> None:
        await crowd.come(*"abcdefgh")
        assert len(crowd.inside) == 8

    async def play_shut(crowd: Crowd) -> None:
        await crowd.come("a", "b")
        assert crowd.inside == []
        crowd.limiter.resize(1)
        await settle()
        assert crowd.inside == ["a"]

    await crowded(None, play_open)
    await crowded(0, play_shut)


async def test_growing_admits_at_once_and_shrinking_sends_nobody_away() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come(*"abcdef")
        crowd.limiter.resize(4)
        assert crowd.limiter.used == 4, "granted in the same step, not when the tasks wake"
        await settle()
        assert sorted(crowd.inside) == ["a", "b", "c", "d"]
        crowd.limiter.resize(1)
        await settle()
        assert sorted(crowd.inside) == ["a", "b", "c", "d"]
        await crowd.go("a", "b", "c")
        assert crowd.inside == ["d"], "4 used of 1: three must leave before the next may come"
        await crowd.go("d")
        assert crowd.inside == ["e"]

    await crowded(2, play)


async def test_shrinking_and_growing_again_does_not_over_grant() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come(*"abcdefghijklmnopqrst")
        assert len(crowd.inside) == 10
        crowd.limiter.resize(2)
        crowd.limiter.resize(5)
        await settle()
        assert crowd.limiter.used == 10
        await crowd.go(*"abcdefghij")
        assert len(crowd.inside) == 5

    await crowded(10, play)


async def test_a_paused_limiter_admits_nobody_until_all_who_paused_it_resume() -> None:
    async def play(crowd: Crowd) -> None:
        crowd.limiter.pause()
        crowd.limiter.pause("restart")
        crowd.limiter.pause("restart")
        await crowd.come("a", "b")
        assert crowd.limiter.try_lease() is None
        crowd.limiter.resume("restart")
        await settle()
        assert crowd.inside == []
        assert crowd.limiter.paused
        crowd.limiter.resume()
        await settle()
        assert sorted(crowd.inside) == ["a", "b"]
        crowd.limiter.resume("somebody who never paused")

    await crowded(3, play)


async def test_a_cancelled_waiter_never_gets_in_and_the_next_takes_its_turn() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come("a", "b", "c")
        await crowd.cancel("b")
        assert crowd.limiter.waiting == 1
        await crowd.go("a")
        assert crowd.was_inside == ["a", "c"]

    await crowded(1, play)


async def test_a_waiter_cancelled_after_its_grant_and_before_it_wakes_never_gets_in() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come("a", "b", "c")
        crowd.limiter.resize(2)  # grants b
        assert crowd.limiter.used == 2
        crowd.scopes["b"].cancel()
        await settle()
        assert crowd.inside == ["a", "c"]
        assert crowd.was_inside == ["a", "c"]

    await crowded(1, play)


async def test_whoever_comes_cancelled_takes_no_place() -> None:
    limiter = Limiter(1, name="door")
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with limiter.lease():
            pytest.fail("the body of a lease that was asked for in a cancelled scope")
    assert limiter.used == 0
    limiter.pause()
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with limiter.lease():
            pytest.fail("nor may it wait")
    assert (limiter.used, limiter.waiting) == (0, 0)


async def test_a_body_that_raises_gives_its_place_back() -> None:
    limiter = Limiter(1, name="door")
    with pytest.raises(ZeroDivisionError):
        async with limiter.lease():
            raise ZeroDivisionError
    assert limiter.used == 0


async def test_try_lease_takes_a_free_place_and_never_overtakes_a_waiter() -> None:
    async def play(crowd: Crowd) -> None:
        lease = crowd.limiter.try_lease()
        assert lease is not None
        with lease:
            assert crowd.limiter.used == 1
            assert crowd.limiter.try_lease() is None
            await crowd.come("a")
        assert crowd.limiter.used == 1, "granted to the waiter in the step in which the place came free"
        assert crowd.limiter.try_lease() is None
        await settle()
        assert crowd.inside == ["a"]
        crowd.limiter.pause()
        await crowd.come("b")
        crowd.limiter.resize(5)
        assert crowd.limiter.try_lease() is None, "there is room, but somebody waits"

    await crowded(1, play)


async def test_groups_share_by_weight_and_within_a_group_order_decides_then_arrival() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come("first")
        for n in range(6):
            await crowd.come(f"big{n}", group="big", weight=2.0)
        for n in range(3):
            await crowd.come(f"small{n}", group="small", weight=1.0, order=-n)
        for _ in range(9):
            await crowd.go(*crowd.inside)
        served = crowd.was_inside[1:]
        assert [name[:-1] for name in served].count("big") == 6
        for n in range(1, 10):
            big = sum(name.startswith("big") for name in served[:n])
            assert abs(big / 2 - (n - big)) <= 1.5
        assert [name for name in served if name.startswith("big")] == [f"big{n}" for n in range(6)]
        assert [name for name in served if name.startswith("small")] == ["small2", "small1", "small0"]

    await crowded(1, play)


async def test_a_group_that_was_idle_has_no_credit() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come("first")
        await crowd.come(*[f"a{n}" for n in range(8)], group="a")
        for _ in range(4):
            await crowd.go(*crowd.inside)
        await crowd.come(*[f"b{n}" for n in range(4)], group="b")
        for _ in range(4):
            await crowd.go(*crowd.inside)
        assert sorted(name[0] for name in crowd.was_inside[5:]) == ["a", "a", "b", "b"]

    await crowded(1, play)


async def test_a_requeued_lease_keeps_its_order_and_its_arrival() -> None:
    limiter = Limiter(1, name="calls")
    served: list[str] = []

    async def client(name: str, order: int) -> None:
        async with limiter.lease(order=order) as lease:
            served.append(name)
            await anyio.sleep(1)
            if name == "rejected":
                await lease.requeue()
                served.append("again")

    async with anyio.create_task_group() as tasks:
        for name, order in [("rejected", 5), ("later", 9), ("same", 5), ("sooner", 1)]:
            tasks.start_soon(client, name, order)
            await settle()
    assert served == ["rejected", "sooner", "again", "same", "later"]


async def test_requeue_settles_releases_and_admits_in_one_step() -> None:
    limiter = Limiter(1, name="calls")
    seen: list[tuple[int, int]] = []

    async def rejected() -> None:
        async with limiter.lease(order=5) as lease:
            await settle()
            await lease.requeue(lambda now: seen.append((limiter.used, limiter.waiting)))
            seen.append((limiter.used, limiter.waiting))

    async def early() -> None:
        async with limiter.lease(order=1):
            seen.append((limiter.used, limiter.waiting))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rejected)
        await anyio.lowlevel.checkpoint()
        tasks.start_soon(early)
    assert seen == [(1, 1), (1, 1), (1, 0)], "settle is called while the place is still held"


async def test_a_requeued_lease_that_is_cancelled_gives_nothing_back_twice() -> None:
    limiter = Limiter(1, name="calls")
    async with limiter.lease() as lease:
        limiter.pause()
        with anyio.move_on_after(1):
            await lease.requeue()
        assert (limiter.used, limiter.waiting, lease.held) == (0, 0, False)
        with pytest.raises(LeaseMisuse, match="only one that is held can go back in line"):
            await lease.requeue()
    limiter.resume()
    assert limiter.used == 0


async def test_closing_refuses_who_waits_and_who_comes_and_leaves_holders_alone() -> None:
    cause = OSError("the disk is gone")

    async def play(crowd: Crowd) -> None:
        await crowd.come("a", "b", "c")
        crowd.limiter.close(cause)
        await settle()
        assert crowd.inside == ["a"]
        assert set(crowd.errors) == {"b", "c"}
        for error in crowd.errors.values():
            assert isinstance(error, LimiterClosed)
            assert error.__cause__ is cause
        assert crowd.errors["b"] is not crowd.errors["c"]
        with pytest.raises(LimiterClosed, match="'door' is closed: the disk is gone"):
            async with crowd.limiter.lease():
                pass
        with pytest.raises(LimiterClosed):
            crowd.limiter.try_lease()
        await crowd.go("a")
        assert crowd.limiter.closed

    crowd = await crowded(1, play)
    assert crowd.was_inside == ["a"]


async def test_the_owner_may_choose_what_a_closed_limiter_raises() -> None:
    limiter = Limiter(1, name="door")
    limiter.close("stopped", error=ActorGone)
    with pytest.raises(ActorGone, match="closed: stopped"):
        async with limiter.lease():
            pass


async def test_a_lease_in_line_when_its_limiter_closes_is_refused_and_keeps_nothing() -> None:
    limiter = Limiter(1, name="door")
    with pytest.raises(LimiterClosed):
        async with limiter.lease() as lease:
            limiter.close()
            await lease.requeue()
    assert (limiter.used, limiter.waiting) == (0, 0)


async def test_revoke_cancels_revocable_bodies_and_counts_them_until_they_have_left() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come("kept")
        await crowd.come("a", group="a", revocable=True)
        await crowd.come("b", group="b", revocable=True)
        assert crowd.limiter.revoke("maintenance", where=lambda lease: lease.group == "a") == 1
        assert crowd.limiter.used == 3
        await settle()
        assert crowd.inside == ["kept", "b"]
        assert isinstance(error := crowd.errors["a"], LeaseRevoked)
        assert error.reason == "maintenance"
        assert crowd.limiter.used == 2
        assert crowd.limiter.revoke("all") == 1

    await crowded(3, play)


async def test_whoever_was_asked_to_leave_is_not_asked_again() -> None:
    limiter = Limiter(1, name="door")
    with pytest.raises(LeaseRevoked, match="first"):
        async with limiter.lease(revocable=True):
            assert (limiter.revoke("first"), limiter.revoke("second")) == (1, 0)
            await anyio.sleep(1)


async def test_an_outer_cancellation_beats_a_revocation() -> None:
    limiter = Limiter(1, name="door")
    with anyio.CancelScope() as outer:
        async with limiter.lease(revocable=True):
            limiter.revoke("maintenance")
            outer.cancel()
            await anyio.sleep(1)
    assert outer.cancelled_caught


async def test_a_body_that_ends_before_it_sees_its_revocation_ends_well() -> None:
    limiter = Limiter(1, name="door")
    async with limiter.lease(revocable=True):
        limiter.revoke("maintenance")
    assert limiter.used == 0


async def test_a_lease_revoked_between_grant_and_wake_up_never_starts_its_body() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come("a")
        await crowd.come("b", revocable=True)
        crowd.limiter.resize(2)
        assert crowd.limiter.revoke("maintenance") == 1
        await settle()
        assert isinstance(crowd.errors["b"], LeaseRevoked)
        assert crowd.was_inside == ["a"]
        assert crowd.limiter.used == 1

    await crowded(1, play)


async def test_a_try_lease_may_be_revocable() -> None:
    limiter = Limiter(1, name="door")
    lease = limiter.try_lease(revocable=True)
    assert lease is not None
    with pytest.raises(LeaseRevoked), lease:
        limiter.revoke("maintenance")
        await anyio.sleep(1)
    assert limiter.used == 0


async def test_the_scope_of_a_revocable_lease_may_be_cancelled_by_its_own_task() -> None:
    limiter = Limiter(1, name="door")
    async with limiter.lease(revocable=True) as lease:
        assert lease.cancel_scope is not None
        lease.cancel_scope.cancel()
        await anyio.sleep(1)
    assert limiter.used == 0


async def test_statistics_say_who_holds_who_waits_and_who_is_behind() -> None:
    async def play(crowd: Crowd) -> None:
        await crowd.come("a", "b", group="x", weight=3)
        await crowd.come("c", group="y")
        statistics = crowd.limiter.statistics()
        assert (statistics.name, statistics.limit, statistics.used, statistics.waiting) == ("door", 1, 1, 2)
        assert (statistics.waiting_single, statistics.waiting_joint, statistics.arrived) == (2, 0, 3)
        assert [(g.group, g.weight, g.used, g.waiting) for g in statistics.groups] == [("x", 3, 1, 1), ("y", 1, 0, 1)]
        with pytest.raises(AttributeError):
            statistics.used = 0  # type: ignore[misc]

    await crowded(1, play)


@pytest.mark.parametrize("limit", [-1, 2.5, True, "3"])
async def test_a_limit_is_a_whole_number_of_at_least_0(limit: Any) -> None:
    with pytest.raises(OptionError, match=r"limiter 'door': limit=.* (is negative|is no whole number)"):
        Limiter(limit, name="door")
    limiter = Limiter(1, name="door")
    with pytest.raises(OptionError, match=r"limiter 'door': limit="):
        limiter.resize(limit)
    assert limiter.limit == 1


@pytest.mark.parametrize("weight", [0, -1.0, float("inf"), float("nan")])
async def test_a_weight_is_above_0(weight: float) -> None:
    with pytest.raises(OptionError, match=r"weight=.* must be a finite number above 0"):
        Limiter(1, name="door").lease(weight=weight)


@pytest.mark.parametrize("order", ["1", 1.5, (1, "2")])
async def test_an_order_is_made_of_integers(order: Any) -> None:
    with pytest.raises(OptionError, match="must be an integer or a tuple of integers"):
        Limiter(1, name="door").lease(order=order)


async def test_the_weight_belongs_to_the_group_while_it_has_leases() -> None:
    limiter = Limiter(3, name="door")
    async with limiter.lease(group="g", weight=2):
        with pytest.raises(OptionError, match="the weight belongs to the group"):
            async with limiter.lease(group="g", weight=3):
                pass
        async with limiter.lease(group="g", weight=2):
            with pytest.raises(OptionError, match=r"weight=1 for group 'g', which has 2 lease\(s\) of weight 2"):
                async with limiter.lease(group="g"):
                    pass
    assert (limiter.used, limiter.waiting) == (0, 0)
    async with limiter.lease(group="g", weight=3):
        pass


async def test_closing_twice_is_refused() -> None:
    limiter = Limiter(1, name="door")
    limiter.close()
    with pytest.raises(LimiterClosed, match="closed twice"):
        limiter.close()


@define
class Generous:
    """A policy that breaks its promise."""

    def enqueue(self, item: object, now: float) -> None: ...
    def withdraw(self, item: object, now: float) -> None: ...
    def abandon(self, item: object, now: float) -> None: ...
    def release(self, item: object, now: float) -> None: ...
    def poll(self, now: float, room: int | None) -> list[object]:
        return [object()]

    def next_wakeup(self, now: float) -> float | None:
        return None


async def test_a_policy_that_grants_what_does_not_wait_is_found_out() -> None:
    limiter = Limiter(None, name="door", admission=Generous())
    with pytest.raises(KernelError, match="which does not wait"):
        limiter.poll()


async def test_items_are_given_where_the_policy_wants_them_and_only_there() -> None:
    with pytest.raises(LeaseMisuse, match="give its lease an item="):
        Limiter(None, name="door", admission=Generous()).lease()
    with pytest.raises(LeaseMisuse, match="give it no item="):
        Limiter(None, name="door").lease(item="x")


async def test_a_limiter_and_a_lease_show_what_they_are() -> None:
    limiter = Limiter(3, name="door")
    async with limiter.lease() as lease:
        assert repr(limiter) == "<Limiter 'door', 1 of 3 used, 0 waiting>"
        assert repr(lease) == "<Lease of 'door', number 1, held>"
    assert isinstance(lease, Lease)


def test_a_limiter_that_is_empty_may_go_on_in_another_loop() -> None:
    limiter = Limiter(1, name="door")

    async def main() -> None:
        async def client() -> None:
            async with limiter.lease():
                await anyio.sleep(1)

        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(client)
        assert anyio.current_time() == 3

    for backend in ("asyncio", "trio", "asyncio"):
        run_virtual(backend, main)
    assert (limiter.used, limiter.waiting) == (0, 0)
