"""The JSON of a long record in parts, of which those beyond a bound are in a temporary file.

The record of an agent that has run for hours is as long as all that was said, three times. While it is put together
the messages are still there, so what is made of them should not be in memory too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import define, field

from proctor.runtime.spill import Spill

HELD: Final = 16_000_000
"""Bytes of a record that are in memory before it goes to a temporary file."""


@define(eq=False)
class LongParts:
    """Takes pieces, and gives them back joined to parts of about `size` bytes, any number of times."""

    size: int
    _buffer: list[bytes] = field(factory=list, init=False)
    _filled: int = field(default=0, init=False)
    _parts: list[bytes] = field(factory=list, init=False)
    _held: int = field(default=0, init=False)
    _spill: Spill | None = field(default=None, init=False)

    def add(self, *pieces: bytes) -> None:
        """Add pieces at the end."""
        for piece in pieces:
            if self._buffer and self._filled + len(piece) > self.size:
                self._join()
            self._buffer.append(piece)
            self._filled += len(piece)

    def __iter__(self) -> Iterator[bytes]:
        self._join()
        return iter(self._parts) if self._spill is None else self._spill.pieces()

    def done(self) -> tuple[bytes, ...] | LongParts:
        """The parts as they are best kept."""
        self._join()
        return tuple(self._parts) if self._spill is None else self

    def _join(self) -> None:
        if not self._buffer:
            return
        part = b"".join(self._buffer)
        self._buffer, self._filled = [], 0
        self._held += len(part)
        if self._spill is None:
            self._parts.append(part)
            if self._held > HELD:
                self._spill = Spill(HELD)
                held, self._parts = self._parts, []
                for each in held:
                    self._append(self._spill, each)
        else:
            self._append(self._spill, part)

    def _append(self, spill: Spill, part: bytes) -> None:
        try:
            spill.append(part)
        except OSError:  # no room for temporary files is no reason to lose a record
            spill.budget = None
