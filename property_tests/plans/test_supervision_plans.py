"""All invariants of actors and supervisors in the same random plans, on every backend."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given

from proctor.testing.supervision import SupervisionPlan, play_supervision
from proctor.testing.supervision_checks import check_supervision
from proctor.testing.supervision_strategies import supervision_plans


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    logging.getLogger("proctor.actors").disabled = True
    loggers = [logging.getLogger(name) for name in ("proctor.actors.recovery", "proctor.actors.incarnation")]
    for logger in loggers:
        logger.disabled = True
    yield
    for logger in loggers:
        logger.disabled = False


@given(plan=supervision_plans())
def test_no_invariant_of_supervision_is_broken_in_any_plan(backend: str, plan: SupervisionPlan) -> None:
    check_supervision(play_supervision(plan, backend))
