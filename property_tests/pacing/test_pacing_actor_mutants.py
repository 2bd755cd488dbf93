"""Faults planted between the limiter and the pacer, each found by the property of a cancelled call."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings

from proctor.model.admission import PacerAdmission
from proctor.model.pacing import Pacer
from proctor.model.turn import PacedTurn

PROPERTY = Path(__file__).resolve().parent / "test_pacing_actor.py"


def nothing(*_: Any, **__: Any) -> None:
    """Done in place of what should be done."""


def forgets_a_cancelled_call(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PacerAdmission, "release", nothing)


def keeps_a_call_whose_attempts_are_used_up(patch: pytest.MonkeyPatch) -> None:
    plain: Callable[..., None] = PacerAdmission._settle

    def settle(self: PacerAdmission, *args: Any, again: bool) -> None:
        plain(self, *args, again=True)

    patch.setattr(PacerAdmission, "_settle", settle)


def counts_a_withdrawn_call_on(patch: pytest.MonkeyPatch) -> None:
    def withdraw(self: PacerAdmission, item: Any, now: float) -> None:
        self.pacer.withdraw(item, now)

    patch.setattr(PacerAdmission, "withdraw", withdraw)


def never_says_what_failed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PacedTurn, "succeeded", nothing)
    patch.setattr(Pacer, "on_cancelled", nothing)


def forgets_a_call_that_never_began(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PacerAdmission, "abandon", nothing)


ANYWHERE = "test_a_call_that_is_cancelled_anywhere_leaves_nothing"
AT_ONCE = "test_a_call_that_is_cancelled_in_the_moment_of_its_grant_leaves_nothing"
MUTANTS = [
    (forgets_a_cancelled_call, ANYWHERE),
    (forgets_a_cancelled_call, AT_ONCE),
    (keeps_a_call_whose_attempts_are_used_up, ANYWHERE),
    (counts_a_withdrawn_call_on, ANYWHERE),
    (never_says_what_failed, ANYWHERE),
    (forgets_a_call_that_never_began, AT_ONCE),
]


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize(("plant", "name"), MUTANTS, ids=lambda each: getattr(each, "__name__", each))
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], name: str, backend: str
) -> None:
    spec = importlib.util.spec_from_file_location("test_pacing_actor_with_a_mutant", PROPERTY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test: Any = getattr(module, name)
    test._hypothesis_internal_use_settings = settings(
        max_examples=200, phases=[Phase.generate], derandomize=True, database=None, deadline=None
    )
    plant(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017  whatever it breaks
        test(backend=backend)
