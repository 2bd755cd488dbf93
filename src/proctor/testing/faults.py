"""`FaultPlan`: which sample of an evaluation fails where, and at which await everything is cancelled.

The plan is plain data. It is applied to a task (its solvers, scorers and clean-up fail as planned), given to a
`FakeModel` (whose calls fail), a `FakeProcess` (whose commands do not start) and to `MemoryLogs` (whose writer fails),
and installed for a cancellation.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import anyio
from attrs import define, field, frozen

from proctor import Task, task_with
from proctor.evaluation.samplerun import SampleRun
from proctor.log.records import EvalSample
from proctor.solver import TaskState, solver
from proctor.solver.state import sample_state
from proctor.testing.awaits import Awaits

Where = Literal["setup", "solver", "model", "process", "scorer", "cleanup", "log", "sandbox", "command", "removal"]


class PlannedFault(Exception):
    """What a `FaultPlan` raises when it is not told another error."""


@frozen
class Fault:
    """A failure of one sample.

    Attributes:
        where: before the solvers, after them, in each model call, at the start of each command, in each scorer, in the
            clean-up, or in the writer of the log when the record arrives; of a `FakeSandbox` its making, each of its
            commands, its removal.
        epoch: None for all of them. times: how often it fails before it succeeds, None always.
        error: makes what is raised.
    """

    where: Where
    sample: int | str
    epoch: int | None = None
    times: int | None = None
    error: Callable[[str], BaseException] = PlannedFault


@define(eq=False)
class FaultPlan:
    """Faults, and an await at which the whole evaluation is cancelled.

    Args:
        faults: of samples.
        cancel_at: the number of the await, counted over the tasks of all samples (solvers, scorers, model calls,
            handing over), from 1; None for no cancellation.
    """

    faults: tuple[Fault, ...] = ()
    cancel_at: int | None = None
    awaits: Awaits = field(init=False)
    raised: Counter[Where] = field(factory=Counter, init=False)
    """How many faults came to pass."""
    _done: Counter[tuple[Fault, int]] = field(factory=Counter, init=False)
    _at: dict[tuple[Where, int | str], list[Fault]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.awaits = Awaits(self.cancel_at)
        for fault in self.faults:
            self._at.setdefault((fault.where, fault.sample), []).append(fault)

    def hit(self, where: Where, sample: int | str | None = None, epoch: int = 0) -> None:
        """Raise what is planned for a sample at this place.

        Args:
            sample, epoch: default the running one.
        """
        state = sample_state()
        if sample is None and state is not None:
            sample, epoch = state.sample_id, state.epoch
        if sample is None:
            return
        for fault in self._at.get((where, sample), ()):
            over = fault.times is not None and self._done[fault, epoch] >= fault.times
            if over or fault.epoch not in {None, epoch}:
                continue
            self._done[fault, epoch] += 1
            self.raised[where] += 1
            raise fault.error(f"planned: sample {sample}, epoch {epoch}, {where}")

    def record(self, record: EvalSample) -> None:
        """A record reached the log."""
        self.hit("log", record.id, record.epoch)

    def applied(self, task: Task) -> Task:
        """A copy of a task whose parts fail as planned."""
        setup = _failing(self, "setup")
        return task_with(
            task,
            setup=[setup, task.setup] if task.setup is not None else setup,
            solver=[*task.steps, _failing(self, "solver")],
            scorer=[self._scorer(each) for each in task.scorer],
            cleanup=functools.partial(self._clean_up, task.cleanup),
        )

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Count the awaits of samples in this block, and cancel it at the planned one; nothing without one."""
        if self.cancel_at is None:
            yield
            return
        plain = SampleRun.run

        async def counted(sample_run: SampleRun, *args: Any, **more: Any) -> None:
            await self.awaits.drive(plain(sample_run, *args, **more))

        SampleRun.run = counted  # type: ignore[assignment,method-assign]
        try:
            with anyio.CancelScope() as self.awaits.scope:
                yield
        finally:
            SampleRun.run = plain  # type: ignore[method-assign]

    def _scorer(self, scorer: Any) -> Any:
        @functools.wraps(scorer)
        async def score(state: TaskState, target: Any) -> Any:
            self.hit("scorer")
            return await scorer(state, target)

        return score

    async def _clean_up(self, cleanup: Any, state: TaskState) -> None:
        self.hit("cleanup")
        if cleanup is not None:
            await cleanup(state)


@solver
def _failing(plan: FaultPlan, where: Where) -> Any:
    async def solve(state: TaskState, generate: Any) -> TaskState:
        plan.hit(where)
        return state

    return solve
