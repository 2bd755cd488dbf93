"""What an evaluation says of the quotas of its models, beside their configuration."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Final

from attrs import frozen


@frozen(kw_only=True)
class PacingOptions:
    """Declared rates, each for one model on one account, and what else an evaluation says of its pace.

    Attributes:
        requests_per_minute: calls a minute. tokens_per_minute: tokens a minute. None: learned from what the provider
            says; 0: there is no such quota.
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None


UNDECLARED: Final = PacingOptions()


def together(declared: Collection[PacingOptions]) -> PacingOptions:
    """What holds of several that are declared for one model at a time: the smallest quota."""
    if not declared:
        return UNDECLARED
    return PacingOptions(
        requests_per_minute=_smallest([each.requests_per_minute for each in declared]),
        tokens_per_minute=_smallest([each.tokens_per_minute for each in declared]),
    )


def _smallest(rates: Collection[float | None]) -> float | None:
    """The smallest; that there is none is the largest, and nothing said is no rate."""
    said = [rate for rate in rates if rate is not None]
    return min(said, key=lambda rate: rate or sys.float_info.max, default=None)
