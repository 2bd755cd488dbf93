"""One sample in one epoch: set-up, solvers, scorers, clean-up, and the one record that says what happened.

A failure of a sample is data: `SampleRun.run` raises only what cancels it and what is the engine's own fault. Whatever
ends a started sample, cancellation included, its record is built and handed over.
"""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Final, Protocol

import anyio
from anyio.abc import TaskStatus
from attrs import define, evolve, field

from proctor.actors import lease_scope
from proctor.dataset import Sample
from proctor.errors import LimitExceededError, ModelGivenUp, SampleEnded, UsageError
from proctor.evaluation.ending import CLEANUP, LOG_RESERVE, Ending
from proctor.evaluation.failure import describe, is_cancellation, leaves
from proctor.evaluation.interrupting import interruption
from proctor.evaluation.plan import PlannedRun
from proctor.evaluation.sandboxing import Want, logged_sandbox, sandbox_block
from proctor.evaluation.toolloop import generate_on
from proctor.log.events import ErrorEvent, Event, ModelEvent, SampleInitEvent, SampleLimitEvent, ScoreEvent
from proctor.log.records import EvalError, EvalRetryError, EvalSample, EvalSampleLimit, Score
from proctor.log.transcript import Transcript, init_transcript, span
from proctor.log.watch import RunningSamples
from proctor.model import ChatMessage, ChatMessageUser, GenerateConfig, ModelUsage
from proctor.model.model import evaluated_model
from proctor.runtime import Runtime, SampleContext
from proctor.runtime.applied import SampleLimits, working_limit
from proctor.runtime.clock import iso_now
from proctor.sandbox.sample import SandboxSample
from proctor.scorer import Target
from proctor.scorer.intermediate import use_scorers
from proctor.solver import TaskState
from proctor.solver.solving import run_solver, use_generate
from proctor.solver.state import sample_state, state_limits, use_state
from proctor.solver.store import use_store
from proctor.tool.outcome import use_max_tool_output

LIMIT_TYPES: Final = ("message", "token", "turn", "time", "working", "cost", "operator", "custom")
KEPT_EVENTS: Final = 50  # of an attempt that failed, in the record of a later one
KEPT_MESSAGES: Final = 10  # of the input of the call they begin with


class Deliver(Protocol):
    """Takes a record, its sample and the failure it tells of; returns when the log's writer has the record."""

    async def __call__(self, sample_run: SampleRun, record: EvalSample, failure: BaseException | None, /) -> None: ...


@define(eq=False, kw_only=True)
class SampleRun:
    """Runs one sample and hands its record to `deliver`.

    Attributes:
        index: its place in the dataset, from 0; with `epoch` it gives the order of results.
        task_id: the group in which it shares models with other tasks.
        admission: its number in the runtime.
        scorers: the scorers by name, in order; empty when nothing is to be scored.
        sandbox: what it is to have, None without one.
        journal: takes down what it does while it runs; None: nobody does.
        started: called when it has its slot. spent: told of every model call's usage: model, role, usage.
    """

    runtime: Runtime
    plan: PlannedRun
    task_id: str
    sample: Sample
    index: int
    epoch: int
    admission: int
    scorers: dict[str, Any]
    ending: Ending
    deliver: Deliver
    started: Callable[[], None]
    spent: Callable[[str, str | None, ModelUsage], None]
    sandbox: Want | None = None
    journal: RunningSamples | None = None
    earlier: list[EvalRetryError] = field(factory=list, init=False)
    _admission: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)
    _admitted: bool = field(default=False, init=False)

    async def run(self, slot: Any, *, task_status: TaskStatus[None]) -> None:
        """Wait for the slot, say so, run, deliver, and give the slot back; nothing of it when withdrawn before."""
        with self._admission:
            async with slot:
                self._admitted = True
                task_status.started()
                self.started()
                await self._attempts()
        if not self._admitted:
            task_status.started()

    def withdraw(self) -> None:
        """Do not start it any more; one that has its slot goes on."""
        if not self._admitted:
            self._admission.cancel()

    async def _attempts(self) -> None:
        allowed = self.plan.options.retry_on_error or 0
        while True:
            attempt = Attempt(self, last=len(self.earlier) >= allowed)
            try:
                await self._journalled(attempt)
            except BaseException as error:
                if not is_cancellation(error):
                    raise
                attempt.cancelled(error)
                await self.deliver(self, attempt.record(), attempt.failure)
                raise
            if attempt.failure is None or attempt.final:
                break
            self.earlier.append(attempt.retry_error())
        await self.deliver(self, attempt.record(), attempt.failure)

    async def _journalled(self, attempt: Attempt) -> None:
        if self.journal is None or not self.plan.options.log_samples:
            await attempt.run()
            return
        self.journal.began(attempt.uuid, (sample_id(self), self.epoch), attempt.transcript, attempt.record)
        try:
            await attempt.run()
        finally:
            self.journal.ended(attempt.uuid)


