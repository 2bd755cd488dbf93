"""Scores of a large run, made one by one when they are looked at.

A million scores as objects take half a gigabyte, only to be looked at a few times in order. Where there are many, the
sequences that pass between engine, reducers and metrics make their items on demand. They can do what is promised of a
`Sequence`; a metric that is not proctor's own is given a list all the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, overload

from proctor.scorer.measure import SampleScore

T = TypeVar("T")


class OnDemand(Sequence[T]):
    """So many items, each made anew whenever it is asked for.

    Args:
        count: how many. make: makes one by its place.
    """

    def __init__(self, count: int, make: Callable[[int], T]) -> None:
        self._count, self._make = count, make

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self._make(place) for place in range(*index.indices(self._count))]
        if not -self._count <= index < self._count:
            raise IndexError(index)
        return self._make(index % self._count)

    def __iter__(self) -> Iterator[T]:
        return map(self._make, range(self._count))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(other) == len(self) and all(map(_same, self, other))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{self._count} items, made when they are looked at>"


def _same(one: Any, other: Any) -> bool:
    return bool(one == other)


class OrderedScores(OnDemand[SampleScore]):
    """Scores in dataset order and then by epoch; `firsts` are the places at which each sample's begin."""

    def __init__(self, count: int, make: Callable[[int], SampleScore], firsts: Sequence[int]) -> None:
        super().__init__(count, make)
        self.firsts = firsts

    def reduced(self, combine: Callable[[list[SampleScore]], SampleScore]) -> OnDemand[SampleScore]:
        """One score a sample, made of those of its epochs."""
        firsts, count = self.firsts, len(self)

        def make(place: int) -> SampleScore:
            end = firsts[place + 1] if place + 1 < len(firsts) else count
            return combine(self[firsts[place] : end])

        return OnDemand(len(firsts), make)


def picked(items: Sequence[T], wanted: Callable[[T], bool]) -> Sequence[T]:
    """Those that are wanted: a list of a list, else made on demand."""
    if not isinstance(items, OnDemand):
        return [item for item in items if wanted(item)]
    places = array("I", (place for place, item in enumerate(items) if wanted(item)))
    return items if len(places) == len(items) else OnDemand(len(places), lambda place: items[places[place]])


def mapped(items: Sequence[T], make: Callable[[T], Any]) -> Any:
    """What is made of each: a list of a list, else made on demand."""
    if not isinstance(items, OnDemand):
        return [make(item) for item in items]
    return OnDemand(len(items), lambda place: make(items[place]))
