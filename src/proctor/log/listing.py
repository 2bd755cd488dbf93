"""Finding logs in a folder."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from attrs import frozen

from proctor.errors import LogError
from proctor.log.naming import parse_name
from proctor.log.places import Place, S3Place, place_of

DATED: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}[:-]\d{2}[:-]\d{2}")


@frozen
class EvalLogInfo:
    """A log in a folder.

    Attributes:
        name: its path, or its ``s3://`` URL. type: ``file``. size: in bytes.
        mtime: when it was last written, seconds since 1970.
        task, task_id: as its name says, or its header. suffix: what follows the id in its name, such as ``-scored``.
    """

    name: str
    type: str
    size: int
    mtime: float | None
    task: str
    task_id: str
    suffix: str | None


def default_log_dir() -> str:
    """Where logs are when nothing else is said."""
    from proctor.runtime.settings import environ

    return environ("PROCTOR_LOG_DIR") or environ("INSPECT_LOG_DIR") or "logs"


def find_logs(
    log_dir: str | Place | None, *, formats: Sequence[str] | None, recursive: bool, descending: bool
) -> list[EvalLogInfo]:
    """The logs in a folder, by the time they were last written.

    Raises:
        LogError: the bucket cannot be listed.
    """
    folder = place_of(log_dir if log_dir is not None else default_log_dir())
    kinds = tuple(f".{kind}" for kind in formats or ("eval", "json"))
    if isinstance(folder, S3Place):
        found = list(_stored(folder, kinds, recursive=recursive))
    else:
        found = [info_of(path) for path in _files(folder, recursive) if is_log(path.name, kinds)]
    return sorted(found, key=lambda info: info.mtime or 0, reverse=descending)


def is_log(name: str, kinds: tuple[str, ...]) -> bool:
    """Whether a file of this name is a log: JSON files are when their name begins with a date."""
    return name.endswith(kinds) and (name.endswith(".eval") or DATED.match(name) is not None)


def info_of(path: Path) -> EvalLogInfo:
    """What is known of a log by its name, or by its header when the name does not say."""
    stat = path.stat()
    known = parse_name(path.name)
    if known is None:
        known = _from_header(path)
    return EvalLogInfo(str(path.absolute()), "file", stat.st_size, stat.st_mtime, *known)


def _stored(folder: S3Place, kinds: tuple[str, ...], *, recursive: bool) -> Iterator[EvalLogInfo]:
    """The logs in a folder of a bucket, or the one log that is named."""
    from proctor.log.bucket import Bucket

    try:
        bucket = Bucket.open(folder.bucket)
        found = [bucket.head(folder.key)] if folder.is_log() else bucket.list(folder.key, recursive=recursive)
        for each in found:
            place = S3Place(folder.bucket, each.key)
            hidden = any(part.startswith(".") for part in place.below(folder).split("/"))
            if is_log(place.name, kinds) and not hidden:
                known = parse_name(place.name) or _from_header(place)
                yield EvalLogInfo(str(place), "file", each.size, each.mtime, *known)
    except OSError as error:
        raise LogError(f"{folder}: the logs cannot be listed: {error.strerror or error}") from error


def _from_header(path: Place) -> tuple[str, str, str | None]:
    from proctor.log.reader import read_eval_log

    try:
        header = read_eval_log(path, header_only=True)
    except LogError:
        return "", "", None
    return header.eval.task, header.eval.task_id, None


def _files(folder: Path, recursive: bool) -> Iterator[Path]:
    if folder.is_file():
        yield folder
        return
    for root, folders, files in os.walk(folder):
        if not recursive:
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            if not name.startswith("."):
                yield Path(root, name)
