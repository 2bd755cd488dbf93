"""Models behind OpenAI's chat completions: names and keys, what is asked, and what is made of the answers."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import ModelError, ModelGivenUp, TransientModelError, UsageError
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
    ContentVideo,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    ResponseSchema,
    get_model,
    http,
)
from proctor.model.messages import ChatMessage, ContentData
from proctor.model.output import Logprob, Logprobs, ModelCall, TopLogprob
from proctor.model.providers.openai_chat_answer import parse_arguments
from proctor.model.providers.openai_compatible import OpenAICompatibleAPI
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolCallError, ToolFunction, ToolInfo
from proctor.runtime import open_runtime

URL = "http://model.test/v1"
HELLO: list[ChatMessage] = [ChatMessageUser(content="hello")]
BASH = ToolInfo(
    name="bash",
    description="Run a command",
    parameters=ToolParams(properties={"cmd": JSONSchema(type="string")}, required=["cmd"]),
)


def completion(message: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": message or {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    choice.update(more.pop("choice", {}))
    return {"id": "c1", "model": "served", "choices": [choice], **more}


Reply = dict[str, Any] | bytes | tuple[int, Any]


@pytest.fixture
def ask(net: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`await ask(reply, ...)`: make one attempt against a server that gives `reply`; the request, output and call."""

    @asynccontextmanager
    async def server(reply: Reply, seen: list[Any]) -> AsyncIterator[None]:
        async def serve(stream: Any) -> None:
            rest = bytearray()
            while True:
                seen.append(await net.read_request(stream, rest))
                status, content = reply if isinstance(reply, tuple) else (200, reply)
                body = content if isinstance(content, bytes) else json.dumps(content).encode()
                await stream.send(net.answer(body, status=f"{status} X"))

        async with anyio.create_task_group() as group:
            network = net.FakeNetwork(group, serve)
            monkeypatch.setattr(http, "_connect_in_runtime", network.connect)
            yield
            assert network.open == 0
            group.cancel_scope.cancel()

    async def run(
        reply: Reply,
        input: list[ChatMessage] = HELLO,
        tools: list[ToolInfo] | None = None,
        tool_choice: Any = "auto",
        config: GenerateConfig | None = None,
        base_url: str = URL,
    ) -> tuple[dict[str, Any], ModelOutput, ModelCall]:
        seen: list[Any] = []
        async with server(reply, seen):
            api = OpenAICompatibleAPI("replay/m-1", base_url, "sk-canary")
            try:
                result: Any = await api.generate(input, tools or [], tool_choice, config or GenerateConfig())
            except Exception as error:
                result = error, None
            await api.aclose()
        assert isinstance(result, tuple)
        output, call = result
        if isinstance(output, Exception):
            raise output
        line, headers, body = seen[0]
        assert line == "POST /v1/chat/completions HTTP/1.1"
        assert headers["authorization"] == "Bearer sk-canary"
        return json.loads(body), output, call

    return run


# -- names and keys ---------------------------------------------------------------------------------------------------

VARIABLES = ("MY_SERVICE_API_KEY", "MY_SERVICE_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL")


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


