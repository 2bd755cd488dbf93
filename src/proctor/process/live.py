"""A child process that lives for longer than one call: sessions, servers, an engine's own command line.

Its pipes are streams of anyio's kind, each read or written by one task at a time.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, cast

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream
from anyio.lowlevel import checkpoint
from attrs import define, field

from proctor.process.attend import GRACE
from proctor.process.child import Child, Command, descriptors_explained, start
from proctor.process.pool import current_pool
from proctor.process.result import READ, Tail
from proctor.runtime.settings import environment

SHORTEST, LONGEST = 0.001, 0.05  # seconds between two looks at whether it has ended


@define(eq=False)
class Output(ByteReceiveStream):
    """What a process writes."""

    _descriptor: int | None

    async def receive(self, max_bytes: int = READ) -> bytes:
        """The next bytes, as soon as there are any.

        Raises:
            EndOfStream: there will be none: all who could write have closed it.
            ClosedResourceError: it was closed here.
        """
        await checkpoint()
        while True:
            if self._descriptor is None:
                raise anyio.ClosedResourceError
            try:
                data = os.read(self._descriptor, max_bytes)
            except BlockingIOError:
                await anyio.wait_readable(self._descriptor)
                continue
            if not data:
                raise anyio.EndOfStream
            return data

    def close(self) -> None:
        """Close it; whoever waits for it gets `ClosedResourceError`."""
        _close(self)

    async def aclose(self) -> None:
        """As `close`."""
        self.close()
        await checkpoint()


@define(eq=False)
class Input(ByteSendStream):
    """What a process reads."""

    _descriptor: int | None

    async def send(self, item: bytes) -> None:
        """Write all of it.

        Raises:
            BrokenResourceError: nobody reads it any more. ClosedResourceError: it was closed here.
        """
        await checkpoint()
        left = memoryview(item)
        while left:
            if self._descriptor is None:
                raise anyio.ClosedResourceError
            try:
                left = left[os.write(self._descriptor, left[:READ]) :]
            except BlockingIOError:
                await anyio.wait_writable(self._descriptor)
            except BrokenPipeError as error:
                raise anyio.BrokenResourceError from error

    def close(self) -> None:
        """Close it: the process reads an end of file."""
        _close(self)

    async def aclose(self) -> None:
        """As `close`."""
        self.close()
        await checkpoint()


def _close(stream: Output | Input) -> None:
    descriptor, stream._descriptor = stream._descriptor, None
    if descriptor is not None:
        anyio.notify_closing(descriptor)
        os.close(descriptor)


@define(eq=False)
class LiveProcess:
    """A running process. Made by `open_process`.

    Attributes:
        stdin, stdout, stderr: its streams.
    """

    stdin: Input
    stdout: Output
    stderr: Output
    _child: Child

    @property
    def pid(self) -> int:
        """Its number, and that of its process group."""
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code (below 0: the signal that ended it), None while it runs."""
        return self._child.poll()

    async def wait(self) -> int:
        """Wait for its end; its exit code. One task at a time."""
        await checkpoint()
        pause = SHORTEST
        while (code := self._child.poll()) is None:
            if self._child.exit is not None:
                await anyio.wait_readable(self._child.exit)
            else:
                await anyio.sleep(pause)
                pause = min(2 * pause, LONGEST)
        return code

    def send_signal(self, number: int = signal.SIGINT) -> bool:
        """Send a signal to its group, which may outlive it. Returns whether there was somebody."""
        return self._child.signal(number)


@define(eq=False)
class _Kept:
    """A `LiveProcess` as its pool and its end see it."""

    live: LiveProcess
    child: Child
    stdout: Tail = field(factory=Tail, init=False)
    stderr: Tail = field(factory=Tail, init=False)
    reading: Final[bool] = False

    @property
    def name(self) -> str:
        return self.child.name

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def returncode(self) -> int | None:
        return self.child.returncode

    async def activity(self) -> None:
        await self.live.wait()

    def pump(self) -> None:
        self.child.poll()

    def poll(self) -> int | None:
        return self.child.poll()

    def signal(self, number: int) -> bool:
        return self.child.signal(number)

    def group_alive(self) -> bool:
        return self.child.group_alive()

    def close(self) -> None:
        for stream in (self.live.stdin, self.live.stdout, self.live.stderr):
            stream.close()
        self.child.stdin = self.child.stdout = self.child.stderr = None
        if self.child.exit is not None:
            anyio.notify_closing(self.child.exit)
        self.child.close_pipes()


def _started(command: Command) -> _Kept:
    with descriptors_explained(command):
        child = start(command, stdin=True)
    return _Kept(LiveProcess(Input(child.stdin), Output(child.stdout), Output(child.stderr), child), child)


@asynccontextmanager
async def open_process(
    args: list[str],
    *,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    clear_env: bool = False,
    grace: float = GRACE,
) -> AsyncIterator[LiveProcess]:
    """Start a process for the block; at its end its whole group is ended, in bounded time.

    It counts to no limit: take a lease where that matters.

    Args:
        args: the program and its arguments.
        cwd: the folder it runs in. env: variables added to its environment; `clear_env`: it has no others.
        grace: seconds between SIGTERM and SIGKILL at the end of the block.

    Raises:
        OSError: it cannot be started.
    """
    pool = await current_pool()
    whole = {**({} if clear_env else environment()), **(env or {})}
    command = pool.marked(Command(args=args, cwd=cwd, env=whole))
    attendance = await pool.spawn(lambda: _started(command), grace=grace)
    kept = cast("_Kept", attendance.running)
    live = kept.live
    try:
        yield live
    finally:
        try:
            live.stdin.close()
            await attendance.end()
        finally:
            pool.leave(attendance)
