"""The fakes: what is played, what is real, and that a whole evaluation needs neither threads nor files."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from proctor import Task, open_runtime
from proctor.dataset import Sample
from proctor.errors import RateLimitError, TransientModelError
from proctor.model import GenerateConfig, ModelUsage
from proctor.model.pacing import Dimension
from proctor.scorer import includes
from proctor.solver import TaskState, solver
from proctor.testing import (
    Awaits,
    FakeCall,
    FakeModel,
    Fault,
    FaultPlan,
    MemoryLogs,
    PlannedFault,
    run_virtual,
    simulate,
)
from proctor.testing.provider import ProviderTraits, Quota, SimulatedProvider


def task(count: int = 3, **more: Any) -> Task:
    return Task([Sample(f"q{n}", target="yes") for n in range(count)], scorer=includes(), **more)


async def test_a_fake_model_answers_from_its_script_behind_a_real_actor() -> None:
    fake = FakeModel(answer=lambda call: f"yes to {call.text}", latency=2.0, max_connections=3)
    [log] = await simulate(task(9), fake.model(), max_samples=9)
    assert [s.output.completion for s in log.samples] == [f"yes to q{n}" for n in range(9)]
    assert (fake.calls, fake.peak, fake.in_flight) == (9, 3, 0)
    assert fake.times == [0.0] * 3 + [2.0] * 3 + [4.0] * 3


async def test_a_fake_model_fails_as_scripted_and_is_asked_again() -> None:
    def answer(call: FakeCall) -> Any:
        return "yes" if call.attempt > 2 else TransientModelError("try again", status=503)

    fake = FakeModel(answer=answer, usage=ModelUsage(input_tokens=5, output_tokens=2, total_tokens=7))
    [log] = await simulate(task(1), fake.model())
    assert log.status == "success"
    assert fake.calls == 3
    assert log.stats.model_usage["fake/model"].total_tokens == 7


async def test_a_fake_model_has_the_quota_of_a_simulated_provider() -> None:
    traits = ProviderTraits(quotas=(Quota(dimension=Dimension.REQUESTS, per_minute=30, burst=2),), concurrency=2)
    provider = SimulatedProvider(traits, Random(1))
    fake = FakeModel(answer="yes", provider=provider)
    [log] = await simulate(task(6), fake.model())
    assert log.status == "success"
    assert provider.refused > 0
    assert provider.peak <= 2
    assert anyio.current_time() > 8


async def test_the_luck_of_a_request_does_not_depend_on_who_comes_first() -> None:
    def latency(call: FakeCall) -> float:
        return call.chance.random() * 4

    times = []
    for connections in (1, 5):
        fake = FakeModel(answer="yes", latency=latency)
        [log] = await simulate(task(5), fake.model(), max_connections=connections)
        times.append([s.working_time for s in log.samples])
    assert times[0] == pytest.approx(times[1])
    assert len(set(times[0])) == 5


async def test_a_planned_fault_strikes_where_it_is_planned() -> None:
    faults = FaultPlan(
        (
            Fault("setup", 1),
            Fault("solver", 2),
            Fault("model", 3, times=1, error=lambda text: RateLimitError(text, status=429)),
            Fault("scorer", 4),
            Fault("cleanup", 5),
            Fault("solver", 6, times=1),
        )
    )
    fake = FakeModel(answer="yes", faults=faults)
    [log] = await simulate(task(7), fake.model(), faults=faults, fail_on_error=False, retry_on_error=1)
    found = {s.id: s.error.message if s.error else None for s in log.samples}
    assert {id for id, message in found.items() if message} == {1, 2, 4, 5}
    assert all("PlannedFault" in message for message in found.values() if message)
    assert fake.calls == 5 * 2 + 1  # twice for those that failed; sample 1 fails before its call
    assert len(log.samples[5].error_retries) == 1
    assert faults.raised == {"setup": 2, "solver": 3, "model": 1, "scorer": 2, "cleanup": 2}


async def test_a_log_in_memory_fails_as_planned_and_ends_its_task() -> None:
    faults = FaultPlan((Fault("log", 2, error=lambda text: OSError(28, "No space left on device")),))
    tasks = [task(5), Task([Sample("q", target="yes")], name="other", scorer=includes())]
    fake = FakeModel(answer="yes", latency=1.0)
    options: dict[str, Any] = {"max_tasks": 2, "max_samples": 1, "max_connections": 2}
    broken, other = await simulate(tasks, fake.model(), faults=faults, **options)
    assert broken.status == "error"
    assert "No space left" in broken.error.message
    assert [s.id for s in broken.samples] == [1]
    assert (other.status, len(other.samples)) == ("success", 1)


async def test_a_full_channel_of_a_log_in_memory_holds_the_samples() -> None:
    fake = FakeModel(answer="yes")
    logs = MemoryLogs(commit=10.0, buffer=1)
    [log] = await simulate(task(4), fake.model(), logs=logs, max_samples=1)
    assert log.status == "success"
    assert fake.times == [0, 0, 0, 10]  # one is being written, one waits, and one holds the only slot


async def test_a_cancellation_leaves_what_was_durable() -> None:
    logs = MemoryLogs(commit=0.5)
    with anyio.move_on_after(3):
        await simulate(task(9), FakeModel(answer="yes", latency=2.0).model(), logs=logs, max_samples=2)
    log = logs.logs[0].read()
    assert log.status == "cancelled"
    assert [s.error is None for s in log.samples] == [True, True, False, False]


async def test_a_simulation_starts_no_thread_and_writes_no_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = threading.active_count()
    seen = []

    @solver
    def looking():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            seen.append(threading.active_count())
            return await generate(state)

        return solve

    [log] = await simulate(task(solver=looking()), FakeModel(answer="yes").model())
    assert log.results.scores[0].metrics["accuracy"].value == 1
    assert set(seen) == {before}
    assert not list(tmp_path.iterdir())


def test_the_same_simulation_twice_is_the_same_to_the_last_id(backend: str) -> None:
    async def main() -> list[Any]:
        faults = FaultPlan((Fault("solver", 2), Fault("scorer", 3)))
        fake = FakeModel(answer="yes", latency=lambda call: call.chance.random())
        [log] = await simulate(task(20), fake.model(), faults=faults, fail_on_error=False)
        return [(s.id, s.uuid, s.total_time, [m.id for m in s.messages]) for s in log.samples]

    assert run_virtual(backend, main) == run_virtual(backend, main)


def test_the_report_is_the_same_on_every_backend_whatever_the_limits(backend: str) -> None:
    async def main(limits: dict[str, int], seed: int) -> Any:
        faults = FaultPlan(tuple(Fault("solver", n, times=n % 3 or None) for n in range(1, 100, 4)))
        chance = Random(seed)
        fake = FakeModel(
            answer=lambda call: "yes" if Random(call.text).random() < 0.7 else "no",
            latency=lambda _: chance.random() * 3,
        )
        [log] = await simulate(
            task(100), fake.model(), faults=faults, fail_on_error=False, retry_on_error=1, epochs=2, **limits
        )
        return repr(log.results), repr(log.reductions)

    first = run_virtual("asyncio", main, {"max_connections": 1}, 1)
    assert run_virtual(backend, main, {"max_connections": 7}, 2) == first
    assert run_virtual(backend, main, {"max_connections": 50, "max_samples": 3}, 3) == first


async def test_an_awaited_place_is_cancelled_there_and_nowhere_else() -> None:
    reached: list[int] = []

    async def steps() -> None:
        for n in range(5):
            reached.append(n)
            await anyio.sleep(1)

    for k in range(1, 6):
        reached.clear()
        with anyio.CancelScope() as scope:
            await Awaits(k, scope).drive(steps())
        assert reached == list(range(k))
    awaits = Awaits()
    await awaits.drive(steps())
    assert awaits.count == 5


async def test_what_is_driven_may_fail_and_return() -> None:
    async def failing() -> None:
        await anyio.sleep(1)
        raise KeyError("mine")

    async def giving() -> int:
        await anyio.sleep(1)
        return 7

    with pytest.raises(KeyError):
        await Awaits().drive(failing())
    assert await Awaits().drive(giving()) == 7
    with anyio.move_on_after(1) as scope:
        await Awaits().drive(anyio.sleep(5))
    assert scope.cancelled_caught


async def test_a_cancellation_at_every_await_of_a_sample_leaves_one_record_and_nothing_open() -> None:
    """All of them, one by one: the kind of fault of which a single schedule shows nothing."""
    opened = 0

    @solver
    def holding():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            nonlocal opened
            opened += 1
            try:
                return await generate(state)
            finally:
                opened -= 1

        return solve

    k, cancelled = 1, 0
    while True:
        faults = FaultPlan((Fault("model", 1, times=1, error=_overloaded),), cancel_at=k)
        fake = FakeModel(answer="yes", latency=1.0, faults=faults)
        logs = MemoryLogs(faults=faults)
        async with open_runtime() as runtime:
            await simulate(task(2, solver=holding()), fake.model(), logs=logs, faults=faults)
            assert all(limiter.used == 0 for limiter in runtime.limiters())
        assert (opened, fake.in_flight) == (0, 0)
        if faults.awaits.count < k:
            break
        records = logs.logs[0].records if logs.logs else []
        assert len({record.id for record in records}) == len(records)
        cancelled += any(record.error for record in records)
        k += 1
    assert k > 10
    assert cancelled > 5


def _overloaded(text: str) -> Exception:
    return RateLimitError(text, status=429)


async def test_a_model_description_is_shared_by_simulations_in_one_runtime() -> None:
    fake = FakeModel(answer="yes", latency=1.0)
    async with open_runtime(), anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(simulate, task(4), fake.model(GenerateConfig(max_connections=2)))
    assert fake.peak == 2


def test_a_planned_fault_is_an_exception_of_its_own() -> None:
    with pytest.raises(PlannedFault, match="sample 3, epoch 0, solver"):
        FaultPlan((Fault("solver", 3),)).hit("solver", 3)
    FaultPlan((Fault("solver", 3),)).hit("model", 3)
    FaultPlan((Fault("solver", 3),)).hit("solver")


async def test_generate_with_a_fake_outside_of_an_evaluation() -> None:
    output = await FakeModel(answer="hello").model().generate("hi")
    assert output.completion == "hello"
