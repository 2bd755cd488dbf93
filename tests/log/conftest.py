"""Logs to write in tests: a realistic set of samples that holds every kind of event and every awkward value."""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from proctor.log.events import (
    AnchorEvent,
    ApprovalEvent,
    BranchEvent,
    CompactionEvent,
    ErrorEvent,
    Event,
    InfoEvent,
    InputEvent,
    InterruptEvent,
    JsonChange,
    LoggerEvent,
    LoggingMessage,
    ModelEvent,
    SampleInitEvent,
    SampleLimitEvent,
    SandboxEvent,
    ScoreEditEvent,
    ScoreEvent,
    StateEvent,
    StepEvent,
    StoreEvent,
    SubtaskEvent,
    ToolEvent,
)
from proctor.log.records import (
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalMetric,
    EvalPlan,
    EvalPlanStep,
    EvalResults,
    EvalRetryError,
    EvalSample,
    EvalSampleLimit,
    EvalSampleReductions,
    EvalSampleScore,
    EvalScore,
    EvalScorer,
    EvalSpec,
    EvalStats,
    ProvenanceData,
    SandboxEnvironmentSpec,
    Score,
    ScoreEdit,
)
from proctor.log.transcript import Transcript, init_transcript, span
from proctor.model.config import GenerateConfig
from proctor.model.messages import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentReasoning,
    ContentText,
)
from proctor.model.output import ChatCompletionChoice, ModelCall, ModelOutput, ModelUsage
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolCallContent, ToolCallError, ToolCallView, ToolInfo

T0 = datetime(2030, 1, 1, tzinfo=UTC)
PIXEL = "data:image/png;base64,iVBORw0KGgo="
USAGE = ModelUsage(input_tokens=10, output_tokens=5, total_tokens=15, reasoning_tokens=2)
ERROR = EvalError(message="ValueError('no')", traceback="Traceback…\nValueError: no", traceback_ansi="\x1b[31mno")
ADD = ToolInfo(
    name="add",
    description="Adds.",
    parameters=ToolParams(
        properties={"x": JSONSchema(type="integer", description="left"), "y": JSONSchema(type="integer")},
        required=["x", "y"],
    ),
)


def ticking() -> Callable[[], datetime]:
    """A clock that moves a second at each look."""
    seconds = iter(range(10**6))
    return lambda: T0 + timedelta(seconds=next(seconds))


def naming(id: int | str, epoch: int) -> Callable[[], str]:
    """Ids of events and spans that are unique in a log."""
    numbers = iter(range(10**6))
    return lambda: f"e{id}-{epoch}-{next(numbers)}"


def output(message: ChatMessageAssistant, reason: Any = "stop") -> ModelOutput:
    choice = ChatCompletionChoice(message=message, stop_reason=reason)
    return ModelOutput(model="mock/m", choices=[choice], usage=USAGE, time=0.25)


def asked(messages: list[Any], answer: ModelOutput, tools: list[ToolInfo] | None = None) -> ModelEvent:
    """The event of a model call, with its raw request as a provider would keep it."""
    request = {"model": "m", "messages": [{"role": m.role, "content": m.text} for m in messages], "top_p": None}
    return ModelEvent(
        model="mock/m",
        input=list(messages),
        tools=tools or [],
        tool_choice="auto" if tools else "none",
        config=GenerateConfig(temperature=0.0, stop_seqs=["\n\n"]),
        output=answer,
        call=ModelCall(request=request, response={"id": "r", "n": 1}, time=0.2),
        completed=T0 + timedelta(seconds=30),
        working_time=0.25,
    )


