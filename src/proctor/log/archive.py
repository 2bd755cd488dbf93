"""The ZIP format as a log uses it: records with their sizes in front, a directory, an end record; and reading them.

Python's own `zipfile` reads no zstd before 3.14 and writes records whose sizes follow them or are patched in later:
a log could then not survive a crash, nor be followed while it grows. A log needs little of ZIP: this is all of it.
Members are compressed before they are written, so each is one run of bytes with its sizes and CRC in front.

Sizes are in bytes. Names of structures are those of PKWARE's APPNOTE 6.3.9, from which all numbers here are.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Final

from attrs import define, field, frozen

from proctor.errors import LogError
from proctor.runtime.spill import Spill

STORED: Final = 0
DEFLATED: Final = 8
ZSTANDARD: Final = 93

LOCAL: Final = struct.Struct("<4s5H3L2H")
CENTRAL: Final = struct.Struct("<4s4B4H3L5H2L")
END: Final = struct.Struct("<4s4H2LH")
END64: Final = struct.Struct("<4sQ2H2L4Q")
LOCATOR64: Final = struct.Struct("<4sLQL")

UTF8: Final = 0x800
UNIX: Final = 3
FILE_MODE: Final = 0o100644 << 16
FIRST_DAY: Final = 0x21
"""1 January 1980: a record's own date would say nothing, and equal logs are equal bytes without it."""

FULL16: Final = 0xFFFF
FULL32: Final = 0xFFFFFFFF
FRAME: Final = 200 * 2**20
"""A zstd frame holds at most so much: the viewer's decoder fails from 256 MiB on."""


@frozen
class Member:
    """A member of a log, as its directory describes it.

    Attributes:
        offset: of its local record. packed, size: compressed and not. entry: its part of the directory.
    """

    name: str
    method: int
    crc: int
    packed: int
    size: int
    offset: int
    entry: bytes = field(repr=False)


