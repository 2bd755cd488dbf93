"""The books of a pacer: what each call is expected to cost, what was spent, what is left of every rate.

There are rates that the user declared, mirrors of those that the provider shows in headers (one for each dimension and
period), and one that is learned from refusals. What a call costs of a declared or a learned rate is debited when it is
sent, by expectation, and corrected when it is known. Of a mirror only what the provider counts then is debited, or the
readings would not agree: output that is counted as it is produced is debited when the call is complete, and until then
something is kept free for the calls in flight.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from attrs import define, field

from proctor.model.pacing.buckets import INDEX, Bucket, Mirror
from proctor.model.pacing.estimates import Estimates
from proctor.model.pacing.learning import Learned
from proctor.model.pacing.queue import Ticket
from proctor.model.pacing.values import PacingConfig, QuotaReading, RateStatistics, Usage

REQUESTS: Final = 0
INPUT: Final = 1
OUTPUT: Final = 2
TOTAL: Final = 3
ABSURD: Final = 1e15  # units or seconds; who says more is not believed
SMOOTH: Final = 0.02  # weight of the latest call in a mean
OUTSTANDING: Final = 0.3  # of a bucket that is kept free at most for the output of calls in flight


def _of(index: int, tokens: float, output: float) -> float:
    """The part of a call's cost that a dimension counts."""
    return (1.0, tokens, output, tokens + output)[index]


