"""Re-exports for users; imported by nobody inside."""

from __future__ import annotations

from proctor.errors import LimitExceededError
from proctor.log.transcript import span
from proctor.runtime.applied import (
    LimitScope,
    SampleLimits,
    apply_limits,
    cost_limit,
    message_limit,
    sample_limits,
    time_limit,
    token_limit,
    turn_limit,
    working_limit,
)
from proctor.runtime.blocks import Limit
from proctor.runtime.scopes import concurrency, resize_concurrency
from proctor.runtime.tokens import TokenLimit
from proctor.solver.collect import collect

__all__ = [
    "Limit",
    "LimitExceededError",
    "LimitScope",
    "SampleLimits",
    "TokenLimit",
    "apply_limits",
    "collect",
    "concurrency",
    "cost_limit",
    "message_limit",
    "resize_concurrency",
    "sample_limits",
    "span",
    "time_limit",
    "token_limit",
    "turn_limit",
    "working_limit",
]
