"""An object of a bucket, read like a file: only the ranges that are asked for are fetched.

Reads of a log come in runs: the end record and the directory at the end, then a member's head and its content. So a
read at the end fetches a piece of the end, and another one somewhat more than was asked for, growing while reads follow
each other; a few such pieces are kept. Everything is of one version of the object: when it is replaced meanwhile, what
was read is torn, and whoever reads begins again with the new one.
"""

from __future__ import annotations

import os
from typing import IO, Any, Final, Protocol

from attrs import define, field

from proctor.errors import LogError
from proctor.log.bucket import Bucket, Changed, NoRanges, Stored, temporary
from proctor.log.logfile import Torn
from proctor.log.places import S3Place

TAIL: Final = 128 * 1024
"""Bytes that the first read at the end fetches."""
LEAST: Final = 32 * 1024
MOST: Final = 4 * 2**20
"""Bytes that a read fetches at least; doubled while reads follow each other, up to so many."""
KEPT: Final = 4


class Objects(Protocol):
    """What a remote file asks of a bucket."""

    def head(self, key: str) -> Stored:
        """What is known of an object."""
        ...

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        """Some bytes of an object."""
        ...

    def download(self, key: str, into: IO[bytes]) -> str:
        """Write a whole object into a file; returns its etag."""
        ...


@define(eq=False)
class RemoteFile:
    """An object that is only read; made by `open_remote`."""

    place: S3Place
    bucket: Objects
    stored: Stored
    _pieces: list[tuple[int, bytes]] = field(factory=list, init=False)
    _ahead: int = field(default=LEAST, init=False)
    _whole: IO[bytes] | None = field(default=None, init=False)

    def size(self) -> int:
        """The length of the object."""
        return self.stored.size

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end.

        Raises:
            Torn: the object was replaced. LogError: it cannot be read.
        """
        size = min(size, self.stored.size - offset)
        if size <= 0:
            return b""
        for at, data in self._pieces:
            if at <= offset and offset + size <= at + len(data):
                return data[offset - at : offset - at + size]
        try:
            return self._fetched(offset, size)
        except Changed as changed:
            self._renew()
            raise Torn("it was replaced while it was read") from changed
        except OSError as error:
            raise LogError(f"{self.place}: the log cannot be read: {error.strerror or error}") from error

    def close(self) -> None:
        """Forget what was fetched."""
        self._pieces.clear()
        if self._whole is not None:
            self._whole.close()
            self._whole = None

    def write_at(self, offset: int, *pieces: bytes | bytearray) -> None:
        """An object is not written in place."""
        raise LogError(f"{self.place}: an object can only be read")

    truncate: Any = write_at
    sync: Any = write_at

    def _fetched(self, offset: int, size: int) -> bytes:
        if self._whole is None:
            start, end = self._range(offset, size)
            try:
                data = self.bucket.read(self.place.key, start, end, self.stored.etag)
            except NoRanges:
                self._get_whole()
            else:
                self._pieces = [*self._pieces[-KEPT + 1 :], (start, data)]
                return data[offset - start : offset - start + size]
        assert self._whole is not None
        return os.pread(self._whole.fileno(), size, offset)

    def _range(self, offset: int, size: int) -> tuple[int, int]:
        """What to fetch for a read."""
        length = self.stored.size
        if offset + size == length:
            return max(0, min(offset, length - TAIL)), length
        follows = any(at <= offset <= at + len(data) for at, data in self._pieces)
        self._ahead = min(MOST, self._ahead * 2) if follows else LEAST
        return offset, min(length, offset + max(size, self._ahead))

    def _get_whole(self) -> None:
        file = temporary()
        try:
            etag = self.bucket.download(self.place.key, file)
            file.flush()
            if etag != self.stored.etag or os.fstat(file.fileno()).st_size != self.stored.size:
                raise Changed("it was replaced")
        except BaseException:
            file.close()
            raise
        self._whole = file

    def _renew(self) -> None:
        self.close()
        try:
            self.stored = self.bucket.head(self.place.key)
        except OSError as error:
            raise LogError(f"{self.place}: the log cannot be read: {error.strerror or error}") from error


def open_remote(place: S3Place, bucket: Objects | None = None) -> RemoteFile:
    """Open an object to read it.

    Raises:
        OSError: it is not there, or the storage cannot be asked. LogError: obstore is not installed.
    """
    bucket = bucket or Bucket.open(place.bucket)
    return RemoteFile(place, bucket, bucket.head(place.key))
