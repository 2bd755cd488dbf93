"""The letters that stand for answer choices: A to Z, then 1, 2, 3 … from the 27th choice on."""

from __future__ import annotations

from typing import Final

_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def answer_character(index: int) -> str:
    """The letter (or number) of the choice at an index, 0 for the first."""
    return _LETTERS[index] if index < len(_LETTERS) else str(index - len(_LETTERS) + 1)


def answer_index(char: str) -> int:
    """The index of the choice that a letter of either case, or a number, stands for.

    Raises:
        ValueError: it stands for none.
    """
    if len(char) == 1 and char.upper() in _LETTERS:
        return _LETTERS.index(char.upper())
    if char.isnumeric():
        number = int(char)
        if number > 0:
            return len(_LETTERS) - 1 + number
    raise ValueError(f"{char!r} names no answer choice: use a letter, or a number from 1 for choices after Z")
