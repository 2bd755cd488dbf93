"""Limits on blocks: what counts, who raises, and who wins when several are met at once."""

from __future__ import annotations

import copy

import anyio
import pytest
from attrs import evolve

from proctor.errors import LimitExceededError, OptionError, UsageError
from proctor.model import ModelOutput, ModelUsage, get_model
from proctor.runtime.blocks import check_call, check_messages, record_call
from proctor.runtime.sample_limits import SampleContext
from proctor.util import (
    TokenLimit,
    apply_limits,
    collect,
    cost_limit,
    message_limit,
    sample_limits,
    time_limit,
    token_limit,
    turn_limit,
    working_limit,
)

USED = ModelUsage(input_tokens=60, output_tokens=40, total_tokens=100, total_cost=0.5)


async def test_tokens_are_counted_after_a_call_and_asked_for_before_the_next() -> None:
    with token_limit(250) as limit:
        for _ in range(2):
            check_call()
            record_call(USED)
        assert (limit.usage, limit.remaining) == (200, 50)
        check_call()
        with pytest.raises(LimitExceededError) as caught:
            record_call(USED, "the answer")
        assert caught.value.output == "the answer"
    error = caught.value
    assert (error.type, error.value, error.limit, error.source) == ("token", 300, 250, limit)
    assert "token limit of 250 exceeded: 300 used" in str(error)
    record_call(USED)
    assert limit.usage == 300  # closed


async def test_a_limit_that_is_reached_refuses_the_next_call() -> None:
    with token_limit(100):
        record_call(USED)
        with pytest.raises(LimitExceededError, match="reached"):
            check_call()
    with cost_limit(0.5):
        record_call(USED)
        with pytest.raises(LimitExceededError, match="reached") as caught:
            check_call()
        assert caught.value.type == "cost"


async def test_so_many_turns_may_be_taken_and_no_more() -> None:
    model = get_model("mock/m")
    with turn_limit(2) as limit:
        await model.generate("a")
        await model.generate("b")
        with pytest.raises(LimitExceededError) as caught:
            await model.generate("c")
    assert (caught.value.type, caught.value.limit, limit.usage) == ("turn", 2, 2)


async def test_the_answer_that_exceeds_a_limit_comes_with_the_error() -> None:
    output = evolve(ModelOutput.from_content("m", "worth keeping"), usage=USED)
    with token_limit(99), pytest.raises(LimitExceededError) as caught:
        await get_model("mock/m", custom_outputs=[output]).generate("a")
    assert caught.value.output.completion == "worth keeping"


async def test_a_call_that_is_refused_is_not_sent() -> None:
    sent = []

    def answer(*_: object) -> str:
        sent.append(1)
        return "x"

    model = get_model("mock/m", custom_outputs=answer)
    with token_limit(0), pytest.raises(LimitExceededError) as caught:
        await model.generate("a")
    assert not sent
    assert caught.value.output is None


async def test_calls_that_queue_when_a_limit_is_met_are_refused_too() -> None:
    sent = []

    async def answer(*_: object) -> ModelOutput:
        sent.append(anyio.current_time())
        await anyio.sleep(1)
        return evolve(ModelOutput.from_content("m", "x"), usage=copy.copy(USED))

    from proctor import open_runtime
    from proctor.model import GenerateConfig

    async with open_runtime():
        model = get_model("mock/m", custom_outputs=answer, config=GenerateConfig(max_connections=1))
        refused = []

        async def call() -> None:
            try:
                await model.generate("a")
            except LimitExceededError as error:
                refused.append(error.output is None)

        with token_limit(200):
            await collect(*(call() for _ in range(6)))
    assert len(sent) == 2
    assert refused == [True] * 4


@pytest.mark.parametrize(
    ("type", "used"),
    [("all", 100), ("output", 40), ("input", 90), ("(input*0.1)+output", 49), ("output - -1 / 2", 40)],
)
async def test_which_tokens_count(type: str, used: int) -> None:
    usage = evolve(USED, input_tokens_cache_read=20, input_tokens_cache_write=10)
    with token_limit(1000, type) as limit:
        record_call(usage)
    assert limit.usage == used


@pytest.mark.parametrize(
    ("written", "limit", "type"),
    [("500k", 500_000, "all"), ("output:1.5M", 1_500_000, "output"), ("input*2+output:10", 10, "input*2+output")],
)
def test_token_limits_as_they_are_written(written: str, limit: int, type: str) -> None:
    block = token_limit(written)
    assert (block.limit, block.type) == (limit, type)
    if type != "all":
        again = token_limit(TokenLimit(limit, type))
        assert (again.limit, again.type) == (limit, type)
        assert token_limit(str(TokenLimit(limit, type))).limit == limit


