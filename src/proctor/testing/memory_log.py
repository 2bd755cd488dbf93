"""`MemoryLogs`: logs that are kept in memory, with the channel, the delays and the failures of real ones.

As with a real log a record waits in a bounded channel, is durable some time after it was sent, and is acknowledged
then; a cancellation of the run does not stop the writer, and a writer that fails cancels what writes to it.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from attrs import define, evolve, field

from proctor.errors import LogError
from proctor.evaluation.resume import Resume
from proctor.log.index import indexed
from proctor.log.places import Place
from proctor.log.records import EvalLog, EvalPlan, EvalSample, EvalSampleReductions, EvalSpec
from proctor.log.sample_json import encode_record
from proctor.log.writer import Acknowledged
from proctor.testing.faults import FaultPlan


@define(eq=False)
class MemoryLog:
    """One log.

    Attributes:
        header: as it was finished, None before. records: durable ones, in the order in which they came. before: how
            many of them were in the log that this one goes on in.
        acknowledgements: a stream of `Acknowledged`. failure: why it can no longer be written.
    """

    spec: EvalSpec
    plan: EvalPlan
    of: MemoryLogs
    acknowledgements: MemoryObjectReceiveStream[Acknowledged]
    header: EvalLog | None = field(default=None, init=False)
    records: list[EvalSample] = field(factory=list, init=False)
    failure: LogError | None = field(default=None, init=False)
    before: int = field(default=0, init=False)
    _send: MemoryObjectSendStream[EvalSample]
    _receive: MemoryObjectReceiveStream[EvalSample]
    _acknowledge: MemoryObjectSendStream[Acknowledged]
    _sent: int = field(default=0, init=False)
    _changed: anyio.Event = field(factory=anyio.Event, init=False)
    _ended: anyio.Event = field(factory=anyio.Event, init=False)

    def last(self) -> dict[tuple[str, int], EvalSample]:
        """Of each sample the last record."""
        return {(str(record.id), record.epoch): record for record in self.records}

    def kill(self, durable: int) -> None:
        """Be as a kill left it when so many records were durable."""
        del self.records[durable:]
        self.header = None

    def resume(self) -> Resume:
        """To go on in this log."""
        return Resume(
            path=Path("memory"),
            header=evolve(self.read(), samples=None, reductions=None),
            index=lambda: indexed(self.last().values()),
            samples=lambda: nullcontext(lambda name, epoch: self.last()[str(name), epoch]),
        )

    def read(self) -> EvalLog:
        """The log as it would be read: the header with the samples, by epoch and in dataset order."""
        log = self.header or EvalLog(eval=self.spec, plan=self.plan)
        place = {key: n for n, key in enumerate(map(str, self.spec.dataset.sample_ids or ()))}
        records = self.last().values() if self.before else self.records
        ordered = sorted(records, key=lambda record: (record.epoch, place.get(str(record.id), 0)))
        return evolve(log, samples=ordered)

    async def send(self, sample: EvalSample) -> None:
        """Take a record; wait while too many are waiting."""
        self._check()
        try:
            await self._send.send(sample)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._check()
            raise
        self._sent += 1

    async def flush(self) -> None:
        """Return when all that was sent is durable."""
        while len(self.records) < self.before + self._sent:
            self._check()
            await self._changed.wait()
        self._check()

    async def finish(
        self,
        log: EvalLog,
        reductions: Sequence[EvalSampleReductions] | None = None,
        *,
        without: Collection[tuple[str, int]] = (),
    ) -> None:
        """Complete the log."""
        self.records[:] = [record for record in self.records if (str(record.id), record.epoch) not in without]
        self._check()
        await self.close()
        self._check()
        self.header = evolve(log, reductions=list(reductions) if reductions is not None else log.reductions)

    async def close(self) -> None:
        """Keep what was sent and end."""
        self._send.close()
        await self._ended.wait()
        self._acknowledge.close()

    async def work(self, cancel: Callable[[], object]) -> None:
        """Make records durable until the channel is closed."""
        with anyio.CancelScope(shield=True):
            try:
                async for record in self._receive:
                    await anyio.sleep(self.of.commit)
                    self._keep([record, *_waiting(self._receive)])
            except Exception as error:
                self.failure = LogError(f"the log cannot be written: {error}")
                self.failure.__cause__ = error
                self._acknowledge.close()
                cancel()
            finally:
                self._receive.close()
                self._ended.set()
                self._changed.set()

    def _keep(self, batch: list[EvalSample]) -> None:
        for record in batch:
            self.of.faults.record(record)
            if self.of.encoded:
                encode_record(record)
            self.records.append(record)
        self._acknowledge.send_nowait(Acknowledged(tuple((record.id, record.epoch) for record in batch)))
        self._changed.set()
        self._changed = anyio.Event()

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.header is not None:
            raise LogError("the log is finished; nothing can be added to it")


def _waiting(stream: MemoryObjectReceiveStream[EvalSample]) -> list[EvalSample]:
    found: list[EvalSample] = []
    while True:
        try:
            found.append(stream.receive_nowait())
        except (anyio.WouldBlock, anyio.EndOfStream):
            return found


@define(eq=False, kw_only=True)
class MemoryLogs:
    """Opens logs in memory: what `RunActor` takes as `open_log`.

    Args:
        commit: seconds until a record is durable. buffer: records that may wait; default what the run says.
        encoded: encode every record, as a real log does, to see that it can be.
        faults: records at which the writer fails, under ``log``.

    Attributes:
        logs: in the order in which they were opened.
    """

    commit: float = 0.1
    buffer: int | None = None
    encoded: bool = False
    faults: FaultPlan = field(factory=FaultPlan)
    logs: list[MemoryLog] = field(factory=list, init=False)

    @asynccontextmanager
    async def open(
        self, place: Place, /, *, spec: EvalSpec, plan: EvalPlan, buffer: int, resume: bool = False
    ) -> AsyncIterator[MemoryLog]:
        """Open a log; what was sent to it is durable when the block is left. A log that is resumed is a new one with
        the records of the last that was opened."""
        await anyio.lowlevel.checkpoint()
        send, receive = anyio.create_memory_object_stream[EvalSample](self.buffer or buffer)
        acknowledge, acknowledgements = anyio.create_memory_object_stream[Acknowledged](math.inf)
        log = MemoryLog(spec, plan, self, acknowledgements, send, receive, acknowledge)
        if resume:
            log.records.extend(self.logs[-1].last().values())
            log.before = len(log.records)
        self.logs.append(log)
        raised: BaseException | None = None
        with send, receive, acknowledge, acknowledgements:
            async with anyio.create_task_group() as group:
                group.start_soon(log.work, group.cancel_scope.cancel)
                try:
                    yield log
                except anyio.get_cancelled_exc_class():
                    raise
                except BaseException as error:  # raised below, so that the task group does not wrap it
                    raised = error
                finally:
                    with anyio.CancelScope(shield=True):
                        await log.close()
        if raised is not None:
            raise raised
        if log.failure is not None:
            raise log.failure
