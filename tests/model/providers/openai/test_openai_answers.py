"""What OpenAI answers, whole and streamed: read by us and by OpenAI's own package from the same bytes."""

from __future__ import annotations

import json
from typing import Any

import anyio
import openai
import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming

from proctor.errors import ModelError, ModelGivenUp, RateLimitError, TransientModelError
from proctor.log.events import ModelEvent
from proctor.log.transcript import Transcript, init_transcript
from proctor.model import (
    ChatMessageUser,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    get_model,
    http,
)
from proctor.model.messages import ChatMessage
from proctor.model.providers.openai import OpenAIAPI
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolInfo
from proctor.runtime import SampleContext, open_runtime

BASH = ToolInfo(
    name="bash",
    description="Run a command",
    parameters=ToolParams(properties={"cmd": JSONSchema(type="string"), "n": JSONSchema(type="integer")}),
)
HELLO: list[ChatMessage] = [ChatMessageUser(content="hello")]
USAGE = {
    "prompt_tokens": 30,
    "completion_tokens": 12,
    "total_tokens": 42,
    "prompt_tokens_details": {"cached_tokens": 10},
    "completion_tokens_details": {"reasoning_tokens": 5},
}
SMILE = "naïve café 👩‍🚀 — 日本語"


def api(*, responses: bool = False, stream: bool = False) -> OpenAIAPI:
    return OpenAIAPI("gpt-5", "http://vendor.test/v1", "sk-canary", responses_api=responses, stream=stream)


def client(wire: Any, reply: Any) -> openai.OpenAI:
    return openai.OpenAI(api_key="k", base_url="http://vendor.test/v1", http_client=wire.replay(reply), max_retries=0)


# -- chat completions --------------------------------------------------------------------------------------------------


def completion(message: dict[str, Any], reason: str = "stop", **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason, **more}
    return {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-5-2026", "choices": [choice],
        "usage": USAGE,
    }  # fmt: skip


def call(identity: str, arguments: str, index: int | None = None) -> dict[str, Any]:
    made = {"id": identity, "type": "function", "function": {"name": "bash", "arguments": arguments}}
    return made if index is None else {"index": index, **made}


TOKEN = {
    "token": "é",
    "logprob": -0.25,
    "bytes": [195, 169],
    "top_logprobs": [{"token": "e", "logprob": -2.0, "bytes": [101]}],
}

CHAT = {
    "text": completion({"content": SMILE}),
    "nothing": completion({"content": None}),
    "one call": completion({"content": None, "tool_calls": [call("c1", '{"cmd": "ls"}')]}, "tool_calls"),
    "parallel calls": completion(
        {"content": "both", "tool_calls": [call("c1", '{"cmd": "ls"}'), call("c2", '{"n": 3}')]}, "tool_calls"
    ),
    "broken arguments": completion({"content": None, "tool_calls": [call("c1", '{"cmd": ')]}, "tool_calls"),
    "refusal": completion({"content": None, "refusal": "I cannot."}),
    "length": completion({"content": "cut o"}, "length"),
    "filtered": completion({"content": ""}, "content_filter"),
    "logprobs": completion({"content": "é"}, logprobs={"content": [TOKEN], "refusal": None}),
}


