"""A sample's record and its summary: value classes with the field names, defaults and order of the log format."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from attrs import define, field

from proctor.log.events import Event
from proctor.log.scores import ProvenanceData, Score
from proctor.log.spec import EvalError, SandboxEnvironmentSpec
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelFallback, ModelOutput, ModelUsage
from proctor.model.portable import Portable

LimitType: TypeAlias = Literal["context", "time", "working", "message", "token", "turn", "cost", "operator", "custom"]


@define(kw_only=True)
class EvalSampleLimit(Portable):
    """The limit that ended a sample; `limit` in its own unit (seconds, tokens, messages, dollars)."""

    type: LimitType
    limit: float
    reason: str | None = None


@define(kw_only=True)
class EvalRetryError(Portable):
    """The error of an earlier attempt at a sample, with the events since its last model call."""

    message: str
    traceback: str
    traceback_ansi: str
    events: list[Event] | None = None


@define(kw_only=True)
class EventsData(Portable):
    """What the events of a sample share: messages, and messages of raw requests, referred to by position."""

    messages: list[ChatMessage] = field(factory=list)
    calls: list[Any] = field(factory=list)


@define(kw_only=True)
class EvalSample(Portable):
    """The record of one sample in one epoch.

    Attributes:
        messages: the final conversation. output: the last output. scores: by scorer.
        store: at the end. events: the transcript, in order.
        started_at, completed_at: ISO 8601. total_time, working_time: seconds.
        error: what ended it; error_retries: what ended earlier attempts. limit: the limit that ended it.
    """

    id: int | str
    epoch: int
    input: str | list[ChatMessage]
    choices: list[str] | None = None
    target: str | list[str]
    description: str | None = None
    sandbox: SandboxEnvironmentSpec | None = None
    files: list[str] | None = None
    setup: str | None = None
    messages: list[ChatMessage] = field(factory=list)
    output: ModelOutput = field(factory=ModelOutput)
    scores: dict[str, Score] | None = None
    metadata: dict[str, Any] = field(factory=dict)
    store: dict[str, Any] = field(factory=dict)
    events: list[Event] = field(factory=list)
    timelines: list[Any] | None = None
    model_usage: dict[str, ModelUsage] = field(factory=dict)
    role_usage: dict[str, ModelUsage] = field(factory=dict)
    model_fallbacks: list[ModelFallback] | None = None
    started_at: str | None = None
    completed_at: str | None = None
    total_time: float | None = None
    working_time: float | None = None
    uuid: str | None = None
    invalidation: ProvenanceData | None = None
    error: EvalError | None = None
    error_retries: list[EvalRetryError] | None = None
    attachments: dict[str, str] = field(factory=dict)
    events_data: EventsData | None = None
    limit: EvalSampleLimit | None = None
    turn_count: int | None = None
    token_limit: int | None = None
    token_limit_type: str | None = None
    token_limit_usage: int | None = None
    message_limit: int | None = None
    time_limit: int | None = None

    def metadata_as(self, metadata_cls: Any) -> Any:
        """The metadata as an instance of `metadata_cls` (anything made from keyword arguments)."""
        return metadata_cls(**self.metadata)

    def summary(self) -> EvalSampleSummary:
        """The summary that lists of samples are made of, long texts cut."""
        from proctor.log.summaries import summarize

        return summarize(self)


@define(kw_only=True)
class EvalSampleSummary(Portable):
    """What a list of samples shows of one, without its messages and events.

    Attributes:
        error: its message. limit: its type. retries: how many attempts failed before.
        completed: whether the sample has ended.
    """

    id: int | str
    epoch: int
    input: str | list[ChatMessage]
    choices: list[str] | None = None
    target: str | list[str]
    description: str | None = None
    metadata: dict[str, Any] = field(factory=dict)
    scores: dict[str, Score] | None = None
    model_usage: dict[str, ModelUsage] = field(factory=dict)
    role_usage: dict[str, ModelUsage] = field(factory=dict)
    model_fallbacks: list[ModelFallback] | None = None
    started_at: str | None = None
    completed_at: str | None = None
    total_time: float | None = None
    working_time: float | None = None
    uuid: str | None = None
    error: str | None = None
    limit: str | None = None
    limit_reason: str | None = None
    retries: int | None = None
    completed: bool = False
    message_count: int | None = None
    turn_count: int | None = None
    token_limit: int | None = None
    token_limit_type: str | None = None
    token_limit_usage: int | None = None
    message_limit: int | None = None
    time_limit: int | None = None
