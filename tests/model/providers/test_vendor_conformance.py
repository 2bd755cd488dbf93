"""Anthropic, Google and Bedrock keep to what the engine relies on, by the check that third parties are given."""

from __future__ import annotations

import binascii
import json
import struct
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from proctor.model import get_model
from proctor.model.api import ModelAPI
from proctor.testing import check_provider

URL = "http://vendor.test"
ARGUMENTS = {"x": 1, "y": 2}


def anthropic(*, call: bool, streamed: bool) -> bytes:
    block = (
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": ARGUMENTS}
        if call
        else {"type": "text", "text": "hello"}
    )
    end = "tool_use" if call else "end_turn"
    usage = {"input_tokens": 3, "output_tokens": 2}
    whole = {"type": "message", "id": "m", "model": "x", "content": [block], "stop_reason": end, "usage": usage}
    if not streamed:
        return json.dumps(whole).encode()
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**whole, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": end}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


def google(*, call: bool, streamed: bool) -> bytes:
    part = {"functionCall": {"name": "add", "args": ARGUMENTS}} if call else {"text": "hello"}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    whole = json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode()
    return b"data: %s\n\n" % whole if streamed else whole


def bedrock(*, call: bool, streamed: bool) -> bytes:
    use = {"toolUseId": "t1", "name": "add"}
    usage = {"inputTokens": 3, "outputTokens": 2, "totalTokens": 5}
    end = "tool_use" if call else "end_turn"
    if not streamed:
        block = {"toolUse": {**use, "input": ARGUMENTS}} if call else {"text": "hello"}
        message = {"role": "assistant", "content": [block]}
        return json.dumps({"output": {"message": message}, "stopReason": end, "usage": usage}).encode()
    delta = {"toolUse": {"input": json.dumps(ARGUMENTS)}} if call else {"text": "hello"}
    events: list[tuple[str, dict[str, Any]]] = [
        *([("contentBlockStart", {"start": {"toolUse": use}, "contentBlockIndex": 0})] if call else []),
        ("contentBlockDelta", {"delta": delta, "contentBlockIndex": 0}),
        ("messageStop", {"stopReason": end}),
        ("metadata", {"usage": usage}),
    ]
    return b"".join(frame(*event) for event in events)


def frame(kind: str, payload: dict[str, Any]) -> bytes:
    coded = b""
    for name, value in ((b":message-type", b"event"), (b":event-type", kind.encode())):
        coded += bytes([len(name)]) + name + b"\x07" + struct.pack(">H", len(value)) + value
    body = json.dumps(payload).encode()
    prelude = struct.pack(">II", 16 + len(coded) + len(body), len(coded))
    whole = prelude + struct.pack(">I", binascii.crc32(prelude)) + coded + body
    return whole + struct.pack(">I", binascii.crc32(whole))


KEYS = {"region_name": "eu-west-1", "aws_access_key_id": "AKID", "aws_secret_access_key": "sk-canary"}
VENDORS: dict[str, tuple[str, Any, str, dict[str, Any]]] = {
    "anthropic": ("anthropic/claude-sonnet-4-5", anthropic, "text/event-stream", {"api_key": "sk-canary"}),
    "google": ("google/gemini-2.5-pro", google, "text/event-stream", {"api_key": "sk-canary"}),
    "bedrock": ("bedrock/anthropic.claude-3-haiku-v1:0", bedrock, "application/vnd.amazon.eventstream", KEYS),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", VENDORS)
def test_they_conform(
    vendor: SimpleNamespace, net: Any, monkeypatch: pytest.MonkeyPatch, backend: str, name: str, streamed: bool
) -> None:
    model, body, kind, arguments = VENDORS[name]

    def make() -> ModelAPI:
        return get_model(model, base_url=URL, memoize=False, streaming=streamed, **arguments).api

    def said(*, call: bool = False) -> Any:
        return vendor.Reply(body(call=call, streamed=streamed), kind=kind if streamed else "application/json")

    def refused(status: int, words: str) -> Any:
        return vendor.Reply({"error": {"message": words}, "message": words}, status=status)

    class Silent(vendor.Reply):  # type: ignore[misc, name-defined]
        async def send(self, _: Any) -> None:
            await anyio.sleep_forever()

    def scene(*replies: Any) -> Any:
        return lambda: vendor.serving(net, monkeypatch, list(replies))

    scenes: dict[Any, Any] = {
        "answer": scene(said()),
        "tool": scene(said(call=True), said()),
        "rate_limit": scene(refused(429, "slow down"), said()),
        "server_error": scene(refused(503, "oops"), said()),
        "bad_key": scene(refused(401, "bad key sk-canary")),
        "bad_request": scene(refused(400, "no such option")),
        "stall": scene(Silent()),
    }
    assert len(check_provider(make, scenes, backends=(backend,))) > 8
