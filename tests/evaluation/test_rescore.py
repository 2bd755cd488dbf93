"""Scoring a log anew: no sample runs again, scores are kept or replaced, so many samples at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import Epochs, Task, eval_async, score, score_async
from proctor.dataset import Sample
from proctor.errors import UsageError
from proctor.log import EvalLog, ScoreEvent, read_eval_log, write_eval_log
from proctor.model import get_model
from proctor.scorer import Score, exact, includes, match, mean, scorer
from proctor.testing import FakeModel


async def made(tmp_path: Path, **options: Any) -> EvalLog:
    model = FakeModel(answer=lambda call: f"it is {call.text}")
    data = [Sample(text, id=text, target="a", metadata={"n": n}) for n, text in enumerate(["a", "b", "a b"])]
    task = Task(data, scorer=includes(), name="t")
    [log] = await eval_async(task, model.model(), log_dir=str(tmp_path), display="none", **options)
    return read_eval_log(log.location)


async def test_new_scores_are_added_and_the_old_ones_stay(tmp_path: Path) -> None:
    log = await made(tmp_path)
    scored = await score_async(log, [match(), includes(ignore_case=False)])
    assert [sorted(s.scores or ()) for s in scored.samples or ()] == [["includes", "includes1", "match"]] * 3
    assert scored.results is not None
    assert [result.name for result in scored.results.scores] == ["includes", "match", "includes1"]
    assert [result.metrics["accuracy"].value for result in scored.results.scores] == pytest.approx(
        [2 / 3, 1 / 3, 2 / 3]
    )
    assert [each.name for each in scored.eval.scorers or ()] == ["includes", "match", "includes1"]
    events = [event.scorer for event in (scored.samples or [])[0].events if isinstance(event, ScoreEvent)]
    assert events == ["includes", "match", "includes1"]
    assert log.results is not None
    assert [result.name for result in log.results.scores] == ["includes"], "the log given is left as it is"
    write_eval_log(scored, tmp_path / "scored.eval")
    assert read_eval_log(tmp_path / "scored.eval").results == scored.results


async def test_old_scores_are_replaced_when_wanted(tmp_path: Path) -> None:
    log = await made(tmp_path, epochs=Epochs(2, ["mean", "max"]))
    scored = await score_async(log, exact(), action="overwrite", copy=False)
    assert scored is log
    assert [list(s.scores or ()) for s in log.samples or ()] == [["exact"]] * 6
    assert log.results is not None
    assert [(result.name, result.reducer) for result in log.results.scores] == [("exact", "mean"), ("exact", "max")]
    assert [reduced.reducer for reduced in log.reductions or ()] == ["mean", "max"]
    assert [each.sample_id for each in (log.reductions or [])[0].samples] == ["a", "b", "a b"]


async def test_so_many_samples_at_once_and_the_models_of_the_log(tmp_path: Path) -> None:
    log = await made(tmp_path)
    log.samples = [
        sample.model_copy(update={"id": f"{sample.id}{n}"}) for n in range(20) for sample in log.samples or ()
    ]
    log.eval.dataset.sample_ids = None
    grader = FakeModel(name="grader", answer="5", latency=1, max_connections=100)
    running = peak = 0

    @scorer(metrics=[mean()])
    def asking() -> Any:
        async def ask(state: Any, target: Any) -> Score:
            nonlocal running, peak
            running += 1
            peak = max(peak, running)
            output = await get_model(role="grader").generate(state.output.completion)
            running -= 1
            return Score(value=int(output.completion))

        return ask

    began = anyio.current_time()
    scored = await score_async(log, asking(), model_roles={"grader": grader.model()}, max_samples=15)
    assert (peak, grader.calls) == (15, 60)
    assert anyio.current_time() - began == pytest.approx(4, abs=0.5)
    assert scored.results is not None
    assert scored.results.scores[-1].metrics["mean"].value == 5


async def test_a_scorer_that_fails_ends_it_and_says_where(tmp_path: Path) -> None:
    @scorer(metrics=[mean()])
    def failing() -> Any:
        async def fail(state: Any, target: Any) -> Score:
            if state.sample_id == "b":
                raise KeyError("missing")
            return Score(value=1)

        return fail

    log = await made(tmp_path)
    with pytest.raises(KeyError, match="missing") as caught:
        await score_async(log, failing())
    assert "sample 'b'" in "".join(getattr(caught.value, "__notes__", ()))


async def test_what_cannot_be_scored_is_refused(tmp_path: Path) -> None:
    log = await made(tmp_path)
    with pytest.raises(UsageError, match="no samples"):
        await score_async(read_eval_log(log.location, header_only=True), includes())
    with pytest.raises(UsageError, match="append or overwrite"):
        await score_async(log, includes(), action="replace")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="max_samples"):
        await score_async(log, includes(), max_samples=0)


def test_the_synchronous_face_does_the_same(tmp_path: Path, backend: str) -> None:
    import functools

    from proctor.runtime import run

    log = run(functools.partial(made, tmp_path))
    scored = score(log, match(), async_backend=backend.partition("-")[0])
    assert scored.results is not None
    assert [result.name for result in scored.results.scores] == ["includes", "match"]
