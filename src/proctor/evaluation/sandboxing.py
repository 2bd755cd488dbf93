"""Sandboxes in an evaluation: which one a sample gets, its block around the sample, and what a plan says of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from proctor.dataset import MemoryDataset
from proctor.dataset.sample import as_sandbox
from proctor.errors import OptionError
from proctor.evaluation.effective import PROVIDER, Effective, connections, task_slots
from proctor.evaluation.ending import CLEANUP, LOG_RESERVE, Ending
from proctor.evaluation.plan import PlannedRun, task_label
from proctor.log.spec import SandboxEnvironmentSpec
from proctor.runtime import Runtime
from proctor.runtime.settings import BUILT_IN
from proctor.sandbox.environment import find_provider
from proctor.sandbox.sample import SandboxSample, open_sandbox_sample
from proctor.sandbox.task import Bounded, TaskSandboxes, Want
from proctor.scorer.results import loggable

if TYPE_CHECKING:
    from proctor.evaluation.samplerun import Attempt

SEPARATOR: Final = ":"


def read_sandbox(option: str, value: Any) -> SandboxEnvironmentSpec:
    """A sandbox from what an option says: a type, ``type:config``, a tuple, or a `SandboxEnvironmentSpec`.

    Raises:
        OptionError: it is none of these.
    """
    if isinstance(value, str):
        kind, separator, config = value.partition(SEPARATOR)
        value = (kind, config) if separator and config else kind
    try:
        spec = as_sandbox(value)
    except TypeError:
        spec = None
    if spec is None or not spec.type:
        raise OptionError(f"{option} must be a type of sandbox, or a type and its configuration, not {value!r}")
    return spec


def check_sandboxes(plan: Sequence[PlannedRun]) -> None:
    """Refuse a plan whose tasks or options name sandboxes that nobody provides.

    Raises:
        UsageError: they do; the text lists near or all names.
    """
    for spec in {id(run.options.sandbox): run.options.sandbox for run in plan}.values():
        if spec is not None:
            find_provider(spec.type)


def task_sandboxes(plan: PlannedRun, runtime: Runtime) -> TaskSandboxes:
    """The sandboxes of one planned run."""
    task = plan.task
    places = [place for place in (task.dataset.location, task.file) if place]
    folders = [Path(place).absolute().parent for place in places if "://" not in place]
    return TaskSandboxes(
        runtime=runtime,
        task_name=task_label(task),
        spec=plan.options.sandbox,
        cleanup=plan.options.sandbox_cleanup is not False,
        folders=list(dict.fromkeys(folders)),
    )


def bounded_by(ending: Ending) -> Bounded:
    """The shield of a removal: 30 s, and of an ending's budget what is left before the log's reserve."""
    return lambda: ending.shielded(CLEANUP, reserve=LOG_RESERVE)


def sandbox_block(attempt: Attempt) -> SandboxSample:
    """The block around one attempt at a sample."""
    owner = attempt.owner
    return open_sandbox_sample(
        owner.sandbox,
        label=f"sample {owner.sample.id} (epoch {owner.epoch})",
        files=owner.sample.files,
        setup=owner.sample.setup,
        bounded=bounded_by(owner.ending),
        failed=lambda: attempt.failure is not None,
    )


def logged_sandbox(spec: SandboxEnvironmentSpec | None) -> SandboxEnvironmentSpec | None:
    """A sandbox as logs hold it: its configuration is text or plain data."""
    if spec is None or spec.config is None or isinstance(spec.config, str):
        return spec
    return SandboxEnvironmentSpec(spec.type, loggable({"config": spec.config})["config"])


# What `proctor plan` says


def sandbox_kinds(run: PlannedRun) -> list[str]:
    """The types of a run's sandboxes: the task's, else those of its samples, where these are in memory."""
    if run.options.sandbox is not None:
        return [run.options.sandbox.type]
    dataset = run.task.dataset
    if not getattr(dataset, "in_memory", isinstance(dataset, MemoryDataset)):
        return []
    return list(dict.fromkeys(sample.sandbox.type for sample in dataset if sample.sandbox is not None))


def sandbox_limits(run: PlannedRun, plan: Sequence[PlannedRun], runtime: Runtime) -> Iterator[Effective]:
    """The types of a run's sandboxes and how many may live; nothing for a plan without sandboxes."""
    if not any(map(sandbox_kinds, plan)):
        return
    kinds = sandbox_kinds(run)
    source = run.sources.get("sandbox", BUILT_IN if run.options.sandbox or not kinds else "samples")
    yield Effective("sandbox", ", ".join(kinds) or None, source)
    if not kinds:
        yield Effective("sandboxes at once", None)
    for kind in kinds[:1]:  # max_sandboxes holds for each type; without it each has a number of its own
        yield live_limit(kind, runtime)


def live_limit(kind: str, runtime: Runtime) -> Effective:
    """How many sandboxes of a type may live at once."""
    said = runtime.shared["max_sandboxes"].resolved
    if said.value is not None:
        return Effective("sandboxes at once", said.value, said.source, "max_sandboxes")
    return Effective("sandboxes at once", find_provider(kind).default_concurrency(), PROVIDER, f"of {kind}")


def sandbox_warnings(plan: Sequence[PlannedRun], runtime: Runtime) -> list[str]:
    """What of a plan its sandboxes do not allow: samples of all tasks that run at once share those of a type."""
    at_once: int = task_slots(plan).value
    by_kind: dict[str, list[PlannedRun]] = {}
    for run in plan:
        for kind in sandbox_kinds(run):
            by_kind.setdefault(kind, []).append(run)
    said: dict[str, None] = {}
    for kind, runs in by_kind.items():
        limit = live_limit(kind, runtime)
        if limit.value is None:
            continue
        begins = f"{kind}: at most {limit.value} sandboxes live at once (max_sandboxes, {limit.source}), so that "
        slots = sum(sorted((run.options.max_samples or 0 for run in runs), reverse=True)[:at_once])
        if limit.value < slots:
            of = f" of {min(at_once, len(runs))} tasks at once" if min(at_once, len(runs)) > 1 else ""
            said[f"{begins}max_samples {slots}{of} cannot be reached; raise max_sandboxes or lower max_samples"] = None
            continue
        for run in runs:
            if run.model.config.max_connections is not None and limit.value < connections(run).value:
                said[
                    f"{begins}{connections(run).value} connections of {run.model} cannot all be used, unless a sample "
                    "makes several calls at once; raise max_sandboxes or lower max_connections"
                ] = None
    return list(said)


__all__ = [
    "Want",
    "bounded_by",
    "check_sandboxes",
    "live_limit",
    "logged_sandbox",
    "read_sandbox",
    "sandbox_block",
    "sandbox_kinds",
    "sandbox_limits",
    "sandbox_warnings",
    "task_sandboxes",
]
