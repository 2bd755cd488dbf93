"""Pacing: when a call to a model may leave. Pure: no clock, no tasks, no input or output.

`Pacer` decides, `Gate` says when a sample may start, `quota_readings` reads response headers. What the pieces do is
said at the top of each module; what users see of it is in the documentation's page on pacing.
"""

from __future__ import annotations

from proctor.model.pacing.gate import Entrant, Gate
from proctor.model.pacing.pacer import Pacer
from proctor.model.pacing.values import (
    Call,
    Dimension,
    PacerDecision,
    PacerStatistics,
    PacingConfig,
    QuotaReading,
    RateStatistics,
    Signal,
    Usage,
)

__all__ = [
    "Call",
    "Dimension",
    "Entrant",
    "Gate",
    "Pacer",
    "PacerDecision",
    "PacerStatistics",
    "PacingConfig",
    "QuotaReading",
    "RateStatistics",
    "Signal",
    "Usage",
]
