"""Threads for blocking calls: those of the engine and those of user code, kept apart.

Two pools with limits of their own, because forty stuck scorers must not stop the log (anyio's default limiter is
shared by every library in the process, which is why neither pool uses it).

*Engine threads* do the engine's own blocking work. A cancelled caller waits for the end of the call, so that a file is
never written behind the back of the one who closes it; but at most `patience` seconds, since a dead disk must not hold
the end of a run.

*User threads* run code that we know nothing of. They are daemon threads, a cancelled caller leaves at once, and the
call goes on as long as it likes: nothing can stop a thread from outside. Such an abandoned call keeps its place in the
limit until it ends, by lowering the limit meanwhile; otherwise a stuck function under a time limit would add a thread
with every sample. What still runs when the runtime closes is named.

On asyncio the threads are ours: anyio's are no daemons, and one that is abandoned holds the exit of the process. On
trio they are trio's own, which are daemons and kept by trio. `anyio.from_thread` works in both.
"""

from __future__ import annotations

import contextvars
import logging
import math
import queue
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar, TypeVarTuple, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled, current_token
from attrs import define, field

from proctor.actors import Ledger, Limiter
from proctor.actors.ranks import holding_nothing
from proctor.runtime.backend import CallBacks, Waker, forget_library, lends_daemon_threads, worker_thread_of
from proctor.runtime.ranks import THREAD

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger: Final = logging.getLogger(__name__)

IDLE_SECONDS: Final = 10.0
"""How long an idle thread waits for work before it ends; anyio and trio use the same."""
JOIN_SECONDS: Final = 1.0
"""A bound on waiting for an idle thread to end, which takes some 50 µs."""


@define(eq=False)
class Call:
    """One call in a thread.

    Attributes:
        name: the function and where it is defined.
        done: called in the loop, once, when the function has ended or will never begin.
        began: `anyio.current_time` when it was handed to the thread.
        ended: set in the loop together with `done`.
        abandoned: its caller has left.
    """

    name: str
    done: Callable[[Call], object]
    began: float = field(factory=anyio.current_time, init=False)
    ended: anyio.Event = field(factory=anyio.Event, init=False)
    abandoned: bool = field(default=False, init=False)
    _claim: threading.Lock = field(factory=threading.Lock, init=False)
    _result: Any = field(default=None, init=False)
    _error: BaseException | None = field(default=None, init=False)

    def execute(self, function: Callable[[], object]) -> None:
        """Run in the thread, unless it was withdrawn; the outcome is kept."""
        if not self._claim.acquire(blocking=False):
            return
        try:
            with holding_nothing():  # a call back takes its leases in an order of its own
                self._result = function()
        except BaseException as error:
            self._error = error

    def withdraw(self) -> None:
        """Give up a call that no thread has begun; without effect on one that has."""
        if self._claim.acquire(blocking=False):
            self.end()

    def end(self) -> None:
        """The thread is done with it; called in the loop."""
        if not self.ended.is_set():
            self.ended.set()
            self.done(self)

    def outcome(self) -> Any:
        """What the function returned, or its exception raised."""
        result, error = self._result, self._error
        self._result = self._error = None
        try:
            if isinstance(error, StopIteration):  # a coroutine may not raise it
                raise RuntimeError(f"{self.name} raised StopIteration") from error
            if error is not None:
                raise error
            return result
        finally:
            del error  # its traceback refers to this frame


class Worker(threading.Thread):
    """A daemon thread that takes calls from its own queue, one at a time.

    `loop`, `stopping` and `idle_workers` are named as anyio's are, so that the virtual clock sees which are at work.
    """

    def __init__(self, name: str, idle_workers: deque[Worker]) -> None:
        super().__init__(name=name, daemon=True)
        self.token = current_token()
        self.loop = self.token.native_token
        self.idle_workers = idle_workers
        self.stopping = False
        self.work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def run(self) -> None:
        while (job := self._next()) is not None:
            job()
            del job  # keeps alive what it refers to while this thread waits

    def _next(self) -> Callable[[], None] | None:
        while True:
            try:
                return self.work.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with suppress(ValueError):
                    self.idle_workers.remove(self)
                    return None  # nobody else can hand it work now


