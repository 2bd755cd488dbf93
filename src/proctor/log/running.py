"""The side journal: what samples that are still running have done so far, in files beside the log.

Each sample that has run for some seconds has a file of its own in the folder ``NAME.eval.running``. A file is made of
records like those of a log, one after the other, each with its length and checksum: first the sample, then, a few
seconds of its events each, these events with what they add to the pools and attachments. What a crash tore is the last
of them, and is left out. A file goes when its sample's record is durable, the folder at the end of the run.

`absorb` puts what is found there into a log that is recovered: as samples that were cancelled, so that a run that goes
on in the log runs them again.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from attrs import define, evolve, field

from proctor.errors import LogError
from proctor.log import archive
from proctor.log.archive import Packer
from proctor.log.attached import read_sample
from proctor.log.attachments import Attachments
from proctor.log.encode import SHAPERS, decode, encode, encode_shaped, shape
from proctor.log.evalfile import EvalFile, record_end, walk
from proctor.log.events import Event, ModelEvent
from proctor.log.logfile import Bytes
from proctor.log.pools import Pool
from proctor.log.records import EvalError, EvalSample
from proctor.log.sample_json import encode_record
from proctor.log.storage import File, LocalStorage, Storage

HEAD: Final = "sample.json"
EVENTS: Final = "events/"
GROWING: Final = ("model_usage", "role_usage", "completed_at", "total_time", "working_time", "turn_count")
"""Fields of the record that change while a sample runs, and are journalled with its events."""

AT_ONCE: Final = 50
"""Events that one call of the encoder has: it keeps the interpreter to itself."""

ENDED: Final = "CancelledError('the run ended before the sample did')"

logger = logging.getLogger(__name__)


def running_folder(path: Path) -> Path:
    """The folder beside a log with the journals of its running samples."""
    return path.with_name(path.name + ".running")


def remove_running(path: Path) -> None:
    """Remove the journals beside a log, if there are any."""
    shutil.rmtree(running_folder(path), ignore_errors=True)


@define(eq=False)
class SampleJournal:
    """The journal of one running sample; its methods block, and one thread at a time may call them.

    Attributes:
        path: of its file, which is made with the first events. images: whether data of images is kept.
        seen: how many events were looked at. open: those of them that are not complete.
    """

    path: Path
    images: bool = True
    storage: Storage = field(factory=LocalStorage)
    seen: int = 0
    open: list[Event] = field(factory=list)
    _packer: Packer = field(factory=Packer)
    _pool: Pool = field(factory=Pool)
    _written: tuple[int, int] = (0, 0)
    """How many messages and calls of the pool are in the file."""
    _attached: set[str] = field(factory=set)
    _size: int = 0
    _number: int = 0

    def append(self, record: EvalSample, events: list[Event]) -> None:
        """Add events to the file.

        Args:
            record: the sample as far as it is; its messages and events are not looked at.
            events: all of the sample's, of which those not in the file are added.

        Raises:
            OSError: the file cannot be written.
        """
        done = [event for event in self.open if event.pending is None]
        news = events[self.seen :]
        if not done and not news:
            return
        there = self.storage.exists(self.path)
        file = self.storage.open(self.path, write=True) if there else self.storage.create(self.path)
        try:
            if not self._size:
                self._write(file, HEAD, encode(evolve(record, events=[], messages=[], events_data=None)))
            if done:
                self._add(file, record, done)
                self.open = [event for event in self.open if not any(event is each for each in done)]
            for start in range(0, len(news), AT_ONCE):
                some = news[start : start + AT_ONCE]
                still = [event for event in some if event.pending is not None]
                self._add(file, record, some)
                self.seen += len(some)
                self.open += still
        finally:
            file.close()

    def _add(self, file: File, record: EvalSample, events: list[Event]) -> None:
        self._write(file, f"{EVENTS}{self._number}.json", self._encoded(record, events))
        self._number += 1
        self._written = len(self._pool.data.messages), len(self._pool.data.calls)

    def _write(self, file: File, name: str, content: bytes) -> None:
        data, _ = self._packer.record(name, (content,), self._size)
        file.write_at(self._size, data)
        self._size += len(data)

    def _encoded(self, record: EvalSample, events: list[Event]) -> bytes:
        pool, attachments = self._pool, Attachments(self.images)
        shaped = [pool.shape(e) if isinstance(e, ModelEvent) else SHAPERS[e.__class__](e) for e in events]
        for event in shaped:
            attachments.event(event)
        messages = shape(pool.data.messages[self._written[0] :])
        attachments.pooled(messages)
        calls = [attachments.value(call) for call in pool.data.calls[self._written[1] :]]
        texts = {key: text for key, text in attachments.texts.items() if key not in self._attached}
        self._attached.update(texts)
        fields = {name: shape(value) for name in GROWING if (value := getattr(record, name)) is not None}
        return encode_shaped(
            {"events": shaped, "messages": messages, "calls": calls, "attachments": texts, "fields": fields}
        )

    def remove(self) -> None:
        """Remove the file."""
        if self._size:
            self._size = 0
            self.storage.remove(self.path)


def read_journal(data: bytes) -> EvalSample | None:
    """The sample of a journal, as a record of one that was cancelled; None when not even its head is whole."""
    record: dict[str, Any] | None = None
    events: dict[str, Any] = {}
    pools: dict[str, list[Any]] = {"messages": [], "calls": []}
    attachments: dict[str, str] = {}
    for name, content in _contents(data):
        if name == HEAD:
            record = content
            attachments.update(content.get("attachments") or {})
            continue
        if record is None:
            return None
        for event in content["events"]:
            events[str(event.get("uuid") or len(events))] = event  # one that has ended since takes its own place
        pools["messages"] += content["messages"]
        pools["calls"] += content["calls"]
        attachments |= content["attachments"]
        record |= content["fields"]
    if record is None:
        return None
    record |= {"events": list(events.values()), "events_data": pools, "attachments": attachments}
    return _cancelled(read_sample(record, "full"))


def _contents(data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The whole records of a journal."""
    read = Bytes(data).read_at
    for member in walk(read):
        end = record_end(read, member)
        packed = data[end - member.packed : end]
        yield member.name, decode(archive.unpack(member.method, packed, member.size))


