"""Vendors in memory, and the types of their own packages to hold requests against.

A `Reply` is what a vendor sends: whole, or in the chunks that it is cut into. `play` serves one to a provider of ours
and gives the requests that came; `replay` gives the same bytes to a vendor's package.
"""

from __future__ import annotations

import collections.abc
import functools
import json
import types
import typing
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
import typing_extensions
from attrs import define, field

from proctor.model import ChatMessageUser, GenerateConfig, http
from proctor.model.api import ModelAPI


@define(kw_only=True)
class Reply:
    """What a vendor answers.

    `chunks`: of the body. `early`: the connection breaks after them. `headers`: beside those of the framing.
    """

    chunks: list[bytes]
    status: int = 200
    headers: dict[str, str] = field(factory=dict)
    early: bool = False

    @property
    def streamed(self) -> bool:
        return "event-stream" in self.headers.get("content-type", "")

    @property
    def body(self) -> bytes:
        return b"".join(self.chunks)


def whole(data: Any, status: int = 200, **headers: str) -> Reply:
    """A JSON answer (or bytes as they are)."""
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(chunks=[body], status=status, headers={"content-type": "application/json", **named})


def events(*data: Any, named: bool = False, done: bool = True, size: int | None = None, early: bool = False) -> Reply:
    """A stream of events, each JSON or text as it is.

    `named`: each with its own ``type`` as the event's name. `size`: cut into chunks of so many bytes.
    """
    lines = []
    for each in data:
        text = each if isinstance(each, str) else json.dumps(each, ensure_ascii=False)
        name = f"event: {each['type']}\n" if named and isinstance(each, dict) else ""
        lines.append(f"{name}data: {text}\n\n")
    if done:
        lines.append("data: [DONE]\n\n")
    reply = Reply(chunks=[line.encode() for line in lines], headers={"content-type": "text/event-stream"}, early=early)
    return cut(reply, size) if size else reply


def cut(reply: Reply, size: int) -> Reply:
    """The same body in other chunks."""
    body = reply.body
    chunks: Iterable[bytes] = (body[i : i + size] for i in range(0, len(body), size))
    return Reply(chunks=list(chunks), status=reply.status, headers=reply.headers, early=reply.early)


