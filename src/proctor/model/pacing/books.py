"""The books of a pacer: what each call is expected to cost, what was spent, what is left of every rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from attrs import define, field

from proctor.model.pacing.buckets import INDEX, Bucket, Mirror
from proctor.model.pacing.learning import Learned
from proctor.model.pacing.queue import Ticket
from proctor.model.pacing.values import PacingConfig, QuotaReading, RateStatistics, Usage

REQUESTS: Final = 0
INPUT: Final = 1
OUTPUT: Final = 2
TOTAL: Final = 3
UNSEEN_OUTPUT: Final = 250.0  # tokens expected of an answer when nothing is known at all
SLOWEST_AVERAGE: Final = 0.02  # weight of the latest call in a mean
DOUBTS: Final = 2.0  # deviations of an input's size that are kept free for it
MOST_OFF: Final = 4.0  # times its count that an input is taken to come to at most
OUTSTANDING: Final = 0.3  # of a bucket that is kept free at most for the output of calls in flight


@define(eq=False)
class Books:
    """All rates and what was spent of them.

    Attributes:
        input, output: mean tokens of a call; output 0 before any was seen.
        ratio, doubt: what inputs come to by what they were counted as, on average, and the mean deviation from that.
        held: output that is expected of calls in flight.
    """

    config: PacingConfig
    now: float
    input: float = field(default=0.0, init=False)
    output: float = field(default=0.0, init=False)
    ratio: float = field(default=1.0, init=False)
    doubt: float = field(default=0.0, init=False)
    held: float = field(default=0.0, init=False)
    buckets: list[Bucket] = field(factory=list, init=False)
    learned: Learned = field(factory=lambda: Learned(REQUESTS), init=False)
    _mirrors: list[Mirror | None] = field(factory=lambda: [None] * 4, init=False)
    _sums: list[float] = field(factory=lambda: [0.0] * 4, init=False)
    _outputs: int = field(default=0, init=False)
    _inputs: int = field(default=0, init=False)
    _dominant: float = field(default=0.0, init=False)
    _closed: set[int] = field(factory=set, init=False)

    def __attrs_post_init__(self) -> None:
        self.configure(self.config, self.now)

    def configure(self, config: PacingConfig, now: float) -> None:
        """Take declared rates; what was learned stays unless the window is static now."""
        self.config = config
        declared = (
            config.requests_per_minute,
            config.input_tokens_per_minute,
            config.output_tokens_per_minute,
            config.tokens_per_minute,
        )
        self._closed = {index for index, rate in enumerate(declared) if rate is not None and rate <= 0}
        if config.max_connections is not None:
            self._closed = {REQUESTS, INPUT, OUTPUT, TOTAL}
            self.learned = Learned(REQUESTS)
        self._mirrors = [None if index in self._closed else mirror for index, mirror in enumerate(self._mirrors)]
        self.buckets = [Bucket(i, rate / 60, now) for i, rate in enumerate(declared) if rate is not None and rate > 0]
        self.buckets.extend(mirror for mirror in self._mirrors if mirror is not None)

    @property
    def rate_is_known(self) -> bool:
        """Whether any rate paces what is sent."""
        return bool(self.buckets) or self.learned.rate is not None

    # -- before a call leaves

    def expected_output(self, max_output_tokens: int | None) -> float:
        """Tokens of output that must be there for a call to leave."""
        if self.config.reserves_max_tokens and max_output_tokens is not None:
            return max_output_tokens
        return self._typical_output(max_output_tokens)

    def _typical_output(self, max_output_tokens: int | None) -> float:
        if self._outputs:
            return self.output
        return UNSEEN_OUTPUT if max_output_tokens is None else max_output_tokens / 4

    def when(self, input_tokens: float, output: float, now: float) -> float:
        """When a call of this cost fits every rate; `now` or earlier if it does."""
        at = -math.inf
        tokens = input_tokens * (self.ratio + DOUBTS * self.doubt)
        counted_late = not self.config.reserves_max_tokens
        for bucket in self.buckets:
            index = bucket.index
            cost = 1.0
            if index == INPUT:
                cost = tokens
            elif index != REQUESTS:
                cost = output if index == OUTPUT else tokens + output
                if counted_late and bucket is self._mirrors[index]:
                    cost += min(self.held, OUTSTANDING * bucket.capacity)
            fits = bucket.when(cost, now)
            if fits > at:
                at = fits
        return at

    # -- a call leaves

    def spend(self, ticket: Ticket, now: float) -> tuple[float, float]:
        """A call is sent.

        Returns:
            Seconds to leave until the next one, and what it costs in mean calls.
        """
        tokens, output = ticket.call.input_tokens * self.ratio, self.expected_output(ticket.call.max_output_tokens)
        self._inputs += 1
        self.input += max(1 / self._inputs, SLOWEST_AVERAGE) * (ticket.call.input_tokens - self.input)
        typical = self._typical_output(ticket.call.max_output_tokens)
        at_once = output if self.config.reserves_max_tokens else 0.0
        ticket.output = output
        ticket.costs = costs = [1.0, tokens, at_once, tokens + at_once]
        sums = self._sums
        sums[REQUESTS] += 1.0
        sums[INPUT] += tokens
        sums[OUTPUT] += at_once
        sums[TOTAL] += tokens + at_once
        ticket.sums = sums.copy()
        self.held += output
        gap = dominant = 0.0
        for bucket in self.buckets:
            index = bucket.index
            mirror = self._mirrors[index]
            bucket.spend(costs[index] if mirror is bucket else self._of(index, tokens, output))
            cost = self._of(index, tokens, typical)
            if mirror is bucket:
                mirror.mean_cost += SLOWEST_AVERAGE * (cost - mirror.mean_cost)
            least = bucket.gap(cost)
            if least > gap:
                gap = least
            if cost > dominant * bucket.eff:
                dominant = cost / bucket.eff
        ticket.marks = [0.0 if mirror is None else mirror.level - mirror.corrected for mirror in self._mirrors]
        learned = self.learned
        ticket.admitted = learned.sent
        cost = self._of(learned.index, tokens, output)
        if learned.rate is not None:
            gap = max(gap, cost / learned.pace())
        learned.spend(cost, now)
        if dominant == 0.0:
            return gap, 1.0
        self._dominant = dominant if self._dominant == 0.0 else self._dominant + 0.02 * (dominant - self._dominant)
        return gap, dominant / self._dominant

    @staticmethod
    def _of(index: int, tokens: float, output: float) -> float:
        return (1.0, tokens, output, tokens + output)[index]

    # -- what it came to

    def settle(self, ticket: Ticket, usage: Usage) -> None:
        """A call succeeded and used so much."""
        self.held -= ticket.output
        self._outputs += 1
        self.output += max(1 / self._outputs, SLOWEST_AVERAGE) * (usage.output_tokens - self.output)
        spared_input = 0.0
        if usage.input_tokens > 0:
            spared_input = ticket.costs[INPUT] - usage.input_tokens
            self._calibrate(ticket.call.input_tokens, usage.input_tokens)
        spared_output = ticket.output - usage.output_tokens
        reserves = self.config.reserves_max_tokens
        used = usage.output_tokens
        for bucket in self.buckets:
            index = bucket.index
            if index == REQUESTS:
                continue
            mirror = self._mirrors[index]
            if mirror is not bucket:
                bucket.give_back(self._of(index, spared_input, spared_output))
                continue
            if index != OUTPUT:
                mirror.settle(spared_input)
            if index != INPUT and reserves:
                mirror.settle(spared_output)
            elif index != INPUT:
                mirror.spend(used)
        sums = self._sums
        sums[INPUT] -= spared_input
        late = -spared_output if reserves else used
        sums[OUTPUT] += late
        sums[TOTAL] += late - spared_input

    def _calibrate(self, counted: int, used: int) -> None:
        if counted > 0:
            off = min(MOST_OFF, used / counted) - self.ratio
            self.ratio += SLOWEST_AVERAGE * off
            self.doubt += SLOWEST_AVERAGE * (abs(off) - self.doubt)

    def fail(self, ticket: Ticket) -> None:
        """A call failed or was cancelled: it counts as sent, with the output it was expected to have."""
        self.held -= ticket.output

    def refund(self, ticket: Ticket) -> None:
        """A call was refused or never sent: it cost nothing."""
        self.held -= ticket.output
        costs, sums = ticket.costs, self._sums
        tokens, output = costs[INPUT], ticket.output
        for bucket in self.buckets:
            mirror = self._mirrors[bucket.index]
            if mirror is bucket:
                mirror.settle(costs[bucket.index])
            else:
                bucket.give_back(self._of(bucket.index, tokens, output))
        for index in range(4):
            sums[index] -= costs[index]
        self.learned.refused(self._of(self.learned.index, tokens, output))

    def gap(self) -> float:
        """Seconds that a learned rate leaves between two calls; 0 without one."""
        learned = self.learned
        if learned.rate is None:
            return 0.0
        return self._of(learned.index, self.input * self.ratio, self.output) / learned.rate

    def learn(self, ticket: Ticket, now: float) -> float:
        """A block of refusals begins with this call, which is refunded already; returns the learned rate (a second)."""
        learned = self.learned
        cost = self._of(learned.index, ticket.costs[INPUT], ticket.output)
        return learned.block(ticket.sent_at, ticket.admitted + cost, now)

    # -- headers

    def read(
        self, ticket: Ticket, quota: Sequence[QuotaReading], latest: int, now: float
    ) -> list[QuotaReading]:
        """Take what the headers of an answer say, when `latest` is the number of the last send.

        Returns:
            The readings of limits that were not known before.
        """
        fresh = []
        for reading in quota:
            index = INDEX.get(reading.dimension)
            if index is None or index in self._closed or not _sensible(reading):
                continue
            mirror = self._mirrors[index]
            elapsed, spent = now - ticket.sent_at, self._sums[index] - ticket.sums[index]
            if mirror is None:
                mirror = Mirror(index, reading.limit / reading.window, now)
                mirror.begin(reading, ticket.number, latest, reading.remaining - spent + elapsed * mirror.rate)
                mirror.mean_cost = max(1.0, self._of(index, self.input, self.output))
                self._mirrors[index] = mirror
                self.buckets.append(mirror)
                fresh.append(reading)
                continue
            mirror.advance(now)
            if ticket.number > mirror.began:
                expected = ticket.marks[index] + mirror.corrected
            else:  # sent before there was a mirror to keep a mark of
                expected = mirror.level + spent - elapsed * mirror.eff
            stamp = (ticket.sent_at, ticket.sums[index])
            if mirror.at_completion:
                stamp = (now, self._sums[index])
            mirror.read(reading, ticket.number, expected, stamp, now)
        return fresh

    def emptied(self, index: int) -> bool:
        """The provider says that nothing is left of a quota; whether it is one that it shows."""
        mirror = self._mirrors[index]
        if mirror is not None:
            mirror.emptied()
        return mirror is not None

    def explained(self, now: float) -> bool:
        """Whether a refusal is no surprise: some quota that the provider shows is nearly used up."""
        for mirror in self._mirrors:
            if mirror is not None:
                mirror.advance(now)
                if mirror.level < max(3 * mirror.mean_cost, 0.1 * mirror.capacity):
                    return True
        return False

    def statistics(self, now: float) -> tuple[RateStatistics, ...]:
        """All rates as they are now."""
        rates = [bucket.statistics(now) for bucket in self.buckets]
        if self.learned.rate is not None:
            rates.append(self.learned.statistics())
        return tuple(rates)


def _sensible(reading: QuotaReading) -> bool:
    return 0 < reading.limit < math.inf and 0 < reading.window < math.inf and 0 <= reading.remaining < math.inf
