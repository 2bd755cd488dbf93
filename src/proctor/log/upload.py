"""A log at ``s3://``: written on this machine first, uploaded whole at a bounded cadence and at its end.

The local file is the log, with its wal, its syncs and its acknowledgements; the object is a copy of it that is never
torn. What has been committed never changes but for the directory at the end, so that a copy is everything before the
directory, read from the file while it grows, and the directory itself, read once: no second file is needed, and the
writer need not wait.

Uploading the whole log again and again would cost a square of its length, so an upload waits the longer the larger the
log is: on average at most `RATE` bytes a second leave for one log. A storage that is down is tried again ever less
often, and the run goes on meanwhile; only when the log is complete and cannot be uploaded for `PATIENCE` seconds is
that the task's error. The local file stays then and is named; it goes when its upload is complete.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

import anyio
from attrs import define, field

from proctor.errors import LogError
from proctor.log import archive
from proctor.log.bucket import Bucket, NoBucket
from proctor.log.evalfile import wal_path
from proctor.log.places import Place, S3Place, working_path
from proctor.log.records import EvalLog, EvalPlan, EvalSample, EvalSampleReductions, EvalSpec
from proctor.log.storage import File, LocalStorage
from proctor.log.writer import LogWriter, open_log_writer
from proctor.runtime.threads import EngineThreads

CADENCE: Final = 10.0
"""Seconds between two uploads of a small log."""
RATE: Final = 1_000_000
"""Bytes a second that are uploaded on average: a log of 600 MB is uploaded every ten minutes."""
SHARE: Final = 4.0
"""An upload is followed by a pause of at least so many times its own length."""
AGAIN: Final = 1.0
AGAIN_MOST: Final = 60.0
"""Seconds until an upload that failed is tried again, doubling, up to so many."""
OPENING: Final = 15.0
"""Seconds for which the first upload is tried: what cannot be reached at the start is a mistake of the settings."""
PATIENCE: Final = 600.0
"""Seconds for which the last upload is tried."""
LEAVING: Final = 1.0
"""Seconds for a last upload of a log that was not finished."""
PIECE: Final = 2**20
TRIES: Final = 100
PAUSE: Final = 0.02

logger = logging.getLogger(__name__)


class Target(Protocol):
    """What uploading asks of a bucket."""

    def put(self, key: str, data: bytes | Iterator[bytes], size: int) -> str:
        """Put an object, whole or not at all."""
        ...


class Inner(Protocol):
    """The writer of the local file."""

    @property
    def acknowledgements(self) -> Any:
        """A stream of `Acknowledged`."""
        ...

    async def send(self, sample: EvalSample) -> None:
        """Take a record."""
        ...

    async def flush(self) -> None:
        """Return when all records sent so far are durable."""
        ...

    async def finish(
        self,
        log: EvalLog,
        reductions: Sequence[EvalSampleReductions] | None = None,
        *,
        without: Collection[tuple[str, int]] = (),
    ) -> None:
        """Complete the log."""
        ...


@define(eq=False)
class Upload:
    """Puts copies of one log into a bucket; its calls block.

    Attributes:
        sent: bytes of the last copy.
    """

    place: S3Place
    path: Path
    bucket: Target
    sent: int = field(default=0, init=False)
    _last: tuple[int, bytes] | None = field(default=None, init=False)

    def __call__(self) -> None:
        """Upload the log as it is now, unless the last copy is the same.

        Raises:
            OSError: the storage does not take it, or the file cannot be read.
        """
        file = LocalStorage().open(self.path, write=False)
        try:
            end, tail = snapshot(file)
            if (end, tail) == self._last:
                return
            size = end + len(tail)
            self.bucket.put(self.place.key, pieces(file, end, tail), size)
            self._last, self.sent = (end, tail), size
        finally:
            file.close()


def snapshot(file: File) -> tuple[int, bytes]:
    """Where the directory of a log stands, and everything from there on: one whole state, though it is written to.

    Raises:
        OSError: the log is damaged.
    """
    import threading

    for _ in range(TRIES):
        size = file.size()
        found = archive.find_directory(file.read_at, size)
        if found is not None:
            tail = file.read_at(found[0], size - found[0])
            if len(tail) == size - found[0] and file.size() == size and _is_whole(tail[: found[1]], found[0]):
                return found[0], tail
        threading.Event().wait(PAUSE)  # a commit is being written
    raise OSError("the local file does not end in the directory of a log")


def _is_whole(directory: bytes, end: int) -> bool:
    try:
        return all(member.offset < end for member in archive.directory(directory))
    except LogError:
        return False


def pieces(file: File, end: int, tail: bytes) -> Iterator[bytes]:
    """The bytes of a snapshot, some at a time."""
    for offset in range(0, end, PIECE):
        yield file.read_at(offset, min(PIECE, end - offset))
    yield tail


@define(eq=False)
class UploadedLog:
    """A log that is written here and uploaded; made by `uploaded`."""

    place: S3Place
    path: Path
    inner: Inner
    upload: Upload
    patience: float
    fresh: bool
    _threads: EngineThreads
    _failing: bool = field(default=False, init=False)
    _ending: bool = field(default=False, init=False)
    _busy: anyio.Lock = field(factory=anyio.Lock, init=False)
    complete: bool = field(default=False, init=False)
    """The log is finished, and its last copy is in the bucket."""

    @property
    def acknowledgements(self) -> Any:
        """A stream of `Acknowledged`: what is durable on this machine."""
        return self.inner.acknowledgements

    async def send(self, sample: EvalSample) -> None:
        """Hand a sample's record over."""
        await self.inner.send(sample)

    async def flush(self) -> None:
        """Return when every record sent so far is durable on this machine."""
        await self.inner.flush()

    async def finish(
        self,
        log: EvalLog,
        reductions: Sequence[EvalSampleReductions] | None = None,
        *,
        without: Collection[tuple[str, int]] = (),
    ) -> None:
        """Complete the log and upload it; cut short, or given up, it is in the local file, which is named.

        Raises:
            LogError: the storage has not taken it in `patience` seconds, or the local file cannot be written.
        """
        await self.inner.finish(log, reductions, without=without)
        self._ending = True
        try:
            reason = await self.try_upload(self.patience)
        except anyio.get_cancelled_exc_class():
            # Whoever cancelled has no more time; the log itself is complete, and where it is must be said.
            logger.warning("%s", self._stays("there was no time left to upload it"))
            return
        if reason is not None:
            raise LogError(self._stays(f"it could not be uploaded ({reason})"))
        self.complete = True

    async def keep(self) -> None:
        """Upload again and again, as long as the log is written."""
        # A log that is gone on in may be large: its first copy is not waited for.
        pause, failed = 0.0, 0.0
        while True:
            await anyio.sleep(failed or (max(CADENCE, pause) if self.upload.sent else 0.0))
            if self._ending:
                return
            began = anyio.current_time()
            if await self._once() is None:
                failed = 0.0
                pause = max(self.upload.sent / RATE, SHARE * (anyio.current_time() - began))
            else:
                failed = min(AGAIN_MOST, failed * 2 or AGAIN)

    async def try_upload(self, patience: float, *, refusals: bool = False) -> str | None:
        """Upload now, again and again for so many seconds; the reason when that did not help.

        Args:
            refusals: of rights and buckets are final.
        """
        until, wait = anyio.current_time() + patience, AGAIN / 2
        while (reason := await self._once(quiet=refusals)) is not None:
            final = refusals and isinstance(reason, NoBucket | PermissionError)
            if final or anyio.current_time() + wait > until:
                return reason.strerror or str(reason)
            await anyio.sleep(wait)
            wait = min(AGAIN_MOST / 4, wait * 2)
        return None

    async def _once(self, *, quiet: bool = False) -> OSError | None:
        async with self._busy:
            try:
                await self._threads.run(self.upload)
            except OSError as error:
                if not self._failing and not quiet:
                    why = error.strerror or str(error)
                    logger.warning("%s", self._stays(f"the storage does not take it now ({why}), which is tried again"))
                self._failing = not quiet
                return error
        if self._failing:
            logger.warning("%s: the log is uploaded again", self.place)
        self._failing = False
        return None

    def _stays(self, why: str) -> str:
        return f"{self.place}: {why}; the log is in {self.path}, and everything of it is kept there"


