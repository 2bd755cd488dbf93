"""Where a run takes its samples from, as far as they have been read: by row, each with its id.

A source counts rows from 0 and knows how many there are only when it has read to the end. Whoever wants a row asks for
it by `reach`; of several who ask at once one reads and the others wait for what it brings.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

import anyio
from attrs import define, field

from proctor.dataset.dataset import Dataset, add_id, identified, numbered
from proctor.dataset.ids import Ids
from proctor.dataset.paging import Pages, sample_pages
from proctor.dataset.sample import Sample

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

BATCH_ROWS: Final = 256
BATCH_BYTES: Final = 256_000
"""Most that one call in a thread reads, of files and of pages: a few milliseconds of work."""
BATCH_SECONDS: Final = 0.01
"""A batch that took longer is followed by a smaller one, so that a slow row is not held back by those after it."""
END: Final = sys.maxsize
"""A row that no source has: to reach it is to read to the end."""


class RunInThread(Protocol):
    """Calls a blocking function in a thread: `Runtime.to_thread`."""

    def __call__(self, function: Callable[[*Ts], T], /, *args: *Ts) -> Awaitable[T]: ...


@define(eq=False)
class Source(abc.ABC):
    """Samples by row.

    Attributes:
        ids: of the rows read so far. ended: there are no more.
        ahead: rows may be read before anybody needs them.
    """

    ids: Ids = field(factory=Ids, init=False)
    ended: bool = field(default=False, init=False)
    ahead: bool = field(default=False, init=False)
    _reading: bool = field(default=False, init=False)
    _waiting: list[anyio.Event] = field(factory=list, init=False)
    _error: Exception | None = field(default=None, init=False)

    @property
    def count(self) -> int:
        """Rows read so far."""
        return len(self.ids)

    async def reach(self, row: int) -> None:
        """Return when a row has been read, or when there is no such row.

        Raises:
            DatasetError: the dataset cannot be read so far.
        """
        while self.count <= row and not self.ended:
            if self._error is not None:
                raise self._error
            if self._reading:
                event = anyio.Event()
                self._waiting.append(event)
                await event.wait()
            else:
                await self._read_alone()

    async def _read_alone(self) -> None:
        self._reading = True
        try:
            await self._read()
        except Exception as error:
            self._error = error
            raise
        finally:
            self._reading = False
            waiting, self._waiting = self._waiting, []
            for event in waiting:
                event.set()

    @abc.abstractmethod
    async def _read(self) -> None:
        """Read at least one more row, or find that there is none."""

    @abc.abstractmethod
    async def take(self, rows: Sequence[int]) -> list[Sample]:
        """The samples of the first of these rows, at least of one; all have been read."""

    def bound(self, budget: int | None) -> bool:
        """Hold no more bytes than this from the next row on; whether it holds what it read under a budget."""
        return False

    async def aclose(self) -> None:  # noqa: B027  # a list needs no end
        """Nothing is taken from it any more."""


@define(eq=False)
class MemorySource(Source):
    """The samples of a dataset that is in memory."""

    samples: list[Sample]

    @classmethod
    def of(cls, dataset: Dataset) -> MemorySource:
        """The samples of a dataset.

        Raises:
            DatasetError: two have one id.
        """
        made = cls([])
        made.samples = list(identified(dataset, ids=made.ids))
        made.ids.close()
        made.ended = True
        return made

    async def _read(self) -> None:
        raise AssertionError("all of it has been read")

    async def take(self, rows: Sequence[int]) -> list[Sample]:
        return [self.samples[row] for row in rows]


@define(eq=False)
class FileSource(Source):
    """The samples of a file (or of what is like one), read in batches in a thread, ahead of who needs them.

    Args:
        name: for errors. samples: blocks; closed with the source. budget: of what is held, in bytes.
    """

    name: str
    samples: Iterator[Sample]
    budget: int | None
    run: RunInThread
    pages: Pages[Sample] = field(init=False)
    _batch: int = field(default=1, init=False)

    def __attrs_post_init__(self) -> None:
        self.ahead = True
        self.pages = sample_pages(self.budget)

    async def _read(self) -> None:
        began = anyio.current_time()
        await self.run(self._read_batch, self._batch)
        quick = anyio.current_time() - began < BATCH_SECONDS
        self._batch = min(self._batch * 2, BATCH_ROWS) if quick else max(self._batch // 2, 1)

    def _read_batch(self, most: int) -> None:
        """In the thread."""
        size = number = 0
        for number, sample in enumerate(islice(self.samples, most), 1):  # noqa: B007  # how many there were
            row = self.count
            with_id = numbered(sample, row + 1)
            # In this order: a row that is counted can be taken.
            self.pages.append(with_id)
            add_id(self.ids, with_id, self.name)
            size += self.pages.size(row)
            if size > BATCH_BYTES:
                return
        self.ended = number < most
        if self.ended:
            self.ids.close()

    async def take(self, rows: Sequence[int]) -> list[Sample]:
        return await take_pages(self.pages, rows, self.run)

    def bound(self, budget: int | None) -> bool:
        self.pages.bound(budget)
        return True

    async def aclose(self) -> None:
        await self.run(self._close)

    def _close(self) -> None:
        close: Any = getattr(self.samples, "close", None)
        if close is not None:
            with suppress(ValueError):  # a thread that nobody waits for any more is still reading
                close()
        self.pages.close()


async def take_pages(pages: Pages[Sample], rows: Sequence[int], run: RunInThread) -> list[Sample]:
    """The first of these rows: one that is in memory, else several that are read in one go."""
    if pages.in_memory(rows[0]):
        return [pages[rows[0]]]
    batch: list[int] = []
    size = 0
    for row in rows:
        size += pages.size(row)
        if batch and size > BATCH_BYTES:
            break
        batch.append(row)
    return await run(_read_rows, pages, batch)


def _read_rows(pages: Pages[Sample], rows: Sequence[int]) -> list[Sample]:
    return [pages[row] for row in rows]
