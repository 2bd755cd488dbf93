"""Writing a log from a running evaluation: a bounded channel in front, acknowledgements behind.

Records wait in a bounded channel (a full one holds its sender), are encoded, compressed and appended in a thread, and
are acknowledged together when they are durable. A sync costs up to 12 ms, so there is one every 100 ms under load; the
first record after a pause is synced at once. While the next sync is not due, records are left in the channel, so that
the thread is entered a few times a second rather than once a record.

The task that does this is shielded: an outer cancellation ends the samples, whose records must still be written. It
ends with the block of `open_log_writer`, or when the file cannot be written; then the block is cancelled.
"""

from __future__ import annotations

import functools
import math
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from attrs import define, field, frozen

from proctor.errors import LogError
from proctor.log.checks import problem
from proctor.log.encode import encode
from proctor.log.evalfile import PACING, EvalFile
from proctor.log.header import encode_header
from proctor.log.naming import log_file_name
from proctor.log.records import EvalLog, EvalPlan, EvalSample, EvalSampleReductions, EvalSpec, LogStart
from proctor.log.recover import reopen
from proctor.log.reductions import encode_reductions
from proctor.log.sample_json import encode_record
from proctor.log.storage import Storage
from proctor.log.threads import RunInThread, default_threads

GROUP: Final = 0.1
"""Seconds between syncs under load."""

CLOSING: Final = 30.0
"""Seconds that the end of the block waits for the disk."""

Key = tuple[int | str, int]


@frozen
class Acknowledged:
    """Records that are durable.

    Attributes:
        samples: their ids and epochs.
    """

    samples: tuple[Key, ...]


