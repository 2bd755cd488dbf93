"""Buckets: what of a quota is left, by our own books.

A `Bucket` counts a rate that the user declared. A `Mirror` follows a quota that the provider shows in its headers. Both
are told what is sent and what it came to, and say when the next call fits.

How a mirror works. Our level stands for the provider's at the moment when a request sent now arrives there; the way
takes the same time for all, so it does not matter how long. Each send keeps a mark: the level after it. The headers of
its answer show the provider's level after it, so the difference between the two is our error, by which the level is
corrected; corrections made since the send are taken into account, later sends and the refill need not be. Only a
reading that belongs to a later send than the last one used counts. Rejected: to take over ``remaining`` as the level
(it is as old as the call took, and a hundred calls were sent since), and to follow ``reset`` (whole seconds, or the
time until the bucket is full, or that until a window ends, and vendors do not say which).

Some providers stamp when the answer is complete. Then readings agree better with the level at arrival than with the
mark, which is noticed. So is a window that ends at a fixed time instead of a bucket that refills all the time.

What somebody else takes shows as errors of one sign: from them follows how much of the rate is ours.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

from proctor.model.pacing.values import Dimension, QuotaReading, RateStatistics

DIMENSIONS: Final = (Dimension.REQUESTS, Dimension.INPUT_TOKENS, Dimension.OUTPUT_TOKENS, Dimension.TOKENS)
INDEX: Final = {dimension: index for index, dimension in enumerate(DIMENSIONS)}

MINUTE: Final = 60.0
CLOSE: Final = 1e-6  # units by which rounding may be wrong
CATCH_UP: Final = 4.0  # times the sustained rate at which what is left may be spent
BURST: Final = 1.0  # seconds of a declared rate that may be sent at once
LEAST_CAPACITY: Final = 1.0  # seconds of a rate that a provider's bucket is taken to hold at least
MOST_MARGIN: Final = 0.1  # of the capacity
JITTER: Final = 0.06  # seconds by which requests may arrive out of step
READINGS_TO_JUDGE: Final = 30  # before it is decided when the provider stamps
SMOOTH: Final = 0.1
SLOWEST: Final = 0.02  # of the provider's rate that we take to be ours at least
CONTESTED: Final = 0.97  # of the rate; below it somebody else drinks from the bucket
UNTOLD: Final = 0.5  # of the rest of the rate that is tried when readings cannot show it
LESS: Final = 0.75  # of what we took to be ours, when a call was refused
PERIOD: Final = 3.0  # seconds at least between two estimates of what is ours
PERIOD_CALLS: Final = 20
STILL: Final = 4.0  # seconds of the rate that must be spent before a reset that does not move means a window


@define(eq=False)
class Bucket:
    """A rate that was declared.

    Attributes:
        index: of its dimension. rate: units a second of the provider. eff: units a second that we get.
        capacity: units it holds at most. level: units left at the time `at`. margin: units that are left untouched.
    """

    index: int
    rate: float
    at: float
    source: str = "declared"
    eff: float = field(init=False)
    capacity: float = field(init=False)
    level: float = field(init=False)
    margin: float = field(default=0.0, init=False)

    def __attrs_post_init__(self) -> None:
        self.eff = self.rate
        self.capacity = max(1.0, BURST * self.rate)
        self.level = self.capacity

    def advance(self, now: float) -> None:
        """Refill up to `now`."""
        if now > self.at:
            self.level = min(self.capacity, self.level + (now - self.at) * self.eff)
            self.at = now

    def when(self, cost: float, now: float) -> float:
        """When `cost` will fit; `now` or earlier if it does."""
        if now > self.at:
            self.advance(now)
        missing = min(cost + self.margin, self.capacity) - self.level
        return now if missing <= CLOSE else now + missing / self.eff

    def gap(self, cost: float) -> float:
        """Seconds to leave after a call of this cost, which is not debited yet."""
        return cost / (CATCH_UP * self.eff)

    def give_back(self, cost: float) -> None:
        """What was debited was not used."""
        self.level = min(self.capacity, self.level + cost)

    def statistics(self, now: float) -> RateStatistics:
        """As it is now."""
        self.advance(now)
        return RateStatistics(
            DIMENSIONS[self.index], self.source, self.rate * 60, self.eff * 60, self.level, self.capacity
        )


@define(eq=False)
class Mirror(Bucket):
    """A quota that the provider shows.

    Attributes:
        limit: units in a window. window: seconds that it is for.
        reset_at: when a fixed window is full again; None for a bucket.
        corrected: the sum of all corrections. error: mean absolute error of readings. mean_cost: of a call.
        newest: the send whose reading was used last. at_completion: the provider stamps when the answer is complete.
    """

    source: str = "headers"
    corrected: float = field(default=0.0, init=False)
    error: float = field(default=0.0, init=False)
    mean_cost: float = field(default=1.0, init=False)
    newest: int = field(default=-1, init=False)
    reset_at: float | None = field(default=None, init=False)
    limit: float = field(default=math.inf, init=False)
    window: float = field(default=60.0, init=False)
    at_completion: bool = field(default=False, init=False)
    # When the provider stamps: readings so far, and the errors of either guess since the last judgement.
    _read: int = field(default=0, init=False)
    _error_at_send: float = field(default=0.0, init=False)
    _error_at_arrival: float = field(default=0.0, init=False)
    # What is ours: since when, errors found since, whether the bucket was full, whether any reading showed units left.
    _since: float = field(default=0.0, init=False)
    _found: float = field(default=0.0, init=False)
    _filled: bool = field(default=False, init=False)
    _told: bool = field(default=False, init=False)
    # An earlier reading: when it was stamped, all that was spent by then, its reset and what remained.
    _still: tuple[float, float, float, float] | None = field(default=None, init=False)

    def begin(self, reading: QuotaReading, number: int, level: float, mean_cost: float) -> None:
        """Take over the first reading, of send `number`, from which `level` follows for now."""
        self.rate = self.eff = reading.limit / reading.window
        self.limit, self.window = reading.limit, reading.window
        self.capacity = min(reading.limit, max(reading.remaining + 1, LEAST_CAPACITY * self.rate))
        self.level = min(self.capacity, level)
        self.newest, self.mean_cost = number, mean_cost
        self._since = self.at
        self._set_margin()

    def advance(self, now: float) -> None:
        if now <= self.at:
            return
        if self.reset_at is not None:
            if now >= self.reset_at:
                self.level = self.capacity
                self.reset_at += self.window * math.ceil((now - self.reset_at + CLOSE) / self.window)
        else:
            self.level += (now - self.at) * self.eff
            if self.level >= self.capacity:
                self.level = self.capacity
                self._filled = True
        self.at = now

    def when(self, cost: float, now: float) -> float:
        if now > self.at:
            self.advance(now)
        needed = cost + self.margin
        if needed > self.capacity:
            # What it holds is only known to be at least as much as was ever seen to remain.
            self.capacity = max(self.capacity, min(needed, self.limit))
            needed = min(needed, self.capacity)
        missing = needed - self.level
        if missing <= CLOSE:
            return now
        return now + missing / self.eff if self.reset_at is None else self.reset_at

    def gap(self, cost: float) -> float:
        if self.reset_at is not None or self.eff >= CONTESTED * self.rate:
            # Of a day's quota as much may go in a minute as is left.
            steady, left = CATCH_UP * self.eff, self.level / MINUTE
            return cost / (steady if steady > left else left)
        fullness = self.level / min(5.0 * self.rate, 0.6 * self.capacity)
        return cost / (self.rate * min(CATCH_UP, max(0.05, fullness)))

    def settle(self, difference: float) -> None:
        """A call came to `difference` less than was debited when it was sent: also for the marks made since."""
        self.level += difference
        self.corrected += difference
        self.level = min(self.level, self.capacity)

    def read(self, reading: QuotaReading, number: int, expected: float, stamp: tuple[float, float], now: float) -> None:
        """Correct the level by what the answer to a send says; what it came to is settled already.

        Args:
            number: of the send. expected: what our books have as the level after it, corrections included.
            stamp: when the reading was made if not now, and all that had been spent then.
        """
        if not self.at_completion and number <= self.newest:
            return
        if self._of_old_window(reading, stamp[0]):
            return
        self.newest = max(self.newest, number)
        self._learn_limits(reading)
        at_send, at_arrival = _difference(reading.remaining, expected), _difference(reading.remaining, self.level)
        self._judge(at_send, at_arrival)
        error = at_arrival if self.at_completion else at_send
        if reading.remaining < 1.0:
            error = min(error, 0.0)
        else:
            self._told = True
        self.error += SMOOTH * (abs(error) - self.error)
        self.level += error
        self.corrected += error
        self._found += error
        self.level = min(self.level, self.capacity)
        self._watch_reset(reading, *stamp)
        self._estimate(now)
        self._set_margin()

    def _set_margin(self) -> None:
        wanted = max(2 * self.mean_cost, 4 * self.error, JITTER * self.rate)
        self.margin = min(wanted, MOST_MARGIN * self.capacity)

    def refused(self, cost: float) -> None:
        """A call of this cost was refused for it, though by the books it fitted: somebody else drinks from it."""
        if self.level > cost:
            self.corrected -= self.level - cost
            self._found -= self.level - cost
            self.level = cost
        if self.reset_at is None:
            self.eff = max(SLOWEST * self.rate, LESS * self.eff)

    def _of_old_window(self, reading: QuotaReading, stamped_at: float) -> bool:
        if self.reset_at is None or reading.reset_after is None:
            return False
        return stamped_at + reading.reset_after < self.reset_at - 0.5 * self.window

    def _learn_limits(self, reading: QuotaReading) -> None:
        rate = reading.limit / reading.window
        if abs(rate - self.rate) > 0.001 * self.rate:
            self.eff *= rate / self.rate
            self.rate, self.limit = rate, reading.limit
            self.capacity = min(self.capacity, max(reading.limit, reading.remaining + 1))
        self.capacity = max(self.capacity, reading.remaining + 1)

    def _judge(self, at_send: float, at_arrival: float) -> None:
        """Which of the two errors is the smaller in the long run: that tells when the provider stamps."""
        self._read += 1
        self._error_at_send += abs(at_send)
        self._error_at_arrival += abs(at_arrival)
        if self._read % READINGS_TO_JUDGE:
            return
        if self.at_completion:
            self.at_completion = self._error_at_send > self._error_at_arrival
        else:
            worth = READINGS_TO_JUDGE * (1 + self.mean_cost)
            self.at_completion = self._error_at_send > max(worth, 2 * self._error_at_arrival)
        self._error_at_send = self._error_at_arrival = 0.0

    def _estimate(self, now: float) -> None:
        """How much of the rate is ours: what we refilled by our books and had to correct."""
        elapsed = now - self._since
        if elapsed < max(PERIOD, PERIOD_CALLS * self.mean_cost / self.rate):
            return
        if self.reset_at is None:
            ours = self.eff if self._filled else self.eff + self._found / elapsed
            if self._filled or not self._told:  # full, or nothing left in any reading: there may be more
                ours += UNTOLD * (self.rate - self.eff)
            self.eff += 0.5 * (min(self.rate, max(SLOWEST * self.rate, ours)) - self.eff)
        self._since, self._found, self._filled, self._told = now, 0.0, False, False

    def _watch_reset(self, reading: QuotaReading, time: float, total: float) -> None:
        """A bucket refills, and is full the later the more is spent; a window does neither and ends when it ends.

        Args:
            time, total: when the reading was stamped, and all that had been spent then.
        """
        if reading.reset_after is None or self._read < READINGS_TO_JUDGE:
            return
        reset_at = time + reading.reset_after
        seen = (time, total, reset_at, reading.remaining)
        if self._still is None or time >= self._still[2]:
            self._still = seen
            return
        since, before, reset_then, remained = self._still
        elapsed, spent = time - since, total - before
        if elapsed < STILL or spent < STILL * self.rate:
            return
        refilled = spent + reading.remaining - remained
        if abs(reset_at - reset_then) < 0.25 * spent / self.rate and refilled < 0.25 * elapsed * self.rate:
            self.reset_at = reset_at + JITTER
            self.capacity, self.eff = max(self.capacity, reading.limit), self.rate
        elif refilled > 0.5 * elapsed * self.rate:
            self.reset_at = None
        self._still = seen


def _difference(remaining: float, level: float) -> float:
    """What is wrong with a level when headers, which show whole units, show `remaining`."""
    return max(0.0, remaining - level) + min(0.0, remaining + 1.0 - level)
