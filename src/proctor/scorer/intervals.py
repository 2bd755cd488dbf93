"""The statistics behind confidence intervals: quantiles of Student's t, resampled means.

Both are plain Python, so that scoring needs no array library. Resampling starts from a fixed seed: a report must not
change between two looks at the same scores.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Final

from proctor.runtime.chance import seeded

_SEED: Final = 20_241_101
_SERIES_LIMIT: Final = 400


def t_quantile(probability: float, freedom: int) -> float:
    """The quantile of Student's t distribution.

    Up to 400 degrees of freedom the distribution function is summed exactly (Abramowitz and Stegun 26.7.3 and 26.7.4)
    and inverted by bisection; beyond that the expansion around the normal quantile (26.7.5) is exact to 10 digits.

    Args:
        probability: above 0 and below 1. freedom: degrees of freedom, from 1.
    """
    if not 0.0 < probability < 1.0 or freedom < 1:
        raise ValueError(f"no quantile of t for probability {probability!r} and {freedom!r} degrees of freedom")
    if probability < 0.5:
        return -t_quantile(1.0 - probability, freedom)
    if freedom > _SERIES_LIMIT:
        return _expanded(NormalDist().inv_cdf(probability), freedom)
    inside = 2.0 * probability - 1.0
    low, high = 0.0, 1.0
    while _between(high, freedom) < inside:
        low, high = high, high * 2.0
        if math.isinf(high):
            return math.inf
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _between(middle, freedom) < inside else (low, middle)
    return (low + high) / 2.0


def _between(t: float, freedom: int) -> float:
    """The probability that a t-distributed number lies between -t and t."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if not odd:
        return sine * total
    return 2.0 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))


def _expanded(z: float, freedom: int) -> float:
    powers = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum((z, *(power / float(freedom) ** order for order, power in enumerate(powers, 1))))


def bootstrap_means(clusters: Sequence[Sequence[float]], count: int) -> list[float]:
    """The means of `count` resamples: as many clusters as there are, drawn with replacement.

    Args:
        clusters: the values that are drawn together; of independent values each is a cluster of its own.
        count: how many resamples.
    """
    chance = seeded(_SEED)
    sums = [math.fsum(cluster) for cluster in clusters]
    if all(len(cluster) == 1 for cluster in clusters):
        return [math.fsum(chance.choices(sums, k=len(sums))) / len(sums) for _ in range(count)]
    sized = [(total, len(cluster)) for total, cluster in zip(sums, clusters, strict=True)]
    means: list[float] = []
    for _ in range(count):
        drawn = chance.choices(sized, k=len(sized))
        means.append(math.fsum(total for total, _ in drawn) / sum(size for _, size in drawn))
    return means


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of sorted values lies, interpolated between neighbours."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
