"""Where logs are: a path of this machine, or an object in a bucket of S3.

A place in a bucket has of `Path` what logs need, so that most code need not know which of the two it has. What asks the
storage blocks: it belongs in a thread.
"""

from __future__ import annotations

import hashlib
import io
import os
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeAlias
from urllib.parse import unquote, urlparse

from attrs import frozen

from proctor.errors import LogError

SCHEME: Final = "s3://"
LOGS: Final = (".eval", ".json")


@frozen
class S3Place:
    """An object, or a folder of objects, in a bucket.

    Attributes:
        key: without a slash at its beginning or end.
    """

    bucket: str
    key: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}" if self.key else f"{SCHEME}{self.bucket}"

    def __truediv__(self, name: str) -> S3Place:
        return S3Place(self.bucket, f"{self.key}/{name}" if self.key else name)

    @property
    def name(self) -> str:
        """The part after the last slash."""
        return self.key.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its extension."""
        return PurePosixPath(self.name).stem

    @property
    def suffix(self) -> str:
        """The extension, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> S3Place:
        """The folder."""
        return S3Place(self.bucket, self.key.rpartition("/")[0])

    def with_name(self, name: str) -> S3Place:
        """The place of this name in the same folder."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> S3Place:
        """The place with another extension."""
        return self.with_name(self.stem + suffix)

    def absolute(self) -> S3Place:
        """The place itself."""
        return self

    def below(self, folder: S3Place) -> str:
        """The place as seen from a folder that it is in."""
        return self.key.removeprefix(folder.key).lstrip("/")

    def is_log(self) -> bool:
        """Whether this is the name of a log, and not of a folder."""
        return self.name.endswith(LOGS)

    def exists(self) -> bool:
        """Whether there is such an object; it blocks.

        Raises:
            OSError: the storage cannot be asked.
        """
        from proctor.log.bucket import Bucket

        try:
            Bucket.open(self.bucket).head(self.key)
        except FileNotFoundError:
            return False
        return True

    is_file = exists

    def read_bytes(self) -> bytes:
        """All of the object; it blocks.

        Raises:
            OSError: it is not there, or cannot be read.
        """
        from proctor.log.bucket import Bucket

        into = io.BytesIO()
        Bucket.open(self.bucket).download(self.key, into)
        return into.getvalue()

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the object, if it is there; it blocks.

        Raises:
            OSError: it cannot be removed.
        """
        from proctor.log.bucket import Bucket

        del missing_ok  # a storage does not say
        Bucket.open(self.bucket).delete(self.key)


Place: TypeAlias = Path | S3Place


def place_of(location: Any) -> Place:
    """Where a log or a folder of logs is.

    Args:
        location: a path, a ``file://`` or ``s3://`` URL, a place, or an object whose `name` is one of them.

    Raises:
        LogError: it is on a storage that cannot be reached.
    """
    if isinstance(location, S3Place):
        return location
    text = os.fspath(location) if isinstance(location, str | os.PathLike) else str(location.name)
    if text.startswith("file://"):
        return Path(unquote(urlparse(text).path))
    if text.startswith(SCHEME):
        bucket, _, key = text.removeprefix(SCHEME).partition("/")
        if not bucket:
            raise LogError(f"{text}: a bucket is missing; write s3://BUCKET/FOLDER")
        return S3Place(bucket, key.strip("/"))
    if "://" in text:
        raise LogError(f"{text}: logs can be read and written on local paths and at s3:// only; copy it here first")
    return Path(text)


def within(place: Place, folder: Place) -> str:
    """The name of a log as seen from a folder, or from the one it is in if `folder` is the log itself."""
    if isinstance(place, S3Place):
        assert isinstance(folder, S3Place)
        return place.below(folder.parent if folder.is_log() else folder)
    assert isinstance(folder, Path)
    root = folder.absolute() if folder.is_dir() else folder.absolute().parent
    return str(place.absolute().relative_to(root))


def work_folder() -> Path:
    """Where logs that belong in a bucket are written first: ``PROCTOR_WORK_DIR``, else below the user's state."""
    from proctor.runtime.settings import environ

    if named := environ("PROCTOR_WORK_DIR"):
        return Path(named)
    state = environ("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "proctor" / "logs"


def working_path(place: S3Place) -> Path:
    """The local file in which a log of a bucket is written; each folder at each endpoint has one of its own."""
    from proctor.log.bucket import endpoint

    whole = f"{endpoint() or ''}\n{place.parent}"
    folder = f"{place.bucket}-{hashlib.sha256(whole.encode()).hexdigest()[:10]}"
    return work_folder() / folder / place.name


__all__ = ["Place", "S3Place", "place_of", "within", "work_folder", "working_path"]
