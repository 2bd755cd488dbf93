"""What we write, `inspect_ai` reads with every reader it has; what it writes, we read.

The import alone takes seconds, so all of it is in this file.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.log import EvalLog, read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries, write_eval_log
from proctor.log.encode import to_builtins
from proctor.log.records import EvalSample, EvalSpec
from proctor.log.writer import open_log_writer
from proctor.runtime.backend import current_backend

inspect_log = pytest.importorskip("inspect_ai.log")
pytestmark = pytest.mark.filterwarnings("default")

Made = Callable[..., Any]


@pytest.fixture
def written(log_path: Path, spec: EvalSpec, finished: EvalLog, samples: Made) -> tuple[Path, list[EvalSample]]:
    """A finished log of the realistic set."""

    async def write() -> list[EvalSample]:
        made: list[EvalSample] = await samples()
        async with open_log_writer(log_path, spec=spec, plan=finished.plan) as writer:
            for sample in made:
                await writer.send(sample)
            await writer.finish(finished)
        return made

    return log_path, anyio.run(write)


def test_the_header_says_what_was_written(written: tuple[Path, list[EvalSample]]) -> None:
    log = inspect_log.read_eval_log(str(written[0]), header_only=True)
    assert (log.status, log.eval.task, log.eval.task_id, log.eval.model) == ("success", "demo", "taskid", "mock/m")
    assert log.results.scores[0].metrics["accuracy"].value == 0.75
    assert math.isnan(log.results.scores[0].metrics["odd"].value)
    assert log.stats.model_usage["mock/m"].total_tokens == 15
    assert log.eval.config.limit == (0, 5)
    assert log.plan.steps[0].solver == "generate"
    assert log.reductions[0].samples[0].sample_id == 1


def test_a_full_read_gives_every_sample_with_all_its_events(written: tuple[Path, list[EvalSample]]) -> None:
    path, made = written
    log = inspect_log.read_eval_log(str(path))
    assert len(log.samples) == len(made) == 10
    by_key = {(sample.id, sample.epoch): sample for sample in log.samples}
    for ours in made:
        theirs = by_key[ours.id, ours.epoch]
        assert [event.event for event in theirs.events] == [event.event for event in ours.events]
        assert [event.uuid for event in theirs.events] == [event.uuid for event in ours.events]
        assert [event.timestamp for event in theirs.events] == [event.timestamp for event in ours.events]
        assert [message.text for message in theirs.messages] == [visible(message.text) for message in ours.messages]
        assert theirs.output.completion == ours.output.completion
        assert theirs.total_time == ours.total_time
    inputs = [e.input for e in by_key["a/../b ü 漢", 1].events if e.event == "model"]
    assert [len(messages) for messages in inputs] == [1, 4]
    assert inputs[1][1].tool_calls[0].arguments == {"x": 1, "y": None, "deep": [1, {"z": "ü"}]}
    calls = [e.call for e in by_key["a/../b ü 漢", 1].events if e.event == "model"]
    assert [len(call.request["messages"]) for call in calls] == [1, 4]


def visible(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def test_numbers_and_texts_that_json_has_trouble_with_survive(written: tuple[Path, list[EvalSample]]) -> None:
    sample = inspect_log.read_eval_log_sample(str(written[0]), id="../err or", epoch=2)
    assert math.isnan(sample.metadata["nan"])
    assert sample.metadata["inf"] == [math.inf, -math.inf]
    assert sample.metadata["huge"] == 2**70
    assert sample.metadata["lone"] == r"\ud83d in \udc00"
    assert sample.metadata["nul"] == "\x00\x1b[31m"
    assert sample.messages[1].content == r"lone \ud800 surrogate"
    assert math.isnan(sample.scores["match"].value)
    assert sample.error.message == "ValueError('no')"
    assert len(sample.error_retries[0].events) == 2


def test_samples_are_read_one_by_one_and_by_id(written: tuple[Path, list[EvalSample]]) -> None:
    path, made = written
    assert len(list(inspect_log.read_eval_log_samples(str(path)))) == len(made)
    for ours in made:
        theirs = inspect_log.read_eval_log_sample(str(path), id=ours.id, epoch=ours.epoch)
        assert theirs.uuid == ours.uuid
        assert inspect_log.read_eval_log_sample(str(path), uuid=ours.uuid).epoch == ours.epoch


def test_summaries_are_those_that_inspect_would_make(written: tuple[Path, list[EvalSample]]) -> None:
    path, made = written
    summaries = inspect_log.read_eval_log_sample_summaries(str(path))
    assert len(summaries) == len(made)
    full = {(s.id, s.epoch): s for s in inspect_log.read_eval_log(str(path)).samples}
    for summary in summaries:
        expected = json.loads(full[summary.id, summary.epoch].summary().model_dump_json(exclude_none=True))
        found = json.loads(summary.model_dump_json(exclude_none=True))
        for thinned in (expected["metadata"], found["metadata"]):
            thinned.pop("big", None)
            thinned.pop("long", None)
            thinned.pop("keys", None)
            thinned.pop("set", None)
            thinned.pop("huge", None)
        assert found == expected


def test_data_frames_hold_every_row(written: tuple[Path, list[EvalSample]]) -> None:
    from inspect_ai import analysis

    path, made = written
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        evals = analysis.evals_df(str(path))
        samples = analysis.samples_df(str(path))
        messages = analysis.messages_df(str(path))
        events = analysis.events_df(str(path))
    assert list(evals["task_name"]) == ["demo"]
    assert evals["score_match_accuracy"][0] == 0.75
    assert len(samples) == len(made)
    assert set(samples["id"]) == {str(sample.id) for sample in made}
    assert set(messages["message_id"]) == {message.id for sample in made for message in sample.messages}
    assert set(events["event_id"]) == {event.uuid for sample in made for event in sample.events}


@pytest.mark.parametrize("command", ["dump", "headers", "list", "convert"])
def test_the_command_line_of_inspect_takes_it(
    written: tuple[Path, list[EvalSample]], tmp_path: Path, command: str
) -> None:
    path = written[0]
    arguments = {
        "dump": [str(path)],
        "headers": [str(path)],
        "list": ["--json", "--log-dir", str(path.parent)],
        "convert": [str(path), "--to", "json", "--output-dir", str(tmp_path / "out")],
    }[command]
    from click.testing import CliRunner
    from inspect_ai._cli.main import inspect

    done = CliRunner().invoke(inspect, ["log", command, *arguments])
    assert done.exit_code == 0, done.output[-2000:]
    if command == "dump":
        assert len(json.loads(done.output)["samples"]) == 10
    elif command == "convert":
        assert len(read_eval_log(next((tmp_path / "out").rglob("*.json"))).samples or []) == 10
    else:
        assert "demo" in done.output


async def test_a_log_in_progress_is_read_at_every_size(
    log_path: Path, spec: EvalSpec, finished: EvalLog, samples: Made, tmp_path: Path
) -> None:
    made: list[EvalSample] = await samples()
    copy = tmp_path / "copy.eval"
    async with open_log_writer(log_path, spec=spec, plan=finished.plan, run_in_thread=inline) as writer:
        for count, sample in enumerate(made, 1):
            await writer.send(sample)
            await anyio.sleep(5)  # a commit is due
            shutil.copyfile(log_path, copy)
            log = await inspect_log.read_eval_log_async(str(copy)) if in_asyncio() else read_eval_log(copy)
            assert log.status == "started"
            assert len(log.samples) == count
            if in_asyncio():
                assert len(await inspect_log.read_eval_log_sample_summaries_async(str(copy))) == count


async def inline(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def in_asyncio() -> bool:
    return current_backend() == "asyncio"


def theirs_as_json(path: Path) -> Any:
    log = inspect_log.read_eval_log(str(path), resolve_attachments=False)
    return json.loads(inspect_log._file.eval_log_json_str(log))


@pytest.fixture(scope="module")
def by_inspect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that `inspect_ai` made of a small run, with a tool, an error, and a message with an image."""
    folder = tmp_path_factory.mktemp("inspect")
    code = f"""
import logging
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model, ChatMessageUser, ContentImage, ContentText
from inspect_ai.scorer import match
from inspect_ai.solver import generate, use_tools, solver
from inspect_ai.tool import tool

@tool
def add():
    async def execute(x: int, y: int):
        '''Add.

        Args:
            x: left
            y: right
        '''
        return x + y
    return execute

@solver
def fails():
    async def solve(state, generate):
        state.store.set("k", [1, 2])
        if state.sample_id == 3:
            raise ValueError("no")
        return state
    return solve

adding = ModelOutput.for_tool_call("mockllm/m", "add", {{"x": 1, "y": 2}})
outputs = [adding, ModelOutput.from_content("mockllm/m", "3" * 300)]
for output in outputs:  # else their tokens are counted with a file from the network
    output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
model = get_model("mockllm/model", custom_outputs=outputs * 10)
image = ContentImage(image={PNG!r})
data = [Sample(id=1, input="1 + 2?", target="3", metadata={{"a": None, "b": float("nan")}}),
        Sample(id="two", input=[ChatMessageUser(content=[ContentText(text="see"), image])], target=["3", "4"]),
        Sample(id=3, input="x", target="3")]
task = Task(dataset=data, solver=[use_tools(add()), fails(), generate()], scorer=match(), name="theirs")
eval(task, model=model, log_dir={str(folder)!r}, display="none", fail_on_error=False, epochs=2, max_samples=1)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return next(folder.glob("*.eval"))


PNG = "data:image/png;base64," + "iVBORw0KGgo" * 20 + "="


def test_we_read_what_inspect_writes(by_inspect: Path, tmp_path: Path) -> None:
    theirs = inspect_log.read_eval_log(str(by_inspect))
    ours = read_eval_log(by_inspect)
    assert ours.samples is not None
    assert (ours.status, ours.eval.task, ours.eval.task_id) == (theirs.status, theirs.eval.task, theirs.eval.task_id)
    assert ours.results is not None
    assert ours.results.scores[0].metrics["accuracy"].value == theirs.results.scores[0].metrics["accuracy"].value
    assert [(s.id, s.epoch) for s in ours.samples] == [(s.id, s.epoch) for s in theirs.samples]
    assert len(read_eval_log_sample_summaries(by_inspect)) == len(theirs.samples)
    for mine, other in zip(ours.samples, theirs.samples, strict=True):
        assert same(to_builtins(mine), json.loads(other.model_dump_json(exclude_none=True)))


def test_what_we_read_and_write_again_is_the_same_to_inspect(by_inspect: Path, tmp_path: Path) -> None:
    for name in ("again.eval", "2030-01-01T00-00-00_again.json"):
        write_eval_log(read_eval_log(by_inspect), tmp_path / name)
        before, after = theirs_as_json(by_inspect), theirs_as_json(tmp_path / name)
        for log in (before, after):
            log.pop("location", None)
        assert same(before, after)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_we_read_logs_of_other_compressions(by_inspect: Path, tmp_path: Path, method: int) -> None:
    from proctor.log.logfile import LogFile

    other = tmp_path / "other.eval"
    with LogFile.open(by_inspect) as log, zipfile.ZipFile(other, "w", method) as archive:
        for name in log.members:
            archive.writestr(name, log.content(name))
    again = read_eval_log(other)
    again.location = str(by_inspect)
    assert same(to_builtins(again), to_builtins(read_eval_log(by_inspect)))
    assert read_eval_log_sample(other, "two", 2).id == "two"


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, with NaN equal to itself and null, and fields of null as good as absent."""
    return normal(one) == normal(other)


def normal(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: normal(item) for key, item in value.items() if item is not None and item != []}
    if isinstance(value, list):
        return [normal(item) for item in value]
    if isinstance(value, str):
        return value.replace("+00:00", "Z")
    return "NaN" if value is None or (isinstance(value, float) and math.isnan(value)) else value
