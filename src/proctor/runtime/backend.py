"""Which event loop runs, and the few things anyio does not give: the one module that names asyncio and trio.

`run` starts a loop and is the public edge: groups of one exception are collapsed here and nowhere else, and a Ctrl-C
comes out as `KeyboardInterrupt` whatever the backend wrapped it in. trio is told to deliver its interrupt at
checkpoints only: elsewhere it would tear a limiter's synchronous step in two.

Called while a loop runs in this thread (a notebook), `run` starts its loop in a thread of its own and waits for it.
Rejected: patching the running loop to allow nesting (nest_asyncio), which breaks its host in ways nobody can mend. The
main thread then keeps what only it can have, the interrupt, and relays it (`Relay`).
"""

from __future__ import annotations

import concurrent.futures
import contextvars
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from types import FrameType, MappingProxyType
from typing import Any, Final, Literal, TypeVar, TypeVarTuple, cast

import anyio
from anyio._core._eventloop import claim_worker_thread, set_current_async_library, threadlocals
from anyio.lowlevel import EventLoopToken, current_token
from attrs import define, field

from proctor.runtime.collector import seldom_collected
from proctor.runtime.current import forget_surroundings
from proctor.runtime.settings import async_backend

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
BackendName = Literal["asyncio", "trio"]

PLAIN_GROUPS: Final = (ExceptionGroup, BaseExceptionGroup)
OPTIONS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {"asyncio": {}, "trio": {"restrict_keyboard_interrupt_to_checkpoints": True}}
)


def current_backend() -> BackendName | None:
    """The backend whose loop runs in this thread, None when none does."""
    if _trio_runs():
        return "trio"
    return "asyncio" if _asyncio_runs() else None


def loop_clock() -> Callable[[], float]:
    """What `anyio.current_time` asks in the running loop, found once: asking it takes a tenth of the time.

    For an object that reads the clock often and lives in one loop; virtual time is seen through it as well.
    """
    if _trio_runs():
        found = sys.modules["trio"].lowlevel.current_clock().current_time
    elif _asyncio_runs():
        found = sys.modules["asyncio"].get_running_loop().time
    else:
        found = anyio.current_time
    return cast("Callable[[], float]", found)


def in_real_time() -> bool:
    """Whether the running loop goes by the machine's clock, and not by a test's."""
    if _trio_runs():
        clock = sys.modules["trio"].lowlevel.current_clock()
        return type(clock).__name__ == "SystemClock"
    if _asyncio_runs():
        asyncio = sys.modules["asyncio"]
        loop = type(asyncio.get_running_loop())
        return not issubclass(loop, asyncio.BaseEventLoop) or loop.time is asyncio.BaseEventLoop.time
    return False


def lends_daemon_threads() -> bool:
    """Whether the running backend's own worker threads are daemons, which hold no exit of the process.

    trio's are. Those that anyio starts on asyncio are not.
    """
    return _trio_runs()


def _trio_runs() -> bool:
    trio = sys.modules.get("trio")  # one that is not imported does not run, and importing it takes 86 ms
    return trio is not None and bool(trio.lowlevel.in_trio_run())


def _asyncio_runs() -> bool:
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def foreign_call_hint(error: BaseException) -> str | None:
    """What to tell a user whose code called one event loop's own functions under the other; None for other errors.

    Only the errors that the two raise for it are known by their text: an asyncio future reached trio, a trio function
    was called outside of trio, or asyncio found no loop of its own.
    """
    backend, text = current_backend(), str(error)
    if backend == "trio" and (
        (isinstance(error, RuntimeError) and ("no running event loop" in text or "no current event loop" in text))
        or (isinstance(error, TypeError) and "unrecognized yield message" in text)
    ):
        return (
            "this code calls asyncio, but the run is on trio: use anyio or proctor.util.collect, "
            "or run on asyncio (PROCTOR_ASYNC_BACKEND=asyncio)"
        )
    if backend == "asyncio" and isinstance(error, RuntimeError) and text == "must be called from async context":
        return "this code calls trio, but the run is on asyncio: use anyio, or run on trio (PROCTOR_ASYNC_BACKEND=trio)"
    return None


