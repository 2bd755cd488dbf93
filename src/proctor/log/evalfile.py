"""The file of a log while it is written: append-only, whole after a crash at any byte, readable while it grows.

The file always ends in a directory of what is in it, so that any reader can open it at any time. New records overwrite
that directory and are followed by a new one. As the directory grows with the log, that cannot happen for every sample:
records are made durable first in a small file beside the log, the *wal*, which says at which offset of the log they
belong, so that replaying it any number of times gives the same bytes. A *commit* copies them into the log and empties
the wal. It is due when the records waiting are as long as the directory (or 64 KiB), or after a time that grows with
the directory, so what is written in all stays near three times the records, however long the run.

What is in memory does not grow with the run: records that wait are in the wal, their summaries are journalled whenever
there are enough of them, and a long directory or member is in a temporary file.

If a commit is torn, the log ends in no directory; the wal and the records before are sound, and recovery walks them.
If it fails (the disk is full), the old directory is written back: it needs no new room.

All methods block, and one thread at a time may call them.
"""

from __future__ import annotations

import contextlib
import itertools
import struct
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from attrs import define, field

from proctor.errors import LogError
from proctor.log import archive, journals
from proctor.log.archive import Member, Packer
from proctor.log.encode import encode
from proctor.log.sample_json import Record, sample_member
from proctor.log.storage import File, LocalStorage, Storage
from proctor.runtime.spill import Spill

START: Final = "_journal/start.json"
HEADER: Final = "header.json"
SUMMARIES: Final = "summaries.json"
REDUCTIONS: Final = "reductions.json"
JOURNAL: Final = "_journal/summaries/"
DIGESTS: Final = "_proctor/digests/"
PACING: Final = "_proctor/pacing.json"
FINAL: Final = frozenset({HEADER, SUMMARIES, REDUCTIONS})

WAL: Final = struct.Struct("<8sQL")
WAL_MAGIC: Final = b"EVALWAL1"

SYNC_BYTES: Final = 1_000_000
"""Records waiting for a sync are synced at once when they are longer than this."""

SUMMARY_BYTES: Final = 1_000_000
"""Summaries are journalled at once when they are longer than this."""

HELD: Final = 1_000_000
"""Bytes of a directory, or of a member that is made piece by piece, that are in memory."""

WRITTEN: Final = 1_000_000
"""Bytes that one write has at most; more are copied in several."""

COMMIT_BYTES: Final = 65_536
COMMIT_SECONDS: Final = 1.0
COMMIT_RATE: Final = 200_000
"""A commit is due when more bytes wait than this or the directory has, or after so many seconds, or after the time
it takes to write the directory at so many bytes a second."""


def wal_path(path: Path) -> Path:
    """The file that holds records not yet in the log."""
    return path.with_name(path.name + ".wal")


