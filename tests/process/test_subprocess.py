"""`subprocess()` under its pool, with processes that a script plays, in virtual time."""

from __future__ import annotations

import logging
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from proctor import Task, open_runtime
from proctor.actors import Limiter
from proctor.dataset import Sample
from proctor.errors import Fault, LeaseRevoked, OptionError, ProcessTimeout, RankError
from proctor.process import hurry_children, run_process
from proctor.process.pool import KEY, loop_pool
from proctor.runtime import Runtime, Settings
from proctor.runtime.cpus import cpus
from proctor.runtime.ranks import CONNECTION, ENGINE, THREAD
from proctor.solver import solver
from proctor.testing import Awaits, FakeModel, FakeProcess, FaultPlan, Play, settle, simulate
from proctor.testing import Fault as Planned
from proctor.util import collect, subprocess

TERM, KILL = signal.SIGTERM, signal.SIGKILL


@asynccontextmanager
async def playing(fake: FakeProcess, limit: int = 2) -> AsyncIterator[Runtime]:
    """A runtime whose commands are played; at the end no slot is taken and nobody waits."""
    with fake.installed():
        async with open_runtime(Settings(seed=1, max_subprocesses=limit)) as runtime:
            yield runtime
            ref = runtime.find("processes", KEY)
            if ref is not None:
                assert (ref.limiter.used, ref.limiter.waiting) == (0, 0)
    assert all(each.closed for each in fake.plays)


async def test_no_more_commands_run_at_once_than_the_limit() -> None:
    fake = FakeProcess(answer=Play(seconds=2.0, stdout="out"))
    async with playing(fake, limit=2):
        results = await collect(*(subprocess(["work", str(n)]) for n in range(6)))
    assert [each.stdout for each in results] == ["out"] * 6
    assert (fake.peak, fake.times) == (2, [0.0, 0.0, 2.0, 2.0, 4.0, 4.0])


async def test_the_limit_is_that_of_the_runtime_and_changes_while_commands_run() -> None:
    fake = FakeProcess(answer=Play(seconds=10.0))
    async with playing(fake, limit=1) as runtime, anyio.create_task_group() as group:
        for n in range(6):
            group.start_soon(subprocess, ["work", str(n)])
        await anyio.sleep(1)
        assert fake.alive == 1
        runtime.set_limit("max_subprocesses", 3)
        await settle()
        assert fake.alive == 3
        runtime.set_limit("max_subprocesses", None)
        await anyio.sleep(9.5)
        assert fake.alive == 2
    assert fake.times == [0.0, 1.0, 1.0, 11.0, 21.0, 31.0]


async def test_without_a_number_the_limit_is_the_processors() -> None:
    fake = FakeProcess()
    with fake.installed():
        async with open_runtime(Settings()) as runtime:
            await subprocess("work")
            [ref] = runtime.actors("processes")
            assert ref.limiter.limit == cpus()
            runtime.set_limit("max_subprocesses", 77)
            assert ref.limiter.limit == 77
            runtime.set_limit("max_subprocesses", None)
            assert ref.limiter.limit == cpus()
            assert ref.limiter in runtime.limiters()


async def test_concurrency_false_waits_for_nobody() -> None:
    fake = FakeProcess(answer=Play(seconds=5.0))
    async with playing(fake, limit=1):
        await collect(*(subprocess(["work"], concurrency=False) for _ in range(3)), subprocess(["work"]))
    assert (fake.peak, fake.times) == (4, [0.0] * 4)


