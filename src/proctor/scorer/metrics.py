"""The metrics that come with proctor.

Sums are exact (`math.fsum`), so a metric does not depend on the order of its scores. No array library is used: what
is computed here is a few sums over as many numbers as there are samples.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, cast

import attrs

from proctor.scorer.intervals import bootstrap_means, quantile, t_quantile
from proctor.scorer.measure import (
    Metric,
    MetricProtocol,
    SampleScore,
    Value,
    ValueToFloat,
    is_unscored,
    metric,
    value_to_float,
)

# Constant functions, named so that a signature shows them once.
_TO_FLOAT: Final[ValueToFloat] = value_to_float()


@metric
def accuracy(to_float: ValueToFloat = _TO_FLOAT) -> Metric:
    """The share of right answers: the mean of the scores' values.

    Args:
        to_float: makes a number of a value.
    """

    def compute(scores: list[SampleScore]) -> float:
        return _mean(_values(scores, to_float))

    return compute


@metric
def mean(to_float: ValueToFloat = _TO_FLOAT) -> Metric:
    """The mean of the scores' values.

    Args:
        to_float: makes a number of a value.
    """

    def compute(scores: list[SampleScore]) -> float:
        return _mean(_values(scores, to_float))

    return compute


@metric
def var(to_float: ValueToFloat = _TO_FLOAT) -> Metric:
    """The sample variance of the scores' values, 0 for fewer than two.

    Args:
        to_float: makes a number of a value.
    """

    def compute(scores: list[SampleScore]) -> float:
        return _variance(_values(scores, to_float))

    return compute


@metric
def std(to_float: ValueToFloat = _TO_FLOAT) -> Metric:
    """The sample standard deviation of the scores' values, 0 for fewer than two.

    Args:
        to_float: makes a number of a value.
    """

    def compute(scores: list[SampleScore]) -> float:
        return math.sqrt(_variance(_values(scores, to_float)))

    return compute


@metric
def stderr(to_float: ValueToFloat = _TO_FLOAT, cluster: str | None = None) -> Metric:
    """The standard error of the mean, 0 for fewer than two scores (or clusters).

    Args:
        to_float: makes a number of a value.
        cluster: the key of the samples' metadata that says which samples belong together; the error is then that of
            clustered samples (arXiv:2411.00640, appendix A, with the correction for a finite number of clusters).
    """

    def compute(scores: list[SampleScore]) -> float:
        values = _values(scores, to_float)
        if cluster is None:
            return _standard_error(values)
        return _clustered_error(_clusters(scores, values, cluster, "stderr"))

    return compute


@metric
def bootstrap_stderr(num_samples: int = 1000, to_float: ValueToFloat = _TO_FLOAT) -> Metric:
    """The standard error of the mean by resampling, the same each time for the same scores in the same order.

    Args:
        num_samples: how often the scores are drawn anew.
        to_float: makes a number of a value.
    """

    def compute(scores: list[SampleScore]) -> float:
        values = _values(scores, to_float)
        if not values:
            return 0.0
        means = bootstrap_means([[value] for value in values], num_samples)
        centre = _mean(means)
        return math.sqrt(_mean([(value - centre) ** 2 for value in means]))

    return compute


@metric
def ci(
    level: float = 0.95,
    method: Literal["t", "bootstrap"] = "t",
    num_samples: int = 1000,
    to_float: ValueToFloat = _TO_FLOAT,
    cluster: str | None = None,
) -> Metric:
    """The two-sided confidence interval of the mean, as a dict of `lower` and `upper`.

    Args:
        level: such as 0.95.
        method: `t`, the mean ± Student's t (n - 1 degrees of freedom, with clusters their number - 1) times the
            standard error; or `bootstrap`, the percentiles of resampled means.
        num_samples: how often `bootstrap` draws.
        to_float: makes a number of a value.
        cluster: as for `stderr`; `bootstrap` draws whole clusters.

    Raises:
        ValueError: a level or method that there is not.
    """
    if not 0.0 < level < 1.0:
        raise ValueError(f"ci(level=…) is between 0 and 1, not {level!r}")
    if method not in {"t", "bootstrap"}:
        raise ValueError(f"ci(method=…) is 't' or 'bootstrap', not {method!r}")
    tail = (1.0 - level) / 2.0

    def compute(scores: list[SampleScore]) -> Value:
        values = _values(scores, to_float)
        clusters = None if cluster is None else _clusters(scores, values, cluster, "ci")
        if len(values) < 2:
            point = values[0] if values else 0.0
            return {"lower": point, "upper": point}
        if method == "bootstrap":
            means = sorted(bootstrap_means(clusters or [[value] for value in values], num_samples))
            return {"lower": quantile(means, tail), "upper": quantile(means, 1.0 - tail)}
        error = _standard_error(values) if clusters is None else _clustered_error(clusters)
        freedom = max((len(values) if clusters is None else len(clusters)) - 1, 1)
        centre, reach = _mean(values), t_quantile(1.0 - tail, freedom) * error
        return {"lower": centre - reach, "upper": centre + reach}

    return compute


@metric
def grouped(
    metric: Metric,
    group_key: str,
    *,
    all: Literal["samples", "groups", False] = "samples",
    all_label: str = "all",
    value_to_float: ValueToFloat = _TO_FLOAT,
    name_template: str = "{group_name}",
) -> Metric:
    """A metric for each group of samples, as a dict from group to value.

    Args:
        metric: computed for each group.
        group_key: the key of the samples' metadata that names a sample's group.
        all: what stands under `all_label`: the metric of all `samples`, the mean of the `groups`, or nothing (False).
        all_label: see `all`.
        value_to_float: makes a number of a group's value, for the mean.
        name_template: from a group's name to its key in the dict.
    """
    inner = cast("MetricProtocol", metric)

    def compute(scores: list[SampleScore]) -> Value:
        if not scores:
            return {all_label: math.nan} if all else {}
        groups: dict[str, list[SampleScore]] = {}
        scores = list(scores)  # the groups hold all of them anyway
        for score in scores:
            groups.setdefault(str(_required(score, group_key, "grouped")), []).append(score)
        values: dict[str, Any] = {
            name_template.format(group_name=name): inner(members) for name, members in groups.items()
        }
        if not all:
            return values
        if all_label in values:
            raise ValueError(f"grouped(…): a group is called {all_label!r} as the whole is; give another all_label")
        whole = inner(scores) if all == "samples" else _mean([value_to_float(value) for value in values.values()])
        return cast("Value", {**values, all_label: whole})

    return compute


@metric
def aggregate(
    key: str,
    agg: Metric,
    *,
    to_float: ValueToFloat | None = None,
    on_missing: Literal["error", "skip", "zero"] = "error",
) -> Metric:
    """A metric of one key of scores that are dicts. A key whose value is NaN is not scored and passed over.

    Args:
        key: the key. agg: the metric of its values.
        to_float: makes a number of a value; default the metric's own.
        on_missing: a sample whose score has no such key, or None, is an `error`, is passed over (`skip`; the metric
            sees fewer samples, and is NaN when it would see none), or counts as `zero`.

    Raises:
        ValueError: another `on_missing`.
    """
    if on_missing not in {"error", "skip", "zero"}:
        raise ValueError(f"aggregate(on_missing=…) is error, skip or zero, not {on_missing!r}")
    inner = cast("MetricProtocol", agg)

    def value_of(score: SampleScore) -> Value | None:
        whole = score.score.value
        if not isinstance(whole, dict):
            raise ValueError(f"aggregate({key!r}): the score of sample {score.sample_id!r} is no dict: {whole!r}")
        value = whole.get(key)
        if value is None and on_missing == "error":
            raise ValueError(
                f"aggregate({key!r}): the score of sample {score.sample_id!r} has no such key; "
                "on_missing='skip' or 'zero' allows that"
            )
        if value is None:
            return None if on_missing == "skip" else 0.0
        return value if to_float is None or is_unscored(value) else to_float(value)

    def compute(scores: list[SampleScore]) -> Value:
        taken: list[SampleScore] = []
        for score in scores:
            value = None if is_unscored(score.score.value) else value_of(score)
            if value is not None and not is_unscored(value):
                taken.append(attrs.evolve(score, score=attrs.evolve(score.score, value=value)))
        return inner(taken) if taken else math.nan

    return compute


def _values(scores: Sequence[SampleScore], to_float: Callable[[Value], float]) -> Sequence[float]:
    return array("d", (to_float(score.score.value) for score in scores))


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0


def _variance(values: Sequence[float]) -> float:
    if len(values) < 2:
        return 0.0
    centre = _mean(values)
    return math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1)


def _standard_error(values: Sequence[float]) -> float:
    return math.sqrt(_variance(values) / len(values)) if values else 0.0


def _clusters(scores: Sequence[SampleScore], values: Sequence[float], key: str, name: str) -> list[list[float]]:
    clusters: dict[object, list[float]] = {}
    for score, value in zip(scores, values, strict=True):
        clusters.setdefault(_required(score, key, name), []).append(value)
    return list(clusters.values())


def _required(score: SampleScore, key: str, name: str) -> object:
    metadata = score.sample_metadata or {}
    value = metadata.get(key)
    if key not in metadata or (name != "grouped" and (value is None or is_unscored(value))):
        raise ValueError(f"{name}: the metadata of sample {score.sample_id!r} has no value for {key!r}")
    return value


def _clustered_error(clusters: Sequence[Sequence[float]]) -> float:
    count = len(clusters)
    if count < 2:
        return 0.0
    values = [value for cluster in clusters for value in cluster]
    centre = _mean(values)
    spread = math.fsum(math.fsum(value - centre for value in cluster) ** 2 for cluster in clusters)
    return math.sqrt(spread * count / (count - 1)) / len(values)
