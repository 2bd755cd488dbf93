"""Which rows of a dataset a run evaluates, and in which order: its shuffle, its ids, its limit.

Ids come before all of it, so that a sample keeps its id whatever part of the dataset runs. Only ids and numbers of rows
are looked at, never samples, so that it costs the same for a dataset on disk.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

from attrs import define, field

from proctor.dataset import Dataset
from proctor.dataset.ids import Ids
from proctor.errors import DatasetError, UsageError
from proctor.evaluation.options import EvalOptions
from proctor.runtime.chance import seeded

SHOWN_IDS: Final = 5
WILD: Final = "*?["


@define(eq=False)
class Choice:
    """The rows that a run evaluates, chosen while they are read.

    Attributes:
        start, stop: of what is left by shuffle and ids, the places that run; stop is None for all.
    """

    dataset: Dataset
    options: EvalOptions
    start: int = field(default=0, init=False)
    stop: int | None = field(default=None, init=False)
    _shuffle: int | None = field(default=None, init=False)
    _patterns: list[str] | None = field(default=None, init=False)
    _missing: set[str] = field(factory=set, init=False)
    _matching: array[int] = field(factory=lambda: array("Q"), init=False)
    _seen: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        shuffle, wanted, limit = self.options.sample_shuffle, self.options.sample_id, self.options.limit
        if shuffle is not None and shuffle is not False:
            self._shuffle = seeded(None).getrandbits(64) if shuffle is True else shuffle
        if wanted is not None:
            self._patterns = [str(item) for item in (wanted if isinstance(wanted, (list, tuple)) else [wanted])]
            self._missing = set(self._patterns)
        if limit is not None:
            self.start, self.stop = limit if isinstance(limit, tuple) else (0, limit)

    @property
    def in_order(self) -> bool:
        """Whether rows run as they come, from `start` to `stop`; else all that matter must have been read first."""
        return self._shuffle is None and self._patterns is None

    def look(self, ids: Ids) -> None:
        """See which of the rows read since the last time are wanted by id."""
        if self._patterns is None:
            self._seen = len(ids)
            return
        while self._seen < len(ids):
            id = str(ids[self._seen])
            found = [pattern for pattern in self._patterns if id == pattern or fnmatchcase(id, pattern)]
            if found:
                self._matching.append(self._seen)
                self._missing.difference_update(found)
            self._seen += 1

    def enough(self, rows: int) -> bool:
        """Whether nothing that comes after so many rows can matter."""
        if self._shuffle is not None:
            return False
        if self._patterns is not None:
            return not self._missing and not any(sign in text for text in self._patterns for sign in WILD)
        return self.stop is not None and rows >= self.stop

    def order(self, ids: Ids) -> Sequence[int]:
        """The rows in the order in which they run, once all that matter have been read.

        Raises:
            DatasetError: there are no samples.
            UsageError: a sample that was named, or the first of a range, is not there.
        """
        self.look(ids)
        self.check_any(ids)
        if self._missing:
            name = next(pattern for pattern in self._patterns or [] if pattern in self._missing)
            known = ", ".join(map(str, ids.of(range(min(len(ids), SHOWN_IDS))))) + ", …" * (len(ids) > SHOWN_IDS)
            raise UsageError(
                f"sample_id: no sample of {self.dataset.name or 'the dataset'} has the id {name!r}; its ids are {known}"
            )
        rows: Any = range(len(ids))
        if self._shuffle is not None:
            rows = array("Q", rows)
            seeded(self._shuffle).shuffle(rows)
        if self._patterns is not None:
            wanted = set(self._matching)
            rows = self._matching if self._shuffle is None else array("Q", [row for row in rows if row in wanted])
        self.check_start(len(rows))
        chosen: Sequence[int] = rows[self.start : self.stop]
        return chosen

    def check_any(self, ids: Ids) -> None:
        """See that there are samples at all.

        Raises:
            DatasetError: there are none.
        """
        if not ids:
            name = self.dataset.location or self.dataset.name
            raise DatasetError(
                f"the dataset {name or 'of the task'} holds no samples: Task(dataset=…) needs at least one"
            )

    def check_start(self, count: int) -> None:
        """See that the range begins among so many.

        Raises:
            UsageError: it begins later.
        """
        if self.start >= count:
            raise UsageError(
                f"limit {self.start + 1}-{self.stop} begins after the last of {count} samples; ranges are counted "
                "from 1"
            )