@define(eq=False)
class LogWriter:
    """A log that is being written; made by `open_log_writer`.

    Attributes:
        path: of the log. acknowledgements: a stream of `Acknowledged`, which ends when the log is finished or fails.
        failure: why it can no longer be written, None while it can.
    """

    path: Path
    acknowledgements: MemoryObjectReceiveStream[Acknowledged]
    failure: Exception | None = field(default=None, init=False)
    _file: EvalFile
    _run: RunInThread
    _send: MemoryObjectSendStream[EvalSample]
    _receive: MemoryObjectReceiveStream[EvalSample]
    _acknowledge: MemoryObjectSendStream[Acknowledged]
    _batch: int
    _images: bool = True
    _wake: anyio.Event = field(factory=anyio.Event, init=False)
    _ended: anyio.Event = field(factory=anyio.Event, init=False)
    _flushed: anyio.Event | None = field(default=None, init=False)
    _patient: bool = field(default=False, init=False)
    _closing: bool = field(default=False, init=False)
    _finished: bool = field(default=False, init=False)
    _sent: int = field(default=0, init=False)
    _taken: int = field(default=0, init=False)
    _synced_at: float = field(default=-math.inf, init=False)
    _dirty: bool = field(default=False, init=False)

    async def send(self, sample: EvalSample) -> None:
        """Hand a sample's record over; waits while the channel is full.

        The sample belongs to the log from then on and must not be changed.

        Raises:
            LogError: the log can no longer be written, or is finished.
        """
        self._check()
        try:
            self._send.send_nowait(sample)
        except anyio.WouldBlock:
            self._wake.set()
            try:
                await self._send.send(sample)
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                self._check()
                raise
        self._sent += 1
        if not self._patient or self._sent - self._taken >= self._batch:
            self._wake.set()

    async def flush(self) -> None:
        """Return when every record sent so far is durable and acknowledged.

        Raises:
            LogError: the log can no longer be written.
        """
        self._check()
        if self._flushed is None:
            self._flushed = anyio.Event()
        flushed = self._flushed
        self._wake.set()
        await flushed.wait()
        self._check()

    async def finish(
        self,
        log: EvalLog,
        reductions: Sequence[EvalSampleReductions] | None = None,
        *,
        without: Collection[tuple[str, int]] = (),
    ) -> None:
        """Write what is still waiting, the summaries and the header; the log is complete and durable then.

        Args:
            log: status, results, statistics and error; its samples are not looked at.
            reductions: default those of `log`.
            without: ids (as text) and epochs of samples that are left out.

        Raises:
            LogError: the log can no longer be written; what was acknowledged is in it all the same.
        """
        self._check()
        await self._stop()
        self._check()
        reduced = reductions if reductions is not None else log.reductions
        done: list[Key] = []
        try:
            now = anyio.current_time()
            with anyio.CancelScope(shield=True):  # as long as the thread: a half-finished call cannot be undone
                done = await self._run(_finish, self._file, log, reduced, without, now)
        except Exception as error:
            raise self._fail(error) from error
        self._finished = True
        self._told(done)
        self._acknowledge.close()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._finished:
            raise LogError(f"{self.path}: the log is finished; nothing can be added to it")

    async def _stop(self) -> None:
        """Let the task that writes empty the channel and end."""
        self._closing = True
        self._send.close()
        self._wake.set()
        await self._ended.wait()

    async def _close(self) -> None:
        """At the end of the block: what was sent is in the file, whether the log was finished or not."""
        if not self._ended.is_set():
            await self._stop()
        now = anyio.current_time()
        try:
            await self._run(_close, self._file, now, self.failure is None and not self._finished)
        except Exception as error:
            self._fail(error)
        self._acknowledge.close()

    async def _work(self, cancel: Callable[[], object]) -> None:
        """The task that writes."""
        with anyio.CancelScope(shield=True):
            try:
                while await self._step():
                    pass
            except Exception as error:
                self._fail(error)
                cancel()
            finally:
                self._receive.close()
                self._ended.set()
                self._tell_flushed()

    async def _step(self) -> bool:
        """Write, sync or wait, whichever is due; False when all is done."""
        now = anyio.current_time()
        waiting = self._receive.statistics()
        queued = waiting.current_buffer_used + waiting.tasks_waiting_send
        hurry = self._closing or self._flushed is not None
        due = hurry or now >= self._synced_at + GROUP
        if queued and (due or queued >= self._batch):
            await self._store(self._drain(), now, sync=due)
        elif (self._dirty and due) or now >= self._commit_at():
            await self._store([], now, sync=True)
        elif hurry and not queued:
            self._tell_flushed()
            return not self._closing
        else:
            await self._sleep(queued > 0)
        return True

    async def _sleep(self, queued: bool) -> None:
        self._patient = queued or self._dirty
        until = self._synced_at + GROUP if self._patient else self._commit_at()
        if not self._wake.is_set():
            with anyio.CancelScope(deadline=until):
                await self._wake.wait()
        self._patient, self._wake = False, anyio.Event()

    def _drain(self) -> list[EvalSample]:
        batch: list[EvalSample] = []
        while len(batch) < self._batch * 2:
            try:
                batch.append(self._receive.receive_nowait())
            except (anyio.WouldBlock, anyio.EndOfStream):
                break
        self._taken += len(batch)
        return batch

    async def _store(self, batch: list[EvalSample], now: float, *, sync: bool) -> None:
        done, synced = await self._run(_store, self._file, batch, now, sync, self._images)
        self._dirty = not synced
        if synced:
            self._synced_at = anyio.current_time()
        self._told(done)

    def _commit_at(self) -> float:
        at = self._file.commit_at()
        return math.inf if at is None else at

    def _told(self, done: list[Key]) -> None:
        if done:
            with suppress(anyio.BrokenResourceError):  # nobody listens any more
                self._acknowledge.send_nowait(Acknowledged(tuple(done)))

    def _tell_flushed(self) -> None:
        if self._flushed is not None:
            self._flushed.set()
            self._flushed = None

    def _fail(self, error: Exception) -> Exception:
        if self.failure is None:
            self.failure = _explained(self.path, error)
        self._acknowledge.close()
        return self.failure


