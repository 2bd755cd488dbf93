"""One sample in one epoch: set-up, solvers, scorers, clean-up, and the one record that says what happened.

A failure of a sample is data: `SampleRun.run` raises only what cancels it and what is the engine's own fault. Whatever
ends a started sample, cancellation included, its record is built and handed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from copy import deepcopy
from typing import Any, Protocol

import anyio
from anyio.abc import TaskStatus
from attrs import define, field

from proctor.actors import lease_scope
from proctor.dataset import Sample
from proctor.errors import LimitExceededError, ModelGivenUp, SampleEnded, UsageError
from proctor.evaluation.ending import CLEANUP, LOG_RESERVE, Ending
from proctor.evaluation.failure import describe, is_cancellation
from proctor.evaluation.plan import PlannedRun
from proctor.log.events import ErrorEvent, SampleInitEvent, SampleLimitEvent, ScoreEvent
from proctor.log.records import EvalError, EvalRetryError, EvalSample, EvalSampleLimit, Score
from proctor.log.transcript import Transcript, init_transcript, span
from proctor.model import ChatMessage, ChatMessageUser, GenerateConfig
from proctor.model.model import evaluated_model
from proctor.runtime import Runtime, SampleContext
from proctor.runtime.clock import iso_now
from proctor.scorer import Target
from proctor.solver import TaskState
from proctor.solver.solving import run_solver, use_generate
from proctor.solver.state import use_state
from proctor.solver.store import use_store


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
    earlier: list[EvalRetryError] = field(factory=list, init=False)

    async def run(self, slot: Any, *, task_status: TaskStatus[None]) -> None:
        """Wait for the slot, say so, run, deliver, and give the slot back."""
        async with slot:
            task_status.started()
            self.started()
            await self._attempts()

    async def _attempts(self) -> None:
        allowed = self.plan.options.retry_on_error or 0
        while True:
            attempt = Attempt(self)
            try:
                await attempt.run()
            except BaseException as error:
                if not is_cancellation(error):
                    raise
                attempt.cancelled(error)
                await self.deliver(self, attempt.record(), attempt.failure)
                raise
            if attempt.failure is None or len(self.earlier) >= allowed or isinstance(attempt.failure, ModelGivenUp):
                break
            self.earlier.append(attempt.retry_error())
        await self.deliver(self, attempt.record(), attempt.failure)


@define(eq=False)
class Attempt:
    """One try at a sample: its state, clock, transcript and outcome."""

    owner: SampleRun
    context: SampleContext = field(init=False)
    transcript: Transcript = field(init=False)
    state: TaskState = field(init=False)
    started_at: str = field(factory=iso_now, init=False)
    uuid: str = field(init=False)
    scores: dict[str, Score] = field(factory=dict, init=False)
    limit: EvalSampleLimit | None = field(default=None, init=False)
    error: EvalError | None = field(default=None, init=False)
    failure: BaseException | None = field(default=None, init=False)
    """The exception that `error` tells of; None when the sample ended in order."""

    def __attrs_post_init__(self) -> None:
        owner = self.owner
        self.uuid = owner.runtime.new_id()
        self.context = SampleContext(group=owner.task_id, admission=owner.admission)
        self.transcript = Transcript(new_id=owner.runtime.new_id, working=self.context.working.working)
        self.state = initial_state(owner, self.uuid)

    async def run(self) -> None:
        """Solve and score. Exceptions of user code are kept in `failure`; a cancellation passes."""
        with (
            self.context,
            init_transcript(self.transcript),
            evaluated_model(self.owner.plan.model),
            use_generate(self._generate),
            use_state(self.state),
            use_store(self.state.store),
        ):
            async with lease_scope(ended=SampleEnded):
                try:
                    await self._solve_and_score()
                finally:
                    await self._clean_up()
            self.context.working.end()

    async def _solve_and_score(self) -> None:
        options = self.owner.plan.options
        await self._guarded(self._solve)
        failed = self.failure is not None
        if self.owner.scorers and (not failed or options.score_on_error):
            await self._guarded(self._score)

    async def _guarded(self, step: Callable[[], Awaitable[None]]) -> None:
        """Run a step of user code: an exception becomes this sample's error, a limit its limit."""
        try:
            await step()
        except LimitExceededError as limit:
            self._limited(limit)
        except Exception as error:
            if is_cancellation(error):
                raise
            self._failed(error)
        except BaseExceptionGroup as group:
            if is_cancellation(group):
                raise
            self._failed(group)

    async def _solve(self) -> None:
        options, task = self.owner.plan.options, self.owner.plan.task
        async with span("init", type="init"):
            self.transcript.add(SampleInitEvent(sample=self.owner.sample, state=None))
        limit = options.time_limit
        with anyio.move_on_after(limit) as time, self._working_limit() as working:
            async with span("solvers", type="solvers"):
                for solver in [*([task.setup] if task.setup else []), *solvers_of(self.owner.plan)]:
                    if self.state.completed:
                        break
                    self.state = await run_solver(solver, self.state, self._generate)
        if time.cancelled_caught and limit is not None:
            raise LimitExceededError("time", value=limit, limit=limit, message=f"time limit of {limit:g} s reached")
        if working.cancelled_caught and options.working_limit is not None:
            allowed = options.working_limit
            raise LimitExceededError(
                "working", value=allowed, limit=allowed, message=f"working limit of {allowed:g} s reached"
            )

    def _working_limit(self) -> anyio.CancelScope:
        """A scope whose deadline moves with the sample's working clock: it stands still while the sample waits."""
        scope = anyio.CancelScope()
        limit, clock = self.owner.plan.options.working_limit, self.context.working
        if limit is None:
            return scope

        def move() -> None:
            scope.deadline = anyio.current_time() + limit - clock.working() if clock.running else float("inf")

        clock.observe(move)
        move()
        return scope

    async def _generate(
        self, state: TaskState, tool_calls: str = "loop", cache: Any = False, **config: Any
    ) -> TaskState:
        """The `generate` that solvers are given: one call of the evaluated model with the state's messages."""
        self._check_limits(state)
        output = await self.owner.plan.model.generate(state.messages, config=GenerateConfig(**config), cache=cache)
        state.messages.append(output.message)
        state.output = output
        self._check_limits(state, after=True)
        return state

    def _check_limits(self, state: TaskState, *, after: bool = False) -> None:
        options = self.owner.plan.options
        if options.message_limit is not None and not after and len(state.messages) >= options.message_limit:
            raise LimitExceededError("message", value=len(state.messages), limit=options.message_limit)
        used = sum(usage.total_tokens for usage in self.context.usage.values())
        if options.token_limit is not None and used > options.token_limit:
            raise LimitExceededError("token", value=used, limit=options.token_limit)

    async def _score(self) -> None:
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

    def _limited(self, limit: LimitExceededError) -> None:
        self.limit = EvalSampleLimit(type=limit.type, limit=limit.limit, reason=str(limit))  # type: ignore[arg-type]
        self.transcript.add(
            SampleLimitEvent(type=limit.type, message=str(limit), limit=limit.limit)  # type: ignore[arg-type]
        )

    def _failed(self, error: BaseException) -> None:
        self.failure = error
        self.error = describe(error)
        self.transcript.add(ErrorEvent(error=self.error))

    def cancelled(self, error: BaseException) -> None:
        """Note that the sample was cancelled: logs know it by the error's first word."""
        self.context.working.end()
        self.failure = error
        reason = "the sample was cancelled before it ended"
        text = f"CancelledError('{reason}')"
        self.error = EvalError(message=text, traceback=f"{text}\n", traceback_ansi=f"{text}\n")

    def retry_error(self) -> EvalRetryError:
        """What a later attempt's record keeps of this one."""
        error = self.error
        assert error is not None
        return EvalRetryError(message=error.message, traceback=error.traceback, traceback_ansi=error.traceback_ansi)

    def record(self) -> EvalSample:
        """What happened, as one record for the log."""
        owner, state, clock = self.owner, self.state, self.context.working
        sample, options = owner.sample, owner.plan.options
        events = self.transcript.events
        return EvalSample(
            id=sample_id(owner),
            epoch=owner.epoch,
            input=sample.input,
            choices=sample.choices,
            target=sample.target,
            description=sample.description,
            messages=state.messages,
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
            turn_count=sum(1 for message in state.messages if message.role == "assistant"),
            message_limit=options.message_limit,
            token_limit=options.token_limit,
            time_limit=None if options.time_limit is None else int(options.time_limit),
        )


def initial_state(owner: SampleRun, uuid: str) -> TaskState:
    """The state that the first solver is given."""
    sample, options = owner.sample, owner.plan.options
    return TaskState(
        model=str(owner.plan.model),
        sample_id=sample_id(owner),
        epoch=owner.epoch,
        input=sample.input,
        messages=_conversation(owner),
        target=Target(sample.target),
        choices=sample.choices,
        message_limit=options.message_limit,
        token_limit=options.token_limit,
        metadata=deepcopy(sample.metadata) if sample.metadata else {},
        sample_uuid=uuid,
    )


def sample_id(owner: SampleRun) -> int | str:
    """The sample's id; `choose_samples` gave one to those that had none."""
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
