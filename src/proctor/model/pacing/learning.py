"""A rate that is learned from refusals alone, where no header shows it.

The refusals of one round trip are one block. At its beginning the provider's bucket was empty, so what was admitted
between the beginnings of two blocks is what flowed into the bucket meanwhile, to the unit: the longer apart the two,
the better is the rate known. In between, what is sent goes a little below the known rate, then a little above it, then
more and more, until the next block. The clock of this probing counts paced seconds only: every send adds the seconds
that its pace takes, so it stands still while nothing may be sent and while there is nothing to send.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from attrs import define, field

from proctor.model.pacing.buckets import DIMENSIONS
from proctor.model.pacing.values import RateStatistics

REMEMBERED: Final = 90.0  # seconds of blocks
ENOUGH: Final = 8.0  # units between two blocks that tell a rate
ENOUGH_AT_FIRST: Final = 3.0
FIRST_BLOCKS: Final = 4
CHANGED: Final = 16.0  # units between the newest two blocks that tell that the rate has changed
RECENT: Final = 10.0  # seconds
BELOW: Final = 0.07
ABOVE: Final = 0.012
CALM: Final = 4.0  # seconds below the rate after a block
PROBE: Final = (120.0, 8.0, 45.0)  # units, seconds at least and at most, until the probing becomes steeper


@define(eq=False)
class Learned:
    """A learned rate.

    Attributes:
        index: of its dimension. rate: units a second, None before the first refusal.
        clock: paced seconds since the last block. sent: units so far. back: units refused so far.
    """

    index: int
    rate: float | None = field(default=None, init=False)
    clock: float = field(default=0.0, init=False)
    sent: float = field(default=0.0, init=False)
    back: float = field(default=0.0, init=False)
    _blocks: deque[tuple[float, float]] = field(factory=deque, init=False)
    _seen: int = field(default=0, init=False)
    _recent: deque[tuple[float, float]] = field(factory=deque, init=False)
    _failed_at: float | None = field(default=None, init=False)
    _patience: float = field(default=1.0, init=False)

    def spend(self, cost: float, now: float) -> float:
        """A call is sent; returns the units sent before it."""
        before = self.sent
        self.sent += cost
        recent = self._recent
        recent.append((now, self.sent - self.back))
        while recent[0][0] < now - RECENT:
            recent.popleft()
        if self.rate is not None:
            self.clock += cost / self.pace()
        return before

    def refused(self, cost: float) -> None:
        """A call that was sent was not admitted."""
        self.back += cost

    def pace(self) -> float:
        """Units a second to send at now; only with a rate."""
        assert self.rate is not None
        clock = self.clock
        if clock < CALM:
            return self.rate * (1 - BELOW)
        calm = self.calm()
        if clock < calm:
            return self.rate * (1 + ABOVE)
        beyond = clock - calm
        return self.rate * (1 + ABOVE + 0.03 * beyond + 0.006 * beyond * beyond)

    def calm(self) -> float:
        """Paced seconds until the probing becomes steeper."""
        assert self.rate is not None
        units, least, most = PROBE
        return min(most, max(least, units / self.rate) * self._patience)

    def block(self, sent_at: float, sent: float, now: float) -> float:
        """A block begins: the call sent at `sent_at`, as the last of `sent` units, was the first refused.

        Returns:
            The rate.
        """
        self._seen += 1
        pace = self.pace() if self.rate is not None else None
        blocks = self._blocks
        # All that were refused so far were sent before this one.
        blocks.append((sent_at, sent - self.back))
        while blocks[0][0] < sent_at - REMEMBERED:
            blocks.popleft()
        recently = self._recently(now)
        if self.rate is None:
            self.rate = 0.9 * recently
            self._recent.clear()  # what was left from before says nothing about the rate
        else:
            assert pace is not None
            found = self._between()
            if found is None:
                found = 0.8 * self.rate
            self.rate = max(0.4 * recently, min(1.5 * pace, found))
        near = self._failed_at is not None and pace is not None and abs(pace - self._failed_at) < 0.1 * self._failed_at
        self._patience = 2.0 if near else 1.0
        self._failed_at = pace
        self.rate = max(self.rate, 1e-3)
        self.clock = 0.0
        return self.rate

    def _recently(self, now: float) -> float:
        recent = self._recent
        if not recent:
            return self.rate or 0.1
        span = max(1.0, min(RECENT, now - recent[0][0]))
        return (recent[-1][1] - recent[0][1] + 1.0) / span

    def _between(self) -> float | None:
        blocks = self._blocks
        if len(blocks) < 2:
            return None
        at, units = blocks[-1]
        enough = ENOUGH_AT_FIRST if self._seen <= FIRST_BLOCKS else ENOUGH
        newest: float | None = None
        for earlier, before in reversed(list(blocks)[:-1]):
            if units - before >= CHANGED and at > earlier:
                newest = (units - before) / (at - earlier)
                break
        pairs = [(earlier, before) for earlier, before in blocks if units - before >= enough and at > earlier]
        if not pairs:
            return None
        earlier, before = pairs[0]
        found = (units - before) / (at - earlier)
        if newest is not None and abs(found - newest) > 0.25 * newest:
            while len(blocks) > 2 and units - blocks[1][1] >= CHANGED:
                blocks.popleft()
            return newest
        return found

    def statistics(self) -> RateStatistics:
        """As it is now."""
        rate = self.rate or 0.0
        pace = self.pace() if self.rate is not None else 0.0
        return RateStatistics(DIMENSIONS[self.index], "learned", rate * 60, pace * 60, 0.0, 0.0)
