"""Lease scopes: what a piece of work took or waits for ends with it, wherever it runs."""

from __future__ import annotations

import anyio
import pytest

from proctor.actors import Limiter, current_scope, lease_all, lease_scope
from proctor.errors import ProctorError, SampleEnded
from proctor.testing import settle


class TooLate(ProctorError):
    """The work that this was done for has ended."""


async def test_leases_below_it_are_revocable_and_end_with_it_in_child_tasks_too() -> None:
    limiter = Limiter(3, name="door")
    outcomes: list[str] = []

    async def child() -> None:
        with pytest.raises(SampleEnded, match=r"sample 7 has ended: .* was held still"):
            async with limiter.lease() as lease:
                assert lease.revocable
                await anyio.sleep_forever()
        outcomes.append("held")

    async with anyio.create_task_group() as outside:
        async with lease_scope(ended=SampleEnded, name="sample 7") as scope:
            assert current_scope() is scope
            outside.start_soon(child)
            await settle()
            assert limiter.used == 1
        assert limiter.used == 1, "asked to leave; it counts until it has left"
        assert scope.ended
    assert outcomes == ["held"]
    assert limiter.used == 0
    assert len(scope.stray) == 1
    assert __file__ in scope.stray[0]
    assert current_scope() is None


async def test_waiters_below_it_are_withdrawn_and_later_attempts_raise() -> None:
    limiter, other = Limiter(1, name="door"), Limiter(1, name="gate")
    outcomes: list[str] = []
    go_on = anyio.Event()

    async def waits() -> None:
        with pytest.raises(TooLate, match="was waiting still"):
            async with limiter.lease():
                pass
        outcomes.append("waited")

    async def waits_for_both() -> None:
        with pytest.raises(TooLate, match="was waiting still"):
            async with lease_all([limiter.lease(), other.lease()]):
                pass
        outcomes.append("waited for both")

    async def comes_late() -> None:
        await go_on.wait()
        with pytest.raises(TooLate, match=r"the work has ended: the lease of 'gate' .* comes too late"):
            async with other.lease():
                pass
        with pytest.raises(TooLate):
            other.try_lease()
        with pytest.raises(TooLate):
            async with lease_all([limiter.lease(), other.lease()]):
                pass
        with pytest.raises(TooLate):
            async with lease_scope(ended=SampleEnded):
                pass
        outcomes.append("late")

    async with anyio.create_task_group() as outside, limiter.lease():
        async with lease_scope(ended=TooLate) as scope:
            for task in (waits, waits_for_both, comes_late):
                outside.start_soon(task)
            await settle()
            assert (limiter.waiting, other.waiting) == (2, 1)
        assert (limiter.waiting, other.waiting) == (0, 0)
        assert len(scope.stray) == 2, "a joint lease is named once"
        go_on.set()
    assert sorted(outcomes) == ["late", "waited", "waited for both"]


async def test_scopes_nest_and_the_outer_ends_the_inner() -> None:
    limiter = Limiter(5, name="door")
    outcomes: list[str] = []

    async def stray() -> None:
        async with lease_scope(ended=TooLate, name="inner"):
            with pytest.raises(TooLate):
                async with limiter.lease():
                    await anyio.sleep_forever()
        outcomes.append("inner")

    async with anyio.create_task_group() as outside, lease_scope(ended=SampleEnded, name="outer"):
        outside.start_soon(stray)
        await settle()
        async with lease_scope(ended=TooLate, name="done"):
            pass
        async with limiter.lease():
            assert limiter.used == 2
    assert outcomes == ["inner"]


async def test_what_left_by_itself_is_not_stray() -> None:
    limiter = Limiter(1, name="door")
    async with lease_scope(ended=SampleEnded) as scope, limiter.lease():
        with anyio.move_on_after(1):
            await anyio.sleep(5)
    assert scope.stray == ()


async def test_a_waiter_granted_in_the_step_before_the_end_never_starts_its_body() -> None:
    limiter = Limiter(0, name="door")

    async def child() -> None:
        with pytest.raises(SampleEnded):
            async with limiter.lease():
                pytest.fail("the body ran")

    async with anyio.create_task_group() as outside, lease_scope(ended=SampleEnded):
        outside.start_soon(child)
        await settle()
        limiter.resize(1)
        assert limiter.used == 1
    assert limiter.used == 0


async def test_a_lease_back_in_line_is_withdrawn_too() -> None:
    limiter = Limiter(1, name="door")

    async def child() -> None:
        with pytest.raises(SampleEnded):
            async with limiter.lease() as lease:
                limiter.pause()
                await lease.requeue()

    async with anyio.create_task_group() as outside, lease_scope(ended=SampleEnded):
        outside.start_soon(child)
        await settle()
        assert (limiter.used, limiter.waiting) == (0, 1)
    assert (limiter.used, limiter.waiting) == (0, 0)


async def test_a_scope_may_be_ended_before_it_is_left() -> None:
    limiter = Limiter(1, name="door")
    async with lease_scope(ended=SampleEnded) as scope:
        scope.end()
        scope.end()
        with pytest.raises(SampleEnded):
            async with limiter.lease():
                pass
    assert limiter.used == 0


async def test_scopes_that_ended_leave_nothing_in_the_one_around_them() -> None:
    limiter = Limiter(1, name="door")
    async with lease_scope(ended=SampleEnded) as outer:
        for _ in range(100):
            async with lease_scope(ended=SampleEnded), limiter.lease():
                pass
        assert not outer._members
