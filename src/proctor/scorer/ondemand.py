"""Scores of a large run, made one by one when they are looked at.

A million scores as objects take half a gigabyte, only to be looked at a few times in order. Where there are many, the
sequences that pass between engine, reducers and metrics make their items on demand. They can do what is promised of a
`Sequence`; a metric that is not proctor's own is given a list all the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from proctor.runtime.ondemand import OnDemand
from proctor.scorer.measure import SampleScore

T = TypeVar("T")


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
