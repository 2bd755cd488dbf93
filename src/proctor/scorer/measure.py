"""What metrics are: the protocol, the `@metric` decorator, and how score values become numbers."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Final, Literal, ParamSpec, Protocol, TypeAlias, TypeVar, overload, runtime_checkable

from attrs import define

from proctor import registry
from proctor.dataset.sample import metadata_as
from proctor.log.records import Score
from proctor.log.scores import ScoreReason, Value
from proctor.model.portable import Portable

logger = logging.getLogger(__name__)

M = TypeVar("M")
P = ParamSpec("P")

CORRECT: Final = "C"
"""A right answer: 1."""
INCORRECT: Final = "I"
"""A wrong answer: 0."""
PARTIAL: Final = "P"
"""A partly right answer: 0.5."""
NOANSWER: Final = "N"
"""No answer, or a refusal: 0."""

ValueToFloat: TypeAlias = Callable[[Value], float]
MetricScores: TypeAlias = Literal["auto", "reduced", "unreduced"]


@define(kw_only=True)
class SampleScore(Portable):
    """A score with the sample it is of.

    Attributes:
        score: of one epoch, or reduced over all.
        sample_id, sample_metadata: the sample's.
        scorer: the scorer's registered name; None for a score that a solver put into the state.
    """

    score: Score
    sample_id: str | int | None = None
    sample_metadata: dict[str, Any] | None = None
    scorer: str | None = None

    def sample_metadata_as(self, metadata_cls: type[M]) -> M | None:
        """The sample's metadata as an instance of a class with the fields that it has; None when there is none.

        Raises:
            ValueError: it does not fit the class.
        """
        return None if self.sample_metadata is None else metadata_as(self.sample_metadata, metadata_cls)


@runtime_checkable
class MetricProtocol(Protocol):
    """Makes one value (or a dict or list of them) from the scores of all samples, given in dataset order."""

    def __call__(self, scores: list[SampleScore]) -> Value: ...


@runtime_checkable
class MetricOfScores(Protocol):
    """A metric in the form of old: it is given scores without their samples, and says so by its annotation."""

    def __call__(self, scores: list[Score]) -> Value: ...


Metric: TypeAlias = MetricProtocol | MetricOfScores


@overload
def metric(name: Callable[P, Metric], /) -> Callable[P, Metric]: ...
@overload
def metric(
    name: str | None = None, *, scores: MetricScores = "auto"
) -> Callable[[Callable[P, Metric]], Callable[P, Metric]]: ...
def metric(name: Any = None, *, scores: MetricScores = "auto") -> Any:
    """Register a function that returns a metric, or a class whose instances are metrics.

    Args:
        name: default the function's own.
        scores: which scores it is given: ``reduced``, one a sample, its epochs reduced; ``unreduced``, one a sample
            and epoch; ``auto``, reduced ones unless reduction is switched off.
    """
    metadata = {} if scores == "auto" else {"scores": scores}
    known_as: str | None = None if callable(name) else name

    def decorate(factory: Callable[P, Metric]) -> Callable[P, Metric]:
        return registry.registered("metric", factory, name=known_as, metadata=metadata)

    bare: Any = name
    return decorate(bare) if callable(name) else decorate


def value_to_float(
    correct: Value = CORRECT,
    incorrect: Value = INCORRECT,
    partial: Value = PARTIAL,
    noanswer: Value = NOANSWER,
) -> ValueToFloat:
    """A function from the value of a score to a number.

    The values given here become 1, 0, 0.5 and 0 (compared with ``==``); numbers stay what they are; "yes" and "true"
    are 1, "no" and "false" are 0 in either case; text that is a finite number is that number. Anything else is 0, with
    a warning in the log.

    Args:
        correct, incorrect, partial, noanswer: the values that mean right, wrong, partly right, and not answered.
    """

    def to_float(value: Value) -> float:
        if value == correct:
            return 1.0
        if value == partial:
            return 0.5
        if value in (incorrect, noanswer):
            return 0.0
        if isinstance(value, (int, float)):
            return float(value)
        if isinstance(value, str):
            number = _WORDS.get(value.lower(), finite(value))
            if number is not None:
                return number
        logger.warning("a score of value %r counts as 0: it is no number and no grade", value)
        return 0.0

    return to_float


_WORDS: Final = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def finite(text: str) -> float | None:
    """The number that a text is in Python's syntax, None if it is none or is not finite."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def is_unscored(value: object) -> bool:
    """Whether a score's value, or a part of it, is the NaN that says "not scored"."""
    return isinstance(value, float) and math.isnan(value)


__all__ = [
    "CORRECT",
    "INCORRECT",
    "NOANSWER",
    "PARTIAL",
    "Metric",
    "MetricOfScores",
    "MetricProtocol",
    "MetricScores",
    "SampleScore",
    "Score",
    "ScoreReason",
    "Value",
    "ValueToFloat",
    "finite",
    "is_unscored",
    "metric",
    "value_to_float",
]