def run(
    function: Callable[[*Ts], Awaitable[T]],
    *args: *Ts,
    backend: str | None = None,
) -> T:
    """Run an async function in a loop of its own and return its result.

    Works in any thread, also in one whose loop is running (then in another thread, for which this one waits). The new
    loop sees the caller's context variables, but neither its runtime nor its sample.

    Args:
        backend: asyncio or trio; default `PROCTOR_ASYNC_BACKEND`, `INSPECT_ASYNC_BACKEND`, asyncio.

    Raises:
        OptionError: the backend is neither.
        KeyboardInterrupt: the run was interrupted.
    """
    name = async_backend(backend).value
    context = contextvars.copy_context()
    context.run(forget_surroundings)
    if current_backend() is None:
        with seldom_collected():
            return context.run(_run_here, function, args, name)
    return _run_in_thread(context, function, args, name)


def _run_here(function: Callable[..., Awaitable[T]], args: tuple[Any, ...], name: str) -> T:
    try:
        return anyio.run(function, *args, backend=name, backend_options=dict(OPTIONS[name]))
    except BaseExceptionGroup as group:
        error = collapse(group)
    raise error


def collapse(error: BaseException) -> BaseException:
    """What a caller should see of an exception that crossed nurseries.

    A group that holds a Ctrl-C is that Ctrl-C, the rest its context. A group of one is its one, with the group's
    notes; a class of group with a meaning of its own (`SupervisorExhausted`) stays. Anything else is returned as it is.
    """
    if isinstance(error, BaseExceptionGroup):
        interrupts, rest = error.split(KeyboardInterrupt)
        if interrupts is not None:
            interrupt = next(_leaves(interrupts))
            interrupt.__context__ = rest
            return interrupt
    while isinstance(error, BaseExceptionGroup) and type(error) in PLAIN_GROUPS and len(error.exceptions) == 1:
        notes = getattr(error, "__notes__", ())
        error = error.exceptions[0]
        for note in notes:
            error.add_note(note)
    return error


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


# Waking a loop from outside it.


@define(eq=False)
class Waker:
    """Runs a function soon in the loop it was made in; called from any thread, and from a signal handler."""

    _token: EventLoopToken = field(factory=current_token, init=False)

    def __call__(self, function: Callable[[*Ts], object], *args: *Ts) -> None:
        with suppress(anyio.RunFinishedError):
            self._token.backend_class.run_sync_soon(function, args, self._token.native_token)


# Interrupts of a run whose loop is in another thread than the main one.


@define(eq=False)
class Relay:
    """Passes signals that the main thread took on to whoever handles them in the other thread.

    Attributes:
        subscribers: called with the signal's number, in the main thread, from the signal handler.
        interrupted: a signal arrived that nobody handled; the run was cancelled.
    """

    subscribers: list[Callable[[int], None]] = field(factory=list, init=False)
    cancel: Callable[[], None] | None = field(default=None, init=False)
    interrupted: int = field(default=0, init=False)

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        """The signal handler."""
        if self.subscribers:
            for subscriber in tuple(self.subscribers):
                subscriber(number)
            return
        self.interrupted += 1
        if self.interrupted > 1 or self.cancel is None:
            raise KeyboardInterrupt
        self.cancel()


current_relay: Final[ContextVar[Relay | None]] = ContextVar("proctor_relay", default=None)


def in_main_thread() -> bool:
    """Whether this is the thread that may set signal handlers."""
    return threading.current_thread() is threading.main_thread()


