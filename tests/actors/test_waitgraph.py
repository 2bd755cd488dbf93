"""Waits that can never end are found and named; a correct program is never accused."""

from __future__ import annotations

import math
from collections.abc import Sequence

import anyio
import pytest

from proctor.actors import Limiter, lease_all
from proctor.errors import DeadlockError
from proctor.testing import settle


def limiters(*limits: int) -> list[Limiter]:
    return [Limiter(limit, name="abcdef"[n]) for n, limit in enumerate(limits)]


class Tasks:
    """Tasks that take limiters one inside the other; what became of them and when."""

    def __init__(self) -> None:
        self.ends: dict[str, str] = {}
        self.errors: list[DeadlockError] = []

    async def take(
        self, name: str, chain: Sequence[Limiter], *, think: float = 0.0, patience: float = math.inf
    ) -> None:
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + patience):
                await self._take(chain, think)
            self.ends[name] = f"done at {anyio.current_time():g}"
        except DeadlockError as error:
            self.errors.append(error)
            self.ends[name] = f"refused at {anyio.current_time():g}"

    async def _take(self, chain: Sequence[Limiter], think: float) -> None:
        if chain:
            async with chain[0].lease():
                await anyio.sleep(think)
                await self._take(chain[1:], think)


async def test_waiting_for_ones_own_places_is_refused_at_once() -> None:
    (a,) = limiters(2)
    async with a.lease(), a.lease():
        with pytest.raises(DeadlockError, match="this task holds every place of it itself") as caught:
            async with a.lease():
                pass
        (b,) = limiters(5)
        with pytest.raises(DeadlockError, match="the lease of 'a'"):
            async with lease_all([b.lease(), a.lease()]):
                pass
        assert (a.used, a.waiting, b.used, b.waiting) == (2, 0, 0, 0)
        assert anyio.current_time() == 0
    assert str(caught.value).count(__file__) == 3, "where it was asked for, and where both places were taken"


async def test_a_ring_is_found_a_second_after_it_closed_and_one_is_refused() -> None:
    a, b, c = limiters(1, 1, 1)
    tasks = Tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("one", [a, b], think=1))
        group.start_soon(lambda: tasks.take("two", [b, c], think=2))
        group.start_soon(lambda: tasks.take("three", [c, a], think=3))
    assert tasks.ends == {"three": "refused at 4", "two": "done at 6", "one": "done at 7"}
    text = str(tasks.errors[0])
    assert text.count("holds the lease of") == 3
    for name in "abc":
        assert f"'{name}'" in text
    assert "these tasks wait for each other" in text


async def test_a_ring_that_closes_in_one_instant_is_found_and_one_is_enough() -> None:
    a, b = limiters(1, 1)
    tasks = Tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("one", [a, b], think=1))
        group.start_soon(lambda: tasks.take("two", [b, a], think=1))
    assert sorted(tasks.ends.values()) == ["done at 3", "refused at 2"]


async def test_a_ring_through_limiters_of_several_places_needs_every_holder() -> None:
    a, b = limiters(2, 1)
    tasks = Tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("one", [a, b], think=1))
        group.start_soon(lambda: tasks.take("free", [a], think=7))
        group.start_soon(lambda: tasks.take("two", [b, a], think=1))
    assert tasks.errors == []
    assert tasks.ends["two"] == "done at 8"

    a, b = limiters(2, 1)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("one", [a, b], think=1))
        group.start_soon(lambda: tasks.take("also", [a, b], think=1))
        group.start_soon(lambda: tasks.take("two", [b, a], think=2))
    assert len(tasks.errors) == 1


async def test_a_joint_waiter_may_be_part_of_a_ring() -> None:
    a, b, c = limiters(1, 1, 1)
    tasks = Tasks()

    async def joint() -> None:
        async with b.lease():
            await anyio.sleep(2)
            try:
                async with lease_all([a.lease(), c.lease()]):
                    tasks.ends["joint"] = "done"
            except DeadlockError as error:
                tasks.errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("one", [a, b], think=1))
        group.start_soon(joint)
    assert len(tasks.errors) == 1
    assert (a.used, b.used, c.used) == (0, 0, 0)


