"""What a limiter tells about itself: frozen values, computed when asked for."""

from __future__ import annotations

from collections.abc import Hashable

from attrs import frozen


@frozen
class GroupStatistics:
    """One group of a limiter.

    Attributes:
        group: its name. weight: its share.
        used: places it holds. waiting: leases of it that wait.
        lag: places by which it is behind its fair share (negative: ahead of it), always less than one or two; 0 while
            it does not wait, and under another policy than `FairQueue`.
    """

    group: Hashable
    weight: float
    used: int
    waiting: int
    lag: float


@frozen
class LimiterStatistics:
    """A limiter at one moment.

    Attributes:
        name: the limiter's.
        limit: places there are, None for unlimited. used: places taken; more than `limit` only after a shrink.
        waiting: leases that wait, of which `waiting_joint` are parts of joint ones and `waiting_single` are not.
        reserved: places held back for joint leases that are first in all their queues.
        arrived: leases that ever came.
        paused: whether it is paused, by anybody. closed: whether it is closed.
        next_wakeup: when the policy wants to be polled, in seconds on the loop's clock; None for no such time.
        groups: those that hold a place or wait.
        note: what a policy of its own says of itself, in a few words.
    """

    name: str
    limit: int | None
    used: int
    waiting: int
    waiting_single: int
    waiting_joint: int
    reserved: int
    arrived: int
    paused: bool
    closed: bool
    next_wakeup: float | None
    groups: tuple[GroupStatistics, ...]
    note: str = ""
