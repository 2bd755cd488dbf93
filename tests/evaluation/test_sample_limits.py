"""Limits of samples, from a task, a call, a state or a block: the sample ends in order, with what it has."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from attrs import evolve

from proctor import Task, eval_async, task_with
from proctor.dataset import Sample
from proctor.errors import LimitExceededError, OptionError, UsageError
from proctor.model import ChatMessageUser, GenerateConfig, ModelCost, ModelOutput, ModelUsage, get_model
from proctor.scorer import Score, accuracy, includes, scorer
from proctor.solver import TaskState, chain, fork, solver
from proctor.util import TokenLimit, collect, sample_limits, token_limit, turn_limit, working_limit

USAGE = ModelUsage(input_tokens=60, output_tokens=40, total_tokens=100)


def answers(text: str = "x", latency: float = 0.0, **usage: Any) -> Any:
    async def answer(*_: Any) -> ModelOutput:
        await anyio.sleep(latency)
        return evolve(ModelOutput.from_content("m", text), usage=evolve(USAGE, **usage))

    return get_model("mock/m", custom_outputs=answer)


@solver
def chatty(turns: int = 10):
    async def solve(state: TaskState, generate: Any) -> TaskState:
        for _ in range(turns):
            state = await generate(state)
        return state

    return solve


def one(steps: Any, **options: Any) -> Task:
    return Task([Sample("q", target="x")], solver=steps, scorer=includes(), **options)


@pytest.mark.parametrize(
    ("limits", "kind", "answered"),
    [
        ({"token_limit": 250}, "token", 3),
        ({"token_limit": 300}, "token", 3),
        ({"token_limit": TokenLimit(100, "output")}, "token", 3),
        ({"token_limit": "output:80"}, "token", 2),
        ({"turn_limit": 4}, "turn", 4),
        ({"message_limit": 6}, "message", 5),
        ({"cost_limit": 0.0005, "model_cost_config": {"mock/m": {"input": 1.0, "output": 4.0}}}, "cost", 3),
        ({"time_limit": 5}, "time", 4),
        ({"working_limit": 5}, "working", 4),
    ],
)
async def test_every_limit_ends_a_sample_in_order(evaluate, limits: dict[str, Any], kind: str, answered: int) -> None:
    """Nothing that was answered is lost, the sample is scored, and it is no error."""
    latency = 1.2 if kind in {"time", "working"} else 0.0
    for task, options in ((one(chatty()), limits), (_with(one(chatty()), limits), _call_only(limits))):
        [log] = await evaluate(task, answers(latency=latency), **options)
        [sample] = log.samples
        assert log.status == "success"
        assert sample.error is None
        assert sample.limit.type == kind
        assert sample.limit.reason.startswith(f"{kind} limit of ")
        assert sum(m.role == "assistant" for m in sample.messages) == answered
        assert sample.turn_count == answered
        assert sample.output.completion == "x"
        assert sample.scores["includes"].value == "C"
        assert sum(e.event == "sample_limit" for e in sample.events) == 1
        assert log.results.completed_samples == 1


def _call_only(limits: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in limits.items() if name == "model_cost_config"}


def _with(task: Task, limits: dict[str, Any]) -> Task:
    return task_with(task, **{name: value for name, value in limits.items() if name != "model_cost_config"})


async def test_a_sample_of_limits_says_in_its_log_what_held(evaluate) -> None:
    [log] = await evaluate(one(chatty(1)), answers(), token_limit="output:1k", turn_limit=5, message_limit=9)
    config, sample = log.eval.config, log.samples[0]
    assert (config.token_limit, config.token_limit_type, config.turn_limit) == (1000, "output", 5)
    assert (sample.token_limit, sample.token_limit_type, sample.token_limit_usage) == (1000, "output", 40)
    assert (sample.message_limit, sample.turn_count, sample.limit) == (9, 1, None)


async def test_a_block_that_is_left_by_its_limit_ends_the_sample_unless_it_is_caught(evaluate) -> None:
    @solver
    def careful(catch: bool):
        async def solve(state: TaskState, generate: Any) -> TaskState:
            try:
                with turn_limit(2):
                    await chatty()(state, generate)
            except LimitExceededError as met:
                if not catch:
                    raise
                state.store.set("met", met.type)
            return await generate(state)

        return solve

    [log] = await evaluate(one(careful(True)), answers())
    assert log.samples[0].limit is None
    assert log.samples[0].store == {"met": "turn"}
    assert log.samples[0].turn_count == 3
    [log] = await evaluate(one(careful(False)), answers())
    assert (log.samples[0].limit.type, log.samples[0].limit.limit) == ("turn", 2)
    assert log.samples[0].error is None
    assert log.samples[0].scores["includes"].value == "C"


async def test_a_scoped_working_limit_fires_as_the_outer_one_does(evaluate) -> None:
    """Two samples on one connection: waiting for it is no work, in either of the two limits."""

    @solver
    def scoped():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            with working_limit(12):
                return await generate(state)

        return solve

    task = Task([Sample("q"), Sample("q"), Sample("q")], solver=scoped())
    options: dict[str, Any] = {"max_connections": 1, "max_samples": 3}
    [log] = await evaluate(task, answers(latency=10.0), **options)
    assert [s.limit for s in log.samples] == [None] * 3
    [inner] = await evaluate(task, answers(latency=13.0), **options)
    [outer] = await evaluate(task_with(task, solver=chatty(1)), answers(latency=13.0), working_limit=12, **options)
    for log in (inner, outer):
        assert [s.limit.type for s in log.samples] == ["working"] * 3
        assert [s.working_time for s in log.samples] == [pytest.approx(12)] * 3
        assert sorted(s.total_time for s in log.samples) == [pytest.approx(t) for t in (12, 24, 36)]


async def test_a_limit_that_is_met_in_one_branch_ends_the_others(evaluate) -> None:
    ended = []

    @solver
    def branching():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            async def other() -> None:
                try:
                    await anyio.sleep_forever()
                finally:
                    ended.append(anyio.current_time())

            async with anyio.create_task_group() as group:
                group.start_soon(other)
                await chatty()(state, generate)
            return state

        return solve

    [log] = await evaluate(one(branching()), answers(), token_limit=250)
    assert log.samples[0].limit.type == "token"
    assert len(ended) == 1


async def test_solvers_may_set_the_limits_of_their_sample(evaluate) -> None:
    @solver
    def stricter():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            assert (state.message_limit, state.token_limit, state.cost_limit) == (20, None, None)
            state.message_limit = 4
            state.token_limit = 1000
            return state

        return solve

    [log] = await evaluate(one([stricter(), chatty()]), answers(), message_limit=20)
    assert (log.samples[0].limit.type, log.samples[0].limit.limit) == ("message", 4)
    assert (log.samples[0].message_limit, log.samples[0].token_limit) == (4, 1000)

    @solver
    def too_late(name: str, value: Any):
        async def solve(state: TaskState, generate: Any) -> TaskState:
            state = await chatty(3)(state, generate)
            setattr(state, name, value)
            raise AssertionError("not reached")

        return solve

    prices = {"mock/m": ModelCost(input=1.0, output=1.0)}
    for name, value in (("message_limit", 2), ("token_limit", 250), ("cost_limit", 0.0001)):
        [log] = await evaluate(one(too_late(name, value)), answers(), model_cost_config=prices)
        assert log.samples[0].limit.type == name.removesuffix("_limit")


async def test_messages_that_would_be_one_too_many_are_not_added(evaluate) -> None:
    @solver
    def talkative(how: str):
        async def solve(state: TaskState, generate: Any) -> TaskState:
            messages = [ChatMessageUser(content=f"{n}") for n in range(4)]
            if how == "append":
                for message in messages:
                    state.messages.append(message)
            elif how == "extend":
                state.messages.extend(messages)
            elif how == "insert":
                for message in messages:
                    state.messages.insert(0, message)
            elif how == "add":
                state.messages += messages
            else:
                state.messages = [*state.messages, *messages]
            return state

        return solve

    for how in ("append", "extend", "insert", "add", "set"):
        [log] = await evaluate(one(talkative(how)), answers(), message_limit=3)
        assert log.samples[0].limit.type == "message"
        assert len(log.samples[0].messages) <= 3
        [log] = await evaluate(one(talkative(how)), answers())
        assert len(log.samples[0].messages) == 5


async def test_forks_share_the_limits_of_their_sample(evaluate) -> None:
    @solver
    def forking():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            await fork(state, [chatty(2), chatty(2)])
            return state

        return solve

    [log] = await evaluate(one(forking()), answers(), token_limit=350)
    assert log.samples[0].limit.type == "token"
    assert log.samples[0].token_limit_usage == 400


async def test_what_a_chain_had_come_to_is_kept_when_its_next_step_is_limited(evaluate) -> None:
    @solver
    def another():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            made = TaskState(state.model, state.sample_id, state.epoch, "new", [ChatMessageUser(content="made anew")])
            return await generate(made)

        return solve

    [log] = await evaluate(one(chain(another(), chatty())), answers(), turn_limit=3)
    assert log.samples[0].messages[0].text == "made anew"
    assert len(log.samples[0].messages) == 4


async def test_scorers_are_not_held_to_the_limits_of_the_solvers(evaluate) -> None:
    @scorer(metrics=[accuracy()])
    def graded():
        async def score(state: TaskState, target: Any) -> Score:
            limits = sample_limits()
            assert (limits.token.limit, limits.token.usage, limits.turn.usage) == (250, 300, 3)
            await get_model().generate("grade it")
            return Score(value="C")

        return score

    task = Task([Sample("q")], solver=chatty(), scorer=graded())
    [log] = await evaluate(task, answers(), token_limit=250)
    assert log.samples[0].scores["graded"].value == "C"
    assert log.samples[0].model_usage["mock/m"].total_tokens == 400


async def test_a_limit_that_a_scorer_lets_out_of_its_own_block_is_an_error(evaluate) -> None:
    @scorer(metrics=[accuracy()])
    def stingy():
        async def score(state: TaskState, target: Any) -> Score:
            with token_limit(10):
                await get_model().generate("grade it")
            raise AssertionError("not reached")

        return score

    [log] = await evaluate(Task([Sample("q")], scorer=stingy()), answers())
    assert log.status == "error"
    assert "token limit of 10 exceeded" in log.samples[0].error.message


async def test_a_scorer_that_hangs_is_cut_after_half_of_the_time_limit(evaluate) -> None:
    @scorer(metrics=[accuracy()])
    def stuck():
        async def score(state: TaskState, target: Any) -> Score:
            await anyio.sleep_forever()
            raise AssertionError("not reached")

        return score

    [log] = await evaluate(Task([Sample("q")], scorer=stuck()), answers(), time_limit=10)
    assert "worked for 5 s, half of time_limit" in log.samples[0].error.message
    assert log.samples[0].total_time == pytest.approx(5)


async def test_a_grader_that_waits_for_its_turn_is_not_late(evaluate) -> None:
    config = GenerateConfig(max_connections=1)
    grader = get_model("mock/grader", custom_outputs=lambda *_: "fine", latency=4.0, config=config)

    @scorer(metrics=[accuracy()])
    def queued():
        async def score(state: TaskState, target: Any) -> Score:
            await grader.generate("grade it")
            return Score(value="C")

        return score

    task = Task([Sample("q") for _ in range(6)], scorer=queued())
    [log] = await evaluate(task, answers(), time_limit=10, max_samples=6)
    assert log.status == "success"
    assert max(s.total_time for s in log.samples) == pytest.approx(24)


async def test_the_error_of_a_custom_limit_is_kept_as_such(evaluate) -> None:
    @solver
    def own(kind: str = "custom"):
        async def solve(state: TaskState, generate: Any) -> TaskState:
            state = await generate(state)
            raise LimitExceededError(kind, value=3, limit=2, message="two moves are enough")

        return solve

    [log] = await evaluate(one(own()), answers())
    limit = log.samples[0].limit
    assert (limit.type, limit.limit, limit.reason) == ("custom", 2, "two moves are enough")
    assert log.samples[0].error is None
    [log] = await evaluate(one(own("moves")), answers())
    assert log.samples[0].limit.type == "custom"  # readers of logs know no other word for it


async def test_a_limited_sample_is_not_run_again(evaluate) -> None:
    [log] = await evaluate(one(chatty()), answers(), turn_limit=2, retry_on_error=3)
    assert log.samples[0].error_retries is None
    assert log.samples[0].turn_count == 2


async def test_every_attempt_has_the_whole_limit(evaluate) -> None:
    tries = []

    @solver
    def flaky():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            state = await chatty(2)(state, generate)
            tries.append(1)
            if len(tries) < 3:
                raise RuntimeError("again")
            return state

        return solve

    [log] = await evaluate(one(flaky()), answers(), turn_limit=3, retry_on_error=2)
    assert log.samples[0].limit is None
    assert log.samples[0].turn_count == 2
    assert log.stats.model_usage["mock/m"].total_tokens == 600  # what all attempts used


async def test_calls_at_once_are_each_counted(evaluate) -> None:
    @solver
    def parallel():
        async def solve(state: TaskState, generate: Any) -> TaskState:
            await collect(*(get_model().generate(f"{n}") for n in range(5)))
            return state

        return solve

    [log] = await evaluate(one(parallel()), answers(latency=1.0), token_limit=350, max_connections=5)
    assert log.samples[0].limit.type == "token"
    [log] = await evaluate(one(parallel()), answers(latency=1.0), token_limit=500, max_connections=5)
    assert log.samples[0].limit is None


@pytest.mark.parametrize("name", ["max_total_cost", "cost_limit"])
async def test_a_limit_on_cost_without_prices_is_refused_before_anything_runs(evaluate, name: str) -> None:
    with pytest.raises(UsageError, match=rf"{name} is set, but the price of mock/m is not known"):
        await evaluate(one(chatty()), answers(), **{name: 1.0})
    with pytest.raises(UsageError, match="price of mock/grader"):
        await evaluate(
            one(chatty()),
            answers(),
            model_roles={"grader": "mock/grader"},
            model_cost_config={"m": {"input": 1, "output": 1}},
            **{name: 1.0},
        )


async def test_the_cost_is_the_providers_where_it_says_one(evaluate) -> None:
    prices = {"mock/m": ModelCost(input=1.0, output=4.0, input_cache_read=0.1)}
    [log] = await evaluate(one(chatty(1)), answers(total_cost=7.0), model_cost_config=prices)
    assert log.stats.model_usage["mock/m"].total_cost == 7.0
    [log] = await evaluate(one(chatty(1)), answers(input_tokens_cache_read=10), model_cost_config=prices)
    expected = (60 * 1.0 + 40 * 4.0 + 10 * 0.1) / 1e6
    assert log.samples[0].model_usage["mock/m"].total_cost == pytest.approx(expected)
    [log] = await evaluate(one(chatty(1)), answers())
    assert log.stats.model_usage["mock/m"].total_cost is None


async def test_prices_from_a_file(evaluate, tmp_path) -> None:
    file = tmp_path / "prices.json"
    file.write_text('{"m": {"input": 1, "output": 2, "input_cache_write": 1.25}}')
    [log] = await evaluate(one(chatty(1)), answers(), model_cost_config=str(file), cost_limit=1.0)
    assert log.stats.model_usage["mock/m"].total_cost == pytest.approx(140e-6)


@pytest.mark.parametrize(
    ("prices", "text"),
    [
        ("missing.json", "missing.json cannot be read"),
        ({"m": {"input": 1}}, "input and output are needed"),
        ({"m": {"input": 1, "output": -1}}, r"m: a model's price \(output\) must be a number of at least 0"),
        ({"m": {"input": 1, "output": 1, "thinking": 3}}, "unknown: thinking"),
        (7, "must be a mapping"),
    ],
)
async def test_prices_that_cannot_be_used_are_refused(prices: Any, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        await eval_async(one(chatty()), "mock/m", display="none", model_cost_config=prices)
