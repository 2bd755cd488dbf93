"""How the scores of a sample's epochs become one: reducers, their names, and the resolver of names.

A score that is NaN is "not scored" and left out, except by `majority`, for which it is a vote withheld; a dict or list
is reduced key by key or place by place. What the scores agree on (answer, explanation, reason) is kept, and the first
one's metadata.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, cast, overload, runtime_checkable

import attrs

from proctor import registry
from proctor.errors import OptionError
from proctor.log.records import Score
from proctor.scorer.measure import SampleScore, Value, ValueToFloat, is_unscored, value_to_float
from proctor.scorer.ondemand import OrderedScores

P = ParamSpec("P")
Scalar: TypeAlias = str | int | float | bool

_TO_FLOAT: Final[ValueToFloat] = value_to_float()
_WITH_NUMBER: Final = re.compile(r"(.+?)_(\d+)")


@runtime_checkable
class ScoreReducer(Protocol):
    """Makes one score of several, those of a sample's epochs in order."""

    def __call__(self, scores: list[Score]) -> Score: ...


ScoreReducers: TypeAlias = str | ScoreReducer | Sequence["str | ScoreReducer"]


@overload
def score_reducer(factory: Callable[P, ScoreReducer], /) -> Callable[P, ScoreReducer]: ...
@overload
def score_reducer(
    factory: None = None, /, *, name: str | None = None
) -> Callable[[Callable[P, ScoreReducer]], Callable[P, ScoreReducer]]: ...
def score_reducer(factory: Any = None, /, *, name: str | None = None) -> Any:
    """Register a function that returns a reducer.

    Args:
        name: default the function's own. A reducer with a parameter `k` can be asked for as ``name_3``.
    """

    def decorate(factory: Callable[P, ScoreReducer]) -> Callable[P, ScoreReducer]:
        return registry.registered("score_reducer", factory, name=name)

    return decorate if factory is None else decorate(factory)


@score_reducer(name="mean")
def mean_score(value_to_float: ValueToFloat = _TO_FLOAT) -> ScoreReducer:
    """The mean.

    Args:
        value_to_float: makes a number of a value.
    """
    return _by_numbers(lambda numbers: math.fsum(numbers) / len(numbers), value_to_float)


@score_reducer(name="median")
def median_score(value_to_float: ValueToFloat = _TO_FLOAT) -> ScoreReducer:
    """The median, the mean of the two middle values where there are two.

    Args:
        value_to_float: makes a number of a value.
    """

    def median(numbers: list[float]) -> float:
        ordered, half = sorted(numbers), len(numbers) // 2
        return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2

    return _by_numbers(median, value_to_float)


@score_reducer(name="mode")
def mode_score() -> ScoreReducer:
    """The commonest value; of several, the one that came first."""
    return _by_values(lambda values: Counter(values).most_common(1)[0][0])


@score_reducer(name="majority")
def majority_score() -> ScoreReducer:
    """The value that more than half of all scores have, those not scored among them; else NaN.

    The score's metadata has the votes under `panel`.
    """

    def reduce(scores: list[Score]) -> Score:
        def winner(values: list[Scalar]) -> Scalar:
            value, count = Counter(values).most_common(1)[0]
            return value if 2 * count > len(scores) else math.nan

        reduced = _by_values(winner)(scores)
        return attrs.evolve(reduced, metadata={**(reduced.metadata or {}), "panel": _panel(scores)})

    return reduce


def _panel(scores: list[Score]) -> dict[str, Any]:
    failures = [
        {"index": index, "reason": score.reason, "explanation": score.explanation}
        for index, score in enumerate(scores)
        if is_unscored(score.value)
    ]
    votes = [None if is_unscored(score.value) else _copied(score.value) for score in scores]
    return {"votes": votes, "size": len(scores), "failures": failures}


def _copied(value: Value) -> Value:
    return dict(value) if isinstance(value, dict) else list(value) if isinstance(value, list) else value


