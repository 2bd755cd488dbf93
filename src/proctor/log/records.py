"""Every value class of a log, and `encode`, which turns one into JSON.

The classes live in modules of their own by subject; this is the module to import them from.
"""

from __future__ import annotations

from typing import Any

from attrs import define, field

from proctor.log.encode import encode, to_builtins
from proctor.log.samples import (
    EvalRetryError,
    EvalSample,
    EvalSampleLimit,
    EvalSampleSummary,
    EventsData,
    LimitType,
)
from proctor.log.scores import (
    UNCHANGED,
    EvalSampleReductions,
    EvalSampleScore,
    ProvenanceData,
    Score,
    ScoreEdit,
    ScoreReason,
    Value,
)
from proctor.log.spec import (
    ConfigUpdate,
    EvalConfig,
    EvalDataset,
    EvalError,
    EvalMetric,
    EvalMetricDefinition,
    EvalModelConfig,
    EvalPlan,
    EvalPlanStep,
    EvalResults,
    EvalRevision,
    EvalScore,
    EvalScorer,
    EvalSpec,
    EvalStats,
    EvalStatus,
    HeadlineMetric,
    LogStart,
    LogUpdate,
    SandboxEnvironmentSpec,
)
from proctor.model.portable import Portable


@define(kw_only=True)
class EvalLog(Portable):
    """A log: its header, and its samples where they were read.

    Attributes:
        status: started, success, cancelled or error. results: None until it is finished.
        samples, reductions: None when only the header was read.
        location: the path it was read from or written to; etag: of a stored object. Neither is written.
        pacing: what pacing decided for its models, each with time, model, kind, value and reason; kept in a member of
            its own (``_proctor/pacing.json``), so that only logs in that format have it.
    """

    version: int = 2
    status: EvalStatus = "started"
    eval: EvalSpec
    plan: EvalPlan = field(factory=EvalPlan)
    results: EvalResults | None = None
    stats: EvalStats = field(factory=EvalStats)
    error: EvalError | None = None
    invalidated: bool = False
    log_updates: list[LogUpdate] | None = None
    config_updates: list[ConfigUpdate] | None = None
    tags: list[str] = field(factory=list)
    metadata: dict[str, Any] = field(factory=dict)
    samples: list[EvalSample] | None = None
    reductions: list[EvalSampleReductions] | None = None
    location: str = field(default="", metadata={"written": False})
    etag: str | None = field(default=None, metadata={"written": False})
    pacing: list[dict[str, Any]] | None = field(default=None, metadata={"written": False})


__all__ = [
    "ConfigUpdate",
    "EvalConfig",
    "EvalDataset",
    "EvalError",
    "EvalLog",
    "EvalMetric",
    "EvalMetricDefinition",
    "EvalModelConfig",
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
    "EventsData",
    "HeadlineMetric",
    "LimitType",
    "LogStart",
    "LogUpdate",
    "ProvenanceData",
    "SandboxEnvironmentSpec",
    "Score",
    "ScoreEdit",
    "ScoreReason",
    "UNCHANGED",
    "Value",
    "encode",
    "to_builtins",
]
