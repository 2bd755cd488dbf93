"""`hf_dataset`: datasets of the Hugging Face Hub, read by its own package, which is not installed with proctor.

The package keeps rows in files that are mapped into memory and gives them one by one, so a large dataset is streamed
like a file of ours. Rows are shuffled by the package too: a seed gives the order that users of Inspect know.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import accumulate, islice
from pathlib import PurePath
from typing import Any

from attrs import frozen

from proctor.dataset.dataset import Dataset
from proctor.dataset.fields import FieldSpec, RecordToSample, samples_of
from proctor.dataset.rows import Row
from proctor.dataset.sample import Sample
from proctor.dataset.streamed import check_limit, dataset_of, drawn, shuffle_seed
from proctor.errors import DatasetError, UsageError


def hf_dataset(
    path: str,
    split: str,
    name: str | None = None,
    data_dir: str | None = None,
    revision: str | None = None,
    sample_fields: FieldSpec | RecordToSample | None = None,
    auto_id: bool = False,
    shuffle: bool | int = False,
    seed: int | None = None,
    shuffle_choices: bool | int | None = None,
    limit: int | None = None,
    trust: bool = False,
    cached: bool = True,
    retry: bool = True,
    **kwargs: Any,
) -> Dataset:
    """Read a dataset with the package `datasets`, from the Hugging Face Hub or from a folder.

    Args:
        path: its name on the Hub (``openai/gsm8k``), a folder, or the name of a format.
        split: ``test``, ``train[:100]``, …
        name: its configuration. data_dir: the folder in it to read.
        revision: a commit, tag or branch; give one, or what is evaluated may change.
        sample_fields: columns by name, or a function from a row (a dict) to a sample or a list of them. Default: the
            columns are called as the fields of `Sample`.
        auto_id: number the samples from 1, in the order before shuffling.
        shuffle: whether to shuffle; a number, 0 too, shuffles with that seed. seed: for `shuffle=True`.
        shuffle_choices: whether to shuffle each sample's choices; a number is the seed.
        limit: read only so many rows, after shuffling.
        trust: allow a dataset that is a script to run it, on this machine.
        cached: use what the package has downloaded before.
        retry: accepted for ported code; the package tries again by itself.
        kwargs: further arguments of `datasets.load_dataset`.

    Raises:
        UsageError: the package is not installed.
        DatasetError: the dataset cannot be loaded, is empty or malformed: which row, which column.
        OptionError: an argument is out of range.
    """
    shuffled, seed = shuffle_seed(shuffle, seed)
    check_limit(limit)
    options = {"name": name, "data_dir": data_dir, "split": split, "revision": revision, **kwargs}
    if trust:
        options["trust_remote_code"] = True
    if not cached:
        options.setdefault("download_mode", "force_redownload")
    rows = _loaded(path, options)
    order: Sequence[int] | None = None
    if shuffled:
        seed = drawn(seed)
        order = _shuffled_order(rows, seed)
        rows = rows.shuffle(seed=seed)
    known = _Rows(path, rows, order, sample_fields, auto_id, limit)
    return dataset_of(
        known.samples,
        source=path,
        shuffle=False,
        seed=None,
        shuffle_choices=shuffle_choices,
        limit=None,
        name=PurePath(path).stem if os.path.exists(path) else path,
        location=path,
        shuffled=shuffled,
    )


def _loaded(path: str, options: dict[str, Any]) -> Any:
    try:
        package = import_module("datasets")
    except ImportError:
        raise UsageError(
            f"hf_dataset({path!r}) needs the package datasets, which is not installed: pip install 'proctor[hf]' (or "
            "pip install datasets)"
        ) from None
    try:
        return package.load_dataset(path, **options)
    except Exception as error:
        raise DatasetError(f"{path}: datasets.load_dataset raised {type(error).__name__}: {error}") from error


def _shuffled_order(rows: Any, seed: int) -> Sequence[int] | None:
    """The row that each place has after shuffling, which only length and seed decide; None for a stream of rows."""
    if not hasattr(rows, "__len__"):
        return None
    numbers = import_module("datasets").Dataset.from_dict({"row": list(range(len(rows)))})
    return array("Q", numbers.shuffle(seed=seed)["row"])


@frozen
class _Rows:
    """Rows in the order in which they are read; `order` has the number of each before shuffling."""

    path: str
    rows: Any
    order: Sequence[int] | None
    fields: FieldSpec | RecordToSample | None
    auto_id: bool
    limit: int | None

    def samples(self) -> Iterator[Sample]:
        order = self.order
        firsts = self._firsts() if order is not None else None
        count = 0
        for place, record in enumerate(self._records()):
            row = place if order is None else order[place]
            for number, sample in enumerate(self._of(record, row), 1 + (count if firsts is None else firsts[row])):
                # As with other files, shuffling gives samples without an id the number they had before.
                if self.auto_id or (sample.id is None and firsts is not None):
                    sample.id = number
                count += 1
                yield sample

    def _firsts(self) -> Sequence[int]:
        """How many samples the rows before each row make, in the order before shuffling."""
        assert self.order is not None
        if self.fields is None or isinstance(self.fields, FieldSpec):
            return range(len(self.order))
        made = array("Q", bytes(8 * len(self.order)))
        for place, record in enumerate(self._records()):
            made[self.order[place]] = sum(1 for _ in self._of(record, self.order[place]))
        return array("Q", accumulate(made, initial=0))

    def _of(self, record: Any, row: int) -> Iterator[Sample]:
        return samples_of(iter((Row(dict(record), row + 1),)), self.fields, self.path)

    def _records(self) -> Iterator[Any]:
        try:
            yield from islice(self.rows, self.limit)
        except Exception as error:
            raise DatasetError(f"{self.path}: reading the dataset raised {type(error).__name__}: {error}") from error