@define(eq=False)
class EvalFile:
    """A log's file, open for writing; made by `create` or `proctor.log.recover.reopen`.

    Attributes:
        directory: the entries of all members, those that wait for a commit too; count: how many.
        end: where the records in the log end, and its directory begins.
        journals: the offsets of the summary journals 1, 2, 3 …
    """

    path: Path
    storage: Storage
    file: File
    packer: Packer = field(factory=Packer)
    directory: Spill = field(factory=lambda: Spill(HELD))
    count: int = 0
    end: int = 0
    journals: list[int] = field(factory=list)
    replaced: bool = False
    _wal: File | None = None
    _wal_size: int = 0
    _waiting: list[bytes | Spill] = field(factory=list)
    """What waits for a commit and is not in the wal."""
    _waiting_size: int = 0
    """Bytes that wait for a commit, in the wal or not."""
    _unsynced_size: int = 0
    _unacknowledged: list[tuple[int | str, int]] = field(factory=list)
    _summaries: list[bytes] = field(factory=list)
    _digests: list[str | None] = field(factory=list)
    _summaries_size: int = 0
    _listed: tuple[int, int] = (0, 0)
    _old: bytes = b""
    _committed_at: float = 0.0

    @classmethod
    def create(cls, path: Path, start: bytes, *, now: float, storage: Storage | None = None) -> EvalFile:
        """Create a log that holds its start record, durably.

        Args:
            path: must not exist. start: the JSON of the start record. now: monotonic seconds.

        Raises:
            OSError: it cannot be created.
            LogError: another process writes it.
        """
        storage = storage or LocalStorage()
        made = cls(path, storage, storage.create(path))
        try:
            made.add_member(START, (start,))
            made.commit(now)
            storage.sync_folder(path)
        except BaseException:
            made.close()
            storage.remove(path)
            raise
        return made

    @property
    def idle(self) -> bool:
        """Whether everything is in the log, and durable."""
        return not self._waiting_size and not self._summaries

    @property
    def unsynced(self) -> int:
        """Bytes of records that are not durable yet."""
        return self._unsynced_size

    def add_member(self, name: str, parts: Iterable[bytes]) -> None:
        """Append a member; it becomes durable with the next sync."""
        record, entry = self.packer.record(name, parts, self.end + self._waiting_size)
        self._wait(record)
        self._list(entry)

    def _add_streamed(self, name: str, parts: Iterable[bytes]) -> None:
        """Append a member that may be long; only a commit makes it durable."""
        packed = Spill(HELD)
        head, entry = self.packer.stream(name, parts, self.end + self._waiting_size, packed)
        self._wait(head)
        self._wait(packed)
        self._list(entry)

    def _wait(self, data: bytes | Spill) -> None:
        self._waiting.append(data)
        self._waiting_size += len(data)
        self._unsynced_size += len(data)

    def _list(self, entry: bytes) -> None:
        try:
            self.directory.append(entry)
        except OSError:  # no room for temporary files is no reason to end a log
            self.directory.budget = None
        self.count += 1

    def add(self, record: Record) -> None:
        """Append a sample's record; a later one of the same name replaces it for readers."""
        self.add_member(record.name, record.parts)
        self.add_summary(record.summary, record.digest)
        self._unacknowledged.append(record.key)

    def add_summary(self, summary: bytes, digest: str | None = None) -> None:
        """Append a sample's summary; it is journalled with the next commit, or when there are many.

        Args:
            digest: of the dataset's sample, kept beside it.
        """
        self._summaries.append(summary)
        self._digests.append(digest)
        self._summaries_size += len(summary)
        if self._summaries_size > SUMMARY_BYTES:
            self._add_summaries()

    def sync_due(self) -> bool:
        """Whether enough waits that it must be synced now, whatever the time."""
        return self._unsynced_size >= SYNC_BYTES

    def commit_at(self) -> float | None:
        """When the next commit is due, in monotonic seconds; None when nothing waits for one."""
        if self.idle:
            return None
        if self._waiting_size >= max(COMMIT_BYTES, len(self.directory)):
            return self._committed_at
        return self._committed_at + max(COMMIT_SECONDS, len(self.directory) / COMMIT_RATE)

    def sync(self, now: float) -> list[tuple[int | str, int]]:
        """Make what was added durable.

        Returns:
            The ids and epochs of the samples that are durable since.
        """
        due = self.commit_at()
        if due is not None and due <= now:
            self.commit(now)
        elif self._waiting:
            self._write_wal()
        done, self._unacknowledged = self._unacknowledged, []
        return done

    def commit(self, now: float) -> None:
        """Write what waits into the log, with a new directory, durably; the wal is empty afterwards."""
        self._add_summaries()
        end = self.end + self._waiting_size
        end_record = archive.end_record(self.count, len(self.directory), end)
        self._overwrite(itertools.chain(self._waiting_pieces(), self.directory.pieces(), [end_record]))
        self.end = end
        self._listed, self._old, self._committed_at = (len(self.directory), self.count), b"", now
        self._waiting, self._waiting_size, self._unsynced_size = [], 0, 0
        if self._wal is not None and self._wal_size:
            self._wal.truncate(0)
            self._wal_size = 0

    def finish(
        self,
        header: bytes,
        reductions: Iterable[bytes] | None,
        now: float,
        *,
        without: Collection[tuple[str, int]] = (),
    ) -> list[tuple[int | str, int]]:
        """Write what makes the log complete, and remove the wal.

        Args:
            header: its JSON. reductions: theirs, in parts.
            without: samples (the text of an id, an epoch) that are left out from now on.

        Returns:
            The ids and epochs of the samples that are durable since the last sync.
        """
        self.commit(now)
        count, left_out = len(self.journals), frozenset(without)
        summaries = journals.joined(count, self.journal, last_only=self.replaced, without=left_out)
        self._add_streamed(SUMMARIES, summaries)
        if reductions is not None:
            self._add_streamed(REDUCTIONS, reductions)
        self.add_member(HEADER, (header,))
        if self.replaced:
            self._keep_last({sample_member(*key) for key in left_out})
        self.commit(now)
        self._drop_wal()
        done, self._unacknowledged = self._unacknowledged, []
        return done

    def close(self) -> None:
        """Close the files; the wal goes when it is empty."""
        if self._wal is not None:
            if self._wal_size == 0:
                self._drop_wal()
            else:
                self._wal.close()
                self._wal = None
        self.file.close()

    def _add_summaries(self) -> None:
        """Journal the summaries of samples since the last time: in members numbered without a gap."""
        if self._summaries:
            if any(self._digests):
                self.add_member(f"{DIGESTS}{len(self.journals) + 1}.json", (encode(self._digests),))
            offset = self.end + self._waiting_size
            content = b"[" + b",".join(self._summaries) + b"]"
            self.add_member(f"{JOURNAL}{len(self.journals) + 1}.json", (content,))
            self.journals.append(offset)
            self._summaries, self._digests, self._summaries_size = [], [], 0

    def _waiting_pieces(self) -> Iterator[bytes]:
        """What waits for a commit: first what is in the wal, then the rest."""
        if self._wal is not None:
            for offset in range(WAL.size, self._wal_size, WRITTEN):
                yield self._wal.read_at(offset, min(WRITTEN, self._wal_size - offset))
        for data in self._waiting:
            yield from data.pieces() if isinstance(data, Spill) else (data,)

    def _overwrite(self, pieces: Iterable[bytes]) -> None:
        """Write over the directory, to the end of the file; when that fails, put the directory back."""
        before = self.file.size()
        try:
            end = self._write(pieces)
            if end < before:
                self.file.truncate(end)
            self.file.sync()
        except OSError:
            self._restore()
            raise

    def _write(self, pieces: Iterable[bytes]) -> int:
        """Write from the end of the records on; returns where that ended."""
        offset, some, size = self.end, list[bytes](), 0
        for piece in pieces:
            if some and size + len(piece) > WRITTEN:
                self.file.write_at(offset, *some)
                offset, some, size = offset + size, [], 0
            some.append(piece)
            size += len(piece)
        self.file.write_at(offset, *some)
        return offset + size

    def _restore(self) -> None:
        """Put back the directory of what is in the log."""
        size, count = self._listed
        if not count:
            return
        old = [self._old] if self._old else self.directory.pieces(0, size)
        end_record = archive.end_record(count, len(self._old) or size, self.end)
        with contextlib.suppress(OSError):  # if this fails too, recovery walks the records: they are whole
            self.file.truncate(self._write(itertools.chain(old, [end_record])))
            self.file.sync()

    def _write_wal(self) -> None:
        """Append what is not synced to the wal, and sync that."""
        data = b"".join(
            piece for data in self._waiting for piece in ([data] if isinstance(data, bytes) else data.pieces())
        )
        if self._wal is None:
            path = wal_path(self.path)
            self.storage.remove(path)
            self._wal = self.storage.create(path)
            self.storage.sync_folder(path)
        if self._wal_size == 0:
            data = wal_head(self.end) + data
        self._wal.write_at(self._wal_size, data)
        self._wal.sync()
        self._wal_size += len(data)
        self._waiting, self._unsynced_size = [], 0

    def _drop_wal(self) -> None:
        if self._wal is not None:
            self._wal.close()
            self._wal = None
        self.storage.remove(wal_path(self.path))

    def journal(self, number: int) -> bytes:
        """The content of a journal of summaries, counted from 0."""
        found = archive.local_member(self.file.read_at, self.journals[number])
        if found is None:
            raise LogError(f"{self.path}: the summaries {number + 1} cannot be read back")
        member, content = found
        return archive.unpack(member.method, content, member.size)

    def _keep_last(self, without: Collection[str]) -> None:
        """Leave in the directory only the last entry of each name, and none of some names."""
        listed = archive.directory(b"".join(self.directory.pieces()))
        last = {member.name: member for member in listed}
        self.set_directory([member for name, member in last.items() if name not in without])

    def set_directory(self, members: Any) -> None:
        """Make the directory list these members, in this order."""
        self._old = b"".join(self.directory.pieces(0, self._listed[0]))
        self.directory, self.count = Spill(HELD), 0
        for member in members:
            self._list(member.entry)


def wal_head(offset: int) -> bytes:
    """The head of a wal whose records belong at an offset of the log."""
    return WAL.pack(WAL_MAGIC, offset, zlib.crc32(struct.pack("<Q", offset)))


def read_wal(data: bytes) -> tuple[int, bytes] | None:
    """The offset in the log that a wal's records belong at, and the records; None for a torn head."""
    if len(data) < WAL.size:
        return None
    magic, offset, crc = WAL.unpack_from(data)
    if magic != WAL_MAGIC or crc != zlib.crc32(struct.pack("<Q", offset)):
        return None
    return offset, data[WAL.size :]


def walk(read: Callable[[int, int], bytes], offset: int = 0) -> Iterator[Member]:
    """The members whose sound records follow each other from an offset on; stops at the first that is not."""
    while True:
        found = archive.local_member(read, offset)
        if found is None:
            return
        member, _ = found
        yield member
        offset = record_end(read, member)


def record_end(read: Callable[[int, int], bytes], member: Member) -> int:
    """Where a member's local record ends."""
    head = read(member.offset, archive.LOCAL.size)
    *_, name_size, extra_size = archive.LOCAL.unpack(head)
    return int(member.offset + archive.LOCAL.size + name_size + extra_size + member.packed)
