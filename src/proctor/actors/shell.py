"""An actor's shell: what callers hold on to while incarnations come and go.

The shell keeps the address, the limiter, the mailbox and the table of pending requests. An incarnation
(`proctor.actors.incarnation`) holds the user's state and dies of its failures; the supervisor then gives the shell
another one.

Requests live in the pending table from `ask` until their outcome is known. They are never only in a channel: on
asyncio a native cancellation of a task that waits in `receive` loses the item it was just handed, and with it the
caller's answer. Hence there is no task that reads the mailbox. Whoever changes what may run (a caller that queues, a
handler that ends, an incarnation that opens) calls `Shell.pump`, which starts handlers synchronously.
"""

from __future__ import annotations

import contextvars
import itertools
import math
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
from attrs import define, field

from proctor.actors.events import ActorEvent, RequestEvent
from proctor.actors.incarnation import Incarnation
from proctor.actors.ledger import Event
from proctor.actors.mailbox import Mailbox
from proctor.actors.request import Discard, Gone, Leave, Raised, Request, RequestState, Value, handling
from proctor.actors.spec import ChildSpec
from proctor.errors import ActorGone, SelfAsk

if TYPE_CHECKING:
    from proctor.actors.supervisor import Supervisor

S = TypeVar("S")


@define(eq=False, repr=False)
class Shell(Generic[S]):
    """What survives an actor's restarts. See the module; users hold a `Ref`."""

    spec: ChildSpec[S]
    address: str
    supervisor: Supervisor
    mailbox: Mailbox[Request] = field(init=False)
    pending: dict[int, Request] = field(factory=dict, init=False)
    current: Incarnation[S] | None = field(default=None, init=False)
    lives: list[Incarnation[S]] = field(factory=list, init=False)
    gone: Gone | None = field(default=None, init=False)
    _numbers: Iterator[int] = field(factory=lambda: itertools.count(1), init=False)
    _incarnations: int = field(default=0, init=False)
    _pumping: bool = field(default=False, init=False)
    _waiters: dict[int, anyio.Event] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self.mailbox = Mailbox(self.spec.mailbox, f"the mailbox of {self.address}")

    # -- requests

    def tell(self, message: object) -> None:
        """See `Ref.tell`."""
        self.raise_if_gone()
        if self.current is not None:
            self.handler(self.current.state)
        request = Request(next(self._numbers), message, self.address, told=True)
        superseded = self.mailbox.tell(request, key=getattr(message, "coalesce_key", None))
        if superseded is not None:
            superseded.leave()
            self._drop(superseded, "superseded")
        self._queue(request)

    def ask(self, message: object, *, detach: bool, discard: Discard | None) -> Request:
        """Queue an ask; see `Ref.ask`."""
        self.raise_if_gone()
        parent = handling.get()
        self._refuse_self(parent)
        request = Request(
            next(self._numbers),
            message,
            self.address,
            detached=detach,
            deadline=math.inf if detach else anyio.current_effective_deadline(),
            context=contextvars.copy_context(),
            parent=parent,
            discard=discard,
        )
        request.done = anyio.Event()
        self.mailbox.ask(request)
        self._queue(request)
        return request

    def pump(self) -> None:
        """Start the handlers of queued requests while there is an incarnation and room in it."""
        if self._pumping:
            return
        self._pumping = True
        try:
            while (life := self.current) is not None and self._has_room(life):
                request = self.mailbox.take()
                if request is None:
                    return
                self.note(request, "running")
                life.begin(request)
        finally:
            self._pumping = False

    def leave(self, request: Request, *, waits: bool) -> anyio.Event | None:
        """The caller leaves. Returns what it is to wait for, None when there is nothing."""
        due = request.leave()
        if due is Leave.WITHDRAW:
            self.mailbox.withdraw(request)
            self._drop(request, "withdrawn")
        elif due is Leave.CANCEL:
            assert request.scope is not None
            if not waits:
                request.unattend()
            self.note(request, "cancelled")
            request.scope.cancel()
            return request.done
        elif due is Leave.DISCARD:
            return self._discard_late(request)
        return None

    def settled(self, request: Request) -> None:
        """The outcome of a request is known, or nobody waits for it: wake its caller."""
        self.pending.pop(request.number, None)
        if request.done is not None:
            request.done.set()

    def outcome(self, request: Request) -> Any:
        """The caller takes the outcome of its request."""
        outcome = request.deliver()
        self.note(request, "delivered")
        if isinstance(outcome, Value):
            return outcome.value
        if isinstance(outcome, Raised):
            raise outcome.error
        if isinstance(outcome, Gone):
            raise self.actor_gone(outcome)
        raise TimeoutError(f"{self.address}: the deadline of the request passed")

    def handler(self, state: object) -> Callable[[object], Awaitable[object]]:
        """The state's `handle`."""
        handle = getattr(state, "handle", None)
        if handle is None:
            raise TypeError(
                f"{self.address} takes no messages: its state, {type(state).__qualname__}, has no "
                "`async def handle(self, message)`"
            )
        return handle  # type: ignore[no-any-return]

    def note(self, request: Request, kind: str) -> None:
        """Tell the ledger of a step of a request."""
        ledger = self.supervisor.ledger
        if ledger:
            ledger.emit(
                RequestEvent(
                    time=ledger.now(),
                    kind=kind,
                    name=self.address,
                    number=request.number,
                    message=type(request.message).__qualname__,
                    sender=request.parent.address if request.parent is not None else None,
                    told=request.told,
                    detached=request.detached,
                    deadline=request.deadline,
                    bound=self.spec.bound,
                )
            )

    def _queue(self, request: Request) -> None:
        request.owner = self
        self.pending[request.number] = request
        self.note(request, "queued")
        self.pump()

    def _drop(self, request: Request, kind: str) -> None:
        self.note(request, kind)
        self.settled(request)

    def _has_room(self, life: Incarnation[S]) -> bool:
        return self.spec.handlers is None or len(life.running) < self.spec.handlers

    def _refuse_self(self, parent: Request | None) -> None:
        """A handler that waits for its own actor waits for itself, directly or through others."""
        way = [self.address]
        while parent is not None and parent.state is RequestState.RUNNING:
            way.append(parent.address)
            if parent.owner is self:
                raise SelfAsk(
                    f"{self.address} asks itself ({' <- '.join(way)}): the handler would wait for its own end. Call "
                    "the method directly, tell instead of asking, or start the work with context.start_soon"
                )
            parent = parent.parent if parent.attended else None

    def _discard_late(self, request: Request) -> anyio.Event:
        """Discard a value that is there but was not taken; by the supervisor, since the caller is cancelled."""
        assert isinstance(request.outcome, Value)
        end = anyio.Event()
        self.supervisor.spawn(self._discard, request, request.outcome.value, end, name=f"{self.address}: discard")
        return end

    async def _discard(self, request: Request, value: object, end: anyio.Event) -> None:
        try:
            await request.life.discard(request, value)
        finally:
            end.set()

    # -- incarnations

    def incarnate(self) -> Incarnation[S]:
        """Make the next incarnation and let the supervisor run it."""
        self.hold_limiter()
        self._incarnations += 1
        life = Incarnation(self, self._incarnations)
        self.lives.append(life)
        self.supervisor.spawn(life.run, name=self.address)
        return life

    def entered(self, life: Incarnation[S]) -> None:
        """An incarnation is open."""
        self.current = life
        self.note_life(life, "opened")
        for event in self._waiters.values():
            event.set()
        self._waiters.clear()
        self._take_over(life)

    def left(self, life: Incarnation[S]) -> None:
        """An incarnation begins no more requests."""
        if self.current is life:
            self.current = None
            self.hold_limiter()

    def failed(self, life: Incarnation[S], error: BaseException, *, first: bool) -> None:
        """An incarnation that was open failed."""
        self.note_life(life, "failed", error)
        if first and self.spec.leases == "revoke":
            self.revoke(error)
        self.supervisor.failed(self, life, error, first=first)

    def finished(self, life: Incarnation[S]) -> None:
        """An incarnation ended by its own word."""
        self.note_life(life, "finished")
        self.supervisor.finished(self, life)

    def ended(self, life: Incarnation[S]) -> None:
        """An incarnation has ended, its context is closed."""
        self.lives.remove(life)
        self.note_life(life, "ended")
        self.supervisor.ended(self)

    def refuse(self, cause: BaseException | None) -> None:
        """The actor is gone for good: what is queued gets `ActorGone`, what comes later too."""
        if self.gone is not None:
            return
        self.gone = Gone(cause)
        while (request := self.mailbox.take()) is not None:
            request.give_up(cause)
            self._drop(request, "gone")
        for event in self._waiters.values():
            event.set()
        self._waiters.clear()
        if self.supervisor.ledger:
            self.supervisor.ledger.emit(
                ActorEvent(time=self.supervisor.ledger.now(), kind="gone", name=self.address, detail=cause)
            )

    async def stop_lives(self, deadline: float) -> None:
        """End every incarnation, the newest first."""
        for life in reversed(list(self.lives)):
            await life.stop(deadline)

    async def wait_open(self) -> None:
        """Wait until there is an incarnation; raises `ActorGone` when there will be none."""
        while self.current is None:
            self.raise_if_gone()
            event = anyio.Event()
            key = id(event)
            self._waiters[key] = event
            try:
                await event.wait()
            finally:
                self._waiters.pop(key, None)

    def raise_if_gone(self) -> None:
        """Raise `ActorGone` if the actor is gone for good."""
        if self.gone is not None:
            raise self.actor_gone(self.gone)

    def actor_gone(self, gone: Gone) -> ActorGone:
        """The error for one caller, with the cause as its `__cause__`."""
        if gone.cause is None:
            return ActorGone(f"{self.address} was stopped")
        error = ActorGone(f"{self.address} is gone: {type(gone.cause).__name__}: {gone.cause}")
        error.__cause__ = gone.cause
        return error

    def note_life(self, life: Incarnation[S], kind: str, detail: object = None) -> None:
        """Tell the ledger of a step of an incarnation."""
        ledger = self.supervisor.ledger
        if ledger:
            ledger.emit(ActorEvent(ledger.now(), kind, self.address, incarnation=life.number, detail=detail))

    # -- leases

    def revoke(self, reason: BaseException) -> None:
        """Revoke the leases of the actor's limiter."""
        if self.spec.limiter is not None:
            self.spec.limiter.revoke(reason)

    def close_limiter(self) -> None:
        """No incarnation follows: whoever waits for a lease gets `ActorGone`."""
        limiter, gone = self.spec.limiter, self.gone
        if limiter is not None and gone is not None and not limiter.closed:
            limiter.close(gone.cause, error=lambda _: self.actor_gone(gone))

    def hold_limiter(self) -> None:
        """Grant no lease while there is nothing to use it with."""
        if self.spec.limiter is not None and not self.spec.limiter.closed:
            self.spec.limiter.pause(by=f"restart of {self.address}")

    def free_limiter(self) -> None:
        """Take `hold_limiter` back."""
        if self.spec.limiter is not None and not self.spec.limiter.closed:
            self.spec.limiter.resume(by=f"restart of {self.address}")

    def leases_left(self) -> anyio.Event:
        """An event that is set once every lease that is held at this moment has been left."""
        left = anyio.Event()
        limiter = self.spec.limiter
        if limiter is None or not limiter.used:
            left.set()
            return left
        held = set(limiter.holders())

        def listen(event: Event) -> None:
            if event.name == limiter.name and not held.intersection(limiter.holders()):
                left.set()
                unsubscribe()

        unsubscribe = limiter._ledger.subscribe(listen)
        return left

    def _take_over(self, life: Incarnation[S]) -> None:
        """A new incarnation gets the limiter, and with `adopt` the leases it adopts."""
        limiter = self.spec.limiter
        if limiter is None:
            return
        if self.spec.leases == "adopt" and limiter.used:
            adopts = getattr(life.state, "adopts", None)
            if adopts is not None:
                reason = f"{self.address} was restarted and has lost what the lease was for"
                limiter.revoke(reason, where=lambda lease: not adopts(lease))
        self.free_limiter()
