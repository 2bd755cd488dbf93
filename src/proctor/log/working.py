"""The local file of a log in a bucket: had again from there, when the log is gone on in.

What a killed run left on this machine may hold more than its last copy in the bucket. It is used when everything of
that copy is in it; else somebody has gone on in the log elsewhere, and the file is kept under another name.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from proctor.errors import LogError
from proctor.log import archive
from proctor.log.bucket import Bucket
from proctor.log.evalfile import wal_path
from proctor.log.logfile import LogFile
from proctor.log.places import S3Place, work_folder, working_path
from proctor.log.running import running_folder
from proctor.log.storage import File, LocalStorage


def fetched(place: S3Place) -> tuple[Path, str]:
    """The local file of a log in a bucket, copied from there where it is not here or is older. It blocks.

    Returns:
        Its path; and what to say when another local file had to make way, else "".

    Raises:
        LogError: the log cannot be read.
    """
    path, note = working_path(place), ""
    try:
        if path.exists():
            if _is_newest(path, place):
                return path, ""
            note = f"{place} was gone on in elsewhere since; what was here is kept in {_put_aside(path)}"
        download(place, path)
    except OSError as error:
        raise LogError(f"{place}: the log cannot be read: {error.strerror or error}") from error
    return path, note


def _is_newest(path: Path, place: S3Place) -> bool:
    """Whether the local file of a log is to be used; it is while the storage cannot be asked."""
    try:
        return is_in_use(path) or not place.exists() or continues(path, place)
    except (OSError, LogError):
        return True


def download(place: S3Place, path: Path) -> None:
    """Copy an object to a path, which has it whole or not at all. It blocks.

    Raises:
        OSError: it is not there, or cannot be copied. LogError: obstore is not installed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.fetching")
    try:
        with beside.open("wb") as out:
            Bucket.open(place.bucket).download(place.key, out)
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def put_file(path: Path, place: S3Place) -> str:
    """Put a file, which nobody writes, in the place of an object; returns its etag. It blocks.

    Raises:
        OSError: it cannot be read or put. LogError: obstore is not installed.
    """
    with path.open("rb") as file:
        return Bucket.open(place.bucket).put(place.key, iter(lambda: file.read(2**20), b""), path.stat().st_size)


def look_into(folder: S3Place) -> None:
    """See that logs can be kept in a folder of a bucket, and that this machine has a place for the local files.

    Raises:
        LogError: the bucket cannot be reached or is refused, or the local folder cannot be written.
    """
    try:
        for _ in Bucket.open(folder.bucket).list(folder.key, recursive=False):
            break
    except OSError as error:
        raise LogError(
            f"log_dir {folder} cannot be used: {error.strerror or error}; name another with --log-dir (log_dir=…)"
        ) from None
    local = work_folder()
    try:
        local.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=local):
            pass
    except OSError as error:
        raise LogError(
            f"log_dir {folder}: logs are written on this machine first, and {local} cannot be written: "
            f"{error.strerror or error}; name another folder with PROCTOR_WORK_DIR"
        ) from None


def is_in_use(path: Path) -> bool:
    """Whether another process writes a log."""
    try:
        LocalStorage().open(path, write=True).close()
    except LogError:
        return True
    return False


def continues(path: Path, place: S3Place) -> bool:
    """Whether every record of an object is in a file, at the same offset."""
    if path.suffix != ".eval":
        return False
    file = LocalStorage().open(path, write=False)
    try:
        with LogFile.open(place) as remote:
            return all(_has(file, member) for member in remote.members.values())
    finally:
        file.close()


def _has(file: File, member: archive.Member) -> bool:
    head = file.read_at(member.offset, archive.LOCAL.size)
    if len(head) < archive.LOCAL.size or not head.startswith(b"PK\3\4"):
        return False
    _, _, _, method, _, _, crc, packed, size, *_ = archive.LOCAL.unpack(head)
    return (method, crc, packed, size) == (member.method, member.crc, member.packed, member.size)


def _put_aside(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.kept-{number}")).exists():
        number += 1
    path.replace(aside)
    if wal_path(path).exists():
        wal_path(path).replace(wal_path(aside))
    if running_folder(path).exists():
        running_folder(path).replace(running_folder(aside))
    return aside


__all__ = ["continues", "download", "fetched", "is_in_use", "look_into", "put_file"]
