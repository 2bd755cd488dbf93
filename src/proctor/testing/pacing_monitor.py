"""`WatchedPacer`: a `Pacer` that is held to its promises at every step, by a second, plain set of books.

It has the pacer's interface, so it takes its place in a simulation, under a limiter or in a property test. What it
keeps itself is as simple as can be: which calls wait and which are out. It raises `PacingViolation` at the step that
breaks a promise. The numbers are those of the invariants in the design:

==  ======================================================================================
1   calls in flight never exceed the window at a send
2   a call that waits is not out: it holds no place
3   what is expected of calls in flight is nothing when none is
5   a level is never above its capacity, what is ours of a rate within 2 and 100 % of it
7   while only time is missing, `next_wakeup` says when; while nothing is, the call leaves
8   at most one call leaves while probing
9   refusals of one round trip are one block: one pause and one rate
12  no refusal stops the lane for longer than the bound
13  a call that was withdrawn never leaves; each that was out comes back once
==  ======================================================================================
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Final

from attrs import define, field

from proctor.model.pacing import (
    Call,
    Dimension,
    Pacer,
    PacerDecision,
    PacerStatistics,
    PacingConfig,
    QuotaReading,
    Usage,
)

TOLERANCE: Final = 1e-6
LONGEST_PAUSE: Final = 16.0  # seconds, whatever a provider asks for
SLOWEST: Final = 0.02


class PacingViolation(AssertionError):
    """A pacer broke a promise.

    Attributes:
        number: of the invariant.
    """

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"invariant {number}: {text}")
        self.number = number


@define(eq=False)
class WatchedPacer:
    """A pacer and what is known of it from outside.

    Attributes:
        waiting: calls in line or put back. out: calls that left, with the time. sends: every send so far, in order.
    """

    pacer: Pacer
    waiting: set[Call] = field(factory=set, init=False)
    out: dict[Call, float] = field(factory=dict, init=False)
    sends: list[tuple[float, Call]] = field(factory=list, init=False)
    _noticed: float = field(default=-1.0, init=False)  # when the last block of refusals was noticed
    _probe: Call | None = field(default=None, init=False)

    # -- the pacer's interface

    def enqueue(self, call: Call, now: float) -> None:
        self.pacer.enqueue(call, now)
        self.waiting.add(call)
        self._check(now)

    def withdraw(self, call: Call, now: float) -> None:
        self.pacer.withdraw(call, now)
        self.waiting.discard(call)
        self._check(now)

    def poll(self, now: float) -> list[Call]:
        probing, busy = self.pacer.statistics(now).probing, self._probe in self.out
        granted = self.pacer.poll(now)
        for call in granted:
            self._expect(call in self.waiting, 13, f"{call} left without waiting")
            self.waiting.discard(call)
            self.out[call] = now
            self.sends.append((now, call))
        after = self.pacer.statistics(now)
        if granted:
            self._expect(len(self.out) <= after.window, 1, f"{len(self.out)} are out, the window is {after.window}")
        if probing:
            self._expect(len(granted) <= 1, 8, f"{len(granted)} calls left in probe mode")
            self._expect(not granted or not busy, 8, "a second probe left while one was out")
            self._probe = granted[0] if granted else self._probe
        else:
            self._probe = None
        self._check(now)
        return granted

    def next_wakeup(self, now: float) -> float | None:
        wakeup = self.pacer.next_wakeup(now)
        if wakeup is not None:
            self._expect(wakeup >= now, 7, f"it wants to be woken at {wakeup}, before {now}")
        elif self.waiting:
            state = self.pacer.statistics(now)
            stopped = state.in_flight >= state.window or (state.probing and bool(self.out))
            self._expect(stopped, 7, f"{len(self.waiting)} calls wait for nothing: {state}")
        return wakeup

    def wants_sample(self, now: float) -> bool:
        return self.pacer.wants_sample(now)

    def on_success(self, call: Call, now: float, *, usage: Usage, quota: Sequence[QuotaReading] = ()) -> None:
        self.pacer.on_success(call, now, usage=usage, quota=quota)
        self._back(call, now)

    def on_rate_limited(
        self,
        call: Call,
        now: float,
        *,
        retry_after: float | None,
        quota: Sequence[QuotaReading] = (),
        dimension: Dimension | None = None,
    ) -> None:
        before = self.pacer.history()
        self.pacer.on_rate_limited(call, now, retry_after=retry_after, quota=quota, dimension=dimension)
        fresh = list(itertools.takewhile(lambda each: not before or each is not before[-1], reversed(self.history())))
        pauses = sum(each.kind == "pause" for each in fresh)
        rates = sum(each.kind == "rate" and "429" in each.reason for each in fresh)
        self._expect(pauses <= 1 and rates <= pauses, 9, f"one refusal made {pauses} pauses and {rates} rates")
        if self.out[call] < self._noticed:
            self._expect(not pauses, 9, f"{call} was sent before the block was noticed, and made a pause of its own")
        elif pauses:
            self._noticed = now
        pause = self.pacer.statistics(now).pause
        self._expect(pause <= LONGEST_PAUSE + TOLERANCE, 12, f"a pause of {pause} s after Retry-After {retry_after}")
        self._put_back(call, now)

    def on_failure(
        self,
        call: Call,
        now: float,
        *,
        transient: bool,
        retry_after: float | None = None,
        quota: Sequence[QuotaReading] = (),
    ) -> None:
        self.pacer.on_failure(call, now, transient=transient, retry_after=retry_after, quota=quota)
        if transient:
            self._put_back(call, now)
        else:
            self._back(call, now)

    def on_cancelled(self, call: Call, now: float) -> None:
        self.pacer.on_cancelled(call, now)
        self._back(call, now)

    def abandon(self, call: Call, now: float) -> None:
        self.pacer.abandon(call, now)
        self._back(call, now)

    def configure(self, config: PacingConfig, now: float) -> None:
        self.pacer.configure(config, now)
        self._check(now)

    def history(self) -> Sequence[PacerDecision]:
        return self.pacer.history()

    def statistics(self, now: float) -> PacerStatistics:
        return self.pacer.statistics(now)

    # -- for tests

    def until_something_leaves(self, now: float, *, wakeups: int = 50) -> tuple[float, list[Call]]:
        """Follow `next_wakeup` until a call leaves or only an event can help; returns the time and the calls."""
        for _ in range(wakeups):
            granted = self.poll(now)
            wakeup = self.next_wakeup(now)
            if granted or wakeup is None or not self.waiting:
                return now, granted
            now = wakeup
        raise PacingViolation(7, f"nothing left in {wakeups} wake-ups, until {now}: {self.statistics(now)}")

    # -- steps

    def _back(self, call: Call, now: float) -> None:
        del self.out[call]
        self._check(now)

    def _put_back(self, call: Call, now: float) -> None:
        del self.out[call]
        self.waiting.add(call)
        self._check(now)

    def _check(self, now: float) -> None:
        state = self.pacer.statistics(now)
        self._expect(state.in_flight == len(self.out), 2, f"it counts {state.in_flight} out, {len(self.out)} are")
        self._expect(state.queued == len(self.waiting), 2, f"it counts {state.queued} waiting, not {len(self.waiting)}")
        if not self.out:
            self._expect(abs(state.outstanding) < 1e-3, 3, f"{state.outstanding} tokens are expected of no call")
        for rate in state.rates:
            if rate.source == "learned":
                continue
            self._expect(rate.level <= rate.capacity + TOLERANCE, 5, f"level above capacity: {rate}")
            share = rate.effective / rate.per_minute
            self._expect(SLOWEST - TOLERANCE <= share <= 1 + TOLERANCE, 5, f"not within the rate: {rate}")

    def _expect(self, kept: bool, number: int, text: str) -> None:
        if not kept:
            raise PacingViolation(number, text)
