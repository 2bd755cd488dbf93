"""Answers of Anthropic's protocol: read by us and by the vendor's package from the same bytes, with equal results."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.errors import ModelError, ModelGivenUp, RateLimitError, TransientModelError
from proctor.model import ChatMessageUser, GenerateConfig, ModelOutput
from proctor.model.providers.anthropic import AnthropicAPI
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolInfo

anthropic = pytest.importorskip("anthropic")
httpx2 = pytest.importorskip("httpx2")

HELLO = [ChatMessageUser(content="hello")]
EDIT = ToolInfo(
    name="edit",
    description="Edit a file",
    parameters=ToolParams(properties={"path": JSONSchema(type="string"), "line": JSONSchema(type="integer")}),
)
USAGE = {"input_tokens": 12, "output_tokens": 1, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 7}
TEXT = "Grüße, 世界! 🎈 “ok”"


def api(**more: Any) -> AnthropicAPI:
    return AnthropicAPI("claude-sonnet-4-5", "http://vendor.test", "sk-canary", **more)


def message(content: list[dict[str, Any]], stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5-20250929",
        "content": content, "stop_reason": stop, "stop_sequence": None, "usage": {**USAGE, "output_tokens": 9}, **more,
    }  # fmt: skip


def pieces(text: str) -> list[str]:
    return [text[i : i + 3] for i in range(0, len(text), 3)] or [""]


def events_of(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The events that a server streams for a message."""
    started = {**whole, "content": [], "stop_reason": None, "usage": USAGE}
    started.pop("stop_details", None)
    out: list[dict[str, Any]] = [{"type": "message_start", "message": started}, {"type": "ping"}]
    for index, block in enumerate(whole["content"]):
        empty = {"text": "", "thinking": "", "signature": "", "input": {}}
        first = {name: empty.get(name, value) for name, value in block.items() if name != "citations"}
        out.append({"type": "content_block_start", "index": index, "content_block": first})
        deltas: list[dict[str, Any]] = []
        if "text" in block:
            deltas += [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
        for citation in block.get("citations") or ():
            deltas.append({"type": "citations_delta", "citation": citation})
        if "thinking" in block:
            deltas += [{"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        if "input" in block:
            text = json.dumps(block["input"], ensure_ascii=False) if block["input"] else ""
            deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in pieces(text)]
        out += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        out.append({"type": "content_block_stop", "index": index})
    details = {"output_tokens_details": whole["usage"].get("output_tokens_details")}
    usage = {"output_tokens": whole["usage"]["output_tokens"], **{k: v for k, v in details.items() if v}}
    delta = {name: whole.get(name) for name in ("stop_reason", "stop_sequence", "stop_details")}
    return [*out, {"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def sse(events: list[dict[str, Any]], *, ascii_only: bool = False) -> bytes:
    lines = [f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=ascii_only)}\n\n" for e in events]
    return "".join(lines).encode()


SHAPES: dict[str, dict[str, Any]] = {
    "text": message([{"type": "text", "text": TEXT}]),
    "stop sequence": message([{"type": "text", "text": "a"}], "stop_sequence", stop_sequence="END"),
    "length": message([{"type": "text", "text": "cut of"}], "max_tokens"),
    "context": message([{"type": "text", "text": "cut of"}], "model_context_window_exceeded"),
    "nothing": message([]),
    "refusal": message(
        [{"type": "text", "text": "I can"}],
        "refusal",
        stop_details={"type": "refusal", "category": "cyber", "explanation": "No."},
    ),
    "tool call": message(
        [
            {"type": "text", "text": "I edit."},
            {"type": "tool_use", "id": "toolu_1", "name": "edit", "input": {"path": "Übung.txt", "line": 3}},
        ],
        "tool_use",
    ),
    "parallel tool calls": message(
        [
            {"type": "tool_use", "id": "toolu_1", "name": "edit", "input": {"path": "a", "line": 1}},
            {"type": "tool_use", "id": "toolu_2", "name": "edit", "input": {}},
            {"type": "tool_use", "id": "toolu_3", "name": "other", "input": {"deep": {"list": [1, None, {"x": "y"}]}}},
        ],
        "tool_use",
    ),
    "thinking": message(
        [
            {"type": "thinking", "thinking": f"hm {TEXT}", "signature": "c2lnbg=="},
            {"type": "redacted_thinking", "data": "ZGF0YQ=="},
            {"type": "text", "text": "so"},
        ],
        usage={**USAGE, "output_tokens": 40, "output_tokens_details": {"thinking_tokens": 31}},
    ),
    "thinking between calls": message(
        [
            {"type": "thinking", "thinking": "first", "signature": "czE="},
            {"type": "tool_use", "id": "toolu_1", "name": "edit", "input": {"path": "a"}},
            {"type": "thinking", "thinking": "then", "signature": "czI="},
            {"type": "tool_use", "id": "toolu_2", "name": "edit", "input": {"path": "b"}},
        ],
        "tool_use",
    ),
    "citations": message(
        [
            {
                "type": "text",
                "text": "It is so.",
                "citations": [
                    {
                        "type": "page_location",
                        "cited_text": "so",
                        "document_index": 0,
                        "document_title": "d",
                        "start_page_number": 2,
                        "end_page_number": 3,
                        "file_id": None,
                    }
                ],
            }
        ]
    ),
    "web search": message(
        [
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "weather"}},
            {
                "type": "web_search_tool_result",
                "tool_use_id": "srvtoolu_1",
                "content": [
                    {"type": "web_search_result", "url": "http://w.test", "title": "W", "encrypted_content": "x"}
                ],
            },
            {"type": "text", "text": "sunny"},
        ]
    ),
}


def theirs(body: bytes, *, streamed: bool, status: int = 200) -> Any:
    """What the vendor's package makes of a response."""
    kind = "text/event-stream" if streamed else "application/json"

    def respond(_: Any) -> Any:
        return httpx2.Response(status, headers={"content-type": kind}, content=body)

    client = anthropic.Anthropic(
        api_key="k",
        base_url="http://vendor.test",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(respond)),
    )
    asked: dict[str, Any] = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
    if not streamed:
        return client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        return stream.get_final_message()


