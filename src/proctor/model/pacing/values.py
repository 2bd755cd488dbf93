"""What a pacer is told and what it tells: calls, readings of quota headers, its configuration, its decisions."""

from __future__ import annotations

import enum
from collections.abc import Hashable, Mapping

from attrs import field, frozen

from proctor.model.config import AdaptiveConcurrency


class Dimension(enum.Enum):
    """What a quota counts."""

    REQUESTS = "requests"
    INPUT_TOKENS = "input tokens"
    OUTPUT_TOKENS = "output tokens"
    TOKENS = "tokens"
    CONCURRENCY = "concurrency"
    """Calls in flight; only ever named by a 429, never read from a header."""


class Signal(enum.Enum):
    """What tells that a provider is at its limit."""

    QUOTA = "quota"
    """A hosted API: it refuses what is above a rate."""
    LATENCY = "latency"
    """A server of one's own: it becomes slow."""
    UNKNOWN = "unknown"


@frozen(eq=False)
class Call:
    """One logical call, the same object over all its attempts; equal only to itself.

    Attributes:
        group: whose share it is counted to (the task).
        order: place within the group, lower first: calls its sample has made, then the sample's admission number; of a
            sample that holds a sandbox 0, then the admission number.
        weight: the group's share against a group of weight 1.
        input_tokens: as counted or estimated before it is sent.
        max_output_tokens: the limit of its answer, None where there is none.
    """

    group: Hashable
    order: tuple[int, ...] = ()
    weight: float = 1.0
    input_tokens: int = 0
    max_output_tokens: int | None = None


@frozen
class QuotaReading:
    """One limit as a response's headers show it, whatever their spelling.

    Attributes:
        limit: units in a window; one that is not above 0 says nothing.
        remaining: units that are left. reset_after: seconds until the provider calls it reset, None if not said.
        window: seconds that `limit` is for.
    """

    dimension: Dimension
    limit: float
    remaining: float
    reset_after: float | None = None
    window: float = 60.0


@frozen
class Usage:
    """Tokens that a call used."""

    input_tokens: int = 0
    output_tokens: int = 0


@frozen
class PacingConfig:
    """What the user and the provider's code say about pacing.

    Attributes:
        max_connections: a static window of calls in flight: nothing is learned. None: the window is adaptive.
        adaptive: the user's bounds for an adaptive window, None without any.
        requests_per_minute, input_tokens_per_minute, output_tokens_per_minute, tokens_per_minute: declared rates; None
            says nothing, 0 that there is no such limit, whatever headers say.
        signal: what tells that the provider is at its limit.
        reserves_max_tokens: the provider counts `max_tokens` when it admits a call, and corrects that at its end.
            Otherwise output is counted as it is produced.
    """

    max_connections: int | None = None
    adaptive: AdaptiveConcurrency | None = None
    requests_per_minute: float | None = None
    input_tokens_per_minute: float | None = None
    output_tokens_per_minute: float | None = None
    tokens_per_minute: float | None = None
    signal: Signal = Signal.QUOTA
    reserves_max_tokens: bool = False


@frozen
class PacerDecision:
    """One change of what a pacer does, for the log and the display.

    Attributes:
        time: when (seconds, the clock that the pacer is given).
        kind: ``rate``, ``window``, ``pause``, ``probe``, ``resume`` or ``config``.
        value: what it is now: units a minute, calls in flight, seconds of the pause.
        reason: in words. dimension: of a rate.
    """

    time: float
    kind: str
    value: float
    reason: str
    dimension: Dimension | None = None


@frozen
class RateStatistics:
    """One rate that a pacer keeps to.

    Attributes:
        source: ``declared``, ``headers`` or ``learned``.
        per_minute: the provider's rate. effective: what of it can be had now, units a minute.
        level: units that are left now. capacity: units that can be left at most.
    """

    dimension: Dimension
    source: str
    per_minute: float
    effective: float
    level: float
    capacity: float


@frozen
class PacerStatistics:
    """A pacer as it is now.

    Attributes:
        window: calls that may be in flight. in_flight: calls that are.
        queued: calls that wait to be sent. delayed: calls of these that wait after a failure.
        rates: the rates it keeps to. pause: seconds for which nothing leaves, 0 when not paused.
        probing: one call at a time is sent until one is admitted.
        sent: attempts. succeeded: calls. rate_limited: attempts refused with a 429. failed: other failed attempts.
        latency: mean seconds of a successful attempt, None before any.
        outstanding: tokens of output that are expected of the calls in flight.
        groups: waiting calls by group.
    """

    window: int
    in_flight: int
    queued: int
    delayed: int
    rates: tuple[RateStatistics, ...]
    pause: float
    probing: bool
    sent: int
    succeeded: int
    rate_limited: int
    failed: int
    latency: float | None
    outstanding: float = 0.0
    groups: Mapping[Hashable, int] = field(factory=dict)
