"""From the scores of samples to the results of a task, in dataset order whatever the order of completion.

What is kept of a finished sample must not add up: a score as an object with its sample's id and metadata takes 0.6 kB,
and an answer may be a page. So they are packed, and beyond a megabyte they wait on disk until the results are computed;
in memory a score takes a dozen bytes. The running metrics of a display are computed anew while scores are few; then a
metric that is a mean is kept up as scores come in, for as long as somebody looks.
"""

from __future__ import annotations

import math
import pickle
from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from attrs import define, field

from proctor import registry
from proctor.dataset.paging import MB, Pages
from proctor.log.records import EvalResults, EvalSampleReductions, EvalScore, Score
from proctor.scorer import SampleScore, Scorer, ScoreReducer
from proctor.scorer.measure import Metric, is_unscored
from proctor.scorer.ondemand import OrderedScores
from proctor.scorer.results import ScorerInfo, compute_metrics, loggable, scorer_results
from proctor.scorer.scoring import Metrics, scorer_metrics

Place: TypeAlias = tuple[int, int]
"""Where a sample stands: its index among those that run, from 0, and its epoch, from 1."""
Kept: TypeAlias = tuple[int | str, dict[str, Any] | None, dict[str, tuple[Any, ...]]]
"""Of a sample its id, its metadata, and by scorer value, answer and metadata: no explanations, which are long."""

FEW: Final = 5000
"""Scores that are handed to metrics as a list."""
QUICK: Final = 1000
"""Scores of which a display's metrics are computed whenever it draws: 10 ms."""
MEANS: Final = frozenset({"accuracy", "mean"})
"""Metrics that are the mean of what they are for each score."""


@define
class _Mean:
    """The mean of what a metric is for each score; without a metric, of nothing."""

    metric: Any
    total: float = 0.0
    count: int = 0

    def add(self, score: Score | None) -> None:
        if self.metric is None or score is None or is_unscored(score.value):
            return
        try:
            self.total += self.metric([SampleScore(score=score)])
            self.count += 1
        except Exception:  # the results will tell; a display can do without
            self.metric, self.count = None, 0


