"""What a plan comes to, without running it: its runs, every limit with its source, warnings, the time a quota takes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict, frozen, has

from proctor.dataset import Sample
from proctor.evaluation.api import eval
from proctor.evaluation.call import EvalCall
from proctor.evaluation.effective import (
    Effective,
    budgets,
    connections,
    run_limits,
    runtime_limits,
    sample_slots,
    task_slots,
)
from proctor.evaluation.feed import count_samples
from proctor.evaluation.fit import descriptors_needed, unfit, uses
from proctor.evaluation.plan import PlannedRun, Tasks, task_label
from proctor.evaluation.said import Said
from proctor.evaluation.sandboxing import sandbox_limits, sandbox_warnings
from proctor.model.config import AdaptiveConcurrency
from proctor.model.turn import CHARACTERS_A_TOKEN, tokens_of
from proctor.runtime import Runtime, backend
from proctor.runtime.descriptors import UNLIMITED, descriptors
from proctor.runtime.settings import BUILT_IN


@frozen(kw_only=True)
class RunReport:
    """One run of a plan.

    Attributes:
        number: its place, from 1.
        varied: the fields of the configuration that the plan varies, with this run's values.
        samples: of the dataset that will run; epochs: how often each; limits: all that hold for it.
        tokens: of the inputs of all its samples, estimated; 0 where no quota asks for it.
    """

    number: int
    task: str
    model: str
    varied: Mapping[str, Any]
    samples: int
    epochs: int
    limits: tuple[Effective, ...]
    tokens: int = 0

    @property
    def total(self) -> int:
        """Samples × epochs."""
        return self.samples * self.epochs


@frozen(kw_only=True)
class Quota:
    """A declared quota and the time that the plan takes at its pace.

    Attributes:
        calls: of the model, one for each sample. seconds: at least.
        tokens: of the inputs, by their length, where the quota is one of tokens; what is answered comes on top.
    """

    model: str
    per_minute: float
    calls: int
    seconds: float
    tokens: int | None = None


@frozen(kw_only=True)
class PlanReport:
    """A plan as it would be run.

    Attributes:
        limits: those of the whole call and of its runtime.
        quotas: the declared ones. seconds: the shortest possible time that they allow, None without any.
        descriptors: open files and connections: what the plan can need, and what this process may have.
        warnings: what will not work as well as it could, in words.
    """

    runs: tuple[RunReport, ...]
    limits: tuple[Effective, ...]
    quotas: tuple[Quota, ...]
    seconds: float | None
    descriptors: Mapping[str, int | None]
    warnings: tuple[str, ...]

    @property
    def total(self) -> int:
        """Samples × epochs of all runs."""
        return sum(run.total for run in self.runs)

    @property
    def fits(self) -> bool:
        """Whether this process may have the open files and connections that the plan can need."""
        needed, allowed = self.descriptors["needed"], self.descriptors["allowed"]
        return allowed is None or needed is None or needed <= allowed

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON knows it."""
        return {
            "runs": [
                {
                    "number": run.number, "task": run.task, "model": run.model, "varied": _plain(run.varied),
                    "samples": run.samples, "epochs": run.epochs, "total": run.total, "limits": _named(run.limits),
                }
                for run in self.runs
            ],
            "limits": _named(self.limits),
            "total": self.total,
            "quotas": [asdict(quota) for quota in self.quotas],
            "seconds": self.seconds,
            "descriptors": dict(self.descriptors), "fits": self.fits,
            "warnings": list(self.warnings),
        }  # fmt: skip


def plan_report(tasks: Tasks = None, **arguments: Any) -> PlanReport:
    """What `eval` with these arguments would run, and under which limits; nothing is run.

    Raises:
        UsageError: there is a mistake in the call, or a dataset cannot be used.
    """
    parameters = inspect.signature(eval).parameters
    options = {name: arguments.get(name) for name in parameters}
    config = {name: value for name, value in arguments.items() if name not in parameters}
    call = EvalCall.of({**options, "tasks": tasks, "config": config})
    return backend.run(_reported, call, backend=call.said.get("async_backend"))


async def _reported(call: EvalCall) -> PlanReport:
    async with call.in_runtime() as runtime:
        return await report(call.plan(), runtime, call.said)


