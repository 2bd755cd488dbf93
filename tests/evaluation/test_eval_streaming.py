"""Datasets that are read while their samples run: from files under a memory budget, and from iterables."""

from __future__ import annotations

import itertools
import json
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from proctor import Epochs, Task, eval_async
from proctor.dataset import Sample, json_dataset, streamed
from proctor.errors import DatasetError, OptionError, UsageError
from proctor.evaluation import feed
from proctor.evaluation.call import EvalCall
from proctor.evaluation.view import RunView
from proctor.log import read_eval_log
from proctor.model import get_model
from proctor.scorer import includes
from proctor.solver import TaskState, solver

pytestmark = pytest.mark.usefixtures("nothing_is_small")


@pytest.fixture
def nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streamed, "SMALL", 0)


@pytest.fixture
def bytes_for_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of so many bytes instead of MB, so that few rows pass it."""
    monkeypatch.setattr(feed, "MB", 1)


def lines(path: Path, count: int, **more: Any) -> str:
    rows = [json.dumps({"input": f"question {n}", "target": str(n), **more}) for n in range(count)]
    path.write_text("\n".join(rows))
    return str(path)


def ids(log: Any) -> list[Any]:
    return [(sample.id, sample.epoch) for sample in log.samples]


@solver
def calling(function: Any):
    async def solve(state: TaskState, generate: Any) -> TaskState:
        function(state)
        return state

    return solve


async def test_the_first_sample_starts_before_the_file_is_read_to_its_end(evaluate, tmp_path: Path) -> None:
    path = lines(tmp_path / "d.jsonl", 5_000)
    started = threading.Event()
    waited = []

    def row(record: dict[str, Any]) -> Sample:
        if record["target"] == "3000":
            waited.append(started.wait(30))
        return Sample(**record)

    task = Task(json_dataset(path, row), solver=calling(lambda _: started.set()))
    [log] = await evaluate(task, "mock/m", max_dataset_memory=1, limit=4_000)
    assert waited == [True]
    assert log.status == "success"
    assert log.eval.dataset.samples == len(log.samples) == 4_000


async def test_without_a_budget_a_file_is_read_before_anything_runs(evaluate, tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    lines(path, 300)
    path.write_text(path.read_text() + '\n{"input": 5}')
    calls: list[Any] = []
    with pytest.raises(DatasetError, match="row 301"):
        await evaluate(Task(json_dataset(str(path)), solver=calling(calls.append)), "mock/m")
    assert calls == []
    assert not list(tmp_path.glob("logs/*.eval"))


@pytest.mark.parametrize("last", ['{"input": 5}', '{"input": "x", "id": 7}'], ids=["bad row", "same id"])
async def test_a_mistake_found_late_ends_the_task_and_keeps_its_records(evaluate, tmp_path: Path, last: str) -> None:
    path = tmp_path / "d.jsonl"
    lines(path, 300)
    path.write_text(path.read_text() + "\n" + last)
    started = threading.Event()

    def row(record: dict[str, Any]) -> Sample:
        if len(record) == 1 or "id" in record:
            started.wait(30)
        return Sample(**record)

    def solving(state: TaskState) -> None:
        if state.sample_id == 3:
            started.set()

    task = Task(json_dataset(str(path), row), solver=calling(solving), scorer=includes())
    [log] = await evaluate(task, "mock/m", max_dataset_memory=1, max_samples=1)
    assert log.status == "error"
    assert ("same id 7" if "id" in last else "row 301") in log.error.message
    assert log.results is None
    assert len(log.samples) >= 2
    assert len({sample.id for sample in log.samples}) == len(log.samples)
    assert log.eval.dataset.samples is None


async def test_how_many_samples_there_are_is_unknown_until_the_end_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int | None, int | None]] = []
    views: list[RunView] = []

    async def display(view: RunView) -> None:
        views.append(view)
        await anyio.sleep_forever()

    def solving(state: TaskState) -> None:
        seen.append((views[0].tasks[0].total, views[0].tasks[0].waiting))

    monkeypatch.setattr(EvalCall, "display", lambda _: display)
    task = Task((Sample(f"q{n}") for n in range(5)), solver=calling(solving))
    [log] = await eval_async(task, "mock/m", max_samples=1, log_dir=str(tmp_path))
    assert seen[:4] == [(None, None)] * 4
    assert views[0].tasks[0].total == 5
    assert log.results is not None
    assert log.results.total_samples == 5


async def test_the_log_says_at_its_start_what_is_known_and_at_its_end_all(evaluate, tmp_path: Path) -> None:
    started: list[Any] = []

    def solving(state: TaskState) -> None:
        if not started:
            [file] = tmp_path.glob("logs/*.eval")
            started.append(read_eval_log(str(file), header_only=True).eval.dataset)

    samples = (Sample("x", id=f"s{n}") for n in range(4))
    [log] = await evaluate(Task(samples, solver=calling(solving)), "mock/m", max_samples=1)
    assert (started[0].samples, started[0].sample_ids) == (None, None)
    assert (log.eval.dataset.samples, log.eval.dataset.sample_ids) == (4, ["s0", "s1", "s2", "s3"])


@pytest.mark.parametrize("max_samples", [1, 3])
async def test_an_iterable_is_read_no_further_than_the_next_sample(evaluate, max_samples: int) -> None:
    given = started = ahead = 0

    def samples() -> Iterator[Sample]:
        nonlocal given
        for number in range(20):
            given += 1
            yield Sample(str(number))

    @solver
    def slow():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            nonlocal started, ahead
            started += 1
            ahead = max(ahead, given - started)
            await anyio.sleep(1)
            return state

        return solve

    [log] = await evaluate(Task(samples(), solver=slow()), "mock/m", max_samples=max_samples)
    assert len(log.samples) == 20
    assert ahead <= 2


async def test_an_endless_iterable_can_be_limited(evaluate) -> None:
    task = Task(Sample(f"q{n}", id=n * 2) for n in itertools.count())
    [log] = await evaluate(task, "mock/m", limit=(3, 6))
    assert [s.id for s in log.samples] == [6, 8, 10]
    assert log.eval.dataset.sample_ids == [6, 8, 10]
    [log] = await evaluate(task, "mock/m", sample_id=[40, 2])
    assert [s.id for s in log.samples] == [2, 40]


class Closing:
    """An asynchronous generator of samples, and what became of it."""

    def __init__(self) -> None:
        self.closed = 0

    async def samples(self, count: int | None = None, pause: float = 0.5) -> AsyncIterator[Sample]:
        try:
            for number in itertools.count() if count is None else range(count):
                await anyio.sleep(pause)
                yield Sample(f"q{number}", target="Default")
        finally:
            self.closed += 1


async def test_an_asynchronous_iterable_is_read_while_samples_run(evaluate) -> None:
    source = Closing()
    [log] = await evaluate(Task(source.samples(6), scorer=includes()), "mock/m", epochs=2)
    assert log.status == "success"
    assert sorted(ids(log)) == [(n, epoch) for n in range(1, 7) for epoch in (1, 2)]
    assert log.results.scores[0].metrics["accuracy"].value == 1
    assert source.closed == 1


async def test_an_asynchronous_generator_is_closed_with_the_run_that_needs_no_more(evaluate) -> None:
    source = Closing()
    task = Task(source.samples())
    [log] = await evaluate(task, "mock/m", limit=3)
    assert len(log.samples) == 3
    assert source.closed == 1
    [log] = await evaluate(task, "mock/m", limit=2)
    assert len(log.samples) == 2
    [log] = await evaluate(task, "mock/m", limit=5)
    assert log.status == "error"
    assert "was closed when the run that read it had ended, after 3 samples" in log.error.message
    assert len(log.samples) <= 3


async def test_a_generator_that_was_cancelled_is_not_taken_for_ended(tmp_path: Path) -> None:
    source = Closing()
    task = Task(source.samples(pause=10))
    options: dict[str, Any] = {"display": "none", "log_dir": str(tmp_path)}
    with anyio.move_on_after(25) as scope:
        await eval_async(task, "mock/m", **options)
    assert scope.cancelled_caught
    [file] = tmp_path.glob("*.eval")
    log = read_eval_log(str(file))
    assert log.status == "cancelled"
    assert (log.eval.dataset.samples, log.eval.dataset.sample_ids) == (None, [1, 2])
    [log] = await eval_async(task, "mock/m", **options)
    assert log.status == "error"
    assert "was cancelled while it was read" in log.error.message


async def test_a_run_that_waits_for_its_first_sample_can_be_cancelled(tmp_path: Path) -> None:
    with anyio.move_on_after(3) as scope:
        await eval_async(
            Task(Closing().samples(pause=100)), "mock/m", display="none", log_dir=str(tmp_path)
        )  # fmt: skip
    assert scope.cancelled_caught
    assert anyio.current_time() < 4


async def test_a_run_that_waits_for_its_first_sample_ends_with_the_first_interrupt(tmp_path: Path) -> None:
    source = Closing()
    tasks = [Task(source.samples(pause=1000), name="waits"), Task([Sample("x")], name="runs")]
    call = EvalCall.of({"tasks": tasks, "model": "mock/m", "max_tasks": 2, "display": "none", "log_dir": str(tmp_path)})
    async with call.opened() as actor, anyio.create_task_group() as group:

        async def interrupt() -> None:
            await anyio.sleep(2)
            actor.cancel("stopped")

        group.start_soon(interrupt)
        logs = await actor.run()
    assert [(log.eval.task, log.status) for log in logs] == [("waits", "cancelled"), ("runs", "success")]
    assert anyio.current_time() == pytest.approx(2, abs=0.1)
    assert source.closed == 1
    assert len(list(tmp_path.glob("*.eval"))) == 1


async def test_several_runs_share_what_an_iterable_gives_once(evaluate) -> None:
    given: list[int] = []

    async def samples() -> AsyncIterator[Sample]:
        for number in range(12):
            given.append(number)
            await anyio.sleep(0.1)
            yield Sample(f"q{number}")

    fast, slow = get_model("mock/fast"), get_model("mock/slow", latency=2.0)
    task = Task(samples())
    logs = await evaluate(task, [fast, slow], max_samples=2)
    for log in [*logs, *await evaluate(task, "mock/again", max_dataset_memory=1)]:
        assert log.status == "success"
        assert [s.input for s in log.samples] == [f"q{n}" for n in range(12)]
    assert given == list(range(12))


async def test_what_an_iterable_gives_must_be_samples(evaluate) -> None:
    bad: Any = ({"input": "x"} for _ in range(3))
    with pytest.raises(DatasetError, match=r"item 1 is a dict, not a Sample: write Sample\(input"):
        await evaluate(Task(bad), "mock/m")
    with pytest.raises(DatasetError, match="no samples"):
        await evaluate(Task(iter([])), "mock/m")
    with pytest.raises(UsageError, match="takes a dataset"):
        Task(5)  # type: ignore[arg-type]


async def test_an_iterable_that_fails_ends_its_task(evaluate) -> None:
    def samples() -> Iterator[Sample]:
        yield Sample("x")
        yield Sample("y")
        raise LookupError("the database is gone")

    [log] = await evaluate(Task(samples()), "mock/m", max_samples=1)
    assert log.status == "error"
    assert "item 3 raised LookupError: the database is gone" in log.error.message
    assert 1 <= len(log.samples) <= 2


@pytest.mark.parametrize(("count", "status"), [(10, "error"), (40, "success")])
async def test_a_share_of_errors_is_judged_when_the_whole_is_known(evaluate, count: int, status: str) -> None:
    """Three of the first three fail: of ten that is more than a fifth, of forty it is not."""
    failed = []

    def failing(state: TaskState) -> None:
        if state.sample_id <= 3:
            failed.append(state.sample_id)
            raise ValueError("planned")

    task = Task((Sample(str(n)) for n in range(count)), solver=calling(failing))
    [log] = await evaluate(task, "mock/m", fail_on_error=0.2, max_samples=1)
    assert log.status == status
    assert failed == [1, 2, 3]
    assert len(log.samples) == count if status == "success" else len(log.samples) >= 9
    if status == "error":
        assert "planned" in log.error.message


@pytest.mark.parametrize("budget", [1, 300, 100_000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"epochs": Epochs(3)},
        {"sample_shuffle": 4, "epochs": Epochs(2)},
        {"sample_shuffle": 4, "limit": 7},
        {"limit": (5, 9)},
        {"sample_id": ["1?", 3]},
        {"sample_id": [12, 3], "sample_shuffle": 3},
    ],
    ids=str,
)
async def test_the_same_samples_run_with_and_without_paging(
    evaluate, tmp_path: Path, options: dict[str, Any], budget: int, bytes_for_megabytes: None
) -> None:
    path = lines(tmp_path / "d.jsonl", 20)
    order: list[list[Any]] = []

    async def run(**more: Any) -> Any:
        order.append([])
        solving = calling(lambda state: order[-1].append((state.sample_id, state.epoch, state.input_text)))
        [log] = await evaluate(Task(json_dataset(path), solver=solving), "mock/m", max_samples=1, **options, **more)
        assert log.status == "success"
        return log

    plain, paged = await run(), await run(max_dataset_memory=budget)
    assert order[0] == order[1]
    assert plain.eval.dataset == paged.eval.dataset


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"sample_id": "nobody"}, UsageError, "nobody"),
        ({"sample_id": ["1", "nobody"]}, UsageError, "nobody"),
        ({"limit": (100, 200)}, UsageError, "begins after the last of 20"),
        ({"sample_shuffle": 1, "limit": (100, 200)}, UsageError, "begins after the last of 20"),
    ],
)
async def test_options_that_do_not_fit_are_refused_before_anything_runs(
    evaluate, tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    path = lines(tmp_path / "d.jsonl", 20)
    with pytest.raises(error, match=words):
        await evaluate(Task(json_dataset(path)), "mock/m", max_dataset_memory=1, **options)
    assert not list(tmp_path.glob("logs/*.eval"))


async def test_nothing_is_left_of_a_run(evaluate, tmp_path: Path, bytes_for_megabytes: None) -> None:
    path = lines(tmp_path / "d.jsonl", 200)
    await evaluate(Task(json_dataset(path, limit=1)), "mock/m")
    before = os.listdir("/proc/self/fd")

    def failing(state: TaskState) -> None:
        if state.sample_id == 50:
            raise ValueError("planned")

    for shuffle in (False, True):
        task = Task(json_dataset(path, shuffle=shuffle), solver=calling(failing))
        [log] = await evaluate(task, "mock/m", max_dataset_memory=50)
        assert log.status == "error"
        with anyio.move_on_after(2):
            slow = get_model("mock/slow", latency=1.0)
            await evaluate(Task(json_dataset(path, shuffle=shuffle)), slow, max_dataset_memory=50)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize("budget", [None, 1])
async def test_nothing_is_left_of_a_run_that_was_cancelled_while_it_read(
    evaluate, tmp_path: Path, budget: int | None
) -> None:
    path = lines(tmp_path / "d.jsonl", 2_000)
    before = os.listdir("/proc/self/fd")

    def row(record: dict[str, Any]) -> Sample:
        if record["target"] == "500":
            anyio.from_thread.run_sync(scope.cancel)
        return Sample(**record)

    with anyio.CancelScope() as scope:
        await evaluate(Task(json_dataset(path, row)), "mock/m", sample_shuffle=1, max_dataset_memory=budget)
    assert scope.cancelled_caught
    assert os.listdir("/proc/self/fd") == before
    assert not list(tmp_path.glob("logs/*.eval"))
    source = Closing()
    with anyio.move_on_after(2.2) as scope:
        await evaluate(Task(source.samples(pause=1)), "mock/m", sample_shuffle=1, max_dataset_memory=budget)
    assert scope.cancelled_caught
    assert source.closed == 1


async def test_the_budget_is_in_the_log_and_must_be_a_number_of_megabytes(evaluate) -> None:
    [log] = await evaluate(Task([Sample("x")]), "mock/m", max_dataset_memory=3)
    assert log.eval.config.max_dataset_memory == 3
    for value in (0, -1, 1.5, "many"):
        with pytest.raises(OptionError, match="max_dataset_memory"):
            await evaluate(Task([Sample("x")]), "mock/m", max_dataset_memory=value)


@pytest.mark.parametrize("variable", ["PROCTOR_EVAL_MAX_DATASET_MEMORY", "INSPECT_EVAL_MAX_DATASET_MEMORY"])
async def test_the_budget_comes_from_the_environment(evaluate, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    monkeypatch.setenv(variable, "5")
    [log] = await evaluate(Task([Sample("x")]), "mock/m")
    assert log.eval.config.max_dataset_memory == 5