@define(eq=False)
class Attempt:
    """One try at a sample: its state, clock, transcript and outcome.

    Attributes:
        last: there is no other try after it.
        limits: of its solvers.
    """

    owner: SampleRun
    last: bool = True
    limits: SampleLimits = field(init=False)
    context: SampleContext = field(init=False)
    transcript: Transcript = field(init=False)
    state: TaskState = field(init=False)
    started_at: str = field(factory=iso_now, init=False)
    uuid: str = field(init=False)
    sandbox: SandboxSample = field(init=False)
    scores: dict[str, Score] = field(factory=dict, init=False)
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)
    limit: EvalSampleLimit | None = field(default=None, init=False)
    error: EvalError | None = field(default=None, init=False)
    failure: BaseException | None = field(default=None, init=False)
    """The exception that `error` tells of; None when the sample ended in order."""

    def __attrs_post_init__(self) -> None:
        owner = self.owner
        self.uuid = owner.runtime.new_id()
        self.context = SampleContext(
            group=owner.task_id,
            admission=owner.admission,
            spent=owner.spent,
            sample_id=sample_id(owner),
            epoch=owner.epoch,
        )
        # Events are many: their ids are the sample's with a number, which costs a tenth of a new one.
        self.transcript = Transcript(
            new_id=lambda: f"{self.uuid}{next(self._numbers):x}",
            now=owner.runtime.clock.now,
            working=self.context.working.working,
        )
        self.state = initial_state(owner, self.uuid)
        options = owner.plan.options
        self.limits = self.context.limits = state_limits(
            self.state, turns=options.turn_limit, seconds=options.time_limit, working=options.working_limit
        )

    @property
    def final(self) -> bool:
        """Whether no other try may follow if this one fails: a model that is given up fails the next one too."""
        failure = self.failure
        return self.last or (failure is not None and any(isinstance(leaf, ModelGivenUp) for leaf in leaves(failure)))

    async def run(self) -> None:
        """Solve and score. Exceptions of user code are kept in `failure`; a cancellation passes."""
        with (
            self.context,
            init_transcript(self.transcript),
            evaluated_model(self.owner.plan.model),
            use_max_tool_output(self.owner.plan.model.config.max_tool_output),
            use_generate(self._generate),
            use_state(self.state),
            use_store(self.state.store),
            use_scorers(self.owner.scorers, Target(self.owner.sample.target)),
        ):
            async with sandbox_block(self) as self.sandbox:
                async with lease_scope(ended=SampleEnded):
                    try:
                        await self._solve_and_score()
                    finally:
                        await self._clean_up()
                        await self._end_kept()
                if self.sandbox.lost is not None and self.failure is None:
                    self._failed(self.sandbox.lost)  # whoever met it first has swallowed it
            if self.sandbox.lost is not None and self.failure is None:
                self._failed(self.sandbox.lost)
            self.context.working.end()

    async def _solve_and_score(self) -> None:
        await self._guarded(self._solve, limited=self._limited)
        failed = self.failure is not None
        if self.owner.scorers and (not failed or (self.owner.plan.options.score_on_error and self.final)):
            await self._guarded(self._score)

    async def _guarded(
        self, step: Callable[[], Awaitable[None]], *, limited: Callable[[LimitExceededError], None] | None = None
    ) -> None:
        """Run a step of user code: an exception becomes this sample's error, a limit is for `limited` where given."""
        try:
            await step()
        except (Exception, BaseExceptionGroup) as error:
            if is_cancellation(error):
                raise
            found = [leaf for leaf in leaves(error) if not is_cancellation(leaf)]
            met = [leaf for leaf in found if isinstance(leaf, LimitExceededError)]
            if limited is not None and len(met) == len(found):
                limited(met[0])
            else:
                self._failed(error)

    async def _solve(self) -> None:
        task, limits = self.owner.plan.task, self.limits
        async with span("init", type="init"):
            self.transcript.add(SampleInitEvent(sample=self.owner.sample, state=None))
            await self.sandbox.start()
        try:
            with limits.time, limits.working, limits.token, limits.cost, limits.turn, limits.message:
                async with span("solvers", type="solvers"):
                    for solver in [*([task.setup] if task.setup else []), *solvers_of(self.owner.plan)]:
                        if self.state.completed:
                            break
                        self.state = await run_solver(solver, self.state, self._generate)
        finally:
            # What a chain had come to counts too, when its next step did not end.
            self.state = sample_state() or self.state

    async def _generate(
        self, state: TaskState, tool_calls: str = "loop", cache: Any = False, **config: Any
    ) -> TaskState:
        """The `generate` that solvers are given: the evaluated model on the state's messages, with its tools."""
        given = GenerateConfig.from_options(config) if config else None
        return await generate_on(state, self.owner.plan.model, tool_calls=tool_calls, cache=cache, config=given)

    async def _score(self) -> None:
        """Score, in half the time that the solvers had; a grader that waits for its turn is not late."""
        allowed = self.owner.plan.options.time_limit
        bound = working_limit(None if allowed is None else allowed / 2)
        try:
            with bound:
                await self._scored()
        except LimitExceededError as met:
            if met.source is not bound:
                raise
            raise TimeoutError(f"the scorers worked for {met.limit:g} s, half of time_limit, and did not end") from None

    async def _scored(self) -> None:
        async with span("scorers", type="scorers"):
            target = Target(self.owner.sample.target)
            for name, scorer in self.owner.scorers.items():
                async with span(name, type="scorer"):
                    score = await scorer(self.state, target)
                    if score is None:
                        continue
                    if not isinstance(score, Score):
                        raise UsageError(
                            f"scorer {name} returned {type(score).__name__}; it must return a Score (or None to skip)"
                        )
                    self.scores[name] = score
                    self.transcript.add(ScoreEvent(score=score, target=self.owner.sample.target, scorer=name))

    async def _clean_up(self) -> None:
        """The task's own clean-up, bounded, whatever ended the sample."""
        cleanup = self.owner.plan.task.cleanup
        if cleanup is None:
            return
        with self.owner.ending.shielded(CLEANUP, reserve=LOG_RESERVE) as bound:
            await self._guarded(lambda: cleanup(self.state))
        if bound.cancelled_caught and self.failure is None:
            self._failed(TimeoutError(f"the task's cleanup did not end within {CLEANUP:g} s"))

    async def _end_kept(self) -> None:
        """End what tools kept for the sample, such as a shell, while its sandbox is still there."""
        if self.context.at_end:
            with self.owner.ending.shielded(CLEANUP, reserve=LOG_RESERVE):
                await self.context.end()

    def _limited(self, limit: LimitExceededError) -> None:
        kind: Any = limit.type if limit.type in LIMIT_TYPES else "custom"
        self.limit = EvalSampleLimit(type=kind, limit=limit.limit, reason=str(limit))
        if (cut := interruption(self.transcript.events, "limit", always=False)) is not None:
            self.transcript.add(cut)
        self.transcript.add(SampleLimitEvent(type=kind, message=str(limit), limit=limit.limit))

    def _failed(self, error: BaseException) -> None:
        described = describe(error)
        self.transcript.add(ErrorEvent(error=described))
        if self.failure is None:  # what failed first is what there is to mend
            self.failure, self.error = error, described

    def cancelled(self, error: BaseException) -> None:
        """Note that the sample was cancelled: logs know it by the error's first word."""
        self.context.working.end()
        self.failure = error
        if (cut := interruption(self.transcript.events, "system", always=True)) is not None:
            self.transcript.add(cut)
        reason = "the sample was cancelled before it ended"
        text = f"CancelledError('{reason}')"
        self.error = EvalError(message=text, traceback=f"{text}\n", traceback_ansi=f"{text}\n")

    def retry_error(self) -> EvalRetryError:
        """What a later attempt's record keeps of this one."""
        error = self.error
        assert error is not None
        events = last_events(self.transcript.events) if self.owner.plan.options.log_samples else None
        return EvalRetryError(
            message=error.message, traceback=error.traceback, traceback_ansi=error.traceback_ansi, events=events
        )

    def record(self) -> EvalSample:
        """What happened, as one record for the log."""
        owner, state, clock = self.owner, self.state, self.context.working
        sample, options = owner.sample, owner.plan.options
        events, tokens = self.transcript.events, self.limits.token
        return EvalSample(
            id=sample_id(owner),
            epoch=owner.epoch,
            input=sample.input,
            choices=sample.choices,
            target=sample.target,
            description=sample.description,
            sandbox=logged_sandbox(sample.sandbox),
            files=list(sample.files) if sample.files else None,
            setup=sample.setup,
            messages=list(state.messages),
            output=state.output,
            scores={**(state.scores or {}), **self.scores} or None,
            metadata=state.metadata,
            store=dict(state.store.items()),
            events=events if options.log_samples else [],
            model_usage=self.context.usage,
            role_usage=self.context.role_usage,
            started_at=self.started_at,
            completed_at=iso_now(),
            total_time=clock.elapsed(),
            working_time=clock.working(),
            uuid=self.uuid,
            error=self.error,
            error_retries=owner.earlier or None,
            limit=self.limit,
            turn_count=int(self.limits.turn.usage),
            message_limit=state.message_limit,
            token_limit=state.token_limit,
            token_limit_type=None if tokens.limit is None or tokens.type == "all" else tokens.type,
            token_limit_usage=None if tokens.limit is None else int(tokens.usage),
            time_limit=None if options.time_limit is None else int(options.time_limit),
        )


