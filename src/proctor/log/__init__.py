"""Logs: what an evaluation leaves behind, as values, and reading and writing them.

The value classes are imported here; what reads and writes files is imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    LoggingLevel,
    LoggingMessage,
    ModelEvent,
    SampleInitEvent,
    SampleLimitEvent,
    SandboxEvent,
    ScoreEditEvent,
    ScoreEvent,
    SpanBeginEvent,
    SpanEndEvent,
    StateEvent,
    StepEvent,
    StoreEvent,
    SubtaskEvent,
    ToolEvent,
)
from proctor.log.records import (
    ConfigUpdate,
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalLog,
    EvalMetric,
    EvalMetricDefinition,
    EvalPlan,
    EvalPlanStep,
    EvalResults,
    EvalRetryError,
    EvalRevision,
    EvalSample,
    EvalSampleLimit,
    EvalSampleReductions,
    EvalSampleScore,
    EvalSampleSummary,
    EvalScore,
    EvalScorer,
    EvalSpec,
    EvalStats,
    EvalStatus,
    HeadlineMetric,
    LogUpdate,
    ProvenanceData,
)
from proctor.log.transcript import Transcript, transcript

if TYPE_CHECKING:
    from proctor.log.reader import (
        EvalLogInfo,
        list_eval_logs,
        list_eval_logs_async,
        read_eval_log,
        read_eval_log_async,
        read_eval_log_sample,
        read_eval_log_sample_async,
        read_eval_log_sample_summaries,
        read_eval_log_sample_summaries_async,
        read_eval_log_samples,
        read_eval_log_samples_async,
        write_eval_log,
        write_eval_log_async,
    )
    from proctor.log.recover import recover_eval_log, recover_eval_log_async

_READING = frozenset(
    {
        "EvalLogInfo",
        "list_eval_logs",
        "list_eval_logs_async",
        "read_eval_log",
        "read_eval_log_async",
        "read_eval_log_sample",
        "read_eval_log_sample_async",
        "read_eval_log_sample_summaries",
        "read_eval_log_sample_summaries_async",
        "read_eval_log_samples",
        "read_eval_log_samples_async",
        "write_eval_log",
        "write_eval_log_async",
    }
)
_RECOVERING = frozenset({"recover_eval_log", "recover_eval_log_async"})


def __getattr__(name: str) -> Any:
    if name in _READING:
        from proctor.log import reader

        return getattr(reader, name)
    if name in _RECOVERING:
        from proctor.log import recover

        return getattr(recover, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AnchorEvent",
    "ApprovalEvent",
    "BranchEvent",
    "CompactionEvent",
    "ConfigUpdate",
    "ErrorEvent",
    "EvalConfig",
    "EvalDataset",
    "EvalError",
    "EvalLog",
    "EvalLogInfo",
    "EvalMetric",
    "EvalMetricDefinition",
    "EvalPlan",
    "EvalPlanStep",
    "EvalResults",
    "EvalRetryError",
    "EvalRevision",
    "EvalSample",
    "EvalSampleLimit",
    "EvalSampleReductions",
    "EvalSampleScore",
    "EvalSampleSummary",
    "EvalScore",
    "EvalScorer",
    "EvalSpec",
    "EvalStats",
    "EvalStatus",
    "Event",
    "HeadlineMetric",
    "InfoEvent",
    "InputEvent",
    "InterruptEvent",
    "JsonChange",
    "LogUpdate",
    "LoggerEvent",
    "LoggingLevel",
    "LoggingMessage",
    "ModelEvent",
    "ProvenanceData",
    "SampleInitEvent",
    "SampleLimitEvent",
    "SandboxEvent",
    "ScoreEditEvent",
    "ScoreEvent",
    "SpanBeginEvent",
    "SpanEndEvent",
    "StateEvent",
    "StepEvent",
    "StoreEvent",
    "SubtaskEvent",
    "ToolEvent",
    "Transcript",
    "list_eval_logs",
    "list_eval_logs_async",
    "read_eval_log",
    "read_eval_log_async",
    "read_eval_log_sample",
    "read_eval_log_sample_async",
    "read_eval_log_sample_summaries",
    "read_eval_log_sample_summaries_async",
    "read_eval_log_samples",
    "read_eval_log_samples_async",
    "recover_eval_log",
    "recover_eval_log_async",
    "transcript",
    "write_eval_log",
    "write_eval_log_async",
]