def chunks_of(data: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks that a completion would be streamed in, texts and arguments cut small."""
    head = {name: data[name] for name in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    choice = data["choices"][0]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "" if message.get("content") else None}]
    for name in ("content", "refusal"):
        text = message.get(name) or ""
        deltas += [{name: text[i : i + 3]} for i in range(0, len(text), 3)]
    for index, one in enumerate(message.get("tool_calls") or ()):
        function = one["function"]
        deltas.append({"tool_calls": [call(one["id"], "", index)]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": function["arguments"][i : i + 4]}}]}
            for i in range(0, len(function["arguments"]), 4)
        ]
    made = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    if choice.get("logprobs"):
        made[1]["choices"][0]["logprobs"] = choice["logprobs"]
    made.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    return [*made, {**head, "choices": [], "usage": USAGE}]


def as_read_by_openai(found: Any) -> dict[str, Any]:
    """What OpenAI's package made of a completion, in few words."""
    choice = found.choices[0]
    calls = choice.message.tool_calls or []
    logprobs = choice.logprobs.content if choice.logprobs else None
    return {
        "text": choice.message.refusal or choice.message.content or "",
        "refused": bool(choice.message.refusal),
        "calls": [(each.id, each.function.name, each.function.arguments) for each in calls],
        "reason": choice.finish_reason,
        "usage": (found.usage.prompt_tokens, found.usage.completion_tokens, found.usage.total_tokens),
        "cached": found.usage.prompt_tokens_details.cached_tokens,
        "reasoning": found.usage.completion_tokens_details.reasoning_tokens,
        "logprobs": [(each.token, each.logprob, each.bytes, len(each.top_logprobs)) for each in logprobs or ()],
        "id": found.id,
        "model": found.model,
    }


REASONS = {"max_tokens": "length"}


def as_read_by_us(output: ModelOutput, text_of: dict[str, str]) -> dict[str, Any]:
    """What we made of it, in the same words. `text_of`: the arguments as they came, by call."""
    choice, usage = output.choices[0], output.usage
    assert usage is not None
    calls = choice.message.tool_calls or []
    for each in calls:
        try:
            assert each.arguments == json.loads(text_of[each.id])
        except ValueError:
            assert each.parse_error
    parts = choice.message.content_list
    return {
        "text": choice.message.text,
        "refused": any(isinstance(part, ContentText) and bool(part.refusal) for part in parts),
        "calls": [(each.id, each.function, text_of[each.id]) for each in calls],
        "reason": REASONS.get(choice.stop_reason, choice.stop_reason),
        "usage": (
            usage.input_tokens + (usage.input_tokens_cache_read or 0),
            usage.output_tokens,
            usage.total_tokens,
        ),
        "cached": usage.input_tokens_cache_read,
        "reasoning": usage.reasoning_tokens,
        "logprobs": [
            (each.token, each.logprob, each.bytes, len(each.top_logprobs or ()))
            for each in (choice.logprobs.content if choice.logprobs else ())
        ],
        "id": output.response_id,
        "model": output.model,
    }


def arguments_of(calls: Any) -> dict[str, str]:
    return {each["id"]: each["function"]["arguments"] for each in calls or ()}


@pytest.mark.parametrize("shape", CHAT)
@pytest.mark.parametrize("size", [None, 1, 7])
async def test_a_completion_is_read_as_openais_package_reads_it(wire: Any, shape: str, size: int | None) -> None:
    data = CHAT[shape]
    texts = arguments_of(data["choices"][0]["message"].get("tool_calls"))
    if size is None:
        reply = wire.whole(data)
        theirs = client(wire, reply).chat.completions.create(model="m", messages=[])
    else:
        reply = wire.events(*chunks_of(data), size=size)
        state: Any = ChatCompletionStreamState()
        for chunk in client(wire, reply).chat.completions.create(model="m", messages=[], stream=True):
            state.handle_chunk(chunk)
        theirs = state.current_completion_snapshot
    played = await wire.play(api(stream=size is not None), reply, tools=[BASH])
    assert not isinstance(played.output, Exception), played.output
    assert as_read_by_us(played.output, texts) == as_read_by_openai(theirs)
    assert played.call.response["choices"][0]["finish_reason"] == data["choices"][0]["finish_reason"]


async def test_streamed_and_whole_are_the_same_output(wire: Any) -> None:
    for data in CHAT.values():
        streamed = await wire.play(api(stream=True), wire.events(*chunks_of(data)), tools=[BASH])
        plain = await wire.play(api(), wire.whole(data), tools=[BASH])
        assert streamed.output == plain.output
        assert streamed.request["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("done", [True, False])
async def test_a_stream_may_end_without_its_last_event_but_not_without_a_reason(wire: Any, done: bool) -> None:
    chunks = chunks_of(CHAT["text"])
    played = await wire.play(api(stream=True), wire.events(*chunks, done=done))
    assert played.output.completion == SMILE
    played = await wire.play(api(stream=True), wire.events(*chunks[:4], done=False))
    assert isinstance(played.output, TransientModelError)
    assert "ended early" in str(played.output)


async def test_a_stream_that_breaks_may_be_tried_again(wire: Any) -> None:
    for responses in (False, True):
        data = chunks_of(CHAT["text"])[:4] if not responses else RESPONSE_EVENTS[:2]
        reply = wire.events(*data, done=False, early=True)
        played = await wire.play(api(stream=True, responses=responses), reply)
        assert isinstance(played.output, TransientModelError)


async def test_a_server_that_does_not_stream_is_understood(wire: Any) -> None:
    played = await wire.play(api(stream=True), wire.whole(CHAT["text"]))
    assert played.output.completion == SMILE


async def test_calls_of_servers_that_do_not_count_them_are_told_apart(wire: Any) -> None:
    def delta(**call: Any) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}

    reply = wire.events(
        delta(id="a", function={"name": "bash", "arguments": '{"cmd":'}),
        delta(function={"arguments": ' "ls"}'}),
        delta(id="b", function={"name": "bash", "arguments": {"n": 1}}),
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    )
    played = await wire.play(api(stream=True), reply, tools=[BASH])
    calls = played.output.message.tool_calls
    assert [(each.id, each.arguments) for each in calls] == [("a", {"cmd": "ls"}), ("b", {"n": 1})]


@pytest.mark.parametrize(
    ("deltas", "reasoning"),
    [
        ([{"reasoning_content": "a"}, {"reasoning_content": "b"}, {"content": "x"}], ("ab", "reasoning_content")),
        ([{"reasoning": "a"}, {"reasoning": "b"}, {"content": "x"}], ("ab", "reasoning")),
        (
            [
                {"reasoning_details": [{"type": "reasoning.text", "text": "a", "index": 0}]},
                {"reasoning_details": [{"type": "reasoning.text", "text": "b", "index": 0, "signature": "s"}]},
                {"content": "x"},
            ],
            ("ab", {"reasoning_details": [{"type": "reasoning.text", "text": "ab", "index": 0, "signature": "s"}]}),
        ),
    ],
)
async def test_reasoning_of_a_stream_is_put_together(wire: Any, deltas: list[Any], reasoning: Any) -> None:
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    played = await wire.play(api(stream=True), wire.events(*chunks, end))
    part = played.output.message.content[0]
    assert isinstance(part, ContentReasoning)
    assert (part.reasoning, part.internal) == reasoning
    again = await wire.play(api(), wire.whole(CHAT["text"]), [played.output.message])
    assert reasoning[0] in str(again.request["messages"][0])


async def test_categories_of_a_filter_are_read(wire: Any) -> None:
    results = {"hate": {"filtered": True, "severity": "high"}, "jailbreak": {"filtered": False, "detected": True}}
    data = completion({"content": ""}, "content_filter", content_filter_results=results)
    played = await wire.play(api(), wire.whole(data))
    details = played.output.choices[0].stop_details
    assert (details.type, [each.category for each in details.categories]) == ("content_filter", ["hate"])


async def test_several_choices_come_in_their_order(wire: Any) -> None:
    def delta(index: int, text: str, reason: Any = None) -> dict[str, Any]:
        return {"choices": [{"index": index, "delta": {"content": text}, "finish_reason": reason}]}

    reply = wire.events(delta(1, "b"), delta(0, "a"), delta(1, "B", "stop"), delta(0, "A", "stop"))
    played = await wire.play(api(stream=True), reply, config=GenerateConfig(num_choices=2))
    assert [choice.message.text for choice in played.output.choices] == ["aA", "bB"]


async def test_log_probabilities_of_the_input_and_in_togethers_shape_are_read(wire: Any) -> None:
    data = completion({"content": "ab"}, logprobs={"tokens": ["a", "b"], "token_logprobs": [-1.0, -2.0]})
    data["prompt_logprobs"] = [None, {"5": {"logprob": -0.5, "rank": 1, "decoded_token": "x"}}]
    played = await wire.play(api(), wire.whole(data))
    choice = played.output.choices[0]
    assert [(each.token, each.logprob) for each in choice.logprobs.content] == [("a", -1.0), ("b", -2.0)]
    assert [(each.token, each.logprob) for each in choice.prompt_logprobs.content] == [("x", -0.5)]


# -- responses ---------------------------------------------------------------------------------------------------------


def response(*items: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5-2026", "status": status,
        "output": list(items), "error": None, "incomplete_details": None, "instructions": None, "metadata": {},
        "parallel_tool_calls": True, "temperature": 1.0, "tool_choice": "auto", "tools": [], "top_p": 1.0,
        "usage": {
            "input_tokens": 30, "output_tokens": 12, "total_tokens": 42,
            "input_tokens_details": {"cached_tokens": 10}, "output_tokens_details": {"reasoning_tokens": 5},
        },
        **more,
    }  # fmt: skip


def said(text: str, kind: str = "output_text", **more: Any) -> dict[str, Any]:
    part = (
        {"type": "refusal", "refusal": text} if kind == "refusal" else {"type": kind, "text": text, "annotations": []}
    )
    return {
        "type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [{**part, **more}],
    }  # fmt: skip


def function_call(identity: str, arguments: str) -> dict[str, Any]:
    return {
        "type": "function_call", "id": f"fc_{identity}", "call_id": identity, "name": "bash", "arguments": arguments,
        "status": "completed",
    }  # fmt: skip


THOUGHT = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "short"}],
    "encrypted_content": "gAAAA",
}
RESPONSES = {
    "text": response(said(SMILE)),
    "thought and text": response(THOUGHT, said("x")),
    "one call": response(THOUGHT, function_call("c1", '{"cmd": "ls"}')),
    "parallel calls": response(said("both"), function_call("c1", '{"cmd": "ls"}'), function_call("c2", '{"n": 3}')),
    "broken arguments": response(function_call("c1", '{"cmd": ')),
    "refusal": response(said("I cannot.", "refusal")),
    "length": response(said("cut o"), status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
    "filtered": response(status="incomplete", incomplete_details={"reason": "content_filter"}),
    "logprobs": response(said("é", logprobs=[TOKEN])),
    "nothing": response(),
}
RESPONSE_EVENTS: list[dict[str, Any]] = [
    {"type": "response.created", "sequence_number": 0, "response": response(status="in_progress")},
    {
        "type": "response.output_text.delta", "sequence_number": 1, "item_id": "msg_1", "output_index": 0,
        "content_index": 0, "delta": "hé", "logprobs": [],
    },
]  # fmt: skip


def response_as_read_by_openai(found: Any) -> dict[str, Any]:
    """What OpenAI's package made of a response, in few words."""
    calls = [item for item in found.output if item.type == "function_call"]
    parts = [part for item in found.output if item.type == "message" for part in item.content]
    thoughts = [item for item in found.output if item.type == "reasoning"]
    logprobs = [each for part in parts if part.type == "output_text" for each in part.logprobs or ()]
    reason = found.incomplete_details.reason if found.incomplete_details else "stop"
    return {
        "text": found.output_text or "".join(part.refusal for part in parts if part.type == "refusal"),
        "refused": any(part.type == "refusal" for part in parts),
        "calls": [(each.call_id, each.name, each.arguments) for each in calls],
        "reason": "tool_calls" if calls else {"max_output_tokens": "length"}.get(reason, reason),
        "usage": (found.usage.input_tokens, found.usage.output_tokens, found.usage.total_tokens),
        "cached": found.usage.input_tokens_details.cached_tokens,
        "reasoning": found.usage.output_tokens_details.reasoning_tokens,
        "logprobs": [(each.token, each.logprob, each.bytes, len(each.top_logprobs)) for each in logprobs],
        "id": found.id,
        "model": found.model,
        "thoughts": [(item.id, item.summary[0].text, item.encrypted_content) for item in thoughts],
    }


def response_as_read_by_us(output: ModelOutput, texts: dict[str, str]) -> dict[str, Any]:
    thoughts = [part for part in output.message.content if isinstance(part, ContentReasoning)]
    assert all(part.redacted for part in thoughts)
    return {
        **as_read_by_us(output, texts),
        "thoughts": [(part.signature, part.summary, part.reasoning) for part in thoughts],
    }


@pytest.mark.parametrize("shape", RESPONSES)
@pytest.mark.parametrize("size", [None, 1, 7])
async def test_a_response_is_read_as_openais_package_reads_it(wire: Any, shape: str, size: int | None) -> None:
    data = RESPONSES[shape]
    texts = {item["call_id"]: item["arguments"] for item in data["output"] if "arguments" in item}
    if size is None:
        reply = wire.whole(data)
        theirs = client(wire, reply).responses.create(model="m", input="")
    else:
        last = {"type": f"response.{data['status']}", "sequence_number": 2, "response": data}
        reply = wire.events(*RESPONSE_EVENTS, last, named=True, done=False, size=size)
        *_, final = client(wire, reply).responses.create(model="m", input="", stream=True)
        theirs = final.response
    played = await wire.play(api(responses=True, stream=size is not None), reply, tools=[BASH])
    assert not isinstance(played.output, Exception), played.output
    assert response_as_read_by_us(played.output, texts) == response_as_read_by_openai(theirs)


async def test_a_last_event_without_items_is_filled_with_those_that_were_done(wire: Any) -> None:
    done = {"type": "response.output_item.done", "output_index": 0, "item": said("hi")}
    reply = wire.events(done, {"type": "response.completed", "response": response()}, done=True)
    played = await wire.play(api(responses=True, stream=True), reply)
    assert played.output.completion == "hi"


async def test_what_the_vendor_did_on_its_side_goes_back_as_it_came(wire: Any) -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "q"},
    }
    cited = said("x")
    cited["content"][0]["annotations"] = [
        {"type": "url_citation", "url": "https://x.test", "title": "X", "start_index": 0, "end_index": 1}
    ]
    played = await wire.play(api(responses=True), wire.whole(response(search, cited)))
    message = played.output.message
    assert message.content[1].citations[0].url == "https://x.test"
    again = await wire.play(api(responses=True), wire.whole(response()), [message])
    assert again.request["input"][0] == search


