"""One task on one model: a feed of samples, a log, and what came of them.

Three things live here in one nursery, and they end in this order: the samples, the acknowledgements, the log. An outer
cancellation, or an ending asked for by `cancel`, stops the samples; the log is then finished in a shield with what is
left of the ending's budget, so the file says what happened.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import anyio
from anyio.abc import ObjectReceiveStream
from attrs import define, evolve, field

from proctor.actors import Limiter, lease_all
from proctor.dataset import Sample
from proctor.errors import ModelGivenUp, UsageError
from proctor.evaluation.effective import LOG_BUFFER, sample_slots
from proctor.evaluation.ending import CLEANUP, HAND_OVER, LOG_RESERVE, Ending
from proctor.evaluation.failure import describe, is_cancellation, leaves, stopped, told
from proctor.evaluation.feed import Feed, Planned, budget_of
from proctor.evaluation.gating import TaskPace
from proctor.evaluation.header import eval_plan, eval_spec
from proctor.evaluation.plan import PlannedRun
from proctor.evaluation.results import Place, Scores, final_metrics
from proctor.evaluation.resume import Resume, Reused
from proctor.evaluation.samplerun import Deliver, SampleRun
from proctor.evaluation.sandboxing import Want, bounded_by, task_sandboxes
from proctor.evaluation.sink import LogSink, OpenLog
from proctor.evaluation.view import RunView, TaskView
from proctor.log.places import place_of
from proctor.log.records import EvalLog, EvalRevision, EvalSample, EvalStats
from proctor.log.upload import open_log
from proctor.log.watch import RunningSamples
from proctor.log.writer import log_file_name
from proctor.model import ModelUsage
from proctor.runtime import Runtime, current_sample, ranks
from proctor.runtime.clock import iso_now
from proctor.sandbox.task import TaskSandboxes
from proctor.scorer.scoring import scorer_names


@define(eq=False, kw_only=True)
class TaskRun:
    """Runs one planned run; made by `RunActor`."""

    runtime: Runtime
    plan: PlannedRun
    run_id: str
    view: TaskView
    whole: RunView
    ending: Ending
    begun: Callable[[], None]
    spent: Callable[[ModelUsage], None]
    open_log: OpenLog = open_log
    ceiling: int | None = None
    revision: EvalRevision | None = None
    slots: Limiter | None = field(default=None, init=False)
    pace: TaskPace = field(init=False)
    sandboxes: TaskSandboxes = field(init=False)
    task_id: str = field(init=False)
    log: EvalLog | None = field(default=None, init=False)
    scores: Scores = field(init=False)
    usage: dict[str, ModelUsage] = field(factory=dict, init=False)
    role_usage: dict[str, ModelUsage] = field(factory=dict, init=False)
    failure: BaseException | None = field(default=None, init=False)
    """The error that ended the task."""
    reused: Reused | None = field(default=None, init=False)
    undelivered: list[str] = field(factory=list, init=False)
    _pending: dict[tuple[int | str, int], tuple[Place, EvalSample]] = field(factory=dict, init=False)
    _all_durable: anyio.Event = field(factory=anyio.Event, init=False)
    _scope: anyio.CancelScope | None = field(default=None, init=False)
    _stopped: str | None = field(default=None, init=False)
    _drained: str | None = field(default=None, init=False)
    _feeds: list[anyio.CancelScope] = field(factory=list, init=False)
    _journal: RunningSamples | None = field(default=None, init=False)
    _next: SampleRun | None = field(default=None, init=False)
    """The sample that waits for its slot."""
    _set: dict[str, int | None] = field(factory=dict, init=False)
    _rows: Feed | None = field(default=None, init=False)
    _samples_over: bool = field(default=False, init=False)
    _failed_at: str = field(default="", init=False)
    _unjudged: tuple[BaseException, int | str] | None = field(default=None, init=False)
    """The last failure while it is not known of how many samples it is one."""

    def __attrs_post_init__(self) -> None:
        resume = self.plan.resume
        self.sandboxes = task_sandboxes(self.plan, self.runtime)
        if self.plan.options.sample_shuffle is True:  # the log says which order it was, so that it can be had again
            seed = self.runtime.random.getrandbits(32)
            self.plan = evolve(self.plan, options=evolve(self.plan.options, sample_shuffle=seed))
        self.task_id = (resume.header.eval.task_id if resume is not None else "") or self.runtime.new_id()

    def cancel(self, reason: str) -> None:
        """Stop the samples; the log is finished as cancelled. Before the start: nothing will start."""
        self._stopped = self._stopped or reason
        if self._scope is not None:
            self._scope.cancel()

    def drain(self, reason: str) -> None:
        """Start no further sample; those that run are finished, scored and recorded. `reason` is kept in the log."""
        if self._drained is not None:
            return
        self._drained = reason
        if self._scope is not None and self.slots is None:
            self._scope.cancel()  # the dataset is being read and nothing has begun
        for feed in self._feeds:
            feed.cancel()
        if self._next is not None:
            self._next.withdraw()

    async def run(self) -> EvalLog | None:
        """Run it; None when it was stopped before anything began.

        Raises:
            UsageError: the dataset cannot be used, or no log can be written; nothing was started.
        """
        options = self.plan.options
        epochs = options.epochs.epochs if options.epochs else 1
        self._rows = feed = Feed(
            self.plan.task.dataset, options, epochs, self._budget(), self.runtime.to_thread, self._planned
        )
        opening = self._scope = anyio.CancelScope()
        try:
            with opening:
                if self._stopped is not None or self._drained is not None:
                    opening.cancel()
                await feed.open()
                self._scope = None
                return await self._run(feed)
        finally:
            with self.ending.shielded(CLEANUP, reserve=LOG_RESERVE):
                await feed.close()
        return None

    async def _run(self, feed: Feed) -> EvalLog:
        options = self.plan.options
        scoring = self.plan.task.scorer if options.score else []
        scorers = dict(zip(scorer_names(scoring), scoring, strict=True))
        reducers = options.epochs.reducer if options.epochs else None
        self.scores = Scores(scorers, self.plan.task.metrics, reducers, feed.epochs)
        self.view.status, self.view.started = "started", anyio.current_time()
        self.view.metrics = self.scores.running
        if not self.plan.task.scorer and await feed.has_target():
            self.whole.messages.append(
                f"{self.view.name}: the samples have targets, but the task has no scorer, so nothing is scored; "
                "give it one, as in Task(scorer=includes())"
            )
        for note in self.plan.notes:
            self._say(note)
        self._changed()
        self.begun()
        created = iso_now()
        spec = eval_spec(
            self.plan,
            run_id=self.run_id,
            eval_id=self.runtime.new_id(),
            task_id=self.task_id,
            created=created,
            sample_ids=feed.ids if feed.all_known else None,
            scorers=scorers,
            revision=self.revision,
        )
        path, resume = place_of(options.log_dir) / log_file_name(created, spec.task, self.task_id), self.plan.resume
        spec.eval_set_id = self.plan.eval_set_id
        if resume is not None:
            path, spec = resume.path, resume.spec(spec)
            created = spec.created
        self.log = EvalLog(eval=spec, plan=eval_plan(self.plan), stats=EvalStats(started_at=created))
        buffer = options.log_buffer or LOG_BUFFER
        async with (
            self.plan.model.held(self.runtime, self.plan.options.pacing, ceiling=self.ceiling) as model,
            self.open_log(path, spec=spec, plan=self.log.plan, buffer=buffer, resume=resume is not None) as writer,
        ):
            self.pace = TaskPace.of(self.runtime, self.plan, model, self.task_id)
            self.log.location = self.view.log = str(path)
            if resume is not None:
                await self._reuse(resume, feed)
            return await self._logged(writer, feed, scorers)

    async def _reuse(self, resume: Resume, feed: Feed) -> None:
        """Take over what the log has, sample by sample as the feed comes to them."""
        self.reused = reused = Reused(resume, self.scores)
        await self.runtime.to_thread(reused.load)
        self._say(reused.begun())
        for total, used in ((self.usage, reused.usage), (self.role_usage, reused.role_usage)):
            for name, usage in used.items():
                total[name] = total[name] + usage if name in total else usage

        def skips(sample: Sample, index: int, epoch: int) -> bool:
            if not reused.takes(sample, index, epoch):
                return False
            self.view.done += 1
            return True

        feed.skips = skips

    async def _logged(self, writer: LogSink, feed: Feed, scorers: dict[str, Any]) -> EvalLog:
        """Run the samples and finish the log, whatever stops them."""
        outer: BaseException | None = None
        self._journal = self._journal_for(writer)
        async with anyio.create_task_group() as own:
            own.start_soon(self._acknowledge, writer.acknowledgements)
            try:
                await self._run_samples(writer, feed, scorers)
            except BaseException as error:
                outer = error
                if not is_cancellation(error):
                    self.failure = self.failure or error
            self.whole.messages.extend(await self.sandboxes.close(bounded_by(self.ending)))
            with self.ending.shielded():
                await self._finish(writer, feed)
        if outer is not None and is_cancellation(outer):
            raise outer
        assert self.log is not None
        return self.log

    def _journal_for(self, writer: LogSink) -> RunningSamples | None:
        """Journals running samples beside the log, where that is a file."""
        path = getattr(writer, "path", None)
        if not isinstance(path, Path) or not self.plan.options.log_samples:
            return None
        images = self.log is None or self.log.eval.config.log_images is not False
        return RunningSamples(path, self.runtime.to_thread, images)

    async def _run_samples(self, writer: LogSink, feed: Feed, scorers: dict[str, Any]) -> None:
        name = f"samples {self.view.name} ({self.plan.model.name})"
        self.slots = Limiter(self._max_samples(), name=name, rank=ranks.SAMPLE, ledger=self.runtime.ledger)
        send, receive = anyio.create_memory_object_stream[Planned](0)
        deliver = self._deliver_to(writer)
        async with anyio.create_task_group() as outside:
            outside.start_soon(self._watch)
            if self._journal is not None:
                outside.start_soon(self._journal.work)
            async with anyio.create_task_group() as nursery:
                self._scope = nursery.cancel_scope
                if self._stopped is not None:
                    nursery.cancel_scope.cancel()
                nursery.start_soon(self._feed, feed.read_ahead)
                nursery.start_soon(self._feed, feed.send, send)
                with receive:
                    async for planned in receive:
                        want = await self.sandboxes.want(planned.sample.sandbox, planned.sample.metadata)
                        if self._drained is not None:
                            break
                        self._next = sample_run = self._sample_run(planned, scorers, deliver, want)
                        await nursery.start(sample_run.run, self.pace.gated(self._slot(want), sample_run.admission))
                        self._next = None
            self._samples_over = True
            outside.cancel_scope.cancel()

    async def _feed(self, part: Callable[..., Awaitable[None]], *args: Any) -> None:
        """Do a part of the feed's work; a dataset that cannot be read further ends the task, its records stay."""
        with anyio.CancelScope() as scope:
            self._feeds.append(scope)
            if self._drained is not None:
                scope.cancel()
            try:
                await part(*args)
            except UsageError as error:
                self._fail(error, "")

    def _planned(self, total: int) -> None:
        """It has become known how many samples run, over all epochs."""
        self.view.total = total
        if self._unjudged is not None:
            self._judge(*self._unjudged)
        self._changed()

    async def _watch(self) -> None:
        """Begin the ending's budget in the instant in which the run is cancelled from outside.

        The samples' nursery cannot tell: it hears of the cancellation when its last sample has ended, and that one may
        be in a shield whose bound only the ending moves.
        """
        try:
            await anyio.sleep_forever()
        except BaseException:
            if not self._samples_over:
                self.ending.begin()
            raise

    def _sample_run(self, planned: Planned, scorers: dict[str, Any], deliver: Deliver, want: Want | None) -> SampleRun:
        return SampleRun(
            runtime=self.runtime,
            plan=self.plan,
            task_id=self.task_id,
            sample=planned.sample,
            index=planned.index,
            epoch=planned.epoch,
            admission=self.runtime.next_admission(),
            scorers=scorers,
            ending=self.ending,
            deliver=deliver,
            started=self._sample_started,
            spent=self._spend,
            sandbox=want,
            journal=self._journal,
        )

    def set_limit(self, option: str, value: int | None) -> bool:
        """Change how many of its samples run at once, the connections of its model by which that goes, or its memory.

        Returns:
            Whether it has such a limit.
        """
        self._set[option] = value
        if self.slots is not None:
            self.slots.resize(self._max_samples())
        return option != "max_dataset_memory" or self._rows is None or self._rows.bound(self._budget())

    def _budget(self) -> int | None:
        """Bytes of its dataset that may be held: what was set while it runs, what was asked for."""
        return budget_of(self.plan.options, self._set.get("max_dataset_memory"))

    def _max_samples(self) -> int:
        """Slots of this task: what was set while it runs, what was asked for, what goes with the connections."""
        slots: int = self._set.get("max_samples") or sample_slots(self.plan, self._set.get("max_connections")).value
        return slots

    def _slot(self, want: Want | None) -> Any:
        """A place of this task, of the runtime (which a sample inside a sample has) and of its sandbox, all at once."""
        assert self.slots is not None
        places = [self.slots.lease(group=self.task_id)]
        if current_sample() is None:
            places.append(self.runtime.samples.lease(group=self.task_id))
        if want is not None and (place := want.lease(self.task_id, current_sample())) is not None:
            places.append(place)
        return places[0] if len(places) == 1 else lease_all(places)

    def _sample_started(self) -> None:
        self.view.running += 1
        self._changed()

    def _spend(self, model: str, role: str | None, usage: ModelUsage) -> None:
        self.view.tokens += usage.total_tokens
        self.usage[model] = self.usage[model] + usage if model in self.usage else usage
        if role is not None:
            self.role_usage[role] = self.role_usage[role] + usage if role in self.role_usage else usage
        self._changed()
        self.spent(usage)

    def _deliver_to(self, writer: LogSink) -> Deliver:
        async def deliver(sample_run: SampleRun, record: EvalSample, failure: BaseException | None) -> None:
            self._count(sample_run, record, failure)
            cancelled = failure is not None and is_cancellation(failure)
            # A full channel holds the sample, cancelled or not: what it has found must not be lost.
            with self.ending.shielded(HAND_OVER if cancelled else math.inf, reserve=LOG_RESERVE) as bound:
                await writer.send(record)
            if bound.cancelled_caught:
                self._pending.pop((record.id, record.epoch), None)
                self.undelivered.append(f"{record.id} (epoch {record.epoch})")

        return deliver

    def _count(self, sample_run: SampleRun, record: EvalSample, failure: BaseException | None) -> None:
        view = self.view
        view.running -= 1
        view.done += 1
        self.pace.ended(record.model_usage)
        view.retries = self.pace.retries()
        self._pending[record.id, record.epoch] = ((sample_run.index, sample_run.epoch), record)
        if failure is not None and is_cancellation(failure):
            view.cancelled += 1
        elif failure is not None:
            view.errors += 1
            self._judge(failure, record.id)
        self._changed()

    def _judge(self, failure: BaseException, sample_id: int | str) -> None:
        """End the task if this failure is one too many; of a share, when the whole is known."""
        if self.view.total is None:
            self._unjudged = failure, sample_id
        given_up = any(isinstance(leaf, ModelGivenUp) for leaf in leaves(failure))
        if given_up or (not self.plan.options.continue_on_fail and self._too_many_errors()):
            # A model that is given up is no matter of one sample.
            self._fail(failure, "" if given_up else f"sample {sample_id}: ")

    def _too_many_errors(self) -> bool:
        rule, errors, total = self.plan.options.fail_on_error, self.view.errors, self.view.total
        if rule is None or rule is True:
            return errors > 0
        if rule is False or rule == 0:
            return False
        if rule < 1:
            return total is not None and errors > rule * total
        return errors >= rule

    def _fail(self, failure: BaseException, where: str) -> None:
        if self.failure is None:
            self.failure, self._failed_at = failure, where
        if self._scope is not None:
            self._scope.cancel()

    async def _acknowledge(self, stream: ObjectReceiveStream[Any]) -> None:
        """Take the scores of what is durable; shielded, since the samples' end must not be the acknowledgements'."""
        with self.ending.shielded():
            async for acknowledged in stream:
                if self.scores.scorers:
                    await self.runtime.to_thread(self._keep, [self._pending[key] for key in acknowledged.samples])
                for key in acknowledged.samples:
                    del self._pending[key]
                if self._journal is not None:
                    self._journal.durable(acknowledged.samples)
                if not self._pending:
                    self._all_durable.set()
        self._all_durable.set()

    def _keep(self, ended: list[tuple[Place, EvalSample]]) -> None:
        """In a thread: keep the scores of samples whose records are durable."""
        for place, record in ended:
            self.scores.add(place, record.id, record.scores, record.metadata)

    async def _finish(self, writer: LogSink, feed: Feed) -> None:
        """Judge what came of it once every record is durable, and complete the log."""
        log = self.log
        assert log is not None
        await self._durable(writer)
        self._judge_whole(log)
        without: list[tuple[str, int]] = []
        if self.reused is not None and feed.passed:
            without = self.reused.left
            self._say(self.reused.ended())
        dataset = log.eval.dataset
        if dataset.sample_ids is None:  # it was not read to its end when the log was begun
            dataset.sample_ids = ids = cast("list[int | str]", feed.ids)
            dataset.samples = len(ids) if feed.total is not None else None
        if log.status == "success" or (self._drained is not None and self.view.done > 0 and self.failure is None):
            try:
                if self.reused is not None:
                    with closing(self.reused.completing()) as steps:
                        while await self.runtime.to_thread(next, steps, steps) is not steps:
                            pass
                completed = self.view.done - self.view.errors - self.view.cancelled
                total = self.view.total if self.view.total is not None else self.view.done
                results, log.reductions = await self.runtime.to_thread(self.scores.results, total, completed)
                log.results, metrics = results, final_metrics(results)
                self.view.metrics = lambda: metrics
            except Exception as error:
                self.failure = error
                self._judge_whole(log)
        log.stats = EvalStats(
            started_at=log.stats.started_at,
            completed_at=iso_now(),
            model_usage=self.usage,
            role_usage=self.role_usage,
            connection_limit_history=self.pace.history(),
        )
        log.pacing = self.pace.decisions()
        await writer.finish(log, reductions=log.reductions, without=without)
        if self._journal is not None:
            await self._journal.close()
        self.view.status, self.view.ended = log.status, anyio.current_time()
        self._changed()

    async def _durable(self, writer: LogSink) -> None:
        await writer.flush()
        if self._pending:
            self._all_durable = anyio.Event()
            await self._all_durable.wait()

    def _judge_whole(self, log: EvalLog) -> None:
        if self.failure is None and self.plan.options.continue_on_fail and self._too_many_errors():
            self.failure = UsageError(f"{self.view.errors} of {self.view.total} samples failed")
        if self.failure is not None:
            log.status = "error"
            log.error = describe(self.failure)
            self.view.error = f"{self._failed_at}{told(self.failure)}"
        elif self.view.total is None or self.view.done < self.view.total or self.view.cancelled:
            log.status = "cancelled"
            if self._drained is not None:
                log.error, self.view.error = stopped(self._drained), self._drained
        else:
            log.status = "success"

    def _say(self, text: str) -> None:
        several = len({task.model for task in self.whole.tasks}) > 1
        self.whole.messages.append(f"{self.view.name}{f' ({self.view.model})' if several else ''}: {text}")

    def _changed(self) -> None:
        self.whole.changed += 1