def initial_state(owner: SampleRun, uuid: str) -> TaskState:
    """The state that the first solver is given."""
    sample, options = owner.sample, owner.plan.options
    tokens, token_type = options.tokens
    return TaskState(
        model=str(owner.plan.model),
        sample_id=sample_id(owner),
        epoch=owner.epoch,
        input=sample.input,
        messages=_conversation(owner),
        target=Target(sample.target),
        choices=sample.choices,
        message_limit=options.message_limit,
        token_limit=tokens,
        token_limit_type=token_type or "all",
        cost_limit=options.cost_limit,
        metadata=deepcopy(sample.metadata) if sample.metadata else {},
        sample_uuid=uuid,
    )


def last_events(events: Sequence[Event]) -> list[Event]:
    """The events from the last model call on, cut to what a failure is understood by: an agent's may be many."""
    start = max((n for n, event in enumerate(events) if isinstance(event, ModelEvent)), default=0)
    kept = [*events[start : start + 1], *events[start + 1 :][1 - KEPT_EVENTS :]]
    if kept and isinstance(kept[0], ModelEvent):
        kept[0] = evolve(kept[0], input=kept[0].input[-KEPT_MESSAGES:])
    return kept


def sample_id(owner: SampleRun) -> int | str:
    """The sample's id; its dataset gave one to those that had none."""
    assert owner.sample.id is not None
    return owner.sample.id


def _conversation(owner: SampleRun) -> list[ChatMessage]:
    """The first messages: the sample's own stay as they are, whatever a solver does to these."""
    given = owner.sample.input
    if isinstance(given, str):
        return [ChatMessageUser(id=owner.runtime.new_id(), content=given, source="input")]
    messages = deepcopy(given)
    for message in messages:
        message.id = message.id or owner.runtime.new_id()
    return messages


def solvers_of(plan: PlannedRun) -> list[Any]:
    """The solvers of a run: the call's own in place of the task's, when it gave some."""
    given = plan.options.solver
    if given is None:
        return list(plan.task.steps)
    return list(given) if isinstance(given, list) else [given]
