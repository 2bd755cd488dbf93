"""Samples that fail, tasks that fail, runs that are stopped: what is kept, and what is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import Task, eval_async
from proctor.dataset import Sample
from proctor.errors import ModelGivenUp
from proctor.log import read_eval_log
from proctor.model import get_model
from proctor.scorer import Score, accuracy, includes, mean, scorer
from proctor.solver import TaskState, generate, solver


@solver
def failing(*ids: int):
    """Fails on samples with these ids."""

    async def solve(state: TaskState, generate: Any) -> TaskState:
        await anyio.sleep(0.1)
        if state.sample_id in ids:
            raise ValueError(f"sample {state.sample_id} is bad")
        return state

    return solve


def samples(count: int) -> list[Sample]:
    return [Sample("x", target="x") for _ in range(count)]


async def test_the_first_error_ends_the_task_and_every_started_sample_is_recorded(evaluate) -> None:
    started = []

    @solver
    def noting():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            started.append(state.sample_id)
            await anyio.sleep(0.1 * int(state.sample_id))
            if state.sample_id == 3:
                raise ValueError("three")
            return state

        return solve

    [log] = await evaluate(Task(samples(20), solver=noting()), "mock/m", max_samples=5)
    assert log.status == "error"
    assert log.error.message == "ValueError('three')"
    assert sorted(s.id for s in log.samples) == sorted(started)
    ended = {s.id: s.error for s in log.samples}
    assert ended[1] is None
    assert ended[3].message == "ValueError('three')"
    assert "raise ValueError" in ended[3].traceback
    assert "samplerun.py" not in ended[3].traceback
    assert ended[5].message.startswith("CancelledError(")
    assert log.results is None


@pytest.mark.parametrize(
    ("rule", "failures", "status"),
    [
        (True, 1, "error"), (None, 1, "error"), (False, 9, "success"), (0, 9, "success"),
        (0.2, 2, "success"), (0.2, 3, "error"), (3, 2, "success"), (3, 3, "error"),
    ],
)  # fmt: skip
async def test_fail_on_error_in_all_its_forms(evaluate, rule: Any, failures: int, status: str) -> None:
    task = Task(samples(10), solver=failing(*range(1, failures + 1)))
    [log] = await evaluate(task, "mock/m", fail_on_error=rule)
    assert log.status == status


async def test_a_share_of_errors_is_of_samples_times_epochs(evaluate) -> None:
    task = Task(samples(5), solver=failing(1))
    [log] = await evaluate(task, "mock/m", fail_on_error=0.3, epochs=2)
    assert log.status == "success"
    assert len(log.samples) == 10


async def test_continue_on_fail_runs_everything_and_judges_at_the_end(evaluate) -> None:
    [log] = await evaluate(Task(samples(6), solver=failing(1)), "mock/m", continue_on_fail=True, max_samples=1)
    assert log.status == "error"
    assert len(log.samples) == 6
    assert sum(1 for s in log.samples if s.error) == 1


async def test_a_failed_sample_is_run_again_and_its_errors_are_kept(evaluate) -> None:
    tries: dict[Any, int] = {}

    @solver
    def flaky():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            assert state.messages[-1].role == "user"  # from the start again
            state = await generate(state)
            tries[state.sample_id] = tries.get(state.sample_id, 0) + 1
            if tries[state.sample_id] < 3:
                raise RuntimeError(f"try {tries[state.sample_id]}")
            return state

        return solve

    [log] = await evaluate(Task(samples(2), solver=flaky()), "mock/m", retry_on_error=2)
    assert log.status == "success"
    assert [e.message for e in log.samples[0].error_retries] == ["RuntimeError('try 1')", "RuntimeError('try 2')"]
    [log] = await evaluate(Task(samples(1), solver=failing(1)), "mock/m", retry_on_error=2)
    assert log.status == "error"
    assert len(log.samples[0].error_retries) == 2


async def test_score_on_error_scores_what_there_is(evaluate) -> None:
    task = Task(samples(2), solver=[generate(), failing(1)], scorer=includes())
    [log] = await evaluate(task, "mock/m", fail_on_error=False, score_on_error=True)
    assert [bool(s.scores) for s in log.samples] == [True, True]
    [log] = await evaluate(task, "mock/m", fail_on_error=False)
    assert [bool(s.scores) for s in log.samples] == [False, True]


async def test_a_failing_scorer_is_an_error_of_the_sample_not_a_number(evaluate) -> None:
    @scorer(metrics=[accuracy()])
    def broken():
        async def score(state: TaskState, target: Any) -> Score:
            raise KeyError("rubric")

        return score

    [log] = await evaluate(Task(samples(2), scorer=broken()), "mock/m")
    assert log.status == "error"
    assert "KeyError" in log.error.message
    assert log.results is None


async def test_a_failing_metric_fails_its_task_and_keeps_the_samples(evaluate) -> None:
    from proctor.scorer import metric

    @metric
    def crooked():
        def compute(scores: Any) -> float:
            raise ZeroDivisionError("no scores")

        return compute

    [log] = await evaluate(Task(samples(2), scorer=includes(), metrics=[crooked()]), "mock/m")
    assert log.status == "error"
    assert "ZeroDivisionError" in log.error.message
    assert len(log.samples) == 2


async def test_a_solver_that_returns_nothing_is_told_so(evaluate) -> None:
    @solver
    def forgetful():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            await generate(state)

        return solve

    [log] = await evaluate(Task(samples(1), solver=forgetful()), "mock/m")
    assert "return state" in log.error.message


async def test_a_scorer_that_returns_something_else_is_told_so(evaluate) -> None:
    @scorer(metrics=[mean()])
    def odd():
        async def score(state: TaskState, target: Any) -> Any:
            return 1.0

        return score

    [log] = await evaluate(Task(samples(1), scorer=odd()), "mock/m")
    assert "must return a Score" in log.error.message


async def test_one_failing_task_leaves_the_others_alone(evaluate) -> None:
    tasks = [Task(samples(3), solver=failing(1), name="bad"), Task(samples(3), name="good")]
    logs = await evaluate(tasks, "mock/m", max_tasks=2)
    assert [(log.eval.task, log.status) for log in logs] == [("bad", "error"), ("good", "success")]


async def test_a_given_up_model_ends_its_tasks_and_no_others(evaluate) -> None:
    calls = []

    def refuse(*_: Any) -> Any:
        calls.append(1)
        return ModelGivenUp("key refused", status=401)

    bad = get_model("mock/bad", custom_outputs=refuse)
    logs = await evaluate([Task(samples(5), name="a"), Task(samples(5), name="b")], [bad, get_model("mock/good")])
    assert [log.status for log in logs] == ["error", "error", "success", "success"]
    assert all("key refused" in log.error.message for log in logs[:2])


async def test_a_time_limit_ends_a_sample_in_order_and_it_is_scored(evaluate) -> None:
    model = get_model("mock/m", custom_outputs="x", latency=1.0)

    @solver
    def slow():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            state = await generate(state)
            await anyio.sleep(100)
            return state

        return solve

    [log] = await evaluate(Task(samples(1), solver=slow(), scorer=includes()), model, time_limit=5)
    [sample] = log.samples
    assert log.status == "success"
    assert sample.error is None
    assert sample.limit.type == "time"
    assert sample.total_time == pytest.approx(5)
    assert sample.scores["includes"].value == "C"


async def test_a_working_limit_does_not_count_waiting(evaluate) -> None:
    """Two samples on one connection: the second waits ten seconds, which are no work."""
    model = get_model("mock/m", custom_outputs="x", latency=10.0)
    [log] = await evaluate(
        Task(samples(2), scorer=includes()), model, working_limit=12, max_connections=1, max_samples=2
    )
    assert [s.limit for s in log.samples] == [None, None]
    assert sorted(round(s.total_time) for s in log.samples) == [10, 20]
    assert [round(s.working_time) for s in log.samples] == [10, 10]
    [log] = await evaluate(
        Task(samples(1), scorer=includes()), model, working_limit=4, max_connections=1, max_samples=2
    )
    assert log.samples[0].limit.type == "working"


async def test_message_and_token_limits_end_a_sample_in_order(evaluate) -> None:
    @solver
    def chatty():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            for _ in range(10):
                state = await generate(state)
            return state

        return solve

    [log] = await evaluate(Task(samples(1), solver=chatty(), scorer=includes()), "mock/m", message_limit=4)
    assert log.samples[0].limit.type == "message"
    assert len(log.samples[0].messages) == 4
    [log] = await evaluate(Task(samples(1), solver=chatty(), scorer=includes()), "mock/m", token_limit=20)
    assert log.samples[0].limit.type == "token"
    assert any(event.event == "sample_limit" for event in log.samples[0].events)


@pytest.mark.parametrize("after", [0.05, 1.5, 3.0])
async def test_cancelled_by_the_program_that_embeds_it(tmp_path: Path, after: float) -> None:
    started = []

    @solver
    def slow():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            started.append(state.sample_id)
            await anyio.sleep(1)
            return state

        return solve

    with anyio.move_on_after(after) as scope:
        await eval_async(
            Task(samples(30), solver=slow(), scorer=includes()),
            "mock/m",
            max_samples=4,
            display="none",
            log_dir=str(tmp_path),
        )
    assert scope.cancelled_caught
    assert anyio.current_time() <= after + 5
    [file] = tmp_path.glob("*.eval")
    log = read_eval_log(str(file))
    assert log.status == "cancelled"
    assert sorted(s.id for s in log.samples) == sorted(started)
    cancelled = [s for s in log.samples if s.error]
    assert cancelled
    assert all(s.error.message.startswith("CancelledError(") for s in cancelled)


async def test_a_cancelled_sample_is_not_run_again(tmp_path: Path) -> None:
    started = []

    @solver
    def slow():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            started.append(state.sample_id)
            await anyio.sleep(10)
            return state

        return solve

    with anyio.move_on_after(1):
        await eval_async(
            Task(samples(2), solver=slow()), "mock/m", retry_on_error=3, display="none", log_dir=str(tmp_path)
        )
    assert sorted(started) == [1, 2]


async def test_the_cleanup_of_a_task_runs_whatever_ended_the_sample(tmp_path: Path) -> None:
    cleaned = []

    async def cleanup(state: TaskState) -> None:
        await anyio.sleep(0.5)
        cleaned.append(state.sample_id)

    [log] = await eval_async(
        Task(samples(2), solver=failing(1), cleanup=cleanup),
        "mock/m",
        fail_on_error=False,
        display="none",
        log_dir=str(tmp_path / "a"),
    )
    assert log.status == "success"
    assert sorted(cleaned) == [1, 2]
    cleaned.clear()
    with anyio.move_on_after(0.05):
        await eval_async(
            Task(samples(2), solver=failing(), cleanup=cleanup),
            "mock/m",
            display="none",
            log_dir=str(tmp_path / "b"),
        )
    assert sorted(cleaned) == [1, 2]


async def test_a_cleanup_that_never_ends_is_cut_and_told(evaluate) -> None:
    async def cleanup(state: TaskState) -> None:
        await anyio.sleep_forever()

    [log] = await evaluate(Task(samples(1), cleanup=cleanup), "mock/m")
    assert "cleanup did not end within 30 s" in log.samples[0].error.message


async def test_an_exception_group_of_one_is_told_as_its_leaf(evaluate) -> None:
    @solver
    def grouped():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            async with anyio.create_task_group() as nursery:
                nursery.start_soon(anyio.sleep, 1)
                raise LookupError("inner")
            return state

        return solve

    [log] = await evaluate(Task(samples(1), solver=grouped()), "mock/m")
    assert log.error.message == "LookupError('inner')"


async def test_a_log_folder_that_cannot_be_made_is_told_before_anything_runs(tmp_path: Path) -> None:
    from proctor.errors import LogError

    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match="log_dir"):
        await eval_async(Task(samples(1)), "mock/m", display="none", log_dir=str(tmp_path / "file" / "logs"))