@score_reducer(name="max")
def max_score(value_to_float: ValueToFloat = _TO_FLOAT) -> ScoreReducer:
    """The greatest value, as it was.

    Args:
        value_to_float: makes a number of a value.
    """
    return _by_values(lambda values: max(values, key=value_to_float))


@score_reducer
def at_least(k: int, value: float = 1.0, value_to_float: ValueToFloat = _TO_FLOAT) -> ScoreReducer:
    """1 if at least `k` scores are at least `value`, else 0.

    Args:
        k: how many. value: how great. value_to_float: makes a number of a value.
    """
    return _by_values(lambda values: 1 if sum(value_to_float(item) >= value for item in values) >= k else 0)


@score_reducer
def pass_at(k: int, value: float = 1.0, value_to_float: ValueToFloat = _TO_FLOAT) -> ScoreReducer:
    """The probability that of `k` attempts at least one is right (arXiv:2107.03374); NaN with fewer scores than `k`.

    Args:
        k: how many attempts. value: a score is right from this on. value_to_float: makes a number of a value.
    """

    def all_but_none(numbers: list[float]) -> float:
        total, wrong = len(numbers), sum(number < value for number in numbers)
        return math.nan if total < k else 1.0 - math.comb(wrong, k) / math.comb(total, k)

    return _by_numbers(all_but_none, value_to_float)


@score_reducer
def pass_k(k: int, value: float = 1.0, value_to_float: ValueToFloat = _TO_FLOAT) -> ScoreReducer:
    """The probability that `k` attempts are all right (arXiv:2406.12045); NaN with fewer scores than `k`.

    Args:
        k: how many attempts. value: a score is right from this on. value_to_float: makes a number of a value.
    """

    def all_right(numbers: list[float]) -> float:
        total, right = len(numbers), sum(number >= value for number in numbers)
        return math.nan if total < k else math.comb(right, k) / math.comb(total, k)

    return _by_numbers(all_right, value_to_float)


@score_reducer(name="collect")
def collect_score() -> ScoreReducer:
    """All values in a list; they must be scalars."""

    def reduce(scores: list[Score]) -> Score:
        for score in scores:
            if isinstance(score.value, (dict, list)):
                raise ValueError(f"the reducer collect takes scalar values, not {score.value!r}")
        values = [cast("Scalar", score.value) for score in scores if not is_unscored(score.value)]
        return _reduced(values or math.nan, scores)

    return reduce


def _by_numbers(combine: Callable[[list[float]], float], to_float: ValueToFloat) -> ScoreReducer:
    def over(values: list[Scalar]) -> float:
        numbers = [number for value in values if not math.isnan(number := to_float(value))]
        return combine(numbers) if numbers else math.nan

    return _by_values(over)


def _by_values(combine: Callable[[list[Scalar]], Scalar]) -> ScoreReducer:
    """A reducer that combines scored values: whole ones, or those of each key of dicts, or each place of lists."""

    def part(values: list[Any]) -> Scalar:
        scored = [value for value in values if not is_unscored(value)]
        return combine(scored) if scored else math.nan

    def reduce(scores: list[Score]) -> Score:
        values = [score.value for score in scores if not is_unscored(score.value)]
        first = values[0] if values else math.nan
        if isinstance(first, dict):
            whole: Any = {key: part([value[key] for value in _alike(values, dict, set)]) for key in first}
        elif isinstance(first, list):
            whole = [part(list(places)) for places in zip(*_alike(values, list, len), strict=True)]
        else:
            for value in values:
                if isinstance(value, (dict, list)):
                    raise ValueError(f"scores of one sample differ in kind: {first!r} and {value!r}")
            whole = part(values)
        return _reduced(whole, scores)

    return reduce


def _alike(values: list[Any], kind: type[Any], shape: Callable[[Any], Any]) -> list[Any]:
    """The values, if all are of one kind and have the same keys or the same length."""
    for value in values:
        if not isinstance(value, kind) or shape(value) != shape(values[0]):
            raise ValueError(
                f"scores of one sample cannot be reduced: {values[0]!r} and {value!r} are not {kind.__name__}s with "
                "the same parts; an epoch that is not scored has the value NaN"
            )
    return values


