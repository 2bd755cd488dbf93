"""`multiple_choice`: ask a question with lettered answers and mark those that the model selects."""

from __future__ import annotations

import re
from collections.abc import Collection
from enum import Enum
from typing import Any, Final

from proctor.dataset.letters import answer_character, answer_index
from proctor.runtime.chance import seeded
from proctor.solver.choices import Choices, Shuffles
from proctor.solver.solving import Generate, Solver, solver
from proctor.solver.state import TaskState
from proctor.solver.templates import resource

_ONE: Final = "'ANSWER: $LETTER' (without quotes), where LETTER is one of {letters}"
_SEVERAL: Final = "'ANSWER: $LETTERS' (without quotes), where LETTERS is one or more of {letters}"
_QUESTION: Final = "\n\n{question}\n\n{choices}"


class MultipleChoiceTemplate(str, Enum):  # noqa: UP042  # str() of a member is its name, as users know it
    """The templates of multiple-choice prompts, by whether one answer is right or several, and with reasoning or
    without."""

    SINGLE_ANSWER = f"Choose the right answer to the question below. Reply with nothing but {_ONE}.{_QUESTION}"
    SINGLE_ANSWER_COT = (
        "Choose the right answer to the question below. Think step by step first, and let the last line of your "
        f"reply be {_ONE}.{_QUESTION}"
    )
    MULTIPLE_ANSWER = (
        "Choose all right answers to the question below; there may be more than one. Reply with nothing but "
        f"{_SEVERAL}.{_QUESTION}"
    )
    MULTIPLE_ANSWER_COT = (
        "Choose all right answers to the question below; there may be more than one. Think step by step first, and "
        f"let the last line of your reply be {_SEVERAL}.{_QUESTION}"
    )


@solver
def multiple_choice(
    *,
    template: str | None = None,
    cot: bool = False,
    multiple_correct: bool = False,
    max_tokens: int | None = None,
    shuffle: bool | Shuffles = False,
) -> Solver:
    """Ask the user prompt with the sample's choices under letters, and mark in the state which the model selects.

    It calls the model itself; the scorer is `choice`.

    Args:
        template: with the places {question}, {choices} and, where wanted, {letters}; a text, or a file's path. Default
            one of `MultipleChoiceTemplate`.
        cot: the default template asks for reasoning.
        multiple_correct: several answers may be right: the default template says so, and several letters are read.
        max_tokens: of the model's reply.
        shuffle: show the choices in another order; the conversation is then rewritten to the order of the sample.
            Better shuffle them in the dataset. True shuffles each sample the same way every time.

    Raises:
        ValueError: the template lacks a place.
    """
    if template is None:
        name = f"{'MULTIPLE' if multiple_correct else 'SINGLE'}_ANSWER{'_COT' if cot else ''}"
        template = MultipleChoiceTemplate[name].value
    text = resource(str(getattr(template, "value", template)))
    missing = [place for place in ("{question}", "{choices}") if place not in text]
    if missing:
        raise ValueError(f"multiple_choice: the template has no place {' and no '.join(missing)}")

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        if not state.choices:
            raise ValueError(f"multiple_choice needs samples with choices; sample {state.sample_id!r} has none")
        if shuffle:
            # Chance of the sample's own: its order must not depend on which samples ran before it.
            own = seeded(f"{state.sample_id}/{state.epoch}")
            state.choices.shuffle(own if isinstance(shuffle, bool) else shuffle)
        question = state.user_prompt.text
        state.user_prompt.text = state.choices.prompt(question, text)
        config: dict[str, Any] = {} if max_tokens is None else {"max_tokens": max_tokens}
        state = await generate(state, **config)
        selected = selected_letters(state.output.completion, state.choices.letters(), multiple_correct=multiple_correct)
        if selected:
            places = {answer_index(letter) for letter in selected}
            for place in range(len(state.choices)):
                state.choices.mark_choice(place, place in places)
            if shuffle:
                _show_unshuffled(state, question, text)
        return state

    return solve


_WRAPPED: Final = tuple(re.compile(rf"{mark}\s*([A-Za-z\d][A-Za-z\d ,]*?)\s*{mark}") for mark in (r"\$", r"\*\*"))
_BRACKETED: Final = re.compile(r"(^|[:,])(\s*)\(([A-Za-z\d])\)(?=\s*(?:[,.\n]|\Z))", re.IGNORECASE)
_ON_ITS_LINE: Final = re.compile(r"^ANSWER\s*:\s*([A-Za-z\d ,]+)\s*(?:$|\n|\.)", re.IGNORECASE | re.MULTILINE)
_ANYWHERE: Final = re.compile(r"ANSWER\s*:\s*([A-Za-z\d ,]+)(?:\W|$)", re.IGNORECASE)


def selected_letters(completion: str, letters: Collection[str], *, multiple_correct: bool) -> set[str]:
    """The letters after the last ``ANSWER:`` of a reply, when all are among `letters`; else none.

    Bold, mathematics and brackets around letters are passed over. An answer on a line of its own goes before one in
    the middle of a line. Several letters may be set apart by commas, spaces, "and", or nothing.

    Args:
        completion: the reply. letters: those that were offered.
        multiple_correct: whether several may be selected.
    """
    for wrapped in _WRAPPED:
        completion = wrapped.sub(r"\1", completion)
    completion = _BRACKETED.sub(r"\1\2\3", completion)
    found = _ON_ITS_LINE.findall(completion) or _ANYWHERE.findall(completion)
    if not found:
        return set()
    answer = found[-1].strip().upper()
    if not multiple_correct:
        tokens = [token for token in answer.split(",") if token]
        return set(tokens) if len(tokens) == 1 and tokens[0] in letters else set()
    answer = answer.replace(" AND ", ",").replace(" ", "")
    for tokens in ([token for token in answer.split(",") if token], list(answer)):
        if all(token in letters for token in tokens):
            return set(tokens)
    return set()


def _show_unshuffled(state: TaskState, question: str, template: str) -> None:
    """Rewrite prompt and reply as if the choices had been shown in the sample's order, which the target speaks of."""
    original: Choices = state.choices.in_original_order()
    state.user_prompt.text = original.prompt(question, template)
    reply = f"ANSWER: {', '.join(answer_character(place) for place in original.selected())}"
    state.output.completion = reply
    last: Any = state.messages[-1]
    last.content = reply
