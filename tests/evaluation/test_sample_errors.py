"""Samples that fail and are tried again: what is scored, what earlier attempts leave, what epochs make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import Epochs, Task, eval_async
from proctor.dataset import Sample
from proctor.errors import LimitExceededError, ModelGivenUp
from proctor.evaluation.samplerun import KEPT_EVENTS, KEPT_MESSAGES
from proctor.log import read_eval_log
from proctor.log.transcript import transcript
from proctor.model import ChatMessageUser, get_model
from proctor.scorer import Score, accuracy, includes, mean, scorer
from proctor.solver import TaskState, generate, solver


@solver
def failing(times: int, *, chatter: int = 0, talk: int = 0):
    """Fails so often, after a model call and `chatter` events."""
    tries: dict[Any, int] = {}

    async def solve(state: TaskState, generate: Any) -> TaskState:
        key = (state.sample_id, state.epoch)
        tries[key] = tries.get(key, 0) + 1
        state.messages += [ChatMessageUser(content=f"{n}") for n in range(talk)]
        transcript().info("before the call")
        state = await generate(state)
        for n in range(chatter):
            transcript().info(n)
        if tries[key] <= times:
            raise RuntimeError(f"try {tries[key]}")
        return state

    return solve


@scorer(metrics=[mean()])
def counting(into: list[Any], broken: bool = False):
    async def score(state: TaskState, target: Any) -> Score:
        into.append(state.sample_id)
        if broken:
            raise KeyError("rubric")
        return Score(value=1)

    return score


async def test_only_the_last_attempt_is_scored(evaluate) -> None:
    scored: list[Any] = []
    task = Task([Sample("q")], solver=failing(9), scorer=counting(scored))
    [log] = await evaluate(task, "mock/m", retry_on_error=3, score_on_error=True, fail_on_error=False)
    assert len(scored) == 1
    assert len(log.samples[0].error_retries) == 3
    assert log.samples[0].scores["counting"].value == 1


async def test_a_model_that_is_given_up_is_not_tried_again_and_its_sample_scored(evaluate) -> None:
    scored: list[Any] = []

    @solver
    def grouped():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            async with anyio.create_task_group() as group:
                group.start_soon(generate, state)
            return state

        return solve

    model = get_model("mock/m", custom_outputs=lambda *_: ModelGivenUp("key refused", status=401))
    task = Task([Sample("q")], solver=grouped(), scorer=counting(scored))
    [log] = await evaluate(task, model, retry_on_error=3, score_on_error=True)
    assert log.samples[0].error_retries is None
    assert len(scored) == 1


async def test_the_error_that_came_first_is_the_samples(evaluate) -> None:
    task = Task([Sample("q")], solver=failing(9), scorer=counting([], broken=True))
    [log] = await evaluate(task, "mock/m", score_on_error=True)
    assert log.samples[0].error.message == "RuntimeError('try 1')"
    assert sum(event.event == "error" for event in log.samples[0].events) == 2
    assert log.error.message == "RuntimeError('try 1')"


async def test_an_earlier_attempt_leaves_the_events_since_its_last_model_call(evaluate) -> None:
    [log] = await evaluate(Task([Sample("q")], solver=failing(1, chatter=2)), "mock/m", retry_on_error=1)
    [earlier] = log.samples[0].error_retries
    assert earlier.message == "RuntimeError('try 1')"
    assert [event.event for event in earlier.events][:3] == ["model", "info", "info"]
    assert earlier.events[-1].event == "error"
    assert not any(getattr(event, "data", None) == "before the call" for event in earlier.events)


async def test_what_an_earlier_attempt_leaves_is_bounded(evaluate) -> None:
    task = Task([Sample("q")], solver=failing(1, chatter=500, talk=100))
    [log] = await evaluate(task, "mock/m", retry_on_error=1)
    [earlier] = log.samples[0].error_retries
    assert len(earlier.events) == KEPT_EVENTS
    assert earlier.events[0].event == "model"
    assert len(earlier.events[0].input) == KEPT_MESSAGES
    assert earlier.events[-1].event == "error"
    assert len(log.samples[0].messages) == 102


async def test_without_events_in_the_log_there_are_none_of_earlier_attempts(evaluate) -> None:
    [log] = await evaluate(Task([Sample("q")], solver=failing(1)), "mock/m", retry_on_error=1, log_samples=False)
    assert log.samples[0].error_retries[0].events is None


async def test_a_cancelled_retry_keeps_what_failed_before(tmp_path: Path) -> None:
    """Cancelled while it runs again: one record, cancelled, with the error of the first attempt."""

    @solver
    def twice():
        tries: list[float] = []

        async def solve(state: TaskState, generate: Any) -> TaskState:
            tries.append(anyio.current_time())
            await anyio.sleep(1)
            if len(tries) == 1:
                raise RuntimeError("first")
            await anyio.sleep_forever()
            return state

        return solve

    with anyio.move_on_after(5):
        await eval_async(
            Task([Sample("q")], solver=twice()), "mock/m", retry_on_error=9, display="none", log_dir=str(tmp_path)
        )
    [file] = tmp_path.glob("*.eval")
    [sample] = read_eval_log(str(file)).samples
    assert sample.error.message.startswith("CancelledError(")
    assert [error.message for error in sample.error_retries] == ["RuntimeError('first')"]


async def test_a_sample_that_an_operator_stopped_is_not_run_again(evaluate) -> None:
    tries = []

    @solver
    def stopped():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            tries.append(1)
            raise LimitExceededError("operator", value=1, limit=1, message="stopped by hand")

        return solve

    [log] = await evaluate(Task([Sample("q")], solver=stopped()), "mock/m", retry_on_error=5)
    assert len(tries) == 1
    assert (log.status, log.samples[0].error, log.samples[0].limit.type) == ("success", None, "operator")


@pytest.mark.parametrize(
    ("reducer", "value"),
    [("mean", 0.5), ("at_least_2", 0.5), ("pass_at_2", 0.5), ("pass_k_2", 0.5), ("max", 0.5)],
)
async def test_epochs_that_failed_are_no_scores(evaluate, reducer: str, value: float) -> None:
    """Of three epochs of each sample the second fails; the first sample is right in the others, the second wrong."""

    @solver
    def flaky():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            if state.epoch == 2:
                raise ValueError("second epoch")
            return await generate(state)

        return solve

    model = get_model("mock/m", custom_outputs=lambda sent, *_: "yes" if sent[0].text == "1" else "no")
    task = Task([Sample("1", target="yes"), Sample("2", target="yes")], solver=flaky(), scorer=includes())
    [log] = await evaluate(task, model, epochs=Epochs(3, reducer), fail_on_error=False)
    assert log.status == "success"
    assert log.results.completed_samples == 4
    assert log.results.scores[0].metrics["accuracy"].value == value


async def test_a_sample_with_too_few_epochs_left_is_unscored_and_not_right(evaluate) -> None:
    @solver
    def flaky():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            if state.epoch > 1 and state.sample_id == 2:
                raise ValueError("later epochs")
            return await generate(state)

        return solve

    task = Task([Sample("q", target="x"), Sample("q", target="Default")], solver=flaky(), scorer=includes())
    for reducer in ("pass_k_2", "pass_at_2"):
        [log] = await evaluate(task, "mock/m", epochs=Epochs(2, reducer), fail_on_error=False)
        [score] = log.results.scores
        assert (score.scored_samples, score.unscored_samples) == (1, 1)
        assert score.metrics["accuracy"].value == 0.0


async def test_failing_in_the_setup_and_in_the_scorer_are_tried_again_too(evaluate) -> None:
    tries: dict[str, int] = {"setup": 0, "scorer": 0}

    @solver
    def setup():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            tries["setup"] += 1
            if tries["setup"] == 1:
                raise ValueError("setup")
            return state

        return solve

    @scorer(metrics=[accuracy()])
    def judged():
        async def score(state: TaskState, target: Any) -> Score:
            tries["scorer"] += 1
            if tries["scorer"] == 1:
                raise ValueError("scorer")
            return Score(value="C")

        return score

    task = Task([Sample("q")], setup=setup(), solver=generate(), scorer=judged())
    [log] = await evaluate(task, "mock/m", retry_on_error=2)
    assert log.status == "success"
    assert [e.message for e in log.samples[0].error_retries] == ["ValueError('setup')", "ValueError('scorer')"]
