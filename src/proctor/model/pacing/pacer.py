"""The pacer: when a call may leave.

`Pacer` is the face; the rates are in books.py (with buckets.py and learning.py), the calls in flight in window.py, the
pause after a refusal in pause.py, the line in queue.py. Everything is one synchronous step, a step is told what time it
is, and the same steps with the same seed give the same sends.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from random import Random
from typing import Final

from attrs import define

from proctor.model.pacing.books import Books
from proctor.model.pacing.buckets import INDEX
from proctor.model.pacing.pause import Pause
from proctor.model.pacing.queue import DELAYED, IN_FLIGHT, QUEUED, Lines, Ticket
from proctor.model.pacing.values import (
    Call,
    Dimension,
    PacerDecision,
    PacerStatistics,
    PacingConfig,
    QuotaReading,
    Signal,
    Usage,
)
from proctor.model.pacing.window import Window

REMEMBERED: Final = 1000  # decisions
FAULT: Final = 0.5  # seconds before a call is sent again that failed, doubling
LONGEST_FAULT: Final = 30.0
SPREAD: Final = 0.5  # of that time, up and down
SOON: Final = 1.0  # seconds in which a new sample's call must leave for the sample to be wanted while others wait
UNEXPLAINED: Final = 2  # refusals no header explains, then a rate is learned beside them


@define(eq=False, init=False, repr=False)
class Pacer:
    """Decides when each call to one model may leave. Pure: it is told the time and does nothing by itself.

    Args:
        config: what is declared. now: the time (seconds on a clock that only goes on). rng: chance, for spreading.
    """

    _rng: Random
    _now: float
    _lines: Lines
    _tickets: dict[Call, Ticket]
    _delayed: list[tuple[float, int, int, Ticket]]  # when to be back in line, arrival, version
    _pause: Pause
    _window: Window
    _told: Signal  # by the configuration
    _books: Books
    _history: deque[PacerDecision]
    _next_send: float
    _blocked: float | None  # when the first in line may leave, if that is known for this moment
    _in_flight: int
    _sends: int
    _succeeded: int
    _refused: int
    _failed: int
    _latency: float | None
    _unexplained: int
    _of_calls: bool  # the last block of refusals was taken to be about calls in flight

    def __init__(self, config: PacingConfig, *, now: float, rng: Random) -> None:
        self._rng, self._now = rng, now
        self._lines, self._tickets, self._delayed = Lines(), {}, []
        self._pause, self._window, self._books = Pause(), Window(config.signal), Books()
        self._told = config.signal
        self._history = deque(maxlen=REMEMBERED)
        self._next_send, self._blocked, self._latency = -math.inf, None, None
        self._in_flight = self._sends = self._succeeded = self._refused = self._failed = self._unexplained = 0
        self._of_calls = False
        self._take(config)
        self._decided("window", self._window.size, "to begin with")

    # -- the line

    def enqueue(self, call: Call, now: float) -> None:
        """A call wants to be sent.

        Raises:
            ValueError: it is here already.
        """
        if call in self._tickets:
            raise ValueError(f"{call!r} is here already: a call is enqueued once, and put back by the pacer itself")
        self._blocked = None
        ticket = self._tickets[call] = self._lines.join(call)
        self._lines.add(ticket)

    def withdraw(self, call: Call, now: float) -> None:
        """A call that waits was cancelled, or its caller has no attempts left."""
        ticket = self._tickets.pop(call)
        self._blocked = None
        if ticket.place is QUEUED:
            self._lines.withdraw(ticket)
        ticket.version += 1
        self._lines.leave(ticket)

    def poll(self, now: float, most: int | None = None) -> list[Call]:
        """The calls that leave now, in this order, at most `most`. Each is to be sent, and settled once."""
        now = self._advance(now)
        granted: list[Call] = []
        while (ticket := self._lines.head()) is not None:
            if len(granted) == most:
                break
            at = self._when(ticket.call.input_tokens, ticket.call.max_output_tokens, now)
            if at > now:
                self._blocked = at
                break
            self._send(ticket, now)
            granted.append(ticket.call)
        else:
            self._blocked = None
        return granted

    def next_wakeup(self, now: float) -> float | None:
        """When to poll though nothing happens, in absolute seconds; None if only an event can help.

        With an empty line that is when `wants_sample` becomes true by time alone.
        """
        now = self._advance(now)
        ticket = self._lines.head()
        at = self._blocked
        if ticket is not None:
            if at is None:
                at = self._when(ticket.call.input_tokens, ticket.call.max_output_tokens, now)
        else:
            at = self._when(self._books.estimates.input, None, now)
            if at <= now:
                at = math.inf
        if self._delayed:
            at = min(at, self._delayed[0][0])
        reopens = self._pause.reopens_at()
        if reopens is not None:
            at = min(at, reopens)
        return None if at == math.inf else max(at, now)

    def wants_sample(self, now: float) -> bool:
        """Whether another sample could send a call at once.

        Also while calls wait, if the next that leaves would be the new sample's and that is soon: samples that have
        made fewer calls go first, so that at the end of a task many are left to share the model, not a few.
        """
        now = self._advance(now)
        if self._lines.firsts:
            return False
        soon = SOON if self._lines.waiting else 0.0
        return self._when(self._books.estimates.input, None, now) <= now + soon

    # -- outcomes

    def on_success(self, call: Call, now: float, *, usage: Usage, quota: Sequence[QuotaReading] = ()) -> None:
        """A call succeeded."""
        ticket = self._landed(call, now)
        now = self._now
        self._succeeded += 1
        took = now - ticket.sent_at
        self._latency = took if self._latency is None else self._latency + 0.05 * (took - self._latency)
        if self._pause.probe is ticket:
            self._reopen(now)
        self._books.settle(ticket, usage)
        if quota:
            self._read(ticket, quota, now)
        if self._window.completed(ticket.cohort, took, usage.output_tokens, now):
            self._decided("window", self._window.size, "latency")
        self._forget(ticket)

    def on_rate_limited(
        self,
        call: Call,
        now: float,
        *,
        retry_after: float | None,
        quota: Sequence[QuotaReading] = (),
        dimension: Dimension | None = None,
    ) -> None:
        """A call was refused with a 429; it is first in its group's line again.

        Args:
            retry_after: seconds that the provider asks to wait, whatever they are.
            dimension: which limit the provider names.
        """
        ticket = self._landed(call, now)
        now = self._now
        self._refused += 1
        self._books.refund(ticket)
        self._lines.refund(ticket)
        if quota:
            self._read(ticket, quota, now)
        pause = self._pause.refused(
            ticket, now, latest=self._sends - 1, retry_after=retry_after, rate=self._books.learned.rate
        )
        if pause is not None:
            self._decided("pause", pause, f"429, {self._pause.streak} in a row")
            if self._pause.probing:
                self._decided("probe", 1, "one call at a time until one is admitted")
            self._block(ticket, dimension, now)
        elif self._of_calls and self._window.refused(self._in_flight, now, again=True):
            self._decided("window", self._window.size, "429")
        self._lines.add(ticket, back=True)

    def on_failure(
        self,
        call: Call,
        now: float,
        *,
        transient: bool,
        retry_after: float | None = None,
        quota: Sequence[QuotaReading] = (),
    ) -> None:
        """A call failed otherwise; if that may pass it is back in line after a while."""
        ticket = self._landed(call, now)
        now = self._now
        self._failed += 1
        self._pause.gone(ticket)
        self._books.fail(ticket)
        if quota:
            self._read(ticket, quota, now)
        if not transient:
            self._forget(ticket)
            return
        wait = min(LONGEST_FAULT, FAULT * 2.0 ** min(ticket.failures, 10))
        wait *= 1 + SPREAD * (2 * self._rng.random() - 1)
        if retry_after is not None and retry_after > 0.0:
            wait = min(retry_after, max(2.0, 4 * wait))
        ticket.failures += 1
        ticket.version += 1
        ticket.place = DELAYED
        heappush(self._delayed, (now + wait, ticket.arrival, ticket.version, ticket))

    def on_cancelled(self, call: Call, now: float) -> None:
        """A call was cancelled in flight."""
        ticket = self._landed(call, now)
        self._pause.gone(ticket)
        self._books.fail(ticket)
        self._forget(ticket)

    def abandon(self, call: Call, now: float) -> None:
        """A call was granted and never sent."""
        ticket = self._landed(call, now)
        self._pause.gone(ticket)
        self._books.refund(ticket)
        self._lines.refund(ticket)
        self._forget(ticket)

    # -- live changes, and what is to be seen

    def configure(self, config: PacingConfig, now: float) -> None:
        """Change the configuration; calls in flight are not disturbed."""
        now = self._advance(now)
        self._blocked = None
        if config.signal is not self._told:
            self._told = self._window.signal = config.signal  # else what was found out stays
        self._take(config)
        self._decided("config", self._window.size, "changed by the user")

    @property
    def window(self) -> int:
        """Calls that may be in flight."""
        return self._window.size

    def history(self) -> Sequence[PacerDecision]:
        """The latest decisions, oldest first."""
        return tuple(self._history)

    def statistics(self, now: float) -> PacerStatistics:
        """How it stands."""
        now = self._advance(now)
        delayed = sum(entry[3].version == entry[2] for entry in self._delayed)
        return PacerStatistics(
            window=self._window.size,
            in_flight=self._in_flight,
            queued=self._lines.waiting + delayed,
            delayed=delayed,
            rates=self._books.statistics(now),
            pause=max(0.0, self._pause.until - now),
            probing=self._pause.probing,
            sent=self._sends,
            succeeded=self._succeeded,
            rate_limited=self._refused,
            failed=self._failed,
            latency=self._latency,
            outstanding=self._books.held,
            groups=self._lines.counts(),
        )

    # -- steps

    def _take(self, config: PacingConfig) -> None:
        self._window.configure(config.max_connections, config.adaptive)
        self._books.configure(config, self._now)
        if self._books.rate_is_known:
            self._window.rate_is_known()

    def _advance(self, now: float) -> float:
        """Let time pass: it never goes back."""
        if now <= self._now:
            return self._now
        self._now = now
        self._blocked = None
        delayed = self._delayed
        while delayed and delayed[0][0] <= now:
            _, _, version, ticket = heappop(delayed)
            if ticket.version == version:
                self._lines.add(ticket, back=True)
        reopens = self._pause.reopens_at()
        if reopens is not None and reopens <= now:
            self._reopen(now)
        if self._window.advance(self._in_flight, self._latency, now):
            self._decided("window", self._window.size, "nothing was refused")
        return now

    def _when(self, input_tokens: float, max_output_tokens: int | None, now: float) -> float:
        """When a call of this cost may leave; `now` or earlier if it may, infinity if only an event helps."""
        pause, books, window = self._pause, self._books, self._window
        if pause.probing and pause.probe is not None:
            return math.inf
        at = pause.until if pause.until > self._next_send else self._next_send
        if self._in_flight >= window.size:
            grows = window.grows_at()
            if grows is None or grows <= now:
                return math.inf
            at = max(at, grows)
        fits = books.when(input_tokens, max_output_tokens, now)
        return fits if fits > at else at

    def _send(self, ticket: Ticket, now: float) -> None:
        gap, cost = self._books.spend(ticket, now)
        if self._window.ramping:
            gap = max(gap, self._window.interval(self._latency))
        self._next_send = (self._next_send if self._next_send > now else now) + gap
        self._lines.take(ticket, cost)
        self._in_flight += 1
        ticket.place = IN_FLIGHT
        ticket.number = self._sends
        ticket.sent_at = now
        self._sends += 1
        ticket.cohort = self._window.sent(self._in_flight, now)
        if self._pause.probing:
            self._pause.probe = ticket

    def _landed(self, call: Call, now: float) -> Ticket:
        ticket = self._tickets[call]
        if ticket.place is not IN_FLIGHT:
            raise ValueError(f"{call!r} is {ticket.place.value}, not in flight: every grant is settled once")
        self._advance(now)
        self._blocked = None
        self._in_flight -= 1
        return ticket

    def _forget(self, ticket: Ticket) -> None:
        del self._tickets[ticket.call]
        self._lines.leave(ticket)

    def _read(self, ticket: Ticket, quota: Sequence[QuotaReading], now: float) -> None:
        size = self._window.size
        for reading in self._books.read(ticket, quota, now):
            if self._window.signal is Signal.UNKNOWN:
                self._window.signal = Signal.QUOTA  # who shows a quota has one
            per_minute = reading.limit / reading.window * 60
            self._decided("rate", per_minute, "headers", reading.dimension)
            self._window.rate_is_known()
        if self._window.size != size:
            self._decided("window", self._window.size, "a rate is known")

    def _reopen(self, now: float) -> None:
        self._pause.admitted(now)
        self._decided("resume", 0.0, "a probe was admitted")

    def _block(self, ticket: Ticket, dimension: Dimension | None, now: float) -> None:
        """A block of refusals begins: what does it tell?"""
        if not self._succeeded and not self._in_flight:
            return  # who never admitted anything says nothing of how much that may be
        books, window = self._books, self._window
        index = INDEX.get(dimension) if dimension is not None else None
        explained = dimension is not Dimension.CONCURRENCY and books.explains(ticket, index, now)
        self._of_calls = dimension is Dimension.CONCURRENCY
        if dimension is None and not explained and window.signal is not Signal.QUOTA and not window.static:
            self._of_calls = window.is_of_calls(self._in_flight)
            if not self._of_calls:
                window.follow_rate()
                self._decided("window", window.size, "429s that are not about calls in flight")
        if self._of_calls:
            if window.refused(self._in_flight, now, again=False):
                self._decided("window", window.size, "429")
            return
        if window.slow_start_ends():
            self._decided("window", window.size, "429")
        if explained or window.static or (self._pause.again and books.learned.rate is not None):
            return  # a second block in a row says that the pause was too short, nothing of a rate
        self._unexplained += 1
        if books.shown and self._unexplained < UNEXPLAINED:
            return
        rate = books.learned.block(ticket.sent_at, ticket.sent, now)
        self._decided("rate", rate * 60, "learned from a 429", Dimension.REQUESTS)

    def _decided(self, kind: str, value: float, reason: str, dimension: Dimension | None = None) -> None:
        self._history.append(PacerDecision(self._now, kind, value, reason, dimension))