async def test_the_clock_of_a_timeout_starts_with_the_process() -> None:
    fake = FakeProcess(answer=Play(seconds=0.3))
    async with playing(fake, limit=1):
        await collect(*(subprocess(["work"], timeout=1) for _ in range(10)))
    assert anyio.current_time() == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("play", "back", "signals"),
    [
        (Play(seconds=60), 1.0, [(1.0, TERM)]),
        (Play(seconds=60, stubborn=True), 3.0, [(1.0, TERM), (3.0, KILL)]),
        (Play(seconds=2.5, stubborn=True), 2.5, [(1.0, TERM)]),
        (Play(seconds=60, lost=True), 3.5, [(1.0, TERM), (3.0, KILL), (3.5, KILL)]),
        (Play(seconds=60, child=90), 1.0, [(1.0, TERM)]),
        (Play(seconds=2.0, child=90, stubborn=True), 3.0, [(1.0, TERM), (3.0, KILL)]),
        (Play(seconds=60, escaped=90), 1.0, [(1.0, TERM)]),
    ],
    ids=["obeys", "stubborn", "goes in the grace", "its end is lost", "has a child", "left a child", "lets one escape"],
)
async def test_a_timeout_ends_the_group_in_bounded_time(
    play: Play, back: float, signals: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeProcess(answer=lambda call: play if call.text == "slow" else Play())
    with caplog.at_level(logging.WARNING, "proctor"):
        async with playing(fake, limit=1):
            with pytest.raises(TimeoutError, match=r"'slow' ran for longer than 1 s"):
                await subprocess("slow", timeout=1)
            assert anyio.current_time() == pytest.approx(back, abs=0.06)
            await subprocess("next")  # its place is free
            assert anyio.current_time() == pytest.approx(back, abs=0.06)
    assert [number for _, number in fake.plays[0].signals[: len(signals)]] == [number for _, number in signals]
    assert [at for at, _ in fake.plays[0].signals[: len(signals)]] == pytest.approx([at for at, _ in signals], abs=0.06)
    assert ("was killed and has not ended" in caplog.text) == play.lost


@pytest.mark.parametrize("play", [Play(seconds=60), Play(seconds=60, stubborn=True), Play(seconds=60, lost=True)])
async def test_a_cancelled_caller_leaves_nothing_running(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeProcess(answer=lambda call: play if call.text == "slow" else Play())
    async with playing(fake, limit=1):
        with anyio.move_on_after(1):
            await subprocess("slow")
        assert anyio.current_time() <= 3.6
        assert fake.alive == 0
        await subprocess("next")
    assert fake.plays[0].signals[0] == (1.0, TERM)


@pytest.mark.parametrize(("play", "back"), [(Play(seconds=1, child=60), 1.2), (Play(seconds=1, escaped=60), 1.2)])
async def test_a_process_that_ends_while_another_holds_its_output_is_not_waited_for(play: Play, back: float) -> None:
    fake = FakeProcess(answer=play)
    async with playing(fake):
        result = await subprocess("work", timeout=30)
        assert result.success
        assert anyio.current_time() == pytest.approx(back)
    assert fake.plays[0].signals == []


async def test_a_timeout_brings_the_output_so_far() -> None:
    fake = FakeProcess(answer=Play(seconds=60, stdout="first\nsecond\n", stderr="oh\n"))
    async with playing(fake):
        with pytest.raises(ProcessTimeout) as caught:
            await subprocess("slow", timeout=1, output_limit=8)
        assert (caught.value.stdout, caught.value.stderr) == ("\nsecond\n", "oh\n")
        assert caught.value.truncated == {"stdout": 13}
        assert caught.value.__notes__ == ["the end of its stdout:\n\nsecond", "the end of its stderr:\noh"]
        with pytest.raises(ProcessTimeout) as caught:
            await subprocess("slow", text=False, timeout=1)
        assert caught.value.stdout == b"first\nsecond\n"


async def test_a_result_says_which_stream_was_cut() -> None:
    fake = FakeProcess(answer=Play(stdout="é" * 6, stderr="é" * 5, returncode=3))
    async with playing(fake):
        result = await subprocess("work", output_limit=11)
    assert (result.stdout, result.stderr) == ("é" * 5, "é" * 5)
    assert (result.success, result.returncode, result.truncated) == (False, 3, {"stdout": 12})


async def test_waiting_for_a_place_is_no_working_time() -> None:
    fake = FakeProcess(answer=Play(seconds=4.0))

    @solver
    def running() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            await subprocess("work")
            return state

        return solve

    with fake.installed():
        [log] = await simulate(
            Task([Sample(str(n)) for n in range(3)], solver=running()), FakeModel().model(), max_samples=3,
            max_subprocesses=1,
        )  # fmt: skip
    assert fake.peak == 1
    times = sorted((each.total_time, each.working_time) for each in log.samples)
    assert times == [pytest.approx((4.0 * n, 4.0)) for n in (1, 2, 3)]


async def test_a_command_of_a_sample_fails_as_a_fault_plan_says() -> None:
    @solver
    def running() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            await subprocess("work")
            return state

        return solve

    faults = FaultPlan((Planned("process", 2),))
    fake = FakeProcess(faults=faults)
    with fake.installed():
        [log] = await simulate(
            Task([Sample(str(n)) for n in range(3)], solver=running()), FakeModel().model(), fail_on_error=False,
            faults=faults,
        )  # fmt: skip
    assert [each.error is None for each in log.samples] == [True, False, True]
    assert faults.raised == {"process": 1}


async def test_between_tasks_places_are_shared_fairly() -> None:
    fake = FakeProcess(answer=Play(seconds=1.0))
    async with playing(fake, limit=1) as runtime:
        await subprocess("first")
        limiter = runtime.actors("processes")[0].limiter

        async def run(group: str, n: int) -> None:
            await run_process([group], limiter=limiter, group=group)

        async with anyio.create_task_group() as group:
            for n in range(4):
                group.start_soon(run, "a", n)
            await anyio.sleep(0.5)
            for n in range(2):
                group.start_soon(run, "b", n)
    assert fake.texts[1:] in (["a", "b", "a", "b", "a", "a"], ["a", "a", "b", "a", "b", "a"])


async def test_a_restart_kills_the_children_and_the_next_commands_run() -> None:
    fake = FakeProcess(answer=lambda call: Play(seconds=60 if call.text == "slow" else 1, stubborn=True))
    seen: list[Any] = []

    async def run(name: str) -> None:
        try:
            seen.append((name, (await subprocess(name)).returncode))
        except LeaseRevoked as error:
            seen.append((name, str(error)))

    async with playing(fake, limit=2) as runtime:
        async with anyio.create_task_group() as group:
            for name in ("slow", "slow", "waits"):
                group.start_soon(run, name)
                await settle()
            await anyio.sleep(5)
            assert fake.alive == 2
            [ref] = runtime.actors("processes")
            ref.state.fail(Fault("the pool broke"))
            await settle()
            assert fake.alive <= 1
        assert (await subprocess("after")).success
        assert ref.statistics().incarnation == 2
    assert sorted(seen) == [("slow", "the pool broke"), ("slow", "the pool broke"), ("waits", 0)]
    assert anyio.current_time() < 10


async def test_a_second_interrupt_kills_what_has_a_grace() -> None:
    fake = FakeProcess(answer=Play(seconds=60, stubborn=True))
    async with playing(fake) as runtime:
        async with anyio.create_task_group() as group:
            group.start_soon(subprocess, "one")
            group.start_soon(subprocess, "two")
            await anyio.sleep(1)
            group.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.5)
                assert fake.alive == 2
                hurry_children(runtime)
                await settle()
                assert fake.alive == 0
        assert anyio.current_time() == 1.5


async def test_outside_a_runtime_the_limit_is_that_of_the_loop() -> None:
    fake = FakeProcess(answer=Play(seconds=1.0))
    with fake.installed():
        pool = loop_pool()
        assert pool.limiter.limit == cpus()
        pool.limiter.resize(2)
        await collect(*(subprocess("work") for _ in range(4)))
        assert (fake.peak, anyio.current_time()) == (2, 2.0)
        with pytest.raises(TimeoutError):
            await subprocess("work", timeout=0.5)
        assert (pool.limiter.used, pool.live) == (0, [])


async def test_ranks_are_kept() -> None:
    fake = FakeProcess()
    async with playing(fake):
        async with Limiter(1, name="connection", rank=CONNECTION).lease():
            await subprocess("work")
        async with Limiter(1, name="thread", rank=THREAD).lease():
            with pytest.raises(RankError):
                await subprocess("work")
            await subprocess("work", concurrency=False)


async def test_run_process_takes_the_lease_it_is_given() -> None:
    fake = FakeProcess(answer=Play(seconds=1.0, stdout="x"))
    engine = Limiter(1, name="engine", rank=ENGINE)
    async with playing(fake, limit=1):
        results = await collect(*(run_process(["engine"], limiter=engine) for _ in range(3)), run_process(["free"]))
        assert [each.stdout for each in results] == [b"x"] * 4
        assert anyio.current_time() == 3.0
        with pytest.raises(ProcessTimeout):
            await run_process(["engine"], limiter=engine, timeout=0.5, grace=0.1)
    assert sorted(fake.times) == [0.0, 0.0, 1.0, 2.0, 3.0]


async def test_a_stray_task_of_a_sample_that_ended_has_its_command_ended() -> None:
    fake = FakeProcess(answer=lambda call: Play(seconds=50 if call.text == "stray" else 1))
    kept: list[Any] = []

    async def around() -> None:
        async with anyio.create_task_group() as group:

            @solver
            def straying() -> Any:
                async def solve(state: Any, generate: Any) -> Any:
                    group.start_soon(stray)
                    await subprocess("work")
                    return state

                return solve

            async def stray() -> None:
                try:
                    await subprocess("stray")
                except Exception as error:
                    kept.append(error)

            await simulate(Task([Sample("q")], solver=straying()), FakeModel().model(), max_subprocesses=2)

    with fake.installed():
        await around()
    assert fake.calls == 2


@pytest.mark.parametrize("play", [Play(seconds=2), Play(seconds=9, stubborn=True), Play(seconds=1, child=9)])
@pytest.mark.parametrize("timeout", [None, 1])
async def test_cancelled_at_every_await_nothing_is_left(play: Play, timeout: float | None) -> None:
    at = 0
    while True:
        at += 1
        fake = FakeProcess(answer=play)
        async with playing(fake, limit=1) as runtime:
            with anyio.CancelScope() as scope:
                awaits = Awaits(at, scope)
                try:
                    await awaits.drive(subprocess("work", timeout=timeout))
                except TimeoutError:
                    assert timeout
            assert fake.alive == 0, at
            ref = runtime.find("processes", KEY)
            if ref is not None:
                assert (ref.limiter.used, ref.state.live) == (0, []), at
                await subprocess("next", timeout=30)
        if awaits.count < at:
            break
    assert at > 4


@pytest.mark.parametrize(
    ("args", "more", "text"),
    [
        ([], {}, "args must be a program"),
        (["a", 1], {}, "args must be a program"),
        ("a", {"output_limit": 0}, "output_limit must be a whole number of at least 1"),
        ("a", {"timeout": -1}, "timeout must be"),
    ],
)
async def test_a_mistake_in_a_call_is_told(args: Any, more: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        await subprocess(args, **more)
