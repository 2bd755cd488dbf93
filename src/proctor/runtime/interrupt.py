"""Ctrl-C and SIGTERM as phases of an ending, woken on both backends from the signal handler.

The first signal begins an orderly ending, the second a hurried one, the third ends the process (behaviour.md, 8). What
each phase does is the engine's; here they are counted, and whoever waits for one is woken. The handler itself does next
to nothing: it runs between two instructions of whatever the main thread was at.

Signals can be handled in the main thread only. A run whose loop is in another thread, because the main thread's own
loop is running (a notebook), gets them relayed by `backend.run`. Elsewhere (a thread of the user's) nothing is
installed and no phase ever comes.
"""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from types import FrameType
from typing import Any, Final

import anyio
import anyio.lowlevel
from attrs import define, field

from proctor.runtime.backend import Waker, current_relay, in_main_thread, signal_handlers

LAST: Final = 3
"""The phase in which the process ends."""


def exit_process(number: int) -> None:
    """End the process at once, with the status of a signal: 130 for SIGINT, 143 for SIGTERM."""
    os._exit(128 + number)


@define(eq=False)
class Interrupts:
    """The signals received so far.

    Attributes:
        phase: how many, 0 to 3.
        first: the number of the first one, None while there is none.
        began: `anyio.current_time` when the first was noticed in the loop, None before.
    """

    exit_now: Callable[[int], object] = exit_process
    phase: int = field(default=0, init=False)
    first: int | None = field(default=None, init=False)
    began: float | None = field(default=None, init=False)
    _waker: Waker = field(factory=Waker, init=False)
    _waiting: list[tuple[int, anyio.Event]] = field(factory=list, init=False)

    def __call__(self, number: int = signal.SIGINT, frame: FrameType | None = None) -> None:
        """Take one signal: go to the next phase. Callable from a signal handler and from any thread."""
        self.phase += 1
        if self.first is None:
            self.first = number
        if self.phase >= LAST:
            self.exit_now(number)
        self._waker(self._notice)

    @property
    def exit_status(self) -> int | None:
        """What the process should return for the first signal, None when there was none."""
        return None if self.first is None else 128 + self.first

    async def wait_phase(self, phase: int) -> None:
        """Return when `phase` has begun: 1 after the first signal, 2 after the second."""
        if self.phase >= phase:
            await anyio.lowlevel.checkpoint()
            return
        waiting = (phase, anyio.Event())
        self._waiting.append(waiting)
        try:
            await waiting[1].wait()
        finally:
            self._waiting.remove(waiting)

    def _notice(self) -> None:
        if self.began is None:
            self.began = anyio.current_time()
        for phase, event in self._waiting:
            if self.phase >= phase:
                event.set()


@asynccontextmanager
async def open_interrupts(
    signals: Sequence[int] = (signal.SIGINT,), *, exit_now: Callable[[int], object] = exit_process
) -> AsyncIterator[Interrupts]:
    """Handle signals for the block; the old handlers are put back at its end.

    Args:
        signals: which; the CLI adds SIGTERM. Empty: none, and `Interrupts` can be called by hand.
        exit_now: what the third signal does, with its number; it is called in the signal handler.
    """
    interrupts = Interrupts(exit_now)
    relay = current_relay.get()
    if relay is not None and signals:
        # The main thread waits in a host that must survive (a notebook's kernel): the third signal ends its wait.
        interrupts.exit_now = _leave
        relay.subscribers.append(interrupts)
        try:
            yield interrupts
        finally:
            relay.subscribers.remove(interrupts)
        return
    handling: Any = signal_handlers(interrupts, *signals) if signals and in_main_thread() else nullcontext()
    with handling:
        yield interrupts


def _leave(number: int) -> None:
    raise KeyboardInterrupt
