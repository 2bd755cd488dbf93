"""The ids of samples by row, and the search for one that comes twice, in a few bytes an id.

A set of a million texts takes 100 MB. Here ids that are consecutive numbers (all those that nobody gave) take nothing.
Others are kept as text, one after the other, with the row of each in a hash table of 8 bytes a slot: the upper bits of
a slot are bits of the hash, so that the text is looked at only when they agree, and an id is found twice exactly when
it is there twice.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final

from attrs import define, field

FEWEST: Final = 1 << 10
"""Slots to begin with; there are always at least 1.5 times as many as ids."""
ROW_BITS: Final = 40
ROW_MASK: Final = (1 << ROW_BITS) - 1
HASH_MASK: Final = (1 << 64) - 1


@define(eq=False)
class Ids:
    """Ids in the order of rows, compared as the log compares them, by `str(id)`."""

    _count: int = field(default=0, init=False)
    _first: int | None = field(default=None, init=False)
    """The id of row 0, while every id is one more than the one before; None from the first on that is not."""
    _text: bytearray = field(factory=bytearray, init=False)
    _ends: array[int] = field(factory=lambda: array("Q"), init=False)
    """Where each id ends in the text, twice; plus 1 for an id that is a number."""
    _slots: array[int] | None = field(default=None, init=False)
    """The hash table; None while the ids are a sequence, and empty when no more come."""

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, row: int) -> int | str:
        if self._slots is None:
            if self._first is None or not 0 <= row < self._count:
                raise IndexError(row)
            return self._first + row
        text = self._text_of(row)
        return int(text) if self._ends[row] & 1 else text

    def of(self, rows: Iterable[int]) -> list[int | str]:
        """The ids of some rows."""
        if self._slots is None and isinstance(rows, range) and self._first is not None:
            return list(range(self._first + rows.start, self._first + rows.stop, rows.step))
        return [self[row] for row in rows]

    def add(self, id: int | str) -> int | None:
        """Add the id of the next row.

        Returns:
            The row that has the same id, when there is one; the id is not added then.
        """
        if self._slots is None:
            if id.__class__ is int and (not self._count or id == (self._first or 0) + self._count):
                self._first = int(id) if not self._count else self._first
                self._count += 1
                return None
            self._leave_sequence()
        slots = self._with_room()
        text = str(id)
        slot, found = self._find(slots, text)
        if found is not None:
            return found
        self._append(text, is_number=id.__class__ is int)
        slots[slot] = _entry(text, self._count)
        self._count += 1
        return None

    def close(self) -> None:
        """No more will be added: give up what only finds those that come twice."""
        if self._slots is not None:
            self._slots = array("Q")

    def _leave_sequence(self) -> None:
        first = self._first or 0
        for number in range(first, first + self._count):
            self._append(str(number), is_number=True)
        self._slots = array("Q")

    def _with_room(self) -> array[int]:
        """The hash table, with room for one more."""
        slots, wanted = self._slots or array("Q"), FEWEST
        while wanted * 2 < (self._count + 1) * 3:
            wanted *= 2
        if wanted > len(slots):
            slots = self._slots = self._made(wanted)
        return slots

    def _append(self, text: str, *, is_number: bool) -> None:
        self._text += text.encode("utf-8", "surrogatepass")
        self._ends.append(len(self._text) * 2 + is_number)

    def _text_of(self, row: int) -> str:
        start = self._ends[row - 1] >> 1 if row else 0
        return self._text[start : self._ends[row] >> 1].decode("utf-8", "surrogatepass")

    def _find(self, slots: array[int], text: str) -> tuple[int, int | None]:
        """The slot for a text, and the row that has it, if any."""
        mask = len(slots) - 1
        sought = _entry(text, 0) >> ROW_BITS
        slot = hash(text) & mask
        while entry := slots[slot]:
            if entry >> ROW_BITS == sought and self._text_of((entry & ROW_MASK) - 1) == text:
                return slot, (entry & ROW_MASK) - 1
            slot = (slot + 1) & mask
        return slot, None

    def _made(self, count: int) -> array[int]:
        slots, mask = array("Q", [0]) * count, count - 1
        for row in range(self._count):
            text = self._text_of(row)
            slot = hash(text) & mask
            while slots[slot]:
                slot = (slot + 1) & mask
            slots[slot] = _entry(text, row)
        return slots


def _entry(text: str, row: int) -> int:
    """A slot's content: the upper bits of the hash, and the row counted from 1, so that it is never 0."""
    return (hash(text) & HASH_MASK) >> ROW_BITS << ROW_BITS | (row + 1)