def inspect_output(found: Any) -> dict[str, Any]:
    """What Inspect makes of the vendor's message, in the terms that ours has too."""
    import anyio
    from inspect_ai.model._providers.anthropic import model_output_from_message

    async def convert() -> Any:
        return await model_output_from_message(None, None, found, [])

    output, _ = anyio.run(convert)
    return comparable(json.loads(output.model_dump_json(exclude_none=True)))


def comparable(output: dict[str, Any]) -> dict[str, Any]:
    choice = output["choices"][0]
    content = choice["message"]["content"]
    parts = [] if content == "" else content if isinstance(content, list) else [{"type": "text", "text": content}]
    kept = ("type", "text", "reasoning", "summary", "redacted", "citations", "tool_type", "name", "id")
    return {
        "content": [{name: part[name] for name in kept if part.get(name) is not None} for part in parts],
        "calls": [(c["id"], c["function"], c["arguments"]) for c in choice["message"].get("tool_calls") or ()],
        "stop": choice["stop_reason"],
        "details": choice.get("stop_details"),
        "usage": output["usage"],
        "model": output["model"],
    }


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_every_shape_is_read_as_the_vendors_package_reads_it(
    vendor: SimpleNamespace, shape: str, streamed: bool
) -> None:
    whole = SHAPES[shape]
    body = sse(events_of(whole)) if streamed else json.dumps(whole, ensure_ascii=False).encode()
    kind = "text/event-stream" if streamed else "application/json"
    reply = vendor.Reply(body, kind=kind)
    asked, output, call = await vendor.ask(lambda: api(streaming=streamed), reply, HELLO, [EDIT])
    assert isinstance(output, ModelOutput), output
    assert asked[0].body.get("stream", False) is streamed
    found = theirs(body, streamed=streamed)
    assert without_nulls(call.response) == without_nulls(found.to_dict(mode="json"))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_becomes_the_output_that_inspect_makes_of_it(
    vendor: SimpleNamespace, shape: str, streamed: bool
) -> None:
    from proctor.testing import run_virtual

    whole = SHAPES[shape]
    body = sse(events_of(whole)) if streamed else json.dumps(whole).encode()
    reply = vendor.Reply(body, kind="text/event-stream" if streamed else "application/json")

    async def ask() -> Any:
        return (await vendor.ask(lambda: api(streaming=streamed), reply, HELLO))[1]

    output = run_virtual("asyncio", ask)  # what is read does not depend on it
    expected = inspect_output(theirs(body, streamed=streamed))
    if shape == "context":
        assert (expected.pop("stop"), output.stop_reason) == ("unknown", "model_length")  # Inspect does not know it
    found = comparable(output.model_dump(exclude_none=True))
    assert {name: found[name] for name in expected} == expected