async def test_a_stream_of_responses_without_its_last_event_may_be_tried_again(wire: Any) -> None:
    for done in (True, False):
        played = await wire.play(api(responses=True, stream=True), wire.events(*RESPONSE_EVENTS, done=done))
        assert isinstance(played.output, TransientModelError)


# -- what goes wrong ---------------------------------------------------------------------------------------------------

ERRORS: list[tuple[int, dict[str, Any], type[Exception] | str]] = [
    (401, {"message": "Incorrect API key sk-canary", "code": "invalid_api_key"}, ModelGivenUp),
    (403, {"message": "no access", "type": "x", "code": None}, ModelGivenUp),
    (404, {"message": "The model `x` does not exist", "code": "model_not_found"}, ModelGivenUp),
    (429, {"message": "Rate limit reached", "type": "tokens", "code": "rate_limit_exceeded"}, RateLimitError),
    (429, {"message": "no quota", "type": "insufficient_quota", "code": "insufficient_quota"}, ModelGivenUp),
    (500, {"message": "The server had an error", "type": "server_error", "code": None}, TransientModelError),
    (503, {"message": "overloaded", "code": None}, TransientModelError),
    (400, {"message": "Unknown parameter", "code": "unknown_parameter"}, ModelError),
    (400, {"message": "This model's maximum context length is 8", "code": "context_length_exceeded"}, "model_length"),
    (400, {"message": "flagged", "code": "invalid_prompt"}, "content_filter"),
    (400, {"message": "filtered", "code": "content_filter"}, "content_filter"),
]  # fmt: skip


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("status", "error", "expected"), ERRORS)
async def test_an_error_is_of_its_kind_and_names_no_key(
    wire: Any, status: int, error: dict[str, Any], expected: Any, stream: bool
) -> None:
    reply = wire.whole({"error": error}, status, retry_after="3")
    played = await wire.play(api(stream=stream), reply)
    if isinstance(expected, str):
        assert played.output.stop_reason == expected
        assert played.output.error == error["message"]
    else:
        assert type(played.output) is expected
        assert played.output.status == status
    assert "canary" not in f"{played.output} {played.call}"
    assert played.call.error
    if expected in {RateLimitError, TransientModelError}:
        assert played.output.retry_after == 3
    with pytest.raises(openai.APIStatusError) as theirs:
        client(wire, reply).chat.completions.create(model="m", messages=[])
    assert theirs.value.status_code == status


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"error": {"message": "busy", "code": "rate_limit_exceeded"}}, RateLimitError),
        ({"error": {"message": "oops", "code": 502}}, TransientModelError),
        ({"error": {"message": "oops", "type": "server_error"}}, TransientModelError),
        ({"error": "down"}, TransientModelError),
        ({"error": {"message": "bad", "code": 400}}, ModelError),
        ({"x_groq": {"error": "over capacity"}}, TransientModelError),
        ({"error": {"message": "no", "code": "content_filter"}}, "content_filter"),
    ],
)
async def test_an_error_within_a_stream_is_of_its_kind(wire: Any, event: dict[str, Any], expected: Any) -> None:
    reply = wire.events(*chunks_of(CHAT["text"])[:2], event)
    played = await wire.play(api(stream=True), reply)
    if isinstance(expected, str):
        assert played.output.stop_reason == expected
    else:
        assert type(played.output) is expected, played.output
    if "error" in event:
        with pytest.raises(openai.APIError):
            list(client(wire, reply).chat.completions.create(model="m", messages=[], stream=True))


