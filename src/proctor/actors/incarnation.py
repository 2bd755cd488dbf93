"""One life of an actor: its state, the nursery of its handlers, and how both end.

An incarnation is opened by its spec's context manager in a task of its own and is replaced, never revived. What lasts
over a restart (address, mailbox, pending requests, limiter) is in the shell, `proctor.actors.shell`.

Every task in here catches what it is left by and reports it (`blame`). Letting nurseries collect the errors was
rejected: which request an error belongs to would be lost, and a nursery that is cancelled natively drops the
cancellation without a trace. For the same reason a request's end never depends on its handler's task having run at
all: a native cancellation can end a task before its first step.

Ends are bounded. A handler, a discard hook and the closing of the context each may take `ChildSpec.bound` seconds
after they were cancelled. What takes longer is named in a warning and given up: the supervisor goes on without it,
and only the process can end it.
"""

from __future__ import annotations

import enum
import inspect
import logging
import math
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import anyio
from anyio.abc import TaskGroup
from attrs import define, field

from proctor.actors.bounded import leaves, wait_until, without_cancellations
from proctor.actors.context import ActorContext
from proctor.actors.request import Finish, Gone, Outcome, Raised, Request, RequestState, Stopped, Value, handling
from proctor.errors import Fault

if TYPE_CHECKING:
    from proctor.actors.shell import Shell

S = TypeVar("S")
logger = logging.getLogger(__name__)

NAG_INTERVAL: Final = 5.0
"""Seconds between two warnings about the same thing that resists its cancellation (architecture, section 3)."""


class Phase(enum.IntEnum):
    """How far an incarnation has come."""

    OPENING = 0
    OPEN = 1
    CLOSING = 2
    """It begins no more requests; what runs is ending or being cancelled."""
    DOWN = 3
    """No handler of it runs any more (or what runs was given up); its context is being closed."""
    ENDED = 4


