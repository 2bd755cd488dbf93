"""Samples pulled one by one: chosen from the dataset, sent over a channel, started when they have a slot.

Pull, not push: the channel has no buffer and a sample's task is started only when the one before it has its slot, so
what is held does not grow with the number of samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from anyio.streams.memory import MemoryObjectSendStream
from attrs import frozen

from proctor.dataset import Dataset, MemoryDataset, Sample
from proctor.dataset.dataset import identified
from proctor.errors import DatasetError, UsageError
from proctor.evaluation.plan import EvalOptions


@frozen
class Planned:
    """One sample in one epoch, waiting to be started; `index` is its place in the dataset, from 0."""

    index: int
    epoch: int
    sample: Sample


def choose_samples(dataset: Dataset, options: EvalOptions) -> list[Sample]:
    """The samples that a run evaluates, with their ids, in order.

    Ids come before shuffling and limiting, so that a sample keeps its id whatever part of the dataset runs.

    Raises:
        DatasetError: it is empty, or two samples have one id.
        UsageError: `sample_id` names a sample that is not there.
    """
    samples = list(identified(dataset, source=dataset.location or dataset.name))
    if not samples:
        raise DatasetError(f"dataset {dataset.location or dataset.name or 'of the task'} holds no samples")
    shuffle = options.sample_shuffle
    if shuffle is not None and shuffle is not False:
        shuffled = MemoryDataset(samples)
        shuffled.shuffle(None if shuffle is True else shuffle)
        samples = list(shuffled)
    if options.sample_id is not None:
        samples = list(_with_ids(samples, options.sample_id, dataset))
    if options.limit is not None:
        start, stop = options.limit if isinstance(options.limit, tuple) else (0, options.limit)
        if start >= len(samples):
            raise UsageError(f"limit {start + 1}-{stop} begins after the last of {len(samples)} samples")
        samples = samples[start:stop]
    return samples


def _with_ids(samples: Sequence[Sample], wanted: Any, dataset: Dataset) -> Iterator[Sample]:
    patterns = [str(item) for item in (wanted if isinstance(wanted, (list, tuple)) else [wanted])]
    missing = [p for p in patterns if not any(fnmatchcase(str(sample.id), p) for sample in samples)]
    if missing:
        raise UsageError(f"no sample of {dataset.name or 'the dataset'} has the id {missing[0]!r}")
    for sample in samples:
        if any(fnmatchcase(str(sample.id), pattern) for pattern in patterns):
            yield sample


async def send_planned(samples: Sequence[Sample], epochs: int, channel: MemoryObjectSendStream[Planned]) -> None:
    """Send every sample of every epoch, epoch by epoch in dataset order, as fast as they are taken."""
    async with channel:
        for epoch in range(1, epochs + 1):
            for index, sample in enumerate(samples):
                await channel.send(Planned(index, epoch, sample))
