"""How many calls of a model may be in flight, as configurations ask for it: a fixed number, or bounds for pacing."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from attrs import frozen

from proctor.model.config import AdaptiveConcurrency, GenerateConfig
from proctor.model.pacing import Signal
from proctor.model.pacing.window import HOSTED_CEILING, OWN_CEILING, START

if TYPE_CHECKING:
    from proctor.model.api import ModelAPI

LOCAL_NAMES: Final = (".local", ".internal", ".lan", ".localhost")


@frozen(cache_hash=True)
class Connections:
    """What is asked for.

    Attributes:
        fixed: a number that stands; None: pacing adapts it.
        low, start, most: the bounds within which it does, None where nobody gives any.
    """

    fixed: int | None = None
    low: int | None = None
    start: int | None = None
    most: int | None = None

    @classmethod
    def within(cls, bounds: AdaptiveConcurrency) -> Connections:
        """Adapted within a user's bounds."""
        return cls(None, bounds.min, bounds.start, bounds.max)

    def adaptive(self, ceiling: int) -> AdaptiveConcurrency:
        """The bounds of pacing where there can be no more than `ceiling` connections."""
        most = min(ceiling, self.most or ceiling)
        low = min(self.low or 1, most)
        return AdaptiveConcurrency(min=low, start=max(low, min(self.start or START, most)), max=most)


@cache
def fixed(number: int) -> Connections:
    """A number that stands: always the same object, since each call asks for it."""
    return Connections(number)


def asked(config: GenerateConfig, api: ModelAPI) -> Connections | None:
    """What a configuration asks for; None when it leaves that to the provider.

    Bounds for adaptive pacing hold the number of a provider that has one of its own.
    """
    if config.max_connections is not None:
        return fixed(config.max_connections)
    adaptive = config.adaptive_connections
    if adaptive is False:
        return Connections(api.max_connections())
    if adaptive is None or adaptive is True:
        return None
    bounds = adaptive if isinstance(adaptive, AdaptiveConcurrency) else AdaptiveConcurrency(max=adaptive)
    if api.adapts:
        return Connections.within(bounds)
    return Connections(min(bounds.max, api.max_connections()))


def provided(api: ModelAPI) -> Connections:
    """What holds when nobody asks: the provider's own number, else whatever pacing finds."""
    return Connections() if api.adapts else Connections(api.max_connections())


def smallest(several: Collection[Connections]) -> Connections:
    """What holds of several that are asked for at a time: the smallest."""
    fixed = _least([each.fixed for each in several])
    most = _least([each.most for each in several])
    if fixed is not None:
        return Connections(fixed if most is None else min(fixed, most))
    return Connections(None, _least([e.low for e in several]), _least([e.start for e in several]), most)


def ceiling_of(signal: Signal) -> int:
    """The most connections that pacing comes to by itself."""
    return HOSTED_CEILING if signal is Signal.QUOTA else OWN_CEILING


def signal_of(base_url: str | None) -> Signal:
    """What tells that a server is at its limit, as far as its address says.

    A hosted API refuses what is above a rate. A server in the same house may as well become slow.
    """
    if base_url is None:
        return Signal.QUOTA
    host = urlsplit(base_url).hostname or ""
    try:
        return Signal.QUOTA if ipaddress.ip_address(host).is_global else Signal.UNKNOWN
    except ValueError:
        return Signal.QUOTA if "." in host and not host.endswith(LOCAL_NAMES) else Signal.UNKNOWN


def _least(numbers: Collection[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)
