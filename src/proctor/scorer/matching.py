"""Scorers that look for the target in the answer: `match`, `includes`, `pattern`, `answer`."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, get_args

from proctor.log.records import Score
from proctor.scorer.measure import CORRECT, INCORRECT
from proctor.scorer.metrics import accuracy, stderr
from proctor.scorer.numerals import canonical, number_in, without_decoration
from proctor.scorer.scoring import Scorer, scorer
from proctor.scorer.target import Target

if TYPE_CHECKING:
    from proctor.solver.state import TaskState

Location: TypeAlias = Literal["begin", "end", "any", "exact"]
Compare: TypeAlias = Callable[[str, str], tuple[str, bool]]

_EDGES: Final = string.whitespace + string.punctuation


@scorer(metrics=[accuracy(), stderr()])
def match(
    location: Location = "end",
    *,
    ignore_case: bool = True,
    numeric: bool = False,
) -> Scorer:
    """Whether the answer begins with, ends with, contains or is the target.

    Space and punctuation around both are passed over.

    Args:
        location: where the target must be in the answer.
        ignore_case: compare without regard to case.
        numeric: where the target is a number, compare numbers, to five significant digits: the first word of the
            answer that is a number (begin), the last one (end), any of them, or the whole answer (exact). Currency
            signs, thousands commas and emphasis are passed over; a percent sign is not, for 60% may mean 60 or 0.6
            (give both targets to accept either).

    Raises:
        ValueError: an unknown location.
    """
    if location not in get_args(Location):
        raise ValueError(f"match(location=…) is one of {', '.join(get_args(Location))}, not {location!r}")

    def compare(answer: str, target: str) -> tuple[str, bool]:
        return compare_text(answer, target, location=location, ignore_case=ignore_case, numeric=numeric)

    return _comparing(compare)


@scorer(metrics=[accuracy(), stderr()])
def includes(ignore_case: bool = True) -> Scorer:
    """Whether the answer contains the target.

    Args:
        ignore_case: compare without regard to case.
    """

    def compare(answer: str, target: str) -> tuple[str, bool]:
        if ignore_case:
            answer, target = answer.casefold(), target.casefold()
        return answer, target in answer

    return _comparing(compare)


@scorer(metrics=[accuracy(), stderr()])
def pattern(pattern: str, ignore_case: bool = True, match_all: bool = False) -> Scorer:
    """Whether what a regular expression takes out of the answer is a target.

    Args:
        pattern: its groups are the answer; without groups all that it matches is.
        ignore_case: in the expression, and when comparing with targets.
        match_all: of several groups each must be a target; otherwise one is enough.
    """
    expression = re.compile(pattern, re.IGNORECASE if ignore_case else 0)

    def is_target(text: str, target: Target) -> bool:
        return text.lower() in [item.lower() for item in target] if ignore_case else text in target

    async def score(state: TaskState, target: Target) -> Score:
        completion = state.output.completion
        found = expression.search(completion)
        if found is None:
            return Score(
                value=INCORRECT,
                reason=no_response(completion) or "invalid_response_format",
                explanation=f"The pattern does not occur in the output: {completion}",
            )
        groups: list[str] = [group for group in found.groups() or (found[0],) if isinstance(group, str)]
        right = [group for group in groups if is_target(group, target)]
        if match_all:
            answer = target.text if groups and len(right) == len(groups) else None
            correct = bool(answer)
        else:
            correct = bool(right and right[0])
            # What a single group took is worth knowing also when it is wrong.
            answer = right[0] if right else groups[0] if groups and len(found.groups()) <= 1 else None
        return Score(
            value=CORRECT if correct else INCORRECT,
            answer=answer,
            reason=no_response(completion),
            explanation=completion,
        )

    return score


class AnswerPattern(str, Enum):  # noqa: UP042  # str() of a member is its name, as users know it
    """Regular expressions for the last ``ANSWER: …`` of an output, in any case."""

    LETTER = r"(?is)ANSWER\s*:\s*([A-Z])(?!\w)(?!.*ANSWER\s*:)"
    """One letter, for multiple choice."""
    WORD = r"(?is)ANSWER\s*:\s*(\S+?)(?=[.,;:!?]?(?:\s*\Z|[^\S\n]*\n))(?!.*ANSWER\s*:)"
    """One word at the end of its line."""
    LINE = r"(?i)ANSWER\s*:\s*([^\n]+)\s*\Z"
    """The rest of the output's last line."""


@scorer(metrics=[accuracy(), stderr()])
def answer(pattern: Literal["letter", "word", "line"]) -> Scorer:
    """Whether the answer that the model put after ``ANSWER:`` is a target.

    Args:
        pattern: what is taken: a letter (of multiple choice), a word, or the rest of the line, for which the prompt
            must ask that the answer stands on the last line.
    """
    return _of_pattern(AnswerPattern[pattern.upper()].value)


_of_pattern: Final[Callable[[str], Scorer]] = pattern


def no_response(completion: str | None) -> str | None:
    """The reason for a model that said nothing at all, else None."""
    return None if completion and not completion.isspace() else "no_response"


def _comparing(compare: Compare) -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        completion = state.output.completion
        taken: str | None = None
        right = False
        for expected in target:
            taken, right = compare(completion, expected)
            if right:
                break
        return Score(
            value=CORRECT if right else INCORRECT,
            answer=taken,
            reason=no_response(completion),
            explanation=completion,
        )

    return score


def compare_text(
    answer: str, target: str, *, location: Location = "end", ignore_case: bool = True, numeric: bool = False
) -> tuple[str, bool]:
    """What was taken for the answer, and whether it is the target; the arguments are those of `match`."""
    given = text = answer.strip()
    target = target.strip()
    if ignore_case:
        text, target = text.casefold(), target.casefold()
    if numeric:
        target = without_decoration(target)
        expected = number_in(target)
        if expected is not None:
            return _compare_numbers(given, without_decoration(text), canonical(expected), location)
    text, target = text.strip(_EDGES), target.strip(_EDGES)
    match location:
        case "begin":
            return given, text.startswith(target)
        case "end":
            return given, text.endswith(target)
        case "exact":
            return given, text == target
        case "any":
            return given, target in text


def _compare_numbers(given: str, text: str, expected: str, location: Location) -> tuple[str, bool]:
    """Compare by number: text that ends in the target's digits may be another number."""
    if location == "exact":
        number = number_in(text, trim=False)
        taken = text if number is None else canonical(number)
        return taken, taken == expected
    words = text.split()
    if location == "any":
        found = expected in _numbers(words)
        return (expected, True) if found else (given, False)
    taken = next(iter(_numbers(words if location == "begin" else words[::-1])), "")
    return taken, taken == expected


def _numbers(words: Sequence[str]) -> Any:
    return (canonical(number) for word in words if (number := number_in(word)) is not None)
