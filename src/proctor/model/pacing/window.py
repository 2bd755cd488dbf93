"""The window: how many calls may be in flight.

For a hosted API it is only a safety cap. In slow start it doubles, and what is sent in it is spread over time, because
nothing is known of the rate yet; before the very first answer it grows by a constant. Slow start ends at the maximum;
as soon as a rate is known the window stands there, and the rate decides.

For a server of one's own, and where nothing is known, latency decides. The measure is seconds for each token of output,
with thirty tokens added for what a call costs besides; it is compared with the best it has been. It is taken of cohorts
of calls that were sent one after the other while the window was full, once most of a cohort have come back: the first
to come back after a change are the quick ones, and would make every change look good.

Refusals that are about calls in flight, or may be, set a cap of their own, which is tried again after some quiet.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

from proctor.model.config import AdaptiveConcurrency
from proctor.model.pacing.values import Signal

START: Final = 20
HOSTED_CEILING: Final = 4000
OWN_CEILING: Final = 1000
DOUBLING: Final = 2.0  # seconds
SHORTEST: Final = 0.001  # seconds; who answers sooner is no slower at half of it
OVERHEAD: Final = 30  # tokens that a call costs besides those of its output
FIRST_COHORT: Final = 20  # calls at least
LARGEST_COHORT: Final = 200  # to be precise
PRECISION: Final = 0.035  # share by which a cohort's mean may be wrong by chance, after slow start
COHORT_SHARE: Final = 0.3  # of the window
BACK_AT_FIRST: Final = 0.6  # the same in slow start
BACK: Final = 0.8  # of a cohort that must have come back
LOST: Final = 4  # windows of calls sent after a cohort, when it is given up
FULL: Final = 0.9  # of the window in flight when a cohort begins
FULL_AT_FIRST: Final = 0.75  # the same in slow start
NEW_BEST: Final = 0.3  # weight of a cohort that is better than the best
FLAT: Final = 1.12  # times the best; below it the window may grow
STEEP: Final = 0.2  # above the best by which it is cut, at least
DEVIATIONS: Final = 3.0  # that it must be above what chance may do
GROWTH: Final = 0.03  # of the window for each cohort, after slow start
QUIET: Final = 10.0  # seconds without a refusal before the cap is tried again
LONGEST_QUIET: Final = 80.0
MOST_CUTS: Final = 4  # of the cap in a row, then refusals are of a rate
HOLD: Final = 30.0  # seconds after the window was cut for latency
OUTDATED: Final = 1.02  # times the best, when calls are slow at a size at which they were quick


@define(eq=False)
class Window:
    """How many calls may be in flight.

    Attributes:
        size: that many. ramping: in slow start. static: the user's number.
    """

    signal: Signal
    size: int = field(default=START, init=False)
    static: bool = field(default=False, init=False)
    ramping: bool = field(default=True, init=False)
    _floor: int = field(default=1, init=False)
    _ceiling: int = field(default=HOSTED_CEILING, init=False)
    _start: int = field(default=START, init=False)
    # Slow start: since when it has this size, calls sent since, whether any was answered.
    _grown_at: float | None = field(default=None, init=False)
    _sent: int = field(default=0, init=False)
    _answered: bool = field(default=False, init=False)
    # The cap that refusals set.
    _cap: int | None = field(default=None, init=False)
    _quiet_since: float = field(default=0.0, init=False)
    _quiet: float = field(default=QUIET, init=False)
    _step: int = field(default=1, init=False)
    _cuts: int = field(default=0, init=False)
    # Latency: the best, the size at which it was last good, until when the window does not grow.
    _best: float | None = field(default=None, init=False)
    _good: int = field(default=0, init=False)
    _held_until: float = field(default=-math.inf, init=False)
    # The cohort: its number, its size, sent and come back of it, seconds a token summed, and their spread.
    _cohort: int = field(default=0, init=False)
    _wanted: int = field(default=FIRST_COHORT, init=False)
    _out: int = field(default=0, init=False)
    _back: int = field(default=0, init=False)
    _sum: float = field(default=0.0, init=False)
    _squares: float = field(default=0.0, init=False)
    _spread: float = field(default=0.0, init=False)

    def configure(self, connections: int | None, bounds: AdaptiveConcurrency | None) -> None:
        """Take the user's number or bounds."""
        fresh, was_static = self._grown_at is None, self.static
        self.static = connections is not None
        if connections is not None:
            self.ramping = False
            self._resize(connections)
            return
        self.ramping = self.ramping or was_static
        before, ceiling = self._ceiling, HOSTED_CEILING if self.signal is Signal.QUOTA else OWN_CEILING
        self._floor, self._start, self._ceiling = 1, START, ceiling
        if bounds is not None:
            self._floor, self._start, self._ceiling = bounds.min, bounds.start, bounds.max
        if self.signal is Signal.QUOTA and self._ceiling > before:
            self.ramping = True  # there is something to find out again
        if fresh:
            self._resize(self._start)
        else:
            self._resize(max(self._start, self.size) if was_static else self.size)

    def interval(self, latency: float | None) -> float:
        """Seconds between two sends in slow start; 0 after it."""
        if not self.ramping:
            return 0.0
        if self.signal is not Signal.QUOTA and latency is not None:
            return 0.5 * latency / self.size  # the window must come to be full, however quick the server is
        return max(DOUBLING, 0.5 * (latency or 0.0)) / (self.size if self._answered else self._start)

    def sent(self, in_flight: int, now: float) -> int:
        """A call was sent; returns the number of its cohort."""
        if self._grown_at is None:
            self._grown_at = now
        self._sent += 1
        if self._out == 0 and in_flight < self._full():
            return -1
        self._out += 1
        if self._out <= self._wanted:
            return self._cohort
        if self._out > self._wanted + LOST * self.size:
            self._begin_cohort()
        return -1

    def rate_is_known(self) -> None:
        """The rate decides from now on."""
        if self.signal is Signal.QUOTA and self.ramping:
            self.ramping = False
            self._resize(self._ceiling)

    def advance(self, in_flight: int, latency: float | None, now: float) -> bool:
        """Grow with time; whether it did."""
        if self.static or self._grown_at is None:
            return False
        if self._cap is not None and now >= self._quiet_since + self._quiet:
            return self._raise_cap(in_flight, now)
        if not self.ramping or self.signal is not Signal.QUOTA or now < self._grown_at + DOUBLING:
            return False
        if self._answered and self.size >= self._ceiling:
            self.ramping = False  # there is nothing left to find out, and a spread would keep it from being full
            return False
        expected = self._start if not self._answered else DOUBLING / self.interval(latency)
        full = self._sent >= 0.8 * expected or in_flight >= self.size
        self._grown_at, self._sent = now, 0
        return full and self._resize(int(1.5 * self.size) if self._answered else self.size + self._start)

    def grows_at(self) -> float | None:
        """When it may grow by time alone."""
        if self.static or self._grown_at is None or self.size >= self._ceiling:
            return None
        if self._cap is not None and self.size >= self._cap:
            return self._quiet_since + self._quiet
        return self._grown_at + DOUBLING if self.ramping and self.signal is Signal.QUOTA else None

    def slow_start_ends(self) -> bool:
        """A call was refused for a rate; whether the window was changed."""
        ramping, self.ramping = self.ramping, False
        return ramping and not self.static and self.signal is Signal.QUOTA and self._resize(self._ceiling)

    def is_of_calls(self, in_flight: int) -> bool:
        """Whether a refusal can be one of calls in flight, when so many others are.

        Not when far fewer are than were admitted before, nor when the cap was cut again and again without having been
        raised.
        """
        return self._cap is None or (in_flight >= 0.5 * self._cap and self._cuts < MOST_CUTS)

    def refused(self, in_flight: int, now: float, *, again: bool) -> bool:
        """A call was refused for calls in flight, and so many others are; whether the window was cut.

        Args:
            again: one was before in the same round trip: one less was admitted than it seemed then.
        """
        self.ramping = False
        if self.static:
            return False
        if again:
            self._cap = max(1, (self._cap or self.size) - 1)
            return self._resize(self._cap)
        self._quiet = QUIET if self._cap is None else min(LONGEST_QUIET, 2 * self._quiet)
        self._cap, self._step, self._quiet_since = max(1, min(self.size, in_flight)), 1, now
        self._cuts += 1
        return self._resize(self._cap)

    def follow_rate(self) -> None:
        """Refusals turned out to be of a rate."""
        self.signal, self._cap, self.ramping = Signal.QUOTA, None, False
        self._resize(self._ceiling)

    def completed(self, cohort: int, latency: float, output_tokens: int, now: float) -> bool:
        """A call of a cohort succeeded; whether the window changed."""
        self._answered = True
        if self.static or self.signal is Signal.QUOTA or cohort != self._cohort:
            return False
        slow = max(latency, SHORTEST) / (output_tokens + OVERHEAD)
        self._sum += slow
        self._squares += slow * slow
        self._back += 1
        if (
            self._back < (BACK_AT_FIRST if self.ramping and self._best else BACK) * self._wanted
            or self._out < self._wanted
        ):
            return False
        mean, count = self._sum / self._back, self._back
        spread = math.sqrt(max(0.0, self._squares / count - mean * mean)) / mean
        self._spread = spread if self._best is None else self._spread + 0.3 * (spread - self._spread)
        self._begin_cohort()
        return self._judge(mean, self._spread / math.sqrt(count), now)

    def _judge(self, mean: float, noise: float, now: float) -> bool:
        """What a cohort tells that took `mean` seconds a token, which may be wrong by the share `noise`."""
        if self._best is None:
            self._best = mean
        elif mean < self._best and not self.ramping:
            self._best += NEW_BEST * (mean - self._best)
        slowness = mean / self._best
        steep = 1 + max(STEEP, DEVIATIONS * noise)
        if slowness < (steep if self.ramping else FLAT):
            self._good = self.size
            if now < self._held_until:
                return False
            return self._resize(2 * self.size if self.ramping else self.size + max(1, int(GROWTH * self.size)))
        self.ramping = False
        if slowness <= steep or now < self._held_until:
            return False
        self._held_until = now + HOLD
        if self.size <= self._good:
            self._best *= OUTDATED
        return self._resize(int(max(0.9 * self._good, self.size * max(0.5, 1.03 / slowness))))

    def _full(self) -> float:
        """Calls in flight at which a cohort may begin."""
        if self._best is None:
            return 0.0
        return (FULL_AT_FIRST if self.ramping else FULL) * self.size

    def _raise_cap(self, in_flight: int, now: float) -> bool:
        assert self._cap is not None
        self._quiet_since = now
        if in_flight < FULL * self._cap:
            return False
        self._cuts = 0
        at_cap = self.size >= self._cap
        self._cap += self._step
        self._step *= 2
        return at_cap and self._resize(self._cap)

    def _resize(self, size: int) -> bool:
        if not self.static:
            most = self._ceiling if self._cap is None else min(self._cap, self._ceiling)
            size = max(min(self._floor, most), min(most, size))
        if size == self.size:
            return False
        self.size = size
        self._begin_cohort()
        return True

    def _begin_cohort(self) -> None:
        self._cohort += 1
        self._wanted = max(FIRST_COHORT, int(COHORT_SHARE * self.size))
        if not self.ramping:
            self._wanted = max(self._wanted, min(LARGEST_COHORT, int((self._spread / PRECISION) ** 2)))
        self._out, self._back, self._sum, self._squares = 0, 0, 0.0, 0.0