@contextmanager
def signal_handlers(handle: Callable[[int, FrameType | None], None], *numbers: int) -> Iterator[None]:
    """Handle signals for the block and put the old handlers back. For the main thread.

    A handler that was not set from Python cannot be put back; it is left in place, and so unhandled here.
    """
    before = {number: signal.getsignal(number) for number in numbers}
    before = {number: old for number, old in before.items() if old is not None}
    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _run_in_thread(
    context: contextvars.Context, function: Callable[..., Awaitable[T]], args: tuple[Any, ...], name: str
) -> T:
    relay = context.get(current_relay) or Relay()
    outcome: list[Callable[[], T]] = []
    ended = threading.Event()

    def work() -> None:
        try:
            result = _run_here(_relayed, (relay, function, args), name)
            outcome.append(lambda: result)
        except BaseException as error:
            outcome.append(lambda error=error: _raise(error))  # type: ignore[misc]
        finally:
            ended.set()

    context.run(current_relay.set, relay)
    context.run(forget_library)
    thread = threading.Thread(target=context.run, args=(work,), name=f"proctor run on {name}", daemon=True)
    if in_main_thread():
        with signal_handlers(relay, signal.SIGINT):
            thread.start()
            ended.wait()
    else:
        thread.start()
        ended.wait()
    thread.join()
    if relay.interrupted:
        raise KeyboardInterrupt
    return outcome[0]()


async def _relayed(relay: Relay, function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    waker = Waker()
    before = relay.cancel
    with anyio.CancelScope() as scope:
        relay.cancel = lambda: waker(scope.cancel)
        try:
            return await function(*args)
        finally:
            relay.cancel = before
    return cast("T", None)  # cancelled by the relay; the thread that waits raises KeyboardInterrupt


def _raise(error: BaseException) -> Any:
    raise error


# anyio keeps in private places that a loop runs here, and to which loop a worker thread belongs.


def forget_library() -> None:
    """Clear in this context that a loop runs, for a thread where none does."""
    set_current_async_library(None)


@contextmanager
def worker_thread_of(token: EventLoopToken, scope: anyio.CancelScope) -> Iterator[None]:
    """Make `anyio.from_thread` work in this thread of ours as it does in anyio's, on asyncio.

    Args:
        token: the loop that called the thread; scope: what cancels the calling task.
    """
    with claim_worker_thread(token.backend_class, token.native_token):
        threadlocals.current_cancel_scope = scope
        try:
            yield
        finally:
            del threadlocals.current_cancel_scope


@define(eq=False)
class CallBacks:
    """What the code in one of trio's threads calls back into the loop with `anyio.from_thread.run`.

    trio runs what comes from a thread that may be abandoned in a task of its own, which is not cancelled with the
    thread's caller as it is on asyncio. This stands between the two: anyio finds it where it looks for the backend.
    """

    _token: EventLoopToken = field(factory=current_token, init=False)
    _running: set[anyio.CancelScope] = field(factory=set, init=False)
    _cancelled: bool = field(default=False, init=False)

    def join(self) -> None:
        """Called in the worker thread: from now on its calls back are joined to the caller."""
        threadlocals.current_token = EventLoopToken(cast("Any", self), self._token.native_token)

    def cancel(self) -> None:
        """The caller has left: cancel what runs, and what is called back later."""
        self._cancelled = True
        for scope in self._running:
            scope.cancel()

    def run_async_from_thread(self, function: Callable[..., Awaitable[T]], args: tuple[Any, ...], token: object) -> T:
        """What anyio calls."""
        backend: Any = self._token.backend_class
        result: T = backend.run_async_from_thread(self._run, (function, args), token)
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self._token.backend_class, name)

    async def _run(self, function: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
        with anyio.CancelScope() as scope:
            self._running.add(scope)
            if self._cancelled:
                scope.cancel()
            try:
                return await function(*args)
            finally:
                self._running.discard(scope)
        raise concurrent.futures.CancelledError("the caller of this thread was cancelled")  # as on asyncio