async def report(plan: Sequence[PlannedRun], runtime: Runtime, said: Said) -> PlanReport:
    """What a plan comes to. It reads the datasets.

    Raises:
        UsageError: a dataset cannot be used, or an option does not fit it.
    """
    runs = tuple([await _run(number, run, plan, runtime) for number, run in enumerate(plan, 1)])
    at_once, quotas = task_slots(plan), tuple(_quotas(plan, runs))
    slowest: dict[str, float] = {}
    for quota in quotas:
        slowest[quota.model] = max(quota.seconds, slowest.get(quota.model, 0.0))
    took = list(slowest.values())
    total_samples = runtime.shared["max_total_samples"].value
    needed, allowed = descriptors_needed(plan, total_samples), descriptors()
    warnings = [*_unsaturated(plan, total_samples), *sandbox_warnings(plan, runtime)]
    if needed > allowed.hard:
        warnings.append(unfit(needed, allowed))
    return PlanReport(
        runs=runs,
        limits=(at_once, *budgets(said), *runtime_limits(runtime)),
        quotas=quotas,
        # Each run holds one of the places of tasks for as long as its model's quota makes it last.
        seconds=max(*took, sum(took) / at_once.value) if took else None,
        descriptors={
            "needed": needed,
            "allowed": None if allowed.hard == UNLIMITED else allowed.hard,
        },
        warnings=tuple(warnings),
    )


async def _run(number: int, run: PlannedRun, plan: Sequence[PlannedRun], runtime: Runtime) -> RunReport:
    tokens, epochs = [0], run.options.epochs.epochs if run.options.epochs else 1

    def look(sample: Sample) -> None:
        said = sample.input
        tokens[0] += len(said) // CHARACTERS_A_TOKEN if isinstance(said, str) else tokens_of(said)

    looks = look if run.options.tokens_per_minute else None
    samples = await count_samples(run.task.dataset, run.options, runtime.to_thread, looks)
    return RunReport(
        number=number,
        task=task_label(run.task),
        model=str(run.model),
        varied=run.varied,
        samples=samples,
        epochs=epochs,
        tokens=tokens[0] * epochs,
        limits=(*run_limits(run), *sandbox_limits(run, plan, runtime)),
    )


def _quotas(plan: Sequence[PlannedRun], runs: Sequence[RunReport]) -> list[Quota]:
    found: list[Quota] = []
    for model in dict.fromkeys(run.model for run in runs):
        calls = sum(run.total for run in runs if run.model == model)
        tokens = sum(run.tokens for run in runs if run.model == model)
        if rate := plan[0].options.requests_per_minute:
            found.append(Quota(model=model, per_minute=rate, calls=calls, seconds=60 * calls / rate))
        if rate := plan[0].options.tokens_per_minute:
            found.append(Quota(model=model, per_minute=rate, calls=calls, seconds=60 * tokens / rate, tokens=tokens))
    return found


def _unsaturated(plan: Sequence[PlannedRun], total_samples: int | None) -> list[str]:
    """Models whose connections the samples of the plan can never keep busy."""
    said = []
    for use in uses(plan, total_samples):
        if use.adaptive or use.samples >= use.connections:
            continue
        runs = [run for run in plan if str(run.model) == use.model]
        slots, allowed = sample_slots(runs[0]), connections(runs[0])
        names = "max_samples"
        if total_samples is not None and total_samples < slots.value:
            names = "max_total_samples"
        said.append(
            f"{use.model}: at most {use.samples} samples run at once ({names}), so that {use.connections} connections "
            f"(max_connections, {allowed.source}) cannot all be used, unless a sample makes several calls at once; "
            f"raise {names} or lower max_connections"
        )
    return said


def differing(runs: Sequence[RunReport]) -> list[tuple[Effective, list[RunReport]]]:
    """The limits of runs, each with the runs that it holds for, those of one name together."""
    found: dict[tuple[str, str, str], tuple[Effective, list[RunReport]]] = {}
    names = [limit.name for limit in runs[0].limits] if runs else []
    for run in runs:
        for limit in run.limits:
            key = (limit.name, repr(limit.value), limit.source)
            found.setdefault(key, (limit, []))[1].append(run)
    return sorted(found.values(), key=lambda pair: names.index(pair[0].name))


def shown(limit: Effective) -> str:
    """A limit's value in words."""
    value = limit.value
    if value is None:
        return "learned" if limit.note == "learned" else "unlimited" if limit.name == "max_retries" else "none"
    if isinstance(value, AdaptiveConcurrency):
        return f"{value.min}-{value.start}-{value.max}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _named(limits: Sequence[Effective]) -> dict[str, Any]:
    return {
        limit.name: {"value": _plain(limit.value), "source": limit.source or BUILT_IN, "note": limit.note}
        for limit in limits
    }


def _plain(value: Any) -> Any:
    if has(type(value)):
        return asdict(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)
