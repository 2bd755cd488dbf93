"""Datasets made of an iterable or an asynchronous iterable: read once, one sample when one is needed.

A generator can be read a single time, but a task may be run many times, on several models at once. So what was read is
kept by the dataset (under the memory budget of its runs) and shared between them; only new samples come from the
iterable. It is advanced in the event loop, by whoever needs the next sample: never ahead, because it may be endless or
answer to what earlier samples found, and never in a thread, because what it reads from may belong to the one it was
made in (a database's cursor).
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from typing import Any, Final

from anyio.lowlevel import checkpoint
from attrs import define, field

from proctor.dataset.dataset import add_id, numbered
from proctor.dataset.paging import Pages, sample_pages
from proctor.dataset.sample import Sample
from proctor.dataset.source import RunInThread, Source, take_pages
from proctor.dataset.streamed import Lazy
from proctor.errors import DatasetError, UsageError

CHECKPOINT: Final = 64
"""Samples that are read in one go before others get their turn."""


class IterableDataset(Lazy):
    """The samples of an iterable or an asynchronous iterable, read when they are needed.

    Args:
        samples: read once, whatever it is.
        name: shown in logs. location: where it comes from.
    """

    def __init__(
        self, samples: Iterable[Sample] | AsyncIterable[Sample], name: str | None = None, location: str | None = None
    ) -> None:
        super().__init__(name=name, location=location)
        iterator = iter(samples) if isinstance(samples, Iterable) else aiter(samples)
        self.source = IterableSource(iterator, location or name or "dataset")

    def read_all(self) -> Iterable[Sample]:
        return self.source.read_all()


@define(eq=False)
class IterableSource(Source):
    """What was read of an iterable, and the rest of it."""

    iterator: Iterator[Sample] | AsyncIterator[Sample]
    name: str
    _kept: list[Sample] | Pages[Sample] = field(factory=list, init=False)
    _run: RunInThread | None = field(default=None, init=False)
    _users: int = field(default=0, init=False)

    def open(self, budget: int | None, run: RunInThread) -> None:
        """Use it for a run; `aclose` ends that.

        Args:
            budget: of what is held, in bytes; of several the smallest holds, and it stays when the run has ended.
        """
        self._users += 1
        self._run = run
        if budget is None:
            return
        if isinstance(self._kept, Pages):
            self._kept.lower(budget)
        else:
            self._page(self._kept, budget)

    def _page(self, kept: list[Sample], budget: int) -> None:
        pages = sample_pages(budget)
        for sample in kept:
            pages.append(sample)
        self._kept = pages

    async def _read(self) -> None:
        try:
            if isinstance(self.iterator, AsyncIterator):
                sample = await self._next(self.iterator)
            else:
                if self.count % CHECKPOINT == 0:
                    await checkpoint()
                sample = next(self.iterator)
        except (StopIteration, StopAsyncIteration):
            self.ids.close()
            self.ended = True
            return
        except Exception as error:
            raise self._raised(error) from error
        self._keep(sample)

    async def _next(self, iterator: AsyncIterator[Sample]) -> Sample:
        try:
            return await anext(iterator)
        except Exception:
            raise
        except BaseException:
            # A generator that was cancelled is at its end, which would look like the end of the dataset.
            if inspect.isasyncgen(iterator) and iterator.ag_frame is None:
                self._error = DatasetError(f"{self.name}: the asynchronous generator was cancelled while it was read")
            raise

    def _keep(self, sample: Any) -> None:
        if not isinstance(sample, Sample):
            raise DatasetError(
                f"{self.name}: item {self.count + 1} is a {type(sample).__name__}, not a Sample: write "
                "Sample(input=…, target=…)"
            )
        with_id = numbered(sample, self.count + 1)
        self._kept.append(with_id)
        add_id(self.ids, with_id, self.name)

    def _raised(self, error: Exception) -> DatasetError:
        return DatasetError(f"{self.name}: reading item {self.count + 1} raised {type(error).__name__}: {error}")

    async def take(self, rows: Sequence[int]) -> list[Sample]:
        if isinstance(self._kept, Pages):
            assert self._run is not None
            return await take_pages(self._kept, rows, self._run)
        return [self._kept[rows[0]]]

    def bound(self, budget: int | None) -> bool:
        if isinstance(self._kept, Pages):
            self._kept.bound(budget)
        elif budget is not None:
            self._page(self._kept, budget)
        return True

    async def aclose(self) -> None:
        """End a run's use. A generator that waits in the loop is closed with its last user: it cannot outlive it."""
        self._users -= 1
        generator: Any = self.iterator
        if self._users == 0 and inspect.isasyncgen(generator) and not self.ended and self._error is None:
            self._error = DatasetError(
                f"{self.name}: the asynchronous generator was closed when the run that read it had ended, after "
                f"{self.count} samples; give each task one of its own, or a dataset that can be read again"
            )
            await generator.aclose()

    def read_all(self) -> Iterable[Sample]:
        """Everything, what was read and the rest, outside of a run.

        Raises:
            UsageError: it can be read in a loop only.
        """
        if isinstance(self.iterator, AsyncIterator):
            if not self.ended:
                raise UsageError(
                    f"{self.name}: an asynchronous iterable is read by a run only; it has no length and no index before"
                )
        else:
            for sample in self.iterator:
                self._keep(sample)
            self.ended = True
        return [self._kept[row] for row in range(self.count)]
