"""Budgets of a whole run: nothing new starts, what runs is finished and scored, and the log says why."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from attrs import evolve

from proctor import Task, eval_async
from proctor.dataset import Sample
from proctor.evaluation.call import EvalCall
from proctor.model import ModelOutput, ModelUsage, get_model
from proctor.scorer import includes
from proctor.solver import TaskState, solver
from proctor.testing import settle

USAGE = ModelUsage(input_tokens=60, output_tokens=40, total_tokens=100)
PRICES = {"mock/m": {"input": 0, "output": 25_000}}
"""A dollar a call."""


def answers(latency: float = 1.0) -> Any:
    async def answer(*_: Any) -> ModelOutput:
        await anyio.sleep(latency)
        return evolve(ModelOutput.from_content("m", "x"), usage=evolve(USAGE))

    return get_model("mock/m", custom_outputs=answer)


@solver
def turns(count: int):
    async def solve(state: TaskState, generate: Any) -> TaskState:
        for _ in range(count):
            state = await generate(state)
        return state

    return solve


def task(count: int, name: str = "t", calls: int = 1) -> Task:
    return Task([Sample("q", target="x") for _ in range(count)], solver=turns(calls), scorer=includes(), name=name)


@pytest.mark.parametrize(
    ("budget", "reason"),
    [
        ({"max_total_tokens": 400}, "the budget of 400 tokens (max_total_tokens) is used up"),
        ({"max_total_cost": 4.0, "model_cost_config": PRICES}, "the budget of $4.00 (max_total_cost) is used up"),
        ({"max_run_time": 1.5}, "the budget of 1.5 s (max_run_time) is used up"),
    ],
)
async def test_a_budget_ends_the_run_in_order(evaluate, budget: dict[str, Any], reason: str) -> None:
    [log] = await evaluate(task(20), answers(), max_samples=2, max_connections=2, **budget)
    assert log.status == "cancelled"
    assert log.error.message.startswith(reason)
    assert "no further sample was started" in log.error.message
    assert len(log.samples) == 4
    assert all(s.error is None and s.scores["includes"].value == "C" for s in log.samples)
    assert (log.results.total_samples, log.results.completed_samples) == (20, 4)
    assert log.results.scores[0].metrics["accuracy"].value == 1.0


async def test_what_runs_when_the_budget_is_used_up_is_finished(evaluate) -> None:
    """The tokens of samples that still run count as they come in: both are in their second of five calls then."""
    [log] = await evaluate(task(9, calls=5), answers(), max_samples=2, max_connections=2, max_total_tokens=300)
    assert [s.turn_count for s in log.samples] == [5, 5]
    assert log.status == "cancelled"
    assert log.stats.model_usage["mock/m"].total_tokens == 1000


async def test_a_budget_is_over_all_tasks_of_the_call(evaluate) -> None:
    tasks = [task(3, "a"), task(3, "b"), task(3, "c")]
    logs = await evaluate(tasks, answers(), max_samples=1, max_connections=2, max_total_tokens=400)
    assert [log.status for log in logs] == ["success", "cancelled", "cancelled"]
    assert len(logs[1].samples) == 1
    assert logs[2].samples is None
    assert all("max_total_tokens" in log.error.message for log in logs[1:])
    both = await evaluate(tasks[:2], answers(), max_tasks=2, max_samples=1, max_connections=2, max_total_tokens=400)
    assert [len(log.samples) for log in both] == [2, 2]


async def test_a_budget_that_is_used_up_by_the_last_samples_leaves_nothing_out(evaluate) -> None:
    [log] = await evaluate(task(4), answers(), max_samples=2, max_connections=2, max_total_tokens=400)
    assert (log.status, log.error) == ("success", None)


async def test_a_run_within_its_budgets_is_not_touched(evaluate) -> None:
    budget: dict[str, Any] = {"max_total_tokens": 2001, "max_total_cost": 20.01, "max_run_time": 60}
    [log] = await evaluate(task(20), answers(), model_cost_config=PRICES, **budget)
    assert log.status == "success"
    assert anyio.current_time() < 10  # nobody waits for the end of max_run_time


async def test_a_sample_that_waits_for_its_slot_is_withdrawn(evaluate) -> None:
    started = []

    @solver
    def noting():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            started.append(state.sample_id)
            await anyio.sleep(10)
            return state

        return solve

    [log] = await evaluate(Task([Sample("q")] * 1, solver=noting(), name="first"), answers(), max_run_time=5)
    assert log.status == "success"
    samples = [Sample(f"{n}") for n in range(9)]
    [log] = await evaluate(Task(samples, solver=noting()), answers(), max_samples=3, max_run_time=5)
    assert len(log.samples) == 3
    assert len(started) == 4


async def test_a_failed_sample_is_still_an_error_of_its_task(evaluate) -> None:
    @solver
    def failing():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            await anyio.sleep(10)
            raise ValueError("late")

        return solve

    [log] = await evaluate(Task([Sample("q") for _ in range(9)], solver=failing()), answers(), max_run_time=5)
    assert log.status == "error"
    assert log.error.message == "ValueError('late')"


async def test_a_run_can_be_drained_by_hand(tmp_path) -> None:
    tasks, folder = [task(9, "a"), task(9, "b")], str(tmp_path)
    call = EvalCall.of({"tasks": tasks, "model": answers(3.0), "max_samples": 2, "display": "none", "log_dir": folder})
    async with call.opened() as actor, anyio.create_task_group() as group:
        logs: list[Any] = []

        async def run() -> None:
            logs.extend(await actor.run())

        group.start_soon(run)
        await anyio.sleep(1)
        actor.drain("maintenance at noon")
        actor.drain("another reason comes too late")
        await settle()
        assert actor.view.note == "maintenance at noon"
    assert anyio.current_time() == pytest.approx(3, abs=0.5)
    assert [log.status for log in logs] == ["cancelled", "cancelled"]
    assert {log.error.message for log in logs} == {"maintenance at noon"}
    assert [(view.done, view.error) for view in actor.view.tasks] == [
        (2, "maintenance at noon"),
        (0, "maintenance at noon"),
    ]


async def test_nothing_is_started_when_it_was_drained_before(tmp_path) -> None:
    call = EvalCall.of({"tasks": task(3), "model": answers(), "display": "none", "log_dir": str(tmp_path)})
    async with call.opened() as actor:
        actor.drain("too late")
        [log] = await actor.run()
    assert (log.status, log.error.message, log.samples) == ("cancelled", "too late", None)


async def test_budgets_from_the_environment(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PROCTOR_EVAL_MAX_TOTAL_TOKENS", "0.3k")
    monkeypatch.setenv("INSPECT_EVAL_MAX_RUN_TIME", "600")
    options: dict[str, Any] = {"max_samples": 1, "display": "none", "log_dir": str(tmp_path)}
    [log] = await eval_async(task(9), answers(), **options)
    assert (log.status, log.results.completed_samples) == ("cancelled", 3)
    [log] = await eval_async(task(9), answers(), max_total_tokens=500, **options)
    assert log.results.completed_samples == 5
