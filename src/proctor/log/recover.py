"""Recovering a log after a crash, and opening it again to go on in it: from the file and its wal, nothing else.

The wal says at which offset of the log its records belong; they are written there (again, if they are there already),
and the records of the log are walked from that offset on. A log that ends in a directory and has no wal needs no walk
at all. A log without a directory is walked from its start, each record checked, up to the first that is not sound:
that is where the crash was, or where the file was cut. What stands behind is overwritten.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from proctor.errors import LogError
from proctor.log import archive
from proctor.log.archive import Member
from proctor.log.attached import read_sample
from proctor.log.digests import content_digest
from proctor.log.encode import decode
from proctor.log.evalfile import FINAL, START, EvalFile, read_wal, record_end, wal_path, walk
from proctor.log.journals import summaries_in
from proctor.log.logfile import DIGEST, JOURNAL, SAMPLE, Bytes
from proctor.log.places import Place, S3Place, place_of
from proctor.log.records import EvalLog
from proctor.log.running import absorb, copy_running, remove_running
from proctor.log.storage import File, LocalStorage, Storage
from proctor.log.summaries import encode_summary
from proctor.log.threads import in_thread


def reopen(path: Path, *, now: float, storage: Storage | None = None, start: bytes | None = None) -> EvalFile:
    """Open a log to go on in it: recovered, and without header, summaries and reductions, so that it is ``started``.

    Args:
        path: of the log. now: monotonic seconds.
        start: the JSON of a start record that takes the place of its own; default that one stays.

    Raises:
        LogError: another process writes it, or there is nothing to recover.
        OSError: it cannot be read or written.
    """
    storage = storage or LocalStorage()
    file = storage.open(path, write=True)
    try:
        return _reopened(path, storage, file, now, start)
    except BaseException:
        file.close()
        raise


def _reopened(path: Path, storage: Storage, file: File, now: float, start: bytes | None) -> EvalFile:
    members, end, sound = _members(file)
    replayed = _replay(path, storage, file, members, end)
    if replayed is not None:
        members, end = replayed
    if not any(member.name == START for member in members):
        raise LogError(f"{path}: nothing can be recovered: the log's first record is not whole")
    log = EvalFile(path, storage, file, end=end)
    last = {member.name: member for member in members}
    log.replaced = True
    kept = [member for member in last.values() if member.name not in FINAL]
    log.set_directory(_with_sound_journals(log, kept))
    if replayed is not None or not sound:
        _rebuild_summaries(log, kept)
    if start is not None:
        log.add_member(START, (start,))
    log.commit(now)
    if absorb(log, path, {member.name for member in kept}):
        log.commit(now)
    storage.remove(wal_path(path))
    remove_running(path)
    return log


def _members(file: File) -> tuple[list[Member], int, bool]:
    """The members of a log, where its records end, and whether its directory said so."""
    found = archive.find_directory(file.read_at, file.size())
    if found is not None:
        try:
            return list(archive.directory(file.read_at(*found))), found[0], True
        except LogError:
            pass
    members = list(walk(file.read_at))
    return members, record_end(file.read_at, members[-1]) if members else 0, False


def _replay(
    path: Path, storage: Storage, file: File, members: list[Member], end: int
) -> tuple[list[Member], int] | None:
    """Write the wal's records where they belong; the members and the end of the records after that."""
    if not storage.exists(wal_path(path)):
        return None
    wal = storage.open(wal_path(path), write=True)
    try:
        found = read_wal(wal.read_at(0, wal.size()))
    finally:
        wal.close()
    if found is None:
        return None
    at, data = min(found[0], end), found[1]
    records = list(walk(Bytes(data).read_at))
    if not records:
        return None
    file.write_at(at, data[: record_end(Bytes(data).read_at, records[-1])])
    file.sync()
    after = list(walk(file.read_at, at))
    return [member for member in members if member.offset < at] + after, record_end(file.read_at, after[-1])


def _with_sound_journals(log: EvalFile, members: list[Member]) -> list[Member]:
    """The members without summary journals that follow a gap in their numbers; the others are noted in the log."""
    by_number = {int(match[1]): member for member in members if (match := JOURNAL.fullmatch(member.name))}
    while len(log.journals) + 1 in by_number:
        log.journals.append(by_number[len(log.journals) + 1].offset)
    return [
        member
        for member in members
        if not (match := JOURNAL.fullmatch(member.name) or DIGEST.fullmatch(member.name))
        or 1 <= int(match[1]) <= len(log.journals)
    ]


def _rebuild_summaries(log: EvalFile, members: Iterable[Member]) -> None:
    """Journal the summaries of samples that have none: they were in the wal."""
    known = {key for number in range(len(log.journals)) for key in summaries_in(log.journal(number))}
    for member in members:
        match = SAMPLE.fullmatch(member.name)
        if match and (match[1], int(match[2])) not in known:
            found = archive.local_member(log.file.read_at, member.offset)
            if found is not None:
                content = decode(archive.unpack(member.method, found[1], member.size))
                digest = content_digest(content)
                log.add_summary(encode_summary(read_sample(content)), digest)


def recover_eval_log(log: str | Path, output: str | Path | None = None, overwrite: bool = False) -> EvalLog:
    """Make a log that a crash left behind whole again; its status stays ``started``.

    Args:
        log: its path; the wal beside it is used if it is there.
        output: where to write it; default the name with ``-recovered``.
        overwrite: recover the file itself.

    Returns:
        The header of the recovered log.

    Raises:
        LogError: there is nothing to recover, or another process writes the log.
    """
    path = place_of(log)
    target = path if overwrite else place_of(output or path.with_name(f"{path.stem}-recovered{path.suffix}"))
    try:
        file = _local(path, alone=overwrite)
        if isinstance(target, Path):
            _recover(file, target)
        else:
            _recover_into(file, target)
            if overwrite:
                file.unlink()
                wal_path(file).unlink(missing_ok=True)
                remove_running(file)
    except OSError as error:
        raise LogError(f"{path}: the log cannot be recovered: {error.strerror or error}") from error
    from proctor.log.reader import read_eval_log

    return read_eval_log(target, header_only=True)


def _local(place: Place, *, alone: bool) -> Path:
    """The local file of a log; `alone`: that nobody writes."""
    if isinstance(place, Path):
        return place
    from proctor.log.working import fetched

    path, _ = fetched(place)
    if alone:
        LocalStorage().open(path, write=True).close()
    return path


def _recover(path: Path, target: Path) -> None:
    if target != path:
        shutil.copyfile(path, target)
        if wal_path(path).exists():
            shutil.copyfile(wal_path(path), wal_path(target))
        copy_running(path, target)
    reopen(target, now=0.0).close()


def _recover_into(path: Path, target: S3Place) -> None:
    from proctor.log.working import put_file

    with tempfile.TemporaryDirectory() as folder:
        mended = Path(folder, target.name)
        _recover(path, mended)
        put_file(mended, target)


async def recover_eval_log_async(log: str | Path, output: str | Path | None = None, overwrite: bool = False) -> EvalLog:
    """`recover_eval_log` for async code."""
    return await in_thread(recover_eval_log, log, output, overwrite)
