"""`Choices`: the answers of a multiple-choice question, as they are shown and as they were marked."""

from __future__ import annotations

from collections.abc import Iterable, MutableSequence, Sequence
from typing import Any, Protocol, overload

from attrs import define

from proctor.dataset.letters import answer_character
from proctor.runtime.chance import seeded


class Shuffles(Protocol):
    """A source of chance, such as `random.Random`."""

    def shuffle(self, x: MutableSequence[Any], /) -> None: ...


@define
class Choice:
    """One answer.

    Attributes:
        value: its text.
        correct: whether the model selected it; None until it has answered.
        original_position: its place in the sample, which may not be the one it is shown in.
    """

    value: str
    correct: bool | None
    original_position: int


class Choices(Sequence[Choice]):
    """The answers in the order in which they are shown.

    Args:
        choices: texts, or choices.
    """

    def __init__(self, choices: Iterable[str | Choice]) -> None:
        self._choices: list[Choice] = [
            choice if isinstance(choice, Choice) else Choice(choice, None, place)
            for place, choice in enumerate(choices)
        ]

    @overload
    def __getitem__(self, index: int) -> Choice: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Choice]: ...
    def __getitem__(self, index: int | slice) -> Choice | Sequence[Choice]:
        return self._choices[index]

    def __len__(self) -> int:
        return len(self._choices)

    def mark_choice(self, index: int, correct: bool) -> None:
        """Say of the choice at an index whether the model selected it."""
        self._choices[index].correct = correct

    def selected(self) -> list[int]:
        """The places of those that the model selected, in the order shown."""
        return [place for place, choice in enumerate(self._choices) if choice.correct is True]

    def shuffle(self, rand: Shuffles | None = None) -> None:
        """Change the order in which they are shown.

        Args:
            rand: the source of chance; default one of its own.
        """
        order = list(range(len(self._choices)))
        (rand or seeded(None)).shuffle(order)
        self._choices = [self._choices[place] for place in order]

    def in_original_order(self) -> Choices:
        """The same choices as the sample has them."""
        ordered: list[Choice] = sorted(self._choices, key=lambda choice: choice.original_position)
        return Choices(ordered)

    def listing(self) -> str:
        """One line a choice, with its letter: ``A) …``."""
        return "\n".join(f"{answer_character(place)}) {choice.value}" for place, choice in enumerate(self._choices))

    def letters(self) -> list[str]:
        """The letters of all choices."""
        return [answer_character(place) for place in range(len(self._choices))]

    def prompt(self, question: str, template: str) -> str:
        """A prompt from a template with the places {question}, {choices} and, where wanted, {letters}."""
        return template.format(question=question, choices=self.listing(), letters=",".join(self.letters()))
