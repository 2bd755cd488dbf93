"""Our own providers keep to what the engine relies on, by the check that third parties are given."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from proctor.model import get_model, http
from proctor.model.api import ModelAPI
from proctor.testing import check_provider

URL = "http://vendor.test/v1"
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
KINDS = {
    "openai/gpt-4o": {},
    "openai/gpt-5": {},
    "openai-api/service/m": {},
    "mistral/m": {},
    "grok/grok-4": {},
    "groq/m": {},
    "openrouter/x/m": {},
    "deepseek/m": {},
    "azureai/m": {},
}  # fmt: skip


def chat(*calls: dict[str, Any], stream: bool = False) -> list[dict[str, Any]]:
    message = {
        "role": "assistant",
        "content": "" if calls else "hello",
        **({"tool_calls": list(calls)} if calls else {}),
    }
    end = "tool_calls" if calls else "stop"
    choice = {"index": 0, "finish_reason": end, "delta" if stream else "message": message}
    return [{"id": "c1", "model": "m", "choices": [choice], "usage": USAGE}]


def response(*calls: dict[str, Any], stream: bool = False) -> list[dict[str, Any]]:
    said = {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": "hello"}]}
    items = [
        {"type": "function_call", "call_id": call["id"], **{k: call["function"][k] for k in ("name", "arguments")}}
        for call in calls
    ]
    whole = {
        "id": "r1", "model": "m", "status": "completed", "output": items or [said],
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5},
    }  # fmt: skip
    return [{"type": "response.completed", "response": whole}] if stream else [whole]


CALL = {"id": "abcdefgh1", "type": "function", "function": {"name": "add", "arguments": '{"x": 1, "y": 2}'}}


class Vendor:
    """Plays the scenes for a protocol."""

    def __init__(self, net: Any, monkeypatch: pytest.MonkeyPatch, *, responses: bool, stream: bool) -> None:
        self.net, self.monkeypatch = net, monkeypatch
        self.made, self.stream = (response if responses else chat), stream

    def answer(self, *calls: dict[str, Any]) -> bytes:
        parts = self.made(*calls, stream=self.stream)
        if not self.stream:
            return self.reply(parts[0])
        body = "".join(f"data: {json.dumps(part)}\n\n" for part in parts).encode() + b"data: [DONE]\n\n"
        return self.net.answer(body, extra="content-type: text/event-stream\r\n")  # type: ignore[no-any-return]

    def reply(self, data: Any, status: int = 200) -> bytes:
        kind = "content-type: application/json\r\n"
        return self.net.answer(json.dumps(data).encode(), status=f"{status} X", extra=kind)  # type: ignore[no-any-return]

    def refusal(self, status: int, message: str) -> bytes:
        return self.reply({"error": {"message": message}, "message": message}, status)

    def scene(self, *first: bytes, then: bytes | None) -> Callable[[], Any]:
        """Answers in their order, `then` from there on; None: nothing more is said."""

        @asynccontextmanager
        async def play() -> AsyncIterator[None]:
            left = list(first)

            async def serve(stream: Any) -> None:
                rest = bytearray()
                while True:
                    await self.net.read_request(stream, rest)
                    answer = left.pop(0) if left else then
                    if answer is None:
                        await anyio.sleep_forever()
                    await stream.send(answer)

            async with anyio.create_task_group() as group:
                network = self.net.FakeNetwork(group, serve)
                self.monkeypatch.setattr(http, "_connect_in_runtime", network.connect)
                yield
                assert network.open == 0, "a connection is left open"
                group.cancel_scope.cancel()

        return play

    def scenes(self) -> dict[Any, Any]:
        answer = self.answer()
        return {
            "answer": self.scene(then=answer),
            "tool": self.scene(self.answer(CALL), then=answer),
            "rate_limit": self.scene(self.refusal(429, "slow down"), then=answer),
            "server_error": self.scene(self.refusal(503, "oops"), then=answer),
            "bad_key": self.scene(then=self.refusal(401, "bad key sk-canary")),
            "bad_request": self.scene(then=self.refusal(400, "no such option")),
            "stall": self.scene(then=None),
        }


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", KINDS)
def test_providers_of_openais_family_conform(
    net: Any, monkeypatch: pytest.MonkeyPatch, name: str, stream: bool
) -> None:
    def make() -> ModelAPI:
        return get_model(name, base_url=URL, api_key="sk-canary", memoize=False, stream=stream).api

    responses = getattr(make(), "responses_api", False)
    vendor = Vendor(net, monkeypatch, responses=responses, stream=stream)
    done = check_provider(make, vendor.scenes(), backends=("asyncio", "trio"))
    assert len(done) > 20


@pytest.mark.parametrize("name", ["mock/any", "mockllm/model"])
def test_providers_without_a_vendor_conform(name: str) -> None:
    assert check_provider(lambda: get_model(name, memoize=False).api)
