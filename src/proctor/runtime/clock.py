"""The wall clock: the one place that reads it.

Durations are never taken from here: they come from `anyio.current_time`, which tests can play in virtual time. What is
written into logs and file names (a date) comes from the clock of the current runtime, so that a run in virtual time
carries dates that repeat.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, Protocol

import anyio
from attrs import field, frozen

Timespec = Literal["auto", "hours", "minutes", "seconds", "milliseconds", "microseconds"]


class Clock(Protocol):
    """Where the date comes from."""

    def now(self) -> datetime:
        """The date and time, with a time zone."""
        ...


@frozen
class SystemClock:
    """The machine's clock, in UTC."""

    def now(self) -> datetime:
        """The machine's date and time in UTC."""
        return datetime.now(UTC)


@frozen
class LoopClock:
    """A date that advances with the running loop's own clock: what a run in virtual time uses.

    Attributes:
        start: the date at the loop's time 0.
    """

    start: datetime = field(default=datetime(2030, 1, 1, tzinfo=UTC))

    def now(self) -> datetime:
        """`start` and as many seconds as the loop's clock shows."""
        return self.start + timedelta(seconds=anyio.current_time())


SYSTEM_CLOCK: Final = SystemClock()

current_clock: Final[ContextVar[Clock]] = ContextVar("proctor_clock", default=SYSTEM_CLOCK)


def utc_now() -> datetime:
    """The date and time by the clock of the current runtime, else by the machine's; in UTC."""
    return current_clock.get().now()


def iso_now(timespec: Timespec = "seconds") -> str:
    """`utc_now` as ISO 8601 text with its offset: ``2030-01-01T00:00:00+00:00``."""
    return utc_now().isoformat(timespec=timespec)
