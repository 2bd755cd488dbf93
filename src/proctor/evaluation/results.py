"""From the scores of samples to the results of a task, in dataset order whatever the order of completion."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from proctor import registry
from proctor.log.records import EvalResults, EvalSampleReductions, EvalScore, Score
from proctor.scorer import SampleScore, Scorer, ScoreReducer
from proctor.scorer.results import ScorerInfo, compute_metrics, loggable, scorer_results
from proctor.scorer.scoring import Metrics, scorer_metrics

Place = tuple[int, int]
"""Where a sample stands: its index in the dataset, its epoch."""


@frozen
class Kept:
    """What is kept of a finished sample: its scores without explanations, which are long and in the log."""

    sample_id: str | int
    scores: Mapping[str, Score]
    metadata: dict[str, Any] | None


@define(eq=False)
class Scores:
    """The scores of a task's finished samples.

    Attributes:
        scorers: by name, in order. metrics: the task's, in place of the scorers' own.
        reducers: None is the mean. total: planned samples × epochs.
    """

    scorers: Mapping[str, Scorer]
    metrics: Metrics | None
    reducers: Sequence[ScoreReducer] | None
    total: int
    _kept: dict[Place, Kept] = field(factory=dict, init=False)

    def add(
        self, place: Place, sample_id: str | int, scores: Mapping[str, Score] | None, metadata: dict[str, Any]
    ) -> None:
        """Keep the scores of a finished sample."""
        if scores:
            slim = {name: Score(value=s.value, answer=s.answer, metadata=s.metadata) for name, s in scores.items()}
            self._kept[place] = Kept(sample_id, slim, metadata or None)

    def running(self) -> dict[str, float]:
        """The first metric of each scorer over what has finished so far, for a display."""
        out: dict[str, float] = {}
        for name, scorer in self.scorers.items():
            scores = self._of(name)
            values = compute_metrics(scores, self._metrics(scorer)) if scores else {}
            for metric, value in list(values.items())[:1]:
                if not math.isnan(value):
                    out[f"{name}/{metric}" if len(self.scorers) > 1 else metric] = float(value)
        return out

    def results(self, completed: int) -> tuple[EvalResults, list[EvalSampleReductions]]:
        """The results, and the scores they were computed from.

        Args:
            completed: samples that ended in order, over all epochs.

        Raises:
            Exception: what a metric raised.
        """
        scores: list[EvalScore] = []
        reductions: list[EvalSampleReductions] = []
        for name, scorer in self.scorers.items():
            made, reduced = scorer_results(self._of(name), self._metrics(scorer), self.reducers, _info(name, scorer))
            scores += made
            reductions += reduced
        results = EvalResults(total_samples=self.total, completed_samples=completed, scores=scores)
        return results, reductions

    def _of(self, name: str) -> list[SampleScore]:
        """The scores of one scorer, in dataset order and then by epoch."""
        return [
            SampleScore(score=score, sample_id=kept.sample_id, sample_metadata=kept.metadata)
            for _, kept in sorted(self._kept.items())
            if (score := kept.scores.get(name)) is not None
        ]

    def _metrics(self, scorer: Scorer) -> Metrics:
        return scorer_metrics(scorer) if self.metrics is None else self.metrics


def _info(name: str, scorer: Scorer) -> ScorerInfo:
    info = registry.info_of(scorer)
    if info is None:
        return ScorerInfo(name=name)
    metadata = {key: value for key, value in info.metadata.items() if key != "metrics"}
    return ScorerInfo(name=name, params=loggable(info.passed), metadata=metadata)


def final_metrics(results: EvalResults) -> dict[str, float]:
    """Every metric as a display shows it at the end, named by score and reducer where that is needed."""
    several = len({score.name for score in results.scores}) > 1
    out: dict[str, float] = {}
    for score in results.scores:
        for key, metric in score.metrics.items():
            name = f"{score.name}/{key}" if several else key
            out[f"{name} ({score.reducer})" if score.reducer else name] = float(metric.value)
    return out
