"""Scorers, metrics and reducers."""

from __future__ import annotations

from proctor.scorer.graded import model_graded_fact, model_graded_qa
from proctor.scorer.intermediate import score
from proctor.scorer.lettered import choice
from proctor.scorer.matching import AnswerPattern, answer, includes, match, pattern
from proctor.scorer.measure import (
    CORRECT,
    INCORRECT,
    NOANSWER,
    PARTIAL,
    Metric,
    MetricProtocol,
    SampleScore,
    Score,
    ScoreReason,
    Value,
    ValueToFloat,
    metric,
    value_to_float,
)
from proctor.scorer.metrics import (
    accuracy,
    aggregate,
    bootstrap_stderr,
    ci,
    grouped,
    mean,
    std,
    stderr,
    var,
)
from proctor.scorer.multi import multi_scorer
from proctor.scorer.overlap import exact, f1
from proctor.scorer.reducers import (
    ScoreReducer,
    ScoreReducers,
    at_least,
    collect_score,
    majority_score,
    max_score,
    mean_score,
    median_score,
    mode_score,
    pass_at,
    pass_k,
    score_reducer,
)
from proctor.scorer.scoring import Scorer, scorer
from proctor.scorer.target import Target

__all__ = [
    "CORRECT",
    "INCORRECT",
    "NOANSWER",
    "PARTIAL",
    "AnswerPattern",
    "Metric",
    "MetricProtocol",
    "SampleScore",
    "Score",
    "ScoreReason",
    "ScoreReducer",
    "ScoreReducers",
    "Scorer",
    "Target",
    "Value",
    "ValueToFloat",
    "accuracy",
    "aggregate",
    "answer",
    "at_least",
    "bootstrap_stderr",
    "choice",
    "ci",
    "collect_score",
    "exact",
    "f1",
    "grouped",
    "includes",
    "majority_score",
    "match",
    "max_score",
    "mean",
    "mean_score",
    "median_score",
    "metric",
    "mode_score",
    "model_graded_fact",
    "model_graded_qa",
    "multi_scorer",
    "pass_at",
    "pass_k",
    "pattern",
    "score_reducer",
    "score",
    "scorer",
    "std",
    "stderr",
    "value_to_float",
    "var",
]
