"""Answers of Gemini's protocol: read by us and by the vendor's own package from the same bytes, with equal results."""

from __future__ import annotations

import base64
import copy
import functools
import json
import re
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from proctor.errors import ModelError, ModelGivenUp, RateLimitError, TransientModelError
from proctor.model import ChatMessageUser, ModelOutput, ModelUsage
from proctor.model.pacing.values import Dimension
from proctor.model.providers.google import GoogleAPI, quotas_shown
from proctor.model.providers.google_output import ResponseAssembly
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolInfo
from proctor.testing import run_virtual

genai = pytest.importorskip("google.genai")

HELLO = [ChatMessageUser(content="hello")]
EDIT = ToolInfo(
    name="edit",
    description="Edit a file",
    parameters=ToolParams(properties={"path": JSONSchema(type="string"), "line": JSONSchema(type="integer")}),
)
TEXT = "Grüße, 世界! 🎈 “ok”"
SIGNATURE = base64.b64encode(b"signed").decode()
OTHER = base64.b64encode(b"other").decode()
USAGE = {
    "promptTokenCount": 30, "cachedContentTokenCount": 10, "candidatesTokenCount": 7, "thoughtsTokenCount": 5,
    "totalTokenCount": 42,
}  # fmt: skip


def api(**more: Any) -> GoogleAPI:
    return GoogleAPI("gemini-2.5-pro", "http://vendor.test", "sk-canary", **more)


def candidate(parts: list[dict[str, Any]] | None, reason: str = "STOP", **more: Any) -> dict[str, Any]:
    content = {} if parts is None else {"content": {"role": "model", "parts": parts}}
    return {**content, "finishReason": reason, "index": 0, **more}


def response(*candidates: dict[str, Any], **more: Any) -> dict[str, Any]:
    whole = {"candidates": list(candidates)} if candidates else {}
    return {**whole, "usageMetadata": USAGE, "modelVersion": "gemini-2.5-pro-001", "responseId": "r1", **more}


RATING = {"category": "HARM_CATEGORY_HARASSMENT", "probability": "HIGH", "blocked": True}
LOGPROBS = {
    "chosenCandidates": [{"token": "a", "tokenId": 1, "logProbability": -0.5}, {"token": "b", "logProbability": -1.0}],
    "topCandidates": [
        {"candidates": [{"token": "a", "logProbability": -0.5}, {"token": "c", "logProbability": -2.0}]},
        {"candidates": [{"token": "b", "logProbability": -1.0}]},
    ],
}
SHAPES: dict[str, dict[str, Any]] = {
    "text": response(candidate([{"text": TEXT}])),
    "length": response(candidate([{"text": "cut of"}], "MAX_TOKENS")),
    "safety": response(candidate(None, "SAFETY", safetyRatings=[RATING])),
    "recitation": response(candidate([{"text": "a"}], "RECITATION")),
    "other end": response(candidate([{"text": "a"}], "OTHER")),
    "blocked prompt": response(
        promptFeedback={"blockReason": "PROHIBITED_CONTENT", "safetyRatings": [RATING]}
    ),
    "nothing": response(candidate([])),
    "tool call": response(
        candidate([{"text": "I edit."}, {"functionCall": {"id": "f1", "name": "edit", "args": {"path": "Übung.txt"}}}])
    ),
    "parallel tool calls": response(
        candidate(
            [
                {"functionCall": {"id": "f1", "name": "edit", "args": {"path": "a"}}, "thoughtSignature": SIGNATURE},
                {"functionCall": {"id": "f2", "name": "edit", "args": {}}},
                {"functionCall": {"id": "f3", "name": "other", "args": {"deep": {"list": [1, None]}}}},
            ]
        )
    ),
    "thoughts": response(
        candidate([{"text": "hm", "thought": True}, {"text": "so", "thoughtSignature": SIGNATURE}])
    ),
    "thoughts and a call": response(
        candidate(
            [
                {"text": "hm", "thought": True},
                {"functionCall": {"id": "f1", "name": "edit", "args": {}}, "thoughtSignature": SIGNATURE},
            ]
        )
    ),
    "picture": response(candidate([{"text": "see"}, {"inlineData": {"mimeType": "image/png", "data": "cG5n"}}])),
    "code": response(
        candidate(
            [
                {"executableCode": {"id": "x1", "language": "PYTHON", "code": "print(1)"}},
                {"codeExecutionResult": {"id": "x1", "outcome": "OUTCOME_OK", "output": "1\n"}},
                {"text": "one"},
            ]
        )
    ),
    "log probabilities": response(candidate([{"text": "ab"}], logprobsResult=LOGPROBS)),
    "two answers": response(candidate([{"text": "a"}]), {**candidate([{"text": "b"}]), "index": 1}),
}  # fmt: skip


