"""The scripted model."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.errors import UsageError
from proctor.model import ChatMessageUser, GenerateConfig, ModelOutput, get_model
from proctor.runtime import open_runtime


async def completions(model: Any, count: int) -> list[str]:
    async with open_runtime():
        return [(await model.generate(f"question {i}")).completion for i in range(count)]


async def test_without_a_script_it_says_the_same_for_ever() -> None:
    assert await completions(get_model("mock/any"), 3) == ["Default output from mock"] * 3
    assert await completions(get_model("mockllm/model"), 1) == ["Default output from mockllm/model"]


async def test_outputs_come_one_after_another_from_a_list_or_an_iterator() -> None:
    outputs = [ModelOutput.from_content("m", "a"), "b"]
    for script in (outputs, tuple(outputs), iter(outputs), (output for output in outputs)):
        assert await completions(get_model("mock/any", custom_outputs=script), 2) == ["a", "b"]


async def test_a_script_begins_anew_in_each_runtime() -> None:
    model = get_model("mock/any", custom_outputs=["a", "b"])
    assert await completions(model, 2) == ["a", "b"]
    assert await completions(model, 1) == ["a"]


async def test_a_script_that_is_too_short_says_so() -> None:
    with pytest.raises(UsageError, match="ran out"):
        await completions(get_model("mock/any", custom_outputs=["a"]), 2)


async def test_a_function_answers_async_or_not() -> None:
    def answer(input: Any, tools: Any, tool_choice: Any, config: Any) -> str:
        return f"{input[-1].text}/{config.max_tokens}"

    async def slow(input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        await anyio.sleep(3)
        return ModelOutput.from_content("m", input[-1].text)

    async with open_runtime():
        model = get_model("mock/any", custom_outputs=answer)
        output = await model.generate("x", config=GenerateConfig(max_tokens=4))
        assert output.completion == "x/4"
        assert (await get_model("mock/any", custom_outputs=slow).generate("y")).completion == "y"
        assert anyio.current_time() == 3


async def test_a_scripted_exception_is_raised() -> None:
    with pytest.raises(ValueError, match="mine"):
        await completions(get_model("mock/any", custom_outputs=[ValueError("mine")]), 1)


@pytest.mark.parametrize("latency", [2, 2.0, "2", "2.0"])
async def test_latency_is_seconds_as_a_number_or_a_text(latency: Any) -> None:
    await completions(get_model("mock/any", latency=latency), 3)
    assert anyio.current_time() == 6


@pytest.mark.parametrize("latency", [-1, "soon", float("inf"), float("nan")])
def test_another_latency_is_refused(latency: Any) -> None:
    with pytest.raises(UsageError, match="latency"):
        get_model("mock/any", latency=latency)


def test_a_script_of_another_kind_is_refused() -> None:
    with pytest.raises(UsageError, match="custom_outputs"):
        get_model("mock/any", custom_outputs=5)


async def test_one_scripted_output_played_twice_is_two_outputs() -> None:
    scripted = ModelOutput.from_content("m", "a")
    async with open_runtime():
        model = get_model("mock/any", custom_outputs=[scripted] * 2)
        one, two = [await model.generate([ChatMessageUser(content="q")]) for _ in range(2)]
    assert one.message.id != two.message.id
    assert scripted.message.id is None
    assert one.usage is not None
    assert one.usage.total_tokens == 2
