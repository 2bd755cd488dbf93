"""All invariants of actors and supervisors in the same random plans, on every backend."""

from __future__ import annotations

import gc
import logging
import warnings
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given

from proctor.actors import Event
from proctor.testing import BACKENDS
from proctor.testing.strategies import scaled
from proctor.testing.supervision import play_supervision
from proctor.testing.supervision_checks import check_supervision
from proctor.testing.supervision_plan import SupervisionPlan
from proctor.testing.supervision_strategies import supervision_plans


@pytest.fixture(autouse=True, scope="module")
def quiet() -> Iterator[None]:
    """Restarts are warned of; thousands of them need not be formatted and kept."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@given(plan=supervision_plans())
def test_no_invariant_of_supervision_is_broken_in_any_plan(backend: str, plan: SupervisionPlan) -> None:
    check_supervision(play_supervision(plan, backend, seed=plan.seed))


@scaled(2)
@given(plan=supervision_plans(resists=True))
def test_none_is_broken_by_handlers_that_resist_their_cancellation(backend: str, plan: SupervisionPlan) -> None:
    check_supervision(play_supervision(plan, backend, seed=plan.seed))


@pytest.mark.parametrize("loop", [name for name in BACKENDS if name.startswith("asyncio")])
@given(plan=supervision_plans(cut=True))
def test_asyncios_own_cancellation_of_any_task_leaves_nothing_and_answers_once(
    loop: str, plan: SupervisionPlan
) -> None:
    """38: 3, 5 and 15 still hold, and no failure is lost."""
    with warnings.catch_warnings():
        # anyio makes a task's coroutine when it is spawned; one that never begins is reported when it is collected.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited")
        check_supervision(play_supervision(plan, loop), 3, 5, 15, 29)
        gc.collect(0)


@scaled(4)
@given(plan=supervision_plans())
def test_the_same_seed_and_plan_make_the_same_ledger(backend: str, plan: SupervisionPlan) -> None:
    """35, with the order of what happens in one instant left out: tasks cancelled together end in any order."""
    first, second = (play_supervision(plan, backend, seed=plan.seed) for _ in range(2))
    assert Counter(map(step, first.events)) == Counter(map(step, second.events))


def step(event: Event) -> tuple[object, ...]:
    """An event without the counts that depend on the order within an instant."""
    numbers = (getattr(event, name, None) for name in ("item", "number", "incarnation", "child", "delay"))
    return (event.time, event.kind, event.name, *numbers)