@define(eq=False)
class Books:
    """All rates and what was spent of them.

    Attributes:
        estimates: what calls are expected to cost. learned: the rate that is learned from refusals.
        held: output that is expected of calls in flight.
    """

    estimates: Estimates = field(factory=Estimates, init=False)
    learned: Learned = field(factory=Learned, init=False)
    held: float = field(default=0.0, init=False)
    _declared: list[Bucket] = field(factory=list, init=False)
    _mirrors: list[Mirror] = field(factory=list, init=False)
    _closed: frozenset[int] = field(default=frozenset(), init=False)  # dimensions whose headers are not read
    _sums: list[float] = field(factory=lambda: [0.0] * 4, init=False)  # sent so far, refused or not, by dimension
    _dominant: float = field(default=0.0, init=False)  # mean of what calls cost where they cost most, in seconds

    def configure(self, config: PacingConfig, now: float) -> None:
        """Take declared rates; what was learned stays unless the window is static now."""
        self.estimates.reserves = config.reserves_max_tokens
        rates = (
            config.requests_per_minute,
            config.input_tokens_per_minute,
            config.output_tokens_per_minute,
            config.tokens_per_minute,
        )
        if config.max_connections is None:
            self._closed = frozenset(index for index, rate in enumerate(rates) if rate is not None and rate <= 0)
        else:
            self._closed = frozenset((REQUESTS, INPUT, OUTPUT, TOTAL))
            self.learned = Learned()
        self._mirrors = [mirror for mirror in self._mirrors if mirror.index not in self._closed]
        known = {bucket.index: bucket for bucket in self._declared}
        self._declared = []
        for index, rate in enumerate(rates):
            if rate is not None and rate > 0:
                bucket = Bucket(index, rate / 60, now)
                if index in known:  # a new number is no new minute
                    known[index].advance(now)
                    bucket.level = min(bucket.capacity, known[index].level)
                self._declared.append(bucket)

    @property
    def shown(self) -> bool:
        """Whether the provider shows any quota."""
        return bool(self._mirrors)

    @property
    def rate_is_known(self) -> bool:
        """Whether any rate paces what is sent."""
        return bool(self._mirrors or self._declared) or self.learned.rate is not None

    # -- before a call leaves

    def when(self, input_tokens: float, max_output_tokens: int | None, now: float) -> float:
        """When a call fits every rate; `now` or earlier if it does."""
        at = -math.inf
        if not self._mirrors and not self._declared:
            return at
        estimates = self.estimates
        tokens, output = estimates.tokens_at_most(input_tokens), estimates.needed_output(max_output_tokens)
        held = 0.0 if estimates.reserves else self.held
        # What follows runs for every decision: comparisons, since `max` and `min` take five times as long.
        for mirror in self._mirrors:
            index = mirror.index
            if index == REQUESTS:
                fits = mirror.when(1.0, now)
            elif index == INPUT:
                fits = mirror.when(tokens, now)
            else:
                most = OUTSTANDING * mirror.capacity
                cost = output if index == OUTPUT else tokens + output
                fits = mirror.when(cost + (held if held < most else most), now)
            at = fits if fits > at else at
        for bucket in self._declared:
            fits = bucket.when(_of(bucket.index, tokens, output), now)
            at = fits if fits > at else at
        return at

    # -- a call leaves

    def spend(self, ticket: Ticket, now: float) -> tuple[float, float]:
        """A call is sent.

        Returns:
            Seconds to leave until the next one, and what it costs in mean calls.
        """
        call, estimates = ticket.call, self.estimates
        tokens, output = estimates.tokens(call), estimates.needed_output(call.max_output_tokens)
        typical = estimates.typical_output(call.max_output_tokens)
        estimates.sent(call)
        self._debit(ticket, tokens, output)
        gap, dominant = self.learned.send(now), 0.0
        ticket.sent = self.learned.sent
        ticket.marks = marks = {}
        expected, debits = (1.0, tokens, typical, tokens + typical), ticket.costs
        for mirror in self._mirrors:
            index = mirror.index
            cost = expected[index]
            apart = mirror.gap(cost)
            gap = apart if apart > gap else gap
            mirror.level -= debits[index]
            marks[mirror] = mirror.level - mirror.corrected
            mirror.mean_cost += SMOOTH * (cost - mirror.mean_cost)
            share = cost / mirror.eff
            dominant = share if share > dominant else dominant
        for bucket in self._declared:
            bucket.level -= _of(bucket.index, tokens, output)
            cost = expected[bucket.index]
            gap = max(gap, bucket.gap(cost))
            dominant = max(dominant, cost / bucket.eff)
        if dominant == 0.0:
            return gap, 1.0
        self._dominant += (SMOOTH if self._dominant else 1.0) * (dominant - self._dominant)
        return gap, dominant / self._dominant

    def _debit(self, ticket: Ticket, tokens: float, output: float) -> None:
        """Note what a call costs at its send."""
        at_once = output if self.estimates.reserves else 0.0
        ticket.output = output
        ticket.costs = (1.0, tokens, at_once, tokens + at_once)
        sums = self._sums
        sums[REQUESTS] += 1.0
        sums[INPUT] += tokens
        sums[OUTPUT] += at_once
        sums[TOTAL] += tokens + at_once
        ticket.sums = sums.copy()
        self.held += output

    # -- what it came to

    def settle(self, ticket: Ticket, usage: Usage) -> None:
        """A call succeeded and used so much."""
        self.held -= ticket.output
        self.estimates.seen(ticket.call, usage)
        spared_input = ticket.costs[INPUT] - usage.input_tokens if usage.input_tokens > 0 else 0.0
        spared_output = ticket.output - usage.output_tokens
        reserved = ticket.costs[OUTPUT]
        late = usage.output_tokens - reserved
        for mirror in self._mirrors:
            index = mirror.index
            if index in {INPUT, TOTAL}:
                mirror.settle(spared_input)
            if index in {OUTPUT, TOTAL}:
                if reserved:
                    mirror.settle(-late)
                else:
                    mirror.level -= late
        for bucket in self._declared:
            if bucket.index != REQUESTS:
                bucket.give_back(_of(bucket.index, spared_input, spared_output))
        sums = self._sums
        sums[INPUT] -= spared_input
        sums[OUTPUT] += late
        sums[TOTAL] += late - spared_input

    def fail(self, ticket: Ticket) -> None:
        """A call failed or was cancelled: it counts as sent, with the output it was expected to have."""
        self.held -= ticket.output

    def refund(self, ticket: Ticket) -> None:
        """A call was refused or never sent: it cost nothing."""
        self.held -= ticket.output
        costs = ticket.costs
        for mirror in self._mirrors:
            mirror.settle(costs[mirror.index])
        for bucket in self._declared:
            bucket.give_back(_of(bucket.index, costs[INPUT], ticket.output))
        self.learned.refused()

    # -- refusals

    def explains(self, ticket: Ticket, index: int | None, now: float) -> bool:
        """Whether a call that is refunded was refused for a quota that the provider shows.

        Args:
            index: of the dimension that the provider named; None if it named none, then of a quota nearly used up.
        """
        for mirror in self._mirrors:
            mirror.advance(now)
            scarce = mirror.level < max(3 * mirror.mean_cost, 0.1 * mirror.capacity)
            if mirror.index == index or (index is None and scarce):
                mirror.refused(max(1.0, ticket.costs[mirror.index]))
                return True
        return False

    # -- headers

    def read(self, ticket: Ticket, quota: Sequence[QuotaReading], now: float) -> list[QuotaReading]:
        """Take what the headers of an answer say.

        Returns:
            The readings of limits that were not known before.
        """
        fresh = []
        shown: set[tuple[int, float]] = set()
        for reading in quota:
            index = INDEX.get(reading.dimension)
            if index is None or index in self._closed or not _sensible(reading):
                continue
            shown.add((index, reading.window))
            for mirror in self._mirrors:
                if mirror.index == index and mirror.window == reading.window:
                    self._compare(mirror, reading, ticket, now)
                    break
            else:
                self._begin(index, reading, ticket, now)
                fresh.append(reading)
        if len(self._mirrors) > len(shown):
            self._drop_unshown(shown, ticket.number)
        return fresh

    def _compare(self, mirror: Mirror, reading: QuotaReading, ticket: Ticket, now: float) -> None:
        mirror.advance(now)
        index = mirror.index
        mark = ticket.marks.get(mirror)
        if mark is not None:
            expected = mark + mirror.corrected
        else:
            # Sent before there was a mirror: of what was refilled since some may have found the bucket full.
            expected = mirror.level + self._sums[index] - ticket.sums[index]
            refilled = (now - ticket.sent_at) * mirror.eff
            expected = min(expected, max(reading.remaining, expected - refilled))
        stamp = (now, self._sums[index]) if mirror.at_completion else (ticket.sent_at, ticket.sums[index])
        mirror.read(reading, ticket.number, expected, stamp, now)

    def _begin(self, index: int, reading: QuotaReading, ticket: Ticket, now: float) -> None:
        mirror = Mirror(index, reading.limit / reading.window, now)
        level = reading.remaining - (self._sums[index] - ticket.sums[index])
        mean_cost = max(1.0, _of(index, self.estimates.input, self.estimates.output))
        mirror.begin(reading, ticket.number, level, mean_cost)
        self._mirrors.append(mirror)

    def _drop_unshown(self, shown: set[tuple[int, float]], number: int) -> None:
        """The limits of a dimension are those that its latest answer shows."""
        told = {index for index, _ in shown}
        self._mirrors = [
            mirror
            for mirror in self._mirrors
            if mirror.index not in told or (mirror.index, mirror.window) in shown or mirror.newest > number
        ]

    def statistics(self, now: float) -> tuple[RateStatistics, ...]:
        """All rates as they are now."""
        rates = [bucket.statistics(now) for bucket in (*self._declared, *self._mirrors)]
        if self.learned.rate is not None:
            rates.append(self.learned.statistics())
        return tuple(rates)


def _sensible(reading: QuotaReading) -> bool:
    return 1 <= reading.limit < ABSURD and 0 < reading.window < ABSURD and 0 <= reading.remaining < ABSURD
