"""Virtual time: the clock, the order of timers, threads, settle, the watchdog."""

from __future__ import annotations

import math
import threading
import time

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from proctor.testing import VirtualDeadlock, background, outside, run_real, run_virtual, settle


async def test_time_starts_at_zero_and_jumps() -> None:
    assert anyio.current_time() == 0
    await anyio.sleep(3600)
    assert anyio.current_time() == 3600
    with anyio.move_on_after(0.1):
        await anyio.sleep(1)
    assert anyio.current_time() == 3600.1


def test_a_century_of_virtual_time_takes_no_time(backend: str) -> None:
    async def century() -> float:
        for _ in range(100):
            await anyio.sleep(365.25 * 86400 + 0.1)
        return anyio.current_time()

    before = time.monotonic()
    assert run_virtual(backend, century) == pytest.approx(100 * (365.25 * 86400 + 0.1))
    assert time.monotonic() - before < 30


async def test_the_result_and_the_error_of_the_function_come_out(backend: str) -> None:
    async def twice(x: int) -> int:
        return 2 * x

    async def boom() -> None:
        raise KeyError("boom")

    def check() -> None:
        assert run_virtual(backend, twice, 21) == 42
        with pytest.raises(KeyError, match="boom"):
            run_virtual(backend, boom)

    await anyio.to_thread.run_sync(check)


def test_timers_of_one_instant_fire_in_order_of_time_then_sequence() -> None:
    async def main() -> list[int]:
        woken: list[int] = []

        async def sleeper(n: int) -> None:
            await anyio.sleep(5)
            woken.append(n)

        async with anyio.create_task_group() as tg:
            for n in range(50):
                tg.start_soon(sleeper, n)
        return woken

    assert run_virtual("asyncio", main) == list(range(50))
    assert run_virtual("trio", main) == run_virtual("trio", main)
    assert run_virtual("trio", main, seed=1) == run_virtual("trio", main, seed=1)
    assert run_virtual("trio", main, seed=1) != run_virtual("trio", main, seed=2)


def test_the_fixed_order_of_trio_does_not_leak() -> None:
    import trio

    run = trio._core._run
    before = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r

    async def main() -> None:
        assert run._ALLOW_DETERMINISTIC_SCHEDULING
        assert run._r is not before[1]

    run_virtual("trio", main)
    assert (run._ALLOW_DETERMINISTIC_SCHEDULING, run._r) == before


def test_a_deadlock_is_named_with_the_place_of_each_waiter(backend: str) -> None:
    async def stuck_waiter(event: anyio.Event) -> None:
        await event.wait()

    async def main() -> None:
        async with anyio.create_task_group() as tg:
            tg.start_soon(stuck_waiter, anyio.Event())
            await anyio.sleep(10)

    with pytest.raises(VirtualDeadlock, match="stuck_waiter"):
        run_virtual(backend, main)


def test_sleeping_for_ever_is_a_deadlock_too(backend: str) -> None:
    with pytest.raises(VirtualDeadlock):
        run_virtual(backend, anyio.sleep_forever)


def test_a_deadlock_that_resists_cancellation_ends_the_run_all_the_same(backend: str) -> None:
    async def main() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep_forever()

    with pytest.raises(VirtualDeadlock):
        run_virtual(backend, main)


def test_a_task_that_spins_is_ended_after_its_real_time(backend: str) -> None:
    async def main() -> None:
        while True:
            await anyio.sleep(0)

    with pytest.raises(VirtualDeadlock, match="real time"):
        run_virtual(backend, main, timeout=0.3)


def test_background_timers_do_not_hide_a_deadlock(backend: str) -> None:
    async def redraw(drawn: list[float]) -> None:
        while True:
            await anyio.sleep(1)
            drawn.append(anyio.current_time())

    async def main(*, stuck: bool) -> list[float]:
        drawn: list[float] = []
        async with anyio.create_task_group() as tg:
            with background():
                tg.start_soon(redraw, drawn)
            await anyio.sleep(3.5)
            if stuck:
                await anyio.Event().wait()
            tg.cancel_scope.cancel()
        return drawn

    async def fine() -> list[float]:
        return await main(stuck=False)

    async def hangs() -> None:
        await main(stuck=True)

    assert run_virtual(backend, fine) == [1, 2, 3]
    with pytest.raises(VirtualDeadlock):
        run_virtual(backend, hangs)