def _explained(path: Path, error: Exception) -> Exception:
    if not isinstance(error, OSError):
        return error
    made = LogError(
        f"{path}: the log cannot be written: {error.strerror or error}; every record acknowledged so far is kept, "
        "and proctor log recover puts the log together"
    )
    made.__cause__ = error
    return made


def _store(
    file: EvalFile, batch: list[EvalSample], now: float, sync: bool, images: bool = True
) -> tuple[list[Key], bool]:
    """In the thread: append records; sync when it is time, or when enough wait."""
    done: list[Key] = []
    for sample in batch:
        file.add(encode_record(sample, images=images))
        if file.sync_due():
            done += file.sync(now)
            sync = sync or file.unsynced > 0
    if sync:
        done += file.sync(now)
    return done, sync or file.unsynced == 0


def _finish(
    file: EvalFile,
    log: EvalLog,
    reductions: Sequence[EvalSampleReductions] | None,
    without: Collection[tuple[str, int]],
    now: float,
) -> list[Key]:
    encoded = encode_reductions(reductions) if reductions else None
    if log.pacing:
        file.add_member(PACING, (encode(log.pacing),))
    return file.finish(encode_header(log), encoded, now, without=without)


def _close(file: EvalFile, now: float, commit: bool) -> None:
    try:
        if commit and not file.idle:
            file.commit(now)
    finally:
        file.close()


@asynccontextmanager
async def open_log_writer(
    path: Path,
    *,
    spec: EvalSpec,
    plan: EvalPlan,
    buffer: int = 64,
    run_in_thread: RunInThread | None = None,
    storage: Storage | None = None,
    resume: bool = False,
) -> AsyncIterator[LogWriter]:
    """Create a log and write to it.

    When the block is entered the log is on the disk and says what is evaluated. When it is left, everything sent is in
    it; a log that was not finished has the status ``started``.

    Args:
        path: of the log, which must not exist (unless it is resumed). spec, plan: what is evaluated.
        buffer: records that may wait; a sender waits when there are more.
        run_in_thread: runs blocking calls; default the engine threads of the current runtime.
        storage: where the file is; default this machine's disks.
        resume: go on in the log at `path`, recovered: its status is ``started`` again.

    Raises:
        LogError: the log cannot be created, or could not be written further; the block is cancelled then.
    """
    run = run_in_thread or default_threads()
    start = encode(LogStart(eval=spec, plan=plan))
    wrong = problem(start, LogStart)
    if wrong is not None:
        raise LogError(f"{path}: readers of the log would refuse its first record: {wrong}")
    now = anyio.current_time()
    opening = functools.partial(reopen, path, start=start)
    make = opening if resume else functools.partial(EvalFile.create, path, start)
    try:
        file = await run(functools.partial(make, now=now, storage=storage))
    except OSError as error:
        done = "opened again" if resume else "created"
        raise LogError(f"{path}: the log cannot be {done}: {error.strerror or error}") from error
    async with _written_by(file, run, buffer, spec.config.log_images is not False) as writer:
        yield writer


@asynccontextmanager
async def _written_by(file: EvalFile, run: RunInThread, buffer: int, images: bool = True) -> AsyncIterator[LogWriter]:
    send, receive = anyio.create_memory_object_stream[EvalSample](buffer)
    acknowledge, acknowledgements = anyio.create_memory_object_stream[Acknowledged](math.inf)
    writer = LogWriter(file.path, acknowledgements, file, run, send, receive, acknowledge, max(1, buffer // 2), images)
    raised: BaseException | None = None
    with send, receive, acknowledge, acknowledgements:
        async with anyio.create_task_group() as group:
            group.start_soon(writer._work, group.cancel_scope.cancel)
            try:
                yield writer
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # raised below, so that the task group does not wrap it
                raised = error
            finally:
                with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSING):
                    await writer._close()
    if raised is not None:
        raise raised
    if writer.failure is not None:
        raise writer.failure


__all__ = ["Acknowledged", "LogWriter", "log_file_name", "open_log_writer"]
