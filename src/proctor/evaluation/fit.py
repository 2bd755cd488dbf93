"""Whether a plan fits this process: descriptors against connections, before anything starts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from attrs import frozen

from proctor.dataset import MemoryDataset
from proctor.errors import OptionError
from proctor.evaluation.effective import sample_slots, task_slots
from proctor.evaluation.plan import PlannedRun
from proctor.evaluation.sandboxing import sandbox_kinds
from proctor.model import Model
from proctor.runtime import Runtime
from proctor.runtime.cpus import cpus
from proctor.runtime.descriptors import AMPLE, Descriptors, descriptors, raise_descriptors

OWN: Final = 64  # of the interpreter, the loop, the display and the libraries
EACH_TASK: Final = 7  # of a task's log, its journal and its dataset, and what each of them, and the scores, page out
EACH_COMMAND: Final = 4  # of a command that runs: three pipes, and what tells of its end


@frozen(kw_only=True)
class ModelUse:
    """What the runs of one model can have at once.

    Attributes:
        connections: calls in flight that are allowed; where pacing adapts them, those it begins with.
        adaptive: pacing adapts them. samples: places for samples at once.
        filled: those of the places that the datasets can fill, as far as their sizes are known.
        connected: it is called over a network, so that each call takes a descriptor.
    """

    model: str
    connections: int
    adaptive: bool
    samples: int
    filled: int
    connected: bool

    @property
    def busy(self) -> int:
        """Connections that can be busy when each sample makes one call at a time."""
        return min(self.connections, self.filled)


def uses(plan: Sequence[PlannedRun], total_samples: int | None) -> list[ModelUse]:
    """For each model of a plan what its runs can have at once, in plan order.

    Args:
        total_samples: samples of all tasks that may run at once, None without limit.
    """
    at_once = task_slots(plan).value
    by_model: dict[tuple[str, str | None], list[PlannedRun]] = {}
    for run in plan:
        by_model.setdefault((str(run.model), run.model.base_url), []).append(run)
    found = []
    for (name, url), runs in by_model.items():
        most = sys.maxsize if total_samples is None else total_samples
        found.append(
            ModelUse(
                model=name,
                connections=max(at_first(run.model) for run in runs),
                adaptive=any(run.model.connections().fixed is None for run in runs),
                samples=min(most, _largest(at_once, (sample_slots(run).value for run in runs))),
                filled=min(most, _largest(at_once, map(_filled, runs))),
                connected=url is not None,
            )
        )
    return found


def descriptors_needed(plan: Sequence[PlannedRun], total_samples: int | None) -> int:
    """Open files and sockets that a plan can come to, when each sample makes one call at a time."""
    at_once: int = task_slots(plan).value
    evaluated = _largest(at_once, (use.busy for use in uses(plan, total_samples) if use.connected))
    samples = min(_largest(at_once, map(_filled, plan)), sys.maxsize if total_samples is None else total_samples)
    others = {
        (str(model), model.base_url): min(at_first(model), samples)
        for model in _playing(plan)
        if model.base_url is not None
    }
    return OWN + EACH_TASK * min(at_once, len(plan)) + evaluated + sum(others.values()) + _commands(plan, samples)


def at_first(model: Model) -> int:
    """Calls in flight that are allowed, or with which pacing begins."""
    held = model.connections()
    return held.fixed or held.adaptive(model.max_connections()).start


def connection_ceiling(plan: Sequence[PlannedRun], total_samples: int | None, limits: Descriptors) -> int:
    """The most connections to which pacing may bring each of the models of a plan that it adapts.

    They share the descriptors that are left when every task and every model has what it begins with.
    """
    adapted = {
        (str(model), model.base_url): at_first(model)
        for model in [*(run.model for run in plan), *_playing(plan)]
        if model.connections().fixed is None
    }
    if not adapted:
        return limits.soft
    spare = max(0, limits.soft - descriptors_needed(plan, total_samples))
    return min(adapted.values()) + spare // len(adapted)


def _playing(plan: Sequence[PlannedRun]) -> Iterator[Model]:
    """The models of roles."""
    for run in plan:
        for playing in run.roles.values():
            yield from [playing] if isinstance(playing, Model) else playing


def _filled(run: PlannedRun) -> int:
    """Places for samples of a run that its dataset can fill; all, when its size is not known yet."""
    slots: int = sample_slots(run).value
    dataset, options = run.task.dataset, run.options
    if not getattr(dataset, "in_memory", isinstance(dataset, MemoryDataset)):
        return slots
    return min(slots, len(dataset) * (options.epochs.epochs if options.epochs else 1))


def _largest(count: int, numbers: Iterable[int]) -> int:
    """The sum of the largest so many numbers."""
    return sum(sorted(numbers, reverse=True)[:count])


def _commands(plan: Sequence[PlannedRun], samples: int) -> int:
    """Descriptors of the commands that run at once on this machine, when each sample runs one at a time.

    They are those of sandboxes; and whoever says how many commands may run has solvers that run some.
    """
    said = plan[0].options.max_subprocesses if plan else None
    if said is None and not any(sandbox_kinds(run) for run in plan):
        return 0
    return EACH_COMMAND * min(said or cpus(), samples)


def make_room(plan: Sequence[PlannedRun], runtime: Runtime) -> Descriptors:
    """Raise the limit of open files to what a plan can come to, and more where the system allows it.

    Raises:
        OptionError: the plan cannot fit.
    """
    needed = descriptors_needed(plan, runtime.shared["max_total_samples"].value)
    now = raise_descriptors(max(needed, AMPLE))
    if needed > now.soft:
        raise OptionError(unfit(needed, now))
    return now


def unfit(needed: int, limits: Descriptors | None = None) -> str:
    """What is said of a plan that needs more descriptors than there may be."""
    limits = limits or descriptors()
    return (
        f"the plan can need {needed:,} open files and connections at once, and this process may have at most "
        f"{limits.hard:,}: lower max_connections, max_tasks, max_samples or max_subprocesses, or raise the system's "
        "limit (ulimit -Hn)"
    )
