"""Plans for actors and supervisors, as plain frozen data like those of `proctor.testing.plan`.

Some actors under one supervisor, tasks that ask and tell them, tasks that hold their leases, and trouble at given
times. Times are small integers, so that failures, timeouts, stops and restarts coincide.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

from proctor.testing.plan import Brief

Ends = Literal["value", "error", "fault"]


@frozen(repr=False)
class Job(Brief):
    """A message, and what its sender does about it.

    Attributes:
        gap: how long its sender waits before it sends. hold: how long the handler works.
        ends: with a value, an error of its own, or a fault, which is the actor's death.
        cleanup: how long the handler takes to end once it is cancelled.
        told: a tell. key: of a tell that supersedes.
        timeout: how long the caller waits. native: on asyncio it is cancelled by `Task.cancel` then.
        detached, discards: options of the ask.
    """

    gap: int = 0
    hold: int = 0
    ends: Ends = "value"
    cleanup: int = 0
    told: bool = False
    key: int | None = None
    timeout: int | None = None
    native: bool = False
    detached: bool = False
    discards: bool = True


@frozen(repr=False)
class Sender(Brief):
    """A task that sends one message after the other to one actor."""

    actor: int = 0
    delay: int = 0
    jobs: tuple[Job, ...] = ()


@frozen(repr=False)
class Holder(Brief):
    """A task that holds a lease of an actor's limiter."""

    actor: int = 0
    delay: int = 0
    hold: int = 1


@frozen(repr=False)
class Trouble(Brief):
    """What happens to an actor at a time: a task of it fails, it says that it is done, or it is stopped."""

    at: int
    kind: Literal["fault", "oserror", "bug", "done", "stop"] = "fault"
    actor: int = 0


@frozen(repr=False)
class Part(Brief):
    """An actor of the plan.

    Attributes:
        opens_in, closes_in: seconds. fails_to_open: numbers of incarnations that cannot be opened.
        fails_to_close: whether closing raises, after each incarnation but the last one of a quiet end.
    """

    restart: Literal["permanent", "transient", "temporary"] = "permanent"
    leases: Literal["drain", "adopt", "revoke"] = "drain"
    handlers: int | None = 1
    mailbox: int = 2
    bound: int = 4
    opens_in: int = 0
    closes_in: int = 0
    fails_to_open: frozenset[int] = frozenset()
    fails_to_close: bool = False


@frozen(repr=False)
class SupervisionPlan(Brief):
    """A supervisor, its actors, and what happens to them.

    Attributes:
        restarts, window: the intensity. initial, maximum, jitter: the backoff. seed: of its jitter.
        cancelled_at: when the block around the supervisor is cancelled, None for never.
        until: how long the block stays open at least.
        cut: on asyncio, a task of the run that is cancelled natively: at which time, after how many turns of the loop,
            and the how manieth in the order of their names (modulo their number).
    """

    actors: tuple[Part, ...] = (Part(),)
    senders: tuple[Sender, ...] = ()
    holders: tuple[Holder, ...] = ()
    troubles: tuple[Trouble, ...] = ()
    strategy: Literal["one_for_one", "rest_for_one", "one_for_all"] = "one_for_one"
    exhausted: Literal["escalate", "abandon"] = "escalate"
    restarts: int = 3
    window: int = 8
    initial: int = 1
    maximum: int = 4
    jitter: float = 0.0
    stable_after: int = 6
    grace: int = 3
    seed: int = 0
    cancelled_at: int | None = None
    until: int = 20
    cut: tuple[int, int, int] | None = None