def chunks_of(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The chunks that a server streams for a response: text in pieces, the end in the last one of each answer."""
    rest = {name: value for name, value in whole.items() if name != "candidates"}
    out: list[dict[str, Any]] = []
    for one in whole.get("candidates") or ():
        index = {"index": one["index"]}
        parts = (one.get("content") or {}).get("parts")
        for part in parts or ():
            text = part.get("text", "")
            if "thoughtSignature" in part or len(text) < 2:
                pieces = [part]
            else:
                pieces = [{**part, "text": text[i : i + 4]} for i in range(0, len(text), 4)]
            for piece in pieces:
                made = {**index, "content": {"role": "model", "parts": [piece]}}
                out.append({"candidates": [made], "modelVersion": rest["modelVersion"], "responseId": "r1"})
        last = {name: value for name, value in one.items() if name != "content"}
        if parts == []:
            last["content"] = {"role": "model", "parts": []}
        out.append({"candidates": [last], **rest})
    return out or [rest]


def sse(chunks: list[dict[str, Any]]) -> bytes:
    return "".join(f"data: {json.dumps(one, ensure_ascii=False)}\r\n\r\n" for one in chunks).encode()


@functools.cache
def their_client() -> tuple[Any, list[httpx.Response]]:
    """The vendor's client, and what it is answered: making one takes as long as all the rest of a test."""
    answers: list[httpx.Response] = []
    transport = httpx.MockTransport(lambda _: answers[-1])
    options = genai.types.HttpOptions(base_url="http://vendor.test", httpx_client=httpx.Client(transport=transport))
    return genai.Client(api_key="k", http_options=options), answers


def theirs(body: bytes, *, streamed: bool, status: int = 200) -> Any:
    """What the vendor's package makes of a response: the whole, or what its chunks make up."""
    kind = "text/event-stream" if streamed else "application/json"
    client, answers = their_client()
    answers[:] = [httpx.Response(status, headers={"content-type": kind}, content=body)]
    if not streamed:
        return client.models.generate_content(model="m", contents="x")
    assembly = ResponseAssembly()
    for chunk in client.models.generate_content_stream(model="m", contents="x"):
        assembly.feed(as_wire(chunk))
    return genai.types.GenerateContentResponse.model_validate_json(json.dumps(assembly.answer()))


def as_wire(found: Any) -> dict[str, Any]:
    wire = json.loads(found.model_dump_json(by_alias=True, exclude_none=True))
    for name in ("sdkHttpResponse", "parsed", "automaticFunctionCallingHistory"):
        wire.pop(name, None)
    return wire


def without_enums(value: Any) -> Any:
    """A wire value with empty objects and nulls left out."""
    if isinstance(value, dict):
        return {k: without_enums(v) for k, v in value.items() if v is not None}
    return [without_enums(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_every_shape_is_read_as_the_vendors_package_reads_it(
    vendor: SimpleNamespace, shape: str, streamed: bool
) -> None:
    whole = SHAPES[shape]
    body = sse(chunks_of(whole)) if streamed else json.dumps(whole, ensure_ascii=False).encode()
    reply = vendor.Reply(body, kind="text/event-stream" if streamed else "application/json")
    asked, output, call = await vendor.ask(lambda: api(streaming=streamed), reply, HELLO, [EDIT])
    assert isinstance(output, ModelOutput), output
    assert asked[0].line.split(" ")[1].endswith(":streamGenerateContent?alt=sse" if streamed else ":generateContent")
    assert without_enums(call.response) == as_wire(theirs(body, streamed=streamed))
    assert call.response == whole  # streamed or not


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_becomes_the_output_that_inspect_makes_of_it(
    vendor: SimpleNamespace, shape: str, streamed: bool
) -> None:
    pytest.importorskip("inspect_ai")
    from inspect_ai.model._providers.google import completion_choices_from_candidates, usage_metadata_to_model_usage

    whole = SHAPES[shape]
    body = sse(chunks_of(whole)) if streamed else json.dumps(whole).encode()
    reply = vendor.Reply(body, kind="text/event-stream" if streamed else "application/json")

    async def ask() -> Any:
        return (await vendor.ask(lambda: api(streaming=streamed), reply, HELLO))[1]

    output = run_virtual("asyncio", ask)  # what is read does not depend on it
    found = theirs(json.dumps(whole).encode(), streamed=False)
    choices = completion_choices_from_candidates("gemini-2.5-pro-001", copy.deepcopy(found))
    expected = [json.loads(choice.model_dump_json(exclude_none=True)) for choice in choices]
    usage = usage_metadata_to_model_usage(found.usage_metadata)
    assert output.usage.model_dump(exclude_none=True) == json.loads(usage.model_dump_json(exclude_none=True))
    assert [comparable(one.model_dump(exclude_none=True)) for one in output.choices] == [
        comparable(one) for one in expected
    ]


def comparable(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice without what differs on purpose: ids, marks, anchors without a signature, `tool_calls` as the end."""
    content = choice["message"]["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    kept = ("type", "text", "reasoning", "summary", "redacted", "image", "tool_type", "arguments")
    calls = [(call["function"], call["arguments"]) for call in choice["message"].get("tool_calls") or ()]
    details = choice.get("stop_details")
    blocked = "blocked" in json.dumps(content).lower()
    return {
        "content": [
            {name: part[name] for name in kept if part.get(name) is not None}
            for part in parts
            if part.get("text") != "" and part.get("reasoning") != "" and not blocked
        ],
        "calls": calls,
        "stop": "stop" if calls else choice["stop_reason"],
        "details": (details["type"], details["categories"]) if details and details.get("categories") else None,
        "logprobs": choice.get("logprobs"),
    }


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
async def test_characters_that_are_split_over_chunks_are_whole_again(vendor: SimpleNamespace, size: int) -> None:
    body = sse(chunks_of(SHAPES["text"]))
    pieces = [body[i : i + size] for i in range(0, len(body), size)]
    reply = vendor.Reply(kind="text/event-stream", chunks=pieces)
    _, output, _ = await vendor.ask(lambda: api(streaming=True), reply, HELLO)
    assert output.completion == TEXT


async def test_a_stream_that_is_cut_is_a_fault_that_may_pass(vendor: SimpleNamespace) -> None:
    body = sse(chunks_of(SHAPES["text"])[:-1])
    for cut in (False, True):
        reply = vendor.Reply(kind="text/event-stream", chunks=[body], cut=cut)
        _, found, _ = await vendor.ask(lambda: api(streaming=True), reply, HELLO)
        assert isinstance(found, TransientModelError), found


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_an_answer_that_is_no_json_is_a_fault_that_may_pass(vendor: SimpleNamespace, streamed: bool) -> None:
    body = b'data: {"candidates": [\n\n' if streamed else b'{"candidates": ['
    reply = vendor.Reply(body, kind="text/event-stream" if streamed else "application/json")
    _, found, _ = await vendor.ask(lambda: api(streaming=streamed), reply, HELLO)
    assert isinstance(found, TransientModelError)


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "27.5s"}
ERRORS = [
    (400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", ModelGivenUp),
    (400, "INVALID_ARGUMENT", "Invalid value at 'contents'", ModelError),
    (401, "UNAUTHENTICATED", "Request had invalid authentication credentials.", ModelGivenUp),
    (403, "PERMISSION_DENIED", "Your project has been denied access", ModelGivenUp),
    (404, "NOT_FOUND", "models/gemini-x is not found for API version v1beta", ModelGivenUp),
    (429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", RateLimitError),
    (429, "RESOURCE_EXHAUSTED", "Quota exceeded for metric: free_tier_requests, limit: 0", ModelGivenUp),
    (503, "RESOURCE_EXHAUSTED", "no capacity", RateLimitError),
    (503, "UNAVAILABLE", "The model is overloaded. Please try again later.", TransientModelError),
    (500, "INTERNAL", "An internal error has occurred", TransientModelError),
    (504, "DEADLINE_EXCEEDED", "too slow", TransientModelError),
]


@pytest.mark.parametrize(("status", "code", "words", "expected"), ERRORS)
async def test_errors_are_what_they_say_with_their_status_or_within_a_stream(
    vendor: SimpleNamespace, status: int, code: str, words: str, expected: type[Exception]
) -> None:
    error = {"error": {"code": status, "message": words, "status": code, "details": [{"@type": "x"}, RETRY]}}
    for streamed, reply in (
        (False, vendor.Reply(error, status=status)),
        (True, vendor.Reply([error], status=status)),  # before the stream began: a list of one
        (True, vendor.Reply(sse([*chunks_of(SHAPES["text"])[:1], error]), kind="text/event-stream")),
    ):
        _, found, call = await vendor.ask(lambda: api(streaming=streamed), reply, HELLO)  # noqa: B023  awaited at once
        assert type(found) is expected, found
        assert words in str(found)
        assert call.error is True
        if expected in {RateLimitError, TransientModelError}:
            assert found.retry_after == 27.5
    with pytest.raises(genai.errors.APIError, match=re.escape(words)):
        theirs(json.dumps(error).encode(), streamed=False, status=status)


def test_quotas_that_are_used_up_are_shown_to_the_pacer() -> None:
    violations = [
        {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "quotaValue": "5"},
        {"quotaId": "GenerateContentInputTokensPerModelPerMinute-FreeTier", "quotaValue": "250000"},
        {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier", "quotaValue": "20"},  # no pace
        {"quotaId": "GenerateRequestsPerMinutePerProjectPerModel", "quotaValue": "0"},
    ]
    failure = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}
    found = quotas_shown({"error": {"details": [failure, RETRY]}}, 27.5)
    assert [(one.dimension, one.limit, one.remaining, one.reset_after, one.window) for one in found] == [
        (Dimension.REQUESTS, 5, 0, 27.5, 60),
        (Dimension.INPUT_TOKENS, 250_000, 0, 27.5, 60),
    ]
    assert quotas_shown({"error": "odd"}, None) == quotas_shown(None, None) == []


async def test_an_input_that_is_too_long_is_an_output(vendor: SimpleNamespace) -> None:
    words = "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    error = {"error": {"code": 400, "message": words, "status": "INVALID_ARGUMENT"}}
    _, output, _ = await vendor.ask(api, vendor.Reply(error, status=400), HELLO)
    assert output.stop_reason == "model_length"
    assert output.error == words


async def test_a_function_call_in_a_wrong_form_is_asked_for_again_and_all_tokens_count(vendor: SimpleNamespace) -> None:
    wrong = response(candidate(None, "MALFORMED_FUNCTION_CALL", finishMessage="print(default_api.edit())"))
    right = SHAPES["tool call"]
    asked, output, _ = await vendor.ask(api, [vendor.Reply(wrong), vendor.Reply(right)], HELLO, [EDIT])
    assert len(asked) == 2
    assert asked[1].body["toolConfig"]["functionCallingConfig"]["mode"] == "ANY"
    assert "print(default_api.edit())" in asked[1].body["contents"][-2]["parts"][0]["text"]
    assert output.message.tool_calls[0].function == "edit"
    assert output.usage == ModelUsage(
        input_tokens=40, output_tokens=24, total_tokens=84, input_tokens_cache_read=20, reasoning_tokens=10
    )
    asked, output, _ = await vendor.ask(api, vendor.Reply(wrong), HELLO, [EDIT])
    assert len(asked) == 3
    assert output.stop_reason == "unknown"
    assert "print(default_api.edit())" in output.completion


async def test_calls_without_an_id_are_given_one_each(vendor: SimpleNamespace) -> None:
    call = {"functionCall": {"name": "edit", "args": {"path": "a"}}}
    _, output, _ = await vendor.ask(api, vendor.Reply(response(candidate([call, call]))), HELLO)
    ids = [one.id for one in output.message.tool_calls]
    assert len(set(ids)) == 2
    assert all(one.startswith("edit_") for one in ids)
    assert output.stop_reason == "tool_calls"


@pytest.mark.parametrize("shape", ["parallel tool calls", "thoughts and a call", "code", "tool call"])
async def test_an_answer_comes_back_to_the_vendor_as_it_was(vendor: SimpleNamespace, shape: str) -> None:
    whole = SHAPES[shape]
    _, output, _ = await vendor.ask(api, vendor.Reply(whole), HELLO)
    asked, _, _ = await vendor.ask(api, vendor.Reply(whole), [*HELLO, output.message], [EDIT])
    assert asked[0].body["contents"][1]["parts"] == whole["candidates"][0]["content"]["parts"]


async def test_citations_of_web_pages(vendor: SimpleNamespace) -> None:
    metadata = {
        "groundingChunks": [{"web": {"uri": "http://w.test", "title": "W"}}],
        "groundingSupports": [{"segment": {"text": "sunny"}, "groundingChunkIndices": [0]}],
    }
    whole = response(candidate([{"text": "It is sunny."}], groundingMetadata=metadata))
    _, output, _ = await vendor.ask(api, vendor.Reply(whole), HELLO)
    [citation] = output.message.content[0].citations
    assert (citation.url, citation.cited_text) == ("http://w.test", "sunny")
