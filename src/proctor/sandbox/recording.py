"""What `sandbox()` gives: the provider's environment, with everything done to it put into the transcript.

It stands before the environment because providers are written by many and events by nobody but the engine. It also
notes that an environment is no longer there: a solver or a tool may swallow the error, the sample may not.
"""

from __future__ import annotations

import inspect
import shlex
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar, cast

from attrs import define

from proctor.errors import SandboxUnavailableError
from proctor.log.events import SandboxEvent
from proctor.log.transcript import transcript
from proctor.process import ExecResult
from proctor.runtime.clock import utc_now
from proctor.sandbox.environment import SandboxConnection, SandboxEnvironment, SandboxProcess
from proctor.sandbox.pool import Ticket

E = TypeVar("E", bound=SandboxEnvironment)

LINES: Final = 20  # of an input or output that an event keeps, as Inspect does
CHARACTERS: Final = 4_000  # of them at most


@define(eq=False)
class RecordedSandbox(SandboxEnvironment):
    """An environment of the sample that runs; see `SandboxEnvironment`."""

    name: str
    environment: SandboxEnvironment
    ticket: Ticket

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a command."""
        given: dict[str, Any] = {"cwd": cwd, "env": env, "user": user, "timeout": timeout}
        given = {name: value for name, value in given.items() if value is not None}
        asked = {"timeout_retry": timeout_retry, "concurrency": concurrency}
        event = SandboxEvent(
            action="exec",
            cmd=shlex.join(map(str, cmd)),
            options={**given, "environment": self.name} if given else {"environment": self.name},
            input=None if input is None else shown(input),
        )
        with self._noted(event):
            # A provider is given only what was asked for: an older one may know no more than the first of them.
            more: dict[str, Any] = {name: value for name, value in asked.items() if not value}
            if input is not None:
                more["input"] = input
            result = await self.environment.exec(cmd, **given, **more)
            event.result = result.returncode
            event.output = shown(f"{result.stderr}\n\n{result.stdout}" if result.stderr else result.stdout)
        return result

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file."""
        with self._noted(SandboxEvent(action="write_file", file=file, input=shown(contents))):
            await self.environment.write_file(file, contents)

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Read a file."""
        event = SandboxEvent(action="read_file", file=file)
        with self._noted(event):
            found: str | bytes = await cast("Any", self.environment.read_file)(file, text)
            event.output = shown(found)
        return found

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """How a person gets in."""
        if "user" in inspect.signature(self.environment.connection).parameters:
            return await self.environment.connection(user=user)
        return await self.environment.connection()

    @asynccontextmanager
    async def open_process(
        self, cmd: list[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> AsyncIterator[SandboxProcess]:
        """Run a command and talk to it meanwhile."""
        given = {"cwd": cwd, "env": dict(env) if env is not None else None, "user": user}
        options = {name: value for name, value in given.items() if value is not None}
        event = SandboxEvent(
            action="exec", cmd=shlex.join(map(str, cmd)), options={**options, "environment": self.name, "open": True}
        )
        with self._noted(event):
            async with self.environment.open_process(cmd, cwd=cwd, env=env, user=user) as process:
                yield process

    async def alive(self) -> bool:
        """Whether the environment is still there."""
        return await self.environment.alive()

    def as_type(self, sandbox_cls: type[E]) -> E:
        """The provider's own environment, which puts nothing into the transcript."""
        return self.environment.as_type(sandbox_cls)

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Nothing: the environment behind it is the pool's."""

    @contextmanager
    def _noted(self, event: SandboxEvent) -> Iterator[None]:
        """Put the event in when it is over, whatever its end; note when the environment is no longer there."""
        if self.ticket.over or self.ticket.lost is not None:
            raise self.ticket.lost or SandboxUnavailableError(f"the sandbox of {self.ticket.label} has been removed")
        event.timestamp = utc_now()
        into = transcript()
        event.working_start = into.working()
        try:
            yield
        except BaseException as error:
            if event.output is None and isinstance(error, Exception):
                event.output = shown(f"{type(error).__name__}: {error}")
            if isinstance(error, SandboxUnavailableError):
                self.ticket.lost = self.ticket.lost or error
            raise
        finally:
            event.completed = utc_now()
            into.add(event)


def recorded(ticket: Ticket) -> dict[str, SandboxEnvironment]:
    """The environments of a ticket as solvers and tools get them."""
    return {name: RecordedSandbox(name, each, ticket) for name, each in (ticket.environments or {}).items()}


def shown(content: str | bytes) -> str:
    """As much of a content as an event keeps."""
    if isinstance(content, bytes):
        return f"binary ({len(content):,} bytes)"
    text = content[:CHARACTERS]
    lines = text.split("\n", LINES)
    kept = "\n".join(lines[:LINES])
    if len(kept) == len(content):
        return content
    return f"{kept}\n\n({len(content) - len(kept):,} more characters)"