@pytest.mark.parametrize(
    "wrong",
    ["", "5 apples", "1.5", "prompt:5", "__import__('os'):5", "input.real:5", "input**2:5", "1e999:5", "True+input:5"],
)
def test_token_limits_that_make_no_sense_are_refused(wrong: str) -> None:
    with pytest.raises(OptionError, match="token limit"):
        token_limit(wrong)


@pytest.mark.parametrize("make", [token_limit, cost_limit, message_limit, turn_limit, time_limit, working_limit])
def test_what_is_no_limit_is_refused_at_once(make) -> None:
    for wrong in (-1, float("inf"), float("nan"), True):
        with pytest.raises(OptionError):
            make(wrong)
    assert make(None).limit is None
    assert make(0).limit == 0


async def test_a_formula_without_a_value_is_told_of() -> None:
    with token_limit(10, "input/output"), pytest.raises(OptionError, match="input/output"):
        record_call(evolve(USED, output_tokens=0))


async def test_child_tasks_are_below_the_limit_and_tasks_beside_it_are_not() -> None:
    limit = token_limit(1000)

    async def call() -> None:
        record_call(USED)

    async with anyio.create_task_group() as around:
        with limit:
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(call)
        around.start_soon(call)
    assert limit.usage == 300


async def test_a_task_that_outlives_the_block_counts_only_for_what_is_still_open() -> None:
    inner, outer = token_limit(1000), token_limit(1000)

    async def late() -> None:
        await anyio.sleep(2)
        record_call(USED)

    with outer:
        async with anyio.create_task_group() as group:
            with inner:
                group.start_soon(late)
                await anyio.sleep(1)
    assert (inner.usage, outer.usage) == (0, 100)


async def test_of_two_limits_met_at_once_the_outer_one_raises() -> None:
    with pytest.raises(LimitExceededError) as caught, token_limit(50) as outer, turn_limit(9), cost_limit(0.1):
        record_call(USED)
    assert caught.value.source is outer


async def test_code_that_catches_its_own_limit_goes_on() -> None:
    with token_limit(1000) as outer:
        try:
            with token_limit(50):
                record_call(USED)
        except LimitExceededError:
            pass
        record_call(USED)
    assert outer.usage == 200


async def test_of_message_limits_the_innermost_counts() -> None:
    with message_limit(2):
        check_messages(2)
        with pytest.raises(LimitExceededError, match="message limit of 2 exceeded: 3 used"):
            check_messages(3)
        with pytest.raises(LimitExceededError, match="reached"):
            check_messages(2, another=True)
        with message_limit(None):
            check_messages(99)
        with message_limit(5):
            check_messages(5)
            await get_model("mock/m").generate("one message")


async def test_a_limit_holds_for_one_block() -> None:
    limit = token_limit(5)
    with limit:
        pass
    with pytest.raises(UsageError, match="one block"), limit:
        pass


async def test_time_is_exact_and_the_error_comes_out_of_the_block() -> None:
    began = anyio.current_time()
    with pytest.raises(LimitExceededError) as caught, time_limit(3) as limit:
        await anyio.sleep_forever()
    assert anyio.current_time() == began + 3
    assert (caught.value.type, caught.value.value, caught.value.source) == ("time", 3, limit)
    await anyio.sleep(5)
    assert limit.usage == 3


async def test_a_block_that_ends_in_time_is_left_alone() -> None:
    with time_limit(3) as limit, working_limit(3):
        await anyio.sleep(2)
    assert limit.usage == 2
    await anyio.sleep(5)


async def test_an_error_of_the_block_is_not_masked_by_its_time_limit() -> None:
    with pytest.raises(KeyError), time_limit(1):
        try:
            await anyio.sleep_forever()
        finally:
            raise KeyError("in the cleanup")


@pytest.mark.parametrize("make", [time_limit, working_limit])
async def test_a_cancellation_from_outside_wins(make) -> None:
    with anyio.move_on_after(2) as scope, make(2):
        await anyio.sleep_forever()
    assert scope.cancelled_caught
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_at, scope, 1)
            with make(2):
                await anyio.sleep_forever()
    assert scope.cancelled_caught


async def _cancel_at(scope: anyio.CancelScope, seconds: float) -> None:
    await anyio.sleep(seconds)
    scope.cancel()