def _reduced(value: Value, scores: Sequence[Score]) -> Score:
    if not scores:
        return Score(value=value)
    first, *others = scores
    return Score(
        value=value,
        answer=first.answer if all(other.answer == first.answer for other in others) else None,
        explanation=first.explanation if all(other.explanation == first.explanation for other in others) else None,
        reason=first.reason if all(other.reason == first.reason for other in others) else None,
        metadata=first.metadata,
    )


def as_reducer(reducer: str | ScoreReducer) -> ScoreReducer:
    """A reducer by its name: mean, median, mode, majority, max, collect, at_least_2, pass_at_3, pass_k_3, or a
    registered one.

    Raises:
        NotFoundError: no reducer has the name.
        OptionError: the reducer needs a number that the name does not give, or takes none.
    """
    if not isinstance(reducer, str):
        return reducer
    name, arguments = reducer, {}
    numbered = _WITH_NUMBER.fullmatch(reducer)
    if numbered and reducer not in registry.names("score_reducer"):
        name, arguments = numbered[1], {"k": int(numbered[2])}
    factory = cast("Callable[..., ScoreReducer]", registry.lookup("score_reducer", name))
    try:
        return factory(**arguments)
    except TypeError as error:
        hint = f"it takes no number: {name!r}" if arguments else f"it needs a number: '{name}_2'"
        raise OptionError(f"the reducer {reducer!r} cannot be made: {hint} ({error})") from error


def as_reducers(reducers: ScoreReducers | None) -> list[ScoreReducer] | None:
    """Reducers by name or as they are, one or several; None stays None.

    Raises:
        NotFoundError, OptionError: as `as_reducer`.
    """
    if reducers is None:
        return None
    listed = [reducers] if isinstance(reducers, str) or callable(reducers) else reducers
    return [as_reducer(reducer) for reducer in listed]


def reducer_name(reducer: ScoreReducer) -> str:
    """The name of a reducer in logs, with its number: at_least_2."""
    info = registry.info_of(reducer)
    if info is None:
        return str(getattr(reducer, "__name__", type(reducer).__name__))
    suffix = f"_{info.params['k']}" if "k" in info.params else ""
    return info.name if info.name.endswith(suffix) else info.name + suffix


def check_reducers(reducers: Sequence[ScoreReducer], epochs: int) -> None:
    """See that no reducer needs more scores than a sample will have.

    Raises:
        OptionError: one does.
    """
    for reducer in reducers:
        info = registry.info_of(reducer)
        if info is not None and info.name in {"at_least", "pass_at", "pass_k"} and int(info.params["k"]) > epochs:
            raise OptionError(
                f"the reducer {reducer_name(reducer)} needs {info.params['k']} epochs, but epochs is {epochs}"
            )


def reduce_scores(scores: Sequence[Score], reducer: str | ScoreReducer) -> Score:
    """One score for the scores of one sample's epochs, given in order of epochs."""
    return as_reducer(reducer)(list(scores))


def reduce_samples(scores: Sequence[SampleScore], reducer: str | ScoreReducer) -> Sequence[SampleScore]:
    """One score a sample, in the order in which the samples first appear.

    Args:
        scores: of samples and epochs; those without a sample's id are left out.
        reducer: makes one of several.
    """
    combine = as_reducer(reducer)

    def reduced(epochs: list[SampleScore]) -> SampleScore:
        return SampleScore(
            score=combine([score.score for score in epochs]),
            sample_id=epochs[0].sample_id,
            sample_metadata=epochs[0].sample_metadata,
        )

    if isinstance(scores, OrderedScores):
        return scores.reduced(reduced)
    samples: dict[str, list[SampleScore]] = {}
    for score in scores:
        if score.sample_id is not None:
            samples.setdefault(str(score.sample_id), []).append(score)
    return [reduced(epochs) for epochs in samples.values()]
