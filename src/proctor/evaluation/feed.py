"""Samples pulled one by one: chosen from the dataset, sent over a channel, started when they have a slot.

Pull, not push: the channel has no buffer and a sample's task is started only when the one before it has its slot, so
what is held does not grow with the number of samples. The dataset itself may be read in the same way. Then a run begins
when its first sample is known, and how many there are is known when the last has been read. A file is read ahead of the
samples, as fast as it can be, because what is wrong with its last row is better known now than in hours; what was read
and passes the memory budget waits on disk. An iterable is read no further than the next sample.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

import anyio
from anyio.lowlevel import checkpoint
from anyio.streams.memory import MemoryObjectSendStream
from attrs import define, field, frozen

from proctor.dataset import Dataset, MemoryDataset, Sample
from proctor.dataset.dataset import source_of
from proctor.dataset.iterable import IterableDataset
from proctor.dataset.paging import MB
from proctor.dataset.source import FileSource, MemorySource, RunInThread, Source
from proctor.dataset.streamed import Lazy, StreamedDataset
from proctor.evaluation.choice import Choice
from proctor.evaluation.ending import CLEANUP
from proctor.evaluation.options import EvalOptions
from proctor.log.header import MANY_IDS
from proctor.runtime.ondemand import OnDemand

logger: Final = logging.getLogger(__name__)

AT_ONCE: Final = 64
"""Rows that are asked for at once; how many are read back from disk is bounded by their size too."""


@frozen
class Planned:
    """One sample in one epoch, waiting to be started; `index` is its place among those that run, from 0."""

    index: int
    epoch: int
    sample: Sample


@define(eq=False)
class Feed:
    """The samples of one run. Open it, send from it, close it.

    Args:
        epochs: how often each sample runs.
        budget: bytes of samples that may be held, of a dataset that is not in memory already; None is no bound.
        known: called with the planned number of samples × epochs when that is known.
    """

    dataset: Dataset
    options: EvalOptions
    epochs: int
    budget: int | None
    run: RunInThread
    known: Callable[[int], None]
    total: int | None = field(default=None, init=False)
    source: Source = field(init=False)
    _choice: Choice = field(init=False)
    _order: Sequence[int] | None = field(default=None, init=False)
    """The rows that run; None while they run as they come."""
    _opened: bool = field(default=False, init=False)
    skips: Callable[[Sample, int, int], bool] | None = field(default=None, init=False)
    """Whether a sample (its place, its epoch) need not run: it is not sent then."""
    passed: bool = field(default=False, init=False)
    """Every sample has been sent or skipped."""

    async def open(self) -> None:
        """Read until the first sample is known, and everything when it must be, or when nothing bounds the memory.

        Raises:
            UsageError: the dataset cannot be read, or an option does not fit it.
        """
        self._choice = Choice(self.dataset, self.options)
        self.source = await open_source(self.dataset, self.budget, self.run)
        self._opened = True
        if not self._choice.in_order:
            await self._read_all()
            self._order = self._choice.order(self.source.ids)
        elif self.source.ahead and self.budget is None:
            await self._read_all()
        await self._first()
        self._tell()

    async def _read_all(self) -> None:
        choice, source = self._choice, self.source
        while not source.ended and not choice.enough(source.count):
            await source.reach(source.count)
            choice.look(source.ids)

    async def _first(self) -> None:
        if self._order is not None:
            return
        await self.source.reach(self._choice.start)
        self._choice.check_any(self.source.ids)
        self._choice.check_start(self.source.count)

    def bound(self, budget: int | None) -> bool:
        """Hold no more than this from the next row on; whether the dataset is one that is not in memory anyway."""
        return self._opened and self.source.bound(share_of(self.dataset, budget))

    async def close(self) -> None:
        """Let go of the dataset, whether opening it succeeded or not; nothing is sent any more."""
        if not self._opened:
            return
        self._opened = False
        try:
            await self.source.aclose()
        except Exception:
            logger.warning("%s: closing the dataset failed", source_of(self.dataset), exc_info=True)

    @property
    def ids(self) -> Sequence[int | str]:
        """Of the samples that run, as far as they are known, in order; a list unless they are many."""
        rows = self._order if self._order is not None else range(self._choice.start, self._known_stop())
        ids = self.source.ids
        return ids.of(rows) if len(rows) <= MANY_IDS else OnDemand(len(rows), lambda place: ids[rows[place]])

    @property
    def all_known(self) -> bool:
        """Whether the ids of all samples that run are known, and few enough to be said where memory is short."""
        return self.total is not None and (self.budget is None or self.total <= MANY_IDS)

    async def has_target(self) -> bool:
        """Whether a sample has a target: any of those in memory, else the first."""
        if isinstance(self.source, MemorySource):
            return any(sample.target for sample in self.source.samples)
        first = self._choice.start if self._order is None else self._order[0]
        return bool((await self.source.take([first]))[0].target)

    async def read_ahead(self) -> None:
        """Read the dataset to its end, or to the last sample that runs, if it may be read before anyone needs it.

        Raises:
            DatasetError: it cannot be read.
        """
        source = self.source
        while source.ahead and self.total is None:
            await source.reach(source.count)
            self._tell()

    async def send(self, channel: MemoryObjectSendStream[Planned]) -> None:
        """Send every sample of every epoch, epoch by epoch in order, as fast as they are taken.

        Raises:
            DatasetError: the dataset cannot be read.
        """
        async with channel:
            for epoch in range(1, self.epochs + 1):
                index = 0
                while rows := await self._next(index):
                    for sample in await self.source.take(rows):
                        if self.skips is None or not self.skips(sample, index, epoch):
                            await channel.send(Planned(index, epoch, sample))
                        elif index % AT_ONCE == 0:
                            await checkpoint()
                        index += 1
            self.passed = True

    async def _next(self, index: int) -> Sequence[int]:
        """Some of the rows that run from a place on; none when there are no more."""
        if self._order is not None:
            return self._order[index : index + AT_ONCE]
        row = self._choice.start + index
        if self._choice.stop is None or row < self._choice.stop:
            await self.source.reach(row)
        self._tell()
        return range(row, min(row + AT_ONCE, self._known_stop()))

    def _known_stop(self) -> int:
        """The row after the last that was read and runs."""
        stop = self._choice.stop
        return self.source.count if stop is None else min(stop, self.source.count)

    def _tell(self) -> None:
        """Say how many samples run, when that has become known."""
        if self.total is not None:
            return
        if self._order is not None:
            count = len(self._order)
        elif self.source.ended or self._choice.enough(self.source.count):
            count = self._known_stop() - self._choice.start
        else:
            return
        self.total = count * self.epochs
        self.known(self.total)


def budget_of(options: EvalOptions, changed: int | None = None) -> int | None:
    """Bytes of samples that a run may hold of a dataset that is not in memory already; None is no bound.

    Args:
        changed: the megabytes that were set while it runs.
    """
    megabytes = options.max_dataset_memory if changed is None else changed
    return None if megabytes is None else megabytes * MB


def share_of(dataset: Dataset, budget: int | None) -> int | None:
    """What of a budget is for the rows that were read: what is shuffled is held on the way, beside them."""
    halved = budget is not None and isinstance(dataset, StreamedDataset) and dataset.holds_all
    return budget // 2 if halved and budget is not None else budget


async def open_source(dataset: Dataset, budget: int | None, run: RunInThread) -> Source:
    """Where a run takes the samples of a dataset from.

    Args:
        budget: bytes of samples that may be held, of a dataset that is not in memory already; None is no bound.

    Raises:
        DatasetError: two samples of a dataset that is in memory have one id.
    """
    if isinstance(dataset, StreamedDataset) and not dataset.in_memory:
        share = share_of(dataset, budget)
        return FileSource(source_of(dataset), dataset.stream(share), share, run)
    if isinstance(dataset, IterableDataset) and not dataset.in_memory:
        dataset.source.open(budget, run)
        return dataset.source
    if isinstance(dataset, (MemoryDataset, Lazy)):
        return await run(MemorySource.of, dataset)
    return MemorySource.of(dataset)  # what it reads from may belong to the thread that made it


async def count_samples(
    dataset: Dataset, options: EvalOptions, run: RunInThread, look: Callable[[Sample], object] | None = None
) -> int:
    """How many samples a run evaluates, in one epoch; it reads the dataset as far as needed.

    Args:
        look: called with each of them.

    Raises:
        UsageError: the dataset cannot be read, or an option does not fit it.
    """
    feed = Feed(dataset, options, 1, budget_of(options), run, lambda _: None)
    try:
        await feed.open()
        while feed.total is None:
            await feed.source.reach(feed.source.count)
            feed._tell()
        index = 0
        while look is not None and (rows := await feed._next(index)):
            for sample in await feed.source.take(rows):
                look(sample)
                index += 1
        return feed.total
    finally:
        with anyio.move_on_after(CLEANUP, shield=True):
            await feed.close()
