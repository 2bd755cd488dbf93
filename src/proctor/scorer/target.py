"""`Target`: what a scorer compares an answer with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload


class Target(Sequence[str]):
    """One or more texts, each of them right.

    Args:
        target: a text, or several.
    """

    __slots__ = ("target",)

    def __init__(self, target: str | Sequence[str]) -> None:
        self.target: list[str] = [target] if isinstance(target, str) else list(target)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        return self.target[index]

    def __len__(self) -> int:
        return len(self.target)

    def __eq__(self, other: object) -> bool:
        return self.target == other.target if isinstance(other, Target) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # its list can change

    def __repr__(self) -> str:
        return f"Target({self.target!r})"

    @property
    def text(self) -> str:
        """All of it as one text."""
        return "".join(self.target)