async def test_a_child_that_waits_for_what_its_parent_will_release_is_not_accused() -> None:
    a, b = limiters(1, 1)
    tasks = Tasks()
    async with anyio.create_task_group() as group, a.lease():
        group.start_soon(lambda: tasks.take("child", [b, a]))
        await settle()
        await anyio.sleep(10)
        async with anyio.create_task_group() as inner:
            inner.start_soon(lambda: tasks.take("other", []))
    assert tasks.ends["child"] == "done at 10"
    assert tasks.errors == []


async def test_a_child_does_not_hold_what_it_inherited() -> None:
    a, b = limiters(1, 1)
    tasks = Tasks()
    async with anyio.create_task_group() as group, a.lease():
        group.start_soon(lambda: tasks.take("child", [b]))
        async with b.lease():
            await anyio.sleep(0)
            group.start_soon(lambda: tasks.take("waits for b below a", [b]))
            group.start_soon(lambda: tasks.take("waits for a", [a]))
            await anyio.sleep(5)
    assert tasks.errors == []


async def test_waits_that_end_at_deadlines_of_their_own_are_not_accused() -> None:
    a, b = limiters(1, 1)
    tasks = Tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("patient", [a, b], think=1))
        group.start_soon(lambda: tasks.take("impatient", [b, a], think=1, patience=5))
    assert tasks.ends == {"impatient": "done at 5", "patient": "done at 6"}


async def test_one_deadline_around_all_of_them_frees_nobody() -> None:
    a, b = limiters(1, 1)
    tasks = Tasks()
    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: tasks.take("one", [a, b], think=1))
            group.start_soon(lambda: tasks.take("two", [b, a], think=1))
    assert sorted(tasks.ends.values()) == ["done at 3", "refused at 2"]


async def test_a_long_wait_for_somebody_at_work_is_no_ring() -> None:
    a, b = limiters(1, 1)
    tasks = Tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("works", [b], think=100))
        group.start_soon(lambda: tasks.take("waits", [a, b]))
        await settle()
        group.start_soon(lambda: tasks.take("waits too", [a]))
    assert tasks.errors == []
    assert tasks.ends["waits too"] == "done at 100"


async def test_a_paused_limiter_is_waited_for_however_long() -> None:
    a, b = limiters(1, 1)
    tasks = Tasks()
    a.pause()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("one", [b, a]))
        await anyio.sleep(50)
        a.resume()
    assert tasks.ends == {"one": "done at 50"}


async def test_whoever_waits_behind_a_ring_is_not_the_one_to_be_refused() -> None:
    a, b, c = limiters(1, 1, 1)
    tasks = Tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("one", [a, b], think=1))
        group.start_soon(lambda: tasks.take("two", [b, a], think=1.5))
        group.start_soon(lambda: tasks.take("bystander", [c, a], think=1.2))
    assert tasks.ends["bystander"].startswith("done")
    assert len(tasks.errors) == 1
    assert "'c'" not in str(tasks.errors[0])


async def test_a_requeued_lease_may_close_a_ring() -> None:
    a, b = limiters(1, 1)
    tasks = Tasks()

    async def requeues() -> None:
        try:
            async with b.lease(), a.lease(order=5) as lease:
                await anyio.sleep(2)
                await lease.requeue()
        except DeadlockError as error:
            tasks.errors.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(requeues)
        await anyio.sleep(1)
        group.start_soon(lambda: tasks.take("sooner", [a, b]))
    assert len(tasks.errors) == 1
    assert (a.used, a.waiting, b.used, b.waiting) == (0, 0, 0, 0)


async def test_a_ring_through_a_paused_limiter_is_found_after_it_is_resumed() -> None:
    a, b = limiters(1, 1)
    tasks = Tasks()
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: tasks.take("one", [a, b], think=1))
        group.start_soon(lambda: tasks.take("two", [b, a], think=1))
        await anyio.sleep(1.5)
        a.pause()
        await anyio.sleep(10)
        assert tasks.errors == []
        a.resume()
    assert len(tasks.errors) == 1
    assert anyio.current_time() <= 13