def failed(code: str) -> dict[str, Any]:
    error = {"code": code, "message": "x"}
    return {"type": "response.failed", "sequence_number": 2, "response": response(status="failed", error=error)}


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None}, RateLimitError),
        ({"type": "error", "error": {"code": "server_error", "message": "oops"}}, TransientModelError),
        (failed("server_error"), TransientModelError),
        (failed("invalid_prompt"), "content_filter"),
        (failed("rate_limit_exceeded"), RateLimitError),
    ],
)  # fmt: skip
async def test_a_failed_response_is_of_its_kind(wire: Any, event: dict[str, Any], expected: Any) -> None:
    replies = [(True, wire.events(RESPONSE_EVENTS[0], event, done=False))]
    if "response" in event:
        replies.append((False, wire.whole(event["response"])))
    for stream, reply in replies:
        played = await wire.play(api(responses=True, stream=stream), reply)
        if isinstance(expected, str):
            assert played.output.stop_reason == expected
        else:
            assert type(played.output) is expected, played.output
        assert played.call.error


@pytest.mark.parametrize("body", ['{"id": "x", "choices": [', "not json", '"text"', "[1]"])
async def test_broken_json_is_no_answer(wire: Any, body: str) -> None:
    for responses in (False, True):
        played = await wire.play(api(responses=responses), wire.whole(body.encode()))
        assert isinstance(played.output, ModelError)
        assert "no JSON object" in str(played.output)
        played = await wire.play(api(responses=responses, stream=True), wire.events(body, done=False))
        assert isinstance(played.output, TransientModelError)