Opener = Callable[[], AbstractAsyncContextManager[Inner]]


@asynccontextmanager
async def uploaded(
    place: S3Place,
    path: Path,
    opened: Opener,
    *,
    fresh: bool = True,
    bucket: Target | None = None,
    patience: float | None = None,
) -> AsyncIterator[UploadedLog]:
    """Open a log that is written to a local file and uploaded.

    When the block is entered a new log is in the bucket, and says what is evaluated. When it is left in order, its last
    copy is; the local file is removed then.

    Args:
        path: of the local file. opened: opens its writer. fresh: nothing is in it before.
        bucket: where to put it; default that of `place`. patience: seconds for which the last upload is tried.

    Raises:
        LogError: the storage refuses the log or cannot be reached; or as `open_log_writer`.
    """
    target = bucket or Bucket.open(place.bucket)
    wait = PATIENCE if patience is None else patience
    # Threads of its own, and little patience: a storage that hangs must hold neither other logs nor an ending.
    threads = EngineThreads(2, patience=LEAVING / 2)
    made: UploadedLog | None = None
    raised: BaseException | None = None
    try:
        async with opened() as inner:
            made = UploadedLog(place, path, inner, Upload(place, path, target), wait, fresh, threads)
            if fresh:
                await _begun(made)
            async with anyio.create_task_group() as group:
                group.start_soon(made.keep)
                try:
                    yield made
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as error:  # raised below, so that the task group does not wrap it
                    raised = error
                finally:
                    group.cancel_scope.cancel()
            if raised is not None:
                raise raised
    finally:
        if made is not None:
            await _left(made)
        threads.close()