@define(eq=False, repr=False)
class Incarnation(Generic[S]):
    """See the module. Made by the shell, run in a task of the supervisor's."""

    shell: Shell[S]
    number: int
    phase: Phase = field(default=Phase.OPENING, init=False)
    causes: list[BaseException] = field(factory=list, init=False)
    running: dict[int, Request] = field(factory=dict, init=False)
    opened_at: float = field(default=math.inf, init=False)
    opened: anyio.Event = field(factory=anyio.Event, init=False)
    """It is open, or will never be."""
    released: anyio.Event = field(factory=anyio.Event, init=False)
    """The next incarnation may open."""
    down: anyio.Event = field(factory=anyio.Event, init=False)
    ended: anyio.Event = field(factory=anyio.Event, init=False)
    over: anyio.Event = field(factory=anyio.Event, init=False)
    """It has ended or was given up."""
    was_open: bool = field(default=False, init=False)
    attended: bool = field(default=True, init=False)
    """Whoever opens it waits for it, and sees what happens before it is open."""
    reason: BaseException | None = field(default=None, init=False)
    """Why it makes way though it has not failed."""
    _began: bool = field(default=False, init=False)
    _finished: bool = field(default=False, init=False)
    _state: list[S] = field(factory=list, init=False)
    _halted: anyio.Event = field(factory=anyio.Event, init=False)
    _quiet: anyio.Event | None = field(default=None, init=False)
    _drained: anyio.Event | None = field(default=None, init=False)
    _closing: anyio.Event = field(factory=anyio.Event, init=False)
    _scope: anyio.CancelScope = field(factory=lambda: anyio.CancelScope(shield=True), init=False)
    _nursery: TaskGroup | None = field(default=None, init=False)
    _early: list[tuple[Callable[..., Awaitable[Any]], tuple[Any, ...], str | None]] = field(factory=list, init=False)

    @property
    def state(self) -> S:
        """What the context manager gave; only once it is open."""
        return self._state[0]

    @property
    def cause(self) -> BaseException | None:
        """Why it died or makes way, None when it was simply stopped."""
        return self.causes[0] if self.causes else self.reason

    # -- its life

    async def run(self) -> None:
        """Live from opening to end; every error goes to `blame`."""
        if self.phase is Phase.ENDED:
            return
        self._began = True
        try:
            with self._scope:
                await self._guarded_life()
        except anyio.get_cancelled_exc_class():
            pass  # a native cancellation mixed with our own: the task ends here either way
        finally:
            self._end()

    async def _guarded_life(self) -> None:
        try:
            await self._live()
        except BaseException as error:
            own = without_cancellations(error)
            if own is not None:
                known = {id(leaf) for cause in self.causes for leaf in leaves(cause)}
                if any(id(leaf) not in known for leaf in leaves(own)):
                    self.blame(own)
            elif self._scope.cancel_called:
                raise
            else:
                self.blame(self._interrupted("its task"))

    async def _live(self) -> None:
        async with self.shell.spec.open(ActorContext(self)) as state:
            try:
                async with anyio.create_task_group() as self._nursery:
                    self._enter(state)
                    await self._halted.wait()
                    self._nursery.cancel_scope.cancel()
                if not self._halted.is_set():
                    self.blame(self._interrupted("one of its tasks"))
            finally:
                self._go_down()
            await self._drain()
            self._closing.set()
            if self.causes:
                raise self._failure()

    def _enter(self, state: S) -> None:
        self._state.append(state)
        if self.phase is Phase.OPENING:
            self.phase, self.was_open = Phase.OPEN, True
            self.opened_at = anyio.current_time()
            self.shell.entered(self)
        self.opened.set()
        for each in self._early:
            self.start_soon(*each)
        self._early.clear()
        self.shell.pump()

    def _failure(self) -> BaseException:
        if len(self.causes) == 1:
            return self.causes[0]
        return BaseExceptionGroup(f"{self.shell.address} failed", self.causes)

    def _go_down(self) -> None:
        if self.phase is Phase.DOWN:
            return
        self._close_admission()
        self.phase = Phase.DOWN
        # Whoever is left here had a task that a native cancellation ended before its first step.
        for request in list(self.running.values()):
            self._settled(request, request.finish(Gone(self.cause)))
        self.shell.note_life(self, "down")
        self.down.set()
        if self.shell.spec.leases == "drain":
            self.released.set()

    def _end(self) -> None:
        self._go_down()
        self.phase = Phase.ENDED
        self._closing.set()
        self.opened.set()
        self.released.set()
        self.ended.set()
        self.over.set()
        self.shell.ended(self)

    def _close_admission(self) -> None:
        self.phase = max(self.phase, Phase.CLOSING)
        self.shell.left(self)

    async def _drain(self) -> None:
        """Keep the context open until the leases that were taken in this incarnation are left."""
        if self.shell.spec.leases == "drain":
            self._drained = self.shell.leases_left()
            await self._drained.wait()

    # -- its end

    def blame(self, error: BaseException) -> None:
        """`error` is the actor's own failure: the incarnation dies of it."""
        # What fails once it makes way anyway is no second reason to bring it back.
        first = not (self.causes or self._finished or self.reason)
        self.causes.append(error)
        if self.phase < Phase.ENDED:
            self.halt()
        if self.was_open or not self.attended:
            self.shell.failed(self, error, first=first)

    def finish(self) -> None:
        """It is done, by its own word."""
        if not self._halted.is_set():
            self._finished = True
            self.halt()
            self.shell.finished(self)

    def halt(self) -> None:
        """Cancel all that runs in it and let it end."""
        if self._halted.is_set():
            return
        self._close_admission()
        self._halted.set()
        if not self._began:
            # Its task may never have its first step: a native cancellation can come before it.
            self._end()
            return
        if self._nursery is None:
            self._scope.cancel()
        else:
            self._nursery.cancel_scope.cancel()
        self.shell.supervisor.spawn(self._watch_end, name=f"{self.shell.address}: watch")

    async def retreat(self, deadline: float, reason: BaseException | None = None) -> None:
        """Make way for the next incarnation: handlers may finish until `deadline`, then they are cancelled."""
        self.reason = self.reason or reason
        self._close_admission()
        if self.running and not self._halted.is_set():
            self._quiet = self._quiet or anyio.Event()
            await wait_until(self._quiet, deadline)
        self.halt()
        await self._released_in_time()

    async def stop(self, deadline: float) -> None:
        """End for good, in order. What has not ended some bounds after `deadline` is given up.

        Leases that drain may do so until `deadline`. Interrupted by a native cancellation, it can be called again.
        """
        await self.retreat(deadline)
        if self._drained is not None:
            await wait_until(self._drained, deadline)
            self._drained.set()
        if not await wait_until(self.over, self._patience()):
            self._scope.cancel()
            self._let_go()

    async def _released_in_time(self) -> None:
        # The watch sees to it. It is a task, though, and could be cancelled natively.
        if not await wait_until(self.released, self._patience()):
            self._scope.cancel()
            self._let_go()

    def _patience(self) -> float:
        return anyio.current_time() + 4 * self.shell.spec.bound + 1

    async def _watch_end(self) -> None:
        if not await self._within_bound(self.down):
            # A value that is being discarded has a bound of its own.
            discarding = [each for each in self.running.values() if each.state is RequestState.DONE]
            for request in list(self.running.values()):
                if request not in discarding:
                    self.overdue(request)
            if not self.over.is_set() and not (discarding and await self._within_bound(self.down)):
                self._give_up(f"a task that {self.shell.address} started")
        await self._closing.wait()
        if not await self._within_bound(self.ended):
            self._scope.cancel()
            if not await self._within_bound(self.ended):
                self._give_up(f"the closing of {self.shell.address}")

    async def _within_bound(self, event: anyio.Event) -> bool:
        return await wait_until(event, anyio.current_time() + self.shell.spec.bound)

    def _give_up(self, what: str) -> None:
        self._let_go()
        self.shell.supervisor.spawn(self._nag, what, self.ended)

    def _let_go(self) -> None:
        if not self.over.is_set():
            self.shell.note_life(self, "given up")
        self.down.set()
        self.released.set()
        self.over.set()

    def overdue(self, request: Request) -> None:
        """The handler of `request` outlived its bound: give it and the incarnation up."""
        if request.ended is not None or request.number not in self.running:
            return
        request.ended = anyio.Event()
        request.unattend()
        error = Fault(f"{_handler(request)} resists its cancellation for {self.shell.spec.bound:g} s")
        if not self.causes and self.shell.gone is None:
            self.blame(error)
        if not self.over.is_set():
            self.shell.revoke(error)
        self.shell.note(request, "overdue")
        if request.give_up(self.cause):
            self.shell.settled(request)
        self._let_go()
        self.shell.supervisor.spawn(self._nag, _handler(request), request.ended)

    async def _nag(self, what: str, end: anyio.Event) -> None:
        began = anyio.current_time() - self.shell.spec.bound
        while not end.is_set():
            seconds = anyio.current_time() - began
            logger.warning("%s still runs %g s after it was cancelled; only the process can end it", what, seconds)
            await wait_until(end, anyio.current_time() + NAG_INTERVAL)

    def _interrupted(self, what: str) -> Fault:
        return Fault(f"{self.shell.address}: {what} was cancelled from outside")

    # -- what runs in it

    def begin(self, request: Request) -> None:
        """Start the handler of a request."""
        assert self._nursery is not None
        request.begin()
        request.life = self
        self.running[request.number] = request
        request.scope = anyio.CancelScope(deadline=request.deadline)
        # A tell outlives its sender: it runs with the actor's context, not with that of whoever made room for it.
        context = self.shell.supervisor.context.copy() if request.context is None else request.context
        self._nursery.create_task(
            self._handle(request), name=f"{self.shell.address} #{request.number}", context=context
        )

    async def _handle(self, request: Request) -> None:
        outcome: Outcome = Stopped()
        try:
            assert request.scope is not None
            with request.scope:
                if not request.scope.cancel_called:
                    handling.set(request)
                    outcome = Value(await self.shell.handler(self.state)(request.message))
        except BaseException as error:
            outcome = self._judged(request, error)
        due = request.finish(outcome)
        if request.outcome is outcome:
            self.shell.note(request, type(outcome).__name__.lower())
        try:
            if due is Finish.DISCARD:
                assert isinstance(outcome, Value)
                await self.discard(request, outcome.value)
            elif due is Finish.REPORT:
                assert isinstance(outcome, Raised)
                self.blame(outcome.error)
        finally:
            self._settled(request, due)

    def _judged(self, request: Request, raised: BaseException) -> Outcome:
        """What an exception out of a handler means: its caller's matter, or the actor's death."""
        error = without_cancellations(raised)
        if error is None:
            if not self._halted.is_set():
                self.blame(self._interrupted(_handler(request)))
            return Gone(self.cause)
        error.add_note(f"raised in {_handler(request)}")
        if not isinstance(error, Exception) or any(isinstance(leaf, Fault) for leaf in leaves(error)):
            self.blame(error)
            return Gone(error)
        return Raised(error)

    def _settled(self, request: Request, due: Finish) -> None:
        self.running.pop(request.number, None)
        self.shell.note(request, "handled")
        if request.ended is not None:
            request.ended.set()
        self.shell.settled(request)
        if not self.running and self._quiet is not None:
            self._quiet.set()
        self.shell.pump()

    async def discard(self, request: Request, value: object) -> None:
        """Run the discard hook of a value that nobody took, in a shield of the bound."""
        assert request.discard is not None
        try:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + self.shell.spec.bound) as scope:
                result = request.discard(value)
                if inspect.isawaitable(result):
                    await result
            self.shell.note(request, "discarded")
            if scope.cancelled_caught:
                logger.warning("the discard hook of %s was cut after %g s", _handler(request), self.shell.spec.bound)
        except BaseException as error:
            own = without_cancellations(error)
            if own is not None:
                own.add_note(f"raised by the discard hook of {_handler(request)}")
                self.blame(own)

    def start_soon(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...], name: str | None) -> None:
        """See `ActorContext.start_soon`."""
        if self._nursery is None:
            self._early.append((fn, args, name))
            return
        name = name or f"{self.shell.address}: {getattr(fn, '__qualname__', fn)}"
        self._nursery.create_task(self._background(fn, args), name=name, context=self.shell.supervisor.context.copy())

    async def _background(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        try:
            await fn(*args)
        except BaseException as error:
            own = without_cancellations(error)
            if own is not None:
                self.blame(own)
            elif not self._halted.is_set():
                self.blame(self._interrupted(f"the task {getattr(fn, '__qualname__', fn)}"))


def _handler(request: Request) -> str:
    """Names a handler: the actor and the message's type."""
    return f"{request.address}: the handler of {type(request.message).__qualname__}"
