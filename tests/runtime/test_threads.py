"""Threads for blocking calls: the engine's wait for their end, the user's are left behind and named."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from functools import partial

import anyio
import anyio.from_thread
import pytest

from proctor.actors import Limiter
from proctor.actors.ranks import held_leases
from proctor.runtime.backend import current_backend
from proctor.runtime.ranks import SAMPLE
from proctor.runtime.threads import EngineThreads, UserThreads, describe
from proctor.testing import run_virtual, settle

Pool = Callable[[int], EngineThreads | UserThreads]
pools = pytest.mark.parametrize("pool", [EngineThreads, UserThreads])


class Stuck:
    """A call that ends when told; it says when it has begun."""

    def __init__(self) -> None:
        self.begun, self.go, self.ended = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        self.go.wait(20)
        self.ended.set()
        return "went on"


async def begin(stuck: Stuck) -> None:
    """Wait, in real time, until the call runs."""
    await anyio.to_thread.run_sync(stuck.begun.wait, 20)


@pools
async def test_a_call_returns_its_result_and_runs_in_a_daemon_thread(pool: Pool) -> None:
    threads = pool(2)
    thread = await threads.run(threading.current_thread)
    assert thread.daemon
    assert thread is not threading.main_thread()
    assert await threads.run(divmod, 7, 2) == (3, 1)
    threads.close()


@pools
async def test_an_exception_comes_out_with_its_traceback(pool: Pool) -> None:
    def fail() -> None:
        raise KeyError("in the thread")

    threads = pool(2)
    with pytest.raises(KeyError) as caught:
        await threads.run(fail)
    assert "fail" in [entry.name for entry in caught.traceback]
    with pytest.raises(RuntimeError, match="StopIteration"):
        await threads.run(next, iter(()))
    threads.close()


@pools
async def test_no_more_run_at_once_than_the_limit(pool: Pool) -> None:
    threads, inside, peak, lock = pool(3), 0, 0, threading.Lock()

    def call() -> None:
        nonlocal inside, peak
        with lock:
            inside += 1
            peak = max(peak, inside)
        threading.Event().wait(0.01)
        with lock:
            inside -= 1

    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(threads.run, call)
    assert peak == 3
    threads.close()


@pools
async def test_context_variables_reach_the_thread(pool: Pool) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("seen")
    threads = pool(1)
    assert await threads.run(variable.get) == "seen"
    threads.close()


async def test_user_code_may_call_back_into_the_loop() -> None:
    threads = UserThreads(2)

    async def back(value: int) -> tuple[int, object]:
        await anyio.sleep(0)
        return value, current_backend()

    def call() -> list[object]:
        anyio.from_thread.check_cancelled()
        return [anyio.from_thread.run(back, 5), anyio.from_thread.run_sync(lambda: threading.current_thread())]

    backend = current_backend()
    assert await threads.run(call) == [(5, backend), threading.current_thread()]
    threads.close()


async def test_a_call_back_is_cancelled_with_the_caller() -> None:
    threads, heard = UserThreads(1), []

    async def back() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            heard.append("cancelled")

    with anyio.move_on_after(1):
        await threads.run(anyio.from_thread.run, back)
    await anyio.sleep(1)
    assert heard == ["cancelled"]
    threads.close()


async def test_a_call_back_holds_no_lease_of_its_caller() -> None:
    threads, samples = UserThreads(1), Limiter(2, name="samples", rank=SAMPLE)

    async def back() -> int:
        async with samples.lease():
            return len(list(held_leases()))

    async with samples.lease():
        assert await threads.run(anyio.from_thread.run, back) == 1
    threads.close()


async def test_a_cancelled_caller_of_user_code_leaves_at_once_and_the_call_goes_on() -> None:
    threads, stuck = UserThreads(1), Stuck()
    async with anyio.create_task_group() as group:
        group.start_soon(threads.run, stuck)
        await begin(stuck)
        group.cancel_scope.cancel()
    assert not stuck.ended.is_set()
    assert [call.abandoned for call in threads.running()] == [True]
    stuck.go.set()
    await anyio.to_thread.run_sync(stuck.ended.wait, 20)
    await settle()
    assert threads.running() == []
    threads.close()


def test_abandoned_calls_keep_their_places_until_they_end(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    run_virtual(backend, abandon_and_go_on, caplog, patience=0.2)


async def abandon_and_go_on(caplog: pytest.LogCaptureFixture) -> None:
    threads, stuck = UserThreads(2), [Stuck(), Stuck()]
    async with anyio.create_task_group() as group:
        for each in stuck:
            group.start_soon(threads.run, each)
            await begin(each)
        group.cancel_scope.cancel()
    assert (threads.limiter.limit, threads.limiter.used) == (0, 0)
    assert "all 2 threads for user code run calls whose callers have left" in caplog.text
    assert "Stuck" in caplog.text

    results: list[int] = []

    async def wait() -> None:
        results.append(await threads.run(len, "abc"))

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await anyio.sleep(0)
        assert results == []
        threads.resize(3)
        await settle()
        assert results == [3]
        for each in stuck:
            each.go.set()
            await anyio.to_thread.run_sync(each.ended.wait, 20)
        await settle()
    assert (threads.limiter.limit, threads.limiter.used) == (3, 0)
    threads.close()


async def test_forty_stuck_scorers_do_not_stop_the_engine() -> None:
    user, engine, stuck = UserThreads(40), EngineThreads(2), Stuck()
    async with anyio.create_task_group() as group:
        for _ in range(45):
            group.start_soon(user.run, stuck)
        await begin(stuck)
        for number in range(5):
            assert await engine.run(str, number) == str(number)
        stuck.go.set()
    user.close()
    engine.close()


async def test_what_still_runs_at_the_end_is_named() -> None:
    threads, stuck = UserThreads(1), Stuck()
    async with anyio.create_task_group() as group:
        group.start_soon(threads.run, stuck)
        await begin(stuck)
        group.cancel_scope.cancel()
    [left] = threads.close()
    assert left.startswith(f"{Stuck.__qualname__} ({__file__}:")
    assert left.endswith(", for 0.0 s")
    stuck.go.set()


async def test_a_cancelled_caller_of_an_engine_call_leaves_when_the_call_has_ended() -> None:
    threads, stuck, heard = EngineThreads(1), Stuck(), []

    async def call() -> None:
        try:
            await threads.run(stuck)
        finally:
            heard.append(("left", stuck.ended.is_set()))

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await begin(stuck)
        group.cancel_scope.cancel()
        stuck.go.set()
    assert heard == [("left", True)]
    assert await threads.run(len, "ab") == 2
    threads.close()


async def test_an_engine_call_that_fails_after_its_caller_was_cancelled_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads, stuck = EngineThreads(1), Stuck()

    def fail() -> None:
        stuck()
        raise OSError("disk full")

    async with anyio.create_task_group() as group:
        group.start_soon(threads.run, fail)
        await begin(stuck)
        group.cancel_scope.cancel()
        stuck.go.set()
    assert "failed after it was cancelled" in caplog.text
    assert "disk full" in caplog.text
    threads.close()


@pools
async def test_a_caller_that_is_cancelled_already_starts_nothing_and_costs_no_place(pool: Pool) -> None:
    threads, ran = pool(1), []
    for _ in range(3):
        with anyio.CancelScope() as scope:
            scope.cancel()
            await threads.run(ran.append, 1)
    assert await threads.run(len, "abc") == 3
    assert ran == []
    threads.close()


@pools
async def test_a_thread_that_cannot_be_started_costs_no_place(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = pool(1)
    if current_backend() == "asyncio":  # trio may have an idle thread of another test's
        for _ in range(3):
            with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="can't start"):
                patch.setattr(threading.Thread, "start", refuse)
                await threads.run(len, "abc")
    assert await threads.run(len, "abc") == 3
    assert threads.close() in (None, [])


@pools
async def test_threads_are_used_again_and_end_with_the_pool(pool: Pool) -> None:
    threads = pool(4)
    used = {await threads.run(threading.current_thread) for _ in range(5)}
    threads.close()
    if current_backend() == "asyncio":  # trio keeps its idle threads for itself
        assert len(used) == 1
        for thread in used:
            thread.join(5)
            assert not thread.is_alive()


def test_a_function_is_described_by_name_and_place() -> None:
    def local() -> None: ...

    line = local.__code__.co_firstlineno
    assert describe(partial(partial(local))) == f"{local.__qualname__} ({__file__}:{line})"
    assert describe(len) == "len"
    assert describe(Stuck()).startswith(f"Stuck ({__file__}:")
