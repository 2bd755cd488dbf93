"""From a row of a file to samples: `FieldSpec` names the columns, or a function makes the samples."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import attrs
from attrs import define, field

from proctor.dataset.rows import Record, Row
from proctor.dataset.sample import Sample, as_messages, metadata_as
from proctor.errors import DatasetError
from proctor.log.records import SandboxEnvironmentSpec
from proctor.model.messages import ChatMessage

RecordToSample: TypeAlias = Callable[[Record], "Sample | list[Sample]"]


@define
class FieldSpec:
    """The columns of a file from which the fields of a sample are read.

    Args:
        input, target, choices, id, sandbox, files, setup: names of columns; all but the input's may be missing.
        metadata: columns that become metadata, or a class (attrs, dataclass, pydantic) whose fields do. Without it
            the column `metadata` is read, a JSON object.
        checkpoint: accepted for ported code and ignored.
        description: column of the description, read only when named.
    """

    input: str = "input"
    target: str = "target"
    choices: str = "choices"
    id: str = "id"
    metadata: list[str] | type[Any] | None = None
    sandbox: str = "sandbox"
    files: str = "files"
    setup: str = "setup"
    checkpoint: str | None = field(default="checkpoint", kw_only=True)
    description: str | None = field(default=None, kw_only=True)


class ColumnError(ValueError):
    """The value of one column cannot be used.

    Attributes:
        column: its name.
    """

    def __init__(self, column: str, message: str) -> None:
        super().__init__(message)
        self.column = column


def samples_of(rows: Iterator[Row], fields: FieldSpec | RecordToSample | None, source: str) -> Iterator[Sample]:
    """The samples that rows stand for, in order, one row read at a time.

    Args:
        fields: columns by name (default: `FieldSpec()`), or a function of a row's dict that returns a sample or a list.
        source: names the file in errors.

    Raises:
        DatasetError: with file, row and column, when a row cannot be made into samples.
    """
    make = _by_columns(fields or FieldSpec()) if fields is None or isinstance(fields, FieldSpec) else fields
    own = make is not fields
    for row in rows:
        try:
            made = make(row.record)
        except DatasetError:
            raise
        except ColumnError as error:
            raise DatasetError(f"{source}, {row.place}, column {error.column!r}: {error}") from error.__cause__
        except Exception as error:
            who = "" if own else f"{getattr(fields, '__name__', 'sample_fields')} raised "
            raise DatasetError(
                f"{source}, {row.place}: {who}{type(error).__name__}: {error}; the row has the columns "
                f"{_columns(row.record)}"
            ) from error
        for sample in made if isinstance(made, list) else [made]:
            if not isinstance(sample, Sample):
                raise DatasetError(
                    f"{source}, {row.place}: {getattr(fields, '__name__', 'sample_fields')} returned "
                    f"{type(sample).__name__}; it must return a Sample or a list of them"
                )
            yield sample


def _columns(record: Record) -> str:
    return ", ".join(map(str, record)) or "(none)"


def _by_columns(spec: FieldSpec) -> Callable[[Record], Sample]:
    def make(record: Record) -> Sample:
        return Sample(
            input=_input(record, spec.input),
            target=_target(record.get(spec.target)),
            choices=_choices(record.get(spec.choices)),
            id=_id(record.get(spec.id), spec.id),
            metadata=_metadata(record, spec.metadata),
            sandbox=_sandbox(record.get(spec.sandbox), spec.sandbox),
            files=_files(record.get(spec.files), spec.files),
            setup=None if _missing(value := record.get(spec.setup)) else str(value),
            description=_description(record, spec.description),
        )

    return make


def _missing(value: Any) -> bool:
    """Nothing, an empty cell, or the NaN by which tables of numbers say nothing."""
    return value is None or value == "" or (isinstance(value, float) and math.isnan(value))


def _input(record: Record, column: str) -> str | list[ChatMessage]:
    if column not in record:
        raise ColumnError(
            column, f"there is none; the row has {_columns(record)}. Name the right one: FieldSpec(input=…)"
        )
    value = record[column]
    if isinstance(value, str) and value:
        return value
    if isinstance(value, list) and value:
        try:
            return as_messages(value, source="input")
        except Exception as error:
            raise ColumnError(column, str(error)) from error
    if _missing(value) or value == []:
        raise ColumnError(column, "the input is empty")
    raise ColumnError(column, f"the input must be text or a list of chat messages, not {type(value).__name__}")


def _target(value: Any) -> str | list[str]:
    if _missing(value):
        return ""
    return [str(item) for item in value] if isinstance(value, list) else str(value)


def _choices(value: Any) -> list[str] | None:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        parts = value.split(",") if "," in value else value.split()
        return [part.strip() for part in parts if part.strip()]
    return [str(item) for item in value if str(item).strip()] if isinstance(value, list) else [str(value)]


def _id(value: Any, column: str) -> int | str | None:
    if _missing(value):
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise ColumnError(column, f"an id must be a whole number or text, not {value!r}")
    return value


def _metadata(record: Record, wanted: list[str] | type[Any] | None) -> dict[str, Any] | None:
    if isinstance(wanted, list) and wanted:
        return {name: record.get(name) for name in wanted}
    value = record.get("metadata")
    given = None if _missing(value) else _json(value, "metadata")
    if given is not None and not isinstance(given, dict):
        raise ColumnError("metadata", f"it must be a JSON object, not {type(given).__name__}")
    if not isinstance(wanted, type):
        return given
    try:
        return _as_dict(metadata_as(record if given is None else given, wanted))
    except ValueError as error:
        raise ColumnError("metadata", str(error)) from error


def _as_dict(value: Any) -> dict[str, Any]:
    if attrs.has(type(value)):
        return attrs.asdict(value)
    dump = getattr(value, "model_dump", None)
    return dict(dump()) if dump is not None else dict(vars(value))


def _json(value: Any, column: str) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError as error:
        raise ColumnError(column, f"this is not valid JSON: {error}") from error


def _sandbox(value: Any, column: str) -> SandboxEnvironmentSpec | None:
    if _missing(value):
        return None
    if isinstance(value, str) and not value.lstrip().startswith("["):
        return SandboxEnvironmentSpec(type=value)
    value = _json(value, column)
    if isinstance(value, list) and len(value) == 2:
        return SandboxEnvironmentSpec(type=str(value[0]), config=str(value[1]))
    raise ColumnError(column, f"a sandbox must be a type or a list [type, configuration], not {value!r}")


def _files(value: Any, column: str) -> dict[str, str] | None:
    if _missing(value):
        return None
    files = _json(value, column)
    if isinstance(files, Mapping) and all(isinstance(content, str) for content in files.values()):
        return dict(files)
    raise ColumnError(column, f"files must be a JSON object of text by path, not {files!r}")


def _description(record: Record, column: str | None) -> str | None:
    if column is None or _missing(value := record.get(column)):
        return None
    if not isinstance(value, str):
        raise ColumnError(column, f"a description must be text, not {type(value).__name__}")
    return value
