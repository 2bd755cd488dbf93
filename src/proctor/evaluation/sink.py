"""Where the records of a task go: a log's writer, or what a test puts in its place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from anyio.abc import ObjectReceiveStream

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

    async def finish(self, log: EvalLog, reductions: Sequence[EvalSampleReductions] | None = None) -> None:
        """Complete the log."""


class OpenLog(Protocol):
    """Opens a log (`open_log_writer`)."""

    def __call__(
        self, path: Path, /, *, spec: EvalSpec, plan: EvalPlan, buffer: int
    ) -> AbstractAsyncContextManager[LogSink]: ...
