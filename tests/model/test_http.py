"""The HTTP client: what goes over the wire, what its errors say, which proxy and certificates it takes."""

from __future__ import annotations

import errno
import gzip
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import ModelError, TransientModelError, UsageError
from proctor.model.failures import Unreachable
from proctor.model.http import HttpClient, open_client, proxy_for, public_url, ssl_context

URL = "http://model.test:8000/v1"


@asynccontextmanager
async def client_of(net: Any, serve: Any, url: str = URL, **options: Any) -> AsyncIterator[tuple[HttpClient, Any]]:
    async with anyio.create_task_group() as group:
        network = net.FakeNetwork(group, serve)
        client = open_client(url, headers={"Authorization": "Bearer canary"}, connect=network.connect, **options)
        yield client, network
        await client.aclose()
        assert network.open == 0
        group.cancel_scope.cancel()


async def test_headers_are_complete_and_the_calls_own_go_first(net: Any) -> None:
    seen: list[Any] = []

    async def serve(stream: Any) -> None:
        rest = bytearray()
        while True:
            seen.append(await net.read_request(stream, rest))
            await stream.send(net.answer(b"{}", extra="x-request-id: r1\r\n"))

    async with client_of(net, serve) as (client, _):
        response = await client.post("/chat", b'{"a":1}')
        await client.post("/chat", b"", headers={"authorization": "Other", "X-More": "1"})
    assert (response.status, response.body, response.headers["X-Request-Id"]) == (200, b"{}", "r1")
    line, headers, body = seen[0]
    assert (line, body) == ("POST /v1/chat HTTP/1.1", b'{"a":1}')
    assert headers["host"] == "model.test:8000"
    assert headers["authorization"] == "Bearer canary"
    assert headers["content-type"] == headers["accept"] == "application/json"
    assert headers["content-length"] == "7"
    assert seen[1][1]["authorization"] == "Other"
    assert seen[1][1]["x-more"] == "1"


async def test_no_cookie_is_kept_and_a_packed_body_is_unpacked(net: Any) -> None:
    seen: list[Any] = []
    packed = gzip.compress(b'{"a":1}')

    async def serve(stream: Any) -> None:
        rest = bytearray()
        while True:
            seen.append((await net.read_request(stream, rest))[1])
            await stream.send(net.answer(packed, extra="set-cookie: a=b\r\ncontent-encoding: gzip\r\n"))

    async with client_of(net, serve) as (client, _):
        for _i in range(2):
            assert (await client.post("/x", b"")).body == b'{"a":1}'
    assert "cookie" not in seen[1]


async def test_every_status_comes_back_whole_and_its_connection_is_free(net: Any) -> None:
    async def serve(stream: Any) -> None:
        rest = bytearray()
        for status in (200, 400, 429, 500, 503):
            await net.read_request(stream, rest)
            await stream.send(net.answer(b"%d" % status, status=f"{status} X"))
        await anyio.sleep_forever()

    async with client_of(net, serve) as (client, network):
        for status in (200, 400, 429, 500, 503):
            response = await client.post("/x", b"")
            assert (response.status, response.body) == (status, b"%d" % status)
        assert len(network.clients) == 1


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), ["refused", "Is the server running?", "base URL"]),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), ["host model.test", "no address"]),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), ["Network is unreachable"]),
    ],
)
async def test_a_connection_that_fails_says_where_and_what_to_do(net: Any, error: OSError, words: list[str]) -> None:
    async with client_of(net, net.echo) as (client, network):
        network.refuse = [error]
        with pytest.raises(Unreachable) as caught:
            await client.post("/x", b"")
    assert URL in str(caught.value)
    for word in words:
        assert word in str(caught.value)


async def test_too_many_open_files_is_named_as_such(net: Any) -> None:
    async with client_of(net, net.echo) as (client, network):
        network.refuse = [OSError(errno.EMFILE, "Too many open files")]
        with pytest.raises(TransientModelError, match=r"ulimit -n.*max_connections") as caught:
            await client.post("/x", b"")
        assert not isinstance(caught.value, Unreachable)


