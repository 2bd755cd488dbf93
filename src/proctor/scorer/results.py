"""From scores to results: what the engine calls when a task is over, and a display while it runs."""

from __future__ import annotations

import fnmatch
import inspect
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, get_args, get_type_hints

import attrs
from attrs import field, frozen

from proctor import registry
from proctor.errors import UsageError, with_notes
from proctor.log.records import (
    EvalMetric,
    EvalMetricDefinition,
    EvalSampleReductions,
    EvalSampleScore,
    EvalScore,
    Score,
)
from proctor.runtime.ondemand import OnDemand
from proctor.scorer.measure import Metric, SampleScore, Value, is_unscored
from proctor.scorer.ondemand import mapped, picked
from proctor.scorer.reducers import ScoreReducer, mean_score, reduce_samples, reducer_name
from proctor.scorer.scoring import Metrics

logger: Final = logging.getLogger(__name__)

Groups = Mapping[str, Sequence[Metric]]


@frozen(kw_only=True)
class ScorerInfo:
    """What a result says of the scorer it is of.

    Attributes:
        name: unique within the task. params: what the scorer was called with. metadata: what `@scorer` was given.
    """

    name: str
    params: Mapping[str, Any] = field(factory=dict)
    metadata: Mapping[str, Any] = field(factory=dict)


def scorer_results(
    scores: Sequence[SampleScore],
    metrics: Metrics,
    reducers: Sequence[ScoreReducer] | None,
    scorer: ScorerInfo,
) -> tuple[list[EvalScore], list[EvalSampleReductions]]:
    """The results of one scorer, and the reduced scores they were computed from.

    Args:
        scores: of every sample and epoch, in dataset order and then by epoch: nothing here depends on when they came.
        metrics: computed of them.
        reducers: one set of results each; None is the mean, which the results then do not name. An empty list: the
            metrics see every epoch as it is.
        scorer: what the results are of.

    Raises:
        UsageError: the metrics do not fit the scores.
        Exception: what a metric raised, with a note that names it.
    """
    if reducers is not None and not reducers:
        if any(_mode(metric) == "reduced" for metric in _flat(metrics)) and _repeated(scores):
            raise UsageError(
                f"scorer {scorer.name}: a metric wants reduced scores (@metric(scores='reduced')), but reduction is "
                "switched off; give Epochs a reducer"
            )
        return eval_scores(scores, metrics, scorer), []
    results: list[EvalScore] = []
    reductions: list[EvalSampleReductions] = []
    of_samples = _only(metrics, {"auto", "reduced"})
    of_epochs = _only(metrics, {"unreduced"})
    if of_samples:
        unnamed = None if not of_epochs else "mean"
        named = [(mean_score(), unnamed)] if reducers is None else [(each, reducer_name(each)) for each in reducers]
        for reducer, name in named:
            reduced = reduce_samples(scores, reducer)
            reductions.append(_reductions(reduced, scorer.name, name))
            results += eval_scores(reduced, of_samples, scorer, reducer=name)
    if of_epochs:
        results += eval_scores(scores, of_epochs, scorer)
    return results, reductions


def _reductions(scores: Sequence[SampleScore], scorer: str, reducer: str | None) -> EvalSampleReductions:
    return EvalSampleReductions(scorer=scorer, reducer=reducer, samples=mapped(scores, _sample_score))


def _sample_score(score: SampleScore) -> EvalSampleScore:
    return EvalSampleScore(**{name: getattr(score.score, name) for name in _SCORE_FIELDS}, sample_id=score.sample_id)


_SCORE_FIELDS: Final = tuple(attribute.name for attribute in attrs.fields(Score))


def eval_scores(
    scores: Sequence[SampleScore], metrics: Metrics, scorer: ScorerInfo, *, reducer: str | None = None
) -> list[EvalScore]:
    """The metrics of one set of scores: one result for a list of metrics, one for each key that a dict names.

    Args:
        scores: one a sample, or one a sample and epoch.
        reducer: what reduced them, for the result.

    Raises:
        UsageError: metrics by key for a score that is no dict, or has no such key.
    """
    simple, groups = _split(metrics)
    results: list[EvalScore] = []
    if simple or not groups:
        scored = picked(scores, lambda score: not is_unscored(score.score.value))
        results.append(_result(scorer.name, scored, len(scores), _listed_metrics(scored, simple), scorer, reducer))
    for group in groups:
        for key, wanted in _keys(group, scores).items():
            scored = _of_key(scores, key, scorer.name)
            results.append(_result(key, scored, len(scores), _keyed_metrics(scored, wanted), scorer, reducer))
    return results


