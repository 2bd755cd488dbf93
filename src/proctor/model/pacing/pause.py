"""The shared pause after a refusal, and the single probe that ends it.

Refusals of calls that were sent before the first of them was noticed are one block: one pause. A second block with
next to nothing admitted in between means that the pause was too short: from then on one call at a time is sent until
one of them is admitted. So does a second block that comes sooner after the pause than the pause was long; that is what
keeps a window that learns nothing (a static one) from running into its limit ten times a second.

What a provider says in Retry-After bounds the pause from above and never alone decides it: some say 89 seconds whatever
the truth, some a date in the past.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define, field

from proctor.model.pacing.queue import Ticket

ASKED: Final = 2.0  # seconds granted to the first Retry-After, doubling
LONGEST_ASKED: Final = 16.0
BELIEVED: Final = 2  # blocks in a row after which a Retry-After was too short
SHORTEST: Final = 0.05  # seconds after the first refusal that names no time
CALLS: Final = 2.0  # the same in calls at the learned rate, if that is longer
UNASKED: Final = 0.5  # seconds after the second, doubling
LONGEST_UNASKED: Final = 8.0
STEEPEST: Final = 10  # doublings
PROBE: Final = 0.4  # seconds without a refusal after which a probe counts as admitted, at least
ROUND_TRIPS: Final = 3  # the same in round trips
A_FEW: Final = 3  # calls admitted between two blocks that make the second a first one


@define(eq=False)
class Pause:
    """Whether calls may leave at all.

    Attributes:
        until: nothing leaves before. streak: blocks in a row. again: the last one came with next to nothing admitted.
        probing: only one call at a time may be out. probe: that call.
        round_trip: seconds that a refusal takes.
    """

    until: float = field(default=-math.inf, init=False)
    streak: int = field(default=0, init=False)
    again: bool = field(default=False, init=False)
    probing: bool = field(default=False, init=False)
    probe: Ticket | None = field(default=None, init=False)
    round_trip: float = field(default=0.0, init=False)
    _noticed: int = field(default=-1, init=False)  # the last send when the last block was noticed
    _lasted: float = field(default=0.0, init=False)
    _resumed: float = field(default=-math.inf, init=False)

    def refused(
        self, ticket: Ticket, now: float, *, latest: int, retry_after: float | None, rate: float | None
    ) -> float | None:
        """A call was refused.

        Args:
            latest: number of the last send. retry_after: what the provider asks for.
            rate: calls a second, as far as it is learned.

        Returns:
            The pause in seconds if a new block begins; None if the refusal belongs to the one known.
        """
        took = now - ticket.sent_at
        self.round_trip = took if self.round_trip == 0.0 else self.round_trip + 0.2 * (took - self.round_trip)
        self.gone(ticket)
        if ticket.number <= self._noticed:
            return None
        self.again = bool(self.streak) and ticket.number - self._noticed <= A_FEW
        soon = now - self._resumed < self._lasted
        self.streak = self.streak + 1 if self.again or soon else 1
        self.probing = self.streak > 1
        self._noticed = latest
        pause = self._lasted = self._length(retry_after, rate)
        self.until = self._resumed = max(self.until, now + pause)
        return pause

    def _length(self, retry_after: float | None, rate: float | None) -> float:
        doubled = 2.0 ** min(self.streak - 1, STEEPEST)
        unasked = min(LONGEST_UNASKED, UNASKED * doubled / 2)
        if retry_after is not None and retry_after > 0.0:  # not for NaN
            # Who asks for too little again and again is not believed either.
            least = SHORTEST if self.streak <= BELIEVED else unasked / 2
            return max(least, min(retry_after, ASKED * doubled, LONGEST_ASKED))
        if self.streak > 1:
            return unasked
        return SHORTEST if rate is None else min(UNASKED, max(SHORTEST, CALLS / rate))

    def reopens_at(self) -> float | None:
        """When the probe that is out counts as admitted."""
        if self.probe is None:
            return None
        return self.probe.sent_at + max(PROBE, ROUND_TRIPS * self.round_trip)

    def admitted(self, now: float) -> None:
        """A probe was admitted: all may leave again."""
        self.probing, self.probe, self._resumed = False, None, now

    def gone(self, ticket: Ticket) -> None:
        """A call is out no longer; if it was the probe, another may be sent."""
        if self.probe is ticket:
            self.probe = None
