"""Every way to misuse a lease has an error text of its own, and the place is given back all the same."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from proctor.actors import Limiter, lease_all, lease_scope
from proctor.errors import LeaseMisuse, SampleEnded
from proctor.testing import settle


async def test_a_lease_left_twice() -> None:
    limiter = Limiter(1, name="door")
    lease = limiter.lease()
    async with lease:
        pass
    with pytest.raises(LeaseMisuse, match="was left before: it is left once"):
        await lease.__aexit__(None, None, None)
    attempt = limiter.try_lease()
    assert attempt is not None
    with attempt:
        pass
    with pytest.raises(LeaseMisuse, match="was left before"):
        attempt.__exit__(None, None, None)
    assert limiter.used == 0


async def test_a_lease_left_before_it_was_entered() -> None:
    lease = Limiter(1, name="door").lease()
    with pytest.raises(LeaseMisuse, match="was never entered"):
        await lease.__aexit__(None, None, None)


async def test_a_lease_entered_twice() -> None:
    limiter = Limiter(2, name="door")
    async with limiter.lease() as lease:
        with pytest.raises(LeaseMisuse, match="a lease is entered once"):
            async with lease:
                pass
        assert limiter.used == 1


async def test_a_lease_entered_with_the_wrong_with() -> None:
    limiter = Limiter(2, name="door")
    with pytest.raises(LeaseMisuse, match=r"limiter.lease\(\) is entered with `async with`"), limiter.lease():
        pass
    attempt = limiter.try_lease(revocable=True)
    assert attempt is not None
    with attempt, pytest.raises(LeaseMisuse, match=r"plain `with` is for what try_lease\(\) returned, once"), attempt:
        pass
    assert limiter.used == 0


@pytest.mark.parametrize("revocable", [False, True])
async def test_leases_left_out_of_order(revocable: bool) -> None:
    limiter = Limiter(2, name="door")

    async def muddle() -> None:
        first, second = limiter.lease(revocable=revocable), limiter.lease()
        await first.__aenter__()
        await second.__aenter__()
        with pytest.raises(
            LeaseMisuse, match="before a lease that was taken after it: leases are left in reverse order"
        ):
            await first.__aexit__(None, None, None)
        assert limiter.used == 1
        await second.__aexit__(None, None, None)
        assert limiter.used == 0

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(muddle)


async def test_a_lease_left_in_another_task() -> None:
    limiter = Limiter(1, name="door")
    lease = limiter.lease()
    await lease.__aenter__()
    texts: list[str] = []

    async def leave() -> None:
        with pytest.raises(LeaseMisuse) as caught:
            await lease.__aexit__(None, None, None)
        texts.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(leave)
    assert "in another task than entered it: a lease is left by the task that entered it" in texts[0]
    assert __file__ in texts[0], "the place where it was asked for is named"
    assert limiter.used == 0


async def test_a_revocable_lease_left_in_another_task() -> None:
    limiter = Limiter(1, name="door")
    lease = limiter.lease(revocable=True)
    entered, left = anyio.Event(), anyio.Event()

    async def enter() -> None:
        await lease.__aenter__()
        entered.set()
        await left.wait()
        # The backend's own scope stack was broken by the other task; nothing here can mend that.

    async def leave() -> None:
        await entered.wait()
        try:
            with pytest.raises(LeaseMisuse, match="in another task than entered it"):
                await lease.__aexit__(None, None, None)
            assert limiter.used == 0
        finally:
            left.set()

    with pytest.raises(BaseException) as broken:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(enter)
            tasks.start_soon(leave)
        raise RuntimeError("not blamed on this backend")
    assert "AssertionError" not in repr(broken.value)
    assert limiter.used == 0


async def test_a_lease_held_across_the_yield_of_a_generator_that_another_task_ends() -> None:
    limiter = Limiter(1, name="door")

    async def numbers() -> AsyncIterator[int]:
        async with limiter.lease():
            yield 1
            yield 2

    generator = numbers()
    assert await anext(generator) == 1
    texts: list[str] = []

    async def end() -> None:
        with pytest.raises(LeaseMisuse) as caught:
            await generator.aclose()  # type: ignore[attr-defined]
        texts.append(str(caught.value))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(end)
    assert "held across the `yield` of the async generator" in texts[0]
    assert "numbers" in texts[0]
    assert "in another task" in texts[0]
    assert limiter.used == 0


async def test_a_lease_held_across_the_yield_of_a_generator_that_is_ended_out_of_order() -> None:
    limiter = Limiter(2, name="door")

    async def numbers() -> AsyncIterator[int]:
        async with limiter.lease():
            yield 1

    generator = numbers()
    await anext(generator)
    async with limiter.lease():
        with pytest.raises(LeaseMisuse, match=r"held across the `yield` of the async generator .* before a lease"):
            await generator.aclose()  # type: ignore[attr-defined]
    assert limiter.used == 0


async def test_a_context_manager_made_of_a_generator_may_hold_a_lease() -> None:
    limiter = Limiter(2, name="door")

    @asynccontextmanager
    async def slot() -> AsyncIterator[None]:
        async with limiter.lease():
            yield

    async with slot(), slot():
        assert limiter.used == 2
    assert limiter.used == 0


async def test_requeue_of_a_lease_that_is_not_the_innermost_or_of_another_task() -> None:
    limiter = Limiter(3, name="door")
    async with limiter.lease() as lease:
        async with limiter.lease():
            with pytest.raises(LeaseMisuse, match="while it is the innermost lease there"):
                await lease.requeue()

        async def elsewhere() -> None:
            with pytest.raises(LeaseMisuse, match="only in the task that entered it"):
                await lease.requeue()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(elsewhere)
        assert lease.held


async def test_requeue_of_a_lease_that_is_not_held() -> None:
    lease = Limiter(1, name="door").lease()
    with pytest.raises(LeaseMisuse, match="is not entered: only one that is held"):
        await lease.requeue()


async def test_a_joint_lease_of_nothing_of_one_limiter_twice_or_of_what_is_entered() -> None:
    limiter, other = Limiter(3, name="door"), Limiter(3, name="gate")
    with pytest.raises(LeaseMisuse, match="nothing to wait for"):
        lease_all([])
    with pytest.raises(LeaseMisuse, match="the second of this limiter"):
        lease_all([limiter.lease(), limiter.lease()])
    async with limiter.lease() as lease:
        with pytest.raises(LeaseMisuse, match="lease_all takes leases that are not entered"):
            lease_all([lease])
    part = limiter.lease()
    async with lease_all([part, other.lease()]) as leases:
        assert leases[0] is part
        with pytest.raises(LeaseMisuse, match="cannot go back in line by parts"):
            await part.requeue()
    shared = limiter.lease()
    first, second = lease_all([shared]), lease_all([shared, other.lease()])
    async with first:
        with pytest.raises(LeaseMisuse, match="part of another joint lease"):
            async with second:
                pass
    with pytest.raises(LeaseMisuse, match="was left before"):
        await first.__aexit__(None, None, None)
    assert (limiter.used, other.used) == (0, 0)


async def test_a_lease_scope_entered_twice_or_left_elsewhere() -> None:
    scope = lease_scope(ended=SampleEnded, name="sample 1")
    async with scope:
        with pytest.raises(LeaseMisuse, match="'sample 1' was entered before"):
            async with scope:
                pass
    with pytest.raises(LeaseMisuse, match="not entered or left before"):
        await scope.__aexit__(None, None, None)
    other = lease_scope(ended=SampleEnded, name="sample 2")
    entered = anyio.Event()

    async def enter() -> None:
        await other.__aenter__()
        entered.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(enter)
        await entered.wait()
        with pytest.raises(LeaseMisuse, match="left in another task"):
            await other.__aexit__(None, None, None)
    await settle()
    assert other.ended