@define(eq=False)
class Packer:
    """Makes records: compresses with zstd where it is installed, else with deflate.

    Attributes:
        level: of zstd, 1 to 3.
    """

    level: int = 1

    @cached_property
    def _zstd(self) -> Any:
        try:
            import zstandard
        except ImportError:
            return None
        return zstandard.ZstdCompressor(level=self.level)

    @property
    def method(self) -> int:
        """The compression method of the records it makes."""
        return DEFLATED if self._zstd is None else ZSTANDARD

    def record(self, name: str, parts: Iterable[bytes], offset: int) -> tuple[bytes, bytes]:
        """A member as it is written.

        Args:
            name: of the member. parts: its content, one after the other. offset: where the record will stand.

        Returns:
            The local record with its content, and its entry in the directory.
        """
        if isinstance(parts, tuple) and len(parts) == 1 and len(parts[0]) <= FRAME and self._zstd is not None:
            size, crc = len(parts[0]), zlib.crc32(parts[0])
            packed = bytes(self._zstd.compress(parts[0]))
        else:
            counted = _Counted(parts)
            packed = b"".join(self._packed(counted))
            size, crc = counted.size, counted.crc
        method = self.method
        return local_record(name, method, crc, size, packed), entry(name, method, crc, len(packed), size, offset)

    def stream(self, name: str, parts: Iterable[bytes], offset: int, packed: Spill) -> tuple[bytes, bytes]:
        """A member that may be too long to be held.

        Args:
            name, parts, offset: as above. packed: takes the compressed content.

        Returns:
            The head of the local record, and its entry in the directory.
        """
        counted = _Counted(parts)
        for piece in self._packed(counted):
            packed.append(piece)
        about = (name, self.method, counted.crc)
        return local_head(*about, counted.size, len(packed)), entry(*about, len(packed), counted.size, offset)

    def _packed(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        return self._frames(parts) if self._zstd is not None else _deflated(parts)

    def _frames(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """zstd frames of at most `FRAME` bytes of content each."""
        frame = self._zstd.compressobj()
        filled = 0
        for part in parts:
            for start in range(0, len(part), FRAME):
                piece = part[start : start + FRAME]
                if filled + len(piece) > FRAME:
                    yield frame.flush()
                    frame, filled = self._zstd.compressobj(), 0
                yield frame.compress(piece)
                filled += len(piece)
        yield frame.flush()


@define(eq=False)
class _Counted:
    """Passes parts through, and knows their size and CRC at the end."""

    parts: Iterable[bytes]
    size: int = 0
    crc: int = 0

    def __iter__(self) -> Iterator[bytes]:
        for part in self.parts:
            self.size += len(part)
            self.crc = zlib.crc32(part, self.crc)
            yield part


def _deflated(parts: Iterable[bytes]) -> Iterator[bytes]:
    deflate = zlib.compressobj(1, zlib.DEFLATED, -15)
    for part in parts:
        yield deflate.compress(part)
    yield deflate.flush()


def local_record(name: str, method: int, crc: int, size: int, packed: bytes) -> bytes:
    """A local record with its content."""
    return local_head(name, method, crc, size, len(packed)) + packed


def local_head(name: str, method: int, crc: int, size: int, packed: int) -> bytes:
    """What stands before the content of a local record."""
    raw = name.encode()
    head = LOCAL.pack(b"PK\3\4", _needs(method), UTF8, method, 0, FIRST_DAY, crc, packed, size, len(raw), 0)
    return head + raw


def entry(name: str, method: int, crc: int, packed: int, size: int, offset: int) -> bytes:
    """A member's entry in the directory."""
    raw = name.encode()
    extra = struct.pack("<HHQ", 1, 8, offset) if offset >= FULL32 else b""
    needs = 63 if method == ZSTANDARD else 45 if extra else 20
    head = CENTRAL.pack(
        b"PK\1\2", needs, UNIX, needs, 0, UTF8, method, 0, FIRST_DAY, crc, packed, size, len(raw), len(extra),
        0, 0, 0, FILE_MODE, min(offset, FULL32),
    )  # fmt: skip
    return b"".join((head, raw, extra))


def _needs(method: int) -> int:
    return 63 if method == ZSTANDARD else 20


def end_record(count: int, size: int, offset: int) -> bytes:
    """What stands after the directory, and ends the file.

    Args:
        count: of its entries. size, offset: of the directory.
    """
    if count < FULL16 and size < FULL32 and offset < FULL32:
        return END.pack(b"PK\5\6", 0, 0, count, count, size, offset, 0)
    end64 = END64.pack(b"PK\6\6", END64.size - 12, 63, 63, 0, 0, count, count, size, offset)
    locator = LOCATOR64.pack(b"PK\6\7", 0, offset + size, 1)
    return end64 + locator + END.pack(b"PK\5\6", 0, 0, min(count, FULL16), min(count, FULL16), FULL32, FULL32, 0)


def find_directory(read: Callable[[int, int], bytes], length: int) -> tuple[int, int] | None:
    """Where the directory of a file stands.

    Args:
        read: gives bytes of the file, by offset and size. length: of the file.

    Returns:
        Its offset and size, None when the file does not end in a directory.
    """
    tail_at = max(0, length - END.size - LOCATOR64.size - FULL16)
    tail = read(tail_at, length - tail_at)
    place = tail.rfind(b"PK\5\6")
    if place < 0 or len(tail) - place < END.size:
        return None
    _, _, _, _, _, size, offset, _ = END.unpack_from(tail, place)
    end = tail_at + place
    if FULL32 in {size, offset} and place >= LOCATOR64.size:
        mark, _, end, _ = LOCATOR64.unpack_from(tail, place - LOCATOR64.size)
        if mark == b"PK\6\7":
            found = read(end, END64.size)
            if len(found) < END64.size or not found.startswith(b"PK\6\6"):
                return None
            *_, size, offset = END64.unpack(found)
    return (offset, size) if offset + size <= end else None


def directory(data: bytes) -> Iterator[Member]:
    """The members that a directory lists.

    Raises:
        LogError: it is damaged.
    """
    at = 0
    while at < len(data):
        if data[at : at + 4] != b"PK\1\2" or at + CENTRAL.size > len(data):
            raise LogError(f"the log's directory is damaged at its byte {at}")
        found = CENTRAL.unpack_from(data, at)
        method, crc, packed, size = found[6], found[9], found[10], found[11]
        name_size, extra_size, comment_size, offset = found[12], found[13], found[14], found[18]
        name_at = at + CENTRAL.size
        extra_at = name_at + name_size
        end = extra_at + extra_size + comment_size
        name = data[name_at:extra_at].decode("utf-8" if found[5] & UTF8 else "cp437")
        if FULL32 in {packed, size, offset}:
            size, packed, offset = _extra64(data[extra_at : extra_at + extra_size], size, packed, offset)
        yield Member(name, method, crc, packed, size, offset, data[at:end])
        at = end


def _extra64(extra: bytes, *values: int) -> tuple[int, int, int]:
    """The sizes and the offset, those that are full taken from the ZIP64 field, in its order."""
    at = 0
    wide: list[int] = []
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            wide = list(struct.unpack_from(f"<{length // 8}Q", extra, at + 4))
        at += 4 + length
    size, packed, offset = (wide.pop(0) if value == FULL32 and wide else value for value in values)
    return size, packed, offset


def local_member(read: Callable[[int, int], bytes], offset: int) -> tuple[Member, bytes] | None:
    """The member whose local record stands at an offset, with its compressed content.

    Returns:
        None when no whole and sound record stands there: what was torn by a crash, or the directory.
    """
    head = read(offset, LOCAL.size)
    if len(head) < LOCAL.size or not head.startswith(b"PK\3\4"):
        return None
    _, _, flags, method, _, _, crc, packed, size, name_size, extra_size = LOCAL.unpack(head)
    if flags & 0x8 or FULL32 in {packed, size}:
        return None  # sizes follow the content: not a record of ours
    body = read(offset + LOCAL.size, name_size + extra_size + packed)
    if len(body) < name_size + extra_size + packed:
        return None
    content = body[name_size + extra_size :]
    try:
        name = body[:name_size].decode()
        if zlib.crc32(unpack(method, content, size)) != crc:
            return None
    except (LogError, UnicodeDecodeError):
        return None
    return Member(name, method, crc, packed, size, offset, entry(name, method, crc, packed, size, offset)), content


def unpack(method: int, packed: bytes, size: int) -> bytes:
    """The content of a member.

    Raises:
        LogError: it cannot be unpacked, or is not of the size it should be.
    """
    try:
        if method == STORED:
            data = packed
        elif method == DEFLATED:
            data = zlib.decompress(packed, -15)
        elif method == ZSTANDARD:
            data = _unzstd(packed)
        else:
            raise LogError(f"compression method {method} is none of a log's (0, 8 and 93)")
    except zlib.error as error:
        raise LogError(f"its content cannot be unpacked: {error}") from error
    if len(data) != size:
        raise LogError(f"its content is {len(data)} bytes long where {size} were said")
    return data


def _unzstd(packed: bytes) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise LogError("it is compressed with zstd: install the package zstandard to read it") from None
    try:
        with zstandard.ZstdDecompressor().stream_reader(packed, read_across_frames=True) as reader:
            return bytes(reader.read())
    except zstandard.ZstdError as error:
        raise LogError(f"its content cannot be unpacked: {error}") from error