def compute_metrics(scores: Sequence[SampleScore], metrics: Metrics) -> dict[str, float | int]:
    """The metrics of one scorer's scores by name, as a display shows them while a task runs.

    Args:
        scores: one a sample, NaN for those not scored.
        metrics: a list, or by key for scores that are dicts: their names are then ``key/metric``.
    """
    values: dict[str, float | int] = {}
    for result in eval_scores(scores, metrics, ScorerInfo(name="")):
        for name, metric in result.metrics.items():
            values[f"{result.name}/{name}" if result.name else name] = metric.value
    return values


def metric_infos(metrics: Metrics) -> Any:
    """The metrics as the log's header names them, in the same form: a list, a dict of lists, or a list with dicts."""
    if isinstance(metrics, Mapping):
        return {key: [_definition(metric) for metric in listed] for key, listed in metrics.items()}
    return [metric_infos(item) if isinstance(item, Mapping) else _definition(item) for item in metrics]


def loggable(params: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments as a log can hold them: registered objects and functions by name, the rest as they are."""
    return {name: _loggable(value) for name, value in params.items()}


def _loggable(value: Any) -> Any:
    info = registry.info_of(value) if not isinstance(value, type) else None
    if info is not None:
        return {"type": info.kind, "name": info.name, "params": loggable(info.passed)}
    if isinstance(value, Mapping):
        return {str(key): _loggable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_loggable(item) for item in value]
    if callable(value):
        return str(getattr(value, "__name__", type(value).__name__))
    return value


def _definition(metric: Metric) -> EvalMetricDefinition:
    info = registry.info_of(metric)
    return EvalMetricDefinition(name=_name(metric), options=loggable(info.passed) if info is not None else {})


def _name(metric: Metric) -> str:
    info = registry.info_of(metric)
    return info.name if info is not None else str(getattr(metric, "__name__", type(metric).__name__))


def _mode(metric: Metric) -> str:
    info = registry.info_of(metric)
    return "auto" if info is None else info.metadata.get("scores", "auto")


def _split(metrics: Metrics) -> tuple[list[Metric], list[Groups]]:
    if isinstance(metrics, Mapping):
        return [], [metrics]
    simple: list[Metric] = []
    groups: list[Groups] = []
    for item in metrics:
        if isinstance(item, Mapping):
            groups.append(item)
        else:
            simple.append(item)
    return simple, groups


def _flat(metrics: Metrics) -> Iterator[Metric]:
    simple, groups = _split(metrics)
    yield from simple
    for group in groups:
        for listed in group.values():
            yield from listed


def _only(metrics: Metrics, modes: set[str]) -> Metrics:
    """The metrics that want scores in one of these modes, in the same form."""
    if isinstance(metrics, Mapping):
        return _only_keyed(metrics, modes)
    simple, groups = _split(metrics)
    kept = [group for group in (_only_keyed(group, modes) for group in groups) if group]
    return [*(metric for metric in simple if _mode(metric) in modes), *kept]


def _only_keyed(group: Groups, modes: set[str]) -> Groups:
    kept = {key: [metric for metric in listed if _mode(metric) in modes] for key, listed in group.items()}
    return {key: listed for key, listed in kept.items() if listed}


def _repeated(scores: Sequence[SampleScore]) -> bool:
    ids = [str(score.sample_id) for score in scores if score.sample_id is not None]
    return len(set(ids)) < len(ids)


def _keys(group: Groups, scores: Sequence[SampleScore]) -> dict[str, list[Metric]]:
    """The metrics of each key of the scores that a key (or pattern) of the group names."""
    first = next((score.score.value for score in scores if isinstance(score.score.value, dict)), None)
    if first is None:
        return {key: list(listed) for key, listed in group.items()}
    wanted: dict[str, list[Metric]] = {}
    for pattern, listed in group.items():
        for key in first:
            if fnmatch.fnmatchcase(key, pattern):
                mine = wanted.setdefault(key, [])
                names = {_name(metric) for metric in mine}
                mine += [metric for metric in listed if _name(metric) not in names]
    return wanted


def _of_key(scores: Sequence[SampleScore], key: str, scorer: str) -> list[SampleScore]:
    """The scores of one key that are scored."""
    scored: list[SampleScore] = []
    for score in scores:
        value = score.score.value
        if is_unscored(value):
            continue
        if not isinstance(value, dict) or key not in value:
            raise UsageError(
                f"scorer {scorer} has metrics by key, but the score of sample {score.sample_id!r} is no dict with the "
                f"key {key!r}: {value!r}"
            )
        if not is_unscored(value[key]):
            scored.append(attrs.evolve(score, score=_scalar(score.score, value[key])))
    return scored


def _scalar(score: Score, value: Any) -> Score:
    # None within a dict is "no value for this key"; a metric sees it as text, where a score can hold no None.
    return attrs.evolve(score, value="" if value is None else value)


def _result(
    name: str,
    scored: Sequence[SampleScore],
    total: int,
    metrics: dict[str, EvalMetric],
    scorer: ScorerInfo,
    reducer: str | None,
) -> EvalScore:
    return EvalScore(
        name=name,
        scorer=scorer.name,
        reducer=reducer,
        scored_samples=len(scored),
        unscored_samples=total - len(scored),
        params=dict(scorer.params),
        metrics=metrics,
        metadata=dict(scorer.metadata) or None,
    )


def _listed_metrics(scores: Sequence[SampleScore], metrics: Sequence[Metric]) -> dict[str, EvalMetric]:
    made: dict[str, EvalMetric] = {}
    for metric in metrics:
        name = _name(metric)
        for part, value in _parts(_value(metric, scores), first=1):
            key = _unused(name if part is None else part if isinstance(part, str) else f"{name}-{part}", made)
            made[key] = _eval_metric(metric, part, value)
    return made


def _keyed_metrics(scores: Sequence[SampleScore], metrics: Sequence[Metric]) -> dict[str, EvalMetric]:
    made: dict[str, EvalMetric] = {}
    for metric in metrics:
        name = _name(metric)
        for part, value in _parts(_value(metric, scores), first=0):
            made[name if part is None else f"{name}_{part}"] = _eval_metric(metric, part, value)
    return made


def _eval_metric(metric: Metric, part: str | int | None, value: Any) -> EvalMetric:
    info = registry.info_of(metric)
    name = _name(metric)
    params = {} if info is None else loggable(info.passed)
    try:
        number = value if isinstance(value, (int, float)) and not isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        raise UsageError(
            f"the metric {name} gave {value!r}; it must give a number, or a dict or list of them"
        ) from None
    if part is None:
        return EvalMetric(name=name, value=number, params=params)
    return EvalMetric(name=str(part), group=name, value=number, params=params)


def _parts(value: Value, *, first: int) -> Iterator[tuple[str | int | None, Any]]:
    """A metric's value, or its parts by key or by place (from `first`)."""
    if isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items() if item is not None)
    elif isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        yield from ((place, item) for place, item in enumerate(value, first) if item is not None)
    else:
        yield None, value


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    count, free = 1, name
    while free in taken:
        count += 1
        free = f"{name}{count}"
    return free


