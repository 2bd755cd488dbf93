"""The stream of kernel events that tests, monitors and displays read.

Kinds of a `LimiterEvent`, in the order a lease may meet them:

    granted    the lease holds a place (without `queued` before it: there was room at once)
    queued     it waits; from here it ends in exactly one of granted, withdrawn, refused
    armed      a joint waiter has been at the head of all its queues: from now on it keeps places (see joint.py)
    withdrawn  cancelled while it waited
    refused    it waited, and the limiter was closed, its scope ended, or its wait could never end (`detail` says which)
    abandoned  granted, but cancelled or revoked before it woke: the place is back, the body never started
    released   the body was left, the place is back
    requeued   the place was given back and the same lease waits again: a `released` and a `queued` in one step
    revoked    asked to leave; its place counts until `released` (or `abandoned`)

and of the limiter itself, with `item` 0: resized, paused, resumed, closed.

`used`, `limit` and `waiting` are the values right after the step. A served lease is one granted and not abandoned: an
abandoned grant is refunded to its group. Order within a group holds for single waiters; a joint one (`joint` is not
empty) is passed by others until it is armed, and passes others once it is.

A listener is called synchronously in the middle of a kernel step: it must not call the kernel, nor raise. With no
listener an event is never built: a limiter looks at `Ledger.listeners` first.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TypeAlias

import anyio
from attrs import define, field, frozen


@frozen
class Event:
    """One step of the kernel.

    Attributes:
        time: seconds on the loop's monotonic clock.
        kind: what happened; each emitting class documents its kinds.
        name: the limiter, actor or supervisor it happened to.
    """

    time: float
    kind: str
    name: str


@frozen
class LimiterEvent(Event):
    """A step of a limiter; the kinds are listed in this module's docstring.

    Attributes:
        item: the lease, numbered from 1 within its limiter in order of arrival; 0 for the limiter's own events.
        group: the group the lease belongs to.
        used: places taken after the step. limit: places there are, None for unlimited.
        waiting: leases that wait after the step.
        weight: of the group. order: the place within the group that the lease asked for.
        joint: the parts of a joint lease as (limiter, item), this one among them; empty for a single lease.
        detail: why: a reason, a cause, None where the kind says all.
    """

    item: int = 0
    group: Hashable = None
    used: int = 0
    limit: int | None = None
    waiting: int = 0
    weight: float = 1.0
    order: tuple[int, ...] | int | None = None
    joint: tuple[tuple[str, int], ...] = ()
    detail: object = None


Listener: TypeAlias = Callable[[Event], None]


@define(eq=False)
class Ledger:
    """Where the kernel writes its events. False, and as good as free, while nobody listens.

    Attributes:
        clock: where the events' times come from; the loop's own clock unless a test gives another.
        listeners: those who listen now.
    """

    clock: Callable[[], float] = field(default=anyio.current_time, kw_only=True)
    listeners: tuple[Listener, ...] = field(default=(), init=False)

    def __bool__(self) -> bool:
        return bool(self.listeners)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each event from now on.

        Returns:
            A function that ends the subscription; calling it again does nothing.
        """
        self.listeners = (*self.listeners, listener)

        def unsubscribe() -> None:
            # By identity: two equal bound methods may both have subscribed, each ends its own.
            self.listeners = tuple(each for each in self.listeners if each is not listener)

        return unsubscribe

    def emit(self, event: Event) -> None:
        """Hand `event` to every listener, in the order in which they subscribed."""
        for listener in self.listeners:
            listener(event)

    def now(self) -> float:
        """The time to stamp an event with: the loop's, or 0.0 where no loop runs."""
        try:
            return self.clock()
        except anyio.NoEventLoopError:
            return 0.0
