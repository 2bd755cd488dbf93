"""Datasets read from files: `csv_dataset`, `json_dataset`, `file_dataset`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any, BinaryIO

import attrs

from proctor.dataset.dataset import Dataset
from proctor.dataset.documents import json_rows
from proctor.dataset.fields import FieldSpec, RecordToSample, samples_of
from proctor.dataset.rows import Row, csv_rows, json_line_rows, local_path, opened
from proctor.dataset.sample import Sample
from proctor.dataset.streamed import dataset_of
from proctor.errors import DatasetError, OptionError
from proctor.log.records import SandboxEnvironmentSpec
from proctor.model.messages import ChatMessage, Content

RowReader = Callable[[BinaryIO, str], Iterator[Row]]


def csv_dataset(
    csv_file: str,
    sample_fields: FieldSpec | RecordToSample | None = None,
    auto_id: bool = False,
    shuffle: bool | int = False,
    seed: int | None = None,
    shuffle_choices: bool | int | None = None,
    limit: int | None = None,
    dialect: str = "unix",
    encoding: str = "utf-8-sig",
    name: str | None = None,
    fs_options: dict[str, Any] | None = None,
    fieldnames: list[str] | None = None,
    delimiter: str | None = None,
) -> Dataset:
    """Read a dataset from a CSV file, plain or gzipped.

    A small file is read at once; one of more than a MB when it is needed, by a run or by use as a list.

    Args:
        csv_file: its path; relative paths are seen from the working directory.
        sample_fields: columns by name, or a function from a row (a dict) to a sample or a list of them. Default: the
            columns are called as the fields of `Sample`.
        auto_id: number the samples from 1 whatever ids they have.
        shuffle: whether to shuffle; a number, 0 too, shuffles with that seed. seed: for `shuffle=True`.
        shuffle_choices: whether to shuffle each sample's choices; a number is the seed.
        limit: keep only so many samples, after shuffling.
        dialect: of CSV, as Python's csv module knows it: unix, excel, excel-tab. delimiter: in place of the dialect's.
        encoding: of the text.
        name: shown in logs; default the file's name without its endings.
        fs_options: accepted for ported code; local files have none.
        fieldnames: the columns of a file without a header.

    Raises:
        DatasetError: the file is missing, empty or malformed: which row, which column.
        OptionError: an argument is out of range.
    """

    def rows(file: BinaryIO, source: str) -> Iterator[Row]:
        return csv_rows(file, source, encoding=encoding, dialect=dialect, fieldnames=fieldnames, delimiter=delimiter)

    return _read(csv_file, rows, sample_fields, auto_id, shuffle, seed, shuffle_choices, limit, name)


def json_dataset(
    json_file: str,
    sample_fields: FieldSpec | RecordToSample | None = None,
    auto_id: bool = False,
    shuffle: bool | int = False,
    seed: int | None = None,
    shuffle_choices: bool | int | None = None,
    limit: int | None = None,
    encoding: str = "utf-8",
    name: str | None = None,
    fs_options: dict[str, Any] | None = None,
    **reader_kwargs: Any,
) -> Dataset:
    """Read a dataset from JSON lines (one object a line) or from a JSON list of objects, plain or gzipped.

    A small file is read at once; one of more than a MB when it is needed, by a run or by use as a list.

    Args:
        json_file: its path; the endings .jsonl and .ndjson (and these with .gz) mean JSON lines.
        sample_fields: columns by name, or a function from a row (a dict) to a sample or a list of them. Default: the
            keys are called as the fields of `Sample`.
        auto_id: number the samples from 1 whatever ids they have.
        shuffle: whether to shuffle; a number, 0 too, shuffles with that seed. seed: for `shuffle=True`.
        shuffle_choices: whether to shuffle each sample's choices; a number is the seed.
        limit: keep only so many samples, after shuffling.
        encoding: of the text.
        name: shown in logs; default the file's name without its endings.
        fs_options: accepted for ported code; local files have none.
        reader_kwargs: `loads` (a decoder) for JSON lines; options of `json.loads` for JSON.

    Raises:
        DatasetError: the file is missing, empty or malformed: which row, which column.
        OptionError: an argument is out of range.
    """
    lines = PurePath(_without_gz(os.fspath(json_file))).suffix.lower() in {".jsonl", ".ndjson"}
    if lines and (unknown := set(reader_kwargs) - {"loads"}):
        raise OptionError(f"json_dataset of JSON lines takes no option {', '.join(sorted(unknown))}; it takes loads")

    def rows(file: BinaryIO, source: str) -> Iterator[Row]:
        reader: Callable[..., Iterator[Row]] = json_line_rows if lines else json_rows
        return reader(file, source, encoding=encoding, **reader_kwargs)

    return _read(json_file, rows, sample_fields, auto_id, shuffle, seed, shuffle_choices, limit, name)


def file_dataset(
    file: str,
    sample_fields: FieldSpec | RecordToSample | None = None,
    auto_id: bool = False,
    shuffle: bool | int = False,
    seed: int | None = None,
    shuffle_choices: bool | int | None = None,
    limit: int | None = None,
    dialect: str = "unix",
    encoding: str = "utf-8",
    name: str | None = None,
    fs_options: dict[str, Any] | None = None,
    fieldnames: list[str] | None = None,
) -> Dataset:
    """Read a dataset by `csv_dataset` or `json_dataset`, as the file's ending says: .json, .jsonl, .csv, .tsv, .tab.

    The arguments are theirs; .tsv and .tab are separated by tabs.

    Raises:
        DatasetError: another ending, or what they raise.
    """
    ending = PurePath(_without_gz(os.fspath(file))).suffix.lower()
    common = (sample_fields, auto_id, shuffle, seed, shuffle_choices, limit)
    if ending in {".json", ".jsonl", ".ndjson"}:
        return json_dataset(file, *common, encoding, name, fs_options)
    if ending in {".csv", ".tsv", ".tab"}:
        delimiter = None if ending == ".csv" else "\t"
        readable = "utf-8-sig" if encoding == "utf-8" else encoding
        return csv_dataset(file, *common, dialect, readable, name, fs_options, fieldnames, delimiter)
    raise DatasetError(
        f"{file}: no dataset reader for {ending or 'a file without an ending'}; use .json, .jsonl or .csv"
    )


def stream_samples(
    path: str, rows: RowReader, sample_fields: FieldSpec | RecordToSample | None, *, auto_id: bool = False
) -> Iterator[Sample]:
    """The samples of a local file in order, read as they are asked for: close the iterator to close the file.

    Args:
        path: an absolute path; paths within samples are seen from its folder.

    Raises:
        DatasetError: the file is missing or malformed: which row, which column.
    """
    with opened(path) as file:
        for number, sample in enumerate(samples_of(rows(file, path), sample_fields, path), 1):
            if auto_id:
                sample.id = number
            resolve_paths(sample, os.path.dirname(path))
            yield sample


def _read(
    location: str,
    rows: RowReader,
    sample_fields: FieldSpec | RecordToSample | None,
    auto_id: bool,
    shuffle: bool | int,
    seed: int | None,
    shuffle_choices: bool | int | None,
    limit: int | None,
    name: str | None,
) -> Dataset:
    path = local_path(location)
    return dataset_of(
        functools.partial(stream_samples, path, rows, sample_fields, auto_id=auto_id),
        source=path,
        shuffle=shuffle,
        seed=seed,
        shuffle_choices=shuffle_choices,
        limit=limit,
        name=name or _name(path),
        location=path,
        again=os.path.isfile(path) or not os.path.exists(path),
    )


def _without_gz(path: str) -> str:
    return path[:-3] if path.lower().endswith(".gz") else path


def _name(path: str) -> str:
    return PurePath(_without_gz(path)).stem


def resolve_paths(sample: Sample, folder: str) -> None:
    """Make paths in a sample absolute where they name a file that is in `folder`; anything else is left as it is."""

    def found(text: str) -> str:
        # An empty text is a file's content, and so is any long one.
        if not text or len(text) > 1024 or "\n" in text:
            return text
        path = os.path.join(folder, text)
        return path if os.path.exists(path) else text

    if sample.sandbox is not None and isinstance(sample.sandbox.config, str):
        sample.sandbox = SandboxEnvironmentSpec(type=sample.sandbox.type, config=found(sample.sandbox.config))
    if sample.files is not None:
        sample.files = {path: found(content) for path, content in sample.files.items()}
    if sample.setup is not None:
        sample.setup = found(sample.setup)
    if isinstance(sample.input, list):
        sample.input = [_message_with_paths(message, found) for message in sample.input]


def _message_with_paths(message: ChatMessage, found: Callable[[str], str]) -> ChatMessage:
    if message.role != "user" or isinstance(message.content, str):
        return message
    return attrs.evolve(message, content=[_content_with_paths(part, found) for part in message.content])


def _content_with_paths(part: Content, found: Callable[[str], str]) -> Content:
    if part.type not in {"image", "audio", "video", "document"}:
        return part
    return part.model_copy(update={part.type: found(getattr(part, part.type))})
