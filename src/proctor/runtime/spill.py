"""Bytes that are appended and read back, of which a bounded part is in memory and the rest in a temporary file.

The file has no name from the moment it is opened, so nothing is left of it however the process ends. One thread appends
while others read. What is appended goes to the tail; when that passes the budget it is written out and begun anew, in
pieces of `PIECE` from then on. Writing holds no lock: readers are stopped only while the two are exchanged, never while
the disk is slow.
"""

from __future__ import annotations

import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from typing import Any, Final

from attrs import define, field

PIECE: Final = 1_000_000
"""Bytes that are written or read at once."""


@define(eq=False)
class Spill:
    """Bytes that are appended once and read any number of times, by offset from 0.

    Attributes:
        budget: how many may be in memory; None is no bound.
    """

    budget: int | None
    _tail: bytearray = field(factory=bytearray, init=False)
    _paged: int = field(default=0, init=False)
    """Bytes that are in the file; the tail begins there."""
    _file: int | None = field(default=None, init=False)
    _close: Any = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __len__(self) -> int:
        return self._paged + len(self._tail)

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return len(self._tail)

    @property
    def paged(self) -> int:
        """Bytes in the file."""
        return self._paged

    def append(self, data: bytes) -> None:
        """Add bytes at the end.

        Raises:
            OSError: the temporary file cannot be written.
        """
        with self._lock:
            self._tail += data
        budget = self.budget  # which another thread may change
        if budget is not None and len(self._tail) > (budget if self._file is None else min(PIECE, budget)):
            self._page_out()

    def read(self, offset: int, size: int) -> bytes:
        """Bytes from an offset on, fewer at the end; it blocks when they are in the file.

        Raises:
            OSError: the temporary file cannot be read.
        """
        size = max(0, min(size, len(self) - offset))
        with self._lock:
            first = max(0, min(size, self._paged - offset))
            start = max(0, offset - self._paged)
            rest = bytes(self._tail[start : start + size - first])
        return self._read(offset, first) + rest if first else rest

    def pieces(self, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        """The bytes between two offsets, some at a time."""
        stop = len(self) if stop is None else stop
        for offset in range(start, stop, PIECE):
            yield self.read(offset, min(PIECE, stop - offset))

    def close(self) -> None:
        """Give up the bytes and the file."""
        with self._lock:
            self._tail, self._paged, self._file = bytearray(), 0, None
            if self._close is not None:
                self._close()

    def _page_out(self) -> None:
        """Write the tail to the file. Only the thread that appends changes the tail, so that needs no lock."""
        if self._file is None:
            with tempfile.TemporaryFile(buffering=0) as file:
                self._file = os.dup(file.fileno())
            self._close = weakref.finalize(self, os.close, self._file)
        with memoryview(self._tail) as view:
            done = 0
            while done < len(view):
                done += os.pwrite(self._file, view[done:], self._paged + done)
        with self._lock:
            self._paged += len(self._tail)
            self._tail = bytearray()

    def _read(self, offset: int, size: int) -> bytes:
        assert self._file is not None
        data = b""
        while len(data) < size:
            found = os.pread(self._file, size - len(data), offset + len(data))
            if not found:
                raise OSError(f"{size - len(data)} bytes of a temporary file are gone")
            data = found if not data else data + found
        return data
