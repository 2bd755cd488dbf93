"""Going on in logs: what is reused and what is not, and that it is said why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field

from proctor import Epochs, Task, eval_async, eval_retry_async, eval_set_async
from proctor.dataset import MemoryDataset, Sample
from proctor.errors import NotFoundError, UsageError
from proctor.log import EvalLog, read_eval_log
from proctor.log.logfile import LogFile
from proctor.model import ModelOutput, ModelUsage
from proctor.scorer import exact, includes
from proctor.solver import TaskState, generate, solver, system_message
from proctor.testing import FakeCall, FakeModel


@define(eq=False)
class Bench:
    """A model that counts, logs in a folder, and what was said."""

    folder: Path
    model: FakeModel = field(init=False)
    broken: set[Any] = field(factory=set)
    asked: list[str] = field(factory=list)
    said: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.model = FakeModel(answer=self._answer)

    def _answer(self, call: FakeCall) -> Any:
        self.asked.append(call.text)
        if call.text in self.broken:
            return ValueError(f"no answer to {call.text}")
        output = ModelOutput.from_content("m", f"about {call.text}")
        output.usage = ModelUsage(output_tokens=10, total_tokens=10)
        return output

    async def first(self, task: Task, **options: Any) -> EvalLog:
        [log] = await eval_async(
            task, self.model.model(), log_dir=str(self.folder), display="none", **{"fail_on_error": False, **options}
        )
        self.asked.clear()
        return log

    async def again(self, log: Any, task: Task | None, **options: Any) -> EvalLog:
        [found] = await eval_retry_async(log, task=task, **{"display": "kept", "model": self.model.model(), **options})
        return read_eval_log(found.location)

    async def set(self, task: Task, **options: Any) -> EvalLog:
        self.asked.clear()
        done, [log] = await eval_set_async(
            task, str(self.folder), model=self.model.model(), **{"display": "kept", "retry_wait": 1, **options}
        )
        assert done
        return read_eval_log(log.location)

    def logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.eval"))


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    from proctor import registry

    made = Bench(tmp_path / "logs")

    async def kept(view: Any) -> None:
        import anyio

        while not view.ended:
            await anyio.sleep(1)
        made.said += view.messages

    monkeypatch.setitem(registry._table, ("display", "kept"), kept)
    return made


def samples(*inputs: str, **more: Any) -> MemoryDataset:
    return MemoryDataset([Sample(text, id=text, target=text, **more) for text in inputs], name="d")


def task(*inputs: str, **more: Any) -> Task:
    return Task(samples(*inputs), **{"scorer": includes(), "solver": generate(), "name": "t", **more})


async def test_what_failed_runs_again_and_the_rest_is_reused_in_the_same_file(bench: Bench) -> None:
    bench.broken = {"b"}
    log = await bench.first(task("a", "b", "c"))
    assert log.status == "success"
    bench.broken = set()
    found = await bench.again(log, task("a", "b", "c"))
    assert bench.asked == ["b"]
    assert (found.status, Path(found.location)) == ("success", Path(log.location))
    assert [(s.id, s.error) for s in found.samples or ()] == [("a", None), ("b", None), ("c", None)]
    assert found.results is not None
    assert found.results.completed_samples == 3
    assert found.stats.model_usage["fake/model"].total_tokens == 30
    assert (found.eval.eval_id, found.eval.created) == (log.eval.eval_id, log.eval.created)
    assert any("2 of its samples are done" in text and "1 failed" in text for text in bench.said)
    assert any(text.endswith("2 samples reused without a request; run: 1 failed") for text in bench.said)
    found = await bench.again(log, task("a", "b", "c"))
    assert bench.asked == ["b"], "a retry of what is complete asks nothing"


Change = Callable[[], tuple[Task, dict[str, Any]]]


@solver
def other() -> Any:
    async def solve(state: TaskState, generate: Any) -> TaskState:
        return await generate(state)

    return solve


NOTHING_REUSED: dict[str, tuple[Change, str]] = {
    "prompt": (lambda: (task("a", "b", solver=[system_message("Be long."), generate()]), {}), "system_message"),
    "solver": (lambda: (task("a", "b", solver=[system_message("Be brief."), other()]), {}), "solver"),
    "one more solver": (
        lambda: (task("a", "b", solver=[system_message("Be brief."), generate(), generate()]), {}),
        "solver",
    ),
    "scorer": (lambda: (task("a", "b", solver=PROMPTED, scorer=exact()), {}), "scorer"),
    "version": (lambda: (task("a", "b", solver=PROMPTED, version=2), {}), "task_version"),
    "temperature": (lambda: (task("a", "b", solver=PROMPTED), {"temperature": 1.0}), "temperature"),
    "role": (
        lambda: (task("a", "b", solver=PROMPTED), {"model_roles": {"grader": "mockllm/model"}}),
        "model_roles",
    ),
}
PROMPTED = [system_message("Be brief."), generate()]


@pytest.mark.parametrize("name", NOTHING_REUSED)
async def test_nothing_is_reused_when_what_is_asked_differs(bench: Bench, name: str) -> None:
    log = await bench.first(task("a", "b", solver=PROMPTED), temperature=0.5)
    change, reason = NOTHING_REUSED[name]
    changed, options = change()
    found = await bench.again(log, changed, **options)
    assert {"a", "b"} <= set(bench.asked)
    assert Path(found.location) != Path(log.location)
    assert Path(found.location).parent == Path(log.location).parent
    assert read_eval_log(log.location).status == "success", "the old log is as it was"
    assert any("nothing of" in text and reason in text for text in bench.said), bench.said


@pytest.mark.parametrize(
    "options",
    [{"max_connections": 3}, {"timeout": 90, "max_retries": 2}, {"max_samples": 1}, {"log_buffer": 3}],
    ids=str,
)
async def test_what_only_decides_how_fast_changes_nothing(bench: Bench, options: dict[str, Any]) -> None:
    log = await bench.first(task("a", "b"))
    found = await bench.again(log, task("a", "b"), **options)
    assert bench.asked == []
    assert found.status == "success"


async def test_a_sample_that_changed_runs_again(bench: Bench) -> None:
    data = [Sample("a", id=1, target="a"), Sample("b", id=2, target="b"), Sample("c", id=3, target="c")]
    log = await bench.first(Task(data, scorer=includes(), name="t"))
    changed = [
        Sample("a", id=1, target="a"),
        Sample("b", id=2, target="x"),
        Sample("c", id=3, target="c", metadata={"hint": 1}),
    ]
    found = await bench.again(log, Task(changed, scorer=includes(), name="t"))
    assert sorted(bench.asked) == ["b", "c"]
    assert [s.target for s in found.samples or ()] == ["a", "x", "c"]
    assert found.results is not None
    assert found.results.scores[0].metrics["accuracy"].value == pytest.approx(2 / 3)
    assert any("2 changed in the dataset (changed: 2, 3)" in text for text in bench.said), bench.said


async def test_without_events_samples_are_known_by_input_choices_and_target(bench: Bench) -> None:
    log = await bench.first(task("a", "b", "c"), log_samples=False)
    data = [Sample("a", id="a", target="a"), Sample("b", id="b", target="x"), Sample("z", id="c", target="c")]
    await bench.again(log, Task(data, scorer=includes(), name="t"))
    assert sorted(bench.asked) == ["b", "z"]


async def test_what_the_dataset_no_longer_has_is_left_out(bench: Bench) -> None:
    log = await bench.first(task("a", "b", "c"))
    found = await bench.again(log, task("c", "d", "a"))
    assert bench.asked == ["d"]
    assert {s.id for s in found.samples or ()} == {"a", "c", "d"}
    assert found.eval.dataset.sample_ids == ["c", "d", "a"]
    assert found.reductions is not None
    assert [s.sample_id for s in found.reductions[0].samples] == ["c", "d", "a"]
    with LogFile.open(Path(found.location)) as file:
        assert {summary.id for summary in file.summaries()} == {"a", "c", "d"}
    assert any("1 of the log left out" in text and "b (epoch 1)" in text for text in bench.said), bench.said


async def test_another_limit_reuses_what_both_have(bench: Bench) -> None:
    data = task("a", "b", "c", "d")
    assert len((await bench.set(data, limit=2)).samples or ()) == 2
    more = await bench.set(data, limit=3)
    assert bench.asked == ["c"]
    assert [s.id for s in more.samples or ()] == ["a", "b", "c"]
    fewer = await bench.set(data, limit=1)
    assert bench.asked == []
    assert [s.id for s in fewer.samples or ()] == ["a"]
    assert fewer.results is not None
    assert fewer.results.total_samples == 1
    assert len(bench.logs()) == 1


async def test_more_epochs_run_only_those(bench: Bench) -> None:
    data = task("a", "b")
    await bench.set(data)
    found = await bench.set(data, epochs=Epochs(3, "max"))
    assert sorted(bench.asked) == ["a", "a", "b", "b"]
    assert sorted((s.id, s.epoch) for s in found.samples or ()) == [(id, n) for id in "ab" for n in (1, 2, 3)]
    found = await bench.set(data, epochs=1)
    assert bench.asked == []
    assert [(s.id, s.epoch) for s in found.samples or ()] == [("a", 1), ("b", 1)]


async def test_another_shuffle_reuses_by_id_and_keeps_its_own_order(bench: Bench) -> None:
    data = task(*"abcdef")
    first = await bench.set(data, sample_shuffle=1, limit=4)
    second = await bench.set(data, sample_shuffle=2, limit=4)
    ids = [log.eval.dataset.sample_ids or [] for log in (first, second)]
    assert ids[0] != ids[1]
    assert sorted(bench.asked) == sorted(set(ids[1]) - set(ids[0]))
    assert second.reductions is not None
    assert [s.sample_id for s in second.reductions[0].samples] == ids[1]
    assert {s.id for s in second.samples or ()} == set(ids[1])


async def test_a_shuffle_without_a_seed_is_the_same_again(bench: Bench) -> None:
    data = task(*"abcdefgh")
    bench.broken = set("abcdefgh")
    log = await bench.first(data, sample_shuffle=True, limit=3)
    bench.broken = set()
    found = await bench.again(log, data)
    assert found.eval.dataset.sample_ids == log.eval.dataset.sample_ids


async def test_samples_that_met_a_limit_run_again_when_it_is_higher(bench: Bench) -> None:
    @solver
    def twice_for_b() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            for _ in range(3 if state.sample_id == "b" else 1):
                state = await generate(state)
            return state

        return solve

    def made(limit: int | None) -> Task:
        return task("a", "b", solver=twice_for_b(), token_limit=limit)

    log = await bench.first(made(15))
    assert [s.limit is not None for s in log.samples or ()] == [False, True]
    found = await bench.set(made(100))
    assert len(bench.asked) == 3
    assert [s.limit for s in found.samples or ()] == [None, None]
    await bench.set(made(100))
    assert bench.asked == []
    lower = await bench.set(made(5))
    assert len(bench.logs()) == 2
    assert len(lower.samples or ()) == 2
    assert any("token_limit is lower" in text for text in bench.said), bench.said


async def test_only_the_index_is_read(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    log = await bench.first(task(*(f"s{n}" for n in range(300))))
    read: list[str] = []
    plain = LogFile.content
    monkeypatch.setattr(LogFile, "content", lambda self, name: read.append(name) or plain(self, name))  # type: ignore[func-returns-value]
    [found] = await eval_retry_async(
        log, task=task(*(f"s{n}" for n in range(301))), model=bench.model.model(), display="none"
    )
    assert bench.asked == ["s300"]
    assert found.status == "success"
    assert not [name for name in read if name.startswith("samples/")]


@pytest.mark.parametrize("options", [{}, {"max_dataset_memory": 1}, {"sample_shuffle": 3, "limit": 150}], ids=str)
async def test_a_streamed_dataset_is_gone_on_with(bench: Bench, tmp_path: Path, options: dict[str, Any]) -> None:
    import json

    from proctor.dataset import json_dataset

    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps({"input": f"s{n}", "target": f"s{n}"}) + "\n" for n in range(200)))

    def made() -> Task:
        return Task(json_dataset(str(rows)), scorer=includes(), name="t")

    bench.broken = {f"s{n}" for n in range(0, 200, 50)}
    log = await bench.first(made(), **options)
    failed = {sample.input for sample in log.samples or () if sample.error is not None}
    assert 0 < len(failed) <= 4
    bench.broken = set()
    found = await bench.again(log, made())
    assert set(bench.asked) == failed
    assert found.eval.dataset.sample_ids == log.eval.dataset.sample_ids
    assert found.results is not None
    assert found.results.completed_samples == (150 if "limit" in options else 200)


async def test_long_answers_and_metadata_come_back_whole(bench: Bench) -> None:
    long = "x" * 3000

    def made() -> Task:
        data = [Sample(long, id=n, target="x", metadata={"deep": list(range(900)), "n": n}) for n in range(3)]
        return Task(data, scorer=includes(), name="t")

    bench.broken = set()
    log = await bench.first(made())
    before = read_eval_log(log.location)
    found = await bench.again(log, made())
    assert bench.asked == []
    assert found.results == before.results
    assert found.reductions == before.reductions


async def test_unscored_samples_and_huge_numbers_come_back(bench: Bench) -> None:
    from proctor.scorer import Score, mean, scorer

    @scorer(metrics=[mean()])
    def odd() -> Any:
        async def score(state: TaskState, target: Any) -> Score:
            return Score(value={"a": 2**70, "b": float("nan"), "c": 1}[str(state.sample_id)])

        return score

    log = await bench.first(task("a", "b", "c", scorer=odd()))
    before = read_eval_log(log.location)
    found = await bench.again(log, task("a", "b", "c", scorer=odd()))
    assert repr(found.results) == repr(before.results)
    assert repr(found.reductions) == repr(before.reductions)


async def test_a_task_of_a_file_is_found_again_with_its_arguments_and_options(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tasks.py").write_text(
        "from proctor import Task, task\n"
        "from proctor.dataset import Sample\n"
        "from proctor.scorer import includes\n"
        "@task\n"
        "def counted(n=1, word='w'):\n"
        "    return Task([Sample(f'{word}{i}', id=i) for i in range(n)], scorer=includes())\n"
    )
    [log] = await eval_async(
        "tasks.py", bench.model.model(), task_args={"n": 4}, log_dir="logs", display="none", limit=(1, 4),
        epochs=Epochs(2, ["mean", "max"]), temperature=0.3, message_limit=9, tags=["x"], metadata={"y": 1},
        fail_on_error=0.5, stop_seqs=["a", "b"], time_limit=90,
    )  # fmt: skip
    bench.asked.clear()
    [found] = await eval_retry_async(log.location, model=bench.model.model(), display="none")
    assert bench.asked == []
    assert found.status == "success"
    assert found.location == log.location
    for name in ("task_args", "task_file", "config", "tags", "metadata", "model_generate_config", "dataset", "task_id"):
        assert getattr(found.eval, name) == getattr(log.eval, name), name
    assert found.results == read_eval_log(found.location).results == log.results
    Path("tasks.py").unlink()
    with pytest.raises(NotFoundError, match=r"task file tasks\.py does not exist"):
        await eval_retry_async(log.location, model=bench.model.model(), display="none")


async def test_arguments_of_the_provider_are_added_to_those_of_the_log(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from proctor.model.api import ModelAPI, modelapi

    seen: list[dict[str, Any]] = []

    @modelapi("keyed")
    class Keyed(ModelAPI):
        def __init__(self, model_name: str, base_url: Any = None, api_key: Any = None, config: Any = None, **more: Any):
            super().__init__(model_name, base_url, api_key, (), config)
            seen.append({**more, "url": base_url, "key": api_key})

        async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
            return ModelOutput.from_content("m", "a")

    given: dict[str, Any] = {"log_dir": str(bench.folder), "display": "none"}
    first = {"model_args": {"flavour": "mint", "api_key": "k1"}, "model_base_url": "http://127.0.0.1:1/v1"}
    [log] = await eval_async(task("a"), "keyed/m", **first, **given)
    assert log.eval.model_args == {"flavour": "mint"}
    seen.clear()
    [again] = await eval_retry_async(log, task=task("a"), model_args={"api_key": "k2"}, display="none")
    assert again.location == log.location
    assert seen[0] == {"flavour": "mint", "url": "http://127.0.0.1:1/v1", "key": "k2"}
    seen.clear()
    url = "http://127.0.0.1:2/v1"
    [again] = await eval_retry_async(log, task=task("a"), model_base_url=url, display="none")
    assert again.location == log.location
    assert seen[0] == {"flavour": "mint", "url": url, "key": None}


async def test_a_task_without_a_name_must_be_given(bench: Bench) -> None:
    log = await bench.first(task("a"))
    with pytest.raises(NotFoundError, match=r"eval_retry\(log, task="):
        await eval_retry_async(log, model=bench.model.model(), display="none")


async def test_mistakes_are_told(bench: Bench, tmp_path: Path) -> None:
    log = await bench.first(task("a"))
    with pytest.raises(UsageError, match="no such file"):
        await eval_retry_async(str(tmp_path / "none.eval"), display="none")
    with pytest.raises(UsageError, match="named twice"):
        await eval_retry_async([log, log], task=task("a"), display="none")
    with pytest.raises(UsageError, match="no log was given"):
        await eval_retry_async([], display="none")
    (tmp_path / "bad.eval").write_bytes(b"PK nothing")
    with pytest.raises(UsageError, match=r"bad\.eval"):
        await eval_retry_async(str(tmp_path / "bad.eval"), display="none")


async def test_several_logs_are_gone_on_in_at_once(bench: Bench) -> None:
    bench.broken = {"b", "y"}
    tasks = [task("a", "b", name="one"), task("x", "y", name="two")]
    logs = [await bench.first(each) for each in tasks]
    bench.broken = set()
    given: Any = {"task": tasks, "model": bench.model.model(), "display": "none"}
    found = await eval_retry_async(logs, **given)
    assert sorted(bench.asked) == ["b", "y"]
    assert [log.location for log in found] == [log.location for log in logs]
    assert [log.eval.task for log in found] == ["one", "two"]
    with pytest.raises(UsageError, match="2 tasks for 1 logs"):
        await eval_retry_async(logs[0], **given)


async def test_a_log_that_is_being_written_is_copied_and_stays(bench: Bench) -> None:
    import fcntl

    bench.broken = {"b"}
    log = await bench.first(task("a", "b"))
    bench.broken = set()
    before = Path(log.location).read_bytes()
    with Path(log.location).open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        found = await bench.again(log, task("a", "b"), log_cleanup=True)
        assert bench.asked == ["b"]
        assert Path(found.location).name == f"{Path(log.location).stem}-retry.eval"
        assert Path(log.location).read_bytes() == before
        again = await bench.again(log, task("a", "b"))
        assert (again.location, bench.asked) == (found.location, ["b"])
    assert any("another process is writing it" in text for text in bench.said), bench.said


async def test_a_log_as_json_is_gone_on_in_as_a_copy(bench: Bench) -> None:
    from proctor.log import write_eval_log

    bench.broken = {"b"}
    log = read_eval_log((await bench.first(task("a", "b"))).location)
    bench.broken = set()
    json = bench.folder / "old.json"
    write_eval_log(log, json)
    found = await bench.again(json, task("a", "b"))
    assert bench.asked == ["b"]
    assert (found.status, Path(found.location).name) == ("success", "old-retry.eval")
    assert json.exists()


async def test_superseded_logs_go_only_when_told(bench: Bench) -> None:
    log = await bench.first(task("a"))
    kept = await bench.again(log, task("a", version=2))
    assert len(bench.logs()) == 2
    found = await bench.again(kept.location, task("a", version=3), log_cleanup=True)
    assert bench.logs() == sorted([Path(log.location), Path(found.location)])


async def test_samples_that_were_invalidated_run_again(bench: Bench) -> None:
    from datetime import UTC, datetime

    from proctor.log import ProvenanceData, write_eval_log

    log = read_eval_log((await bench.first(task("a", "b"))).location)
    assert log.samples is not None
    log.samples[1].invalidation = ProvenanceData(timestamp=datetime(2030, 1, 1, tzinfo=UTC), author="me")
    log.invalidated = True
    write_eval_log(log)
    found = await bench.again(log, task("a", "b"))
    assert bench.asked == ["b"]
    assert not found.invalidated
    assert [s.invalidation for s in found.samples or ()] == [None, None]


async def test_a_crash_at_any_byte_of_a_resume_can_be_resumed(bench: Bench) -> None:
    """The file cut anywhere after what was durable: the next resume mends it and asks for nothing that is whole."""
    inputs = [f"s{n}" for n in range(6)]
    bench.broken = {"s5"}
    log = await bench.first(task(*inputs))
    bench.broken = set()
    whole = Path(log.location).read_bytes()
    for cut in range(len(whole) - 1, len(whole) // 2, -max(1, len(whole) // 40)):
        Path(log.location).write_bytes(whole[:cut])
        bench.asked.clear()
        found = await bench.again(log.location, task(*inputs))
        assert found.status == "success"
        assert [s.id for s in found.samples or ()] == inputs
        assert len(set(bench.asked)) == len(bench.asked)
