"""Scorers that compare normalized words: `exact` and `f1`, as for question answering (SQuAD).

Words are compared without case, articles and punctuation; numbers by value.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Final

from proctor.log.records import Score
from proctor.scorer.matching import no_response
from proctor.scorer.measure import CORRECT, INCORRECT, finite
from proctor.scorer.metrics import mean, stderr
from proctor.scorer.scoring import Scorer, scorer
from proctor.scorer.target import Target

if TYPE_CHECKING:
    from proctor.solver.state import TaskState

_ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")
_SEPARATORS: Final = re.compile("[ -]")
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)


@scorer(metrics=[mean(), stderr()])
def f1(answer_fn: Callable[[str], str] | None = None, stop_words: list[str] | None = None) -> Scorer:
    """How much the words of the answer and of the target overlap: F1 of the best target, to two digits.

    Args:
        answer_fn: takes the answer out of the model's output; default all of it.
        stop_words: words that do not count.
    """
    ignored = frozenset(_word(word) for word in stop_words or ())

    async def score(state: TaskState, target: Target) -> Score:
        completion = state.output.completion
        answer = completion if answer_fn is None else answer_fn(completion)
        best = max((_f1(answer, expected, ignored) for expected in target), default=0.0)
        return Score(value=round(best, 2), answer=answer, reason=no_response(completion))

    return score


@scorer(metrics=[mean(), stderr()])
def exact() -> Scorer:
    """Whether the words of the answer are those of a target."""

    async def score(state: TaskState, target: Target) -> Score:
        answer = state.output.completion
        words = normalized(answer)
        # A target without words, such as "the", could only match an answer without any.
        right = any(expected == words for expected in map(normalized, target) if expected)
        return Score(value=CORRECT if right else INCORRECT, answer=answer, reason=no_response(answer))

    return score


def _f1(answer: str, target: str, ignored: Container[str]) -> float:
    wanted = Counter(normalized(target, ignored).split())
    given = Counter(normalized(answer, ignored).split())
    if not wanted:
        return 0.0
    common = (given & wanted).total()
    # An answer without words has nothing wrong in it, and finds nothing.
    precision = common / given.total() if given else 1.0
    recall = common / wanted.total()
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def normalized(text: str, ignored: Container[str] = ()) -> str:
    """The words of a text as they are compared, with a space between them."""
    words = (_word(part) for part in _SEPARATORS.split(text))
    return " ".join(word for word in words if word and word not in ignored)


def _word(text: str) -> str:
    text = text.casefold()
    number = finite(text)
    if number is None:
        number = finite(text.strip(string.whitespace + string.punctuation))
    bare = str(number) if number is not None else text.translate(_PUNCTUATION)
    if number is None and (number := finite(bare)) is not None:
        bare = str(number)
    return " ".join(_ARTICLES.sub(" ", bare).split())
