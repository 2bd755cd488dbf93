"""Reading, listing and writing whole logs: the functions that users of Inspect know.

Each blocks, and has a twin whose name ends in ``_async`` and which does the same without holding the event loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias, cast

from proctor.errors import LogError
from proctor.log.encode import decode
from proctor.log.listing import EvalLogInfo, find_logs
from proctor.log.logfile import LogFile, log_from, sample_from
from proctor.log.places import Place, S3Place, place_of
from proctor.log.records import EvalLog, EvalSample, EvalSampleSummary
from proctor.log.resolve import Resolve
from proctor.log.threads import in_thread
from proctor.log.whole import WriteEvalLogResult, write_log

Source: TypeAlias = str | Path | EvalLogInfo | S3Place
Format: TypeAlias = Literal["eval", "json", "auto"]


def read_eval_log(
    log_file: Source | IO[bytes],
    header_only: bool = False,
    resolve_attachments: Resolve = False,
    format: Format = "auto",
    exclude_fields: set[str] | None = None,
) -> EvalLog:
    """Read a log.

    Args:
        log_file: its path or ``s3://`` URL, what `list_eval_logs` gave, or an open binary file.
        header_only: without its samples, which are then not read at all.
        resolve_attachments: put attachments back where they belong: ``True`` or ``"core"`` those of messages and
            events, ``"full"`` those of raw requests too.
        format: default by the file's name and content.
        exclude_fields: fields of samples to leave out.

    Raises:
        LogError: it cannot be read, or is no log.
    """
    source = _source(log_file)
    if _format(source, format) == "json":
        return _read_json(source, resolve_attachments, exclude_fields, header_only=header_only)
    with LogFile.open(source) as file:
        log = file.header()
        if not header_only:
            log.samples = [file.sample(name, resolve_attachments, exclude_fields) for name in file.sample_names()]
            log.samples.sort(key=_order)
    return log


def read_eval_log_sample(
    log_file: Source,
    id: int | str | None = None,
    epoch: int = 1,
    uuid: str | None = None,
    resolve_attachments: Resolve = False,
    format: Format = "auto",
    exclude_fields: set[str] | None = None,
) -> EvalSample:
    """Read one sample of a log, and nothing else of it.

    Args:
        log_file: the log. id, epoch: of the sample; or uuid: of the sample.
        resolve_attachments, format, exclude_fields: as for `read_eval_log`.

    Raises:
        LogError: the log cannot be read.
        IndexError: it has no such sample.
        ValueError: neither `id` nor `uuid` is given.
    """
    if id is None and uuid is None:
        raise ValueError("give the id or the uuid of the sample to read")
    source = _source(log_file)
    if _format(source, format) == "json":
        for sample in _read_json(source, resolve_attachments, exclude_fields).samples or []:
            if (sample.uuid == uuid) if id is None else (str(sample.id), sample.epoch) == (str(id), epoch):
                return sample
        raise IndexError(f"{source}: the log has no sample {uuid if id is None else id!r} in epoch {epoch}")
    with LogFile.open(source) as file:
        return file.sample(file.find(id, epoch, uuid), resolve_attachments, exclude_fields)


def read_eval_log_samples(
    log_file: Source,
    all_samples_required: bool = True,
    resolve_attachments: Resolve = False,
    format: Format = "auto",
    exclude_fields: set[str] | None = None,
) -> Iterator[EvalSample]:
    """Read the samples of a log one at a time, in dataset order, epoch by epoch within a sample.

    Args:
        log_file: the log.
        all_samples_required: refuse a log that is not complete; else give the samples there are (in the order of the
            log, where that does not say which it should have: a run over a stream that was killed).
        resolve_attachments, format, exclude_fields: as for `read_eval_log`.

    Raises:
        LogError: the log cannot be read, or is not complete.
        IndexError: a sample is missing.
    """
    source = _source(log_file)
    header = read_eval_log(source, header_only=True, format=format)
    if all_samples_required and (header.status != "success" or header.invalidated):
        state = "invalidated" if header.invalidated else header.status
        raise LogError(f"{source}: the log is {state}; all_samples_required=False gives the samples it has")
    ids, epochs = header.eval.dataset.sample_ids, header.eval.config.epochs or 1
    if ids is None and all_samples_required:
        raise LogError(
            f"{source}: the log does not say which samples it should have; all_samples_required=False gives those it "
            "has"
        )
    if _format(source, format) == "json":
        yield from _read_json(source, resolve_attachments, exclude_fields).samples or []
        return
    with LogFile.open(source) as file:
        if ids is None:
            for name in file.sample_names():
                yield file.sample(name, resolve_attachments, exclude_fields)
            return
        for id in ids:
            for epoch in range(1, epochs + 1):
                try:
                    name = file.find(id, epoch, None)
                except IndexError:
                    if all_samples_required:
                        raise
                    continue
                yield file.sample(name, resolve_attachments, exclude_fields)


def read_eval_log_sample_summaries(log_file: Source, format: Format = "auto") -> list[EvalSampleSummary]:
    """Read the summaries of the samples of a log, without reading the samples.

    Raises:
        LogError: the log cannot be read.
    """
    source = _source(log_file)
    if _format(source, format) == "json":
        return [sample.summary() for sample in _read_json(source).samples or []]
    with LogFile.open(source) as file:
        return sorted(file.summaries(), key=_order)


def list_eval_logs(
    log_dir: str | Path | None = None,
    formats: list[Literal["eval", "json"]] | None = None,
    filter: Callable[[EvalLog], bool] | None = None,
    recursive: bool = True,
    descending: bool = True,
    fs_options: dict[str, Any] | None = None,
) -> list[EvalLogInfo]:
    """The logs in a folder, by the time they were last written.

    Args:
        log_dir: a path or ``s3://BUCKET/FOLDER``; default ``PROCTOR_LOG_DIR``, then ``INSPECT_LOG_DIR``, then ``logs``.
        formats: default all. filter: is asked for each log, with its header.
        recursive: look into the folders below. descending: newest first.
        fs_options: accepted for ported code.
    """
    del fs_options
    found = find_logs(log_dir, formats=formats, recursive=recursive, descending=descending)
    return found if filter is None else [info for info in found if _passes(info, filter)]


def write_eval_log(
    log: EvalLog, location: Source | None = None, format: Format = "auto", if_match_etag: str | None = None
) -> WriteEvalLogResult:
    """Write a whole log, in place of the file that is there, if any; all at once, or not at all.

    Args:
        log: with its samples. location: default where it was read from.
        format: default by the name of the file. if_match_etag: accepted for ported code.

    Raises:
        LogError: it cannot be written, or nothing says where to.
    """
    del if_match_etag
    target = location if location is not None else log.location
    if not target:
        raise LogError("where should the log be written? Give write_eval_log a location")
    path = place_of(target)
    return write_log(log, path, "json" if format == "json" or (format == "auto" and path.suffix == ".json") else "eval")


async def read_eval_log_async(
    log_file: Source | IO[bytes],
    header_only: bool = False,
    resolve_attachments: Resolve = False,
    format: Format = "auto",
    exclude_fields: set[str] | None = None,
) -> EvalLog:
    """`read_eval_log` for async code."""
    return await in_thread(read_eval_log, log_file, header_only, resolve_attachments, format, exclude_fields)


async def read_eval_log_sample_async(
    log_file: Source,
    id: int | str | None = None,
    epoch: int = 1,
    uuid: str | None = None,
    resolve_attachments: Resolve = False,
    format: Format = "auto",
    exclude_fields: set[str] | None = None,
) -> EvalSample:
    """`read_eval_log_sample` for async code."""
    return await in_thread(read_eval_log_sample, log_file, id, epoch, uuid, resolve_attachments, format, exclude_fields)


async def read_eval_log_samples_async(
    log_file: Source,
    all_samples_required: bool = True,
    resolve_attachments: Resolve = False,
    format: Format = "auto",
    exclude_fields: set[str] | None = None,
) -> AsyncIterator[EvalSample]:
    """`read_eval_log_samples` for async code."""
    samples = read_eval_log_samples(log_file, all_samples_required, resolve_attachments, format, exclude_fields)
    with contextlib.closing(cast("Any", samples)):
        while (sample := await in_thread(_next, samples)) is not None:
            yield sample


async def read_eval_log_sample_summaries_async(log_file: Source, format: Format = "auto") -> list[EvalSampleSummary]:
    """`read_eval_log_sample_summaries` for async code."""
    return await in_thread(read_eval_log_sample_summaries, log_file, format)


async def list_eval_logs_async(
    log_dir: str | Path | None = None,
    formats: list[Literal["eval", "json"]] | None = None,
    filter: Callable[[EvalLog], bool] | None = None,
    recursive: bool = True,
    descending: bool = True,
    fs_options: dict[str, Any] | None = None,
) -> list[EvalLogInfo]:
    """`list_eval_logs` for async code."""
    return await in_thread(list_eval_logs, log_dir, formats, filter, recursive, descending, fs_options)


async def write_eval_log_async(
    log: EvalLog, location: Source | None = None, format: Format = "auto", if_match_etag: str | None = None
) -> WriteEvalLogResult:
    """`write_eval_log` for async code."""
    return await in_thread(write_eval_log, log, location, format, if_match_etag)


def _next(samples: Iterator[EvalSample]) -> EvalSample | None:
    return next(samples, None)


def _source(log_file: Any) -> Place | IO[bytes]:
    return cast("IO[bytes]", log_file) if hasattr(log_file, "read") else place_of(log_file)


def _format(source: Place | IO[bytes], format: Format) -> str:
    if format != "auto":
        return format
    if not isinstance(source, Place):
        first = source.read(1)
        source.seek(0)
        return "eval" if first == b"P" else "json"
    return "json" if source.suffix == ".json" else "eval"


def _read_json(
    source: Place | IO[bytes], resolve: Resolve = False, exclude: set[str] | None = None, *, header_only: bool = False
) -> EvalLog:
    name = str(source) if isinstance(source, Place) else ""
    try:
        data = source.read_bytes() if isinstance(source, Place) else source.read()
        value = decode(data)
    except OSError as error:
        raise LogError(f"{name}: the log cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise LogError(f"{name}: this is no log: {error}") from error
    samples = value.pop("samples", None) if isinstance(value, dict) else None
    if header_only and isinstance(value, dict):
        value.pop("reductions", None)
    log = log_from(value, name)
    if samples is not None and not header_only:
        log.samples = [sample_from(sample, resolve, exclude, name) for sample in samples]
    return log


def _order(sample: EvalSample | EvalSampleSummary) -> tuple[int, str]:
    """By epoch, then by id, numbers in their own order."""
    return sample.epoch, sample.id if isinstance(sample.id, str) else str(sample.id).zfill(20)


def _passes(info: EvalLogInfo, filter: Callable[[EvalLog], bool]) -> bool:
    return filter(read_eval_log(info, header_only=True))


__all__ = [
    "EvalLogInfo",
    "WriteEvalLogResult",
    "list_eval_logs",
    "list_eval_logs_async",
    "read_eval_log",
    "read_eval_log_async",
    "read_eval_log_sample",
    "read_eval_log_sample_async",
    "read_eval_log_sample_summaries",
    "read_eval_log_sample_summaries_async",
    "read_eval_log_samples",
    "read_eval_log_samples_async",
    "write_eval_log",
    "write_eval_log_async",
]