async def test_a_broken_answer_is_transient_and_shows_no_key(net: Any) -> None:
    async def breaks(stream: Any) -> None:
        await net.read_request(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc")

    async with client_of(net, breaks, url="http://user:canary@model.test/v1", secrets=["canary"]) as (client, _):
        with pytest.raises(TransientModelError) as caught:
            await client.post("/x", b"")
    assert "canary" not in str(caught.value)
    assert "http://model.test/v1" in str(caught.value)


async def test_a_redirect_is_followed_with_its_body_and_a_ring_of_them_is_final(net: Any) -> None:
    seen: list[Any] = []

    async def serve(stream: Any) -> None:
        rest = bytearray()
        while True:
            line, _, body = await net.read_request(stream, rest)
            seen.append((line, body))
            if line.startswith("POST /v1/old"):
                await stream.send(net.answer(b"", status="307 Temporary Redirect", extra="location: /v1/new\r\n"))
            elif line.startswith("POST /v1/ring"):
                await stream.send(net.answer(b"", status="308 Permanent Redirect", extra="location: /v1/ring\r\n"))
            else:
                await stream.send(net.answer(body))

    async with client_of(net, serve) as (client, _):
        assert (await client.post("/old", b"question")).body == b"question"
        assert seen[1] == ("POST /v1/new HTTP/1.1", b"question")
        with pytest.raises(ModelError) as caught:
            await client.post("/ring", b"")
        assert type(caught.value) is ModelError


@pytest.mark.parametrize("url", ["", "model.test/v1", "ftp://model.test", "http://", "https:///v1"])
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match=r"http://"):
        open_client(url, headers={})


def test_a_shown_url_has_no_user_and_no_query() -> None:
    assert public_url("https://me:secret@host:8/v1?key=secret") == "https://host:8/v1"


def environment(**values: str) -> Any:
    return values.get