async def plain(id: int | str = 1, epoch: int = 1, *, size: int = 30) -> EvalSample:
    """One question, one answer, one score, in the spans that viewers expect."""
    prompt = [ChatMessageSystem(content="Be brief.", id=f"s{id}"), ChatMessageUser(content="?" * size, id=f"u{id}")]
    answer = ChatMessageAssistant(content="A: 4", id=f"a{id}", model="mock/m", source="generate")
    score = Score(value="C", answer="4", explanation="A: 4")
    transcript = Transcript(new_id=naming(id, epoch), now=ticking(), working=lambda: 0.5)
    with init_transcript(transcript):
        async with span("init"):
            transcript.add(
                SampleInitEvent(sample={"input": "?" * size, "target": "4", "id": id}, state={"messages": []})
            )
        async with span("solvers"), span("generate", type="solver"):
            transcript.add(asked(list(prompt), output(answer)))
        async with span("scorers"), span("match", type="scorer"):
            transcript.add(ScoreEvent(score=score, target="4", scorer="match"))
    return EvalSample(
        id=id,
        epoch=epoch,
        input="?" * size,
        target="4",
        messages=[*prompt, answer],
        output=output(answer),
        scores={"match": score},
        events=transcript.events,
        model_usage={"mock/m": USAGE},
        started_at=T0.isoformat(),
        completed_at=(T0 + timedelta(seconds=3)).isoformat(),
        total_time=3.0,
        working_time=2.5,
        uuid=f"uuid-{id}-{epoch}",
        turn_count=1,
    )


async def agent(id: int | str, epoch: int = 1) -> EvalSample:
    """A sample that used tools: every other kind of event, contents in parts, a tool that failed."""
    call = ToolCall(id="c1", function="add", arguments={"x": 1, "y": None, "deep": [1, {"z": "ü"}]})
    bad = ToolCall(id="c2", function="add", arguments={}, parse_error="no arguments")
    user = ChatMessageUser(id="u", content=[ContentText(text="What is this?"), ContentImage(image=PIXEL)])
    first = ChatMessageAssistant(
        id="a1",
        content=[ContentReasoning(reasoning="hm"), ContentText(text="")],
        tool_calls=[call, bad],
        model="mock/m",
    )
    result = ChatMessageTool(id="t1", content="3", tool_call_id="c1", function="add")
    failed = ChatMessageTool(
        id="t2", content="", tool_call_id="c2", function="add", error=ToolCallError("parsing", "no arguments")
    )
    last = ChatMessageAssistant(id="a2", content="It is 3 😀.", model="mock/m", source="generate")
    score = Score(value={"a": 1, "b": 0.5, "c": None}, metadata={"why": [1, 2]})
    transcript = Transcript(new_id=naming(id, epoch), now=ticking())
    events: list[Event] = [
        StateEvent(changes=[JsonChange(op="replace", path="/x", value=2, replaced=1)]),
        StoreEvent(changes=[JsonChange(op="move", path="/b", from_="/a"), JsonChange(op="add", path="/n", value=None)]),
        SandboxEvent(action="exec", cmd="ls", options={"timeout": 3}, result=0, output="a\nb", completed=T0),
        SandboxEvent(action="write_file", file="x.txt", input="text"),
        SubtaskEvent(name="sub", input={"q": 1}, result=[1], type="fork", completed=T0),
        InfoEvent(data=None),
        InfoEvent(data={"limit": 3, "why": "scaled"}, source="proctor"),
        LoggerEvent(message=LoggingMessage(level="warning", message="careful", created=1.5, lineno=3)),
        ApprovalEvent(
            message="run", call=call, approver="auto", decision="approve", explanation="fine",
            view=ToolCallView(call=ToolCallContent(format="markdown", content="`add`")),
        ),
        InputEvent(input="yes", input_ansi="yes"),
        InterruptEvent(source="system", interrupted="tool_call", interrupted_tool_call_id="c1"),
        CompactionEvent(type="trim", tokens_before=10, tokens_after=5),
        AnchorEvent(anchor_id="x", source="y"),
        BranchEvent(from_anchor="x"),
        StepEvent(action="begin", name="old", type="solver"),
        StepEvent(action="end", name="old", type="solver"),
        ErrorEvent(error=ERROR),
        SampleLimitEvent(type="token", message="token limit exceeded", limit=100),
        ScoreEditEvent(
            score_name="judge", edit=ScoreEdit(value=1, provenance=ProvenanceData(timestamp=T0, author="me"))
        ),
    ]  # fmt: skip
    with init_transcript(transcript):
        async with span("init"):
            transcript.add(
                SampleInitEvent(sample={"input": [user], "target": ["3", "three"], "id": id, "files": {"a": "b"}})
            )
        async with span("solvers"), span("react", type="agent"):
            transcript.add(asked([user], output(first, "tool_calls"), [ADD]))
            async with span("add", type="tool"):
                transcript.add(
                    ToolEvent(
                        id="c1", function="add", arguments=call.arguments, result="3", message_id="t1", completed=T0
                    )
                )
            async with span("add", type="tool"):
                transcript.add(
                    ToolEvent(
                        id="c2", function="add", arguments={}, error=failed.error, result=[ContentText(text="x")],
                        view=ToolCallContent(format="text", content="add()"), truncated=(100, 10), failed=True,
                    )
                )  # fmt: skip
            transcript.add(asked([user, first, result, failed], output(last), [ADD]))
            for event in events:
                transcript.add(event)
        async with span("scorers"), span("judge", type="scorer"):
            transcript.add(ScoreEvent(score=score, target=["3", "three"], intermediate=True))
    return EvalSample(
        id=id,
        epoch=epoch,
        input=[user],
        target=["3", "three"],
        choices=["3", "4"],
        sandbox=SandboxEnvironmentSpec("local", {"image": "x"}),
        files=["a"],
        setup="true",
        messages=[user, first, result, failed, last],
        output=output(last),
        scores={"judge": score},
        metadata={"empty": None, "list": [1, None], "long": "x" * 3000, "big": [0] * 3000},
        store={"k": {"v": 1}},
        events=transcript.events,
        model_usage={"mock/m": USAGE},
        role_usage={"grader": USAGE},
        limit=EvalSampleLimit(type="token", limit=100, reason="enough"),
        uuid=f"uuid-{id}-{epoch}",
        total_time=1.0,
        working_time=0.5,
    )


