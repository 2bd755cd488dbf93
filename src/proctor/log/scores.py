"""Scores and the edits made to them: value classes with the field names, defaults and order of the log format."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, TypeAlias

from attrs import Attribute, define, field

from proctor.model.portable import Portable

ScoreReason: TypeAlias = Literal["invalid_response_format", "refusal", "no_response", "grader_failed", "scoring_failed"]
Value: TypeAlias = (
    str | int | float | bool | Sequence[str | int | float | bool] | Mapping[str, str | int | float | bool | None]
)
UNCHANGED: Final = "UNCHANGED"


@define(kw_only=True)
class ProvenanceData(Portable):
    """Who changed something, when and why."""

    timestamp: datetime | str
    author: str
    reason: str | None = None
    metadata: dict[str, Any] = field(factory=dict)


@define(kw_only=True)
class ScoreEdit(Portable):
    """One edit of a score; a field that is ``UNCHANGED`` keeps its value.

    Attributes:
        provenance: None on the entry that records the original score.
    """

    value: Value = UNCHANGED
    answer: str | None = UNCHANGED
    explanation: str | None = UNCHANGED
    reason: str | None = UNCHANGED
    metadata: dict[str, Any] | Literal["UNCHANGED"] = UNCHANGED
    provenance: ProvenanceData | None = None


def is_scalar(value: object) -> bool:
    """Whether a value is one that a score may hold by itself."""
    return isinstance(value, str | int | float)


def checked_value(value: Any) -> Any:
    """A score's value as the log can hold it; numbers of array libraries become Python's own.

    Raises:
        TypeError: it is None or of a type that no reader of the log accepts.
    """
    if isinstance(value, str | bool | int | float):
        return value
    if value is not None and hasattr(value, "tolist"):
        value = value.tolist()
    if is_scalar(value):
        return value
    if isinstance(value, Mapping):
        made = {key: checked_element(item) for key, item in value.items()}
        if all(isinstance(key, str) and (item is None or is_scalar(item)) for key, item in made.items()):
            return made
    elif isinstance(value, Sequence | set | frozenset) and not isinstance(value, bytes | bytearray):
        items = [checked_element(item) for item in value]
        if all(map(is_scalar, items)):
            return items
    raise TypeError(
        f"a score's value is text, a number, a boolean, or a list or dict of these, not {value!r}; "
        "for a sample that could not be scored use Score.unscored()"
    )


def checked_element(value: Any) -> Any:
    """A number of an array library as Python's own, anything else as it is."""
    return value.item() if hasattr(value, "item") and not is_scalar(value) else value


def _text_or_none(instance: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{type(instance).__name__}.{attribute.name} is text or None, not {value!r}")


def _dict_or_none(instance: object, attribute: Attribute[Any], value: object) -> None:
    if value is not None and not isinstance(value, dict):
        raise TypeError(f"{type(instance).__name__}.{attribute.name} is a dict or None, not {value!r}")


@define(kw_only=True)
class Score(Portable):
    """What a scorer says of a sample.

    Attributes:
        value: text, a number, a boolean, or a list or dict of these; NaN when the sample could not be scored.
        answer: what was taken for the answer. explanation: for a reader.
        reason: machine-readable, why the score is out of the ordinary.
        history: its edits, the original first.
    """

    value: Value = field(converter=checked_value)
    answer: str | None = field(default=None, validator=_text_or_none)
    explanation: str | None = field(default=None, validator=_text_or_none)
    reason: str | None = field(default=None, validator=_text_or_none)
    metadata: dict[str, Any] | None = field(default=None, validator=_dict_or_none)
    history: list[ScoreEdit] = field(factory=list)

    @classmethod
    def unscored(
        cls,
        *,
        reason: str | None = None,
        answer: str | None = None,
        explanation: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> Score:
        """A score that is kept in the log and left out of metrics and reducers: its value is NaN."""
        return cls(value=math.nan, answer=answer, explanation=explanation, reason=reason, metadata=metadata)

    @property
    def text(self) -> str:
        """The value as text."""
        return self.as_str()

    def as_str(self) -> str:
        """The value as text.

        Raises:
            ValueError: it is a list or a dict (so for the three below).
        """
        return str(self._scalar())

    def as_int(self) -> int:
        """The value as a whole number."""
        return int(self._scalar())

    def as_float(self) -> float:
        """The value as a number."""
        return float(self._scalar())

    def as_bool(self) -> bool:
        """The value as a truth value."""
        return bool(self._scalar())

    def as_list(self) -> list[str | int | float | bool]:
        """The value as a list.

        Raises:
            ValueError: it is none.
        """
        if isinstance(self.value, list):
            return self.value
        raise ValueError(f"the value of this score is not a list: {self.value!r}")

    def as_dict(self) -> dict[str, str | int | float | bool | None]:
        """The value as a dict.

        Raises:
            ValueError: it is none.
        """
        if isinstance(self.value, dict):
            return self.value
        raise ValueError(f"the value of this score is not a dict: {self.value!r}")

    def _scalar(self) -> str | int | float | bool:
        if isinstance(self.value, str | int | float | bool):
            return self.value
        raise ValueError(f"the value of this score is not a scalar: {self.value!r}")


@define(kw_only=True)
class EvalSampleScore(Score):
    """A sample's score in the reductions: one value for all its epochs."""

    sample_id: str | int | None = None


@define(kw_only=True)
class EvalSampleReductions(Portable):
    """The scores of one scorer, reduced over epochs; `reducer` is None where there is one epoch."""

    scorer: str
    reducer: str | None = None
    samples: list[EvalSampleScore]
