"""What a run in virtual time does when nothing can run: hold, wake, jump or give up.

Both clocks (`asyncio_clock`, `trio_clock`) ask one `Watch` at that moment, so that the rules are the same on
every backend. In this order:

1. A worker thread is at work: time stands still and the loop really waits, for at most `patience` real seconds
   in which no thread ends or starts; threads that take longer are counted as stuck and no longer waited for
   (but once more before 5).
   (Jumping at once, as trio's own autojump does, would let every timeout around a thread fire.)
2. Observers look at the settled state (the Monitor's checks).
3. Tasks in `settle()` are woken, at the same virtual instant. anyio's ``wait_all_tasks_blocked`` cannot serve:
   on asyncio it sleeps, and so moves virtual time.
4. A timer that is not of the background is pending: time jumps to the next one.
5. Nothing can ever happen: the run is cancelled and `VirtualDeadlock` raised with who waits for what. Raising
   from inside the loop would tear it down under the tasks' feet, so that is kept for tasks that do not end when
   they are cancelled.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal

import anyio
from attrs import define, field

Verdict = Literal["hold", "run", "jump"]

ENDING: Final = 5.0
"""Real seconds that what is left of a loop may take to end."""

current_watch: ContextVar[Watch | None] = ContextVar("current_watch", default=None)
in_background: ContextVar[bool] = ContextVar("in_background", default=False)


class VirtualDeadlock(AssertionError):
    """In virtual time nothing can run and no timer is pending: the run would hang for ever.

    Also raised for a run that takes more real time than it may (a task that spins without ever waiting).
    """


@define(eq=False)
class Watch:
    """The state of one run in virtual time.

    Attributes:
        patience: real seconds to wait for a worker thread while nothing else happens.
        timeout: real seconds the run may take.
        describe: the text of a deadlock: tasks and leases with what they wait for.
        failure: what the run ends with whatever it returns.
        observers: called whenever nothing is runnable, before time moves.
        background_used: some timer may be marked as background, so they must be told apart.
    """

    patience: float
    timeout: float
    describe: Callable[[], str] = field(kw_only=True)
    failure: BaseException | None = field(init=False, default=None)
    observers: list[Callable[[], None]] = field(init=False, factory=list)
    background_used: bool = field(init=False, default=False)
    scope: anyio.CancelScope | None = field(init=False, default=None)
    closing: bool = field(init=False, default=False)
    _settling: list[anyio.Event] = field(init=False, factory=list)
    _outside: int = field(init=False, default=0)
    _started: float = field(init=False, factory=time.monotonic)
    _busy: int = field(init=False, default=0)
    _stuck: int = field(init=False, default=0)
    _busy_since: float = field(init=False, default=0.0)
    _quiet_since: float | None = field(init=False, default=None)
    _ending_since: float | None = field(init=False, default=None)

    def idle(self, *, timer: float, foreground: bool, busy: int) -> Verdict:
        """Decide what happens now that no task can run.

        Args:
            timer: when the next timer is due, infinity if none is.
            foreground: some pending timer is not of the background.
            busy: worker threads at work for this loop.

        Raises:
            VirtualDeadlock: the run was cancelled and does not end.
        """
        if self._waits_for_threads(busy + self._outside):
            return "hold"
        if self.closing:
            return "jump" if timer < math.inf else self._end()
        if self.failure is None:
            self._observe()
        if self._settling:
            woken, self._settling = self._settling, []
            for event in woken:
                event.set()
            return "run"
        if foreground and timer < math.inf:
            self._quiet_since = None
            return "jump"
        if busy and self._stuck_threads_may_end():
            return "hold"
        if self.failure is not None and timer == math.inf:
            raise self.failure
        self.fail(VirtualDeadlock(self.describe()))
        return "run"

    def fail(self, failure: BaseException) -> None:
        """Cancel the run and let it end with `failure`; the first failure is kept."""
        if self.failure is None:
            self.failure = failure
            if self.scope is not None:
                self.scope.cancel()

    def check_real_time(self) -> None:
        """Fail the run when it has taken more real time than it may."""
        if time.monotonic() - self._started > self.timeout and self.failure is None and not self.closing:
            text = f"the run took more than {self.timeout:g} s of real time: a task spins, or threads are slow"
            self.fail(VirtualDeadlock(f"{text}\n{self.describe()}"))

    async def settle(self) -> None:
        """Wait until nothing but the waiters here is runnable at the present instant."""
        event = anyio.Event()
        self._settling.append(event)
        try:
            await event.wait()
        finally:
            if event in self._settling:
                self._settling.remove(event)

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Hold virtual time as if a worker thread were at work: something outside will call back."""
        self._outside += 1
        try:
            yield
        finally:
            self._outside -= 1

    def _observe(self) -> None:
        for observer in list(self.observers):
            try:
                observer()
            except BaseException as error:
                self.fail(error)

    def _waits_for_threads(self, busy: int) -> bool:
        now = time.monotonic()
        if busy != self._busy:
            self._busy, self._busy_since = busy, now
        self._stuck = min(self._stuck, busy)
        if busy > self._stuck and now - self._busy_since > self.patience:
            self._stuck = busy
        return busy > self._stuck

    def _stuck_threads_may_end(self) -> bool:
        """With nothing else to wait for, threads that were given up get the same patience once more."""
        now = time.monotonic()
        if self._quiet_since is None:
            self._quiet_since = now
        return now - self._quiet_since <= self.patience

    def _end(self) -> Verdict:
        now = time.monotonic()
        if self._ending_since is None:
            self._ending_since = now
        if now - self._ending_since > ENDING:
            raise self.failure or VirtualDeadlock(f"tasks outside the run do not end\n{self.describe()}")
        return "hold"


async def settle() -> None:
    """Wait until nothing is runnable at the present instant of virtual time, worker threads included.

    Virtual time does not move. Tasks that call it at the same time are woken together.

    Raises:
        RuntimeError: the caller does not run in `run_virtual`.
    """
    await _watch("settle()").settle()


@contextmanager
def at_idle(observer: Callable[[], None]) -> Iterator[None]:
    """Call `observer` in this block whenever nothing is runnable, before virtual time moves.

    What it raises ends the run.

    Raises:
        RuntimeError: the caller does not run in `run_virtual`.
    """
    observers = _watch("at_idle()").observers
    observers.append(observer)
    try:
        yield
    finally:
        observers.remove(observer)


@contextmanager
def background() -> Iterator[None]:
    """Mark the timers of this block, and of the tasks started in it, as background.

    A display that redraws every second would keep virtual time going for ever; the watchdog calls a run
    deadlocked when only background timers are pending.

    Raises:
        RuntimeError: the caller does not run in `run_virtual`.
    """
    _watch("background()").background_used = True
    token = in_background.set(True)
    try:
        yield
    finally:
        in_background.reset(token)


@contextmanager
def outside() -> Iterator[None]:
    """Hold virtual time in this block: something outside the loop (a process, a thread of one's own) is at work.

    Raises:
        RuntimeError: the caller does not run in `run_virtual`.
    """
    with _watch("outside()").outside():
        yield


def _watch(name: str) -> Watch:
    watch = current_watch.get()
    if watch is None:
        raise RuntimeError(f"{name} works only in virtual time: start the test with proctor.testing.run_virtual")
    return watch