def without_nulls(value: Any) -> Any:
    """A wire value without what says nothing: nulls, and the names that the package adds to its objects."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None and k not in {"parsed_output"}}
    return [without_nulls(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
async def test_characters_that_are_split_over_chunks_are_whole_again(vendor: SimpleNamespace, size: int) -> None:
    body = sse(events_of(SHAPES["thinking"]))
    chunks = [body[i : i + size] for i in range(0, len(body), size)]
    reply = vendor.Reply(kind="text/event-stream", chunks=chunks)
    _, output, call = await vendor.ask(lambda: api(streaming=True), reply, HELLO)
    assert output.message.content[0].summary == f"hm {TEXT}"
    assert call.response["content"] == SHAPES["thinking"]["content"]


async def test_a_stream_that_is_cut_is_a_fault_that_may_pass(vendor: SimpleNamespace) -> None:
    body = sse(events_of(SHAPES["text"])[:-1])
    for cut in (False, True):  # a clean end of the body, and a lost connection
        reply = vendor.Reply(kind="text/event-stream", chunks=[body], cut=cut)
        _, found, _ = await vendor.ask(lambda: api(streaming=True), reply, HELLO)
        assert isinstance(found, TransientModelError), found


async def test_arguments_that_are_no_json_are_told_to_the_model(vendor: SimpleNamespace) -> None:
    whole = SHAPES["tool call"]
    events = events_of(whole)
    for event in events:
        if event.get("delta", {}).get("type") == "input_json_delta":
            event["delta"]["partial_json"] = '{"path": '
            break
    body = sse(events)
    reply = vendor.Reply(body, kind="text/event-stream")
    _, output, _ = await vendor.ask(lambda: api(streaming=True), reply, HELLO, [EDIT])
    [call] = output.message.tool_calls
    assert call.arguments == {}
    assert "could not be read" in call.parse_error
    with pytest.raises(ValueError, match="parse tool parameter JSON"):
        theirs(body, streamed=True)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_is_no_json_is_a_fault_that_may_pass(vendor: SimpleNamespace, streamed: bool) -> None:
    body = b'event: message_start\ndata: {"type": "mess\n\n' if streamed else b'{"type": "mess'
    reply = vendor.Reply(body, kind="text/event-stream" if streamed else "application/json")
    _, found, _ = await vendor.ask(lambda: api(streaming=streamed), reply, HELLO)
    assert isinstance(found, TransientModelError)


ERRORS = [
    (401, "authentication_error", "invalid x-api-key", ModelGivenUp),
    (403, "permission_error", "not yours", ModelGivenUp),
    (404, "not_found_error", "model: claude-x", ModelGivenUp),
    (402, "billing_error", "pay", ModelGivenUp),
    (400, "invalid_request_error", "Your credit balance is too low to access the API", ModelGivenUp),
    (400, "invalid_request_error", "messages: at least one message is required", ModelError),
    (400, "invalid_request_error", "body is not valid JSON: unexpected end of data", TransientModelError),
    (429, "rate_limit_error", "slow down", RateLimitError),
    (529, "overloaded_error", "Overloaded", RateLimitError),
    (500, "api_error", "Internal server error", TransientModelError),
    (504, "timeout_error", "took too long", TransientModelError),
]


@pytest.mark.parametrize(("status", "kind", "words", "expected"), ERRORS)
async def test_errors_are_what_they_say_with_their_status_or_within_a_stream(
    vendor: SimpleNamespace, status: int, kind: str, words: str, expected: type[Exception]
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": words}, "request_id": "req_1"}
    whole = vendor.Reply(error, status=status, headers={"retry-after": "7"})
    _, found, call = await vendor.ask(api, whole, HELLO)
    assert type(found) is expected
    assert found.status == status
    assert words in str(found)
    assert call.error is True
    if expected in {RateLimitError, TransientModelError}:
        assert found.retry_after == 7
    body = sse(events_of(SHAPES["text"])[:4]) + sse([error])
    streamed = vendor.Reply(body, kind="text/event-stream")
    _, found, call = await vendor.ask(lambda: api(streaming=True), streamed, HELLO)
    assert type(found) is expected
    assert call.error is True
    with pytest.raises(anthropic.APIStatusError, match=words):
        theirs(body, streamed=True)


@pytest.mark.parametrize(
    ("status", "kind", "words", "reason"),
    [
        (400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum", "model_length"),
        (400, "invalid_request_error", "input length and `max_tokens` exceed context limit: 1 + 2", "model_length"),
        (413, "request_too_large", "Request exceeds the maximum size", "model_length"),
        (400, "invalid_request_error", "Output blocked by content filtering policy", "content_filter"),
    ],
)
async def test_what_the_sample_is_to_blame_for_is_an_output(
    vendor: SimpleNamespace, status: int, kind: str, words: str, reason: str
) -> None:
    reply = vendor.Reply({"type": "error", "error": {"type": kind, "message": words}}, status=status)
    _, output, _ = await vendor.ask(api, reply, HELLO)
    assert output.stop_reason == reason
    assert output.error == words


async def test_a_turn_that_was_paused_is_continued(vendor: SimpleNamespace) -> None:
    paused = message([{"type": "text", "text": "one"}], "pause_turn", container={"id": "c1", "expires_at": "x"})
    rest = message([{"type": "text", "text": "two"}])
    asked, output, _ = await vendor.ask(lambda: api(streaming=False), [vendor.Reply(paused), vendor.Reply(rest)], HELLO)
    assert [one.body["messages"][-1]["role"] for one in asked] == ["user", "assistant"]
    assert asked[1].body["container"] == "c1"
    assert output.completion == "one\ntwo"
    assert output.stop_reason == "stop"
    assert output.usage.output_tokens == 18


async def test_thinking_between_calls_comes_back_where_it_was(vendor: SimpleNamespace) -> None:
    whole = SHAPES["thinking between calls"]
    _, output, _ = await vendor.ask(lambda: api(streaming=False), vendor.Reply(whole), HELLO)
    asked, _, _ = await vendor.ask(
        lambda: api(streaming=False), vendor.Reply(whole), [*HELLO, output.message], [EDIT],
        config=GenerateConfig(cache_prompt=False),
    )  # fmt: skip
    assert asked[0].body["messages"][1]["content"] == whole["content"]


@pytest.mark.parametrize("shape", ["thinking", "citations", "web search", "tool call"])
async def test_an_answer_comes_back_to_the_vendor_as_it_was(vendor: SimpleNamespace, shape: str) -> None:
    whole = SHAPES[shape]
    _, output, _ = await vendor.ask(lambda: api(streaming=False), vendor.Reply(whole), HELLO)
    asked, _, _ = await vendor.ask(
        lambda: api(streaming=False), vendor.Reply(whole), [*HELLO, output.message], [EDIT],
        config=GenerateConfig(cache_prompt=False),
    )  # fmt: skip
    expected = [
        {k: [{n: v for n, v in c.items() if v is not None} for c in x] if k == "citations" else x for k, x in b.items()}
        for b in whole["content"]
    ]
    assert asked[0].body["messages"][1]["content"] == expected


async def test_a_server_side_fallback_is_recorded(vendor: SimpleNamespace) -> None:
    whole = message(
        [
            {"type": "thinking", "thinking": "no", "signature": "cw=="},
            {"type": "fallback", "from": {"model": "claude-a"}, "to": {"model": "claude-b"}},
            {"type": "text", "text": "yes"},
        ]
    )
    _, output, _ = await vendor.ask(lambda: api(streaming=False), vendor.Reply(whole), HELLO)
    assert output.model == "claude-b"
    assert (output.fallback.model, output.fallback.fallback_model) == ("claude-a", "claude-b")
    assert output.completion == "yes"
