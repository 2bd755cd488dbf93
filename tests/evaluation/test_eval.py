"""What `eval_async` returns and writes, seen by somebody who calls it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import Epochs, Task, eval_async, open_runtime, task
from proctor.dataset import MemoryDataset, Sample
from proctor.errors import DatasetError, NotFoundError, OptionError, UsageError
from proctor.log import list_eval_logs, read_eval_log
from proctor.model import get_model
from proctor.scorer import Score, accuracy, includes, match, mean, scorer, stderr
from proctor.solver import TaskState, generate, solver, system_message


def arithmetic(count: int = 4, **options: Any) -> Task:
    samples = [Sample(input=f"What is {n} + 1?", target=str(n + 1)) for n in range(count)]
    return Task(dataset=MemoryDataset(samples, name="sums"), name="sums", scorer=match(numeric=True), **options)


def answering(wrong: tuple[int, ...] = (), **options: Any) -> Any:
    """A model that adds, but for some numbers."""

    def answer(input: list[Any], *_: Any) -> str:
        number = int(input[-1].text.split()[2])
        return f"It is {number + (2 if number in wrong else 1)}"

    return get_model("mock/adder", custom_outputs=answer, **options)


async def test_results_are_computed_from_every_sample(evaluate) -> None:
    [log] = await evaluate(arithmetic(), answering(wrong=(2,)))
    assert log.status == "success"
    assert log.eval.task == "sums"
    assert log.eval.model == "mock/adder"
    assert log.results.total_samples == log.results.completed_samples == 4
    [score] = log.results.scores
    assert score.name == "match"
    assert score.metrics["accuracy"].value == 0.75
    assert [s.id for s in log.samples] == [1, 2, 3, 4]
    assert [s.scores["match"].value for s in log.samples] == ["C", "C", "I", "C"]


async def test_a_sample_holds_its_conversation_events_usage_and_times(evaluate) -> None:
    model = get_model("mock/slow", custom_outputs="4", latency=2.0)
    [log] = await evaluate(
        Task([Sample("2 + 2?", target="4")], solver=[system_message("Add."), generate()], scorer=includes()), model
    )
    [sample] = log.samples
    assert [m.role for m in sample.messages] == ["system", "user", "assistant"]
    assert sample.output.completion == "4"
    kinds = [event.event for event in sample.events]
    assert kinds[:3] == ["span_begin", "sample_init", "span_end"]
    assert {"model", "score"} <= set(kinds)
    assert kinds.count("span_begin") == kinds.count("span_end")
    names = [event.name for event in sample.events if event.event == "span_begin"]
    assert names == ["init", "solvers", "system_message", "generate", "scorers", "includes"]
    assert sample.model_usage["mock/slow"].total_tokens > 0
    assert log.stats.model_usage == sample.model_usage
    assert sample.total_time == pytest.approx(2.0)
    assert sample.working_time == pytest.approx(2.0)
    assert sample.uuid
    assert sample.started_at <= sample.completed_at


async def test_every_model_runs_every_task_in_plan_order(evaluate) -> None:
    logs = await evaluate([arithmetic(2), arithmetic(3)], [get_model("mock/a"), get_model("mock/b")], max_connections=5)
    assert [(log.eval.model, log.eval.dataset.samples) for log in logs] == [
        ("mock/a", 2), ("mock/a", 3), ("mock/b", 2), ("mock/b", 3),
    ]  # fmt: skip
    assert len({log.eval.run_id for log in logs}) == 1
    assert len({log.eval.task_id for log in logs}) == 4


async def test_results_do_not_depend_on_the_order_of_completion(evaluate) -> None:
    """Later samples end first; a metric that depends on order sees dataset order all the same."""
    seen: list[list[Any]] = []

    @scorer(metrics=[mean()])
    def when():
        async def score(state: TaskState, target: Any) -> Score:
            return Score(value=int(target.text))

        return score

    @solver
    def backwards():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            await anyio.sleep(10 - int(state.target.text))
            return state

        return solve

    samples = [Sample("x", target=str(n)) for n in range(5)]
    [log] = await evaluate(Task(samples, solver=backwards(), scorer=when()), "mock/m", max_samples=5)
    [reduction] = log.reductions
    seen.append([score.value for score in reduction.samples])
    assert seen == [[0, 1, 2, 3, 4]]


async def test_epochs_are_reduced(evaluate) -> None:
    answers = iter(["1", "2", "2"])
    model = get_model("mock/m", custom_outputs=lambda *_: next(answers))
    task = Task([Sample("?", target="2")], scorer=includes())
    [log] = await evaluate(task, model, epochs=Epochs(3, ["mean", "max", "at_least_2"]), max_samples=1)
    by_reducer = {score.reducer: score.metrics["accuracy"].value for score in log.results.scores}
    assert by_reducer == {"mean": pytest.approx(2 / 3), "max": 1, "at_least_2": 1}
    assert sorted(s.epoch for s in log.samples) == [1, 2, 3]


async def test_limit_and_sample_id_choose_samples_that_keep_their_ids(evaluate) -> None:
    [log] = await evaluate(arithmetic(6), answering(), limit=(2, 4))
    assert [s.id for s in log.samples] == [3, 4]
    [log] = await evaluate(arithmetic(6), answering(), sample_id=[2, "5"])
    assert [s.id for s in log.samples] == [2, 5]
    assert log.eval.dataset.sample_ids == [2, 5]


async def test_a_shuffle_is_repeated_by_its_seed(evaluate) -> None:
    orders = []
    for _ in range(2):
        [log] = await evaluate(arithmetic(8), answering(), sample_shuffle=7)
        orders.append(log.eval.dataset.sample_ids)
    assert orders[0] == orders[1] != sorted(orders[0])
    assert sorted(orders[0]) == [1, 2, 3, 4, 5, 6, 7, 8]


async def test_no_more_samples_at_once_than_asked_for(evaluate) -> None:
    running = peak = 0

    @solver
    def counting():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            await anyio.sleep(1)
            running -= 1
            return state

        return solve

    await evaluate(Task([Sample("x") for _ in range(20)], solver=counting()), "mock/m", max_samples=3)
    assert peak == 3


async def test_connections_are_held_to_their_limit_and_used_to_it(evaluate) -> None:
    running = peak = 0

    async def answer(*_: Any) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await anyio.sleep(1)
        running -= 1
        return "ok"

    model = get_model("mock/counted", custom_outputs=answer)
    await evaluate(Task([Sample("x") for _ in range(30)]), model, max_connections=7)
    assert peak == 7


async def test_no_more_tasks_at_once_than_asked_for(evaluate) -> None:
    live: set[str] = set()
    peak = 0

    @solver
    def noting(name: str):
        async def solve(state: TaskState, generate: Any) -> TaskState:
            nonlocal peak
            live.add(name)
            peak = max(peak, len(live))
            await anyio.sleep(1)
            live.discard(name)
            return state

        return solve

    tasks = [Task([Sample("x")], solver=noting(str(n)), name=f"t{n}") for n in range(6)]
    logs = await evaluate(tasks, "mock/m", max_tasks=2)
    assert peak == 2
    assert [log.status for log in logs] == ["success"] * 6


async def test_the_next_task_is_one_of_the_least_busy_model(evaluate) -> None:
    started: list[str] = []

    @solver
    def noting():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            started.append(str(state.model))
            await anyio.sleep(5 if str(state.model) == "mock/a" else 1)
            return state

        return solve

    tasks = [Task([Sample("x")], solver=noting(), name=f"t{n}") for n in range(3)]
    await evaluate(tasks, ["mock/a", "mock/b"], max_tasks=2)
    assert set(started[:2]) == {"mock/a", "mock/b"}
    assert started[2:] == ["mock/b", "mock/b", "mock/a", "mock/a"]


async def test_reusing_a_task_carries_nothing_over(evaluate) -> None:
    task = arithmetic(3)
    [first] = await evaluate(task, answering(), epochs=2, limit=1, temperature=0.5)
    [second] = await evaluate(task, answering())
    assert len(first.samples) == 2
    assert len(second.samples) == 3
    assert second.eval.model_generate_config.temperature is None
    assert second.eval.config.epochs == 1


async def test_configuration_is_merged_from_model_task_and_call(evaluate) -> None:
    from proctor.model import GenerateConfig

    model = get_model("mock/m", config=GenerateConfig(temperature=0.1, max_tokens=10, seed=1))
    [log] = await evaluate(
        Task([Sample("x")], config=GenerateConfig(temperature=0.2, max_tokens=20)), model, temperature=0.3
    )
    used = log.samples[0].events[-3].config if log.samples[0].events[-3].event == "model" else None
    used = used or next(event.config for event in log.samples[0].events if event.event == "model")
    assert (used.temperature, used.max_tokens, used.seed) == (0.3, 20, 1)
    assert log.eval.model_generate_config.temperature == 0.3


async def test_a_task_without_scorer_has_no_scores(evaluate) -> None:
    [log] = await evaluate(Task([Sample("x")]), "mock/m")
    assert log.status == "success"
    assert log.results.scores == []
    assert log.samples[0].scores is None


async def test_score_false_scores_nothing(evaluate) -> None:
    [log] = await evaluate(arithmetic(2), answering(), score=False)
    assert log.samples[0].scores is None


async def test_two_scorers_of_one_name_are_told_apart(evaluate) -> None:
    task = Task([Sample("x", target="Default")], scorer=[includes(), includes(ignore_case=False)])
    [log] = await evaluate(task, "mock/m")
    assert [score.name for score in log.results.scores] == ["includes", "includes1"]


async def test_task_arguments_reach_the_function_and_the_log(evaluate, tmp_path: Path) -> None:
    file = tmp_path / "tasks.py"
    file.write_text(
        "from proctor import Task, task\nfrom proctor.dataset import Sample\n"
        "@task\ndef many(count: int = 2, word='x'):\n    return Task([Sample(word)] * 0 + "
        "[Sample(word) for _ in range(count)])\n"
    )
    [log] = await evaluate(str(file), "mock/m", task_args={"count": 3})
    assert log.eval.task == "many"
    assert log.eval.task_args == {"count": 3, "word": "x"}
    assert log.eval.task_args_passed == {"count": 3}
    assert len(log.samples) == 3


async def test_two_evaluations_in_one_runtime_share_a_models_limit(tmp_path: Path) -> None:
    running = peak = 0

    async def answer(*_: Any) -> str:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await anyio.sleep(1)
        running -= 1
        return "ok"

    async def one(model: Any) -> None:
        task = Task([Sample("x") for _ in range(20)])
        await eval_async(task, model, max_connections=6, display="none", log_dir=str(tmp_path))

    async with open_runtime():
        model = get_model("mock/shared", custom_outputs=answer)
        async with anyio.create_task_group() as nursery:
            nursery.start_soon(one, model)
            nursery.start_soon(one, model)
    assert peak == 6
    assert len(list_eval_logs(str(tmp_path))) == 2


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"epochs": 0}, OptionError, "epochs must be at least 1"),
        ({"max_samples": 0}, OptionError, "max_samples must be at least 1"),
        ({"max_tasks": -1}, OptionError, "max_tasks"),
        ({"max_tasks": 1.5}, OptionError, "whole number"),
        ({"max_connections": 0}, OptionError, "max_connections"),
        ({"retry_on_error": -1}, OptionError, "retry_on_error"),
        ({"fail_on_error": -0.5}, OptionError, "fail_on_error"),
        ({"limit": (5, 2)}, OptionError, "start below stop"),
        ({"limit": 0}, OptionError, "limit"),
        ({"limit": (100, 200)}, UsageError, "begins after the last"),
        ({"sample_id": "nobody"}, UsageError, "nobody"),
        ({"time_limit": 0}, OptionError, "time_limit"),
        ({"temprature": 1}, OptionError, "temperature"),
        ({"display": "neon"}, NotFoundError, "neon"),
        ({"epochs": Epochs(2), "limit": "3"}, OptionError, "limit"),
    ],
)
async def test_an_option_out_of_range_is_refused_before_anything_runs(
    evaluate, tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    calls = []
    model = get_model("mock/m", custom_outputs=lambda *_: calls.append(1) or "x")
    with pytest.raises(error, match=words):
        await evaluate(arithmetic(2), model, **options)
    assert calls == []
    assert list(tmp_path.glob("logs/*.eval")) == []


async def test_samples_with_one_id_are_refused(evaluate, tmp_path: Path) -> None:
    task = Task([Sample("a", id=1), Sample("b", id="1")])
    with pytest.raises(DatasetError, match="same id"):
        await evaluate(task, "mock/m")
    assert list(tmp_path.glob("logs/*.eval")) == []


async def test_an_empty_dataset_is_refused(evaluate) -> None:
    with pytest.raises(DatasetError, match="no samples"):
        await evaluate(Task([]), "mock/m")


async def test_no_model_is_told_with_what_to_do(evaluate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROCTOR_EVAL_MODEL", raising=False)
    monkeypatch.delenv("INSPECT_EVAL_MODEL", raising=False)
    with pytest.raises(UsageError, match="PROCTOR_EVAL_MODEL"):
        await evaluate(arithmetic())


@pytest.mark.parametrize("variable", ["PROCTOR_EVAL_MODEL", "INSPECT_EVAL_MODEL"])
async def test_models_come_from_the_environment(evaluate, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.delenv("PROCTOR_EVAL_MODEL", raising=False)
    monkeypatch.setenv(variable, "mock/a, mock/b")
    logs = await evaluate(arithmetic(1))
    assert [log.eval.model for log in logs] == ["mock/a", "mock/b"]


async def test_the_same_model_twice_is_refused(evaluate) -> None:
    with pytest.raises(UsageError, match="named twice"):
        await evaluate(arithmetic(1), "mock/a,mock/a")


def test_a_task_object_is_made_by_its_function_each_time() -> None:
    kept = Task([Sample("x")])

    @task
    def shared(word: str = "a") -> Task:
        return kept

    first, second = shared(), shared(word="b")
    assert first.name == "shared"
    assert (first.info.params, second.info.params) == ({"word": "a"}, {"word": "b"})
    assert kept.info is None


def test_metrics_of_nothing_are_not_numbers() -> None:
    from proctor.scorer.results import compute_metrics

    assert math.isnan(compute_metrics([], [accuracy(), stderr()])["accuracy"])


async def test_a_log_is_valid_before_and_after(tmp_path: Path) -> None:
    """While samples run the file can be read, with status "started"; afterwards it says how it ended."""
    seen: list[str] = []

    @solver
    def peeking():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            [file] = tmp_path.glob("*.eval")
            seen.append(read_eval_log(str(file), header_only=True).status)
            return state

        return solve

    [log] = await eval_async(Task([Sample("x")], solver=peeking()), "mock/m", display="none", log_dir=str(tmp_path))
    assert seen == ["started"]
    assert log.status == read_eval_log(log.location).status == "success"


async def test_the_logs_that_are_returned_have_their_samples(tmp_path: Path) -> None:
    [log] = await eval_async(arithmetic(), answering(), display="none", log_dir=str(tmp_path))
    assert "It is" not in repr(log)  # nothing is read before somebody looks
    assert [s.id for s in log.samples] == [1, 2, 3, 4]
    assert log.samples[0].output.completion == "It is 1"
    assert len(log.samples) == 4
    assert [s.epoch for s in log.samples[:2]] == [1, 1]


def test_user_code_with_asyncios_own_gather_works_on_asyncio(tmp_path: Path, backend: str) -> None:
    """And `proctor.util.collect` does the same on both."""
    import asyncio

    from proctor.testing import run_virtual
    from proctor.util import collect

    together = collect if backend == "trio" else asyncio.gather
    model = get_model("mock/m", custom_outputs=lambda *_: "x", latency=1.0)

    @solver
    def twice():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            outputs = await together(model.generate("a"), model.generate("b"))
            state.metadata["answers"] = [output.completion for output in outputs]
            return state

        return solve

    async def run() -> Any:
        task = Task([Sample("?")], solver=twice())
        [log] = await eval_async(task, model, display="none", log_dir=str(tmp_path), max_connections=2)
        return log.samples[0]

    sample = run_virtual(backend, run)
    assert sample.metadata["answers"] == ["x", "x"]
    assert sample.total_time == pytest.approx(1.0)
