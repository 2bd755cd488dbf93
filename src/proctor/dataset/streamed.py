"""Datasets that are not read before somebody needs them, and then only as far as needed.

A dataset read from a file cannot know how it will be used: a run with a memory budget reads it row by row, while code
that asks for its length, or filters it, wants a list. So it holds what is needed to read it, again and again; the first
use as a sequence reads it into memory and from then on it is a list. A small file is read at once, so that what is
wrong with it is told where the dataset is made.
"""

from __future__ import annotations

import abc
import numbers
import threading
from array import array
from collections.abc import Callable, Generator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, overload

from attrs import evolve, field, frozen

from proctor.dataset.dataset import Dataset, MemoryDataset, choices_shuffled, numbered
from proctor.dataset.paging import MB, pack, sample_pages
from proctor.dataset.sample import Sample, input_length
from proctor.errors import DatasetError, OptionError
from proctor.runtime.chance import seeded

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

SMALL: Final = MB
"""Bytes, as samples are packed, of a dataset that is read at once; the smallest memory budget is as much."""
ASSUMED: Final = 1000
"""Bytes that a sample counts for which cannot be packed."""


@frozen(kw_only=True)
class Reading:
    """How a dataset is read: from where, and what is done to its order on the way.

    Attributes:
        read: opens it and gives its samples in its own order.
        shuffle, choices: seeds, None for not.
        limit: only so many.
    """

    read: Callable[[], Iterator[Sample]] = field(repr=False)
    source: str
    shuffle: int | None = None
    choices: int | None = None
    limit: int | None = None

    def samples(self, budget: int | None) -> Generator[Sample, None, None]:
        """The samples, read as they are asked for; close it to close what they are read from.

        Args:
            budget: bytes of samples that may be held on the way; shuffling holds all. None is no bound.
        """
        read = self.read()
        try:
            ordered = self._shuffled(read, budget) if self.shuffle is not None else read
            if self.choices is not None:
                ordered = choices_shuffled(ordered, self.choices, source=self.source)
            yield from islice(ordered, self.limit)
        finally:
            _close(read)

    def _shuffled(self, samples: Iterable[Sample], budget: int | None) -> Iterator[Sample]:
        """The samples in the order in which `MemoryDataset.shuffle` puts them, with the ids it gives them."""
        pages = sample_pages(budget)
        try:
            for number, sample in enumerate(samples, 1):
                pages.append(numbered(sample, number))
            order = array("Q", range(len(pages)))
            seeded(self.shuffle).shuffle(order)
            for row in order:
                yield pages[row]
        finally:
            pages.close()


class Lazy(Dataset):
    """A dataset that is read into memory when it is first used as a sequence, and is a list from then on."""

    def __init__(self, *, name: str | None, location: str | None, shuffled: bool = False) -> None:
        self._name, self._location, self._shuffled = name, location, shuffled
        self._memory: MemoryDataset | None = None
        self._loading = threading.Lock()

    @abc.abstractmethod
    def read_all(self) -> Iterable[Sample]:
        """All samples, for the list."""

    @property
    def in_memory(self) -> bool:
        """Whether it is a list by now."""
        return self._memory is not None

    @property
    def samples(self) -> list[Sample]:
        """The list.

        Raises:
            DatasetError: it cannot be read.
        """
        return self._loaded().samples

    def _loaded(self) -> MemoryDataset:
        with self._loading:
            if self._memory is None:
                self._memory = MemoryDataset(self.read_all(), self._name, self._location, self._shuffled)
            return self._memory

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def location(self) -> str | None:
        return self._location

    @property
    def shuffled(self) -> bool:
        return self._shuffled if self._memory is None else self._memory.shuffled

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> MemoryDataset: ...
    def __getitem__(self, index: int | slice) -> Sample | MemoryDataset:
        return self._loaded()[index]

    def __len__(self) -> int:
        return len(self._loaded())

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._loaded())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(name={self._name!r}, location={self._location!r})"

    def sort(self, reverse: bool = False, key: Callable[[Sample], SupportsRichComparison] = input_length) -> None:
        self._loaded().sort(reverse=reverse, key=key)

    def filter(self, predicate: Callable[[Sample], bool], name: str | None = None) -> MemoryDataset:
        return self._loaded().filter(predicate, name)

    def shuffle(self, seed: int | None = None) -> None:
        self._loaded().shuffle(seed)

    def shuffle_choices(self, seed: int | None = None) -> None:
        self._loaded().shuffle_choices(seed)


