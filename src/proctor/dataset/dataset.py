"""Datasets: sequences of samples with a name, and what can be done to one as a whole.

Samples given to a dataset are never changed by it. Shuffling gives samples without an id the number they had
before (results of a shuffled run can be compared with those of another), and shuffling choices changes choices and
target: both put changed *copies* into the dataset, so that one list of samples can serve several datasets.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, overload

import attrs

from proctor.dataset.ids import Ids
from proctor.dataset.letters import answer_character, answer_index
from proctor.dataset.sample import Sample, input_length
from proctor.errors import DatasetError
from proctor.runtime.chance import seeded

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison


class Dataset(Sequence[Sample], abc.ABC):
    """A sequence of samples: `len(dataset)`, `dataset[i]`, and `dataset[a:b]`, which is a dataset too."""

    @property
    @abc.abstractmethod
    def name(self) -> str | None:
        """The name shown in logs."""

    @property
    @abc.abstractmethod
    def location(self) -> str | None:
        """Where it was read from."""

    @property
    @abc.abstractmethod
    def shuffled(self) -> bool:
        """Whether its order was shuffled."""

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> Dataset: ...
    @abc.abstractmethod
    def __getitem__(self, index: int | slice) -> Sample | Dataset: ...

    @abc.abstractmethod
    def __len__(self) -> int: ...

    @abc.abstractmethod
    def sort(self, reverse: bool = False, key: Callable[[Sample], SupportsRichComparison] = input_length) -> None:
        """Sort in place, by the length of the input unless another key is given."""

    @abc.abstractmethod
    def filter(self, predicate: Callable[[Sample], bool], name: str | None = None) -> Dataset:
        """The samples for which `predicate` is true, as a dataset (of another name, where one is given)."""

    @abc.abstractmethod
    def shuffle(self, seed: int | None = None) -> None:
        """Shuffle in place; the same seed gives the same order."""

    @abc.abstractmethod
    def shuffle_choices(self, seed: int | None = None) -> None:
        """Shuffle the choices of each sample, and its target with them."""


class MemoryDataset(Dataset):
    """A dataset held in memory.

    Args:
        samples: the samples; the list is copied.
        name: shown in logs. location: where it was read from. shuffled: whether `samples` already are.
    """

    def __init__(
        self,
        samples: Iterable[Sample],
        name: str | None = None,
        location: str | None = None,
        shuffled: bool = False,
    ) -> None:
        self.samples = list(samples)
        self._name, self._location, self._shuffled = name, location, shuffled

    @property
    def name(self) -> str | None:
        return self._name

    @property
    def location(self) -> str | None:
        return self._location

    @property
    def shuffled(self) -> bool:
        return self._shuffled

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> MemoryDataset: ...
    def __getitem__(self, index: int | slice) -> Sample | MemoryDataset:
        if isinstance(index, slice):
            return MemoryDataset(self.samples[index], self._name, self._location, self._shuffled)
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self.samples)

    def sort(self, reverse: bool = False, key: Callable[[Sample], SupportsRichComparison] = input_length) -> None:
        self.samples.sort(reverse=reverse, key=key)

    def filter(self, predicate: Callable[[Sample], bool], name: str | None = None) -> MemoryDataset:
        kept = [sample for sample in self.samples if predicate(sample)]
        return MemoryDataset(kept, name or self._name, self._location, self._shuffled)

    def shuffle(self, seed: int | None = None) -> None:
        self.samples = [numbered(sample, number) for number, sample in enumerate(self.samples, 1)]
        seeded(seed).shuffle(self.samples)
        self._shuffled = True

    def shuffle_choices(self, seed: int | None = None) -> None:
        """Shuffle the choices of each sample, and its target with them.

        Raises:
            DatasetError: a target is no letter of one of its sample's choices.
        """
        self.samples = list(choices_shuffled(self.samples, seed, source=self._name))


def choices_shuffled(samples: Iterable[Sample], seed: int | None, *, source: str | None = None) -> Iterator[Sample]:
    """The samples in their order, the choices of each shuffled, and its target with them.

    Args:
        seed: the same one gives the same choices. source: names the dataset in the error.

    Raises:
        DatasetError: a target is no letter of one of its sample's choices.
    """
    chance = seeded(seed)
    for number, sample in enumerate(samples, 1):
        if not sample.choices:
            yield sample
            continue
        order = list(range(len(sample.choices)))
        chance.shuffle(order)
        yield _with_choices(sample, order, f"{source or 'dataset'}: the choices of sample {number} (id {sample.id!r})")


def _with_choices(sample: Sample, order: list[int], what: str) -> Sample:
    choices = sample.choices or []
    moved = {old: answer_character(new) for new, old in enumerate(order)}
    try:
        if isinstance(sample.target, str):
            target: str | list[str] = moved[answer_index(sample.target)]
        else:
            target = [moved[answer_index(letter)] for letter in sample.target]
    except (ValueError, KeyError):
        raise DatasetError(
            f"{what} cannot be shuffled: its target {sample.target!r} is not the letter of one of its {len(choices)} "
            "choices"
        ) from None
    return attrs.evolve(sample, choices=[choices[old] for old in order], target=target)


def numbered(sample: Sample, number: int) -> Sample:
    """The sample itself if it has an id, else a copy whose id is `number`."""
    return sample if sample.id is not None else attrs.evolve(sample, id=number)


def identified(samples: Iterable[Sample], *, source: str | None = None, ids: Ids | None = None) -> Iterator[Sample]:
    """Samples in order, each with an id: its own, or else its number from 1.

    It reads `samples` as it is read itself; ids are compared as the log compares them, by `str(id)`.

    Args:
        source: what the samples are, for the error: the name or the file of a dataset.
        ids: takes the ids.

    Raises:
        DatasetError: two samples have one id (in a log they would be one record).
    """
    ids = ids if ids is not None else Ids()
    for number, sample in enumerate(samples, 1):
        with_id = numbered(sample, number)
        add_id(ids, with_id, source or (source_of(samples) if isinstance(samples, Dataset) else "dataset"))
        yield with_id


def add_id(ids: Ids, sample: Sample, source: str) -> None:
    """Add the id of a numbered sample.

    Raises:
        DatasetError: a sample before has it too.
    """
    assert sample.id is not None
    first = ids.add(sample.id)
    if first is not None:
        raise DatasetError(
            f"{source}: samples {first + 1} and {len(ids) + 1} have the same id {sample.id!r}; give each its own, or "
            "number them with auto_id=True"
        )


def source_of(dataset: Dataset) -> str:
    """What a dataset is called in errors."""
    return dataset.location or dataset.name or "dataset"
