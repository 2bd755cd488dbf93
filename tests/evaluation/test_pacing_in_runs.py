"""Whole evaluations in virtual time against a provider with quotas: what the pacing of calls and samples comes to."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from proctor import Task, eval_async
from proctor.dataset import Sample
from proctor.errors import ModelGivenUp, TransientModelError
from proctor.log import read_eval_log
from proctor.model import GenerateConfig, ModelUsage, get_model
from proctor.model.actor import shares
from proctor.model.pacing import Dimension, Signal
from proctor.runtime import open_runtime
from proctor.solver import Generate, TaskState, generate, solver
from proctor.testing import FakeModel, simulate
from proctor.testing.provider import ProviderTraits, Quota, SimulatedProvider

RPM = 600.0
REQUESTS = Quota(dimension=Dimension.REQUESTS, per_minute=RPM, burst=2.0)


def provider(*quotas: Quota, **traits: Any) -> SimulatedProvider:
    return SimulatedProvider(ProviderTraits(quotas=quotas, per_token=0.0, **traits), Random(3))


def task(count: int, name: str = "task", prefix: str = "", **options: Any) -> Task:
    return Task([Sample(f"{prefix or name} {number}") for number in range(count)], name=name, **options)


async def test_a_quota_is_used_to_the_full_and_nothing_is_refused_after_the_first_headers() -> None:
    server = provider(REQUESTS, headers=True)
    fake = FakeModel(provider=server, adaptive=True)
    [log] = await simulate(task(400), fake.model())
    assert log.status == "success"
    assert (server.admitted, server.refused) == (400, 0)
    ideal = (400 - 20) / (RPM / 60)
    assert anyio.current_time() < 1.05 * ideal + 3


async def test_without_headers_the_rate_is_learned_from_refusals() -> None:
    server = provider(REQUESTS)
    fake = FakeModel(provider=server, adaptive=True)
    [log] = await simulate(task(600), fake.model())
    assert log.status == "success"
    assert server.admitted == 600
    assert server.refused < 30
    assert anyio.current_time() < 1.1 * (600 - 20) / (RPM / 60)


@pytest.mark.parametrize(("option", "rate"), [("requests_per_minute", 120.0), ("tokens_per_minute", 120 * 150.0)])
async def test_a_declared_rate_steers(option: str, rate: float) -> None:
    used = ModelUsage(input_tokens=100, output_tokens=50, total_tokens=150)
    fake = FakeModel(usage=used, latency=0.5, adaptive=True)
    options: dict[str, Any] = {option: rate}
    [log] = await simulate(task(60, "t", prefix="word" * 100), fake.model(), **options)
    assert log.status == "success"
    assert fake.calls == 60
    assert 25 < anyio.current_time() < 36
    assert max(later - sooner for sooner, later in pairwise(fake.times[5:])) < 1.5


async def test_a_declared_rate_holds_a_static_window_too_and_ends_with_its_task() -> None:
    fake = FakeModel(answer="yes", latency=0.1)
    async with open_runtime() as runtime:
        await simulate(task(30), fake.model(), requests_per_minute=60, max_connections=7)
        assert anyio.current_time() > 27
        [share] = shares(runtime)
        assert share.limiter.statistics().note == ""
        began = anyio.current_time()
        await simulate(task(30), fake.model())
        assert anyio.current_time() - began < 2


async def test_a_key_that_is_refused_costs_one_request_however_many_samples_wait() -> None:
    def refuse(call: Any) -> Any:
        return ModelGivenUp("the key was refused", status=401)

    fake = FakeModel(answer=refuse, latency=1.0, adaptive=True)
    [log] = await simulate(task(10), fake.model(), max_samples=10)
    assert log.status == "error"
    assert fake.calls == 1
    async with open_runtime(), anyio.create_task_group() as group:

        async def call() -> None:
            with pytest.raises(ModelGivenUp, match="refused"):
                await fake.model().generate("x")

        for _ in range(10):
            group.start_soon(call)
    assert fake.calls == 2


async def test_a_first_answer_that_takes_long_is_not_waited_for() -> None:
    fake = FakeModel(latency=60.0, adaptive=True)
    [log] = await simulate(task(10), fake.model(), max_samples=10)
    assert log.status == "success"
    assert fake.times[0] == 0
    assert 3 <= fake.times[1] < 3.1
    assert fake.times[-1] < 5
    fixed = FakeModel(latency=60.0, max_connections=10)
    began = anyio.current_time()
    await simulate(task(10), fixed.model())
    assert fixed.times == [began] * 10, "a model of one's own is not made to wait"


async def test_a_first_request_that_fails_for_a_while_lets_the_others_go() -> None:
    def answer(call: Any) -> Any:
        return TransientModelError("oops", status=503) if call.text == "task 0" and call.attempt < 3 else "yes"

    fake = FakeModel(answer=answer, latency=0.1, adaptive=True)
    [log] = await simulate(task(10), fake.model(), max_samples=10)
    assert log.status == "success"
    assert fake.calls == 12


@pytest.mark.parametrize("set_up", [0.0, 5.0, 60.0])
async def test_the_gate_keeps_the_model_busy_and_starts_no_more_than_that_needs(set_up: float) -> None:
    """Quota 120 a minute, 1 s an answer: the model is busy with 2 calls; set-ups of a minute need 90 samples more."""
    chance = Random(1)
    running = most = 0

    @solver
    def counted() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            nonlocal running, most
            running += 1
            most = max(most, running)
            try:
                await anyio.sleep(chance.uniform(0.5, 1.0) * set_up)
                return await generate(state)
            finally:
                running -= 1

        return solve

    rate = 2.0
    quota = Quota(dimension=Dimension.REQUESTS, per_minute=60 * rate, burst=5.0)
    server = provider(quota, headers=True, first_token=1.0)
    fake = FakeModel(provider=server, adaptive=True)
    count = 600 if set_up > 10 else 200
    [log] = await simulate(task(count, solver=counted()), fake.model())
    assert log.status == "success"
    assert server.refused == 0
    needed = rate * (1.2 + 0.75 * set_up)
    assert most < 2.5 * needed + 12
    # From four samples on each set-up doubles how many are under way, until the model is busy.
    assert anyio.current_time() < 1.05 * count / rate + 10 + 6 * set_up


async def test_two_feeds_share_the_gate_and_two_tasks_the_model() -> None:
    """Jain's index over the answers that each had when the first of them ended."""
    server = provider(REQUESTS, headers=True)
    fake = FakeModel(provider=server, adaptive=True, answer=lambda call: call.text)
    ended: dict[str, list[float]] = {"one": [], "two": []}

    @solver
    def noted(name: str, set_up: float) -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            await anyio.sleep(set_up)
            state = await generate(state)
            ended[name].append(anyio.current_time())
            return state

        return solve

    tasks = [task(300, name, solver=noted(name, 2.0)) for name in ended]
    logs = await simulate(tasks, fake.model(), max_tasks=2)
    assert [log.status for log in logs] == ["success", "success"]
    over = min(times[-1] for times in ended.values())
    shares = [sum(10 < at <= over for at in times) for times in ended.values()]
    assert sum(shares) ** 2 / (2 * sum(share**2 for share in shares)) >= 0.99
    assert server.refused == 0


