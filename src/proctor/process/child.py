"""A child process: started in one synchronous step, leader of its own session, and reaped by us alone.

Starting has no await in it, so that a process always has an owner. In a runtime it is done in a thread: on a busy
machine a new process waits for its turn to run, and whoever starts it waits with it. Measured on two processors under
a load of 7: 2.5 ms each in the loop, and twice as many commands a second from threads; the thread costs 0.2 ms. The
session of its own is part of that, since Linux schedules sessions as groups.

Its end is seen through a descriptor (``pidfd_open``) where the system has that, else by looking again and again.
Rejected: asyncio's child watchers, which can lose an exit, and of which each Python version has another.
"""

from __future__ import annotations

import errno
import logging
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

from proctor.process.group import group_alive, signal_group
from proctor.runtime.descriptors import descriptors

logger: Final = logging.getLogger(__name__)

UNKNOWN_STATUS: Final = 255
"""The exit code of a process whose status somebody else took, as in asyncio."""
INHERIT: Final = -1  # no pipe: the child gets ours
DISCARD: Final = subprocess.DEVNULL


@frozen(kw_only=True)
class Command:
    """What is to be started.

    Attributes:
        args: the program and its arguments.
        input: what it reads; None for nothing.
        cwd: where; None here. env: its whole environment; None for ours.
        capture: read what it writes; else it writes where we do.
        limit: bytes of each stream that are kept; None for all.
    """

    args: Sequence[str]
    input: bytes | None = None
    cwd: str | Path | None = None
    env: Mapping[str, str] | None = None
    capture: bool = True
    limit: int | None = None

    @property
    def name(self) -> str:
        """What it is called in messages."""
        return " ".join(self.args)[:80]


@define(eq=False)
class Child:
    """A process we started.

    Attributes:
        name: for messages. pid: its number, its group's and its session's.
        stdin, stdout, stderr: our ends of its pipes; None where there is none, or it is closed.
        returncode: None until it is reaped. exit: readable once it has ended; None where the system has no such thing.
    """

    name: str
    pid: int
    stdin: int | None
    stdout: int | None
    stderr: int | None
    exit: int | None
    returncode: int | None = field(default=None, init=False)
    _process: subprocess.Popen[bytes] = field(kw_only=True, alias="process")

    def poll(self) -> int | None:
        """Reap it if it has ended; its exit code."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                logger.warning("the exit status of %r was taken by somebody else (is SIGCHLD ignored?)", self.name)
                self._ended(UNKNOWN_STATUS)
            else:
                if pid:
                    self._ended(os.waitstatus_to_exitcode(status))
        return self.returncode

    def signal(self, number: int) -> bool:
        """Send a signal to its group, which may outlive it. Returns whether there is one."""
        return signal_group(self.pid, number)

    def group_alive(self) -> bool:
        """Whether its group has a living member; itself, unless it is reaped."""
        return self.returncode is None or group_alive(self.pid)

    def close_pipes(self) -> None:
        """Close our ends of its pipes, and of what tells of its end."""
        _close(self.stdin, self.stdout, self.stderr)
        self.stdin = self.stdout = self.stderr = None
        self.close_exit()

    def close_exit(self) -> None:
        """Close what tells of its end."""
        if self.exit is not None:
            os.close(self.exit)
            self.exit = None

    def _ended(self, returncode: int) -> None:
        self.returncode = self._process.returncode = returncode


def start(command: Command, *, stdin: bool = False) -> Child:
    """Start a process.

    Args:
        stdin: give it a pipe to read from; else, and without input, it reads nothing.

    Raises:
        OSError: there is no such program or folder, it may not be run, or descriptors or processes have run out.
    """
    ours: list[int | None] = [None, None, None]
    theirs: list[int] = [DISCARD, INHERIT, INHERIT]
    try:
        if stdin or command.input:
            theirs[0], ours[0] = os.pipe()
        if command.capture:
            ours[1], theirs[1] = os.pipe()
            ours[2], theirs[2] = os.pipe()
        process = _spawn(command, theirs)
    except BaseException:
        _close(*ours)
        raise
    finally:
        _close(*(each for each in theirs if each >= 0))
    for each in ours:
        if each is not None:
            os.set_blocking(each, False)
    stdin_end, stdout, stderr = ours
    exit_end = _exit_descriptor(process.pid)
    return Child(command.name, process.pid, stdin_end, stdout, stderr, exit_end, process=process)


def _spawn(command: Command, ends: list[int]) -> subprocess.Popen[bytes]:
    stdin, stdout, stderr = (None if each == INHERIT else each for each in ends)
    try:
        return subprocess.Popen(  # noqa: S603  the caller's own command, no shell
            command.args,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            cwd=command.cwd,
            env=command.env,
            start_new_session=True,
        )
    except FileNotFoundError as error:
        if len(command.args) == 1 and " " in command.args[0]:
            error.add_note("a string is the name of one program: give a list, or ['sh', '-c', '…'] for a shell")
        raise


def _exit_descriptor(pid: int) -> int | None:
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):  # an old kernel, or no descriptor left: then it is looked at
            return os.pidfd_open(pid)
    return None


def _close(*descriptors: int | None) -> None:
    for each in descriptors:
        if each is not None:
            os.close(each)


@contextmanager
def descriptors_explained(command: Command) -> Iterator[None]:
    """Say what to do about it when descriptors run out in the block."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.EMFILE, errno.ENFILE}:
            raise
        raise _no_descriptors(error, command) from error


def _no_descriptors(error: OSError, command: Command) -> OSError:
    limit = descriptors()
    used = _open_descriptors()
    counted = "" if used is None else f", {used:,} of them open"
    where = "this process" if error.errno == errno.EMFILE else "the whole system"
    text = (
        f"{command.name!r} cannot be started because {where} has no file descriptor left (allowed here: "
        f"{limit.soft:,}{counted}): raise the limit (`ulimit -n`) or lower max_subprocesses and max_connections"
    )
    return OSError(error.errno, text)


def _open_descriptors() -> int | None:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return None
