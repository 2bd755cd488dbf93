"""What goes in and out of one command: one wait for all of its pipes and its end together.

All of them are registered with one selector, whose own descriptor is what is waited on, so that a command needs no
tasks of its own. What can be read or written then is done at once, but only so much of it that other tasks get their
turn.
"""

from __future__ import annotations

import os
import selectors
from collections.abc import Callable
from typing import Any, Final, cast

import anyio
from attrs import define, field

from proctor.process.child import Child, Command, descriptors_explained, start
from proctor.process.result import READ, Tail

TURNS: Final = 8  # reads of one pipe in a row
SHORTEST, LONGEST = 0.001, 0.05  # seconds between two looks at whether it has ended


@define(eq=False)
class Gathering:
    """A running command, its input, and its output so far.

    Attributes:
        child: the process. stdout, stderr: what it wrote.
    """

    child: Child
    stdout: Tail
    stderr: Tail
    _selector: selectors.BaseSelector
    _input: memoryview
    _pause: float = field(default=SHORTEST, init=False)
    _watched: int = field(default=0, init=False)
    _readiness: int = field(init=False)

    def __attrs_post_init__(self) -> None:
        child = self.child
        self._readiness = cast("Any", self._selector).fileno()  # epoll and kqueue have one
        self._watch(child.stdout, selectors.EVENT_READ, self._read_stdout)
        self._watch(child.stderr, selectors.EVENT_READ, self._read_stderr)
        self._watch(child.stdin, selectors.EVENT_WRITE, self._write)
        self._watch(child.exit, selectors.EVENT_READ, self.poll)

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return self.child.name

    @property
    def pid(self) -> int:
        """The number of the process and of its group."""
        return self.child.pid

    @property
    def returncode(self) -> int | None:
        """None until it is reaped."""
        return self.child.returncode

    @property
    def reading(self) -> bool:
        """Whether somebody may still write to its output."""
        return self.child.stdout is not None or self.child.stderr is not None

    async def activity(self) -> None:
        """Wait until there is something for `pump` to do, or there may be."""
        if self._watched and self.child.exit is not None:
            await anyio.wait_readable(self._readiness)
            return
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        if not self._watched:
            await anyio.sleep(pause)
            return
        with anyio.move_on_after(pause):
            await anyio.wait_readable(self._readiness)
            self._pause = SHORTEST

    def pump(self) -> None:
        """Read and write what can be now, and reap the process if it has ended."""
        for key, _ in self._selector.select(0):
            key.data()
        if self.child.exit is None:
            self.poll()

    def poll(self) -> int | None:
        """Reap it if it has ended; its exit code."""
        code = self.child.poll()
        if code is not None and self.child.exit is not None:
            self._forget(self.child.exit)
            self.child.close_exit()
        return code

    def signal(self, number: int) -> bool:
        """Send a signal to its group. Returns whether there is one."""
        return self.child.signal(number)

    def group_alive(self) -> bool:
        """Whether its group has a living member."""
        return self.child.group_alive()

    def close(self) -> None:
        """Close our ends of its pipes. What it writes afterwards ends it, or is lost."""
        self._watched = 0
        self._selector.close()
        self.child.close_pipes()

    def _watch(self, descriptor: int | None, event: int, ready: Callable[[], object]) -> None:
        if descriptor is not None:
            self._selector.register(descriptor, event, ready)
            self._watched += 1

    def _forget(self, descriptor: int) -> None:
        if self._watched:
            self._selector.unregister(descriptor)
            self._watched -= 1

    def _read_stdout(self) -> None:
        if self._read(self.child.stdout, self.stdout):
            self.child.stdout = None

    def _read_stderr(self) -> None:
        if self._read(self.child.stderr, self.stderr):
            self.child.stderr = None

    def _read(self, descriptor: int | None, into: Tail) -> bool:
        """Read what is there. Returns whether that was the end, after which the pipe is closed."""
        assert descriptor is not None
        for _ in range(TURNS):
            try:
                data = os.read(descriptor, READ)
            except BlockingIOError:
                return False
            if not data:
                self._forget(descriptor)
                os.close(descriptor)
                return True
            into.add(data)
            if len(data) < READ:
                return False
        return False

    def _write(self) -> None:
        descriptor = self.child.stdin
        assert descriptor is not None
        try:
            self._input = self._input[os.write(descriptor, self._input[:READ]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it reads no more, which is its own business
            self._input = self._input[:0]
        if not self._input:
            self._forget(descriptor)
            os.close(descriptor)
            self.child.stdin = None


def gather(command: Command) -> Gathering:
    """Start a command.

    Raises:
        OSError: it cannot be started.
    """
    with descriptors_explained(command):
        selector = selectors.DefaultSelector()
        try:
            child = start(command)
        except BaseException:
            selector.close()
            raise
    return Gathering(child, Tail(command.limit), Tail(command.limit), selector, memoryview(command.input or b""))
