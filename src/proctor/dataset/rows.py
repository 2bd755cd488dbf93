"""Rows of files: JSON lines and CSV, plain or gzipped, each with the place it came from.

Every reader is a generator over an open file and holds one row at a time, so that whoever reads a dataset in pages
need not hold the rest. msgspec decodes JSON ten times faster than the standard library; what it refuses but Python
writes (NaN, infinities, lone surrogates) is decoded by the standard library, which also knows the column of a mistake.
"""

from __future__ import annotations

import codecs
import csv
import difflib
import gzip
import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, cast

import msgspec
from attrs import frozen

from proctor.errors import DatasetError, LogError

Record = dict[str, Any]

_GZIP_MAGIC: Final = b"\x1f\x8b"
BOM: Final = codecs.BOM_UTF8


@frozen
class Row:
    """One row of a file.

    Attributes:
        record: its values by column. number: from 1; of JSON lines and plain text it is the line's.
        line: of a CSV file, the line the row begins on; None for other files.
    """

    record: Record
    number: int
    line: int | None = None

    @property
    def place(self) -> str:
        """Where in its file the row is, for messages."""
        return f"row {self.number}" if self.line is None else f"row {self.number} (line {self.line})"


def local_path(location: str | os.PathLike[str]) -> str:
    """The absolute path of a local file; the URL of one in a bucket (``s3://``) stays.

    Raises:
        DatasetError: the location is on another machine.
    """
    text = os.fspath(location)
    scheme, separator, rest = text.partition("://")
    if scheme == "s3" and separator:
        return text
    if separator and scheme != "file":
        raise DatasetError(f"{text}: a dataset is read from a local file or from s3://, not {scheme}://; copy it first")
    return os.path.abspath(os.path.expanduser(rest if separator else text))


@contextmanager
def opened(path: str) -> Iterator[BinaryIO]:
    """The bytes of a file, unpacked when it is gzipped (seen by its first bytes, whatever its name).

    Raises:
        DatasetError: it is missing, is no file, cannot be read, or is damaged.
    """
    try:
        with _bytes_of(path) as file:
            packed = file.peek(2)[:2] == _GZIP_MAGIC
            with gzip.GzipFile(fileobj=file) if packed else file as content:
                yield cast("BinaryIO", content)
    except FileNotFoundError:
        raise DatasetError(f"dataset file not found: {path}{_nearest(path)}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DatasetError(f"{path}: the gzip data is damaged or cut off: {error}") from error
    except OSError as error:
        raise DatasetError(f"{path}: the dataset cannot be read: {error.strerror or error}") from error


def _bytes_of(path: str) -> io.BufferedReader:
    """A local file; one of a bucket is copied to a file without a name first, so that it can be read in pages."""
    if not path.startswith("s3://"):
        return open(path, "rb")
    from proctor.log.bucket import Bucket, temporary
    from proctor.log.places import S3Place, place_of

    file = temporary()
    try:
        place = place_of(path)
        assert isinstance(place, S3Place)
        Bucket.open(place.bucket).download(place.key, file)
        file.seek(0)
    except LogError as error:
        file.close()
        raise DatasetError(str(error)) from error
    except BaseException:
        file.close()
        raise
    return cast("io.BufferedReader", file)


def _nearest(path: str) -> str:
    if "://" in path:
        return ""
    folder, name = os.path.split(path)
    try:
        near = difflib.get_close_matches(name, os.listdir(folder), n=1)
    except OSError:
        return f"; the folder {folder} does not exist or cannot be read"
    return f"; did you mean {near[0]}?" if near else ""


def json_line_rows(
    file: BinaryIO, source: str, *, encoding: str = "utf-8", loads: Callable[[str], Any] | None = None
) -> Iterator[Row]:
    """The rows of a JSON lines file, one object a line; blank lines are passed over.

    Args:
        source: names the file in errors.
        loads: decodes a line in place of our own decoder.

    Raises:
        DatasetError: a line is no JSON object.
    """
    decode = msgspec.json.Decoder().decode
    for number, line in enumerate(_lines(file, source, encoding), 1):
        if number == 1:
            line = line.removeprefix(BOM) if isinstance(line, bytes) else line.removeprefix("\ufeff")  # noqa: PLW2901
        if not line or line.isspace():
            continue
        try:
            value = decode(line) if loads is None else loads(text_of(line))
        except ValueError:
            value = _decode_slowly(line, source, f"row {number}", loads or json.loads)
        yield Row(as_record(value, source, f"row {number}"), number)


def _lines(file: BinaryIO, source: str, encoding: str) -> Iterable[bytes | str]:
    return file if is_utf8(encoding) else _text_lines(file, source, encoding)


def _text_lines(file: BinaryIO, source: str, encoding: str) -> Iterator[str]:
    number = 1
    with io.TextIOWrapper(file, encoding=encoding, newline="\n") as text:
        try:
            for line in text:
                yield line
                number += 1
        except UnicodeError as error:
            raise DatasetError(f"{source}, row {number}: the text is not {encoding}: {error}") from error


def _decode_slowly(line: bytes | str, source: str, place: str, loads: Callable[[str], Any]) -> Any:
    try:
        return loads(text_of(line))
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{source}, {place}: the text is not UTF-8 (byte {error.start + 1}); pass its encoding=…"
        ) from None
    except json.JSONDecodeError as error:
        where = f"{place}, column {error.colno}" if error.lineno == 1 else place
        raise DatasetError(f"{source}, {where}: this is not valid JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{source}, {place}: this is not valid JSON: {error}") from None


