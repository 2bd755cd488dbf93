"""Writing to a terminal that may stand still.

A terminal stopped with Ctrl-S, or a pager that reads one screen, blocks whoever writes to it. Writing from the event
loop would hold every sample, so a display hands its text to one daemon thread, which ends with the display. Rejected:
anyio's worker threads (the loop would wait for a blocked one when it ends) and non-blocking descriptors (the flag is
shared with every other process on the terminal).

Real standard output is written by descriptor: a daemon thread that sits inside `sys.stdout.write` when the
interpreter ends makes it abort. A reader that went away ends the display, never the run.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TextIO

LAST_WORDS: Final = 2.0
"""Seconds that `Terminal.close` waits for a terminal that stands still before it goes on without."""


class Descriptor:
    """A text file that writes straight to the descriptor of another one, whatever its encoding cannot say escaped."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._fd = stream.fileno()
        self.encoding: Final = stream.encoding or "utf-8"

    def write(self, text: str) -> int:
        data = memoryview(text.encode(self.encoding, "backslashreplace"))
        self._stream.flush()
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                select.select([], [self._fd], [], 1.0)
        return len(text)

    def flush(self) -> None:
        """Nothing is held back."""

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return self._stream.isatty()


class Terminal:
    """A thread through which one display writes.

    Args:
        stream: default standard output as it is now.

    Attributes:
        file: what a job given to `draw` writes to.
        failure: why nothing is written any more, None while all is well.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.file = _unbuffered(stream or sys.stdout)
        self.failure: Exception | None = None
        self._changed = threading.Condition()
        self._lines: deque[str] = deque()
        self._job: Callable[[], None] | None = None
        self._closing = False
        self._thread: threading.Thread | None = None

    @property
    def interactive(self) -> bool:
        try:
            return self.file.isatty()
        except ValueError:
            return False

    def line(self, text: str) -> None:
        """Write `text` and a line feed, after what was given before."""
        self._give(lambda: self._lines.append(text + "\n"))

    def draw(self, job: Callable[[], None]) -> None:
        """Call `job` in the thread; one that has not begun is replaced."""

        def replace() -> None:
            self._job = job

        self._give(replace)

    def close(self) -> bool:
        """Wait until all is written, at most `LAST_WORDS` seconds; False if the terminal stands still."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(LAST_WORDS)
            return not self._thread.is_alive()
        return True

    def _give(self, change: Callable[[], None]) -> None:
        with self._changed:
            if self._closing:
                return
            change()
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name="proctor display", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _write(self) -> None:
        broken = False
        while True:
            with self._changed:
                while not (self._lines or self._job or self._closing):
                    self._changed.wait()
                text = "".join(self._lines)
                self._lines.clear()
                job, self._job = self._job, None
                if not text and job is None:
                    return
            if broken:
                continue
            try:
                if text:
                    self.file.write(text)
                    self.file.flush()
                if job is not None:
                    job()
            except Exception as error:
                # The reader is gone, the stream was closed under us, or a drawing failed: the run goes on unwatched.
                self.failure, broken = error, True


def _unbuffered(stream: TextIO) -> TextIO | Descriptor:
    if stream is sys.__stdout__ or stream is sys.__stderr__:
        with suppress(OSError, ValueError):
            return Descriptor(stream)
    return stream
