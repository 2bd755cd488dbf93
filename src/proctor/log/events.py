"""The events of a transcript: value classes with the field names, defaults and order of the log format.

No kind is of our own: readers refuse a whole log over one event of a kind they do not know. What proctor has to say
beyond these kinds is an `InfoEvent` with ``source="proctor"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from attrs import define, field

from proctor.log.encode import SHAPERS
from proctor.log.scores import Score, ScoreEdit
from proctor.log.spec import EvalError
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput, ModelRequestId, ModelUsage
from proctor.model.portable import Portable
from proctor.model.toolcall import ToolCall, ToolCallContent, ToolCallError, ToolCallView, ToolChoice, ToolInfo

LoggingLevel: TypeAlias = Literal["debug", "trace", "http", "sandbox", "info", "warning", "error", "critical"]
ApprovalDecision: TypeAlias = Literal["approve", "modify", "reject", "escalate", "terminate"]


@define(kw_only=True)
class EventFields(Portable):
    """What every event has; `Transcript.add` fills in what is None.

    Attributes:
        uuid: names the event. span_id: the span it happened in. timestamp: when.
        working_start: seconds of working time since the sample began. pending: still going on.
    """

    uuid: str | None = None
    span_id: str | None = None
    timestamp: datetime | None = None
    working_start: float | None = None
    metadata: dict[str, Any] | None = None
    pending: bool | None = None


@define(kw_only=True)
class SampleInitEvent(EventFields):
    """The sample as it was before its first solver; `sample` is a `proctor.dataset.Sample`."""

    event: Literal["sample_init"] = "sample_init"
    sample: Any
    state: Any = None


@define(kw_only=True)
class SampleLimitEvent(EventFields):
    """A limit was reached; `limit` in its own unit."""

    event: Literal["sample_limit"] = "sample_limit"
    type: Literal["message", "time", "working", "token", "turn", "cost", "operator", "custom"]
    message: str
    limit: float | None = None


@define(kw_only=True)
class SandboxEvent(EventFields):
    """A command run in a sandbox, or a file read or written; `result` is the exit code."""

    event: Literal["sandbox"] = "sandbox"
    action: Literal["exec", "read_file", "write_file"]
    cmd: str | None = None
    options: dict[str, Any] | None = None
    file: str | None = None
    input: str | None = None
    result: int | None = None
    output: str | None = None
    completed: datetime | None = None


@define(kw_only=True)
class JsonChange(Portable):
    """One step of a JSON Patch; `replaced` is what was there before."""

    op: Literal["remove", "add", "replace", "move", "test", "copy"]
    path: str
    from_: str | None = field(default=None, metadata={"name": "from"})
    value: Any = None
    replaced: Any = None


@define(kw_only=True)
class StateEvent(EventFields):
    """The task state changed."""

    event: Literal["state"] = "state"
    changes: list[JsonChange]


@define(kw_only=True)
class StoreEvent(EventFields):
    """The sample's store changed."""

    event: Literal["store"] = "store"
    changes: list[JsonChange]


@define(kw_only=True)
class ModelEvent(EventFields):
    """A call of a model.

    Attributes:
        input_refs: ranges of the pooled messages, in place of `input` (see the log format).
        requested_model: when it differs from `model`. working_time: seconds. cache: read or write.
        retries: how many attempts failed before. call: the raw request and response.
    """

    event: Literal["model"] = "model"
    model: str
    role: str | None = None
    requested_model: str | None = None
    input: Sequence[ChatMessage]
    input_refs: list[tuple[int, int]] | None = None
    tools: list[ToolInfo]
    tool_choice: ToolChoice
    config: GenerateConfig
    output: ModelOutput
    retries: int | None = None
    request_ids: list[ModelRequestId] | None = None
    error: str | None = None
    traceback: str | None = None
    traceback_ansi: str | None = None
    cache: Literal["read", "write"] | None = None
    call: ModelCall | None = None
    completed: datetime | None = None
    working_time: float | None = None


@define(kw_only=True)
class ToolEvent(EventFields):
    """A call of a tool; `truncated` is the size of the output before and after it was cut, in bytes."""

    event: Literal["tool"] = "tool"
    type: Literal["function"] = "function"
    id: str
    function: str
    arguments: dict[str, Any]
    view: ToolCallContent | None = None
    result: Any = ""
    truncated: tuple[int, int] | None = None
    error: ToolCallError | None = None
    events: list[Any] = field(factory=list)
    completed: datetime | None = None
    working_time: float | None = None
    agent: str | None = None
    agent_span_id: str | None = None
    failed: bool | None = None
    message_id: str | None = None


@define(kw_only=True)
class AnchorEvent(EventFields):
    """A point of the transcript that a branch can start from."""

    event: Literal["anchor"] = "anchor"
    anchor_id: str
    source: str | None = None


@define(kw_only=True)
class BranchEvent(EventFields):
    """The transcript goes on from an earlier point."""

    event: Literal["branch"] = "branch"
    from_anchor: str = ""


@define(kw_only=True)
class ApprovalEvent(EventFields):
    """A tool call was put to an approver, with what it decided."""

    event: Literal["approval"] = "approval"
    message: str
    call: ToolCall
    view: ToolCallView | None = None
    approver: str
    decision: ApprovalDecision
    modified: ToolCall | None = None
    explanation: str | None = None