@pytest.mark.parametrize(
    ("given", "environment", "url", "key"),
    [
        ({}, {"MY_SERVICE_API_KEY": "a", "MY_SERVICE_BASE_URL": "http://a"}, "http://a", "a"),
        ({}, {"OPENAI_API_KEY": "o", "OPENAI_BASE_URL": "http://o"}, "http://o", "o"),
        (
            {},
            dict(zip(VARIABLES, ("a", "http://a", "o", "http://o"), strict=True)),
            "http://a",
            "a",
        ),
        (
            {"base_url": "http://given", "api_key": "given"},
            dict(zip(VARIABLES, ("a", "http://a", "o", "http://o"), strict=True)),
            "http://given",
            "given",
        ),
    ],
)
def test_key_and_url_are_the_given_ones_else_the_services_else_openais(
    clean: pytest.MonkeyPatch, given: dict[str, str], environment: dict[str, str], url: str, key: str
) -> None:
    for name, value in environment.items():
        clean.setenv(name, value)
    api = OpenAICompatibleAPI("my-service/m", **given)
    assert (api.base_url, api.api_key) == (url, key)


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("my-service/m", {"base_url": URL}, ["MY_SERVICE_API_KEY", "OPENAI_API_KEY", "-M api_key"]),
        ("my-service/m", {"api_key": "k"}, ["MY_SERVICE_BASE_URL", "OPENAI_BASE_URL", "--model-base-url"]),
        ("my-service/m", {"api_key": "k", "base_url": "model.test"}, ["http://"]),
        ("my-service/m", {"api_key": "k", "base_url": URL, "colour": 1}, ["colour", "-M"]),
        ("just-one", {"api_key": "k", "base_url": URL}, ["openai-api/<service>/<model>"]),
    ],
)
def test_what_is_missing_or_wrong_is_said_before_anything_is_sent(
    clean: pytest.MonkeyPatch, name: str, given: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        get_model(f"openai-api/{name}", **given)
    for word in words:
        assert word in str(caught.value)


# -- the request ------------------------------------------------------------------------------------------------------


async def test_the_model_is_named_without_its_service_and_messages_go_in_order(ask: Any) -> None:
    request, _, call = await ask(
        completion(),
        [
            ChatMessageSystem(content="be brief"),
            ChatMessageUser(content="list"),
            ChatMessageAssistant(content="", tool_calls=[ToolCall("c1", "bash", {"cmd": "ls"})]),
            ChatMessageTool(content="a b", tool_call_id="c1", function="bash"),
            ChatMessageTool(content="", tool_call_id="c2", error=ToolCallError("timeout", "too slow")),
            ChatMessageUser(content=[ContentText(text="and?")]),
        ],
    )
    assert request["model"] == "m-1"
    assert request["messages"] == [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "list"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}
            ],
        },
        {"role": "tool", "content": "a b", "tool_call_id": "c1"},
        {"role": "tool", "content": "Error: too slow", "tool_call_id": "c2"},
        {"role": "user", "content": [{"type": "text", "text": "and?"}]},
    ]
    assert set(request) == {"model", "messages"}
    assert call.request == request


async def test_options_take_their_places_and_those_not_given_are_absent(ask: Any) -> None:
    config = GenerateConfig(
        temperature=0.0,
        top_p=0.5,
        max_tokens=7,
        stop_seqs=["END"],
        seed=3,
        num_choices=2,
        logprobs=True,
        top_logprobs=4,
        logit_bias={42: -1.0},
        frequency_penalty=0.1,
        presence_penalty=0.2,
        reasoning_effort="low",
        parallel_tool_calls=False,
        response_schema=ResponseSchema(
            name="s", json_schema=JSONSchema(type="object", properties={"a": JSONSchema(type="integer")})
        ),
        extra_body={"top_k": 5},
    )
    request, _, _ = await ask(completion(), config=config)
    del request["model"], request["messages"]
    assert request == {
        "temperature": 0.0,
        "top_p": 0.5,
        "max_tokens": 7,
        "stop": ["END"],
        "seed": 3,
        "n": 2,
        "logprobs": True,
        "top_logprobs": 4,
        "logit_bias": {"42": -1.0},
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "s", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        },
        "top_k": 5,
    }


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", "auto"),
        ("any", "required"),
        ("none", "none"),
        (ToolFunction("bash"), {"type": "function", "function": {"name": "bash"}}),
    ],
)
async def test_tools_are_offered_with_their_schema_and_the_choice(ask: Any, choice: Any, expected: Any) -> None:
    config = GenerateConfig(parallel_tool_calls=False)
    request, _, _ = await ask(completion(), tools=[BASH], tool_choice=choice, config=config)
    assert request["tool_choice"] == expected
    assert request["parallel_tool_calls"] is False
    parameters = {
        "type": "object",
        "properties": {"cmd": {"type": "string"}},
        "required": ["cmd"],
        "additionalProperties": False,
    }
    function = {"name": "bash", "description": "Run a command", "parameters": parameters}
    assert request["tools"] == [{"type": "function", "function": function}]


