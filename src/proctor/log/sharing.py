"""Lists of which many share their beginning, kept once: the inputs of an agent's model calls.

Each call of an agent repeats the conversation so far. As lists of their own, the inputs of 5,000 calls hold 25 million
references, four times the size of what was said; as copies of the raw requests they cannot be held at all. So a
transcript keeps what the calls were given in a pool, and of each call the ranges of the pool.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from copy import deepcopy
from itertools import islice
from operator import is_
from typing import Any, Final, Generic, TypeVar, overload

from attrs import define, field

from proctor.log.encode import SHAPERS, shape

T = TypeVar("T")

Ranges = list[tuple[int, int]]

WORTHWHILE: Final = 16
"""Items from which on a list is shared: shorter ones stay lists, of which any code knows how to write them."""

CALL_KEYS: Final = ("messages", "contents", "input", "inputs")
"""Where a provider's request holds its messages; the names are the format's."""


class SharedList(Sequence[T], Generic[T]):
    """A list of which the items are in a pool; it is compared, copied and written as any list is.

    Args:
        items: the pool. ranges: of the pool, half-open, in order.
    """

    __slots__ = ("_ends", "items", "ranges")

    def __init__(self, items: list[T], ranges: Ranges) -> None:
        self.items, self.ranges = items, ranges
        self._ends: list[int] = []
        size = 0
        for start, end in ranges:
            size += end - start
            self._ends.append(size)

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[T]:
        for start, end in self.ranges:
            yield from islice(self.items, start, end)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError("list index out of range")
        number = bisect_right(self._ends, place)
        return self.items[self.ranges[number][1] - (self._ends[number] - place)]

    def __eq__(self, other: object) -> bool:
        return self.tolist() == (other.tolist() if isinstance(other, SharedList) else other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr(self.tolist())

    def __add__(self, other: Sequence[T]) -> list[T]:
        return [*self, *other]

    def __radd__(self, other: Sequence[T]) -> list[T]:
        return [*other, *self]

    def __deepcopy__(self, memo: dict[int, Any]) -> list[T]:
        return deepcopy(self.tolist(), memo)

    def __reduce__(self) -> Any:
        return list, (self.tolist(),)

    def copy(self) -> list[T]:
        """A list of its own, as of a list."""
        return self.tolist()

    def tolist(self) -> list[T]:
        """A list of its own."""
        return list(self)


@define(eq=False)
class SharingPool(Generic[T]):
    """Makes lists share what they have in common.

    Attributes:
        by_value: items that are equal are one, where they follow each other as in the list before; else those that are
            the same object. items: the pool.
    """

    by_value: bool = False
    items: list[T] = field(factory=list, init=False)
    _places: dict[int, int] = field(factory=dict, init=False)
    _last: list[T] = field(factory=list, init=False)
    _ranges: Ranges = field(factory=list, init=False)

    def share(self, values: Sequence[T]) -> SharedList[T]:
        """The same values, of which those known are kept once."""
        values = list(values)
        known = self._known(values)
        made = _cut(self._ranges, known)
        for value in values[known:]:
            place = None if self.by_value else self._places.get(id(value))
            if place is None:
                place = len(self.items)
                self.items.append(value)
                if not self.by_value:
                    self._places[id(value)] = place
            if made and made[-1][1] == place:
                made[-1] = (made[-1][0], place + 1)
            else:
                made.append((place, place + 1))
        shared = SharedList(self.items, made)
        # Of values that are equal the first is kept, so that those of this list can go.
        self._last, self._ranges = shared.tolist() if self.by_value else values, made
        return shared

    def _known(self, values: list[T]) -> int:
        """How many values the list begins with as the last one did."""
        last = self._last
        if self.by_value:
            if values[: len(last)] == last:
                return len(last)
            pairs = enumerate(zip(last, values, strict=False))
            return next((n for n, (old, new) in pairs if old != new), min(len(last), len(values)))
        if len(values) >= len(last) and all(map(is_, last, values)):
            return len(last)
        same = map(is_, last, values)
        return next((n for n, each in enumerate(same) if not each), min(len(last), len(values)))


def _cut(ranges: Ranges, size: int) -> Ranges:
    """The first `size` places of some ranges."""
    made: Ranges = []
    for start, end in ranges:
        if size <= 0:
            break
        made.append((start, min(end, start + size)))
        size -= end - start
    return made


def _shape_shared(value: SharedList[Any]) -> list[Any]:
    return [shape(item) for item in value]


SHAPERS[SharedList] = _shape_shared

__all__ = ["CALL_KEYS", "SharedList", "SharingPool"]
