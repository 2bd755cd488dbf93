"""The limits of a run as they hold, each with the place it came from: what `proctor plan` shows and the engine uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from proctor.evaluation.budget import BUDGETS
from proctor.evaluation.plan import PlannedRun
from proctor.evaluation.said import Said
from proctor.model.connections import asked
from proctor.model.pacing.gate import MOST_SAMPLES
from proctor.model.retry import ATTEMPT_TIMEOUT
from proctor.runtime import Runtime
from proctor.runtime.settings import BUILT_IN, Resolved

PROVIDER: Final = "provider"
ADAPTIVE: Final = "adaptive"
LOG_BUFFER: Final = 64  # records that may wait for a log's writer


@frozen
class Effective:
    """A limit in force.

    Attributes:
        value: None where there is no limit.
        source: `built-in`, ``provider``, ``environment variable NAME``, ``model's config``, ``task``, ``eval()
            argument`` or ``command line``.
        note: how the value comes about, where that is not plain.
    """

    name: str
    value: Any
    source: str = BUILT_IN
    note: str = ""


def connections(run: PlannedRun) -> Effective:
    """Calls of the run's model that may be in flight: a number, or ``adaptive``."""
    config, held = run.model.config, run.model.connections()
    if config.max_connections is not None:
        return _said(run, "max_connections", config.max_connections)
    wanted = asked(config, run.model.api)
    source = PROVIDER if wanted is None else run.sources.get("adaptive_connections", BUILT_IN)
    if held.fixed is not None:
        bounded = wanted is not None and config.adaptive_connections is not False
        return Effective(
            "max_connections",
            held.fixed,
            source if bounded else PROVIDER,
            "the smaller of the provider's number and the maximum of adaptive_connections" if bounded else "",
        )
    bounds = held.adaptive(run.model.max_connections())
    note = f"{bounds.min} to {bounds.max:,}, from {bounds.start} on; one call until the first answer"
    return Effective("max_connections", ADAPTIVE, BUILT_IN if wanted is None else source, note)


def adaptive(run: PlannedRun) -> Effective:
    """Whether connections adapt, within which bounds."""
    config = run.model.config
    value = True if config.adaptive_connections is None else config.adaptive_connections
    note = ""
    if value is not False and config.max_connections is not None:
        note = "off: max_connections is given"
    elif value is not False and not run.model.api.adapts:
        note = "off: the provider has a number of its own"
    return _said(run, "adaptive_connections", value, note)


def gated(run: PlannedRun) -> bool:
    """Whether the sample gate says how many samples run at once."""
    return run.options.max_samples is None and run.model.connections().fixed is None


def sample_slots(run: PlannedRun, connected: int | None = None) -> Effective:
    """Samples of the run's task that may run at once.

    Args:
        connected: the number of connections it goes by, default that of the run's configuration.
    """
    if run.options.max_samples is not None:
        return _said(run, "max_samples", run.options.max_samples)
    fixed = connected or run.model.connections().fixed
    if fixed is None:
        return Effective("max_samples", MOST_SAMPLES, BUILT_IN, "at most; as many as the model has room for")
    return Effective("max_samples", fixed + 1, BUILT_IN, "max_connections + 1")


def task_slots(plan: Sequence[PlannedRun]) -> Effective:
    """Runs of a plan that may happen at once: one, and with several models as many as there are models."""
    if plan and plan[0].options.max_tasks is not None:
        return _said(plan[0], "max_tasks", plan[0].options.max_tasks)
    models = len({str(run.model) for run in plan})
    return Effective("max_tasks", max(1, models), BUILT_IN, "one for each model" if models > 1 else "")


def run_limits(run: PlannedRun) -> list[Effective]:
    """Every limit of one run."""
    options, config = run.options, run.model.config
    found = [sample_slots(run), connections(run), adaptive(run)]
    for name in ("requests_per_minute", "tokens_per_minute"):
        value = getattr(options, name)
        found.append(_said(run, name, value, "learned" if value is None else "no quota" if value == 0 else ""))
    found.append(_said(run, "epochs", options.epochs.epochs if options.epochs else 1))
    for name, built_in in OPTIONS.items():
        value = getattr(options, name)
        found.append(_said(run, name, built_in if value is None else value))
    for name, built_in in CONFIG.items():
        value = getattr(config, name)
        found.append(_said(run, name, built_in if value is None else value))
    return found


def budgets(said: Said) -> list[Effective]:
    """What all runs of a call may use together."""
    found = [(name, said.find(name)) for name in BUDGETS]
    return [Effective(name, budget.value, budget.source) for name, budget in found]


def runtime_limits(runtime: Runtime) -> list[Effective]:
    """The limits that all evaluations in a runtime share."""
    found = []
    for name, shared in runtime.shared.items():
        said = shared.resolved
        if said.value is None and (rule := RUNTIME.get(name)) is not None:
            found.append(rule(runtime))
        else:
            found.append(Effective(name, said.value, said.source))
    backend: Resolved[str | None] = runtime.settings.resolved("async_backend")
    if backend.value is not None:
        found.append(Effective("async_backend", backend.value, backend.source))
    return found


def _said(run: PlannedRun, name: str, value: Any, note: str = "") -> Effective:
    return Effective(name, value, run.sources.get(name, BUILT_IN), note)


OPTIONS: Final[Mapping[str, Any]] = {
    "message_limit": None,
    "token_limit": None,
    "turn_limit": None,
    "time_limit": None,
    "working_limit": None,
    "cost_limit": None,
    "retry_on_error": 0,
    "fail_on_error": True,
    "max_dataset_memory": None,
    "log_buffer": LOG_BUFFER,
}
CONFIG: Final[Mapping[str, Any]] = {
    "max_retries": None,
    "timeout": None,
    "attempt_timeout": ATTEMPT_TIMEOUT,
    "stream_idle_timeout": None,
    "max_tokens": None,
}
RUNTIME: Final[Mapping[str, Callable[[Runtime], Effective]]] = {
    "max_subprocesses": lambda runtime: Effective(
        "max_subprocesses", runtime.settings.subprocess_limit().value, BUILT_IN, "processors"
    ),
    "max_sandboxes": lambda _: Effective("max_sandboxes", None, PROVIDER, "the sandbox provider's number"),
}
