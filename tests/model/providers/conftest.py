"""A vendor's server in memory, for tests of providers: it gives ready replies and keeps what it was asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from proctor.model import http

VARIABLES = (
    "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "GOOGLE_API_KEY", "GEMINI_API_KEY", "GOOGLE_BASE_URL",
    "GOOGLE_GEMINI_BASE_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION",
    "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK", "BEDROCK_BASE_URL",
    "AWS_ENDPOINT_URL_BEDROCK_RUNTIME",
)  # fmt: skip


class Reply:
    """What the server answers: a body whole, or `chunks` one by one. `cut`: it closes before the end."""

    def __init__(
        self,
        body: Any = b"",
        *,
        status: int = 200,
        kind: str = "application/json",
        headers: dict[str, str] | None = None,
        chunks: list[bytes] | None = None,
        cut: bool = False,
    ) -> None:
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.status, self.kind, self.headers = status, kind, headers or {}
        self.chunks, self.cut = chunks, cut

    def head(self) -> bytes:
        length = f"content-length: {len(self.body)}" if self.chunks is None else "transfer-encoding: chunked"
        lines = [f"HTTP/1.1 {self.status} X", f"content-type: {self.kind}", length]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()

    async def send(self, stream: Any) -> None:
        await stream.send(self.head())
        if self.chunks is None:
            await stream.send(self.body)
            return
        for chunk in self.chunks:
            if chunk:
                await stream.send(b"%x\r\n%s\r\n" % (len(chunk), chunk))
                await anyio.lowlevel.checkpoint()
        if not self.cut:
            await stream.send(b"0\r\n\r\n")


class Asked(SimpleNamespace):
    """A request: `line`, `headers` (names in lower case), `raw` and, decoded, `body`."""


@asynccontextmanager
async def serving(net: Any, monkeypatch: pytest.MonkeyPatch, replies: list[Reply]) -> AsyncIterator[list[Asked]]:
    asked: list[Asked] = []

    async def serve(stream: Any) -> None:
        rest = bytearray()
        while True:
            line, headers, body = await net.read_request(stream, rest)
            asked.append(Asked(line=line, headers=headers, raw=body, body=json.loads(body)))
            reply = replies[min(len(asked), len(replies)) - 1]
            await reply.send(stream)
            if reply.cut:
                return

    async with anyio.create_task_group() as group:
        network = net.FakeNetwork(group, serve)
        monkeypatch.setattr(http, "_connect_in_runtime", network.connect)
        yield asked
        assert network.open == 0
        group.cancel_scope.cancel()


@pytest.fixture
def vendor(net: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`await vendor.ask(make_api, replies, input, …)`: the requests, and what one attempt gave or raised."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)

    async def ask(
        make: Callable[[], Any],
        replies: Reply | list[Reply],
        input: list[Any],
        tools: list[Any] | None = None,
        tool_choice: Any = "auto",
        config: Any = None,
    ) -> tuple[list[Asked], Any, Any]:
        from proctor.model import GenerateConfig

        async with serving(net, monkeypatch, replies if isinstance(replies, list) else [replies]) as asked:
            api = make()
            try:
                found = await api.generate(input, tools or [], tool_choice, config or GenerateConfig())
            except Exception as error:
                found = error
            finally:
                await api.aclose()
        output, call = found if isinstance(found, tuple) else (found, None)
        return asked, output, call

    return SimpleNamespace(ask=ask, Reply=Reply, serving=serving)