async def test_an_idle_stream_is_given_up_after_the_time_it_may_be_idle(
    net: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def serve(stream: Any) -> None:
        await net.read_request(stream)
        await stream.send(b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\ncontent-type: text/event-stream\r\n\r\n")
        await stream.send(b"a\r\ndata: {}\n\n\r\n")
        await anyio.sleep_forever()

    made = OpenAIAPI("gpt-4o", "http://vendor.test/v1", "k")
    config = GenerateConfig(stream_idle_timeout=5)
    async with anyio.create_task_group() as group:
        network = net.FakeNetwork(group, serve)
        monkeypatch.setattr(http, "_connect_in_runtime", network.connect)
        began = anyio.current_time()
        with pytest.raises(TransientModelError, match="5 s"):
            await made.generate(HELLO, [], "auto", config)
        assert 5 <= anyio.current_time() - began < 6
        assert network.open == 0
        await made.aclose()
        group.cancel_scope.cancel()


async def test_the_connection_of_a_finished_stream_is_used_again(wire: Any) -> None:
    made = api(stream=True)
    async with wire.serve(wire.events(*chunks_of(CHAT["text"]))) as seen:
        for _ in range(3):
            await made.generate(HELLO, [], "auto", GenerateConfig())
        client = made._client
        assert client is not None
        assert client.transport is not None
        assert client.transport.statistics().opened == 1
        await made.aclose()
    assert len(seen) == 3


def test_the_check_of_requests_can_fail(wire: Any) -> None:
    good: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    assert wire.problems(good, CompletionCreateParamsNonStreaming) == []
    for bad in (
        {**good, "colour": 1},
        {"model": "m"},
        {**good, "messages": [{"role": "user", "content": "x", "colour": 1}]},
        {**good, "messages": [{"role": "user", "content": [{"type": "text", "txt": "x"}]}]},
        {**good, "temperature": "warm"},
        {**good, "reasoning_effort": "huge"},
    ):
        assert wire.problems(bad, CompletionCreateParamsNonStreaming) != []


async def test_the_ids_of_requests_are_in_the_log_and_calls_of_a_sample_stay_together(wire: Any) -> None:
    replies = [
        wire.whole({"error": {"message": "slow"}}, 429, x_request_id="req_1"),
        wire.whole(CHAT["text"], x_request_id="req_2"),
    ]
    events = Transcript(new_id=iter(map(str, range(100))).__next__)
    async with wire.serve(*replies) as seen, open_runtime():
        model = get_model("openrouter/x/y", base_url="http://vendor.test/v1", api_key="k", stream=False)
        with init_transcript(events), SampleContext(sample_id="s", epoch=1):
            await model.generate("q")
        with SampleContext(sample_id="s", epoch=2):
            await model.generate("q")
        await model.generate("q")
    [event] = [event for event in events.events if isinstance(event, ModelEvent)]
    assert [(each.id, each.status) for each in event.request_ids or ()] == [("req_1", 429), ("req_2", 200)]
    places = [request[1].get("x-session-id") for request in seen]
    assert places[0] == places[1] is not None
    assert places[2] not in {None, places[0]}
    assert places[3] is None
