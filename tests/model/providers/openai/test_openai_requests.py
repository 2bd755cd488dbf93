"""What OpenAI and its family are asked: held against the types of OpenAI's own package, unknown keys included."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)

from proctor.errors import UsageError
from proctor.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentAudio,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ResponseSchema,
    get_model,
)
from proctor.model.messages import ChatMessage
from proctor.model.providers.compatible_family import DeepSeekAPI, OllamaAPI, OpenRouterAPI, TogetherAPI
from proctor.model.providers.grok import GrokAPI
from proctor.model.providers.openai import OpenAIAPI
from proctor.model.providers.openai_models import openai_model
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolFunction, ToolInfo

PIXEL = "data:image/png;base64,iVBORw0KGgo="
BASH = ToolInfo(
    name="bash",
    description="Run a command",
    parameters=ToolParams(
        properties={"cmd": JSONSchema(type="string"), "wait": JSONSchema(type="integer", default=1)}, required=["cmd"]
    ),
)
PYTHON = ToolInfo(
    name="python",
    description="Run code",
    parameters=ToolParams(properties={"code": JSONSchema(type="string")}, required=["code"]),
)
PATCH = ToolInfo(name="patch", description="Change files", options={"custom_format": {"type": "text"}})
TALK: list[ChatMessage] = [
    ChatMessageSystem(content="be brief"),
    ChatMessageUser(
        content=[
            ContentText(text="what is this?"),
            ContentImage(image=PIXEL, detail="low"),
            ContentImage(image="https://x.test/a.png"),
            ContentDocument(document="data:application/pdf;base64,JVBERi0="),
        ]
    ),
    ChatMessageAssistant(
        content="",
        tool_calls=[ToolCall("call_1", "bash", {"cmd": "ls"}), ToolCall("call_2", "python", {"code": "1"})],
    ),
    ChatMessageTool(content="a b", tool_call_id="call_1", function="bash"),
    ChatMessageTool(
        content=[ContentText(text="drawn"), ContentImage(image=PIXEL)], tool_call_id="call_2", function="python"
    ),
    ChatMessageAssistant(content="A dot."),
    ChatMessageUser(content="sure?"),
]
SCHEMA = ResponseSchema(
    name="answer",
    description="an answer",
    strict=True,
    json_schema=JSONSchema(
        type="object", properties={"a": JSONSchema(type="integer")}, required=["a"], additionalProperties=False
    ),
)
FULL = GenerateConfig(
    temperature=0.5,
    top_p=0.9,
    max_tokens=50,
    stop_seqs=["END"],
    seed=7,
    logprobs=True,
    top_logprobs=2,
    logit_bias={5: 1.0},
    frequency_penalty=0.1,
    presence_penalty=0.2,
    parallel_tool_calls=True,
    reasoning_effort="low",
    verbosity="low",
    response_schema=SCHEMA,
)
OK_CHAT = {"id": "c", "model": "m", "choices": [{"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}]}
OK_RESPONSE = {"id": "r", "model": "m", "status": "completed", "output": []}
DONE = {"type": "response.completed", "response": OK_RESPONSE}
STOP = {"choices": [{"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}]}


async def asked(wire: Any, api: Any, input: Any = TALK, **more: Any) -> Any:
    """The request that a call makes, for a body of whichever API."""
    responses = api.uses_responses([], more.get("config") or GenerateConfig())
    streamed = wire.events(DONE, done=False) if responses else wire.events(STOP)
    plain = wire.whole(OK_RESPONSE if responses else OK_CHAT)
    played = await wire.play(api, streamed if api.stream else plain, input, **more)
    assert not isinstance(played.output, Exception), played.output
    return played


# -- chat completions --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["gpt-4o", "o3", "gpt-5", "gpt-5.6", "codename-1"])
@pytest.mark.parametrize("config", [GenerateConfig(), FULL, GenerateConfig(num_choices=2, reasoning_effort="max")])
async def test_chat_completions_are_asked_with_what_openai_knows(
    wire: Any, name: str, config: GenerateConfig, stream: bool
) -> None:
    for choice in ("auto", "any", "none", ToolFunction("bash")):
        api = OpenAIAPI(name, None, "sk-canary", responses_api=False, stream=stream)
        played = await asked(wire, api, tools=[BASH, PYTHON], tool_choice=choice, config=config)
        kind = CompletionCreateParamsStreaming if stream else CompletionCreateParamsNonStreaming
        assert wire.problems(played.request, kind) == []
        assert played.path == "/v1/chat/completions"
        assert played.headers["authorization"] == "Bearer sk-canary"
        assert "canary" not in str(played.call)
        if config.max_tokens is not None:
            assert played.request["max_completion_tokens"] == config.max_tokens


async def test_a_models_own_rules_are_kept_to_in_chat_completions(wire: Any) -> None:
    async def request(name: str) -> dict[str, Any]:
        played = await asked(wire, OpenAIAPI(name, None, "k", responses_api=False), tools=[BASH], config=FULL)
        return played.request  # type: ignore[no-any-return]

    plain, o_series, frontier = await request("gpt-4o"), await request("o3-mini"), await request("gpt-5")
    assert plain["messages"][0]["role"] == "system"
    assert plain["temperature"] == 0.5
    assert plain["parallel_tool_calls"] is True
    assert "reasoning_effort" not in plain
    for reasons in (o_series, frontier):
        assert reasons["messages"][0]["role"] == "developer"
        assert reasons["reasoning_effort"] == "low"
        assert not {"temperature", "top_p", "logprobs"} & set(reasons)
    assert "parallel_tool_calls" not in o_series
    assert "parallel_tool_calls" in frontier


async def test_images_of_a_tool_follow_the_tools_messages(wire: Any) -> None:
    played = await asked(wire, OpenAIAPI("gpt-4o", None, "k", responses_api=False))
    roles = [message["role"] for message in played.request["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "tool", "user", "assistant", "user"]
    assert played.request["messages"][5]["content"] == [{"type": "image_url", "image_url": {"url": PIXEL}}]


async def test_a_schema_is_enforced_only_where_it_can_be(wire: Any) -> None:
    strict = ToolInfo(
        name="f", description="d", parameters=ToolParams(properties={"a": JSONSchema(type="string")}, required=["a"])
    )
    for responses in (False, True):
        api = OpenAIAPI("gpt-4o", None, "k", responses_api=responses, strict_tools=True)
        tools = (await asked(wire, api, tools=[strict, BASH])).request["tools"]
        first, second = (tool if responses else tool["function"] for tool in tools)
        assert first["strict"] is True
        assert second.get("strict") in {None, False}


# -- responses ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["gpt-4o", "o3", "gpt-5", "codename-1"])
@pytest.mark.parametrize("config", [GenerateConfig(), FULL, GenerateConfig(reasoning_effort="max")])
async def test_responses_are_asked_with_what_openai_knows(
    wire: Any, name: str, config: GenerateConfig, stream: bool
) -> None:
    for choice in ("auto", "any", "none", ToolFunction("python"), ToolFunction("patch")):
        api = OpenAIAPI(name, None, "sk-canary", responses_api=True, stream=stream)
        played = await asked(wire, api, tools=[BASH, PYTHON, PATCH], tool_choice=choice, config=config)
        kind = ResponseCreateParamsStreaming if stream else ResponseCreateParamsNonStreaming
        assert wire.problems(played.request, kind) == []
        assert played.path == "/v1/responses"
        assert played.request["store"] is False
        assert "canary" not in str(played.call)
        if isinstance(choice, ToolFunction):
            offered = {tool["name"] for tool in played.request["tools"]}
            assert played.request["tool_choice"]["name"] in offered


async def test_a_models_own_rules_are_kept_to_in_responses(wire: Any) -> None:
    async def request(name: str, **more: Any) -> dict[str, Any]:
        api = OpenAIAPI(name, None, "k", responses_api=True, **more)
        return (await asked(wire, api, tools=[BASH], config=FULL)).request  # type: ignore[no-any-return]

    plain = await request("gpt-4o")
    assert plain["temperature"] == 0.5
    assert plain["include"] == ["message.output_text.logprobs"]
    assert "reasoning" not in plain
    frontier = await request("gpt-5")
    assert frontier["reasoning"] == {"effort": "low", "summary": "auto"}
    assert frontier["include"] == ["reasoning.encrypted_content"]
    assert frontier["max_output_tokens"] == 50
    assert frontier["text"]["verbosity"] == "low"
    assert frontier["text"]["format"]["name"] == "answer"
    assert not {"temperature", "top_p", "top_logprobs"} & set(frontier)
    kept = await request("gpt-5", responses_store=True)
    assert "store" not in kept
    assert "include" not in kept


def output_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"id": "r", "model": "gpt-5", "status": "completed", "output": [item]}


async def test_what_a_model_said_goes_back_as_the_items_it_came_in(wire: Any) -> None:
    api = OpenAIAPI("gpt-5", None, "k")
    said: list[dict[str, Any]] = [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "thought"}],
            "encrypted_content": "gAAA",
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "phase": "commentary",
            "content": [{"type": "output_text", "text": "I look.", "annotations": []}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": "python_exec",
            "arguments": '{"code": "1"}',
        },
        {"type": "custom_tool_call", "id": "ct_1", "call_id": "call_2", "name": "patch", "input": "free text"},
    ]
    played = await wire.play(api, wire.whole({**output_of(said[0]), "output": said}), tools=[PYTHON, PATCH])
    message = played.output.message
    assert [call.function for call in message.tool_calls] == ["python", "patch"]
    assert message.tool_calls[1].arguments == {"input": "free text"}
    results = [
        ChatMessageTool(content="1", tool_call_id="call_1", function="python"),
        ChatMessageTool(content="done", tool_call_id="call_2", function="patch"),
    ]
    again = await asked(wire, api, [*TALK, message, *results])
    items = again.request["input"][-6:]
    assert items[0] == said[0]
    assert items[1] == said[1]
    assert items[2] == {
        "type": "function_call",
        "call_id": "call_1",
        "name": "python_exec",
        "arguments": '{"code": "1"}',
    }
    assert items[3] == {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "free text"}
    assert [item["type"] for item in items[4:]] == ["function_call_output", "custom_tool_call_output"]
    assert wire.problems(again.request, ResponseCreateParamsNonStreaming) == []


async def test_reasoning_of_another_vendor_goes_as_text_and_what_is_hidden_not_at_all(wire: Any) -> None:
    foreign = ChatMessageAssistant(
        content=[
            ContentReasoning(reasoning="aha", signature="EqQB", internal={"anthropic": 1}),
            ContentReasoning(reasoning="sealed", redacted=True),
            ContentText(text="yes"),
        ]
    )
    for responses in (True, False):
        api = OpenAIAPI("gpt-5", None, "k", responses_api=responses)
        played = await asked(wire, api, [ChatMessageUser(content="q"), foreign, ChatMessageUser(content="and?")])
        text = str(played.request)
        assert "<think>aha</think>" in text
        assert "sealed" not in text
        assert "EqQB" not in text
        kind = ResponseCreateParamsNonStreaming if responses else CompletionCreateParamsNonStreaming
        assert wire.problems(played.request, kind) == []


async def test_summaries_that_an_account_may_not_have_are_asked_for_once(wire: Any) -> None:
    refused = wire.whole(
        {"error": {"message": "Your organization must be verified to generate reasoning summaries.", "code": None}}, 400
    )
    api = OpenAIAPI("gpt-5", None, "k")
    played = await wire.play(api, [refused, wire.whole(OK_RESPONSE)])
    assert not isinstance(played.output, Exception)
    assert ["summary" in str(request[2]) for request in played.requests] == [True, False]
    played = await wire.play(OpenAIAPI("gpt-5", None, "k"), refused, config=GenerateConfig(reasoning_summary="auto"))
    assert len(played.requests) == 1
    assert "verified" in str(played.output)


@pytest.mark.parametrize(
    ("name", "choices", "expected"),
    [
        ("gpt-4o", None, False),
        ("gpt-35-turbo", None, False),
        ("o1", None, True),
        ("o4-mini", None, True),
        ("gpt-5-mini", None, True),
        ("gpt-6", None, True),
        ("codex-mini-latest", None, True),
        ("gpt-5", 2, False),
        ("codename", None, True),
        ("text-embedding-3", None, False),
    ],
)
def test_the_responses_api_is_for_models_that_are_better_with_it(name: str, choices: Any, expected: bool) -> None:
    api = OpenAIAPI(name, None, "k")
    assert api.uses_responses([], GenerateConfig(num_choices=choices)) is expected


@pytest.mark.parametrize(
    "name", ["o1", "o3-mini", "gpt-5", "gpt-5-nano", "gpt-5.1", "gpt-5.6", "gpt-4o", "gpt-6-astra"]
)
@pytest.mark.parametrize("effort", [None, "none", "low"])
def test_when_a_model_reasons_is_as_inspect_knows_it(name: str, effort: Any) -> None:
    from inspect_ai.model._openai import (
        always_reasons_model,
        is_gpt_5_plus_model,
        reasons_by_default_model,
        supports_native_max_reasoning_effort,
    )

    model = openai_model(name)
    expected = always_reasons_model(name) or (
        is_gpt_5_plus_model(name)
        and (effort not in {None, "none"} or (effort is None and reasons_by_default_model(name)))
    )
    assert model.reasoning(GenerateConfig(reasoning_effort=effort)) is expected
    assert model.knows_max is supports_native_max_reasoning_effort(name)


@pytest.mark.parametrize(
    ("url", "responses", "expected"),
    [
        ("https://me.openai.azure.com", False, "/openai/deployments/gpt-4o/chat/completions?api-version=v1"),
        ("https://me.openai.azure.com", True, "/openai/responses?api-version=v1"),
        ("https://me.openai.azure.com/openai/v1", True, "/openai/v1/responses"),
    ],
)
async def test_azure_has_places_and_versions_of_its_own(wire: Any, url: str, responses: bool, expected: str) -> None:
    url = url.replace("https", "http")
    api = OpenAIAPI("azure/gpt-4o", url, "k", responses_api=responses, api_version="v1")
    played = await asked(wire, api)
    assert played.path == expected
    assert played.headers["api-key"] == "k"
    assert "authorization" not in played.headers


async def test_fields_of_the_vendors_own_come_from_model_arguments(wire: Any) -> None:
    played = await asked(wire, OpenAIAPI("gpt-5", None, "k", service_tier="flex", prompt_cache_key="me"))
    assert (played.request["service_tier"], played.request["prompt_cache_key"]) == ("flex", "me")
    for wrong in ({"service_tier": 3}, {"stream": "maybe"}, {"colour": 1}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            OpenAIAPI("gpt-5", None, "k", **wrong)


# -- the family --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("config", [GenerateConfig(), FULL])
@pytest.mark.parametrize(
    "name", ["openrouter", "together", "groq", "fireworks", "deepseek", "vllm", "ollama", "azureai"]
)
async def test_the_family_is_asked_in_openais_words_but_for_what_is_known(
    wire: Any, name: str, config: GenerateConfig, stream: bool
) -> None:
    model = get_model(f"{name}/some-model", base_url="http://vendor.test/v1", api_key="sk-canary", stream=stream)
    played = await asked(wire, model.api, tools=[BASH], config=config)
    kind = CompletionCreateParamsStreaming if stream else CompletionCreateParamsNonStreaming
    known = {"openrouter": {".reasoning"}, "ollama": {".reasoning"}, "together": set()}
    found = {each.split(":")[0] for each in wire.problems(played.request, kind)}
    if name == "deepseek" and config is FULL:
        assert played.request["response_format"] == {"type": "json_object"}
    assert found <= known.get(name, set())
    assert played.path == "/v1/chat/completions"
    assert "canary" not in str(played.call)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", ["grok-4", "grok-4-fast-reasoning", "grok-3-mini", "grok-3", "grok-code-fast-1"])
async def test_xai_is_asked_for_responses_that_it_does_not_keep(wire: Any, name: str, stream: bool) -> None:
    played = await asked(wire, GrokAPI(name, None, "k", stream=stream), tools=[BASH], config=FULL)
    kind = ResponseCreateParamsStreaming if stream else ResponseCreateParamsNonStreaming
    assert wire.problems(played.request, kind) == []
    assert played.path == "/v1/responses"
    assert played.request["store"] is False
    takes_effort = name in {"grok-4-fast-reasoning", "grok-3-mini"}
    assert ("effort" in played.request.get("reasoning", {})) is takes_effort


async def test_quirks_of_the_family(wire: Any) -> None:
    async def request(api: Any, **config: Any) -> dict[str, Any]:
        played = await asked(wire, api, tools=[BASH], tool_choice="any", config=GenerateConfig(**config))
        return played.request  # type: ignore[no-any-return]

    url = "http://vendor.test/v1"
    deepseek = await request(DeepSeekAPI("deepseek-chat", url, "k"))
    assert deepseek["tool_choice"] == "auto"
    deepseek = await request(DeepSeekAPI("deepseek-chat", url, "k"), reasoning_effort="none")
    assert (deepseek["tool_choice"], deepseek["thinking"]) == ("required", {"type": "disabled"})
    together = await request(TogetherAPI("x/y", url, "k"), num_choices=2)
    assert (together["temperature"], together["max_tokens"]) == (1, 2048)
    assert (await request(TogetherAPI("openai/gpt-oss-20b", url, "k"), reasoning_effort="max"))[
        "reasoning_effort"
    ] == "high"
    ollama = await request(OllamaAPI("llama", url), reasoning_effort="xhigh")
    assert ollama["reasoning"] == {"effort": "high"}
    router = await request(OpenRouterAPI("anthropic/claude", url, "k", provider={"order": ["a"]}), reasoning_tokens=9)
    assert router["reasoning"] == {"max_tokens": 9}
    assert router["provider"] == {"order": ["a"]}
    assert router["tools"][-1]["cache_control"] == {"type": "ephemeral"}
    assert router["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}


async def test_an_option_that_is_not_sent_is_told_of_once(wire: Any, caplog: pytest.LogCaptureFixture) -> None:
    api = OpenAIAPI("gpt-5", None, "k")
    for _ in range(2):
        await wire.play(api, wire.whole(OK_RESPONSE), config=GenerateConfig(seed=1, temperature=0.5))
    [record] = caplog.records
    assert "seed" in record.message
    assert "temperature" in record.message


async def test_audio_and_video_take_the_places_they_have(wire: Any) -> None:
    audio = ContentAudio(audio="data:audio/wav;base64,UklGRg==", format="wav")
    chat = await asked(
        wire, OpenAIAPI("gpt-4o-audio", None, "k", responses_api=False), [ChatMessageUser(content=[audio])]
    )
    assert wire.problems(chat.request, CompletionCreateParamsNonStreaming) == []
    responses = await asked(wire, OpenAIAPI("gpt-5", None, "k"), [ChatMessageUser(content=[audio])])
    assert wire.problems(responses.request, ResponseCreateParamsNonStreaming) == []
    assert responses.request["input"][0]["content"][0]["filename"] == "audio.wav"


# -- keys --------------------------------------------------------------------------------------------------------------

KEYS = {
    "openai/gpt-5": "OPENAI_API_KEY",
    "mistral/m": "MISTRAL_API_KEY",
    "grok/m": "XAI_API_KEY",
    "together/m": "TOGETHER_API_KEY",
    "groq/m": "GROQ_API_KEY",
    "openrouter/m": "OPENROUTER_API_KEY",
    "fireworks/m": "FIREWORKS_API_KEY",
    "deepseek/m": "DEEPSEEK_API_KEY",
    "openai/azure/m": "AZUREAI_OPENAI_API_KEY",
    "azureai/m": "AZUREAI_API_KEY",
}


@pytest.mark.parametrize(("name", "variable"), KEYS.items())
def test_a_key_comes_from_the_vendors_usual_variable_and_a_missing_one_is_one_line(
    monkeypatch: pytest.MonkeyPatch, name: str, variable: str
) -> None:
    for each in [*KEYS.values(), "GROK_API_KEY", "AZURE_API_KEY", "AZURE_OPENAI_API_KEY"]:
        monkeypatch.delenv(each, raising=False)
    url = "http://vendor.test" if "azure" in name else None
    with pytest.raises(UsageError) as caught:
        get_model(name, base_url=url, memoize=False)
    assert variable in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)
    monkeypatch.setenv(variable, "sk-from-environment")
    assert get_model(name, base_url=url, memoize=False).api.api_key == "sk-from-environment"


@pytest.mark.parametrize("name", ["vllm/m", "azureai/m", "openai/azure/m"])
def test_a_base_url_that_must_be_given_is_asked_for(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for each in ("VLLM_BASE_URL", "AZUREAI_BASE_URL", "AZUREAI_ENDPOINT_URL", "AZURE_ENDPOINT_URL"):
        monkeypatch.delenv(each, raising=False)
    with pytest.raises(UsageError, match=r"base URL.*BASE_URL"):
        get_model(name, api_key="k", memoize=False)


async def test_an_image_is_drawn_by_the_vendors_own_tool_and_shown_to_it_again(wire: Any) -> None:
    config = GenerateConfig(modalities=["image"])
    drawn = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "iVBORw0KGgo="}
    reply = wire.whole({**OK_RESPONSE, "output": [drawn]})
    played = await wire.play(OpenAIAPI("gpt-4o", None, "k"), reply, tools=[BASH], config=config)
    assert [tool["type"] for tool in played.request["tools"]] == ["function", "image_generation"]
    assert wire.problems(played.request, ResponseCreateParamsNonStreaming) == []
    [image] = played.output.message.content
    assert image.image == PIXEL
    again = await asked(wire, OpenAIAPI("gpt-4o", None, "k"), [played.output.message], config=config)
    assert again.request["input"][0]["content"][0]["image_url"] == PIXEL


async def test_system_messages_of_a_router_are_one(wire: Any) -> None:
    talk: list[ChatMessage] = [ChatMessageSystem(content="a"), ChatMessageSystem(content="b"), *TALK[-1:]]
    played = await asked(wire, OpenRouterAPI("x/y", "http://vendor.test/v1", "k"), talk)
    assert [message["content"] for message in played.request["messages"]] == ["a\n\nb", "sure?"]


@pytest.mark.parametrize(
    ("name", "reasons", "temperature"),
    [
        ("gpt-5", True, False),
        ("gpt-5-chat-latest", False, True),
        ("gpt-5.1", True, True),
        ("codex-mini-latest", True, True),
        ("gpt-4o", False, True),
        ("azure/our-deployment", False, True),
        ("azure/our-gpt-5", True, False),
    ],
)
async def test_what_reasons_is_told_by_its_name(wire: Any, name: str, reasons: bool, temperature: bool) -> None:
    api = OpenAIAPI(name, "http://vendor.test/v1", "k", responses_api=True)
    played = await asked(wire, api, config=GenerateConfig(temperature=0.5))
    assert ("reasoning" in played.request) is reasons
    assert ("temperature" in played.request) is temperature


async def test_models_that_think_for_long_are_streamed(wire: Any) -> None:
    for name, streamed in (("gpt-5-pro", True), ("o3-deep-research", True), ("gpt-5", False)):
        api = OpenAIAPI(name, None, "k")
        assert api.streams(GenerateConfig()) is streamed
        assert OpenAIAPI(name, None, "k", stream=False).streams(GenerateConfig()) is False


def test_the_windows_of_quotas_are_the_vendors() -> None:
    headers = {
        "x-ratelimit-limit-requests": "14400",
        "x-ratelimit-remaining-requests": "14399",
        "x-ratelimit-reset-requests": "6s",
        "x-ratelimit-limit-tokens": "6000",
        "x-ratelimit-remaining-tokens": "5900",
        "x-ratelimit-reset-tokens": "1s",
    }

    def windows(name: str) -> dict[str, float]:
        api = get_model(name, api_key="k", memoize=False).api
        return {each.dimension.value: each.window for each in api.quota_readings(headers)}

    assert windows("groq/m") == {"requests": 86400.0, "tokens": 60.0}
    assert windows("openai/gpt-5")["tokens"] == 60.0