@asynccontextmanager
async def serve(net: Any, monkeypatch: pytest.MonkeyPatch, replies: list[Reply]) -> AsyncIterator[list[Any]]:
    """Serve the replies one after another, the last of them for ever; the requests that came, as they come."""
    seen: list[Any] = []
    left = list(replies)

    async def answer(stream: Any) -> None:
        rest = bytearray()
        while True:
            seen.append(await net.read_request(stream, rest))
            reply = left.pop(0) if len(left) > 1 else left[0]
            head = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
            if not reply.streamed:
                await stream.send(net.answer(reply.body, status=f"{reply.status} X", extra=head))
                continue
            await stream.send(f"HTTP/1.1 {reply.status} X\r\ntransfer-encoding: chunked\r\n{head}\r\n".encode())
            for chunk in reply.chunks:
                await stream.send(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
                await anyio.sleep(0.001)
            if reply.early:
                return
            await stream.send(b"0\r\n\r\n")

    async with anyio.create_task_group() as group:
        network = net.FakeNetwork(group, answer)
        monkeypatch.setattr(http, "_connect_in_runtime", network.connect)
        yield seen
        assert network.open == 0, "a connection is left open"
        group.cancel_scope.cancel()


@define
class Played:
    """What came of a call: the requests sent, the output or error, and the call for the log."""

    requests: list[Any]
    output: Any
    call: Any

    @property
    def request(self) -> dict[str, Any]:
        """The body of the first request."""
        return typing.cast("dict[str, Any]", json.loads(self.requests[0][2]))

    @property
    def path(self) -> str:
        return typing.cast("str", self.requests[0][0].split(" ")[1])

    @property
    def headers(self) -> dict[str, str]:
        return typing.cast("dict[str, str]", self.requests[0][1])


async def play(
    net: Any,
    monkeypatch: pytest.MonkeyPatch,
    api: ModelAPI,
    reply: Reply | list[Reply],
    input: Any = None,
    tools: Any = (),
    tool_choice: Any = "auto",
    config: GenerateConfig | None = None,
) -> Played:
    """Make one attempt against the reply, https or not. An error is the output, raised or returned."""
    api.base_url = (api.base_url or "").replace("https://", "http://")
    messages = input if input is not None else [ChatMessageUser(content="hello")]
    async with serve(net, monkeypatch, reply if isinstance(reply, list) else [reply]) as seen:
        try:
            result: Any = await api.generate(messages, list(tools), tool_choice, config or GenerateConfig())
        except Exception as error:
            result = error, None
        await api.aclose()
    output, call = result if isinstance(result, tuple) else (result, None)
    return Played(seen, output, call)


# -- the types of the vendors' packages --------------------------------------------------------------------------------

PLAIN: dict[Any, Any] = {str: str, int: int, float: (int, float), bool: bool, type(None): type(None)}
MANY = (list, collections.abc.Iterable, collections.abc.Sequence)


def problems(value: Any, kind: Any, path: str = "") -> list[str]:
    """What is wrong with a JSON value that should be of a type: keys it does not know, keys missing, other values.

    It walks typed dictionaries, pydantic's models, unions, lists and literals by itself, since the packages' own
    validation lets unknown keys pass and looks at iterables late.
    """
    kind = _bare(kind)
    origin = typing.get_origin(kind)
    if kind in {Any, object}:
        return []
    if origin in {typing.Union, types.UnionType}:
        return _of_union(value, kind, path)
    if origin in {typing.Literal, typing_extensions.Literal}:
        return [] if value in typing.get_args(kind) else [f"{path}: {value!r} is none of {typing.get_args(kind)}"]
    if typing_extensions.is_typeddict(kind):
        return _of_typed_dict(value, kind, path)
    if hasattr(kind, "model_fields"):
        return _of_model(value, kind, path)
    if origin in MANY or kind in MANY:
        return _of_list(value, kind, path)
    if origin in {dict, collections.abc.Mapping} or kind is dict:
        return _of_mapping(value, kind, path)
    if isinstance(value, bool) and kind in {int, float}:
        return [f"{path}: {value!r} is no {kind}"]
    if isinstance(kind, type) and kind not in PLAIN:
        ours = isinstance(value, str) if issubclass(kind, str) else isinstance(value, kind)
        return [] if ours else [f"{path}: {value!r} is no {kind}"]
    return [] if isinstance(value, PLAIN[kind]) else [f"{path}: {value!r} is no {kind}"]


def _bare(kind: Any) -> Any:
    while True:
        origin = typing.get_origin(kind)
        if origin in {typing.Annotated, typing_extensions.Required, typing_extensions.NotRequired}:
            kind = typing.get_args(kind)[0]
        elif isinstance(kind, typing_extensions.TypeAliasType):
            kind = kind.__value__
        elif isinstance(origin, typing_extensions.TypeAliasType):
            kind = origin.__value__[typing.get_args(kind)]
        else:
            return kind


def _of_union(value: Any, kind: Any, path: str) -> list[str]:
    found = [problems(value, arm, path) for arm in typing.get_args(kind)]
    return min(found, key=lambda each: (len(each), sum(map(len, each))))


def _of_typed_dict(value: Any, kind: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is no {kind.__name__}"]
    hints = _hints(kind)
    found = [f"{path}.{name}: {kind.__name__} has no such key" for name in value if name not in hints]
    found += [f"{path}.{name}: {kind.__name__} needs it" for name in _required(kind, hints) - set(value)]
    known = [name for name in value if name in hints]
    return [*found, *(each for name in known for each in problems(value[name], hints[name], f"{path}.{name}"))]


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing_extensions.get_type_hints(kind, include_extras=True)


def _required(kind: Any, hints: dict[str, Any]) -> set[str]:
    """The keys that a typed dictionary must have; of annotations that are texts Python itself does not see it."""
    optional = {name for name, hint in hints.items() if typing.get_origin(hint) is typing_extensions.NotRequired}
    needed = {name for name, hint in hints.items() if typing.get_origin(hint) is typing_extensions.Required}
    return needed | (set(kind.__required_keys__) - optional)


def _of_model(value: Any, kind: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is no {kind.__name__}"]
    fields = {each.alias or name: each for name, each in kind.model_fields.items()}
    needed = {name for name, each in fields.items() if each.is_required()}
    found = [f"{path}.{name}: {kind.__name__} has no such field" for name in value if name not in fields]
    found += [f"{path}.{name}: {kind.__name__} needs it" for name in needed - set(value)]
    known = [name for name in value if name in fields]
    return [
        *found,
        *(each for name in known for each in problems(value[name], fields[name].annotation, f"{path}.{name}")),
    ]


def _of_list(value: Any, kind: Any, path: str) -> list[str]:
    if not isinstance(value, list):
        return [f"{path}: {value!r} is no list"]
    item = (typing.get_args(kind) or (Any,))[0]
    return [each for i, one in enumerate(value) for each in problems(one, item, f"{path}[{i}]")]


def _of_mapping(value: Any, kind: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path}: {value!r} is no mapping"]
    item = (typing.get_args(kind) or (Any, Any))[1]
    return [each for name, one in value.items() for each in problems(one, item, f"{path}.{name}")]


# -- the same bytes to a vendor's package ------------------------------------------------------------------------------


def replay(reply: Reply) -> Any:
    """A client of httpx2, which the packages of OpenAI and Mistral use, that is answered with the reply."""
    import httpx2

    class Body(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield from reply.chunks
            if reply.early:
                raise httpx2.RemoteProtocolError("the connection broke")

    def answer(request: Any) -> Any:
        return httpx2.Response(reply.status, headers=reply.headers, stream=Body())

    return httpx2.Client(transport=httpx2.MockTransport(answer))


@pytest.fixture
def wire(net: Any, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The names above, for tests (which cannot import this file)."""

    async def bound(api: ModelAPI, reply: Any, *args: Any, **more: Any) -> Played:
        return await play(net, monkeypatch, api, reply, *args, **more)

    @asynccontextmanager
    async def served(*replies: Reply) -> AsyncIterator[list[Any]]:
        async with serve(net, monkeypatch, list(replies)) as seen:
            yield seen

    return SimpleNamespace(
        Reply=Reply, whole=whole, events=events, cut=cut, play=bound, serve=served, problems=problems, replay=replay
    )