def text_of(line: bytes | str) -> str:
    return line.decode() if isinstance(line, bytes) else line


def as_record(value: Any, source: str, place: str) -> Record:
    if isinstance(value, dict):
        return value
    raise DatasetError(
        f'{source}, {place}: a row must be a JSON object such as {{"input": …, "target": …}}, not {_kind(value)}'
    )


def _kind(value: Any) -> str:
    names = {list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number", type(None): "null"}
    return names.get(type(value), type(value).__name__)


def is_utf8(encoding: str) -> bool:
    try:
        return codecs.lookup(encoding).name in {"utf-8", "utf-8-sig", "ascii"}
    except LookupError:
        raise DatasetError(f"encoding={encoding!r} is no encoding that Python knows") from None


def csv_rows(
    file: BinaryIO,
    source: str,
    *,
    encoding: str = "utf-8-sig",
    dialect: str = "unix",
    fieldnames: Sequence[str] | None = None,
    delimiter: str | None = None,
) -> Iterator[Row]:
    """The rows of a CSV file; blank ones are passed over.

    Args:
        source: names the file in errors.
        dialect: as `csv.reader` knows it. delimiter: in place of the dialect's.
        fieldnames: the columns of a file without a header.

    Raises:
        DatasetError: a row has more or fewer values than there are columns, or cannot be parsed.
    """
    is_utf8(encoding)
    options: dict[str, Any] = {} if delimiter is None else {"delimiter": delimiter}
    columns = list(fieldnames) if fieldnames is not None else None
    number, line = 0, 1
    # The wrapper is closed with the generator, or it would close the file when it is collected, and warn.
    with io.TextIOWrapper(file, encoding=encoding, newline="") as text:
        try:
            reader = csv.reader(text, dialect, **options)
        except (csv.Error, TypeError) as error:
            raise DatasetError(f"{source}: dialect={dialect!r}, delimiter={delimiter!r}: {error}") from error
        try:
            for values in reader:
                begin, line = line, reader.line_num + 1
                if not values:
                    continue
                if columns is None:
                    columns = values
                    continue
                number += 1
                _check_width(values, columns, f"{source}, row {number} (line {begin})", line - begin)
                if any(value.strip() for value in values):
                    yield Row(dict(zip(columns, values, strict=True)), number, begin)
        except (csv.Error, UnicodeError) as error:
            what = f"the text is not {encoding}" if isinstance(error, UnicodeError) else "this is not valid CSV"
            hint = "; raise csv.field_size_limit(…)" if "field limit" in str(error) else ""
            raise DatasetError(f"{source}, row {number + 1} (line {line}): {what}: {error}{hint}") from error


def _check_width(values: list[str], columns: list[str], place: str, lines: int) -> None:
    if len(values) == len(columns):
        return
    if len(values) > len(columns):
        detail = f"nothing names {', '.join(map(repr, values[len(columns) :]))}"
    else:
        detail = f"no value for {', '.join(columns[len(values) :])}"
    quote = f"; it spans {lines} lines: is a quote not closed?" if lines > 1 else ""
    raise DatasetError(f"{place}: {len(values)} values for {len(columns)} columns: {detail}{quote}")
