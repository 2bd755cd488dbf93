"""Samples by row under a memory budget: what passes it goes to a temporary file, from which single rows are read back.

Samples are kept packed, as bytes: so the budget is counted exactly, and a row costs its text and 8 bytes of index. They
are packed by pickle, because metadata may hold any object and must come back as it was; what pickle refuses (a
function, an object of a class nobody can import) stays in memory as it is and is not counted. The file has no name from
the moment it is opened, so nothing is left of it however the process ends.

One thread appends while others read. Rows are appended to `_tail`; when it passes the budget it is written out and
begun anew, in pieces of `PIECE` from then on. Writing holds no lock: readers are stopped only while the two are
exchanged, never while the disk is slow.

Rejected: offsets into the dataset's own file (no use for compressed files and iterables, and wrong once it changes);
keeping Sample objects and estimating their size (four times the memory, and a guess); a database (ten times slower).
"""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
import weakref
from array import array
from collections.abc import Iterable
from typing import Any, Final

import attrs
from attrs import define, field

from proctor.dataset.sample import Sample
from proctor.errors import DatasetError

MB: Final = 1_000_000
PIECE: Final = 1 * MB
"""Bytes that are written at once when rows go to the file."""

_NAMES: Final = tuple(attribute.name for attribute in attrs.fields(Sample))
_PROTOCOL: Final = 5


@define(eq=False)
class Pages:
    """Samples that are appended once and read any number of times, by row from 0.

    Attributes:
        budget: bytes of packed samples that may be held in memory; None is no bound.
    """

    budget: int | None
    _tail: bytearray = field(factory=bytearray, init=False)
    _paged: int = field(default=0, init=False)
    """Bytes that are in the file; the tail begins there."""
    _ends: array[int] = field(factory=lambda: array("Q"), init=False)
    _whole: dict[int, Sample] = field(factory=dict, init=False)
    _file: int | None = field(default=None, init=False)
    _close: Any = field(default=None, init=False)
    _lock: threading.Lock = field(factory=threading.Lock, init=False)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def held(self) -> int:
        """Bytes of packed samples in memory."""
        return len(self._tail)

    @property
    def paged(self) -> int:
        """Bytes of packed samples in the file."""
        return self._paged

    def append(self, sample: Sample) -> None:
        """Add the next row.

        Raises:
            DatasetError: the temporary file cannot be written.
        """
        try:
            data = pack(sample)
        except Exception:  # whatever an object's own way of being pickled raises
            data, self._whole[len(self._ends)] = b"", sample
        with self._lock:
            self._tail += data
            self._ends.append(self._paged + len(self._tail))
        if self.budget is not None and len(self._tail) > self._most(self.budget):
            self._page_out()

    def __getitem__(self, row: int) -> Sample:
        """A row; it blocks when that is in the file.

        Raises:
            DatasetError: the temporary file cannot be read.
        """
        if (whole := self._whole.get(row)) is not None:
            return whole
        with self._lock:
            start, end = self._span(row)
            data = bytes(self._tail[start - self._paged : end - self._paged]) if start >= self._paged else None
        return unpack(self._read(start, end - start) if data is None else data)

    def in_memory(self, row: int) -> bool:
        """Whether a row can be had without reading the file."""
        return self._span(row)[0] >= self._paged or row in self._whole

    def size(self, row: int) -> int:
        """Bytes of a row as it is packed."""
        start, end = self._span(row)
        return end - start

    def close(self) -> None:
        """Give up the rows and the file."""
        with self._lock:
            self._tail, self._ends, self._paged, self._file = bytearray(), array("Q"), 0, None
            self._whole.clear()
            if self._close is not None:
                self._close()

    def _most(self, budget: int) -> int:
        """Bytes that the tail may have: once rows are in the file, no more than are written at once."""
        return budget if self._file is None else min(budget, PIECE)

    def _span(self, row: int) -> tuple[int, int]:
        return self._ends[row - 1] if row else 0, self._ends[row]

    def _page_out(self) -> None:
        """Write the tail to the file. Only the thread that appends changes the tail, so that needs no lock."""
        try:
            if self._file is None:
                self._open()
            _write(self._file, self._tail, self._paged)
        except OSError as error:
            raise DatasetError(
                f"max_dataset_memory: rows cannot be written to a temporary file in {tempfile.gettempdir()}: "
                f"{error.strerror or error}; set TMPDIR to a folder with more room, or allow more memory"
            ) from error
        with self._lock:
            self._paged += len(self._tail)
            self._tail = bytearray()

    def _open(self) -> None:
        with tempfile.TemporaryFile(buffering=0) as file:
            self._file = os.dup(file.fileno())
        self._close = weakref.finalize(self, os.close, self._file)

    def _read(self, start: int, size: int) -> bytes:
        assert self._file is not None
        try:
            data = os.pread(self._file, size, start)
        except OSError as error:
            raise DatasetError(f"rows cannot be read back from a temporary file: {error.strerror or error}") from error
        if len(data) != size:
            raise DatasetError(f"rows cannot be read back: {len(data)} bytes of {size} are left of a temporary file")
        return data


def _write(file: int | None, data: bytearray, offset: int) -> None:
    assert file is not None
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.pwrite(file, view[done:], offset + done)


def paged(samples: Iterable[Sample], budget: int | None) -> Pages:
    """All of `samples` in pages."""
    pages = Pages(budget)
    for sample in samples:
        pages.append(sample)
    return pages


def pack(sample: Sample) -> bytes:
    """A sample as bytes.

    Raises:
        Exception: it holds what pickle refuses.
    """
    # The names of the fields would take as much as a short row; a class derived from Sample has more than these.
    if sample.__class__ is Sample:
        return pickle.dumps(tuple(getattr(sample, name) for name in _NAMES), _PROTOCOL)
    return pickle.dumps(sample, _PROTOCOL)


def unpack(data: bytes) -> Sample:
    """The sample that `pack` made bytes of."""
    found = pickle.loads(data)  # noqa: S301  # our own bytes, from memory or from a file that only we can open
    if isinstance(found, Sample):
        return found
    sample = object.__new__(Sample)
    for name, value in zip(_NAMES, found, strict=True):
        object.__setattr__(sample, name, value)
    return sample
