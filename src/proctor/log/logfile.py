"""A log opened for reading: its members by name, header, summaries and samples, whichever program wrote it.

Only what is asked for is read: the directory at the end, then single members. A log that another process is writing
can be read too; a read that met a commit is repeated.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, Final, Self, TypeVar

from attrs import define, field

from proctor.errors import LogError
from proctor.log import archive
from proctor.log.archive import Member
from proctor.log.attached import read_sample
from proctor.log.build import build
from proctor.log.encode import decode
from proctor.log.evalfile import HEADER, PACING, REDUCTIONS, START, SUMMARIES
from proctor.log.places import Place
from proctor.log.records import EvalLog, EvalSample, EvalSampleReductions, EvalSampleSummary
from proctor.log.resolve import Resolve
from proctor.log.sample_json import sample_member
from proctor.log.storage import File, LocalStorage

T = TypeVar("T")

JOURNAL: Final = re.compile(r"_journal/summaries/(\d+)\.json")
DIGEST: Final = re.compile(r"_proctor/digests/(\d+)\.json")
SAMPLE: Final = re.compile(r"samples/(.*)_epoch_(\d+)\.json", re.DOTALL)
TRIES: Final = 5
PAUSE: Final = 0.02
"""A torn read is repeated so often, after so many seconds."""


@define(eq=False)
class Bytes:
    """A log in memory, read like a file."""

    data: bytes

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to `size` bytes."""
        return self.data[offset : offset + size]

    def size(self) -> int:
        """The length of the data."""
        return len(self.data)

    def close(self) -> None:
        """Nothing to close."""


class Torn(Exception):
    """What was read is not whole: the log is being written, or is damaged."""


