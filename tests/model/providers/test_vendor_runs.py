"""Calls of whole models: through the model actor and its retries, with what the log keeps of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from proctor.errors import ModelGivenUp, TransientModelError
from proctor.log.events import ModelEvent
from proctor.log.transcript import Transcript, init_transcript
from proctor.model import GenerateConfig, Model, get_model
from proctor.model.exchange import Exchange, exchange
from proctor.model.generation import log_model_api
from proctor.model.providers.anthropic import AnthropicAPI
from proctor.runtime import open_runtime

URL = "http://vendor.test"
ANTHROPIC = {
    "id": "m", "type": "message", "role": "assistant", "model": "served", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
GOOGLE = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
}
BEDROCK = {
    "output": {"message": {"role": "assistant", "content": [{"text": "hi"}]}}, "stopReason": "end_turn",
    "usage": {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2},
}  # fmt: skip


def anthropic_model() -> Model:
    return get_model("anthropic/claude-sonnet-4-5", base_url=URL, api_key="sk-canary", streaming=False)


def google_model() -> Model:
    return get_model("google/gemini-2.5-pro", base_url=URL, api_key="sk-canary")


def bedrock_model() -> Model:
    return get_model(
        "bedrock/anthropic.claude-sonnet-4-5-v1:0", base_url=URL, region_name="eu-west-1",
        aws_access_key_id="AKID-canary", aws_secret_access_key="sk-canary",
    )  # fmt: skip


VENDORS: dict[str, tuple[Callable[[], Model], dict[str, Any], tuple[int, Any], tuple[int, Any]]] = {
    "anthropic": (
        anthropic_model,
        ANTHROPIC,
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
        (401, {"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key sk-canary"}}),
    ),
    "google": (
        google_model,
        GOOGLE,
        (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota"}}),
        (400, {"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API key not valid: sk-canary"}}),
    ),
    "bedrock": (
        bedrock_model,
        BEDROCK,
        (429, {"message": "Too many requests", "__type": "ThrottlingException"}),
        (403, {"message": "The security token sk-canary is invalid.", "__type": "UnrecognizedClientException"}),
    ),
}


@pytest.mark.parametrize("name", VENDORS)
async def test_a_call_waits_when_it_is_told_to_and_the_log_has_it_without_the_key(
    vendor: SimpleNamespace, net: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make, answer, refused, _ = VENDORS[name]
    replies = [vendor.Reply(refused[1], status=refused[0]), vendor.Reply({}, status=503), vendor.Reply(answer)]
    log = Transcript()
    async with vendor.serving(net, monkeypatch, replies) as asked, open_runtime():
        with init_transcript(log), log_model_api(True):
            output = await make().generate("hello", config=GenerateConfig(max_retries=4))
    assert output.completion == "hi"
    assert len(asked) == 3
    [event] = [one for one in log.events if isinstance(one, ModelEvent)]
    assert event.retries == 2
    assert event.call is not None
    assert event.call.response == answer
    logged = json.dumps([event.call.request, event.call.response, event.config.model_dump()])
    assert "canary" not in logged


@pytest.mark.parametrize("name", VENDORS)
async def test_a_refused_key_ends_that_model_after_one_request_and_others_go_on(
    vendor: SimpleNamespace, net: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    make, _, _, wrong = VENDORS[name]
    async with vendor.serving(net, monkeypatch, [vendor.Reply(wrong[1], status=wrong[0])]) as asked, open_runtime():
        for _ in range(2):  # the second call is not even sent
            with pytest.raises(ModelGivenUp) as caught:
                await make().generate("hello")
            assert "sk-canary" not in str(caught.value)
        assert len(asked) == 1
        assert (await get_model("mock/m").generate("hello")).completion


async def test_quota_headers_reach_the_pacer(vendor: SimpleNamespace) -> None:
    headers = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-01-01T00:01:00Z",
        "anthropic-ratelimit-input-tokens-limit": "40000",
        "anthropic-ratelimit-input-tokens-remaining": "39000",
        "anthropic-ratelimit-input-tokens-reset": "2026-01-01T00:00:30Z",
        "date": "Thu, 01 Jan 2026 00:00:00 GMT",
    }
    said = Exchange()
    token = exchange.set(said)
    try:
        api = AnthropicAPI("claude-sonnet-4-5", URL, "k", streaming=False)
        await vendor.ask(lambda: api, vendor.Reply(ANTHROPIC, headers=headers), messages())
    finally:
        exchange.reset(token)
    assert [(one.limit, one.remaining, one.reset_after) for one in said.readings(api)] == [
        (50, 49, 60),
        (40000, 39000, 30),
    ]


def messages() -> list[Any]:
    from proctor.model import ChatMessageUser

    return [ChatMessageUser(content="hello")]


@pytest.mark.parametrize("name", ["anthropic", "google", "bedrock"])
async def test_a_stream_that_stalls_is_given_up_after_the_idle_time(
    vendor: SimpleNamespace, net: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    kinds = {"bedrock": "application/vnd.amazon.eventstream"}

    class Stalled(vendor.Reply):  # type: ignore[misc, name-defined]
        async def send(self, stream: Any) -> None:
            await stream.send(self.head())
            for _ in range(3):
                await stream.send(b"2\r\n\n\n\r\n" if name != "bedrock" else b"1\r\n\x00\r\n")
            await anyio.sleep_forever()

    reply = Stalled(kind=kinds.get(name, "text/event-stream"), chunks=[])
    async with vendor.serving(net, monkeypatch, [reply]), open_runtime():
        source = VENDORS[name][0]()._source
        api = source.make()
        api.stream = True
        if name == "anthropic":
            api = AnthropicAPI("claude-sonnet-4-5", URL, "k", streaming=True)
        began = anyio.current_time()
        with pytest.raises(TransientModelError, match="stream_idle_timeout"):
            await api.generate(messages(), [], "none", GenerateConfig(stream_idle_timeout=7))
        assert anyio.current_time() - began == 7
        await api.aclose()


@pytest.mark.parametrize("name", VENDORS)
async def test_options_without_a_field_are_told_of_once(
    vendor: SimpleNamespace, net: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    make, answer, _, _ = VENDORS[name]
    async with vendor.serving(net, monkeypatch, [vendor.Reply(answer)]) as asked, open_runtime():
        for _ in range(2):
            await make().generate("hello", config=GenerateConfig(best_of=2, logit_bias={1: 2.0}))
    assert caplog.text.count("has no best_of: not sent") == 1
    assert not {"best_of", "logit_bias"} & set(json.loads(asked[0].raw))


@pytest.mark.parametrize(("history", "expected"), [(None, 2), ("all", 2), ("last", 1), ("none", 0)])
@pytest.mark.parametrize("name", ["google", "bedrock"])
async def test_earlier_reasoning_goes_back_as_far_as_is_asked_for(
    vendor: SimpleNamespace, net: Any, monkeypatch: pytest.MonkeyPatch, name: str, history: Any, expected: int
) -> None:
    from proctor.model import ChatMessageAssistant, ContentReasoning, ContentText

    def said(signature: str) -> ChatMessageAssistant:
        reasoning = ContentReasoning(reasoning="because", signature=signature)
        return ChatMessageAssistant(content=[reasoning, ContentText(text="so")])

    make, answer, _, _ = VENDORS[name]
    async with vendor.serving(net, monkeypatch, [vendor.Reply(answer)]) as asked, open_runtime():
        talk = [*messages(), said("s1"), *messages(), said("s2"), *messages()]
        await make().generate(talk, config=GenerateConfig(reasoning_history=history))
    assert asked[0].raw.count(b"because") == expected
