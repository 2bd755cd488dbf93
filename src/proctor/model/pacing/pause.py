"""The shared pause after a refusal, and the single probe that ends it.

Refusals of calls that were sent before the first of them was noticed are one block: one pause. A second block with
next to nothing admitted in between means that the pause was too short: from then on one call at a time is sent until
one of them is admitted.

What a provider says in Retry-After bounds the pause from above and never alone decides it: some say 89 seconds whatever
the truth, some a date in the past.
"""

from __future__ import annotations

import math
from typing import Final

from attrs import define

from proctor.model.pacing.queue import Ticket

ASKED: Final = 2.0  # seconds granted to the first Retry-After, doubling
LONGEST_ASKED: Final = 64.0
SHORTEST: Final = 0.05  # seconds after the first refusal that names no time
GAPS: Final = 2.0  # the same in times between two sends, if that is longer
UNASKED: Final = 0.5  # seconds after the second, doubling
LONGEST_UNASKED: Final = 8.0
PROBE: Final = 0.4  # seconds without a refusal after which a probe counts as admitted, at least
ROUND_TRIPS: Final = 3  # the same in round trips
A_FEW: Final = 3  # calls admitted between two blocks that make the second a first one


@define(eq=False)
class Pause:
    """Whether calls may leave at all.

    Attributes:
        until: nothing leaves before. streak: blocks in a row. probing: only one call at a time may be out.
        probe: that call. blocks: so far. round_trip: seconds that a refusal takes.
    """

    until: float = -math.inf
    streak: int = 0
    probing: bool = False
    probe: Ticket | None = None
    blocks: int = 0
    round_trip: float = 0.0
    again: bool = False
    _noticed: int = -1
    _lasted: float = 0.0
    _resumed: float = -math.inf

    def refused(self, ticket: Ticket, latest: int, retry_after: float | None, gap: float, now: float) -> float | None:
        """A call was refused, when `latest` was the number of the last send and sends were to be `gap` seconds apart.

        Returns:
            The pause in seconds if a new block begins; None if the refusal belongs to the one known.
        """
        took = now - ticket.sent_at
        self.round_trip = took if self.round_trip == 0.0 else self.round_trip + 0.2 * (took - self.round_trip)
        if self.probe is ticket:
            self.probe = None
        if ticket.number <= self._noticed:
            return None
        self.again = bool(self.streak) and ticket.number - self._noticed - 1 < A_FEW
        short = now - self._resumed < self._lasted
        self.streak = self.streak + 1 if self.again or short else 1
        self._noticed = latest
        self.blocks += 1
        pause = self._length(retry_after, gap)
        self.until = max(self.until, now + pause)
        self._lasted, self._resumed = pause, self.until
        if self.streak > 1:
            self.probing = True
        return pause

    def _length(self, retry_after: float | None, gap: float) -> float:
        steps = min(self.streak - 1, 10)
        if retry_after is not None and retry_after > 0.0:  # not for NaN
            return max(SHORTEST, min(retry_after, ASKED * 2.0**steps, LONGEST_ASKED))
        if steps == 0:
            return min(UNASKED, max(SHORTEST, GAPS * gap))
        return min(LONGEST_UNASKED, UNASKED * 2.0 ** (steps - 1))

    def reopens_at(self) -> float | None:
        """When the probe that is out counts as admitted."""
        if self.probe is None:
            return None
        return self.probe.sent_at + max(PROBE, ROUND_TRIPS * self.round_trip)

    def advance(self, now: float) -> bool:
        """Whether the probe has just come to count as admitted."""
        at = self.reopens_at()
        if at is None or now < at:
            return False
        self.admitted(now)
        return True

    def admitted(self, now: float) -> None:
        """A probe was admitted: all may leave again."""
        self.probing, self.probe, self._resumed = False, None, now

    def gone(self, ticket: Ticket) -> None:
        """A call that was out is so no longer, and nothing is known of its admission."""
        if self.probe is ticket:
            self.probe = None
