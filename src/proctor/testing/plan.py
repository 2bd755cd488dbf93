"""Plans: what a number of clients do with limiters, as plain frozen data that prints, shrinks and can be pinned.

Times are small integers of seconds, so that grants, timeouts, resizes and revocations coincide.
"""

from __future__ import annotations

from typing import Any, Literal

from attrs import field, fields, frozen

Action = Literal["resize", "pause", "resume", "revoke", "close"]


class Brief:
    """Prints only what differs from the defaults, as an expression that makes the value again."""

    __slots__ = ()

    def __repr__(self) -> str:
        parts = [f"{each.name}={getattr(self, each.name)!r}" for each in self._told()]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _repr_pretty_(self, printer: Any, cycle: Any) -> None:
        """For Hypothesis, which otherwise prints every field on a line of its own."""
        del cycle
        printer.text(repr(self))

    def _told(self) -> list[Any]:
        kind: Any = type(self)
        return [each for each in fields(kind) if getattr(self, each.name) != each.default]


@frozen(repr=False)
class Client(Brief):
    """A task that takes leases, holds them and leaves.

    Attributes:
        chain: the limiters it leases, by index, each inside the one before; with `joint` all at once.
        group: of its leases; the plan knows its weight. order: its place within the group.
        delay: when it starts. step: how long it waits between two leases. hold: how long its body takes.
        timeout: how long after its start it is cancelled, None for never.
        native: on asyncio the cancellation is `Task.cancel` instead of a cancel scope's.
        tries: it does not wait for the first lease (`try_lease`).
        revocable: its leases may be revoked.
        requeues: halfway through its body it goes back in line with its innermost lease.
        fails: its body raises.
    """

    chain: tuple[int, ...] = (0,)
    group: int = 0
    delay: int = 0
    step: int = 0
    hold: int = 1
    timeout: int | None = None
    order: int | None = None
    joint: bool = False
    native: bool = False
    tries: bool = False
    revocable: bool = False
    requeues: bool = False
    fails: bool = False


@frozen(repr=False)
class Admin(Brief):
    """Something that is done to a limiter at a time.

    Attributes:
        value: the new limit of a resize; the group whose leases are revoked (-1: all).
    """

    at: int
    action: Action
    limiter: int = 0
    value: int = 1


@frozen(repr=False)
class Plan(Brief):
    """Limiters, clients and operations.

    Attributes:
        limits: one limiter each, None for unlimited.
        ranked: their ranks rise in this order; else they have none.
        weights: of the groups. jitter: the seed of extra turns of the loop, None for none.
        mend: when all clients have had their time, resume what is paused and give each limiter room, so that a
            plan that pauses or sets a limit of 0 ends.
    """

    limits: tuple[int | None, ...] = (1,)
    clients: tuple[Client, ...] = ()
    admin: tuple[Admin, ...] = ()
    weights: tuple[float, ...] = (1.0, 1.0, 1.0)
    jitter: int | None = None
    mend: bool = field(default=True, kw_only=True)
    ranked: bool = field(default=True, kw_only=True)

    @property
    def in_order(self) -> bool:
        """Whether every client takes its leases in the order of the limiters."""
        return self.ranked and all(list(client.chain) == sorted(set(client.chain)) for client in self.clients)

    @property
    def horizon(self) -> int:
        """A time by which all that the plan does by itself is done."""
        starts = [client.delay for client in self.clients] + [step.at for step in self.admin]
        return max(starts, default=0) + 20


Status = Literal[
    "done", "failed", "timeout", "revoked", "closed", "no room", "rank", "deadlock", "unfinished"
]  # fmt: skip


@frozen
class Body:
    """One stay of a client inside all its leases."""

    began: float
    ended: float


@frozen
class Outcome:
    """What became of a client.

    Attributes:
        ended: when. bodies: its stays inside (two when it went back in line, none when it never got in).
        detail: the text of its exception.
    """

    status: Status
    ended: float
    bodies: tuple[Body, ...] = ()
    detail: str = ""