async def awkward(id: int | str, epoch: int = 1) -> EvalSample:
    """A sample that failed, with values that JSON has trouble with."""
    sample = await plain(id, epoch)
    sample.error = ERROR
    sample.error_retries = [
        EvalRetryError(message="first", traceback="t", traceback_ansi="a", events=sample.events[-2:])
    ]
    sample.scores = {"match": Score.unscored(reason="scoring_failed", explanation="no answer")}
    sample.metadata = {
        "nan": math.nan, "inf": [math.inf, -math.inf], "huge": 2**70, "lone": "\ud83d in \udc00", "nul": "\x00\x1b[31m",
        "keys": {2: "a", None: "b", True: "c", (1, 2): "d"}, "when": T0, "set": {1}, "bytes": b"\xff", "null": "null",
    }  # fmt: skip
    sample.messages[1].content = "lone \ud800 surrogate"
    return sample


class Disk:
    """A storage in memory that can be full, and that remembers every operation, so that a crash can be played."""

    def __init__(self, files: dict[Path, bytearray] | None = None, room: float = math.inf) -> None:
        self.files = files or {}
        self.room = room
        self.operations: list[tuple[Any, ...]] = []

    def create(self, path: Path) -> DiskFile:
        if path in self.files:
            raise FileExistsError(errno.EEXIST, "File exists")
        self.operations.append(("create", path))
        self.files[path] = bytearray()
        return DiskFile(self, path)

    def open(self, path: Path, *, write: bool) -> DiskFile:
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file")
        return DiskFile(self, path)

    def exists(self, path: Path) -> bool:
        return path in self.files

    def remove(self, path: Path) -> None:
        self.operations.append(("remove", path))
        self.files.pop(path, None)

    def sync_folder(self, path: Path) -> None:
        pass

    @property
    def written(self) -> int:
        return sum(len(operation[3]) for operation in self.operations if operation[0] == "write")

    @property
    def syncs(self) -> int:
        return sum(operation[0] == "sync" for operation in self.operations)