async def test_an_explicit_number_of_samples_is_slots_and_the_gate_is_not_asked() -> None:
    fake = FakeModel(latency=1.0, adaptive=True)
    running = most = 0

    @solver
    def counted() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await anyio.sleep(30)
            running -= 1
            return state

        return solve

    await simulate(task(100, solver=counted()), fake.model(), max_samples=50)
    assert most == 50


async def test_a_grader_on_the_same_model_and_account_shares_its_pacer() -> None:
    server = provider(REQUESTS, headers=True)
    fake = FakeModel(provider=server, adaptive=True)

    @solver
    def graded() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state = await generate(state)
            await get_model(role="grader").generate(f"grade {state.input}")
            return state

        return solve

    async with open_runtime() as runtime:
        model = fake.model()
        grader = model.with_config(GenerateConfig(temperature=0.1), role="grader")
        [log] = await simulate(task(200, solver=graded()), model, model_roles={"grader": grader})
        assert log.status == "success"
        assert len(shares(runtime)) == 1
    assert (server.admitted, server.refused) == (400, 0)
    assert anyio.current_time() < 1.06 * (400 - 20) / (RPM / 60) + 3


async def test_while_a_grader_has_no_room_no_further_sample_starts() -> None:
    grader = FakeModel(name="grader", latency=10.0, max_connections=2)
    evaluated = FakeModel(name="evaluated", latency=0.1, adaptive=True)
    running = most = 0

    @solver
    def graded() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            nonlocal running, most
            running += 1
            most = max(most, running)
            state = await generate(state)
            await get_model(role="grader").generate(f"grade {state.input}")
            running -= 1
            if state.input_text == "task 60":
                most = running
            return state

        return solve

    [log] = await simulate(task(120, solver=graded()), evaluated.model(), model_roles={"grader": grader.model()})
    assert log.status == "success"
    assert grader.peak == 2
    assert most < 60


async def test_samples_inside_a_sample_are_let_through() -> None:
    """The outer ones call nothing before the inner ones end, and would shut the gate for ever."""
    fake = FakeModel(latency=0.1, adaptive=True)

    @solver
    def nested() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            [log] = await simulate(task(30, prefix=state.input_text), fake.model())
            assert log.status == "success"
            return state

        return solve

    [log] = await simulate(task(12, "outer", solver=nested()), fake.model())
    assert log.status == "success"
    assert fake.calls == 360


