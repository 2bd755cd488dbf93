"""`SimulatedProvider`: a model API with quotas, as seen from outside, in whatever time it is given.

It has no clock, no tasks and no sockets: it is told when a request arrives and when its answer leaves, so that a
simulation (pacing_simulation.py) plays an hour in a second. What it does is made of what hosted and self-hosted APIs
were seen to do: token buckets and fixed windows on requests, input, output and total tokens; output counted when it is
produced or reserved when a call is admitted; a cap on calls in flight; latency that grows with the output and, past a
knee, with the load; 5xx and hangs; Retry-After in every spelling, true or not; quota headers stamped when a call is
admitted or when it is complete; quota that another user takes; and a penalty for those who do not stop.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from random import Random
from typing import Final

from attrs import define, field, frozen

from proctor.model.pacing import Dimension, QuotaReading

MINUTE: Final = 60.0


class Status(enum.Enum):
    """What became of a request."""

    OK = "ok"
    LIMITED = "429"
    FAULT = "5xx"
    HANG = "hang"


class RetryAfter(enum.Enum):
    """How a refusal says when to come back."""

    ABSENT = "absent"
    WHOLE = "whole seconds"
    FRACTION = "fraction"


@frozen(kw_only=True)
class Quota:
    """One limit.

    Attributes:
        per_minute: units a minute.
        burst: seconds of that rate which the bucket holds.
        fixed: a window that is full again every minute, instead of a bucket that is refilled all the time.
        taken: ``(start, end, share)``: what another user takes of it meanwhile.
    """

    dimension: Dimension
    per_minute: float
    burst: float = MINUTE
    fixed: bool = False
    taken: tuple[float, float, float] | None = None


@frozen(kw_only=True)
class Penalty:
    """Who gets more than `refusals` within `within` seconds is refused everything for `lasting` seconds."""

    refusals: int = 20
    within: float = 10.0
    lasting: float = 20.0


@frozen(kw_only=True)
class ProviderTraits:
    """How a provider behaves; times in seconds.

    Attributes:
        quotas: its limits. concurrency: calls in flight it takes, None any number.
        first_token: until the first token. per_token: for each token after it. spread: sigma of the log-normal factor
            on both.
        travel: one way over the network, at least. jitter: added at most.
        knee: calls in flight above which latency grows by ``(n / knee) ** steepness``.
        faults, hangs: shares of admitted requests. hang: how long those are silent before they fail.
        retry_after: how a refusal says when to come back; a number is a lie that is always told.
        headers: whether quota headers are sent. at_completion: they are stamped when the answer is complete.
        reserves: `max_tokens` is taken when a call is admitted and corrected at its end.
        names_dimension: a refusal says which limit it is about.
        counts_refused: refused requests count too. penalty: for those who do not stop.
    """

    quotas: tuple[Quota, ...] = ()
    concurrency: int | None = None
    first_token: float = 0.4
    per_token: float = 0.01
    spread: float = 0.2
    travel: float = 0.03
    jitter: float = 0.03
    knee: int | None = None
    steepness: float = 1.3
    faults: float = 0.0
    hangs: float = 0.0
    hang: float = 120.0
    retry_after: RetryAfter | float = RetryAfter.ABSENT
    headers: bool = False
    at_completion: bool = False
    reserves: bool = False
    names_dimension: bool = False
    counts_refused: bool = False
    penalty: Penalty | None = None


@frozen(eq=False, kw_only=True)
class Request:
    """One request as it arrives; its luck is decided beforehand, so that it does not depend on who sends it when.

    Attributes:
        input_tokens, output_tokens: that it takes and will produce. max_output_tokens: that it asks for.
        slowness: a standard normal number for its latency. luck: uniform on [0, 1), decides faults and hangs.
    """

    input_tokens: int
    output_tokens: int
    max_output_tokens: int | None = None
    slowness: float = 0.0
    luck: float = 1.0


@define(eq=False, kw_only=True)
class Answer:
    """What comes of a request.

    Attributes:
        duration: seconds from its arrival until the answer leaves. quota: the headers it will carry.
    """

    request: Request
    status: Status
    duration: float
    retry_after: float | None = None
    dimension: Dimension | None = None
    quota: tuple[QuotaReading, ...] = ()


@define(eq=False)
class Tank:
    """One quota's level."""

    quota: Quota
    rate: float = field(init=False)
    capacity: float = field(init=False)
    level: float = field(init=False)
    at: float = 0.0

    def __attrs_post_init__(self) -> None:
        self.rate = self.quota.per_minute / MINUTE
        self.capacity = self.quota.per_minute if self.quota.fixed else max(1.0, self.rate * self.quota.burst)
        self.level = self.capacity

    def advance(self, now: float) -> None:
        """Refill up to `now`."""
        if now <= self.at:
            return
        if self.quota.fixed:
            if math.floor(now / MINUTE) > math.floor(self.at / MINUTE):
                self.level = self.capacity
            self.level -= self._taken(self.at, now)
        else:
            self.level = min(self.capacity, self.level + (now - self.at) * self.rate - self._taken(self.at, now))
        self.at = now

    def _taken(self, start: float, end: float) -> float:
        if self.quota.taken is None:
            return 0.0
        first, last, share = self.quota.taken
        return max(0.0, min(end, last) - max(start, first)) * share * self.rate

    def wait(self, cost: float, now: float) -> float:
        """Seconds until `cost` is there; 0 when it is. The level is up to date."""
        missing = min(cost, self.capacity) - self.level
        if missing <= 0.0:
            return 0.0
        if self.quota.fixed:
            return self._window_end(now) - now
        rate = self.rate
        if self.quota.taken is not None and self.quota.taken[0] <= now < self.quota.taken[1]:
            rate *= 1 - self.quota.taken[2]
        return max(1e-6, missing / rate)

    def reading(self, now: float) -> QuotaReading:
        """What headers say of it."""
        reset = self._window_end(now) - now if self.quota.fixed else (self.capacity - self.level) / self.rate
        remaining = max(0.0, float(math.floor(self.level)))
        return QuotaReading(self.quota.dimension, self.quota.per_minute, remaining, reset)

    def _window_end(self, now: float) -> float:
        return (math.floor(now / MINUTE) + 1) * MINUTE


