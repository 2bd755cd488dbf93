"""What a response says beside its result: its status and its quota headers, on their way to the pacer.

A context variable carries it, so that a provider has nothing to do: the HTTP client notes each response in the exchange
of the attempt it is made in, and child tasks of a provider find the same one. A provider that speaks another way calls
`responded` or `showed` itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import anyio
from attrs import define

from proctor.model.pacing.values import QuotaReading

if TYPE_CHECKING:
    from proctor.model.api import ModelAPI

NO_HEADERS: Final[Mapping[str, str]] = {}


@define(eq=False)
class Exchange:
    """What the response of the attempt under way says.

    Attributes:
        status: HTTP's, None before anything came. headers: by name.
        first_byte: when its head came (`anyio.current_time`). quota: readings that the provider made itself.
    """

    status: int | None = None
    headers: Mapping[str, str] = NO_HEADERS
    first_byte: float | None = None
    quota: Sequence[QuotaReading] = ()

    def clear(self) -> None:
        """Another attempt begins."""
        self.status, self.headers, self.first_byte, self.quota = None, NO_HEADERS, None, ()

    def readings(self, api: ModelAPI) -> Sequence[QuotaReading]:
        """What it says of quotas."""
        if self.headers is NO_HEADERS or not _tells(self.headers):
            return self.quota
        return [*self.quota, *api.quota_readings(self.headers)]


exchange: Final[ContextVar[Exchange | None]] = ContextVar("proctor_exchange", default=None)


def responded(status: int, headers: Mapping[str, str]) -> None:
    """Note that the head of a response came. Of several responses in an attempt the last counts."""
    current = exchange.get()
    if current is not None:
        current.status, current.headers, current.first_byte = status, headers, anyio.current_time()


def showed(quota: Sequence[QuotaReading]) -> None:
    """Note readings of quotas that are in no header of HTTP's."""
    current = exchange.get()
    if current is not None:
        current.quota = [*current.quota, *quota]


def _tells(headers: Mapping[str, str]) -> bool:
    """Whether there are quota headers; most responses have none, and to decode all takes longer than to look."""
    raw: Any = getattr(headers, "raw", None)
    if raw is not None:
        return any(b"ratelimit" in name.lower() for name, _ in raw)
    return any("ratelimit" in name.lower() for name in headers)