@asynccontextmanager
async def open_log(
    place: Place, /, *, spec: EvalSpec, plan: EvalPlan, buffer: int, resume: bool = False
) -> AsyncIterator[LogWriter | UploadedLog]:
    """Open a log for writing, wherever it is (`open_log_writer`, `uploaded`).

    Args:
        place: of the log. spec, plan: what is evaluated. buffer: records that may wait.
        resume: go on in a log that is there (one of a bucket: in its local file, see `proctor.log.working.fetched`).

    Raises:
        LogError: the log cannot be created, or could not be written further; the block is cancelled then.
    """
    path = working_path(place) if isinstance(place, S3Place) else place
    opened = functools.partial(open_log_writer, path, spec=spec, plan=plan, buffer=buffer, resume=resume)
    if isinstance(place, S3Place):
        async with uploaded(place, path, opened, fresh=not resume) as log:
            yield log
    else:
        async with opened() as writer:
            yield writer


async def _begun(log: UploadedLog) -> None:
    reason = await log.try_upload(OPENING, refusals=True)
    if reason is not None:
        raise LogError(f"{log.place}: the log cannot be created: {reason}")


async def _left(log: UploadedLog) -> None:
    """Nothing is written any more: the local file goes when all of it is in the bucket, or is named."""
    if log.complete:
        with suppress(OSError):
            log.path.unlink(missing_ok=True)
            wal_path(log.path).unlink(missing_ok=True)
    elif log.fresh and not log.upload.sent:  # nothing has run: what is in it is only that something would have
        log.path.unlink(missing_ok=True)
    elif not log._ending:
        reason: str | None = "there was no time left"
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + LEAVING):
            reason = await log.try_upload(0.0)
        if reason is not None:
            logger.warning("%s", log._stays(f"its end could not be uploaded ({reason})"))


__all__ = ["Upload", "UploadedLog", "open_log", "pieces", "snapshot", "uploaded"]
