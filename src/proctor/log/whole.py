"""Writing a whole log at once, beside its place and then into it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from attrs import frozen

from proctor.errors import LogError
from proctor.log.encode import encode
from proctor.log.evalfile import EvalFile
from proctor.log.header import encode_header
from proctor.log.places import Place, S3Place
from proctor.log.records import EvalLog, LogStart
from proctor.log.reductions import encode_reductions
from proctor.log.sample_json import encode_record
from proctor.log.storage import LocalFile, LocalStorage


@frozen
class WriteEvalLogResult:
    """The result of writing a log: the etag of a stored object, None for a file."""

    etag: str | None = None


def write_log(log: EvalLog, path: Place, kind: Literal["eval", "json"]) -> WriteEvalLogResult:
    """Write a log in place of what is at `path`.

    Raises:
        LogError: it cannot be written; what was there is untouched.
    """
    if isinstance(path, S3Place):
        return _write_object(log, path, kind)
    beside = path.with_name(f".{path.name}.{os.getpid()}.writing")
    storage = LocalStorage()
    try:
        storage.remove(beside)
        if kind == "json":
            _write_json(log, beside)
        else:
            _write_eval(log, beside)
        beside.replace(path)
        storage.sync_folder(path)
    except OSError as error:
        raise LogError(f"{path}: the log cannot be written: {error.strerror or error}") from error
    finally:
        storage.remove(beside)
    log.location = str(path)
    return WriteEvalLogResult()


def _write_object(log: EvalLog, place: S3Place, kind: Literal["eval", "json"]) -> WriteEvalLogResult:
    """Write a log on this machine, and put it into its bucket."""
    from proctor.log.working import put_file

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, place.name)
        write_log(log, path, kind)
        try:
            etag = put_file(path, place)
        except OSError as error:
            raise LogError(f"{place}: the log cannot be written: {error.strerror or error}") from error
    log.location = str(place)
    return WriteEvalLogResult(etag)


def _write_eval(log: EvalLog, path: Path) -> None:
    file = EvalFile.create(path, encode(LogStart(version=log.version, eval=log.eval, plan=log.plan)), now=0.0)
    try:
        for sample in log.samples or []:
            file.add(encode_record(sample))
            if file.sync_due():
                file.sync(0.0)
        file.finish(encode_header(log), encode_reductions(log.reductions) if log.reductions else None, 0.0)
    finally:
        file.close()


def _write_json(log: EvalLog, path: Path) -> None:
    """One object: readers of the header alone stop at ``samples``, so that comes after all that they need."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as out:
        out.writelines(_json_parts(log))
        out.flush()
        LocalFile(out.fileno()).sync()


def _json_parts(log: EvalLog) -> Iterator[bytes]:
    yield encode_header(log)[:-1]
    if log.samples is not None:
        yield b',"samples":['
        for place, sample in enumerate(log.samples):
            yield b"," if place else b""
            yield from encode_record(sample).parts
        yield b"]"
    if log.reductions:
        yield b',"reductions":'
        yield from encode_reductions(log.reductions)
    yield b"}"
