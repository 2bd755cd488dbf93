"""An asyncio event loop in virtual time.

The selector polls real descriptors without waiting, and when nothing is ready the loop's clock is set to the
next timer. Timers of one instant run in the order in which they were made (asyncio's heap compares only their
time, which leaves ties to the heap's shape).
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import selectors
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, TypeVarTuple

from proctor.testing.threads import asyncio_threads_at_work
from proctor.testing.watch import Watch, in_background

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

Args = TypeVarTuple("Args")

POLL: Final = 0.005
"""Real seconds between two looks at the worker threads; a result wakes the loop at once."""


class VirtualTimer(asyncio.TimerHandle):
    """A timer that knows its sequence number and whether it belongs to the background."""

    __slots__ = ("background", "sequence")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self.sequence = loop.next_sequence()
        self.background = in_background.get()

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, VirtualTimer):
            return NotImplemented
        return (self.when(), self.sequence) < (other.when(), other.sequence)


class VirtualSelector(selectors.BaseSelector):
    """Polls real descriptors; instead of waiting for a timer it asks the loop to go on to it."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.idle: Callable[[], float] = lambda: 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = self._real.select(0)
        if events or (timeout is not None and timeout <= 0):
            return events
        wait = self.idle()
        return self._real.select(wait) if wait > 0 else events

    def register(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: FileDescriptorLike) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: FileDescriptorLike, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[FileDescriptorLike, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """The loop: its time starts at 0 and moves only when nothing can run."""

    def __init__(self, watch: Watch) -> None:
        self._virtual_now = 0.0
        self._watch = watch
        self._sequence = itertools.count()
        selector = VirtualSelector()
        super().__init__(selector)
        selector.idle = self._idle

    def time(self) -> float:
        return self._virtual_now

    def call_at(
        self, when: float, callback: Callable[[*Args], object], *args: *Args, context: Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()  # type: ignore[attr-defined]
        timer = VirtualTimer(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    def next_sequence(self) -> int:
        """Number the timers."""
        return next(self._sequence)

    def _run_once(self) -> None:
        self._watch.check_real_time()
        super()._run_once()  # type: ignore[misc]

    def _idle(self) -> float:
        """Act on the watch's verdict; return the real seconds to wait for descriptors."""
        busy = asyncio_threads_at_work(self)
        if self._ready:  # type: ignore[attr-defined]  # a thread called back after descriptors were polled
            return 0.0
        scheduled: list[VirtualTimer] = self._scheduled  # type: ignore[attr-defined]
        timer = scheduled[0].when() if scheduled else math.inf
        foreground = not self._watch.background_used or any(
            not t.background and not t.cancelled() and t.when() < math.inf for t in scheduled
        )
        verdict = self._watch.idle(timer=timer, foreground=foreground, busy=busy)
        if verdict == "jump":
            self._virtual_now = timer
            # asyncio runs what is due before now + resolution; far from 0 the sum must still differ from now.
            self._clock_resolution = max(1e-9, math.ulp(timer))
        return POLL if verdict == "hold" else 0.0


def eager_task_factory() -> Any:
    """asyncio's factory of tasks that start at once (Python 3.12 and later)."""
    return getattr(asyncio, "eager_task_factory")  # noqa: B009  (absent from the type stubs of 3.11)


def loop_factory(watch: Watch, *, eager: bool) -> Callable[[], asyncio.AbstractEventLoop]:
    """A factory of virtual loops for `anyio.run`."""

    def make() -> asyncio.AbstractEventLoop:
        loop = VirtualLoop(watch)
        if eager:
            loop.set_task_factory(eager_task_factory())
        return loop

    return make


def real_eager_loop() -> asyncio.AbstractEventLoop:
    """An ordinary loop with the eager task factory, for tests in real time."""
    loop = asyncio.new_event_loop()
    loop.set_task_factory(eager_task_factory())
    return loop
