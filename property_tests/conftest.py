"""Hypothesis profiles: ``ci`` (small, the same every time) and ``soak`` (full size), by PROCTOR_HYPOTHESIS_PROFILE."""

from __future__ import annotations

import faulthandler
import os

from hypothesis import HealthCheck, Phase, settings

faulthandler.enable()

PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "ci", deadline=None, phases=PHASES, max_examples=200, derandomize=True, suppress_health_check=QUIET, database=None
)
settings.register_profile("soak", deadline=None, phases=PHASES, max_examples=20000, suppress_health_check=QUIET)
settings.load_profile(os.environ.get("PROCTOR_HYPOTHESIS_PROFILE", "ci"))