@define(eq=False)
class SimulatedProvider:
    """A provider. `arrive` and `leave` are called in the order of time.

    Attributes:
        in_flight: admitted calls whose answer has not left. peak: the most there were.
        admitted, refused: counts.
    """

    traits: ProviderTraits
    rng: Random
    tanks: list[Tank] = field(init=False)
    in_flight: int = field(default=0, init=False)
    peak: int = field(default=0, init=False)
    admitted: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)
    blocked_until: float = field(default=0.0, init=False)
    _refusals: deque[float] = field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self.tanks = [Tank(quota) for quota in self.traits.quotas]

    def travel(self) -> float:
        """Seconds that a message takes one way."""
        return self.traits.travel + self.traits.jitter * self.rng.random()

    def arrive(self, request: Request, now: float) -> Answer:
        """A request arrives: whether it is admitted, and what it will come to."""
        self._advance(now)
        if now < self.blocked_until:
            return self._refuse(request, now, self.blocked_until - now, None)
        cap = self.traits.concurrency
        if cap is not None and self.in_flight >= cap:
            return self._refuse(request, now, 1.0, Dimension.CONCURRENCY)
        for tank in self.tanks:
            wait = tank.wait(self._needed(tank, request), now)
            if wait > 0.0:
                return self._refuse(request, now, wait, tank.quota.dimension)
        return self._admit(request, now)

    def leave(self, answer: Answer, now: float) -> None:
        """The answer leaves, or its client has gone: output is counted, the place in flight is free."""
        if answer.status is Status.LIMITED:
            return
        self._advance(now)
        self.in_flight -= 1
        produced = answer.request.output_tokens if answer.status is Status.OK else 0
        for tank in self.tanks:
            if tank.quota.dimension in {Dimension.OUTPUT_TOKENS, Dimension.TOKENS}:
                tank.level -= produced - self._reserved(answer.request)
        if self.traits.headers and self.traits.at_completion:
            answer.quota = self._headers(now)

    def wait(self, request: Request, now: float) -> float:
        """Seconds until a request would be admitted, 0 for now, infinity when a call must leave first."""
        self._advance(now)
        wait = max(0.0, self.blocked_until - now)
        most = min(self.traits.concurrency or math.inf, self.traits.knee or math.inf)
        if self.in_flight >= most:
            return math.inf
        return max([wait, *(tank.wait(self._needed(tank, request), now) for tank in self.tanks)])

    def _advance(self, now: float) -> None:
        for tank in self.tanks:
            tank.advance(now)

    def _reserved(self, request: Request) -> int:
        return request.max_output_tokens or 0 if self.traits.reserves else 0

    def _needed(self, tank: Tank, request: Request) -> float:
        return max(1.0, self._cost(tank, request))

    def _cost(self, tank: Tank, request: Request) -> float:
        match tank.quota.dimension:
            case Dimension.REQUESTS:
                return 1.0
            case Dimension.INPUT_TOKENS:
                return request.input_tokens
            case Dimension.OUTPUT_TOKENS:
                return self._reserved(request)
            case _:
                return request.input_tokens + self._reserved(request)

    def _admit(self, request: Request, now: float) -> Answer:
        traits = self.traits
        for tank in self.tanks:
            tank.level -= self._cost(tank, request)
        self.admitted += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        duration = (traits.first_token + traits.per_token * request.output_tokens) * math.exp(
            traits.spread * request.slowness
        )
        status = Status.OK
        if request.luck < traits.hangs:
            status, duration = Status.HANG, traits.hang
        elif request.luck < traits.hangs + traits.faults:
            status, duration = Status.FAULT, min(duration, traits.first_token)
        elif traits.knee is not None and self.in_flight > traits.knee:
            duration *= (self.in_flight / traits.knee) ** traits.steepness
        stamped = traits.headers and not traits.at_completion and status is Status.OK
        return Answer(request=request, status=status, duration=duration, quota=self._headers(now) if stamped else ())

    def _refuse(self, request: Request, now: float, wait: float, dimension: Dimension | None) -> Answer:
        traits = self.traits
        self.refused += 1
        if traits.counts_refused and now >= self.blocked_until:
            for tank in self.tanks:
                if tank.quota.dimension is Dimension.REQUESTS:
                    tank.level = max(tank.level - 1.0, -tank.capacity)
        if traits.penalty is not None and now >= self.blocked_until:
            self._punish(traits.penalty, now)
        match traits.retry_after:
            case RetryAfter.ABSENT:
                said = None
            case RetryAfter.WHOLE:
                said = float(math.ceil(wait))
            case RetryAfter.FRACTION:
                said = wait
            case lie:
                said = lie
        return Answer(
            request=request,
            status=Status.LIMITED,
            duration=0.0,
            retry_after=said,
            dimension=dimension if traits.names_dimension else None,
            quota=self._headers(now) if traits.headers else (),
        )

    def _punish(self, penalty: Penalty, now: float) -> None:
        refusals = self._refusals
        refusals.append(now)
        while refusals[0] < now - penalty.within:
            refusals.popleft()
        if len(refusals) > penalty.refusals:
            refusals.clear()
            self.blocked_until = now + penalty.lasting

    def _headers(self, now: float) -> tuple[QuotaReading, ...]:
        return tuple(tank.reading(now) for tank in self.tanks)
