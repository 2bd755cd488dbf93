"""The header of a log: what was evaluated, how, and with what results.

Value classes with the field names, defaults and order of the log format. Fields whose parts proctor neither makes
nor reads are typed `Any`: they pass through as they were found.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from attrs import define, field

from proctor.log.encode import SHAPERS, encode
from proctor.log.scores import EvalSampleReductions, ProvenanceData
from proctor.model.config import GenerateConfig
from proctor.model.output import ModelUsage
from proctor.model.portable import Portable

EvalStatus: TypeAlias = Literal["started", "success", "cancelled", "error"]


@define
class SandboxEnvironmentSpec(Portable):
    """A sandbox: the provider's name and what it is configured with."""

    type: str
    config: Any = None


def _shape_sandbox(spec: SandboxEnvironmentSpec) -> dict[str, Any]:
    """Its JSON: a configuration that is no text becomes one.

    Inspect asks the provider of this name to make an object of it, and one that cannot makes the log unreadable.
    Compose files are the exception: its own providers read those.
    """
    made: dict[str, Any] = {"type": spec.type}
    if isinstance(spec.config, str) or (isinstance(spec.config, dict) and "services" in spec.config):
        made["config"] = spec.config
    elif spec.config is not None:
        made["config"] = encode(spec.config).decode()
    return made


SHAPERS[SandboxEnvironmentSpec] = _shape_sandbox


@define(kw_only=True)
class EvalError(Portable):
    """An error with its traceback, plain and coloured."""

    message: str
    traceback: str
    traceback_ansi: str


@define(kw_only=True)
class EvalDataset(Portable):
    """The dataset: `samples` counts those evaluated, `sample_ids` names them in order."""

    name: str | None = None
    location: str | None = None
    samples: int | None = None
    sample_ids: list[str | int] | None = None
    shuffled: bool | None = None


@define(kw_only=True)
class EvalConfig(Portable):
    """The options of the evaluation; None where an option was not given."""

    limit: int | tuple[int, int] | None = None
    sample_id: str | int | list[str | int] | None = None
    sample_shuffle: bool | int | None = None
    epochs: int | None = None
    epochs_reducer: list[str] | None = None
    approval: Any = None
    review: Any = None
    sentinel: Any = None
    notification: bool | str | None = None
    fail_on_error: bool | float | None = None
    continue_on_fail: bool | None = None
    retry_on_error: int | None = None
    score_on_error: bool | None = None
    message_limit: int | None = None
    token_limit: int | None = None
    token_limit_type: str | None = None
    turn_limit: int | None = None
    time_limit: int | None = None
    working_limit: int | None = None
    cost_limit: float | None = None
    max_samples: int | None = None
    max_dataset_memory: int | None = None
    max_tasks: int | None = None
    max_subprocesses: int | None = None
    max_sandboxes: int | None = None
    sandbox_cleanup: bool | None = None
    sandbox_prebuilt: bool | None = None
    log_samples: bool | None = None
    log_realtime: bool | None = None
    log_images: bool | None = None
    log_model_api: bool | None = None
    log_buffer: int | None = None
    log_shared: int | None = None
    score_display: bool | None = None
    acp_server: bool | int | str | None = None


@define(kw_only=True)
class EvalRevision(Portable):
    """The commit of the repository the task was run from."""

    type: Literal["git"] = "git"
    origin: str
    commit: str
    dirty: bool | None = None


@define(kw_only=True)
class EvalMetricDefinition(Portable):
    """A metric by name, with its options."""

    name: str
    options: dict[str, Any] | None = None


@define(kw_only=True)
class EvalScorer(Portable):
    """A scorer by name, with its options and the metrics computed from its scores."""

    name: str
    options: dict[str, Any] | None = None
    metrics: Any = None
    metadata: dict[str, Any] | None = None


@define(kw_only=True)
class HeadlineMetric(Portable):
    """Which metric stands for the whole evaluation."""

    scorer: str | None = None
    score: str | None = None
    metric: str | None = None
    reducer: str | None = None


@define(kw_only=True)
class EvalModelConfig(Portable):
    """A model of a role: its name and how it was made."""

    model: str
    config: GenerateConfig = field(factory=GenerateConfig)
    base_url: str | None = None
    args: dict[str, Any] = field(factory=dict)