@pytest.mark.parametrize(
    ("url", "values", "proxy"),
    [
        ("https://a.test/v1", {}, None),
        ("https://a.test/v1", {"HTTPS_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.test/v1", {"https_proxy": "p:1"}, "http://p:1"),
        ("https://a.test/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://a.test/v1", {"HTTP_PROXY": "http://p:1"}, "http://p:1"),
        ("http://a.test/v1", {"ALL_PROXY": "http://p:1"}, "http://p:1"),
        ("https://a.test/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "*"}, None),
        ("https://a.test/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "b.test, a.test"}, None),
        ("https://x.a.test/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".a.test"}, None),
        ("https://x.a.test/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.test"}, None),
        ("https://xa.test/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.test"}, "http://p:1"),
        ("https://a.test:8443/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.test:8443"}, None),
        ("https://a.test/v1", {"HTTPS_PROXY": "http://p:1", "NO_PROXY": "a.test:8443"}, "http://p:1"),
        ("http://10.1.2.3/v1", {"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://11.1.2.3/v1", {"HTTP_PROXY": "http://p:1", "NO_PROXY": "10.0.0.0/8"}, "http://p:1"),
        ("http://127.0.0.1:8123/v1", {"HTTP_PROXY": "http://p:1"}, None),
        ("http://localhost:8123/v1", {"ALL_PROXY": "http://p:1"}, None),
        ("http://[::1]:8123/v1", {"ALL_PROXY": "http://p:1"}, None),
    ],
)
def test_the_proxy_is_the_one_that_the_environment_names(url: str, values: dict[str, str], proxy: str | None) -> None:
    assert proxy_for(url, environment(**values)) == proxy


async def test_where_a_proxy_is_named_httpx_serves_itself() -> None:
    client = open_client("https://a.test/v1", headers={}, environ=environment(HTTPS_PROXY="http://127.0.0.1:9"))
    assert client.transport is None
    await client.aclose()
    client = open_client("https://a.test/v1", headers={}, environ=environment())
    assert client.transport is not None
    await client.aclose()


def test_certificates_come_from_the_environment(tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    file = tmp_path / "authority.pem"
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(file))
    assert len(ssl_context(environment(SSL_CERT_FILE=str(file))).get_ca_certs()) == 1
    assert len(ssl_context(environment()).get_ca_certs()) > 20
    assert ssl_context(environment(SSL_CERT_DIR=str(tmp_path))).verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(UsageError, match="SSL_CERT_FILE=/nowhere"):
        ssl_context(environment(SSL_CERT_FILE="/nowhere"))


# -- streams -----------------------------------------------------------------------------------------------------------


def chunked(*parts: bytes, head: str = "") -> list[bytes]:
    """A response in chunks, each sent by itself."""
    first = f"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{head}\r\n".encode()
    return [first, *(b"%x\r\n%s\r\n" % (len(part), part) for part in parts), b"0\r\n\r\n"]


def playing(net: Any, parts: list[bytes], *, pause: float = 0.0, seen: list[Any] | None = None) -> Any:
    """A server that sends the parts for every request."""

    async def serve(stream: Any) -> None:
        rest = bytearray()
        while True:
            request = await net.read_request(stream, rest)
            if seen is not None:
                seen.append(request)
            for part in parts:
                await stream.send(part)
                await anyio.sleep(pause)

    return serve


@pytest.mark.parametrize("pause", [0.0, 0.5])
async def test_a_streams_parts_come_as_they_are_sent_and_its_connection_is_used_again(net: Any, pause: float) -> None:
    seen: list[Any] = []
    async with client_of(net, playing(net, chunked(b"one", b"two"), pause=pause, seen=seen)) as (client, network):
        for _i in range(3):
            async with client.stream("/s", b"{}", headers={"X-More": "1"}) as stream:
                assert stream.status == 200
                assert b"".join([part async for part in stream]) == b"onetwo"
        assert len(network.clients) == 1
    assert seen[0][1]["accept"] == "text/event-stream"
    assert seen[0][1]["accept-encoding"] == "identity"
    assert seen[0][1]["x-more"] == "1"


async def test_a_stream_that_is_left_early_closes_its_connection(net: Any) -> None:
    async with client_of(net, playing(net, chunked(b"one", b"two"), pause=1.0)) as (client, network):
        async with client.stream("/s", b"{}") as stream:
            assert await anext(stream) == b"one"
        assert network.open == 0
        with pytest.raises(ValueError, match="mine"):
            async with client.stream("/s", b"{}") as stream:
                raise ValueError("mine")
        assert network.open == 0
        with anyio.move_on_after(0.5) as scope:
            async with client.stream("/s", b"{}") as stream:
                await stream.read()
        assert scope.cancelled_caught
        assert network.open == 0


async def test_a_finished_stream_whose_server_lingers_is_not_waited_for(net: Any) -> None:
    parts = chunked(b"one")[:-1]
    async with client_of(net, playing(net, parts, pause=0.0)) as (client, network):
        began = anyio.current_time()
        async with client.stream("/s", b"{}") as stream:
            assert await anext(stream) == b"one"
            await stream.finish()
        assert anyio.current_time() - began < 1
        assert network.open == 0


async def test_a_packed_stream_is_unpacked_all_the_same(net: Any) -> None:
    packed = gzip.compress(b"hello")
    parts = chunked(packed[:5], packed[5:], head="content-encoding: gzip\r\n")
    async with client_of(net, playing(net, parts)) as (client, _), client.stream("/s", b"{}") as stream:
        assert await stream.read() == b"hello"


async def test_an_idle_stream_and_a_broken_one_are_transient(net: Any) -> None:
    slow = playing(net, chunked(b"one", b"two"), pause=5.0)
    async with client_of(net, slow) as (client, _), client.stream("/s", b"{}", idle=2.0) as stream:
        with pytest.raises(TransientModelError, match="2 s"):
            await stream.read()

    async def broken(stream: Any) -> None:
        await net.read_request(stream)
        for part in chunked(b"one", b"two")[:2]:
            await stream.send(part)

    async with client_of(net, broken) as (client, _), client.stream("/s", b"{}") as stream:
        with pytest.raises(TransientModelError):
            await stream.read()


async def test_a_stream_without_a_connection_says_what_to_do(net: Any) -> None:
    async with client_of(net, playing(net, [])) as (client, network):
        network.refuse.append(ConnectionRefusedError(errno.ECONNREFUSED, "refused"))
        with pytest.raises(Unreachable, match="Is the server running"):
            async with client.stream("/s", b"{}"):
                pass
