"""What an evaluation says of the quotas of its models, beside their configuration."""

from __future__ import annotations

from attrs import frozen


@frozen(kw_only=True)
class PacingOptions:
    """Declared rates, each for one model on one account.

    Attributes:
        requests_per_minute: calls a minute. tokens_per_minute: tokens a minute. None: learned from what the provider
            says; 0: there is no such quota.
    """

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
