"""Journalling samples that run for long, while they run.

Nothing is sent to this task: every few seconds it looks which samples have run for longer than that, and what they have
that is not in their journals; all of it is encoded and written in one call in a thread. So a sample never waits for it,
what it holds is bounded by what the samples hold, and one that ends within the first seconds costs two entries of a
table. When nothing is new it sleeps until something is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import anyio
from attrs import define, field

from proctor.log.events import Event
from proctor.log.running import SampleJournal, remove_running, running_folder
from proctor.log.samples import EvalSample
from proctor.log.threads import RunInThread
from proctor.log.transcript import Transcript

FIRST: Final = 5.0
"""Seconds that a sample has run for before it is journalled."""

EVERY: Final = 5.0
"""Seconds between two looks at the running samples."""

Key = tuple[int | str, int]
Snapshot = Callable[[], EvalSample]

logger = logging.getLogger(__name__)


@define(eq=False)
class Watched:
    """A running sample."""

    key: Key
    began: float
    transcript: Transcript
    snapshot: Snapshot
    journal: SampleJournal | None = None

    def has_news(self) -> bool:
        """Whether something of it is not in its journal."""
        journal = self.journal
        if journal is None:
            return bool(self.transcript.events)
        return len(self.transcript.events) > journal.seen or any(event.pending is None for event in journal.open)


@define(eq=False)
class RunningSamples:
    """Journals the running samples of one log.

    Attributes:
        path: of the log. run: runs blocking calls. images: whether data of images is kept.
    """

    path: Path
    run: RunInThread
    images: bool = True
    _running: dict[str, Watched] = field(factory=dict, init=False)
    _ended: dict[Key, list[SampleJournal]] = field(factory=dict, init=False)
    _durable: list[SampleJournal] = field(factory=list, init=False)
    _wake: anyio.Event | None = field(default=None, init=False)
    _scope: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)
    _failed: bool = field(default=False, init=False)
    _made: bool = field(default=False, init=False)

    def began(self, uuid: str, key: Key, transcript: Transcript, snapshot: Snapshot) -> None:
        """A try at a sample begins; `snapshot` gives its record as far as it is."""
        self._running[uuid] = Watched(key, anyio.current_time(), transcript, snapshot)
        if self._wake is not None:
            self._wake.set()

    def ended(self, uuid: str) -> None:
        """The try is over; its journal stays until `durable`."""
        watched = self._running.pop(uuid, None)
        if watched is not None and watched.journal is not None:
            self._ended.setdefault(watched.key, []).append(watched.journal)

    def durable(self, keys: Iterable[Key]) -> None:
        """The records of samples are in the log."""
        if self._ended:
            for key in keys:
                self._durable += self._ended.pop(key, [])
            if self._durable and self._wake is not None:
                self._wake.set()

    async def work(self) -> None:
        """Journal until `close`."""
        with self._scope:
            while not self._failed:
                if not self._running and not self._durable:
                    await self._sleep()
                await anyio.sleep(EVERY)
                if not await self._look():
                    await self._sleep()

    async def close(self) -> None:
        """The log is complete: nothing of the journals is needed any more."""
        self._scope.cancel()
        if self._made:
            await self.run(remove_running, self.path)

    async def _look(self) -> bool:
        """Journal what is new; False when there was nothing, and nothing to wait for."""
        now = anyio.current_time()
        old = [uuid for uuid, watched in self._running.items() if now - watched.began >= FIRST]
        todo = [(self._journal_of(uuid), self._running[uuid]) for uuid in old if self._running[uuid].has_news()]
        gone, self._durable = self._durable, []
        if todo or gone:
            writes = [(journal, each.snapshot(), list(each.transcript.events)) for journal, each in todo]
            self._made = True
            try:
                await self.run(_write, writes, gone)
            except OSError as error:
                self._failed = True
                logger.warning(
                    "%s: running samples are no longer journalled, so that a crash would lose them: %s",
                    running_folder(self.path), error,
                )  # fmt: skip
        return bool(todo or gone or len(old) < len(self._running))

    def _journal_of(self, uuid: str) -> SampleJournal:
        watched = self._running[uuid]
        if watched.journal is None:
            watched.journal = SampleJournal(running_folder(self.path) / f"{uuid}.events", self.images)
        return watched.journal

    async def _sleep(self) -> None:
        """Wait until a sample begins, has an event, or has left a journal."""
        self._wake = wake = anyio.Event()

        def notice(event: Event) -> None:
            wake.set()

        listening = [watched.transcript for watched in self._running.values()]
        for transcript in listening:
            transcript.listeners.append(notice)
        try:
            await wake.wait()
        finally:
            self._wake = None
            for transcript in listening:
                transcript.listeners.remove(notice)


def _write(writes: list[tuple[SampleJournal, EvalSample, list[Event]]], gone: list[SampleJournal]) -> None:
    """In a thread: add to journals, and remove those of samples that are in the log."""
    for journal, record, events in writes:
        try:
            journal.append(record, events)
        except (RuntimeError, TypeError, ValueError) as error:  # a value that was changed meanwhile: the next time
            logger.debug("%s: not journalled this time: %r", journal.path, error)
    for journal in gone:
        journal.remove()