async def test_samples_that_call_no_model_run_by_the_processors() -> None:
    fake = FakeModel(latency=0.1, adaptive=True)
    running = most = 0

    @solver
    def silent() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await anyio.sleep(1)
            running -= 1
            return state

        return solve

    [log] = await simulate(task(100, solver=silent()), fake.model())
    assert log.status == "success"
    assert 4 <= most <= 4 * 64
    assert fake.calls == 0


@pytest.mark.parametrize("set_while_running", [None, 3])
async def test_the_number_can_be_changed_while_it_runs(set_while_running: int | None) -> None:
    fake = FakeModel(latency=1.0, adaptive=True, signal=Signal.QUOTA)
    async with open_runtime() as runtime, anyio.create_task_group() as group:

        async def evaluate() -> None:
            await simulate(task(300), fake.model())

        group.start_soon(evaluate)
        await anyio.sleep(8)
        assert fake.in_flight > 3
        runtime.set_limit("max_connections", set_while_running)
        await anyio.sleep(2)
        if set_while_running is not None:
            assert fake.in_flight == set_while_running
            runtime.set_limit("max_connections", None)
            await anyio.sleep(3)
            assert fake.in_flight > set_while_running


@pytest.mark.parametrize("bounds", [3, 30, "1-2-7"])
async def test_a_maximum_of_connections_is_used_to_the_full(bounds: int | str) -> None:
    """Slow start spreads what it sends; at the most that the user allows there is nothing to start for any more."""
    fake = FakeModel(latency=1.0, adaptive=True, signal=Signal.QUOTA)
    most = int(str(bounds).rpartition("-")[2])
    async with open_runtime(), anyio.create_task_group() as group:

        async def evaluate() -> None:
            await simulate(task(2000), fake.model(), adaptive_connections=bounds)

        group.start_soon(evaluate)
        await anyio.sleep(20)
        before = fake.calls
        await anyio.sleep(10)
        assert fake.calls - before >= 9 * most
        assert fake.peak == most
        group.cancel_scope.cancel()


async def test_the_log_has_the_changes_of_the_window() -> None:
    fake = FakeModel(latency=1.0, adaptive=True)
    [log] = await simulate(task(300), fake.model())
    history = log.stats.connection_limit_history
    assert history
    assert {change["model"] for change in history} == {"fake/model"}
    assert history[0]["reason"] == "slow_start"
    for before, after_it in pairwise(history):
        assert before["new_limit"] == after_it["old_limit"]
        assert before["timestamp"] <= after_it["timestamp"]


async def test_the_log_has_the_rates_and_pauses_in_a_member_of_its_own(tmp_path: Path) -> None:
    """Of every model that the task called, the grader too; Inspect reads the log as if there were none."""
    fake = FakeModel(provider=provider(Quota(dimension=Dimension.REQUESTS, per_minute=RPM, burst=0.5)), adaptive=True)
    shows = FakeModel(provider=provider(REQUESTS, headers=True), adaptive=True, name="shows")

    @solver
    def ask() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            await generate(state)
            await shows.model().generate("graded")
            return state

        return solve

    [done] = await eval_async(task(60, solver=ask()), fake.model(), log_dir=str(tmp_path), display="none")
    [path] = tmp_path.glob("*.eval")
    log = read_eval_log(str(path), header_only=True)
    assert log.pacing == done.pacing
    assert log.pacing
    seen = {(each["model"], each["kind"], each.get("dimension"), each["reason"]) for each in log.pacing}
    assert ("fake/shows", "rate", "requests", "headers") in seen
    assert ("fake/model", "rate", "requests", "learned from a 429") in seen
    assert any((model, kind) == ("fake/model", "pause") for model, kind, _, _ in seen)
    times = [each["timestamp"] for each in log.pacing if each["model"] == "fake/model"]
    assert times == sorted(times)
    rate = next(each for each in log.pacing if each["model"] == "fake/shows" and each["kind"] == "rate")
    assert rate["value"] == RPM
    inspect_log = pytest.importorskip("inspect_ai.log")
    read = await anyio.to_thread.run_sync(inspect_log.read_eval_log, str(path))
    assert read.status == "success"


async def test_a_display_sees_window_quota_and_what_is_tried_again() -> None:
    server = provider(REQUESTS, headers=True)
    fake = FakeModel(provider=server, adaptive=True)
    async with open_runtime() as runtime, anyio.create_task_group() as group:

        async def evaluate() -> None:
            await simulate(task(100, solver=generate()), fake.model())

        group.start_soon(evaluate)
        await anyio.sleep(3)
        [seen] = [each.statistics() for each in runtime.limiters() if each.name == "fake/model"]
        assert seen.limit == 4000
        assert 0 < seen.used < 20
        assert "requests 600/min" in seen.note