def _cancelled(sample: EvalSample) -> EvalSample:
    """A sample as a run that ended in order would have left it."""
    last = next((event for event in reversed(sample.events) if isinstance(event, ModelEvent)), None)
    if last is not None:
        sample.messages = list(last.input)
        if last.output.choices:
            sample.messages.append(last.output.choices[0].message)
            sample.output = last.output
    for event in sample.events:
        event.pending = None
    sample.error = EvalError(message=ENDED, traceback=f"{ENDED}\n", traceback_ansi=f"{ENDED}\n")
    return sample


def journals_beside(path: Path) -> list[EvalSample]:
    """The samples that were running when the run of a log was killed; of several tries at one the last."""
    found: dict[tuple[str, int], EvalSample] = {}
    folder = running_folder(path)
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        try:
            sample = read_journal(file.read_bytes())
        except (OSError, LogError, ValueError, TypeError, KeyError, AttributeError) as error:
            logger.warning("%s: this journal of a running sample cannot be read: %s", file, error)
            continue
        if sample is not None:
            key = (str(sample.id), sample.epoch)
            if key not in found or (found[key].started_at or "") <= (sample.started_at or ""):
                found[key] = sample
    return list(found.values())


def absorb(log: EvalFile, beside: Path, known: set[str]) -> int:
    """Add the samples that were running to a log that is being recovered; the caller commits.

    Args:
        log: it is written to. beside: the log whose journals these are. known: names of members that it has.

    Returns:
        How many there were.
    """
    count = 0
    for sample in journals_beside(beside):
        record = encode_record(sample)
        if record.name not in known:
            log.add_member(record.name, record.parts)
            log.add_summary(record.summary, record.digest)
            count += 1
    return count


def copy_running(path: Path, target: Path) -> None:
    """Copy the journals beside a log to another; a sample that ends meanwhile takes its own with it."""
    source, folder = running_folder(path), running_folder(target)
    if source.is_dir():
        folder.mkdir(exist_ok=True)
        for file in source.iterdir():
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(file, folder / file.name)
