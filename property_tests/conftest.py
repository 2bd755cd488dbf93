"""Hypothesis profiles: ``ci`` (small, the same every time) and ``soak`` (full size), by PROCTOR_HYPOTHESIS_PROFILE."""

from __future__ import annotations

import faulthandler
import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

faulthandler.enable()

PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]

settings.register_profile(
    "ci", deadline=None, phases=PHASES, max_examples=200, derandomize=True, suppress_health_check=QUIET, database=None
)
settings.register_profile("soak", deadline=None, phases=PHASES, max_examples=20000, suppress_health_check=QUIET)
settings.load_profile(os.environ.get("PROCTOR_HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(autouse=True, scope="session")
def quiet() -> Iterator[None]:
    """The kernel warns of every failure that a plan plants; a report full of them hides the one that matters."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    yield
    logging.disable(before)
