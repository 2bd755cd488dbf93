"""`score` and `score_async`: score the samples of a log anew, so many at once, without running them again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from copy import deepcopy
from typing import Any, Final, Literal

import anyio
from attrs import define, evolve, field

from proctor.actors import Limiter, lease_scope
from proctor.errors import SampleEnded, UsageError, with_notes
from proctor.evaluation.call import EvalCall
from proctor.evaluation.header import logged_scorer
from proctor.evaluation.options import checked
from proctor.evaluation.results import Scores
from proctor.evaluation.roles import made_roles
from proctor.log.attached import conversation_of
from proctor.log.events import ScoreEvent
from proctor.log.records import EvalLog, EvalModelConfig, EvalSample, EvalSpec, Score
from proctor.log.transcript import Transcript, init_transcript, span
from proctor.model import ChatMessageUser, Model, get_model
from proctor.model.model import evaluated_model, roles
from proctor.runtime import Runtime, SampleContext, ranks, run
from proctor.runtime.settings import Resolved
from proctor.scorer import Scorer, ScoreReducers, Target
from proctor.scorer.reducers import as_reducers
from proctor.scorer.scoring import Metrics, scorer_names
from proctor.solver import TaskState
from proctor.solver.state import use_state
from proctor.solver.store import use_store

ScoreAction = Literal["append", "overwrite"]

AT_ONCE: Final = 64
"""Samples scored at once when nobody says how many; calls of models are bounded by their own limits besides."""


def score(
    log: EvalLog,
    scorers: Scorer | Sequence[Scorer],
    metrics: Metrics | None = None,
    epochs_reducer: ScoreReducers | None = None,
    model: str | Model | None = None,
    model_roles: Mapping[str, Any] | None = None,
    action: ScoreAction | None = None,
    display: str | None = None,
    copy: bool = True,  # as Inspect has it
    *,
    max_samples: int | None = None,
    async_backend: str | None = None,
) -> EvalLog:
    """Score the samples of a log; no sample is run again.

    Args:
        log: with its samples. scorers: what judges them.
        metrics: in place of those the scorers were declared with.
        epochs_reducer: how the scores of a sample over its epochs become one; default as in the log.
        model: what `get_model()` gives to scorers; default the model of the log. model_roles: the same by role, beside
            those of the log.
        action: ``append`` (default) keeps the scores that are there, ``overwrite`` puts the new ones in their place.
        display: accepted for ported code.
        copy: leave `log` as it is, and change a copy.
        max_samples: samples scored at once; default 64.
        async_backend: asyncio or trio; default PROCTOR_ASYNC_BACKEND, INSPECT_ASYNC_BACKEND, asyncio.

    Returns:
        The log with the scores, results computed of them, and a `ScoreEvent` for each in the samples' events. It is
        not written: see `write_eval_log`.

    Raises:
        UsageError: the log has no samples, or an argument is wrong.
        Exception: what a scorer raised, with a note that names the sample.
    """
    arguments = (log, scorers, metrics, epochs_reducer, model, model_roles, action, display, copy)
    backend = EvalCall.of({"async_backend": async_backend}).said.get("async_backend")
    return run(_score, arguments, max_samples, backend=backend)


async def _score(arguments: tuple[Any, ...], max_samples: int | None) -> EvalLog:
    return await score_async(*arguments, max_samples=max_samples)


async def score_async(
    log: EvalLog,
    scorers: Scorer | Sequence[Scorer],
    metrics: Metrics | None = None,
    epochs_reducer: ScoreReducers | None = None,
    model: str | Model | None = None,
    model_roles: Mapping[str, Any] | None = None,
    action: ScoreAction | None = None,
    display: str | None = None,
    copy: bool = True,  # as Inspect has it
    *,
    max_samples: int | None = None,
) -> EvalLog:
    """`score` in the running loop; it joins the current runtime.

    Args:
        log, scorers, metrics, epochs_reducer, model, model_roles, action, display, copy, max_samples: as for `score`.

    Raises:
        UsageError: the log has no samples, or an argument is wrong.
        Exception: what a scorer raised, with a note that names the sample.
    """
    del display
    if action not in {None, "append", "overwrite"}:
        raise UsageError(f"action must be append or overwrite, not {action!r}")
    if not log.samples:
        raise UsageError(f"{log.location or 'the log'} has no samples to score; read it whole (read_eval_log)")
    if max_samples is not None:
        checked("max_samples", Resolved(max_samples, "score() argument"))
    samples = list(log.samples)  # they may be in a file until they are looked at
    made = evolve(log, samples=samples, eval=deepcopy(log.eval), results=deepcopy(log.results))
    made.samples = deepcopy(samples) if copy else samples
    listed: list[Scorer] = list(scorers) if isinstance(scorers, (list, tuple)) else [scorers]  # type: ignore[list-item]
    call = EvalCall.of({})
    async with call.in_runtime() as runtime:
        with _models(made.eval, model, model_roles):
            rescore = Rescore(runtime, made, listed, metrics, append=action != "overwrite")
            await rescore.run(max_samples or AT_ONCE)
            rescore.finish(_reducers(made.eval, epochs_reducer))
    if not copy:
        for name in ("samples", "eval", "results", "reductions"):
            setattr(log, name, getattr(made, name))
        return log
    return made


@define(eq=False)
class Rescore:
    """The scoring of one log.

    Attributes:
        named: the new scorers, by names that no score of the log has where those stay.
    """

    runtime: Runtime
    log: EvalLog
    scorers: list[Scorer]
    metrics: Metrics | None
    append: bool = field(kw_only=True)
    named: dict[str, Scorer] = field(init=False)
    _new: dict[int, dict[str, Score]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        taken = set[str]()
        if self.append:
            taken = {name for sample in self.log.samples or () for name in sample.scores or ()}
        self.named = {}
        for name, scorer in zip(scorer_names(self.scorers), self.scorers, strict=True):
            free, count = name, 0
            while free in taken or free in self.named:
                count += 1
                free = f"{name}{count}"
            self.named[free] = scorer

    async def run(self, at_once: int) -> None:
        """Score every sample, so many at once.

        Raises:
            Exception: what a scorer raised.
        """
        limiter = Limiter(at_once, name="scoring", rank=ranks.SAMPLE, ledger=self.runtime.ledger)
        try:
            async with anyio.create_task_group() as nursery:
                for place, sample in enumerate(self.log.samples or ()):
                    await nursery.start(self._slot, limiter, place, sample)
        except BaseExceptionGroup as group:
            if len(group.exceptions) == 1:
                raise group.exceptions[0] from None
            raise

    async def _slot(self, limiter: Limiter, place: int, sample: EvalSample, *, task_status: Any) -> None:
        async with limiter.lease():
            task_status.started()
            await self._sample(place, sample)

    async def _sample(self, place: int, sample: EvalSample) -> None:
        state, target = _state(self.log, sample), Target(sample.target)
        context = SampleContext(group=self, admission=self.runtime.next_admission())
        transcript = Transcript(new_id=self.runtime.new_id, working=context.working.working)
        found: dict[str, Score] = {}
        async with _scored(context, transcript, state):
            for name, scorer in self.named.items():
                async with span(name, type="scorer"):
                    try:
                        score = await scorer(state, target)
                    except Exception as error:
                        raise with_notes(error, f"scorer {name}, sample {sample.id!r}, epoch {sample.epoch}") from None
                    if score is not None:
                        found[name] = score
                        transcript.add(ScoreEvent(score=score, target=sample.target, scorer=name))
        self._new[place] = found
        sample.scores = ({**(sample.scores or {}), **found} if self.append else found) or None
        sample.events = [*sample.events, *transcript.events]
        for model, usage in context.usage.items():
            sample.model_usage[model] = sample.model_usage[model] + usage if model in sample.model_usage else usage

    def finish(self, reducers: Any) -> None:
        """Compute the results of the new scores, and say in the header what scored."""
        log, spec = self.log, self.log.eval
        ids = [str(id) for id in spec.dataset.sample_ids or ()] or list(
            dict.fromkeys(str(sample.id) for sample in log.samples or ())
        )
        order = {id: place for place, id in enumerate(ids)}
        epochs = max((sample.epoch for sample in log.samples or ()), default=1)
        scores = Scores(self.named, self.metrics, reducers, epochs)
        for place, sample in enumerate(log.samples or ()):
            at = order.setdefault(str(sample.id), len(order))
            scores.add((at, sample.epoch), sample.id, self._new[place], sample.metadata)
        total = len(log.samples or ())
        completed = sum(sample.error is None for sample in log.samples or ())
        results, reductions = scores.results(total, completed)
        said = [logged_scorer(name, scorer, self.metrics) for name, scorer in self.named.items()]
        if self.append:
            before = log.results.scores if log.results is not None else []
            results.scores = [*before, *results.scores]
            reductions = [*(log.reductions or ()), *reductions]
            said = [*(spec.scorers or ()), *said]
        log.results, log.reductions, spec.scorers = results, reductions or None, said


@asynccontextmanager
async def _scored(context: SampleContext, transcript: Transcript, state: TaskState) -> AsyncIterator[None]:
    """What a scorer finds around it, as in a run."""
    with context, init_transcript(transcript), use_state(state), use_store(state.store):
        async with lease_scope(ended=SampleEnded), span("scorers", type="scorers"):
            yield
        context.working.end()


def _state(log: EvalLog, sample: EvalSample) -> TaskState:
    input, conversation = conversation_of(sample)
    messages = conversation or ([ChatMessageUser(content=input)] if isinstance(input, str) else list(input))
    return TaskState(
        model=log.eval.model,
        sample_id=sample.id,
        epoch=sample.epoch,
        input=input,
        messages=list(messages),
        target=Target(sample.target),
        choices=sample.choices,
        output=sample.output,
        completed=True,
        metadata=sample.metadata,
        store=sample.store,
        scores=sample.scores,
        sample_uuid=sample.uuid,
    )


@contextmanager
def _models(spec: EvalSpec, model: str | Model | None, model_roles: Mapping[str, Any] | None) -> Iterator[None]:
    """The model and the roles of a log, with those that are given in their place."""
    logged = {role: [_role(each) for each in _listed(models)] for role, models in (spec.model_roles or {}).items()}
    with ExitStack() as held:
        held.enter_context(evaluated_model(get_model(model) if model is not None else _logged_model(spec)))
        playing = {**made_roles(Resolved(logged, "log")), **made_roles(Resolved(model_roles, "score() argument"))}
        held.enter_context(roles(playing))
        yield


def _listed(models: EvalModelConfig | list[EvalModelConfig]) -> list[EvalModelConfig]:
    return models if isinstance(models, list) else [models]


def _role(model: EvalModelConfig) -> Model:
    made = get_model(model.model, base_url=model.base_url, memoize=False, **model.args)
    return made.with_config(model.config)


def _logged_model(spec: EvalSpec) -> Model | None:
    """The model of a log; None where it cannot be made, which only a scorer that calls it will miss."""
    try:
        made = get_model(spec.model, base_url=spec.model_base_url, **spec.model_args)
    except UsageError:
        return None
    return made.with_config(spec.model_generate_config)


def _reducers(spec: EvalSpec, given: ScoreReducers | None) -> Any:
    if given is not None:
        return as_reducers(given)
    names = spec.config.epochs_reducer
    return None if names in (None, ["mean"]) else as_reducers(names)


__all__ = ["ScoreAction", "score", "score_async"]
