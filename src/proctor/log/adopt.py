"""Copying a log in order to go on in the copy: one that another program wrote, that is locked or cannot be written.

Samples are taken one at a time, as the JSON they are, so that a log larger than memory can be copied. The copy is
named only when it is whole; until it is gone on in, it is a log that is ``started``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from proctor.errors import LogError
from proctor.log.attached import read_sample
from proctor.log.digests import content_digest
from proctor.log.encode import decode, encode
from proctor.log.evalfile import EvalFile, wal_path
from proctor.log.logfile import LogFile
from proctor.log.places import Place
from proctor.log.reader import read_eval_log
from proctor.log.records import LogStart
from proctor.log.recover import reopen
from proctor.log.sample_json import Record, encode_record, sample_member
from proctor.log.storage import LocalStorage
from proctor.log.summaries import encode_summary

IN_USE: Final = "another process is writing it"
OURS: Final = "proctor"
"""Stands among the packages of a log that we can go on in."""


def adopt(path: Place, target: Path) -> None:
    """Copy a log, with all its samples, to a place where it can be gone on in; nothing happens where it is already.

    Raises:
        LogError: it cannot be read, or the copy cannot be written.
    """
    if target.exists():
        return
    beside = target.with_name(f".{target.name}.{os.getpid()}.copying")
    storage = LocalStorage()
    try:
        header = read_eval_log(path, header_only=True)
        packages = {**header.eval.packages, OURS: header.eval.packages.get(OURS, "copied")}
        spec = evolve(header.eval, packages=packages)
        start = encode(LogStart(version=header.version, eval=spec, plan=header.plan))
        storage.remove(beside)
        file = EvalFile.create(beside, start, now=0.0)
        try:
            for record in _records(path, ours=OURS in header.eval.packages):
                file.add(record)
                if file.sync_due():
                    file.sync(0.0)
            file.commit(0.0)
        finally:
            file.close()
        beside.replace(target)
        storage.sync_folder(target)
    except OSError as error:
        raise LogError(f"{target}: the log cannot be copied there: {error.strerror or error}") from error
    finally:
        storage.remove(wal_path(beside))
        storage.remove(beside)


def can_go_on(path: Path) -> str | None:
    """See whether a log of ours can be written where it is, and mend it if a crash damaged it.

    Returns:
        None when it can be; else why not.
    """
    storage = LocalStorage()
    try:
        storage.open(path, write=True).close()
        if wal_path(path).exists() or not LogFile.is_whole(path):
            reopen(path, now=0.0).close()
    except OSError as error:
        return error.strerror or str(error)
    except LogError as error:
        if "another process" in str(error):
            return IN_USE
        raise
    return None


def _records(path: Place, *, ours: bool) -> Iterator[Record]:
    if path.suffix == ".json":
        for sample in read_eval_log(path).samples or []:
            made = encode_record(sample)
            yield made if ours else evolve(made, digest=None)
        return
    with LogFile.open(path) as file:
        for name in file.sample_names():
            data = file.content(name)
            content: dict[str, Any] = decode(data)
            key = (content["id"], content["epoch"])
            sample = read_sample(content)
            yield Record(
                key, sample_member(*key), (data,), encode_summary(sample), content_digest(content) if ours else None
            )
