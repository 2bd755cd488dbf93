"""A llama.cpp server as a child process, seen from the process that owns it.

It leads a session of its own, so a Ctrl-C at the terminal does not reach it and its end takes its whole group. It
lives as long as the pipe to its standard input is open (`llama_child` says why that is enough even when the owner is
killed). Its owner waits in the tasks of those who need it: there is no task that watches it, and so none to outlive.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import anyio
from attrs import define, field, frozen

logger: Final = logging.getLogger(__name__)

PROGRAM: Final = (sys.executable, "-P", str(Path(__file__).with_name("llama_child.py")))
GRACE: Final = 2.0  # seconds between the polite signal and the other (behaviour.md, section 4)
REAP: Final = 1.0  # seconds for a killed process to go
DYING: Final = 0.5  # seconds after a broken connection in which a process that has died is seen to have
PAUSE: Final = 0.01  # seconds between two looks at whether it has ended
LAST_WORDS: Final = 3  # lines
LAST_BYTES: Final = 4096


@frozen(kw_only=True)
class Settings:
    """What a server is started with.

    Attributes:
        name: shown. path: the weights. context: tokens of one conversation. parallel: conversations at once.
        key: asked of every caller, so that no other user of this machine is served.
        start_timeout: seconds for the start.
    """

    name: str
    path: str
    threads: int
    context: int
    parallel: int
    key: str = field(repr=False)
    start_timeout: float


class StartFailure(Exception):
    """The server did not come up; the text says what it said."""


@define(eq=False)
class LlamaServer:
    """A running process. Made by `launch`; end it with `aclose`."""

    settings: Settings
    _process: subprocess.Popen[bytes]
    _words: IO[bytes]
    _began: float
    _said: bytes = b""
    _lock: anyio.Lock = field(factory=anyio.Lock, init=False)

    async def address(self) -> str:
        """Wait until it is healthy; where it is served.

        Raises:
            StartFailure: it ended before, or took longer than its time for it.
        """
        async with self._lock:  # one reader at a time; the next takes over from one that is cancelled
            left = self._began + self.settings.start_timeout - anyio.current_time()
            with anyio.move_on_after(left):
                while b"\n" not in self._said:
                    await self._read()
        if b"\n" not in self._said:
            raise StartFailure(
                f"the server was not ready within {self.settings.start_timeout:g} s; give it longer with "
                "-M start_timeout=SECONDS"
            )
        return self._said.decode().strip()

    async def _read(self) -> None:
        assert self._process.stdout is not None
        await anyio.wait_readable(self._process.stdout)
        part = os.read(self._process.stdout.fileno(), 4096)
        if not part:
            await self.seen_to_end(REAP)
            raise StartFailure(f"the server {self.end()} before it was ready{self.last_words()}")
        self._said += part

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    async def seen_to_end(self, within: float = DYING) -> bool:
        """Whether it is gone, or goes within so many seconds."""
        deadline = anyio.current_time() + within
        while not self.ended and anyio.current_time() < deadline:  # noqa: ASYNC110  no event tells it everywhere
            await anyio.sleep(PAUSE)
        return self.ended

    def end(self) -> str:
        """How it ended, in words that follow "the server"."""
        code = self._process.poll()
        if code is None:
            return "stopped answering"
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            hint = " (was there not enough memory?)" if -code == signal.SIGKILL else ""
            return f"was killed by {signal.Signals(-code).name}{hint}"
        return f"was killed by signal {-code}"

    def last_words(self) -> str:
        """The last lines that it wrote, to follow a sentence; empty when it wrote none."""
        size = os.fstat(self._words.fileno()).st_size
        tail = os.pread(self._words.fileno(), LAST_BYTES, max(0, size - LAST_BYTES))
        lines = [line for line in tail.decode("utf-8", "replace").splitlines() if line.strip()]
        return ":\n  " + "\n  ".join(lines[-LAST_WORDS:]) if lines else ""

    async def aclose(self) -> None:
        """End it and everything in its group, in bounded time; harmless when it is gone."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            self._signal(signal.SIGTERM)
            if not await self.seen_to_end(GRACE):
                self._signal(signal.SIGKILL)
                if not await self.seen_to_end(REAP):
                    logger.warning("the server of %s (process %d) cannot be killed", self.settings.name, process.pid)
        finally:
            self._signal(signal.SIGKILL)
            process.stdin.close()
            process.stdout.close()
            self._words.close()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to its group, which may outlive its leader."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def launch(settings: Settings, program: tuple[str, ...] = PROGRAM) -> LlamaServer:
    """Start the process; it is not ready when this returns.

    Starting takes a millisecond or two and is done without an await, so that no cancellation can come between the
    process and its owner.

    Args:
        program: the command that serves.

    Raises:
        OSError: it cannot be started.
    """
    words = tempfile.TemporaryFile()  # noqa: SIM115  closed with the server
    try:
        process = subprocess.Popen(  # noqa: S603  our own program
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, bufsize=0, start_new_session=True
        )
    except BaseException:
        words.close()
        raise
    assert process.stdin is not None
    given = {name: getattr(settings, name) for name in ("path", "threads", "context", "parallel", "key")}
    with suppress(BrokenPipeError):  # it has died already, which the first wait for it tells
        process.stdin.write(json.dumps(given).encode() + b"\n")
    return LlamaServer(settings, process, words, anyio.current_time())
