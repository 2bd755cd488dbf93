"""Rows of a JSON document: a list of objects, which is decoded as a whole when it is short and item by item when not.

`json.JSONDecoder.raw_decode` finds the end of an item in a buffer; when an item is cut off by the buffer's end, more is
read and it is decoded again. msgspec, which is ten times faster, wants the whole document in memory and its items all
at once; so it decodes the short ones only.
"""

from __future__ import annotations

import codecs
import io
import json
from collections.abc import Iterator
from typing import Any, BinaryIO, Final, NoReturn

import msgspec
from attrs import define, field

from proctor.dataset.rows import BOM, Row, as_record, is_utf8, json_line_rows, text_of
from proctor.errors import DatasetError

SHORT: Final = 1 << 20
"""Bytes of a document that is decoded as a whole, and of what is read at once of a longer one."""
CUT: Final = 16
"""A mistake that is no further than this from the end of the buffer may be but an item that is cut off there."""
SPACE: Final = " \t\r\n"


def json_rows(file: BinaryIO, source: str, *, encoding: str = "utf-8", **options: Any) -> Iterator[Row]:
    """The rows of a JSON document: a list of objects, or one object. Objects one after another (JSON lines under
    another name) are read as such.

    Args:
        source: names the file in errors.
        options: of `json.loads`, which then decodes.

    Raises:
        DatasetError: the document is damaged, or holds something else.
    """
    head = file.read(SHORT)
    begin = head.removeprefix(BOM).lstrip()
    if len(head) < SHORT or (begin[:1] == b"{" and not _is_line(begin)):
        yield from _whole(head + file.read(), source, encoding, options)
    elif begin[:1] == b"{":
        yield from json_line_rows(io.BufferedReader(_Joined(head, file)), source, encoding=encoding)
    else:
        document = _Document(source, _pieces(head, file, source, encoding), _decoder(options))
        yield from document.rows()


def _is_line(begin: bytes) -> bool:
    """Whether the first line of the text is an object by itself."""
    line, newline, _ = begin.partition(b"\n")
    try:
        return bool(newline) and isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _whole(data: bytes, source: str, encoding: str, options: dict[str, Any]) -> Iterator[Row]:
    try:
        text = data.removeprefix(BOM) if is_utf8(encoding) else data.decode(encoding).removeprefix("\ufeff")
    except UnicodeError as error:
        raise DatasetError(f"{source}: the text is not {encoding}: {error}") from error
    if not text.strip():
        return
    value = _decoded(text, source, options)
    if value is msgspec.UNSET:
        encoded = text if isinstance(text, bytes) else text.encode()
        yield from json_line_rows(io.BytesIO(encoded), source)
        return
    for number, item in enumerate(value if isinstance(value, list) else [value], 1):
        yield Row(as_record(item, source, f"row {number}"), number)