@define(eq=False)
class Pool:
    """Starts threads and keeps idle ones; how many run at once is for its users to limit."""

    name: str
    _idle: deque[Worker] = field(factory=deque, init=False)
    _workers: set[Worker] = field(factory=set, init=False)
    _unlimited: anyio.CapacityLimiter = field(factory=lambda: anyio.CapacityLimiter(math.inf), init=False)
    _waker: Waker = field(factory=Waker, init=False)

    async def start(self, call: Call, function: Callable[[], object]) -> None:
        """Run `function` in a thread and return when it has ended, or with the caller's cancellation at once."""
        try:
            await checkpoint_if_cancelled()
            if lends_daemon_threads():
                await self._start_lent(call, function)
            else:
                await self._start_own(call, function)
        except BaseException:
            call.withdraw()
            raise

    async def _start_lent(self, call: Call, function: Callable[[], object]) -> None:
        call_backs = CallBacks()

        def work() -> None:
            call_backs.join()
            call.execute(function)
            self._waker(call.end)

        try:
            await anyio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._unlimited)
            await call.ended.wait()
        except BaseException:
            call_backs.cancel()
            raise

    async def _start_own(self, call: Call, function: Callable[[], object]) -> None:
        context = contextvars.copy_context()
        context.run(forget_library)
        with anyio.CancelScope() as scope:
            worker = self._worker()

            def job() -> None:
                with worker_thread_of(worker.token, scope):
                    context.run(call.execute, function)
                self._waker(self._ended, worker, call)

            worker.work.put(job)
            await call.ended.wait()

    def close(self) -> None:
        """Let idle threads end now and busy ones after their call."""
        for worker in self._workers:
            worker.stopping = True
            worker.work.put(None)
        for worker in self._idle:
            worker.join(JOIN_SECONDS)
        self._workers.clear()
        self._idle.clear()

    def _worker(self) -> Worker:
        with suppress(IndexError):
            return self._idle.pop()
        self._workers = {each for each in self._workers if each.is_alive()}
        worker = Worker(f"proctor {self.name}", self._idle)
        worker.start()
        self._workers.add(worker)
        return worker

    def _ended(self, worker: Worker, call: Call) -> None:
        if not worker.stopping:
            self._idle.append(worker)
        call.end()


def describe(function: Callable[..., object]) -> str:
    """A function's name and where it is defined."""
    inner: Any = function
    while (wrapped := getattr(inner, "func", None) or getattr(inner, "__wrapped__", None)) is not None:
        inner = wrapped
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    name = getattr(inner, "__qualname__", None) or type(inner).__qualname__
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code is not None else str(name)


@define(eq=False)
class EngineThreads:
    """The pool for the engine's own blocking calls.

    Args:
        limit: threads at once. patience: seconds that a cancelled caller waits for the end of its call.
    """

    limit: int
    patience: float = 30.0
    _pool: Pool = field(factory=lambda: Pool("engine thread"), init=False)
    _limiter: anyio.CapacityLimiter = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._limiter = anyio.CapacityLimiter(self.limit)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call `function` in a thread; a cancelled caller leaves when it has ended, or after `patience`."""
        borrower = object()
        await self._limiter.acquire_on_behalf_of(borrower)
        call = Call(describe(function), lambda _: self._limiter.release_on_behalf_of(borrower))
        try:
            await self._pool.start(call, lambda: function(*args))
        except anyio.get_cancelled_exc_class():
            await self._await_end(call)
            raise
        return cast("T", call.outcome())

    async def _await_end(self, call: Call) -> None:
        with anyio.move_on_after(self.patience, shield=True):
            await call.ended.wait()
        if not call.ended.is_set():
            logger.warning("%s did not end within %g s after it was cancelled", call.name, self.patience)
            return
        try:
            call.outcome()
        except Exception:
            logger.warning("%s failed after it was cancelled", call.name, exc_info=True)

    def close(self) -> None:
        """Let the threads end."""
        self._pool.close()


@define(eq=False)
class UserThreads:
    """The pool for blocking user code.

    Args:
        limit: threads at once, abandoned ones included.
    """

    limit: int
    ledger: Ledger = field(factory=Ledger)
    limiter: Limiter = field(init=False)
    _pool: Pool = field(factory=lambda: Pool("user thread"), init=False)
    _running: set[Call] = field(factory=set, init=False)
    _abandoned: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.limiter = Limiter(self.limit, name="user threads", rank=THREAD, ledger=self.ledger)

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call `function` in a daemon thread; a cancelled caller leaves at once and the call goes on without it."""
        call = Call(describe(function), self._ended)
        async with self.limiter.lease():
            call.began = anyio.current_time()
            self._running.add(call)
            try:
                await self._pool.start(call, lambda: function(*args))
            finally:
                if not call.ended.is_set():
                    self._abandon(call)
        return cast("T", call.outcome())

    def resize(self, limit: int) -> None:
        """Change how many threads may run at once."""
        self.limit = limit
        self._fit()

    def running(self) -> list[Call]:
        """The calls that run just now, the longest first."""
        return sorted(self._running, key=lambda call: call.began)

    def close(self) -> list[str]:
        """Let idle threads end, and say what still runs."""
        self._pool.close()
        now = anyio.current_time()
        return [f"{call.name}, for {now - call.began:.1f} s" for call in self.running()]

    def _abandon(self, call: Call) -> None:
        call.abandoned = True
        self._abandoned += 1
        self._fit()
        if self._abandoned == self.limit:
            stuck = ", ".join(sorted({each.name for each in self._running}))
            logger.warning("all %d threads for user code run calls whose callers have left: %s", self.limit, stuck)

    def _ended(self, call: Call) -> None:
        self._running.discard(call)
        if call.abandoned:
            self._abandoned -= 1
            self._fit()

    def _fit(self) -> None:
        self.limiter.resize(max(0, self.limit - self._abandoned))