async def test_settle_waits_for_all_that_can_run_now_and_moves_no_time() -> None:
    seen: list[str] = []

    async def busy() -> None:
        for n in range(20):
            await anyio.sleep(0)
            seen.append(f"step {n}")
        await anyio.sleep(1)
        seen.append("later")

    async with anyio.create_task_group() as tg:
        tg.start_soon(busy)
        await settle()
        assert len(seen) == 20
        assert anyio.current_time() == 0
    assert seen[-1] == "later"


async def test_settle_waits_for_timers_that_are_due_now_and_for_other_settlers() -> None:
    order: list[str] = []

    async def due() -> None:
        await anyio.sleep(1)
        order.append("due")

    async def settler() -> None:
        await anyio.sleep(1)
        await settle()
        order.append("settled")

    async with anyio.create_task_group() as tg:
        tg.start_soon(settler)
        tg.start_soon(due)
        tg.start_soon(settler)
    assert order == ["due", "settled", "settled"]


async def test_time_stands_still_while_a_thread_works() -> None:
    with anyio.fail_after(0.001):
        assert await anyio.to_thread.run_sync(lambda: (time.sleep(0.05), 7)[1]) == 7
    assert anyio.current_time() == 0


async def test_settle_waits_for_a_thread() -> None:
    done = threading.Event()

    async with anyio.create_task_group() as tg:
        tg.start_soon(anyio.to_thread.run_sync, lambda: (time.sleep(0.05), done.set()))
        await settle()
        assert done.is_set()


async def test_a_thread_calls_back_into_the_loop() -> None:
    async def answer() -> float:
        await anyio.sleep(2)
        return anyio.current_time()

    assert await anyio.to_thread.run_sync(anyio.from_thread.run, answer) == 2


def test_a_stuck_thread_is_waited_for_once_and_only_so_long(backend: str) -> None:
    release = threading.Event()

    async def main() -> None:
        async with anyio.create_task_group() as tg:
            tg.start_soon(lambda: anyio.to_thread.run_sync(release.wait, abandon_on_cancel=True))
            for _ in range(20):
                await anyio.sleep(1)
            tg.cancel_scope.cancel()
            release.set()

    before = time.monotonic()
    run_virtual(backend, main, patience=0.2)
    assert time.monotonic() - before < 3


async def test_time_stands_still_for_a_thread_that_was_left_behind() -> None:
    started, ended = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        time.sleep(0.05)
        ended.set()

    async with anyio.create_task_group() as tg:
        tg.start_soon(lambda: anyio.to_thread.run_sync(slow, abandon_on_cancel=True))
        while not started.is_set():
            await anyio.sleep(0)
        tg.cancel_scope.cancel()
    assert not ended.is_set()
    await anyio.sleep(10)
    assert ended.is_set()


async def test_work_outside_holds_time() -> None:
    event, token = anyio.Event(), anyio.lowlevel.current_token()
    thread = threading.Thread(
        target=lambda: (time.sleep(0.05), anyio.from_thread.run_sync(event.set, token=token)), daemon=True
    )
    with outside(), anyio.fail_after(1):
        thread.start()
        await event.wait()
    assert anyio.current_time() == 0
    await anyio.to_thread.run_sync(thread.join)


def test_settle_outside_virtual_time_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match="run_virtual"):
        run_real("asyncio", settle)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ValueError, match="asyncio, "):
        run_virtual("curio", anyio.sleep, 0)


@pytest.mark.real
async def test_a_test_marked_real_runs_in_real_time() -> None:
    before = time.monotonic()
    await anyio.sleep(0.01)
    assert time.monotonic() - before >= 0.009
    assert math.isfinite(anyio.current_time())
