"""What is kept of finished samples gives the same results however many there are, and takes little memory."""

from __future__ import annotations

import logging
import math
import sys
from typing import Any

import pytest

from proctor.evaluation import results as module
from proctor.evaluation.results import Scores
from proctor.log.encode import encode
from proctor.runtime.ondemand import OnDemand
from proctor.scorer import (
    SampleScore,
    Score,
    accuracy,
    ci,
    grouped,
    includes,
    mean,
    metric,
    scorer,
    std,
    stderr,
)
from proctor.scorer.reducers import as_reducers


@scorer(metrics=[mean(), std(), grouped(mean(), "level"), ci()])
def graded():
    async def score(state: Any, target: Any) -> Score:
        raise AssertionError("never called here")

    return score


@scorer(metrics={"a": [mean()], "b": [accuracy()]})
def keyed():
    async def score(state: Any, target: Any) -> Score:
        raise AssertionError("never called here")

    return score


SCORERS = {"includes": includes(), "graded": graded(), "keyed": keyed()}


def kept(samples: int = 40, epochs: int = 1, reducers: Any = None, metrics: Any = None) -> Scores:
    """Scores of samples that ended in another order than theirs; some have none, some are unscored."""
    made = Scores(SCORERS, metrics, as_reducers(reducers), epochs)
    places = [(index, epoch) for epoch in range(1, epochs + 1) for index in range(samples)]
    for index, epoch in sorted(places, key=lambda place: (place[0] * 7 % 11, place)):
        number = index * epochs + epoch
        scores = {
            "includes": Score(value="CIP"[number % 3], answer=f"answer {number}", explanation="long" * 100),
            "graded": Score(value=math.nan if number % 5 == 0 else number / 7, metadata={"n": number}),
            "keyed": Score(value={"a": number, "b": "C" if number % 2 else "I"}),
            "of a solver": Score(value=1),
        }
        if index % 4 == 1:
            del scores["graded"]
        made.add((index, epoch), f"id {index}", scores if index != 3 else None, {"level": index % 2})
    return made


@pytest.fixture(params=[10**9, 0], ids=["as a list", "on demand"])
def few(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(module, "FEW", request.param)
    return int(request.param)


@pytest.mark.parametrize(
    ("epochs", "reducers"), [(1, None), (3, None), (3, ["mean", "max", "at_least_2"]), (2, [])], ids=str
)
def test_results_are_the_same_as_a_list_and_on_demand(
    monkeypatch: pytest.MonkeyPatch, epochs: int, reducers: Any
) -> None:
    found = []
    for few, held in ((10**9, 10**9), (0, 10**9), (0, 1)):
        monkeypatch.setattr(module, "FEW", few)
        monkeypatch.setattr(module, "MB", held)
        results, reductions = kept(epochs=epochs, reducers=reducers).results(100, 90)
        assert (results.total_samples, results.completed_samples) == (100, 90)
        assert all(isinstance(each.samples, OnDemand) == (few == 0) for each in reductions)
        found.append((encode(results), [encode(list(each.samples)) for each in reductions]))
    assert found[0] == found[1] == found[2]


def test_a_metric_of_ones_own_is_given_a_list(few: int) -> None:
    seen: list[Any] = []

    @metric
    def greedy():
        def compute(scores: list[SampleScore]) -> float:
            seen.append((type(scores), len(scores)))
            return float(len(scores + scores))

        return compute

    @metric
    def old():
        def compute(scores: list[Score]) -> float:
            seen.append((type(scores), len(scores)))
            return 0.0

        return compute

    results, _ = kept(metrics=[greedy(), old()]).results(40, 40)
    assert {kind for kind, _ in seen} == {list}
    assert results.scores[0].metrics["greedy"].value == 78


def test_scores_that_are_made_on_demand_are_a_sequence(few: int) -> None:
    scores = kept()._of("includes")
    assert len(scores) == 39
    assert [score.sample_id for score in scores][:4] == ["id 0", "id 1", "id 2", "id 4"]
    assert scores[-1] == scores[38] == list(scores)[38]
    assert scores[2:4] == [scores[2], scores[3]]
    assert scores[0].sample_metadata == {"level": 0}
    assert scores[0].score.explanation is None
    with pytest.raises(IndexError):
        scores[39]


def test_a_display_sees_the_first_metric_of_each_scorer() -> None:
    scores = kept()
    shown = scores.running()
    assert set(shown) == {"includes/accuracy", "graded/mean", "keyed/a/mean"}
    results, _ = scores.results(40, 40)
    assert shown["includes/accuracy"] == results.scores[0].metrics["accuracy"].value
    assert shown["graded/mean"] == results.scores[1].metrics["mean"].value


def test_means_are_kept_up_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", 10)
    scores = Scores({"includes": includes(), "graded": graded()}, None, None, 1)
    for number in range(60):
        if number == 4:
            scores.running()
        value = Score(value="C" if number % 4 else math.nan)
        scores.add((number, 1), number, {"includes": value, "graded": Score(value=number)}, {"level": 1})
    assert scores.running() == {"includes/accuracy": 1.0, "graded/mean": 29.5}
    results, _ = scores.results(60, 60)
    assert results.scores[1].metrics["mean"].value == 29.5


def test_nothing_is_computed_for_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "QUICK", 3)
    scores = Scores({"includes": includes()}, None, None, 1)
    with caplog.at_level(logging.WARNING):
        for number in range(9):
            scores.add((number, 1), number, {"includes": Score(value="no grade")}, {})
    assert not caplog.records
    assert scores.running() == {}


def test_a_metric_that_is_no_mean_is_not_shown_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "QUICK", 10)
    scores = Scores({"includes": includes()}, [stderr()], None, 1)
    for number in range(11):
        scores.add((number, 1), number, {"includes": Score(value="C")}, {})
        assert set(scores.running()) == ({"stderr"} if number < 9 else set())


def test_a_finished_sample_takes_some_bytes() -> None:
    scores = Scores({"includes": includes()}, None, None, 1)
    count = 30_000
    for number in range(count):
        scores.add(
            (number, 1), f"id {number}", {"includes": Score(value="C", answer="word " * 30)}, {"level": "x" * 50}
        )
    pages = scores._pages
    assert pages.paged > 0
    assert pages.held <= module.MB
    index = sum(sys.getsizeof(rows) for rows in scores._rows.values()) + sys.getsizeof(pages._ends)
    assert index / count < 20
    assert list(scores._of("includes"))[-1].score.answer == "word " * 30