@define(kw_only=True)
class CompactionEvent(EventFields):
    """A conversation was shortened to fit the model's context."""

    event: Literal["compaction"] = "compaction"
    type: Literal["summary", "edit", "trim"] = "summary"
    role: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    source: str | None = None


@define(kw_only=True)
class InputEvent(EventFields):
    """A person was asked for input."""

    event: Literal["input"] = "input"
    input: str
    input_ansi: str
    message: str | None = None
    fields: list[Any] | None = None
    outcome: Literal["accepted", "declined", "cancelled"] | None = None
    content: dict[str, Any] | None = None


@define(kw_only=True)
class InterruptEvent(EventFields):
    """Something running was stopped."""

    event: Literal["interrupt"] = "interrupt"
    source: Literal["user_cancel", "limit", "system"]
    interrupted: Literal["generate", "tool_call", "between_turns"]
    interrupted_tool_call_id: str | None = None
    interrupted_model_event_id: str | None = None


@define(kw_only=True)
class ScoreEvent(EventFields):
    """A score was given; `intermediate` where it is not the final one."""

    event: Literal["score"] = "score"
    score: Score
    target: str | list[str] | None = None
    intermediate: bool = False
    scorer: str | None = None
    scorer_args: dict[str, Any] | None = None
    model_usage: dict[str, ModelUsage] | None = None
    role_usage: dict[str, ModelUsage] | None = None


@define(kw_only=True)
class ScoreEditEvent(EventFields):
    """A score was edited afterwards."""

    event: Literal["score_edit"] = "score_edit"
    score_name: str
    edit: ScoreEdit


@define(kw_only=True)
class ErrorEvent(EventFields):
    """An error ended the sample."""

    event: Literal["error"] = "error"
    error: EvalError


@define(kw_only=True)
class LoggingMessage(Portable):
    """A record of Python's logging; `created` is in milliseconds since 1970."""

    name: str | None = None
    level: LoggingLevel
    message: str
    created: float
    filename: str = "unknown"
    module: str = "unknown"
    lineno: int = 0


@define(kw_only=True)
class LoggerEvent(EventFields):
    """Something was logged with Python's logging."""

    event: Literal["logger"] = "logger"
    message: LoggingMessage


@define(kw_only=True)
class InfoEvent(EventFields):
    """Anything else worth keeping: any JSON value, and who says it."""

    event: Literal["info"] = "info"
    source: str | None = None
    data: Any


@define(kw_only=True)
class SpanBeginEvent(EventFields):
    """A span begins."""

    event: Literal["span_begin"] = "span_begin"
    id: str
    parent_id: str | None = None
    type: str | None = None
    name: str


@define(kw_only=True)
class SpanEndEvent(EventFields):
    """A span ends."""

    event: Literal["span_end"] = "span_end"
    id: str


@define(kw_only=True)
class StepEvent(EventFields):
    """A step begins or ends: how logs of old versions marked what spans mark now."""

    event: Literal["step"] = "step"
    action: Literal["begin", "end"]
    type: str | None = None
    name: str


@define(kw_only=True)
class SubtaskEvent(EventFields):
    """A subtask ran."""

    event: Literal["subtask"] = "subtask"
    name: str
    type: str | None = None
    input: dict[str, Any]
    result: Any = None
    events: list[Any] = field(factory=list)
    completed: datetime | None = None
    working_time: float | None = None


@define(kw_only=True)
class ForeignEvent(EventFields):
    """An event of a kind that proctor never makes, read from a log of another program and kept as it was.

    Attributes:
        event: the kind. fields: the whole event.
    """

    event: str
    fields: dict[str, Any]


FOREIGN_KINDS: Final = ("review", "sentinel", "checkpoint")
SHAPERS[ForeignEvent] = lambda event: event.fields


Event: TypeAlias = (
    SampleInitEvent
    | SampleLimitEvent
    | SandboxEvent
    | StateEvent
    | StoreEvent
    | ModelEvent
    | ToolEvent
    | AnchorEvent
    | ApprovalEvent
    | BranchEvent
    | CompactionEvent
    | InputEvent
    | InterruptEvent
    | ScoreEvent
    | ScoreEditEvent
    | ErrorEvent
    | LoggerEvent
    | InfoEvent
    | SpanBeginEvent
    | SpanEndEvent
    | StepEvent
    | SubtaskEvent
    | ForeignEvent
)
EVENT_KINDS: Final[tuple[type[EventFields], ...]] = (
    SampleInitEvent,
    SampleLimitEvent,
    SandboxEvent,
    StateEvent,
    StoreEvent,
    ModelEvent,
    ToolEvent,
    AnchorEvent,
    ApprovalEvent,
    BranchEvent,
    CompactionEvent,
    InputEvent,
    InterruptEvent,
    ScoreEvent,
    ScoreEditEvent,
    ErrorEvent,
    LoggerEvent,
    InfoEvent,
    SpanBeginEvent,
    SpanEndEvent,
    StepEvent,
    SubtaskEvent,
)
