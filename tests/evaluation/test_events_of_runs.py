"""Each kind of event that a run makes is in the log, and is read by `inspect_ai` as well."""

from __future__ import annotations

import functools
import logging
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest

from proctor import Task, eval_async
from proctor.dataset import Sample
from proctor.evaluation.interrupting import interruption
from proctor.log import read_eval_log, transcript
from proctor.log.events import InfoEvent, ModelEvent, ToolEvent
from proctor.log.logger_events import TranscriptHandler, level_name, log_to_transcripts
from proctor.log.transcript import Transcript, init_transcript
from proctor.model import ChatMessageUser, ContentImage, ContentText, GenerateConfig, ModelOutput
from proctor.model.toolcall import ToolCallError
from proctor.scorer import includes
from proctor.solver import Generate, Solver, TaskState, generate, solver
from proctor.solver.changes import differences
from proctor.solver.store import store
from proctor.tool import tool
from proctor.util import subtask

logger = logging.getLogger("users.code")
IMAGE = "data:image/png;base64," + "iVBORw0KGgo=" * 40


@subtask
async def part(question: str, n: int = 1) -> dict[str, Any]:
    store().set("inside", n)
    logger.warning("in %s", question)
    return {"answer": n}


@tool
def look() -> Any:
    async def execute() -> str:
        """Look."""
        return "nothing"

    return execute


@solver
def changes() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.metadata["seen"] = {"a/b": [1, 2]}
        state.tools = [look()]
        state.store.set("key", "value")
        await part("why", n=3)
        transcript().info({"note": "x" * 200}, source="user")
        return state

    return solve


async def run(tmp_path: Path, task: Task, **options: Any) -> tuple[Any, Any]:
    """The sample as we and as `inspect_ai` read it."""
    (log,) = await eval_async(task, model="mock/model", log_dir=str(tmp_path), display="none", **options)
    ours = (read_eval_log(log.location, resolve_attachments=True).samples or [])[0]
    inspect_log = pytest.importorskip("inspect_ai.log")
    read = functools.partial(inspect_log.read_eval_log, log.location, resolve_attachments=True)
    theirs = (await anyio.to_thread.run_sync(read)).samples[0]
    assert [event.event for event in theirs.events] == [event.event for event in ours.events]
    return ours, theirs


def kinds(sample: Any, kind: str) -> list[Any]:
    return [event for event in sample.events if event.event == kind]


async def test_what_solvers_change_and_say_is_in_the_transcript(tmp_path: Path) -> None:
    task = Task(dataset=[Sample(input="q" * 300, target="Default")], solver=[changes(), generate()], scorer=includes())
    ours, theirs = await run(tmp_path, task)
    for sample in (ours, theirs):
        assert kinds(sample, "sample_init")[0].sample.input == "q" * 300
        (state,) = kinds(sample, "state")
        changed = {change.path: (change.op, change.value) for change in state.changes}
        assert changed["/metadata/seen"] == ("add", {"a/b": [1, 2]})
        assert changed["/tools/0"][1]["name"] == "look"
        (kept,) = kinds(sample, "store")
        assert [(change.op, change.path, change.value) for change in kept.changes] == [("add", "/key", "value")]
        (sub,) = kinds(sample, "subtask")
        assert (sub.name, sub.input, sub.result) == ("part", {"question": "why", "n": 3}, {"answer": 3})
        (logged,) = kinds(sample, "logger")
        assert (logged.message.message, logged.message.level, logged.message.name) == (
            "in why",
            "warning",
            "users.code",
        )
        assert kinds(sample, "info")[0].data == {"note": "x" * 200}
        assert kinds(sample, "model")[0].input[0].content == "q" * 300
    assert not any(isinstance(handler, TranscriptHandler) for handler in logging.getLogger().handlers)


async def test_a_plain_sample_has_no_events_of_changes(tmp_path: Path) -> None:
    ours, _ = await run(tmp_path, Task(dataset=[Sample(input="q")], solver=[generate()]))
    assert not {event.event for event in ours.events} & {"state", "store", "logger", "subtask", "interrupt"}


@pytest.mark.parametrize("keep", [True, False])
async def test_images_are_kept_once_or_left_out(tmp_path: Path, *, keep: bool) -> None:
    message = ChatMessageUser(content=[ContentText(text="see"), ContentImage(image=IMAGE)])
    task = Task(dataset=[Sample(input=[message], id=1)], solver=[generate(), generate()])
    ours, theirs = await run(tmp_path, task, log_images=keep)
    wanted = IMAGE if keep else "<base64-data-removed>"
    for sample in (ours, theirs):
        for messages in (sample.input, sample.messages, *(event.input for event in kinds(sample, "model"))):
            assert messages[0].content[1].image == wanted
        assert kinds(sample, "sample_init")[0].sample.input[0].content[1].image == wanted
    (path,) = tmp_path.glob("*.eval")
    raw = read_eval_log(path).samples
    assert raw is not None
    assert list(raw[0].attachments.values()).count(IMAGE) == keep