@define(eq=False)
class Scores:
    """The scores of a task's finished samples.

    Attributes:
        scorers: by name, in order. metrics: the task's, in place of the scorers' own.
        reducers: None is the mean. epochs: how often each sample runs.
    """

    scorers: Mapping[str, Scorer]
    metrics: Metrics | None
    reducers: Sequence[ScoreReducer] | None
    epochs: int = 1
    _pages: Pages[Kept] = field(factory=lambda: Pages(MB, _pack, pickle.loads), init=False)
    _rows: dict[str, array[int]] = field(factory=dict, init=False)
    """By scorer and place, the row in the pages, from 1; 0 for a place without a score."""
    _means: dict[str, _Mean] = field(factory=dict, init=False)
    _late: list[tuple[int, Sequence[str]]] = field(factory=list, init=False)
    """Placed since there are means, and not in them yet."""
    _watched: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._rows = {name: array("I") for name in self.scorers}

    def add(
        self, place: Place, sample_id: str | int, scores: Mapping[str, Score] | None, metadata: dict[str, Any]
    ) -> None:
        """Keep the scores of a finished sample; it may write to disk, so call it in a thread."""
        row, names = self.keep(sample_id, scores, metadata)
        self._set(place, row, names)
        if self._watched and len(self._pages) >= QUICK and not self._means:
            self._means = {name: self._mean(name) for name in self.scorers}
        else:
            for name, mean in self._means.items():
                mean.add((scores or {}).get(name) if name in names else None)
            late, self._late = self._late, []
            for row, placed in late:
                for name in placed:
                    value, answer, own = self._pages[row - 1][2][name]
                    self._means[name].add(Score(value=value, answer=answer, metadata=own))

    def keep(
        self, sample_id: str | int, scores: Mapping[str, Score] | None, metadata: dict[str, Any]
    ) -> tuple[int, tuple[str, ...]]:
        """Keep scores that have no place yet; it may write to disk.

        Returns:
            Their row, from 1, and the scorers that they are of.
        """
        return self.keep_slim(
            sample_id,
            {name: (score.value, score.answer, score.metadata) for name, score in (scores or {}).items()},
            metadata,
        )

    def keep_slim(
        self, sample_id: str | int, scores: Mapping[str, tuple[Any, ...]], metadata: dict[str, Any]
    ) -> tuple[int, tuple[str, ...]]:
        """`keep` of scores given as value, answer and metadata."""
        found = {name: score for name, score in scores.items() if name in self._rows}
        if found:
            self._pages.append((sample_id, metadata or None, found))
        return len(self._pages), tuple(found)

    def place(self, place: Place, row: int, names: Sequence[str]) -> None:
        """Give kept scores their place among those that count."""
        self._set(place, row, names)
        if self._means:
            self._late.append((row, names))  # what is in the pages is read where they are written: in a thread

    def _set(self, place: Place, row: int, names: Sequence[str]) -> None:
        index, epoch = place
        at = index * self.epochs + epoch - 1
        for name in names:
            rows = self._rows[name]
            if at >= len(rows):
                rows.extend([0] * (at + 1 - len(rows)))
            rows[at] = row

    def _mean(self, name: str) -> _Mean:
        mean = _Mean(self._first_mean(self.scorers[name]))
        for kept in self._of(name):
            mean.add(kept.score)
        return mean

    def _first_mean(self, scorer: Scorer) -> Metric | None:
        """The metric that a display shows, if it is a mean of scores."""
        metrics = self._metrics(scorer)
        first = metrics[0] if metrics and not isinstance(metrics, Mapping) else None
        if first is None or isinstance(first, Mapping):
            return None
        info = registry.info_of(first)
        own = str(getattr(first, "__module__", "")).startswith("proctor.")
        return first if own and info is not None and info.name in MEANS else None

    def running(self) -> dict[str, float]:
        """The first metric of each scorer over what has finished so far, for a display.

        A metric that is no mean is left out when there are many scores: it would take too long. So is one that nobody
        asked for before there were.
        """
        self._watched = True
        out: dict[str, float] = {}
        for name, scorer in self.scorers.items():
            for metric, value in self._running(name, scorer):
                if not math.isnan(value):
                    out[f"{name}/{metric}" if len(self.scorers) > 1 else metric] = float(value)
        return out

    def _running(self, name: str, scorer: Scorer) -> Iterable[tuple[str, float]]:
        mean = self._means.get(name)
        if mean is not None:
            info = registry.info_of(mean.metric)
            return [(info.name, mean.total / mean.count)] if info is not None and mean.count else []
        if self._pages.paged or len(self._pages) > QUICK:
            return []
        scores = self._of(name)
        return list(compute_metrics(scores, self._metrics(scorer)).items())[:1] if scores else []

    def results(self, total: int, completed: int) -> tuple[EvalResults, list[EvalSampleReductions]]:
        """The results, and the scores they were computed from.

        Args:
            total: samples that were planned, completed: those that ended in order, both over all epochs.

        Raises:
            Exception: what a metric raised.
        """
        scores: list[EvalScore] = []
        reductions: list[EvalSampleReductions] = []
        for name, scorer in self.scorers.items():
            made, reduced = scorer_results(self._of(name), self._metrics(scorer), self.reducers, _info(name, scorer))
            scores += made
            reductions += reduced
        results = EvalResults(total_samples=total, completed_samples=completed, scores=scores)
        return results, reductions

    def _of(self, name: str) -> Sequence[SampleScore]:
        """The scores of one scorer, in dataset order and then by epoch."""
        rows, firsts, sample = array("I"), array("I"), -1
        for at, row in enumerate(self._rows[name]):
            if row:
                if at // self.epochs != sample:
                    sample = at // self.epochs
                    firsts.append(len(rows))
                rows.append(row - 1)
        pages = self._pages

        def make(place: int) -> SampleScore:
            sample_id, metadata, scores = pages[rows[place]]
            value, answer, own = scores[name]
            score = Score(value=value, answer=answer, metadata=own)
            return SampleScore(score=score, sample_id=sample_id, sample_metadata=metadata)

        made = OrderedScores(len(rows), make, firsts)
        return made if len(rows) > FEW else list(made)

    def _metrics(self, scorer: Scorer) -> Metrics:
        return scorer_metrics(scorer) if self.metrics is None else self.metrics


def _pack(kept: Kept) -> bytes:
    return pickle.dumps(kept, 5)


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