@define(kw_only=True)
class EvalSpec(Portable):
    """What is evaluated: task, dataset, model, options and the code they come from."""

    eval_set_id: str | None = None
    eval_id: str = ""
    run_id: str = ""
    created: str
    task: str
    task_id: str = ""
    task_version: int | str = 0
    task_file: str | None = None
    task_display_name: str | None = None
    task_description: str | None = None
    task_registry_name: str | None = None
    task_attribs: dict[str, Any] = field(factory=dict)
    task_args: dict[str, Any] = field(factory=dict)
    task_args_passed: dict[str, Any] = field(factory=dict)
    solver: str | None = None
    solver_args: dict[str, Any] | None = None
    solver_args_passed: dict[str, Any] | None = None
    tags: list[str] | None = None
    dataset: EvalDataset
    sandbox: SandboxEnvironmentSpec | None = None
    model: str
    model_generate_config: GenerateConfig = field(factory=GenerateConfig)
    model_base_url: str | None = None
    model_args: dict[str, Any] = field(factory=dict)
    model_roles: dict[str, EvalModelConfig | list[EvalModelConfig]] | None = None
    config: EvalConfig
    revision: EvalRevision | None = None
    packages: dict[str, str] = field(factory=dict)
    metadata: dict[str, Any] | None = None
    viewer: Any = None
    scorers: list[EvalScorer] | None = None
    metrics: Any = None
    headline_metric: HeadlineMetric | None = None
    shards: Any = None


@define(kw_only=True)
class EvalPlanStep(Portable):
    """One solver of the plan: its name, every argument, and those that were passed."""

    solver: str
    params: dict[str, Any] = field(factory=dict)
    params_passed: dict[str, Any] = field(factory=dict)


@define(kw_only=True)
class EvalPlan(Portable):
    """The solvers in order, and the configuration they generate with."""

    name: str = "plan"
    steps: list[EvalPlanStep] = field(factory=list)
    finish: EvalPlanStep | None = None
    config: GenerateConfig = field(factory=GenerateConfig)


@define(kw_only=True)
class EvalMetric(Portable):
    """A metric's value."""

    name: str
    group: str | None = None
    value: int | float
    params: dict[str, Any] = field(factory=dict)
    metadata: dict[str, Any] | None = None


@define(kw_only=True)
class EvalScore(Portable):
    """The metrics of one scorer, over how many samples."""

    name: str
    scorer: str
    reducer: str | None = None
    scored_samples: int | None = None
    unscored_samples: int | None = None
    params: dict[str, Any] = field(factory=dict)
    metrics: dict[str, EvalMetric] = field(factory=dict)
    metadata: dict[str, Any] | None = None


@define(kw_only=True)
class EvalResults(Portable):
    """The results: metrics by scorer, and how many samples there were and were completed."""

    total_samples: int = 0
    completed_samples: int = 0
    logged_samples: int | None = None
    early_stopping: Any = None
    scores: list[EvalScore] = field(factory=list)
    headline: HeadlineMetric | None = None
    metadata: dict[str, Any] | None = None


@define(kw_only=True)
class EvalStats(Portable):
    """When it ran (ISO 8601), what it used by model and by role, how connection limits moved."""

    started_at: str = ""
    completed_at: str = ""
    model_usage: dict[str, ModelUsage] = field(factory=dict)
    role_usage: dict[str, ModelUsage] = field(factory=dict)
    connection_limit_history: list[Any] = field(factory=list)


@define(kw_only=True)
class LogUpdate(Portable):
    """An edit of a finished log's tags or metadata."""

    edits: list[Any] = field(factory=list)
    provenance: ProvenanceData


@define(kw_only=True)
class ConfigUpdate(Portable):
    """Options that were changed while the evaluation ran."""

    changes: list[Any]
    scope: Literal["task", "process"]
    provenance: ProvenanceData


@define(kw_only=True)
class LogStart(Portable):
    """The first member of a log, from which a header is made while there is none."""

    version: int = 2
    eval: EvalSpec
    plan: EvalPlan = field(factory=EvalPlan)


__all__ = [
    "ConfigUpdate",
    "EvalConfig",
    "EvalDataset",
    "EvalError",
    "EvalMetric",
    "EvalMetricDefinition",
    "EvalModelConfig",
    "EvalPlan",
    "EvalPlanStep",
    "EvalResults",
    "EvalRevision",
    "EvalSampleReductions",
    "EvalScore",
    "EvalScorer",
    "EvalSpec",
    "EvalStats",
    "EvalStatus",
    "HeadlineMetric",
    "LogStart",
    "LogUpdate",
    "SandboxEnvironmentSpec",
]
