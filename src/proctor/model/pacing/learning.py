"""A rate that is learned from refusals alone, where no header shows it.

The refusals of one round trip are one block. At its beginning the provider's bucket was empty, so what was admitted
between the beginnings of two blocks is what flowed into the bucket meanwhile, to the call: the longer apart the two,
the better is the rate known. In between, what is sent goes a little below the known rate, then a little above it, then
more and more, until the next block. The clock of this probing counts paced seconds only: every send adds the seconds
that its pace takes, so it stands still while nothing may be sent and while there is nothing to send.

It is always a rate of requests, also where tokens are what is scarce: a refusal without headers rarely says which, the
tokens of calls in flight are not known yet, and a rate of requests follows a mean of tokens well enough.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from attrs import define, field

from proctor.model.pacing.values import Dimension, RateStatistics

REMEMBERED: Final = 90.0  # seconds of blocks
ENOUGH: Final = 8  # calls between two blocks that tell a rate
ENOUGH_AT_FIRST: Final = 3  # the same for the first blocks
FIRST_BLOCKS: Final = 4
CHANGED: Final = 16  # calls since an earlier block that tell whether the rate has changed
DIFFERENT: Final = 0.25  # of the newer rate, by which the older one then differs
RECENT: Final = 10.0  # seconds
FIRST: Final = 0.9  # of what was admitted recently, when nothing else is known
LESS: Final = 0.8  # of the rate, when two blocks are too close to tell
LEAST: Final = 0.4  # of what was admitted recently, at least
MOST: Final = 1.5  # times what was being sent, at most
SLOWEST: Final = 1e-3  # calls a second
BELOW: Final = 0.07  # of the rate, right after a block
ABOVE: Final = 0.012  # of the rate, after that
STEEPER: Final = 0.03  # of the rate for each second after that, and
STEEPEST: Final = 0.006  # for each of them squared
RESTING: Final = 4.0  # paced seconds below the rate
CALM_CALLS: Final = 120.0  # in which the probing is not steep, but
CALM: Final = (8.0, 45.0)  # paced seconds at least and at most
STABLE: Final = 2.0  # times as long, when the last probing ended at the same pace
NEAR: Final = 0.1  # of a pace


@define(eq=False)
class Learned:
    """A learned rate.

    Attributes:
        rate: calls a second, None before the first refusal.
        clock: paced seconds since the last block. sent: calls so far. back: calls refused so far.
    """

    rate: float | None = field(default=None, init=False)
    clock: float = field(default=0.0, init=False)
    sent: int = field(default=0, init=False)
    back: int = field(default=0, init=False)
    _blocks: deque[tuple[float, int]] = field(factory=deque, init=False)
    _seen: int = field(default=0, init=False)
    _recent: deque[tuple[float, int]] = field(factory=deque, init=False)
    _ended_at: float = field(default=0.0, init=False)
    _patience: float = field(default=1.0, init=False)

    def send(self, now: float) -> float:
        """A call is sent; returns the seconds until the next one, 0 without a rate."""
        self.sent += 1
        recent = self._recent
        recent.append((now, self.sent - self.back))
        while recent[0][0] < now - RECENT:
            recent.popleft()
        if self.rate is None:
            return 0.0
        gap = 1.0 / self.pace()
        self.clock += gap
        return gap

    def refused(self) -> None:
        """A call that was sent was not admitted."""
        self.back += 1

    def pace(self) -> float:
        """Calls a second to send at now; 0 without a rate."""
        rate, clock = self.rate or 0.0, self.clock
        if clock < RESTING:
            return rate * (1 - BELOW)
        beyond = clock - self._calm()
        if beyond <= 0.0:
            return rate * (1 + ABOVE)
        return rate * (1 + ABOVE + (STEEPER + STEEPEST * beyond) * beyond)

    def _calm(self) -> float:
        """Paced seconds until the probing becomes steeper."""
        assert self.rate is not None
        least, most = CALM
        return min(most, max(least, CALM_CALLS / self.rate) * self._patience)

    def block(self, sent_at: float, sent: int, now: float) -> float:
        """A block begins: the call that was sent at `sent_at`, as number `sent`, was the first refused.

        Returns:
            The rate.
        """
        self._seen += 1
        self._blocks.append((sent_at, sent - self.back))  # all that were refused so far were sent before it
        while self._blocks[0][0] < sent_at - REMEMBERED:
            self._blocks.popleft()
        recently = self._recently(now)
        if self.rate is None:
            self.rate = max(SLOWEST, FIRST * recently)
            self._recent.clear()  # what came out of a full bucket says nothing about the rate
            return self.rate
        pace, found = self.pace(), self._between()
        if found is None:
            found = LESS * self.rate
        self._patience = STABLE if abs(pace - self._ended_at) < NEAR * self._ended_at else 1.0
        self._ended_at, self.clock = pace, 0.0
        self.rate = max(SLOWEST, LEAST * recently, min(MOST * pace, found))
        return self.rate

    def _recently(self, now: float) -> float:
        """Calls a second admitted of late."""
        recent = self._recent
        if not recent:
            return 0.0
        return (recent[-1][1] - recent[0][1] + 1) / max(1.0, min(RECENT, now - recent[0][0]))

    def _between(self) -> float | None:
        """The rate that the blocks tell: over the longest time, unless it has changed since."""
        blocks = self._blocks
        at, calls = blocks[-1]
        enough = ENOUGH_AT_FIRST if self._seen <= FIRST_BLOCKS else ENOUGH
        oldest = next(((t, n) for t, n in blocks if calls - n >= enough and t < at), None)
        if oldest is None:
            return None
        found = (calls - oldest[1]) / (at - oldest[0])
        newest = next(((t, n) for t, n in reversed(blocks) if calls - n >= CHANGED and t < at), None)
        if newest is None:
            return found
        fresh = (calls - newest[1]) / (at - newest[0])
        if abs(found - fresh) <= DIFFERENT * fresh:
            return found
        while blocks[0][0] < newest[0]:
            blocks.popleft()
        return fresh

    def statistics(self) -> RateStatistics:
        """As it is now."""
        return RateStatistics(Dimension.REQUESTS, "learned", (self.rate or 0.0) * 60, self.pace() * 60, 0.0, 0.0)