async def test_a_limit_that_cuts_a_call_says_which(tmp_path: Path) -> None:
    @solver
    def slow() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            await anyio.sleep(100)
            return state

        return solve

    ours, _ = await run(tmp_path, Task(dataset=[Sample(input="q")], solver=slow()), time_limit=10)
    assert kinds(ours, "sample_limit")
    assert not kinds(ours, "interrupt"), "nothing but the solver itself was running"


def test_differences_make_one_value_of_the_other() -> None:
    before = {"same": 1, "gone": [1], "text": "a", "list": [1, {"x": 1}, 3], "a/b~c": True}
    after = {"same": 1, "text": "b", "list": [1, {"x": 2}], "new": None, "a/b~c": 1}
    found = {(change.op, change.path): (change.value, change.replaced) for change in differences(before, after)}
    assert found == {
        ("remove", "/gone"): (None, [1]),
        ("replace", "/text"): ("b", "a"),
        ("remove", "/list/2"): (None, 3),
        ("replace", "/list/1/x"): (2, 1),
        ("add", "/new"): (None, None),
        ("replace", "/a~1b~0c"): (1, True),
    }


def test_messages_below_the_level_and_of_chatty_loggers_are_no_events(caplog: pytest.LogCaptureFixture) -> None:
    root, into = logging.getLogger(), Transcript()
    root_level = root.level
    with log_to_transcripts("info"), log_to_transcripts("debug"), init_transcript(into):
        logger.info("first")
        logger.debug("second")
        logging.getLogger("httpx").info("a request")
    assert [event.message.message for event in into.events] == ["first", "second"]  # type: ignore[union-attr]
    assert root.level == root_level
    assert not [record for record in caplog.records if record.name == "users.code"], "who listened before hears no more"
    assert [level_name(number) for number in (5, 10, 16, 20, 35, 60)] == [
        "debug", "debug", "http", "info", "warning", "critical",
    ]  # fmt: skip


def test_a_warning_outside_of_samples_is_shown_as_ever(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with log_to_transcripts():
        logger.warning("look here")
    assert "look here" in capsys.readouterr().err


def test_an_interruption_names_the_call_that_was_cut_short() -> None:
    call = ModelEvent(
        model="m", input=[], tools=[], tool_choice="none", config=GenerateConfig(), output=ModelOutput(), uuid="u",
        error="cancelled",
    )  # fmt: skip
    tool_call = ToolEvent(id="c", function="f", arguments={}, error=ToolCallError("cancelled", "cut"))
    ended = attrs.evolve(call, error=None)
    cut = interruption([call, InfoEvent(data=1)], "system", always=True)
    assert cut is not None
    assert (cut.interrupted, cut.interrupted_model_event_id) == ("generate", "u")
    inside = interruption([ended, tool_call, call], "limit", always=False)
    assert inside is not None
    assert inside.interrupted == "generate"
    cut = interruption([ended, tool_call, InfoEvent(data=1)], "limit", always=False)
    assert cut is not None
    assert (cut.source, cut.interrupted, cut.interrupted_tool_call_id) == ("limit", "tool_call", "c")
    assert interruption([call, ended], "limit", always=False) is None
    between = interruption([], "system", always=True)
    assert between is not None
    assert between.interrupted == "between_turns"


async def test_a_cancelled_sample_says_what_it_was_doing(tmp_path: Path) -> None:
    started = anyio.Event()

    @solver
    def waits() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state = await generate(state)
            started.set()
            await anyio.sleep_forever()
            return state

        return solve

    async def evaluate() -> None:
        task = Task(dataset=[Sample(input="q", id=1)], solver=waits(), name="waiting")
        await eval_async(task, model="mock/model", log_dir=str(tmp_path), display="none")

    async with anyio.create_task_group() as group:
        group.start_soon(evaluate)
        await started.wait()
        group.cancel_scope.cancel()
    (path,) = tmp_path.glob("*.eval")
    (sample,) = read_eval_log(path).samples or []
    assert [(cut.source, cut.interrupted) for cut in kinds(sample, "interrupt")] == [("system", "between_turns")]