@define(eq=False)
class LogFile:
    """A ``.eval`` log.

    Attributes:
        name: for messages. members: by name; of several with one name the last.
    """

    name: str
    file: File | Bytes
    members: dict[str, Member] = field(factory=dict)

    @classmethod
    def open(cls, source: Place | IO[bytes]) -> LogFile:
        """Open a log.

        Raises:
            LogError: it is not there or is no ``.eval`` log.
        """
        if not isinstance(source, Place):
            made = cls(getattr(source, "name", "log"), Bytes(source.read()))
        else:
            try:
                made = cls(str(source), _opened(source))
            except OSError as error:
                raise LogError(f"{source}: the log cannot be read: {error.strerror or error}") from error
        try:
            made.again(made._load)
        except BaseException:
            made.close()
            raise
        return made

    @classmethod
    def is_whole(cls, path: Path) -> bool:
        """Whether a log ends in a directory; what that says is not looked at."""
        file = LocalStorage().open(path, write=False)
        try:
            return archive.find_directory(file.read_at, file.size()) is not None
        finally:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    def again(self, read: Callable[[], T]) -> T:
        """Read something, and again with a fresh directory while a writer gets in the way."""
        for left in reversed(range(TRIES)):
            try:
                return read()
            except Torn as torn:
                if left == 0:
                    raise LogError(f"{self.name}: {torn}; proctor log recover mends a damaged log") from None
                threading.Event().wait(PAUSE)
                try:
                    self._load()
                except Torn:
                    continue
        raise AssertionError("unreachable")

    def _load(self) -> None:
        found = archive.find_directory(self.file.read_at, self.file.size())
        if found is None:
            raise Torn("it does not end in the directory of an .eval log")
        data = self.file.read_at(*found)
        try:
            self.members = {member.name: member for member in archive.directory(data)}
        except LogError as error:
            raise Torn(str(error)) from None

    def content(self, name: str) -> bytes:
        """The content of a member.

        Raises:
            KeyError: there is none of this name.
        """
        return self.again(lambda: self._content(self.members[name]))

    def _content(self, member: Member) -> bytes:
        head = self.file.read_at(member.offset, archive.LOCAL.size)
        if len(head) < archive.LOCAL.size or not head.startswith(b"PK\3\4"):
            raise Torn(f"its member {member.name} is not where its directory says")
        *_, name_size, extra_size = archive.LOCAL.unpack(head)
        packed = self.file.read_at(member.offset + archive.LOCAL.size + name_size + extra_size, member.packed)
        try:
            return archive.unpack(member.method, packed, member.size)
        except LogError as error:
            raise Torn(f"its member {member.name}: {error}") from None

    def json(self, name: str) -> Any:
        """The content of a member as dicts and lists."""
        try:
            return decode(self.content(name))
        except ValueError as error:
            raise LogError(f"{self.name}: its member {name} is no JSON: {error}") from error

    def header(self) -> EvalLog:
        """The header, made from the start record while there is none."""
        if HEADER in self.members:
            made = log_from(self.json(HEADER), self.name)
            if made.results is not None and REDUCTIONS in self.members:
                made.reductions = [build(item, EvalSampleReductions) for item in self.json(REDUCTIONS)]
            if PACING in self.members:
                made.pacing = self.json(PACING)
            return made
        if START not in self.members:
            raise LogError(f"{self.name}: this is no log: it has neither {HEADER} nor {START}")
        start = self.json(START)
        return log_from({**start, "status": "started"}, self.name)

    def summaries(self) -> list[EvalSampleSummary]:
        """The summaries of all samples; of several of one sample the last."""
        found = [item for items in self.summary_lists() for item in items]
        last = {(str(item.get("id")), item.get("epoch")): item for item in found}
        return [build(item, EvalSampleSummary) for item in last.values()]

    def summary_lists(self) -> Iterator[list[dict[str, Any]]]:
        """The summaries as they were written: all at once at the end, else commit by commit."""
        if SUMMARIES in self.members:
            yield self.json(SUMMARIES)
            return
        for number in sorted(int(match[1]) for name in self.members if (match := JOURNAL.fullmatch(name))):
            yield self.json(f"_journal/summaries/{number}.json")

    def sample_names(self) -> list[str]:
        """The names of the members that are samples."""
        return [name for name in self.members if SAMPLE.fullmatch(name)]

    def sample(self, name: str, resolve: Resolve, exclude: set[str] | None = None) -> EvalSample:
        """The sample of a member."""
        return sample_from(self.json(name), resolve, exclude, f"{self.name}: {name}")

    def find(self, id: int | str | None, epoch: int, uuid: str | None) -> str:
        """The member of a sample.

        Raises:
            IndexError: the log has no such sample.
        """
        if id is not None:
            name = sample_member(id, epoch)
        else:
            found = next((item for items in self.summary_lists() for item in items if item.get("uuid") == uuid), None)
            name = sample_member(found["id"], found["epoch"]) if found is not None else ""
        if name not in self.members:
            wanted = f"sample {id!r} in epoch {epoch}" if id is not None else f"sample with the uuid {uuid!r}"
            raise IndexError(f"{self.name}: the log has no {wanted}")
        return name


def _opened(place: Place) -> File:
    if isinstance(place, Path):
        return LocalStorage().open(place, write=False)
    from proctor.log.remote import open_remote

    return open_remote(place)


def log_from(value: Any, name: str) -> EvalLog:
    """A log from its JSON.

    Raises:
        LogError: it is none.
    """
    try:
        if not isinstance(value, dict):
            raise TypeError("it is no JSON object")
        results = value.get("results") or {}
        if "reductions" not in value and "sample_reductions" in results:
            value = {**value, "reductions": results["sample_reductions"]}
        made = build(value, EvalLog)
    except (TypeError, ValueError) as error:
        raise LogError(f"{name}: this is no log: {error}") from error
    made.location = name
    return made


def sample_from(value: Any, resolve: Resolve, exclude: set[str] | None, name: str) -> EvalSample:
    """A sample from its JSON, its pools and (where asked for) its attachments put back.

    Raises:
        LogError: it is none.
    """
    try:
        return read_sample(value, resolve, exclude)
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise LogError(f"{name}: this is no sample: {error}") from error
