"""Files of a log on a local disk: positions are explicit, writes whole, syncs real.

A log's file is written through this small interface so that tests can put a failing disk in its place. Everything
here blocks: it belongs in a thread.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any, Protocol

from attrs import define

from proctor.errors import LogError


class File(Protocol):
    """An open file that is read and written at explicit positions; sizes and positions in bytes."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        ...

    def write_at(self, offset: int, *pieces: bytes | bytearray) -> None:
        """Write all of `pieces`, one after the other, in one call of the system where it takes them."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file."""
        ...

    def sync(self) -> None:
        """Return when what was written is on the disk."""
        ...

    def size(self) -> int:
        """The length of the file."""
        ...

    def close(self) -> None:
        """Close it, and release its lock."""
        ...


class Storage(Protocol):
    """Where the files of a log are."""

    def create(self, path: Path) -> File:
        """Create a file that must not exist, and lock it."""
        ...

    def open(self, path: Path, *, write: bool) -> File:
        """Open a file that exists; lock it where it is to be written."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is such a file."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Return when the names in the folder of `path` are on the disk."""
        ...


@define(eq=False)
class LocalFile:
    """A file of this machine."""

    descriptor: int

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        found = os.pread(self.descriptor, size, offset)
        if len(found) in {0, size}:
            return found
        pieces = [found]
        while found:
            offset, size = offset + len(found), size - len(found)
            found = os.pread(self.descriptor, size, offset)
            pieces.append(found)
        return b"".join(pieces)

    def write_at(self, offset: int, *pieces: bytes | bytearray) -> None:
        """Write all of `pieces`, one after the other, in one call of the system where it takes them."""
        rest = [memoryview(piece) for piece in pieces if piece]
        while rest:
            written = os.pwritev(self.descriptor, rest, offset)
            offset += written
            while rest and written >= len(rest[0]):
                written -= len(rest.pop(0))
            if rest:
                rest[0] = rest[0][written:]

    def truncate(self, size: int) -> None:
        """Cut the file."""
        os.ftruncate(self.descriptor, size)

    def sync(self) -> None:
        """Return when what was written is on the disk."""
        getattr(os, "fdatasync", os.fsync)(self.descriptor)

    def size(self) -> int:
        """The length of the file."""
        return os.fstat(self.descriptor).st_size

    def close(self) -> None:
        """Close it, and release its lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class LocalStorage:
    """The file system of this machine."""

    def create(self, path: Path) -> LocalFile:
        """Create a file that must not exist, its folder with it, and lock it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        return _locked(path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))

    def open(self, path: Path, *, write: bool) -> LocalFile:
        """Open a file that exists; lock it where it is to be written."""
        if not write:
            return LocalFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        return _locked(path, os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def exists(self, path: Path) -> bool:
        """Whether there is such a file."""
        return path.exists()

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def sync_folder(self, path: Path) -> None:
        """Return when the names in the folder of `path` are on the disk."""
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with contextlib.suppress(OSError):  # some file systems cannot sync a folder
                os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _locked(path: Path, descriptor: int) -> LocalFile:
    """Take the lock that tells other processes that this one writes the file."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise LogError(f"{path}: another process is writing this log; wait until it has ended") from None
    except OSError:
        pass  # a file system without locks: the log is written all the same
    return LocalFile(descriptor)


def local_path(location: Any) -> Path:
    """A log's location as a path of this machine.

    Args:
        location: a path, ``file://`` URL, or an object whose `name` is one.

    Raises:
        LogError: it is on a storage that cannot be reached.
    """
    text = os.fspath(location) if isinstance(location, str | os.PathLike) else str(location.name)
    if text.startswith("file://"):
        from urllib.parse import unquote, urlparse

        return Path(unquote(urlparse(text).path))
    if "://" in text:
        raise LogError(f"{text}: logs can be read and written on local paths only; copy it here first")
    return Path(text)
