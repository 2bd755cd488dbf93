"""The sample gate: which feed may start a sample, so that as many run as the model can use and no more.

A sample takes time to set up before it makes its first call, and nobody knows how long. If each free place at the
model started a sample, a hundred would be setting up before the first had called; if only as many were started as are
missing now, the model would idle through every set-up. So the gate counts those it *expects*: samples that passed,
have queued no call yet and have not ended. There may be twice as many of them as calls were sent in the time that a
set-up takes, and at least four. Where samples end without a call, and none ever made one, the model says nothing
about how many should run: then it is four for each processor.

Pure like the pacer: `poll` says who passes, somebody else wakes them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any, Final

from attrs import define, field

LEAST_EXPECTED: Final = 4
MOST_SAMPLES: Final = 4000  # of one task that run at a time
WITHOUT_CALLS: Final = 4  # samples for each processor, of tasks that call no model
SMOOTHING: Final = 0.1  # weight of the latest set-up in their mean
LONGEST_SET_UP: Final = 600.0  # seconds of sends that are remembered


@define(eq=False)
class Feed:
    """The samples of one task.

    Attributes:
        passed: its virtual time. running: samples that passed and have not ended.
        open_too: whether whatever else it needs has room.
    """

    group: Hashable
    weight: float
    passed: float = 0.0
    running: int = 0
    open_too: Callable[[float], bool] | None = None
    waiting: deque[Entrant] = field(factory=deque)


@define(eq=False)
class Entrant:
    """One sample before, in and behind the gate.

    Attributes:
        passed_at: when it passed, None while it waits. expected: it has passed and neither queued a call nor ended.
        note: whatever the caller keeps with it.
    """

    feed: Feed
    passed_at: float | None = None
    expected: bool = False
    note: Any = None


@define(eq=False)
class Gate:
    """Lets samples pass. Several feeds take turns by weight.

    Args:
        wants_sample: whether another sample could send a call at once (`Pacer.wants_sample`).
        cpus: processors there are.

    Attributes:
        expected: samples that passed, have queued no call yet and have not ended.
        waiting: samples that wait. set_up: mean seconds from passing to the first call.
    """

    wants_sample: Callable[[float], bool]
    cpus: int = 1
    expected: int = field(default=0, init=False)
    waiting: int = field(default=0, init=False)
    set_up: float = field(default=0.0, init=False)
    _seen: bool = field(default=False, init=False)
    _silent: bool = field(default=False, init=False)  # a sample ended without a call
    _feeds: dict[Hashable, Feed] = field(factory=dict, init=False)
    _virtual: float = field(default=0.0, init=False)
    _sends: deque[float] = field(factory=deque, init=False)

    @property
    def used(self) -> bool:
        """Whether samples come through it."""
        return bool(self._feeds)

    def ask(
        self,
        group: Hashable,
        *,
        weight: float = 1.0,
        note: Any = None,
        open_too: Callable[[float], bool] | None = None,
    ) -> Entrant:
        """A sample of `group` wants to start.

        Args:
            note: whatever the caller keeps with it. open_too: whether what else its group needs has room.
        """
        feed = self._feeds.get(group)
        if feed is None:
            feed = self._feeds[group] = Feed(group, weight)
        feed.weight, feed.open_too = weight, open_too
        if not feed.waiting:
            feed.passed = max(feed.passed, self._virtual)
        entrant = Entrant(feed, note=note)
        feed.waiting.append(entrant)
        self.waiting += 1
        return entrant

    def withdraw(self, entrant: Entrant) -> None:
        """A sample that waits does so no longer."""
        entrant.feed.waiting.remove(entrant)
        self.waiting -= 1
        self._forget(entrant.feed)

    def poll(self, now: float) -> list[Entrant]:
        """The samples that pass now, in this order."""
        passed: list[Entrant] = []
        while self.waiting and self.expected < self.most_expected(now) and self.wants_sample(now):
            feed = min(
                (each for each in self._feeds.values() if self._may_pass(each, now)),
                key=lambda each: each.passed,
                default=None,
            )
            if feed is None:
                break
            self._virtual = feed.passed
            feed.passed += 1 / feed.weight
            feed.running += 1
            entrant = feed.waiting.popleft()
            entrant.passed_at, entrant.expected = now, True
            self.waiting -= 1
            self.expected += 1
            passed.append(entrant)
        return passed

    def _may_pass(self, feed: Feed, now: float) -> bool:
        if not feed.waiting or feed.running >= MOST_SAMPLES:
            return False
        return feed.open_too is None or feed.open_too(now)

    def most_expected(self, now: float) -> int:
        """How many samples may be setting up now."""
        sends = self._sends
        while sends and sends[0] < now - self.set_up:
            sends.popleft()
        least = WITHOUT_CALLS * self.cpus if self._silent and not self._seen else 0
        return max(LEAST_EXPECTED, least, 2 * len(sends))

    def sent(self, now: float) -> None:
        """A call was sent to the model."""
        if self.set_up > 0.0:
            sends = self._sends
            sends.append(now)
            while sends[0] < now - LONGEST_SET_UP:
                sends.popleft()

    def queued(self, entrant: Entrant, now: float) -> None:
        """A sample queues its first call; further ones change nothing."""
        if not entrant.expected or entrant.passed_at is None:
            return
        entrant.expected = False
        self.expected -= 1
        took = min(now - entrant.passed_at, LONGEST_SET_UP)
        self.set_up = self.set_up + SMOOTHING * (took - self.set_up) if self._seen else took
        self._seen = True

    def ended(self, entrant: Entrant) -> None:
        """A sample that passed has ended."""
        if entrant.expected:
            entrant.expected = False
            self.expected -= 1
            self._silent = True
        entrant.feed.running -= 1
        self._forget(entrant.feed)

    def _forget(self, feed: Feed) -> None:
        if not feed.running and not feed.waiting:
            self._feeds.pop(feed.group, None)
            if not self._feeds:
                self._sends.clear()