class DiskFile:
    def __init__(self, disk: Disk, path: Path) -> None:
        self.disk, self.path = disk, path

    @property
    def data(self) -> bytearray:
        return self.disk.files[self.path]

    def read_at(self, offset: int, size: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def write_at(self, offset: int, *pieces: bytes | bytearray) -> None:
        data = b"".join(pieces)
        used = sum(map(len, self.disk.files.values()))
        grows = max(0, offset + len(data) - len(self.data))
        fits = len(data) if used + grows <= self.disk.room else max(0, len(data) - int(used + grows - self.disk.room))
        self.disk.operations.append(("write", self.path, offset, bytes(data[:fits])))
        self.data[offset : offset + fits] = data[:fits]
        if fits < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, size: int) -> None:
        self.disk.operations.append(("truncate", self.path, size))
        del self.data[size:]

    def sync(self) -> None:
        self.disk.operations.append(("sync", self.path))

    def size(self) -> int:
        return len(self.data)

    def close(self) -> None:
        pass


@pytest.fixture
def disk() -> Callable[..., Disk]:
    """Makes a storage in memory: ``disk(files, room)``."""
    return Disk


@pytest.fixture
def sample() -> Callable[..., Any]:
    """Makes a plain sample: ``await sample(id, epoch, size=…)``."""
    return plain


@pytest.fixture
def samples() -> Callable[..., Any]:
    """Makes the whole realistic set: ``await samples()``."""

    async def make() -> list[EvalSample]:
        made = [await plain(id, epoch) for id in (1, "2", "x_epoch_2") for epoch in (1, 2)]
        made += [await agent("a/../b ü 漢", epoch) for epoch in (1, 2)]
        return [*made, *[await awkward("../err or", epoch) for epoch in (1, 2)]]

    return make


@pytest.fixture
def spec() -> EvalSpec:
    """What the log of `samples` evaluates."""
    ids: list[str | int] = [1, "2", "x_epoch_2", "a/../b ü 漢", "../err or"]
    return EvalSpec(
        eval_id="evalid",
        run_id="runid",
        created="2030-01-01T00:00:00+00:00",
        task="demo",
        task_id="taskid",
        task_args={"n": 1},
        dataset=EvalDataset(name="demo", samples=5, sample_ids=ids, shuffled=False),
        model="mock/m",
        model_generate_config=GenerateConfig(max_connections=4),
        config=EvalConfig(epochs=2, epochs_reducer=["mean"], limit=(0, 5), fail_on_error=0.5),
        packages={"proctor": "0.1.0"},
        scorers=[EvalScorer(name="match", options={"numeric": True}, metrics=[{"name": "accuracy"}])],
        tags=["t"],
        metadata={"m": 1},
    )


@pytest.fixture
def finished(spec: EvalSpec) -> EvalLog:
    """The header that the log of `samples` ends with."""
    metrics = {"accuracy": EvalMetric(name="accuracy", value=0.75), "odd": EvalMetric(name="odd", value=math.nan)}
    score = EvalScore(name="match", scorer="match", reducer="mean", scored_samples=4, metrics=metrics)
    return EvalLog(
        status="success",
        eval=spec,
        plan=EvalPlan(steps=[EvalPlanStep(solver="generate", params={"x": None})], config=GenerateConfig(seed=1)),
        results=EvalResults(total_samples=10, completed_samples=8, scores=[score]),
        stats=EvalStats(
            started_at="2030-01-01T00:00:00+00:00", completed_at="2030-01-01T00:01:00+00:00",
            model_usage={"mock/m": USAGE},
        ),
        reductions=[
            EvalSampleReductions(scorer="match", reducer="mean", samples=[EvalSampleScore(value=1.0, sample_id=1)])
        ],
    )  # fmt: skip


@pytest.fixture
def log_path(tmp_path: Path) -> Path:
    """Where to write a log."""
    return tmp_path / "2030-01-01T00-00-00-00-00_demo_taskid.eval"
