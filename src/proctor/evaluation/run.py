"""One call of `eval`: its plan, task by task and model by model, no more at once than `max_tasks`.

The run is the caller's own work, so it happens in the caller's own tasks (a nursery below `eval_async`), under leases:
its cancellation, deadlines and tracebacks are the ordinary ones. Only what several runs share (models, sandboxes) lives
in actors of the runtime.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, cast

import anyio
from attrs import define, field

from proctor.actors import Limiter, LimiterStatistics
from proctor.errors import LogError, ModelGivenUp, UsageError
from proctor.evaluation.budget import Budget, check_prices
from proctor.evaluation.effective import task_slots
from proctor.evaluation.ending import BUDGET, HURRIED, Ending
from proctor.evaluation.failure import describe, is_cancellation, leaves, one_line, stopped
from proctor.evaluation.fit import connection_ceiling
from proctor.evaluation.header import eval_plan, eval_spec, git_revision
from proctor.evaluation.plan import PlannedRun, run_label, task_label
from proctor.evaluation.sink import OpenLog
from proctor.evaluation.taskrun import TaskRun
from proctor.evaluation.view import RunView, TaskView
from proctor.log.convert import export_json
from proctor.log.logger_events import log_to_transcripts
from proctor.log.places import S3Place, place_of, working_path
from proctor.log.records import EvalLog, EvalRevision, EvalSample, EvalStatus
from proctor.log.stored import StoredSamples
from proctor.log.upload import open_log
from proctor.model import ModelUsage
from proctor.model.cost import Prices, model_prices
from proctor.model.model import roles
from proctor.process import hurry_children
from proctor.runtime import Runtime, ranks
from proctor.runtime.clock import iso_now
from proctor.runtime.descriptors import descriptors

Display = Callable[[RunView], Awaitable[None]]
LAST_DRAWING: Final = 2.0  # seconds a display has to draw its last state


@define(eq=False, kw_only=True)
class RunActor:
    """The runs of one call.

    Attributes:
        max_tasks: runs at once; more models than one make that the default (behaviour.md, 1).
        budget: what all runs together may use; then they are drained. prices: of the models called.
        open_log: what opens the log of a run; tests keep logs in memory. find_revision: of the code in a folder.
        since: when the call began that this is an attempt of (`anyio.current_time`); default now.
    """

    runtime: Runtime
    plan: Sequence[PlannedRun]
    display: Display | None = None
    budget: Budget = field(factory=Budget)
    prices: Prices = field(factory=dict)
    open_log: OpenLog = open_log
    find_revision: Callable[[Path], EvalRevision | None] = git_revision
    since: float | None = None
    view: RunView = field(init=False)
    limiter: Limiter = field(init=False)
    ending: Ending = field(factory=Ending, init=False)
    _showing: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)
    _units: list[TaskRun] = field(factory=list, init=False)
    _busy: dict[str, int] = field(factory=dict, init=False)
    _logs: dict[int, EvalLog] = field(factory=dict, init=False)
    _mistakes: list[UsageError] = field(factory=list, init=False)
    _begun: anyio.Event = field(factory=anyio.Event, init=False)
    _drained: str | None = field(default=None, init=False)
    _priced_for: str = field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        views = [TaskView(id=str(p.index), name=run_label(p), model=str(p.model)) for p in self.plan]
        log_dir = self.plan[0].options.log_dir if self.plan else ""
        started = anyio.current_time() if self.since is None else self.since
        self.view = RunView(views, started=started, log_dir=log_dir, limiters=self.limiters)
        limit = task_slots(self.plan).value
        self._priced_for = check_prices(self.plan, self.prices, self.budget)
        self.limiter = Limiter(limit, name="tasks", rank=ranks.TASK, ledger=self.runtime.ledger)

    async def run(self) -> list[EvalLog]:
        """Run the plan; the logs come in plan order.

        Raises:
            UsageError: every run of the plan was refused before it started.
        """
        level = next((planned.options.log_level_transcript for planned in self.plan), None)
        with log_to_transcripts(level):
            return await self._run()

    async def _run(self) -> list[EvalLog]:
        revision = await self.runtime.to_thread(self.find_revision, Path.cwd())
        run_id = self.runtime.new_id()
        ceiling = connection_ceiling(self.plan, self.runtime.shared["max_total_samples"].value, descriptors())
        self._units = [
            TaskRun(
                runtime=self.runtime,
                plan=p,
                run_id=run_id,
                view=v,
                whole=self.view,
                ending=self.ending,
                begun=self._begun.set,
                spent=self._spend,
                open_log=self.open_log,
                revision=revision,
                ceiling=ceiling,
            )
            for p, v in zip(self.plan, self.view.tasks, strict=True)
        ]
        waiting = list(self._units)
        async with anyio.create_task_group() as around:
            if self.display is not None:
                around.start_soon(self._show)
            timing = anyio.CancelScope()
            around.start_soon(self._time, timing)
            try:
                with self.runtime.owning_limits(self), model_prices(self.prices, needed_by=self._priced_for):
                    async with anyio.create_task_group() as nursery:
                        for _ in self._units:
                            await nursery.start(self._slot, waiting)
            finally:
                timing.cancel()
                if len(self._mistakes) == len(self._units):
                    self._showing.cancel()  # the error that is raised says it all
                self._begun.set()
                self.view.ended = True
                self.view.changed += 1
                self._showing.deadline = anyio.current_time() + LAST_DRAWING
        if len(self._mistakes) == len(self._units) > 0:
            raise self._mistakes[0]
        return with_samples([self._logs[unit.plan.index] for unit in self._units])

    def cancel(self, reason: str) -> None:
        """End in order: running samples are cancelled and recorded, logs are finished, nothing new starts."""
        self.ending.begin()
        self.runtime.hurry(BUDGET)
        self.view.note = reason
        self.view.changed += 1
        for unit in self._units:
            unit.cancel(reason)

    def drain(self, reason: str) -> None:
        """Start nothing new; samples that run are finished and scored, the logs end as cancelled, for this reason."""
        if self._drained is not None:
            return
        self._drained = self.view.note = reason
        self.view.changed += 1
        for unit in self._units:
            unit.drain(reason)

    @property
    def drained(self) -> bool:
        """Whether a budget of the whole call is used up."""
        return self._drained is not None

    def given_up(self, index: int) -> bool:
        """Whether a run of the plan ended because its model, or another that it called, was given up."""
        failures = [unit.failure for unit in self._units if unit.plan.index == index]
        return any(isinstance(leaf, ModelGivenUp) for failure in failures if failure for leaf in leaves(failure))

    def hurry(self) -> None:
        """Cut short what the ending still waits for."""
        self.ending.hurry()
        self.runtime.hurry(HURRIED)
        hurry_children(self.runtime)

    def set_limit(self, option: str, value: float | None, *, task: str | None, model: str | None) -> int:
        """Change a limit of this run or of its tasks while they run (`Runtime.set_limit`)."""
        number = None if value is None else int(value)
        if option == "max_tasks":
            if task is not None or model is not None:
                return 0
            self.limiter.resize(task_slots(self.plan).value if number is None else number)
            return 1
        changed = 0
        for unit in self._units:
            fits = task in {None, unit.view.name, task_label(unit.plan.task)} and model in {None, unit.view.model}
            if fits and not unit.view.ended:
                changed += unit.set_limit(option, number)
        # The connections are their model's; its tasks only follow with their samples.
        return changed if option in {"max_samples", "max_dataset_memory"} else 0

    def limiters(self) -> list[LimiterStatistics]:
        """Statistics of the limiters that matter to this run: those of all tasks, then the slots of each."""
        tasks = [unit.slots for unit in self._units if unit.slots is not None and not unit.view.ended]
        return [each.statistics() for each in (self.limiter, *self.runtime.limiters(), *tasks)]

    async def _slot(self, waiting: list[TaskRun], *, task_status: Any) -> None:
        """Wait for a place; only then choose the run: the one whose model is least busy, ties in plan order."""
        async with self.limiter.lease():
            unit = min(waiting, key=lambda u: (self._busy.get(str(u.plan.model), 0), u.plan.index))
            waiting.remove(unit)
            model = str(unit.plan.model)
            self._busy[model] = self._busy.get(model, 0) + 1
            task_status.started()
            try:
                with roles(unit.plan.roles):
                    self._logs[unit.plan.index] = await self._run_unit(unit)
            finally:
                self._busy[model] -= 1

    async def _run_unit(self, unit: TaskRun) -> EvalLog:
        """One run; its failure is data, so that the others go on."""
        try:
            log = None if self.ending.begun or self._drained is not None else await unit.run()
        except BaseException as error:
            if is_cancellation(error) or not isinstance(error, (Exception, BaseExceptionGroup)):
                raise
            return self._refused(unit, error)
        if log is None:
            unit.view.status = "cancelled"
            log = self._unwritten(unit, "cancelled")
            if self._drained is not None:
                log.error, unit.view.error = stopped(self._drained), self._drained
        elif self._exports(unit, log):
            await self._export(unit, log)
        return log

    def _exports(self, unit: TaskRun, log: EvalLog) -> bool:
        if unit.plan.options.log_format != "json" or not log.location or self.ending.begun:
            return False
        return log.status == "success" or unit.plan.eval_set_id is None  # a set goes on in what is not done

    async def _export(self, unit: TaskRun, log: EvalLog) -> None:
        """Put a log that is complete into the JSON format; what goes wrong there is told, and the log stays."""
        try:
            log.location = str(await self.runtime.to_thread(export_json, place_of(log.location)))
        except LogError as error:
            self.view.messages.append(str(error))
        unit.view.log = log.location
        self.view.changed += 1

    def _refused(self, unit: TaskRun, error: BaseException) -> EvalLog:
        """The log, in memory only, of a run that failed before or outside its file."""
        unit.view.status, unit.view.ended = "error", anyio.current_time()
        unit.view.error = str(error) if isinstance(error, UsageError) else one_line(error)
        self.view.changed += 1
        if unit.log is None and isinstance(error, UsageError):
            self._mistakes.append(error)
        log = self._unwritten(unit, "error")
        log.error = describe(error)
        return log

    def _unwritten(self, unit: TaskRun, status: EvalStatus) -> EvalLog:
        """What is known of a run whose log is in no file, or was given up there."""
        log = unit.log
        if log is None:
            created = iso_now()
            spec = eval_spec(
                unit.plan,
                run_id=unit.run_id,
                eval_id="",
                task_id=unit.task_id,
                created=created,
                sample_ids=[],
                scorers={},
                revision=unit.revision,
            )
            log = EvalLog(eval=spec, plan=eval_plan(unit.plan))
        log.status = status
        return log

    def _spend(self, usage: ModelUsage) -> None:
        if (used_up := self.budget.spend(usage)) is not None:
            self.drain(used_up)

    async def _time(self, timing: anyio.CancelScope) -> None:
        """Drain when `max_run_time` is over."""
        with timing:
            if (seconds := self.budget.max_run_time) is not None:
                await anyio.sleep(max(0.0, self.view.started + seconds - anyio.current_time()))
                self.drain(self.budget.overtime())

    async def _show(self) -> None:
        """Draw until the run has ended; a display that fails is told of once and never touches the run.

        Nothing is drawn of a run that is refused before it begins.
        """
        display = self.display
        assert display is not None
        with anyio.CancelScope(shield=True) as self._showing:
            try:
                await self._begun.wait()
                await display(self.view)
            except Exception as error:
                self.view.messages.append(f"the display failed: {one_line(error)}")


def with_samples(logs: list[EvalLog]) -> list[EvalLog]:
    """Logs whose samples are in a file are given them, to be read when they are looked at."""
    for log in logs:
        place = place_of(log.location) if log.location else None
        if isinstance(place, S3Place):  # not asked for before somebody looks; what could not be uploaded is here
            file = working_path(place)
            log.samples = cast("list[EvalSample]", StoredSamples(str(file if file.exists() else place)))
        elif place is not None and place.is_file():
            log.samples = cast("list[EvalSample]", StoredSamples(log.location))
    return logs