async def test_media_are_sent_as_urls_or_data_and_the_log_keeps_them_short(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "dot.png"
    file.write_bytes(b"\x89PNG" * 500)
    encoded = base64.b64encode(file.read_bytes()).decode()
    content: list[Any] = [
        ContentImage(image="https://x.test/a.png", detail="low"),
        ContentImage(image=str(file)),
        ContentAudio(audio=f"data:audio/wav;base64,{encoded}", format="wav"),
        ContentVideo(video="https://x.test/v.mp4", format="mp4"),
        ContentDocument(document=str(file), mime_type="application/pdf"),
    ]
    request, _, call = await ask(completion(), [ChatMessageUser(content=content)])
    parts = request["messages"][0]["content"]
    assert parts[0] == {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}}
    assert parts[1] == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{encoded}"}}
    assert parts[2] == {"type": "input_audio", "input_audio": {"data": encoded, "format": "wav"}}
    assert parts[3] == {"type": "video_url", "video_url": {"url": "https://x.test/v.mp4"}}
    assert parts[4]["file"] == {"filename": "dot.png", "file_data": f"data:application/pdf;base64,{encoded}"}
    assert encoded not in json.dumps(call.request)
    assert len(json.dumps(call.request)) < 1500


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (ContentImage(image="/nowhere/x.png"), "/nowhere/x.png"),
        (ContentAudio(audio="https://x.test/a.wav", format="wav"), "data URL"),
        (ContentData(data={}), "type 'data'"),
    ],
)
async def test_content_that_cannot_be_sent_is_named(ask: Any, content: Any, words: str) -> None:
    with pytest.raises((UsageError, ModelError), match=words):
        await ask(completion(), [ChatMessageUser(content=[content])])


@pytest.mark.parametrize(
    ("history", "kept"),
    [(None, [True, True]), ("all", [True, True]), ("last", [False, True]), ("none", [False, False])],
)
async def test_earlier_reasoning_is_sent_back_as_asked(ask: Any, history: Any, kept: list[bool]) -> None:
    def thought(text: str, internal: Any = None) -> ChatMessageAssistant:
        return ChatMessageAssistant(
            content=[ContentReasoning(reasoning=text, internal=internal), ContentText(text="answer")]
        )

    messages: list[ChatMessage] = [*HELLO, thought("one"), *HELLO, thought("two", "reasoning_content")]
    request, _, _ = await ask(completion(), messages, config=GenerateConfig(reasoning_history=history))
    first, second = request["messages"][1], request["messages"][3]
    assert first["content"] == ("<think>one</think>\nanswer" if kept[0] else "answer")
    assert second["content"] == "answer"
    assert second.get("reasoning_content") == ("two" if kept[1] else None)


async def test_text_that_is_no_valid_unicode_is_still_sent(ask: Any) -> None:
    request, _, _ = await ask(completion(), [ChatMessageUser(content="a\ud800b")])
    assert request["messages"][0]["content"] == "a\ud800b"


async def test_openais_own_server_is_told_the_limit_of_tokens_by_its_newer_name(ask: Any) -> None:
    request, _, _ = await ask(completion(), config=GenerateConfig(max_tokens=5), base_url="http://api.openai.com/v1")
    assert request["max_completion_tokens"] == 5
    assert "max_tokens" not in request


# -- the answer -------------------------------------------------------------------------------------------------------


async def test_an_answer_is_text_usage_and_a_reason_to_stop(ask: Any) -> None:
    reply = completion(
        usage={
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 60},
            "completion_tokens_details": {"reasoning_tokens": 15},
        },
        choice={"finish_reason": "length"},
    )
    _, output, call = await ask(reply)
    assert output.completion == "hi"
    assert output.stop_reason == "max_tokens"
    assert (output.model, output.response_id) == ("served", "c1")
    assert output.usage == ModelUsage(
        input_tokens=40, output_tokens=20, total_tokens=120, input_tokens_cache_read=60, reasoning_tokens=15
    )
    assert call.response == reply
    assert "sk-canary" not in str(call)


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"content": None}, ""),
        ({"content": "a", "reasoning_content": "r"}, [("r", "reasoning_content"), "a"]),
        ({"content": "a", "reasoning": "r"}, [("r", "reasoning"), "a"]),
        ({"content": "<think>\nr\n</think>\n\na"}, [("r", None), "a"]),
        ({"content": "about <think>x</think> tags"}, "about <think>x</think> tags"),
        ({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}, "a\nb"),
    ],
)
async def test_reasoning_is_kept_apart_from_the_answer(ask: Any, message: dict[str, Any], content: Any) -> None:
    _, output, _ = await ask(completion(message))
    if isinstance(content, str):
        assert output.message.content == content
    else:
        (reasoning, internal), text = content
        assert output.message.content == [
            ContentReasoning(reasoning=reasoning, internal=internal),
            ContentText(text=text),
        ]
        assert output.completion == text


