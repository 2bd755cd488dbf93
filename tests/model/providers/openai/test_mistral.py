"""Mistral: its requests held against the models of its own package, its answers read by us and by that package."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proctor.errors import ModelError, ModelGivenUp, RateLimitError, TransientModelError
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
    ModelOutput,
    ResponseSchema,
)
from proctor.model.messages import ChatMessage
from proctor.model.providers.mistral import MistralAPI, call_id
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolFunction, ToolInfo

pytest.importorskip("mistralai", reason="needs mistralai: pip install mistralai")

from mistralai.client import Mistral, models

PIXEL = "data:image/png;base64,iVBORw0KGgo="
BASH = ToolInfo(
    name="bash",
    description="Run a command",
    parameters=ToolParams(properties={"cmd": JSONSchema(type="string"), "n": JSONSchema(type="integer")}),
)
FULL = GenerateConfig(
    temperature=0.5,
    top_p=0.9,
    max_tokens=50,
    stop_seqs=["END"],
    seed=7,
    num_choices=1,
    frequency_penalty=0.1,
    presence_penalty=0.2,
    parallel_tool_calls=True,
    reasoning_effort="high",
    response_schema=ResponseSchema(
        name="s", description="d", strict=True, json_schema=JSONSchema(type="object", additionalProperties=False)
    ),
)
TALK: list[ChatMessage] = [
    ChatMessageSystem(content="be brief"),
    ChatMessageUser(
        content=[
            ContentText(text="see"),
            ContentImage(image=PIXEL, detail="low"),
            ContentAudio(audio="data:audio/wav;base64,UklGRg==", format="wav"),
            ContentDocument(document="https://x.test/a.pdf"),
        ]
    ),
    ChatMessageAssistant(
        content=[ContentReasoning(reasoning="hm"), ContentText(text="")],
        tool_calls=[ToolCall("call_from_elsewhere", "bash", {"cmd": "ls"}), ToolCall("abcdefgh1", "bash", {"n": 1})],
    ),
    ChatMessageTool(content="a", tool_call_id="call_from_elsewhere", function="bash"),
    ChatMessageTool(
        content=[ContentText(text="b"), ContentImage(image=PIXEL)], tool_call_id="abcdefgh1", function="bash"
    ),
    ChatMessageUser(content="and?"),
    ChatMessageAssistant(content=""),
    ChatMessageUser(content="well"),
]
USAGE = {"prompt_tokens": 30, "completion_tokens": 12, "total_tokens": 42}


def api(*, stream: bool = False) -> MistralAPI:
    return MistralAPI("mistral-small", "http://vendor.test/v1", "sk-canary", stream=stream)


def completion(message: dict[str, Any], reason: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return {
        "id": "c1", "object": "chat.completion", "created": 1, "model": "mistral-2026", "choices": [choice],
        "usage": USAGE,
    }  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("config", [GenerateConfig(), FULL])
async def test_it_is_asked_with_what_it_knows(wire: Any, config: GenerateConfig, stream: bool) -> None:
    for choice in ("auto", "any", "none", ToolFunction("bash")):
        reply = wire.events(*chunks_of(SHAPES["text"])) if stream else wire.whole(SHAPES["text"])
        played = await wire.play(api(stream=stream), reply, TALK, [BASH], choice, config)
        assert not isinstance(played.output, Exception), played.output
        kind = models.ChatCompletionStreamRequest if stream else models.ChatCompletionRequest
        assert wire.problems(played.request, kind) == []
        assert played.path == "/v1/chat/completions"
        assert "canary" not in str(played.call)
        assert isinstance(choice, ToolFunction) or played.request["tool_choice"] == choice
        assert played.request.get("random_seed") == config.seed


async def test_its_rules_for_messages_are_kept_to(wire: Any) -> None:
    played = await wire.play(api(), wire.whole(SHAPES["text"]), TALK, [BASH])
    messages = played.request["messages"]
    assert [message["role"] for message in messages] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip
    sent = [call["id"] for call in messages[2]["tool_calls"]]
    assert sent == [messages[3]["tool_call_id"], messages[4]["tool_call_id"]]
    assert sent[1] == "abcdefgh1"
    assert sent[0].isalnum()
    assert len(sent[0]) == 9
    assert messages[4]["content"][-1] == {"type": "text", "text": "and?"}
    assert messages[2]["content"] == [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    assert messages[5]["content"] != ""
    assert "additionalProperties" not in str(played.request["tools"])


def test_ids_of_calls_stay_apart() -> None:
    assert len({call_id(f"call_{i}") for i in range(1000)}) == 1000


def call(identity: str, arguments: Any) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": "bash", "arguments": arguments}}


def think(text: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": [{"type": "text", "text": text}]}


SHAPES = {
    "text": completion({"content": "naïve 👩‍🚀 日本"}),
    "thought": completion({"content": [think("let me see"), {"type": "text", "text": "yes"}]}),
    "one call": completion({"content": "", "tool_calls": [call("abcdefgh1", '{"cmd": "ls"}')]}, "tool_calls"),
    "parallel calls": completion(
        {"content": "x", "tool_calls": [call("abcdefgh1", '{"cmd": "ls"}'), call("abcdefgh2", '{"n": 3}')]},
        "tool_calls",
    ),
    "length": completion({"content": "cut o"}, "length"),
    "model length": completion({"content": "cut o"}, "model_length"),
}


def chunks_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks that a completion would be streamed in; tool calls come whole, as Mistral sends them."""
    head = {name: data[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = data["choices"][0]
    content = choice["message"]["content"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    for piece in content if isinstance(content, list) else [{"type": "text", "text": content}]:
        text = piece.get("text") or piece["thinking"][0]["text"] if piece != {"type": "text", "text": ""} else ""
        parts = [text[i : i + 3] for i in range(0, len(text), 3)]
        if piece["type"] == "thinking":
            deltas += [{"content": [think(part)]} for part in parts]
        else:
            deltas += [{"content": part} for part in parts]
    calls = choice["message"].get("tool_calls")
    last = (
        {"content": "", "tool_calls": [{**one, "index": i} for i, one in enumerate(calls)]}
        if calls
        else {"content": ""}
    )
    made = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {"index": 0, "delta": last, "finish_reason": choice["finish_reason"]}
    return [*made, {**head, "choices": [end], "usage": USAGE}]


def as_read_by_mistral(chunks: list[Any]) -> dict[str, Any]:
    """What Mistral's package made of a completion, or of chunks, in few words."""
    texts, thoughts, calls, reason, usage = "", "", [], None, None
    for chunk in chunks:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            message = getattr(choice, "message", None) or choice.delta
            content = message.content or []
            for piece in content if isinstance(content, list) else [models.TextChunk(text=content)]:
                if piece.type == "thinking":
                    thoughts += "".join(part.text for part in piece.thinking)
                else:
                    texts += piece.text
            calls += [(each.id, each.function.name, each.function.arguments) for each in message.tool_calls or ()]
            reason = choice.finish_reason or reason
    return {
        "text": texts, "thoughts": thoughts, "calls": calls, "reason": reason,
        "usage": (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens), "id": chunks[0].id,
        "model": chunks[0].model,
    }  # fmt: skip


def as_read_by_us(output: ModelOutput, texts: dict[str, str]) -> dict[str, Any]:
    assert output.usage is not None
    message = output.message
    for each in message.tool_calls or ():
        assert each.arguments == json.loads(texts[each.id])
    reason = {"max_tokens": "length"}.get(output.stop_reason, output.stop_reason)
    return {
        "text": output.completion,
        "thoughts": "".join(part.reasoning for part in message.content_list if isinstance(part, ContentReasoning)),
        "calls": [(each.id, each.function, texts[each.id]) for each in message.tool_calls or ()],
        "reason": reason,
        "usage": (output.usage.input_tokens, output.usage.output_tokens, output.usage.total_tokens),
        "id": output.response_id,
        "model": output.model,
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [None, 1, 7])
async def test_an_answer_is_read_as_mistrals_package_reads_it(wire: Any, shape: str, size: int | None) -> None:
    data = SHAPES[shape]
    texts = {one["id"]: one["function"]["arguments"] for one in data["choices"][0]["message"].get("tool_calls") or ()}
    reply = wire.whole(data) if size is None else wire.events(*chunks_of(data), size=size)
    http = wire.replay(reply)
    client = Mistral(api_key="k", server_url="http://vendor.test", client=http)
    ask: Any = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    if size is None:
        theirs: list[Any] = [client.chat.complete(**ask)]
    else:
        theirs = [event.data for event in client.chat.stream(**ask)]
    http.close()
    played = await wire.play(api(stream=size is not None), reply, tools=[BASH])
    assert not isinstance(played.output, Exception), played.output
    assert as_read_by_us(played.output, texts) == as_read_by_mistral(theirs)


async def test_a_thought_goes_back_with_its_signature(wire: Any) -> None:
    data = completion({"content": [{**think("a"), "signature": "sig"}, {"type": "text", "text": "b"}]})
    played = await wire.play(api(), wire.whole(data))
    again = await wire.play(api(), wire.whole(data), [played.output.message, ChatMessageUser(content="?")])
    assert again.request["messages"][0]["content"][0] == {**think("a"), "signature": "sig"}
    assert wire.problems(again.request, models.ChatCompletionRequest) == []


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (401, {"message": "Unauthorized sk-canary"}, ModelGivenUp),
        (400, {"message": "Invalid model: x", "type": "invalid_model", "code": "1500"}, ModelGivenUp),
        (429, {"message": "slow", "type": "rate_limited", "code": "1300"}, RateLimitError),
        (429, {"message": "full", "type": "service_tier_capacity_exceeded", "code": "3505"}, RateLimitError),
        (422, {"message": {"detail": [{"msg": "Input should be 'user'"}]}}, ModelError),
        (503, {"message": "unavailable"}, TransientModelError),
        (400, {"message": "9 tokens, too large for model with 8 maximum context length"}, "model_length"),
    ],
)
async def test_an_error_is_of_its_kind(wire: Any, status: int, error: Any, expected: Any) -> None:
    played = await wire.play(api(), wire.whole({"object": "error", **error}, status))
    if isinstance(expected, str):
        assert played.output.stop_reason == expected
    else:
        assert type(played.output) is expected, played.output
    assert "canary" not in f"{played.output} {played.call}"


async def test_an_error_within_a_stream_is_of_its_kind(wire: Any) -> None:
    error = {"object": "error", "message": "full", "type": "service_tier_capacity_exceeded", "code": "3505"}
    played = await wire.play(api(stream=True), wire.events(*chunks_of(SHAPES["text"])[:2], error))
    assert type(played.output) is RateLimitError
    played = await wire.play(api(stream=True), wire.events(*chunks_of(SHAPES["text"])[:2], done=False))
    assert type(played.output) is TransientModelError
