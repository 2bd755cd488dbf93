"""Working time: elapsed time without the waits that no work in another branch covered."""

from __future__ import annotations

import anyio
import pytest

from proctor.runtime.sample_limits import SampleContext, WorkingTime, current_sample

sleep = anyio.sleep


async def wait(clock: WorkingTime, begin: float, end: float) -> None:
    await sleep(begin)
    with clock.waiting():
        await sleep(end - begin)


async def work(clock: WorkingTime, begin: float, end: float) -> None:
    await sleep(begin)
    with clock.active():
        await sleep(end - begin)


async def test_a_wait_does_not_count() -> None:
    clock = WorkingTime()
    await sleep(2)
    with clock.waiting():
        await sleep(3)
        assert not clock.running
        assert (clock.elapsed(), clock.working(), clock.waited()) == (5, 2, 3)
    assert clock.running
    await sleep(1)
    assert (clock.elapsed(), clock.working()) == (6, 3)


async def test_overlapping_waits_count_once() -> None:
    clock = WorkingTime()
    async with anyio.create_task_group() as group:
        for begin, end in [(0, 4), (1, 6), (2, 3), (8, 9)]:
            group.start_soon(wait, clock, begin, end)
    assert (clock.elapsed(), clock.waited()) == (9, 7)


async def test_a_wait_beside_work_in_another_branch_does_not_count() -> None:
    clock = WorkingTime()
    async with anyio.create_task_group() as group:
        group.start_soon(wait, clock, 0, 10)
        group.start_soon(work, clock, 2, 5)
        group.start_soon(work, clock, 4, 7)
    assert clock.waited() == 5


async def test_a_wait_inside_work_counts_although_the_work_goes_on_around_it() -> None:
    clock = WorkingTime()
    with clock.active():
        await sleep(1)
        with clock.waiting():
            await sleep(2)
        await sleep(1)
    assert (clock.elapsed(), clock.working()) == (4, 2)


async def test_a_wait_in_a_child_task_of_work_counts_unless_a_sibling_works() -> None:
    clock = WorkingTime()
    with clock.active():
        async with anyio.create_task_group() as group:
            group.start_soon(wait, clock, 0, 6)
            group.start_soon(work, clock, 1, 3)
    assert clock.waited() == 4


async def test_work_inside_a_wait_counts_as_work() -> None:
    clock = WorkingTime()
    with clock.waiting():
        await sleep(1)
        with clock.active():
            await sleep(2)
        await sleep(4)
    assert clock.waited() == 5


async def test_a_task_that_outlives_the_mark_it_was_started_in() -> None:
    clock = WorkingTime()
    async with anyio.create_task_group() as group:
        with clock.active():
            group.start_soon(wait, clock, 1, 4)  # from 2 on inside a mark that is closed
            group.start_soon(wait, clock, 5, 6)  # begins when it is long closed
            await sleep(2)
    assert (clock.elapsed(), clock.waited()) == (6, 4)


async def test_what_a_stray_task_does_counts_in_what_is_still_open_around_it() -> None:
    clock = WorkingTime()
    async with anyio.create_task_group() as group:
        with clock.active():
            with clock.active():
                group.start_soon(wait, clock, 2, 4)
                await sleep(1)
            with clock.active():  # covers the stray wait, which is in the outer one as it is
                await sleep(4)
    assert (clock.elapsed(), clock.waited()) == (5, 0)

    async with anyio.create_task_group() as group:
        with clock.active():
            with clock.active():
                group.start_soon(wait, clock, 2, 4)
                await sleep(1)
            await sleep(4)  # nothing but the stray wait is marked inside the one around
        assert clock.waited() == 2


async def test_the_end_stops_the_clocks_for_good() -> None:
    clock = WorkingTime()
    with clock.waiting():
        await sleep(1)
        clock.end()
        await sleep(1)
    await sleep(1)
    with clock.active():
        await sleep(1)
    clock.end()
    assert (clock.elapsed(), clock.working(), clock.running) == (1, 0, False)


async def test_a_mark_is_left_when_its_task_is_cancelled() -> None:
    clock = WorkingTime()
    with anyio.move_on_after(2):
        await wait(clock, 1, 100)
    await sleep(1)
    assert (clock.elapsed(), clock.working()) == (3, 2)


async def test_two_samples_in_one_task_do_not_mix() -> None:
    outer, inner = WorkingTime(), WorkingTime()
    with outer.active():
        with inner.waiting():
            await sleep(1)
        await sleep(1)
    assert (outer.working(), inner.working()) == (2, 1)


async def test_observers_hear_each_turn() -> None:
    clock = WorkingTime()
    heard: list[tuple[float, bool]] = []
    stop = clock.observe(lambda: heard.append((clock.elapsed(), clock.running)))
    await sleep(1)
    with clock.waiting(), clock.waiting():
        await sleep(1)
    stop()
    with clock.waiting():
        await sleep(1)
    assert heard == [(1, False), (2, True)]


async def test_fractions_never_leave_the_bounds() -> None:
    clock = WorkingTime()
    for _ in range(100):
        await sleep(0.1)
        with clock.waiting():
            pass
        assert 0 <= clock.working() <= clock.elapsed()
        assert clock.waited() >= 0


async def test_the_current_sample_is_seen_in_child_tasks_and_only_there() -> None:
    seen: list[SampleContext | None] = []

    async def look() -> None:
        seen.append(current_sample())

    first = SampleContext(group="a", admission=3)
    with first as entered:
        assert entered is first
        async with anyio.create_task_group() as group:
            group.start_soon(look)
    await look()
    assert seen == [first, None]


async def test_the_order_is_by_calls_then_admission_and_sandboxed_samples_go_first() -> None:
    fresh, old = SampleContext(admission=9), SampleContext(admission=1, calls=2)
    held = SampleContext(admission=5, calls=7, sandboxed=True)
    assert sorted([old, fresh, held], key=SampleContext.order) == [held, fresh, old]


async def test_usage_adds_up_by_model_and_by_role() -> None:
    sample = SampleContext()
    sample.record_usage("mock/a", None, 3)
    sample.record_usage("mock/a", "grader", 4)
    sample.record_usage("mock/b", "grader", 5)
    assert (sample.usage, sample.role_usage) == ({"mock/a": 7, "mock/b": 5}, {"grader": 9})


@pytest.mark.parametrize("begin", [0, 3])
async def test_the_clock_starts_when_it_is_made(begin: int) -> None:
    await sleep(begin)
    clock = WorkingTime()
    await sleep(2)
    assert clock.elapsed() == clock.working() == 2
