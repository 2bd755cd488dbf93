"""Rows under a memory budget: what passes it goes to a temporary file, from which single rows are read back.

Rows (samples, scores) are kept packed, as bytes: so the budget is counted exactly, and a row costs its text and 8 bytes
of index. They are packed by pickle, because metadata may hold any object and must come back as it was; what pickle
refuses (a function, an object of a class nobody can import) stays in memory as it is and is not counted.

Rejected: offsets into the dataset's own file (no use for compressed files and iterables, and wrong once it changes);
keeping Sample objects and estimating their size (four times the memory, and a guess); a database (ten times slower).
"""

from __future__ import annotations

import pickle
import tempfile
from array import array
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import attrs
from attrs import define, field

from proctor.dataset.sample import Sample
from proctor.errors import DatasetError
from proctor.runtime.spill import Spill

T = TypeVar("T")

MB: Final = 1_000_000

_NAMES: Final = tuple(attribute.name for attribute in attrs.fields(Sample))
_PROTOCOL: Final = 5


@define(eq=False)
class Pages(Generic[T]):
    """Rows that are appended once and read any number of times, by number from 0.

    Args:
        budget: bytes of packed rows that may be held in memory; None is no bound.
        pack, unpack: make bytes of a row, and a row of bytes.
    """

    budget: int | None
    _pack: Callable[[T], bytes]
    _unpack: Callable[[bytes], T]
    _bytes: Spill = field(init=False)
    _ends: array[int] = field(factory=lambda: array("Q"), init=False)
    _whole: dict[int, T] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._bytes = Spill(self.budget)

    def __len__(self) -> int:
        return len(self._ends)

    @property
    def held(self) -> int:
        """Bytes of packed rows in memory."""
        return self._bytes.held

    @property
    def paged(self) -> int:
        """Bytes of packed rows in the file."""
        return self._bytes.paged

    def append(self, value: T) -> None:
        """Add the next row.

        Raises:
            DatasetError: the temporary file cannot be written.
        """
        try:
            data = self._pack(value)
        except Exception:  # whatever an object's own way of being pickled raises
            data, self._whole[len(self._ends)] = b"", value
        try:
            self._bytes.append(data)
        except OSError as error:
            raise DatasetError(
                f"rows that pass the memory budget cannot be written to a temporary file in {tempfile.gettempdir()}: "
                f"{error.strerror or error}; set TMPDIR to a folder with more room, or raise max_dataset_memory"
            ) from error
        self._ends.append(len(self._bytes))

    def __getitem__(self, row: int) -> T:
        """A row; it blocks when that is in the file.

        Raises:
            DatasetError: the temporary file cannot be read.
        """
        if (whole := self._whole.get(row)) is not None:
            return whole
        start, end = self._span(row)
        try:
            data = self._bytes.read(start, end - start)
        except OSError as error:
            raise DatasetError(f"rows cannot be read back from a temporary file: {error.strerror or error}") from error
        return self._unpack(data)

    def in_memory(self, row: int) -> bool:
        """Whether a row can be had without reading the file."""
        return self._span(row)[0] >= self._bytes.paged or row in self._whole

    def size(self, row: int) -> int:
        """Bytes of a row as it is packed."""
        start, end = self._span(row)
        return end - start

    def close(self) -> None:
        """Give up the rows and the file."""
        self._ends = array("Q")
        self._whole.clear()
        self._bytes.close()

    def lower(self, budget: int) -> None:
        """Hold no more than this from the next row on, and no more than before."""
        if self.budget is None or budget < self.budget:
            self.bound(budget)

    def bound(self, budget: int | None) -> None:
        """Hold no more than this from the next row on; None is no bound."""
        self.budget = self._bytes.budget = budget

    def _span(self, row: int) -> tuple[int, int]:
        return self._ends[row - 1] if row else 0, self._ends[row]


def sample_pages(budget: int | None) -> Pages[Sample]:
    """Pages of samples."""
    return Pages(budget, pack, unpack)


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