class StreamedDataset(Lazy):
    """A dataset that can be read as often as needed; what `json_dataset` and its like return for large files.

    A run with `max_dataset_memory` reads it row by row; any use as a sequence reads it into memory.
    """

    def __init__(
        self, reading: Reading, *, name: str | None = None, location: str | None = None, shuffled: bool = False
    ) -> None:
        super().__init__(name=name, location=location, shuffled=shuffled)
        self._how = reading

    @property
    def holds_all(self) -> bool:
        """Whether reading it holds all samples on the way, to put them in their order."""
        return self._how.shuffle is not None

    def read_all(self) -> Iterable[Sample]:
        return self._how.samples(None)

    def stream(self, budget: int | None) -> Iterator[Sample]:
        """Its samples, read as they are asked for: close the iterator to close what they are read from.

        Args:
            budget: bytes of samples that may be held; None is no bound.
        """
        return self._how.samples(budget)


def dataset_of(
    read: Callable[[], Iterator[Sample]],
    *,
    source: str,
    shuffle: bool | int,
    seed: int | None,
    shuffle_choices: bool | int | None,
    limit: int | None,
    name: str | None,
    location: str | None,
    again: bool = True,
    shuffled: bool = False,
) -> Dataset:
    """The dataset of what `read` gives: in memory when it is small, else one that is read when it is needed.

    Args:
        read: opens it and gives its samples in its own order.
        source: names it in errors.
        shuffle, seed, shuffle_choices, limit: as the readers document them.
        again: whether it can be read more than once (a pipe cannot).
        shuffled: whether its own order is a shuffled one already.

    Raises:
        DatasetError: it holds no samples; what `read` raises for the samples looked at here.
        OptionError: an argument is out of range.
    """
    shuffling, seed = shuffle_seed(shuffle, seed)
    check_limit(limit)
    wants_choices = shuffle_choices is not None and shuffle_choices is not False
    # Seeds are drawn once and here: the dataset has one order, however often it is read.
    reading = Reading(
        read=read,
        source=source,
        shuffle=drawn(seed) if shuffling else None,
        choices=drawn(None if shuffle_choices is True else shuffle_choices) if wants_choices else None,
        limit=limit,
    )
    found = _small(read, None if shuffling else limit) if again else list(read())
    if found is None:
        return StreamedDataset(reading, name=name, location=location, shuffled=shuffled or shuffling)
    if not found:
        raise DatasetError(f"{source}: the dataset has no rows")
    ordered = evolve(reading, read=lambda: iter(found)).samples(None)
    return MemoryDataset(ordered, name, location, shuffled or shuffling)


def _small(read: Callable[[], Iterator[Sample]], limit: int | None) -> list[Sample] | None:
    """The samples, when there are few."""
    samples = read()
    found: list[Sample] = []
    size = 0
    try:
        # Without shuffling the rows beyond the limit change nothing: ten samples of a huge file cost ten rows.
        for sample in islice(samples, limit):
            found.append(sample)
            size += _size(sample)
            if size > SMALL:
                return None
    finally:
        _close(samples)
    return found


def _size(sample: Sample) -> int:
    try:
        return len(pack(sample))
    except Exception:  # it holds what cannot be packed
        return ASSUMED


def _close(samples: object) -> None:
    close = getattr(samples, "close", None)
    if close is not None:
        close()


def drawn(seed: int | None) -> int:
    """A seed, or one drawn from the runtime's chance."""
    return seeded(None).getrandbits(64) if seed is None else seed


def shuffle_seed(shuffle: bool | int | None, seed: int | None) -> tuple[bool, int | None]:
    """Whether to shuffle, and the seed: a number as `shuffle` is one.

    Raises:
        OptionError: it is neither, or both are seeds.
    """
    if shuffle is None or isinstance(shuffle, bool) or type(shuffle).__name__ in {"bool_", "bool"}:
        return bool(shuffle), seed
    if not isinstance(shuffle, numbers.Integral) or shuffle < 0:
        raise OptionError(f"shuffle must be true, false or a seed from 0, not {shuffle!r}")
    if seed is not None:
        raise OptionError(f"give either shuffle={shuffle!r} or seed={seed!r}: both are seeds")
    return True, int(shuffle)


def check_limit(limit: int | None) -> None:
    """See that a limit is None or a number of samples.

    Raises:
        OptionError: it is neither.
    """
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise OptionError(f"limit must be a number of samples from 1, not {limit!r}")
