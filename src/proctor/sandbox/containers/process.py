"""A command in a container that is talked to while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteReceiveStream
from attrs import define

from proctor.errors import UsageError
from proctor.process import LiveProcess
from proctor.process.live import Input
from proctor.process.result import READ
from proctor.sandbox.containers.execution import Execution, Refused, end_inside
from proctor.sandbox.containers.shell import Announcements
from proctor.sandbox.containers.state import Container


@define(eq=False)
class _Stderr(ByteReceiveStream):
    """The command's standard error: what its wrapper says there is taken out."""

    _stream: ByteReceiveStream
    _said: Announcements
    _ready: bytes

    async def receive(self, max_bytes: int = READ) -> bytes:
        while not self._ready:
            try:
                self._ready = self._said.see(await self._stream.receive(READ))
            except anyio.EndOfStream:
                self._ready = self._said.rest()
                if not self._ready:
                    raise
        data, self._ready = self._ready[:max_bytes], self._ready[max_bytes:]
        return data

    async def aclose(self) -> None:
        await self._stream.aclose()


@define(eq=False)
class ContainerProcess:
    """A command that runs in a container.

    Attributes:
        stdin, stdout, stderr: its streams.
    """

    stdin: Input
    stdout: ByteReceiveStream
    stderr: ByteReceiveStream
    _live: LiveProcess

    async def wait(self) -> int:
        """Wait for its end and return its exit code."""
        return await self._live.wait()


@asynccontextmanager
async def open_container_process(
    container: Container, command: Sequence[str], *, folder: str, env: Mapping[str, str] | None, user: str | None
) -> AsyncIterator[ContainerProcess]:
    """Run a command for the block; at its end it and all that it started are dead inside.

    Raises:
        SandboxUnavailableError: the container is gone, or the command did not begin.
    """
    execution = Execution(container=container, command=command, folder=folder, env=env, user=user, input=b"")
    try:
        async with execution.began() as live:
            try:
                yield ContainerProcess(
                    live.stdin, live.stdout, _Stderr(live.stderr, execution.said, execution.early), live
                )
            finally:
                await end_inside(container, execution.said, user)
    except Refused as refused:
        raise UsageError(f"a command cannot be run in {container.name}: {refused}") from None
