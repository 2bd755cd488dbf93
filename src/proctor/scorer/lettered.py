"""`choice`: the scorer for the `multiple_choice` solver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from proctor.dataset.letters import answer_character, answer_index
from proctor.log.records import Score
from proctor.scorer.measure import CORRECT, INCORRECT, NOANSWER
from proctor.scorer.metrics import accuracy, stderr
from proctor.scorer.scoring import Scorer, scorer
from proctor.scorer.target import Target
from proctor.solver.choices import Choices

if TYPE_CHECKING:
    from proctor.solver.state import TaskState


@scorer(metrics=[accuracy(), stderr()])
def choice() -> Scorer:
    """Whether the choices that the model selected are those that the target names by letter (A, B, …).

    `multiple_choice` marks the selected ones in the state.
    """

    async def score(state: TaskState, target: Target) -> Score:
        choices = state.choices
        if not choices:
            raise ValueError(f"the choice scorer needs samples with choices; sample {state.sample_id!r} has none")
        explanation = state.output.completion
        if any(item.original_position != place for place, item in enumerate(choices)):
            explanation = _shown_to_the_model(choices)
            choices = choices.in_original_order()
        wanted = sorted(_positions(target, len(choices)))
        selected = choices.selected()
        letters = ", ".join(answer_character(place) for place in selected)
        if selected == wanted:
            return Score(value=CORRECT, answer=letters, explanation=explanation)
        if selected:
            return Score(value=INCORRECT, answer=letters, explanation=explanation)
        if not state.output.completion.strip():
            return Score(value=NOANSWER, answer="", explanation=explanation, reason="no_response")
        return Score(value=INCORRECT, answer="", explanation=explanation, reason="invalid_response_format")

    return score


def _positions(target: Sequence[str], count: int) -> list[int]:
    """The places of the choices that a target names: letters one by one, numbers as wholes."""
    names: list[str] = []
    for text in target:
        for token in text.replace(",", " ").split():
            names += [token] if token.isnumeric() else token
    places = [answer_index(name) for name in names]
    beyond = [name for name, place in zip(names, places, strict=True) if place >= count]
    if beyond:
        raise ValueError(f"the target names {', '.join(beyond)}, but the sample has only {count} choices")
    return places


def _shown_to_the_model(choices: Choices) -> str:
    letters = ", ".join(answer_character(place) for place in choices.selected())
    return (
        f"The model was shown the choices in this order:\n\n{choices.listing()}\n\nIts answer in this order: {letters}"
    )
