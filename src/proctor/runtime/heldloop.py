"""Whoever holds the event loop is measured and named: a call that keeps everything else waiting.

A thread asks the loop for a sign twenty times a second. Where none comes for a while it looks at what the loop's thread
is doing, and when the sign comes after all it is known for how long nothing else could run. The asking costs some 20 µs
of the loop's time, and nothing is added to what runs in it.

Each place in the code is named once. A process that got no processor was not held by anybody: then the watching thread
was late too, and the process used no processor time meanwhile. Modules that are being imported are named only where
they take seconds: everything is imported once.
"""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from attrs import define, field, frozen

from proctor.runtime.backend import Waker, in_real_time, loop_clock

logger: Final = logging.getLogger(__name__)

HELD: Final = 0.25
"""Seconds for which a call may hold the loop without being named."""
PERIOD: Final = 0.05
"""Seconds between two questions, and between two looks at who does not answer."""
LONG: Final = 10.0
"""Seconds after which a call that still holds the loop is named before it ends."""
IMPORTING: Final = 2.0
"""Seconds for which modules may be imported without being named."""
STARVED: Final = 0.2
"""Share of a processor below which a process that was late with everything was only not given any."""
INSTALLED: Final = tuple(sysconfig.get_paths()[name] for name in ("purelib", "platlib"))
STANDARD: Final = ("<", *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")))
ENGINE: Final = str(Path(__file__).resolve().parent.parent)


@frozen
class Place:
    """Where a call was when it held the loop.

    Attributes:
        function: its name. file, line: where it is and how far it had come.
        importing: modules were being imported.
    """

    function: str
    file: str
    line: int
    importing: bool = False


@define(eq=False)
class LoopWatch:
    """Watches one loop from a thread.

    Attributes:
        now: the loop's clock. wake: calls something in the loop. thread: the loop's.
        named: the places that were named.
    """

    now: Callable[[], float]
    wake: Callable[[Callable[[], object]], None]
    thread: int
    named: set[tuple[str, str]] = field(factory=set, init=False)
    _ended: threading.Event = field(factory=threading.Event, init=False)
    _answered: threading.Event = field(factory=threading.Event, init=False)
    _late: float = field(default=0.0, init=False)  # seconds by which the watching itself was late

    def run(self) -> None:
        """Ask and look until told to stop."""
        while not self._ended.wait(PERIOD):
            self._answered.clear()
            asked, used = self.now(), processor_seconds()
            self._late = 0.0
            self.wake(self._answered.set)
            self._wait_for_answer(asked, used)

    def stop(self) -> None:
        """Let the thread end."""
        self._ended.set()
        self._answered.set()

    def _wait_for_answer(self, asked: float, used: float) -> None:
        seen: Place | None = None
        told = False
        while not self._answered.is_set():
            before = self.now()
            if self._answered.wait(PERIOD):
                break
            self._late += max(0.0, self.now() - before - 2 * PERIOD)
            seen = self._look() or seen
            if not told and self.now() - asked > LONG:
                told = True
                self._tell(seen, self.now() - asked, "has held")
        took = self.now() - asked
        if told or self._ended.is_set() or took < HELD - PERIOD:
            return
        starved = self._late > took / 2 and processor_seconds() - used < STARVED * took
        if not starved:
            self._tell(seen, took, "held")

    def _look(self) -> Place | None:
        frame = sys._current_frames().get(self.thread)
        return None if frame is None else place_of(frame)

    def _tell(self, place: Place | None, seconds: float, verb: str) -> None:
        if place is None or (place.importing and seconds < IMPORTING):
            return
        key = (place.file, place.function)
        if key in self.named:
            return
        self.named.add(key)
        logger.warning(
            "%s (%s, line %d) %s the event loop for %.1f s: nothing else could run meanwhile. "
            "Await instead, or call what blocks in a thread (anyio.to_thread.run_sync).",
            place.function,
            place.file,
            place.line,
            verb,
            seconds,
        )


def processor_seconds() -> float:
    """Processor time of this process so far, to a hundredth of a second."""
    used = os.times()
    return used.user + used.system


def place_of(innermost: FrameType) -> Place:
    """Which call it is: the innermost of user code, else what of an installed package the engine called, or itself."""
    found, importing = innermost, False
    frame: FrameType | None = innermost
    installed = False
    while frame is not None:
        file = frame.f_code.co_filename
        importing = importing or file.startswith("<frozen importlib")
        if file.startswith(ENGINE):
            return _place(found if installed else frame, importing)
        if file.startswith(INSTALLED):
            found, installed = frame, True
        elif not file.startswith(STANDARD):
            return _place(frame, importing)
        frame = frame.f_back
    return _place(innermost, importing)


def _place(frame: FrameType, importing: bool) -> Place:
    return Place(frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno, importing)


@contextmanager
def loop_watched() -> Iterator[LoopWatch | None]:
    """Watch the running loop for the block; None where its time is not the real one."""
    if not in_real_time():
        yield None
        return
    watch = LoopWatch(loop_clock(), Waker(), threading.get_ident())
    thread = threading.Thread(target=watch.run, name="proctor loop watch", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        watch.stop()
        thread.join(1.0)