def _decoded(text: bytes | str, source: str, options: dict[str, Any]) -> Any:
    """The decoded document; UNSET when there is more than one in it."""
    if not options:
        try:
            return msgspec.json.decode(text)
        except ValueError:
            pass
    try:
        return json.loads(text_of(text), **options)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data" and error.doc.lstrip()[:1] == "{":
            return msgspec.UNSET
        _refuse(source, error.lineno, error.colno, error.msg)
    except UnicodeDecodeError as error:
        raise _not_utf8(source, error.start) from None
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{source}: this is not valid JSON: {error}") from None


def _refuse(source: str, line: int, column: int, message: str) -> NoReturn:
    raise DatasetError(f"{source}, line {line}, column {column}: this is not valid JSON: {message}") from None


def _not_utf8(source: str, at: int) -> DatasetError:
    return DatasetError(f"{source}: the text is not UTF-8 (byte {at + 1}); pass its encoding=…")


def _decoder(options: dict[str, Any]) -> json.JSONDecoder:
    kind: type[json.JSONDecoder] = options.pop("cls", None) or json.JSONDecoder
    return kind(**options)


def _pieces(head: bytes, file: BinaryIO, source: str, encoding: str) -> Iterator[str]:
    """The text of a file of which `head` has been read, piece by piece."""
    utf8 = is_utf8(encoding)
    decoder = codecs.getincrementaldecoder("utf-8" if utf8 else encoding)()
    data, done = head, 0
    while True:
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            # The decoder counts from the rest that it kept of the piece before.
            at = done + len(data) - len(error.object) + error.start
            raise (_not_utf8(source, at) if utf8 else _not_in(source, encoding, error)) from None
        except UnicodeError as error:
            raise _not_in(source, encoding, error) from error
        yield text if done else text.removeprefix("\ufeff")
        if not data:
            return
        done += len(data)
        data = file.read(SHORT)


def _not_in(source: str, encoding: str, error: UnicodeError) -> DatasetError:
    return DatasetError(f"{source}: the text is not {encoding}: {error}")


class _Joined(io.RawIOBase):
    """What was read of a file already, and the rest of it."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        super().__init__()
        self._head, self._rest = memoryview(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._head[: len(buffer)] if self._head else self._rest.read(len(buffer))
        self._head = self._head[len(data) :] if self._head else self._head
        buffer[: len(data)] = data
        return len(data)


@define(eq=False)
class _Document:
    """A list of objects that is read item by item.

    Attributes:
        text, at: what is in the buffer, and where in it the next item is.
        line, column: where the buffer begins, from 1.
    """

    source: str
    pieces: Iterator[str]
    decoder: json.JSONDecoder
    text: str = field(default="", init=False)
    at: int = field(default=0, init=False)
    line: int = field(default=1, init=False)
    column: int = field(default=1, init=False)

    def rows(self) -> Iterator[Row]:
        begin = self._peek()
        if begin != "[":
            yield Row(as_record(self._value(), self.source, "row 1"), 1)
            self._expect_end()
            return
        self.at += 1
        number = 0
        if self._peek() == "]":
            self.at += 1
            return self._expect_end()
        while True:
            number += 1
            self._peek()
            yield Row(as_record(self._value(), self.source, f"row {number}"), number)
            after = self._peek()
            if after == "]":
                self.at += 1
                return self._expect_end()
            if after != ",":
                self._refuse(self.at, "Expecting ',' delimiter")
            self.at += 1

    def _peek(self) -> str:
        """The next character that is no space, "" at the end."""
        while True:
            text, at = self.text, self.at
            while at < len(text) and text[at] in SPACE:
                at += 1
            self.at = at
            if at < len(text):
                return text[at]
            if not self._more():
                return ""

    def _value(self) -> Any:
        while True:
            try:
                value, end = self.decoder.raw_decode(self.text, self.at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated string") or error.pos >= len(self.text) - CUT
                if not cut or not self._more():
                    self._refuse(error.pos, error.msg)
            except (ValueError, RecursionError) as error:
                raise DatasetError(f"{self.source}: this is not valid JSON: {error}") from None
            else:
                # A number may go on.
                if end < len(self.text) or isinstance(value, dict) or not self._more():
                    self.at = end
                    return value

    def _expect_end(self) -> None:
        if self._peek():
            self._refuse(self.at, "Extra data")

    def _more(self) -> bool:
        """Read on: as much again as the item has by now, so that a long one is not decoded anew too often."""
        self._forget()
        wanted = len(self.text) * 2
        read = False
        for piece in self.pieces:
            self.text += piece
            read = read or bool(piece)
            if read and len(self.text) >= wanted:
                break
        return read

    def _forget(self) -> None:
        """Drop what lies before the next item."""
        self.line, self.column = self._place(self.at)
        self.text, self.at = self.text[self.at :], 0

    def _place(self, at: int) -> tuple[int, int]:
        lines = self.text.count("\n", 0, at)
        column = at - self.text.rfind("\n", 0, at) if lines else self.column + at
        return self.line + lines, column

    def _refuse(self, at: int, message: str) -> NoReturn:
        _refuse(self.source, *self._place(at), message)
