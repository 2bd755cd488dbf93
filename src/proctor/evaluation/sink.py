"""Where the records of a task go: a log's writer, or what a test puts in its place."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from anyio.abc import ObjectReceiveStream

from proctor.log.places import Place
from proctor.log.records import EvalLog, EvalPlan, EvalSample, EvalSampleReductions, EvalSpec


class LogSink(Protocol):
    """What the engine asks of a log that is being written (`LogWriter`)."""

    @property
    def acknowledgements(self) -> ObjectReceiveStream[Any]:
        """A stream of `Acknowledged`, which ends with the log."""
        ...

    async def send(self, sample: EvalSample) -> None:
        """Take a record; wait while too many are waiting."""

    async def flush(self) -> None:
        """Return when all records sent so far are durable and acknowledged."""

    async def finish(
        self,
        log: EvalLog,
        reductions: Sequence[EvalSampleReductions] | None = None,
        *,
        without: Collection[tuple[str, int]] = (),
    ) -> None:
        """Complete the log, without samples that it had when it was opened to go on in it."""


class OpenLog(Protocol):
    """Opens a log (`open_log`)."""

    def __call__(
        self, place: Place, /, *, spec: EvalSpec, plan: EvalPlan, buffer: int, resume: bool = False
    ) -> AbstractAsyncContextManager[LogSink]: ...
