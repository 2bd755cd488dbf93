"""Whoever holds the event loop is measured and named: a call that keeps everything else waiting.

A thread asks the loop for a sign twenty times a second. Where none comes for a while it looks at what the loop's thread
is doing, and when the sign comes after all it is known for how long nothing else could run. The asking costs some 20 µs
of the loop's time, and nothing is added to what runs in it.

Each place in the code is named once, the engine's own only for those who read messages of level info. A process that
got no processor was not held by anybody: then the watching thread was late too, and the process used no processor time
meanwhile. Modules that are being imported are named only where they take seconds: everything is imported once.
"""

from __future__ import annotations

import logging
import os
import sys
import sysconfig
import threading
from collections import Counter
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
STANDARD: Final = (
    "<",
    *(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib")),
)
LOOPS: Final = tuple(f"{folder}{os.sep}{name}{os.sep}" for folder in INSTALLED for name in ("anyio", "trio", "outcome"))
"""What runs the loop is nobody who holds it."""
ENGINE: Final = str(Path(__file__).resolve().parent.parent)


@frozen
class Place:
    """Where a call was when it held the loop.

    Attributes:
        function: its name. file, line: where it is and how far it had come.
        importing: modules were being imported. ours: it is the engine's own, of which no user can do anything.
    """

    function: str
    file: str
    line: int
    importing: bool = False
    ours: bool = False


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
    _asked: float = field(default=0.0, init=False)
    _answered: float = field(default=0.0, init=False)  # when, in the loop's time; 0 while it has not
    _told: bool = field(default=False, init=False)

    def run(self) -> None:
        """Ask and look until told to stop."""
        late = 0.0
        seen: Counter[Place] = Counter()
        before, used = self._ask(), processor_seconds()
        while not self._ended.wait(PERIOD):
            now = self.now()
            late += max(0.0, now - before - 2 * PERIOD)
            before = now
            if self._answered:
                if self._answered - self._asked >= HELD - PERIOD:
                    self._judge(longest(seen), late, processor_seconds() - used)
                seen, late = Counter(), 0.0
                before, used = self._ask(), processor_seconds()
                continue
            if (place := self._look()) is not None:
                seen[place] += 1
            if not self._told and now - self._asked > LONG:
                self._told = True
                self._tell(longest(seen), now - self._asked, "has held")

    def stop(self) -> None:
        """Let the thread end."""
        self._ended.set()

    def _ask(self) -> float:
        self._answered, self._told = 0.0, False
        self._asked = now = self.now()
        self.wake(self._answer)
        return now

    def _answer(self) -> None:
        self._answered = self.now()

    def _judge(self, place: Place | None, late: float, used: float) -> None:
        took = self._answered - self._asked
        starved = late > took / 2 and used < STARVED * took
        if not self._told and not starved:
            self._tell(place, took, "held")

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
        logger.log(
            logging.INFO if place.ours else logging.WARNING,
            "%s (%s, line %d) %s the event loop for %.1f s: nothing else could run meanwhile. "
            "Code that takes long belongs in a thread (anyio.to_thread.run_sync).",
            place.function,
            place.file,
            place.line,
            verb,
            seconds,
        )


def longest(seen: Counter[Place]) -> Place | None:
    """Of the places that were seen while the loop was held that of the call seen most often, as it was seen last.

    The last one alone may be of those who only came after whom all had waited for.
    """
    calls: Counter[tuple[str, str]] = Counter()
    for place, times in seen.items():
        calls[place.file, place.function] += times
    if not calls:
        return None
    most = calls.most_common(1)[0][0]
    return [place for place in seen if (place.file, place.function) == most][-1]


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
            return _place(found, importing) if installed else _place(frame, importing, ours=True)
        if file.startswith(INSTALLED) and not file.startswith(LOOPS):
            found, installed = frame, True
        elif not file.startswith((*STANDARD, *LOOPS)):
            return _place(frame, importing)
        frame = frame.f_back
    return _place(innermost, importing, ours=True)


def _place(frame: FrameType, importing: bool, *, ours: bool = False) -> Place:
    return Place(frame.f_code.co_qualname, frame.f_code.co_filename, frame.f_lineno, importing, ours)


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