def _value(metric: Metric, scores: Sequence[SampleScore]) -> Value:
    if scores:
        try:
            return _call(metric, scores)
        except Exception as error:
            with_notes(error, f"raised by the metric {_name(metric)}")
            raise
    # Without scores a metric may still know the shape of what it gives; most cannot, and say nothing.
    try:
        value = _call(metric, [])
    except Exception as error:
        logger.warning("the metric %s is NaN: no sample was scored (%s)", _name(metric), type(error).__name__)
        return math.nan
    return value if isinstance(value, Mapping) and value else math.nan


def _call(metric: Metric, scores: Sequence[SampleScore]) -> Value:
    of_scores: Any = metric
    given: Any = mapped(scores, lambda score: score.score) if _takes_scores(metric) else scores
    if isinstance(given, OnDemand) and not _is_own(metric):
        given = list(given)
    value: Value = of_scores(given)
    return value


def _is_own(metric: Metric) -> bool:
    """Whether it is one of proctor's, which look at scores one after the other and take any sequence."""
    return str(getattr(metric, "__module__", "")).startswith("proctor.")


def _takes_scores(metric: Metric) -> bool:
    """Whether a metric is of the old form, which is given scores: its parameter says so, or says nothing."""
    call = metric if inspect.isroutine(metric) else type(metric).__call__
    try:
        parameters = [name for name in inspect.signature(call).parameters if name != "self"]
    except (TypeError, ValueError):
        return False
    if not parameters:
        return True
    try:
        hint = get_type_hints(call).get(parameters[0])
    except Exception:  # a name that only a type checker can see
        hint = getattr(call, "__annotations__", {}).get(parameters[0])
    if isinstance(hint, str):
        return "SampleScore" not in hint and "Score" in hint
    return hint is None or hint is Any or get_args(hint) == (Score,)