async def test_of_nested_time_limits_the_outer_one_wins_a_tie() -> None:
    with pytest.raises(LimitExceededError) as caught, time_limit(2) as outer, time_limit(2):
        await anyio.sleep_forever()
    assert caught.value.source is outer


async def test_a_time_limit_ends_the_tasks_of_its_block() -> None:
    ended = []

    async def child() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(anyio.current_time())

    with pytest.raises(LimitExceededError), time_limit(2):
        async with anyio.create_task_group() as group:
            group.start_soon(child)
            group.start_soon(child)
    assert len(ended) == 2


async def test_a_working_limit_stands_still_while_the_sample_waits() -> None:
    with SampleContext() as sample:
        began = anyio.current_time()
        with pytest.raises(LimitExceededError) as caught, working_limit(4) as limit:
            await anyio.sleep(1)
            with sample.working.waiting():
                await anyio.sleep(10)
            await anyio.sleep(1)
            with sample.working.waiting():
                await anyio.sleep(10)
            await anyio.sleep_forever()
        assert anyio.current_time() == began + 24
        assert (caught.value.type, caught.value.value) == ("working", 4)
        assert limit.usage == 4


async def test_a_scoped_working_limit_counts_from_its_own_start() -> None:
    with SampleContext() as sample:
        await anyio.sleep(7)
        with pytest.raises(LimitExceededError) as caught, working_limit(20) as outer, working_limit(2) as inner:
            with sample.working.waiting():
                await anyio.sleep(3)
            await anyio.sleep_forever()
        assert caught.value.source is inner
        assert (inner.usage, outer.usage) == (2, 2)


async def test_outside_of_a_sample_all_time_is_work() -> None:
    began = anyio.current_time()
    with pytest.raises(LimitExceededError), working_limit(2):
        await anyio.sleep_forever()
    assert anyio.current_time() == began + 2


async def test_work_of_another_branch_counts_while_this_one_waits() -> None:
    with SampleContext() as sample:
        began = anyio.current_time()

        async def works() -> None:
            with sample.working.active():
                await anyio.sleep_forever()

        async def waits() -> None:
            with sample.working.waiting():
                await anyio.sleep_forever()

        with pytest.raises(LimitExceededError), working_limit(3):
            await collect(works(), waits())
        assert anyio.current_time() == began + 3


async def test_apply_limits_keeps_its_own_errors_and_passes_others_on() -> None:
    with apply_limits([token_limit(50), time_limit(9)], catch_errors=True) as scope:
        record_call(USED)
    assert scope.limit_error is not None
    assert scope.limit_error.type == "token"
    with apply_limits([time_limit(1)], catch_errors=True) as scope:
        await anyio.sleep_forever()
    assert scope.limit_error is not None
    own = apply_limits([turn_limit(5)], catch_errors=True)
    with pytest.raises(LimitExceededError) as caught, token_limit(50), own as scope:
        record_call(USED)
    assert caught.value.type == "token"
    assert scope.limit_error is None
    with pytest.raises(LimitExceededError), apply_limits([turn_limit(0)]) as scope:
        check_call()
    assert scope.limit_error is not None
    with apply_limits([turn_limit(5)], catch_errors=True) as scope:
        pass
    assert scope.limit_error is None


async def test_apply_limits_sees_its_error_in_a_group() -> None:
    async def call() -> None:
        record_call(USED)

    with apply_limits([token_limit(50)], catch_errors=True) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(call)
    assert scope.limit_error is not None

    async def fail() -> None:
        raise KeyError("mine")

    with pytest.raises(ExceptionGroup), apply_limits([token_limit(50)], catch_errors=True):
        async with anyio.create_task_group() as group:
            group.start_soon(call)
            group.start_soon(fail)


async def test_a_limit_may_be_changed_while_the_block_runs() -> None:
    with token_limit(50) as limit:
        limit.limit = 150
        record_call(USED)
        limit.limit = None
        record_call(USED)
        with pytest.raises(OptionError):
            limit.limit = -1


async def test_a_cost_limit_needs_the_price_of_what_is_called() -> None:
    with cost_limit(1.0), pytest.raises(UsageError, match=r"price of mock/m is not known.*model_cost_config"):
        await get_model("mock/m").generate("a")
    with cost_limit(None):
        await get_model("mock/m").generate("a")


def test_the_limits_of_no_sample_are_asked_for_in_vain() -> None:
    with pytest.raises(UsageError, match="outside of a running sample"):
        sample_limits()
