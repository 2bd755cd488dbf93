"""Plant a small fault into resuming, and see invariant 41 find it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import Phase, settings

from proctor.evaluation import resume
from proctor.log import index

PLANS = Path(__file__).resolve().parents[1] / "plans" / "test_resume_plans.py"
PROPERTY = "test_41_killed_at_any_event_and_resumed_it_comes_to_the_same"
EXAMPLES = 60

Plant = Callable[[pytest.MonkeyPatch], None]
MUTANTS: dict[str, Plant] = {}


def mutant(name: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        MUTANTS[name] = plant
        return plant

    return add


@mutant("nothing is reused")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resume.Reused, "load", lambda self: None)


@mutant("what failed is reused")
def _(patch: pytest.MonkeyPatch) -> None:
    plain = index._indexed
    patch.setattr(index, "_indexed", lambda *args: attrs.evolve(plain(*args), state="done"))


@mutant("another epoch stands for a sample")
def _(patch: pytest.MonkeyPatch) -> None:
    plain = resume.Reused.look
    patch.setattr(resume.Reused, "look", lambda self, sample, epoch: plain(self, sample, 1))


@mutant("reused scores do not count")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resume.Scores, "place", lambda self, place, row, names: None)


@mutant("reused scores stand in the order of the log")
def _(patch: pytest.MonkeyPatch) -> None:
    plain = resume.Scores.place
    patch.setattr(resume.Scores, "place", lambda self, place, row, names: plain(self, (row - 1, place[1]), row, names))


@mutant("long answers are taken as they were cut")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(index, "_is_cut", lambda values: False)


@mutant("tokens of reused samples are forgotten")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(resume, "_add", lambda total, used: None)


def the_property() -> Any:
    """Freshly loaded."""
    spec = importlib.util.spec_from_file_location("resume_plans_with_a_mutant", PLANS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test: Any = getattr(module, PROPERTY)
    test._hypothesis_internal_use_settings = settings(  # a test may not be decorated with settings twice
        max_examples=EXAMPLES, phases=[Phase.generate], derandomize=True, database=None, deadline=None
    )
    return test


@pytest.mark.parametrize("name", MUTANTS, ids=lambda name: name.replace(" ", "-"))
def test_a_fault_planted_into_resuming_is_found(backend: str, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    test = the_property()
    MUTANTS[name](monkeypatch)
    with pytest.raises(BaseException) as caught:
        test(backend=backend)
    for leaf in leaves(caught.value):  # a fault that does not fit the engine any more proves nothing
        assert isinstance(leaf, AssertionError), leaf


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]
