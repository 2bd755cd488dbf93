"""`multi_scorer`: several scorers as one."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from proctor import registry
from proctor.log.records import Score
from proctor.scorer.measure import Metric
from proctor.scorer.reducers import ScoreReducer, as_reducer
from proctor.scorer.scoring import Scorer, scorer_metrics
from proctor.scorer.target import Target
from proctor.solver.collect import collect

if TYPE_CHECKING:
    from proctor.solver.state import TaskState

_NO_METRICS: list[Metric] = []


def multi_scorer(scorers: list[Scorer], reducer: str | ScoreReducer) -> Scorer:
    """A scorer that runs several and makes one score of theirs; its metrics are those of the first that has any.

    Args:
        scorers: run together; what they give is reduced in this order, without those that give None.
        reducer: a reducer or its name: majority, mode, mean, at_least_2 …
    """
    combine = as_reducer(reducer)

    async def score(state: TaskState, target: Target) -> Score:
        given = await collect(*(each(state, target) for each in scorers))
        scores = [each for each in given if each is not None]
        return combine(scores) if scores else Score.unscored(reason="scoring_failed")

    metrics = next((found for each in scorers if (found := scorer_metrics(each))), _NO_METRICS)
    params = {"scorers": scorers, "reducer": reducer}
    registry.tag(score, registry.RegistryInfo("scorer", "multi_scorer", params, params, {"metrics": metrics}))
    return cast("Scorer", score)


registry.register("scorer", "multi_scorer", multi_scorer)