async def test_a_refusal_is_marked(ask: Any) -> None:
    _, output, _ = await ask(completion({"content": None, "refusal": "I cannot"}))
    assert output.message.content == [ContentText(text="I cannot", refusal=True)]
    assert output.choices[0].stop_details is not None


async def test_tool_calls_and_several_choices_are_read(ask: Any) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}
    reply = completion({"content": None, "tool_calls": [call]}, choice={"finish_reason": "tool_calls"})
    reply["choices"].append({"message": {"content": "second"}, "finish_reason": "content_filter"})
    _, output, _ = await ask(reply, tools=[BASH])
    assert output.message.tool_calls == [ToolCall("c1", "bash", {"cmd": "ls"})]
    assert output.stop_reason == "tool_calls"
    assert output.choices[1].message.text == "second"
    assert output.choices[1].stop_reason == "content_filter"


@pytest.mark.parametrize(
    ("text", "arguments", "failed"),
    [
        ('{"cmd": "ls"}', {"cmd": "ls"}, False),
        ("{}", {}, False),
        ({"cmd": "ls"}, {"cmd": "ls"}, False),
        ("ls -l", {"cmd": "ls -l"}, False),
        ("5", {"cmd": 5}, False),
    ],
)
def test_arguments_are_read_in_the_forms_that_models_give_them(text: Any, arguments: Any, failed: bool) -> None:
    found, error = parse_arguments("bash", text, [BASH])
    assert found == arguments
    assert (error is not None) is failed


def test_arguments_that_cannot_be_read_are_told_to_the_model() -> None:
    found, error = parse_arguments("unknown", '{"cmd": ', [BASH])
    assert found == {}
    assert error is not None
    assert "unknown" in error
    assert '{"cmd": ' in error


async def test_log_probabilities_are_read_and_may_be_no_numbers(ask: Any) -> None:
    token = {"token": "hi", "logprob": -0.5, "bytes": [1], "top_logprobs": [{"token": "ho", "logprob": -1.0}]}
    _, output, _ = await ask(completion(choice={"logprobs": {"content": [token]}}))
    assert output.choices[0].logprobs == Logprobs(
        content=[Logprob(token="hi", logprob=-0.5, bytes=[1], top_logprobs=[TopLogprob(token="ho", logprob=-1.0)])]
    )
    body = json.dumps(completion(choice={"logprobs": {"content": [{"token": "x", "logprob": float("-inf")}]}}))
    _, output, _ = await ask(body.encode())
    assert output.choices[0].logprobs is not None
    assert output.choices[0].logprobs.content[0].logprob == float("-inf")


# -- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "error", "reason"),
    [
        (400, {"message": "too long", "code": "context_length_exceeded"}, "model_length"),
        (400, {"message": "This model's maximum context length is 10 tokens"}, "model_length"),
        (413, {"message": "prompt is too long"}, "model_length"),
        (400, {"message": "no", "code": "content_filter"}, "content_filter"),
    ],
)
async def test_a_request_refused_for_its_content_is_an_output(
    ask: Any, status: int, error: dict[str, Any], reason: str
) -> None:
    _, output, call = await ask((status, {"error": error}))
    assert output.stop_reason == reason
    assert output.completion == output.error == error["message"]
    assert call.error


@pytest.mark.parametrize(
    ("reply", "kind", "words"),
    [
        ((401, {"error": {"message": "bad key sk-canary"}}), ModelGivenUp, "key"),
        ((500, {"error": {"message": "oops"}}), TransientModelError, "oops"),
        ((400, {"error": {"message": "bad request"}}), ModelError, "bad request"),
        (b"<html>welcome</html>", ModelError, "welcome.*base URL"),
        (b"[]", ModelError, "JSON object"),
        ({"id": "x"}, ModelError, "no choices"),
        ({"choices": []}, ModelError, "no choices"),
        ({"error": {"message": "overloaded", "code": 503}}, TransientModelError, "overloaded"),
        ({"error": {"message": "who are you", "code": 401}}, ModelGivenUp, "who are you"),
    ],
)
async def test_failures_say_what_the_server_said_and_never_the_key(
    ask: Any, reply: Reply, kind: type[ModelError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        await ask(reply)
    assert "sk-canary" not in str(caught.value)


async def test_a_key_is_in_no_part_of_the_description() -> None:
    model = get_model("openai-api/replay/m", base_url="http://me:canary@model.test/v1", api_key="canary")
    async with open_runtime():
        assert "canary" not in f"{model!r} {model} {model.public_args} {model.base_url}"
