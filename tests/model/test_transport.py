"""The HTTP transport in virtual time, against servers that split, delay, truncate, close and lie."""

from __future__ import annotations

import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import pytest
from anyio.streams.tls import TLSStream

from proctor.model import transport as transport_module
from proctor.model.transport import Transport

URL = "http://model.test/v1/x"


@asynccontextmanager
async def serving(
    net: Any, serve: Callable[[Any], Awaitable[None]], *, transport: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[httpx.AsyncClient, Any, Transport]]:
    """A client whose connections end in `serve`; nothing is open when the block is left."""
    async with anyio.create_task_group() as group:
        network = net.FakeNetwork(group, serve, **options)
        own = Transport(connect=network.connect, **(transport or {}))
        async with httpx.AsyncClient(transport=own, timeout=None, trust_env=False) as client:
            yield client, network, own
        assert own.statistics().open == 0
        assert network.open == 0
        group.cancel_scope.cancel()


def scripted(net: Any, *responses: bytes, close: bool = False) -> Callable[[Any], Awaitable[None]]:
    """A server that sends these bytes for one request after another, then closes or waits."""

    async def serve(stream: Any) -> None:
        rest = bytearray()
        for response in responses:
            await net.read_request(stream, rest)
            await stream.send(response)
        if close:
            return
        await anyio.sleep_forever()

    return serve


async def test_a_request_goes_out_whole_and_its_answer_comes_back(net: Any) -> None:
    seen = []

    async def serve(stream: Any) -> None:
        seen.append(await net.read_request(stream))
        await stream.send(net.answer(b"hello", extra="x-thing: a\r\nx-thing: b\r\n"))

    async with serving(net, serve) as (client, _, _):
        response = await client.post(URL, content=b"question", headers={"x-mine": "1"})
    assert response.status_code == 200
    assert response.content == b"hello"
    assert response.headers.get_list("x-thing") == ["a", "b"]
    line, headers, body = seen[0]
    assert line == "POST /v1/x HTTP/1.1"
    assert headers["host"] == "model.test"
    assert headers["x-mine"] == "1"
    assert body == b"question"


async def test_a_connection_is_reused_and_the_one_used_last_comes_first(net: Any) -> None:
    async with serving(net, net.echo) as (client, network, own):

        async def call(text: bytes) -> None:
            assert (await client.post(URL, content=text)).content == text

        async with anyio.create_task_group() as group:
            for i in range(3):
                group.start_soon(call, b"%d" % i)
        assert own.statistics().opened == own.statistics().idle == 3
        before = [len(server.incoming.data) for server in network.servers]
        last = own._idle[next(iter(own._idle))][-1]
        for i in range(5):
            await call(b"again %d" % i)
        assert own.statistics().opened == 3
        assert own._idle[next(iter(own._idle))][-1] is last
        assert before == [0, 0, 0]


async def test_every_split_of_an_answer_gives_the_same_answer(net: Any) -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n"
    for whole in (net.answer(b"abcdefg"), chunked, b"HTTP/1.1 100 Continue\r\n\r\n" + net.answer(b"abcdefg")):
        parts: list[bytes] = []

        async def serve(stream: Any) -> None:
            rest = bytearray()
            while True:
                await net.read_request(stream, rest)
                for part in parts:  # noqa: B023
                    await stream.send(part)
                    await anyio.sleep(0.01)

        async with serving(net, serve) as (client, _, own):
            for at in range(1, len(whole)):
                parts[:] = [whole[:at], whole[at:]]
                response = await client.post(URL, content=b"q")
                assert (response.status_code, response.content) == (200, b"abcdefg"), parts
            assert own.statistics().opened == 1


@pytest.mark.parametrize("whole", [True, False])
async def test_a_body_that_comes_slowly_is_read_to_its_end(net: Any, whole: bool) -> None:
    async def serve(stream: Any) -> None:
        rest = bytearray()
        while True:
            await net.read_request(stream, rest)
            await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nab")
            for part in (b"cd", b"ef"):
                await anyio.sleep(5)
                await stream.send(part)

    async with serving(net, serve) as (client, _, own):
        for _ in range(2):
            request = client.build_request("POST", URL, content=b"", extensions={"whole": whole})
            assert (await client.send(request)).content == b"abcdef"
        assert own.statistics().opened == 1


async def test_answers_without_a_body_leave_the_connection_usable(net: Any) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n"
    none = b"HTTP/1.1 204 No Content\r\n\r\n"
    async with serving(net, scripted(net, head, none, net.answer(b"third"))) as (client, _, own):
        assert (await client.head(URL)).content == b""
        assert (await client.get(URL)).status_code == 204
        assert (await client.get(URL)).content == b"third"
        assert own.statistics().opened == 1


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\n\r\nok",
    ],
)
async def test_a_connection_that_is_to_be_closed_is_not_kept(net: Any, response: bytes) -> None:
    async with serving(net, scripted(net, response, close=True)) as (client, network, own):
        for _ in range(2):
            assert (await client.get(URL)).content == b"ok"
            assert own.statistics().open == network.open == 0
        assert own.statistics().opened == 2


async def test_an_idle_connection_that_was_closed_is_replaced_before_anything_is_sent(net: Any) -> None:
    requests = []

    async def serve(stream: Any) -> None:
        requests.append(await net.read_request(stream))
        await stream.send(net.answer())
        await anyio.sleep(10)

    async with serving(net, serve) as (client, network, own):
        await client.post(URL, content=b"1")
        await anyio.sleep(11)
        await client.post(URL, content=b"2")
        assert [body for _, _, body in requests] == [b"1", b"2"]
        assert own.statistics().opened == 2
        assert network.open == 1


async def test_bytes_that_nobody_asked_for_are_never_taken_for_an_answer(net: Any) -> None:
    async def serve(stream: Any) -> None:
        rest = bytearray()
        while True:
            _, _, body = await net.read_request(stream, rest)
            await stream.send(net.answer(body))
            if body == b"late":
                await anyio.sleep(1)
            if body in {b"at once", b"late"}:
                await stream.send(net.answer(b"WRONG"))

    async with serving(net, serve) as (client, _, own):
        for text in (b"at once", b"plain", b"late"):
            assert (await client.post(URL, content=text)).content == text
        await anyio.sleep(2)
        assert (await client.post(URL, content=b"after")).content == b"after"
        assert own.statistics().opened == 3


async def test_a_request_whose_connection_dies_is_not_sent_again(net: Any) -> None:
    requests = []

    async def serve(stream: Any) -> None:
        rest = bytearray()
        requests.append(await net.read_request(stream, rest))
        await stream.send(net.answer())
        requests.append(await net.read_request(stream, rest))

    async with serving(net, serve) as (client, network, _):
        await client.post(URL, content=b"1")
        with pytest.raises(httpx.RemoteProtocolError, match="without an answer"):
            await client.post(URL, content=b"2")
        assert len(requests) == 2
        assert network.open == 0


LIES = {
    "a truncated body": b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc",
    "a truncated chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
    "no last chunk": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n",
    "a truncated head": b"HTTP/1.1 200 OK\r\ncontent-le",
    "no status line": b"hello there\r\n\r\n",
    "a bad chunk size": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nab\r\n0\r\n\r\n",
    "a bad length": b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\nab",
    "two lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nabc",
    "another protocol": b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 200_000,
    "binary": bytes(range(256)) * 10,
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("whole", [True, False])
async def test_a_server_that_breaks_the_protocol_is_an_error_and_costs_its_connection(
    net: Any, lie: str, whole: bool
) -> None:
    async with serving(net, scripted(net, LIES[lie], close=True)) as (client, network, own):
        request = client.build_request("POST", URL, content=b"q", extensions={"whole": whole})
        with pytest.raises(httpx.TransportError):
            await client.send(request)
        assert own.statistics().open == network.open == 0


async def test_a_truncated_good_answer_is_an_error_at_every_byte(net: Any) -> None:
    whole = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    for at in range(len(whole)):
        async with serving(net, scripted(net, whole[:at], close=True)) as (client, network, _):
            with pytest.raises(httpx.TransportError):
                await client.post(URL, content=b"q")
            assert network.open == 0


async def test_a_flood_is_cut(net: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_BODY", 1_000_000)

    async def serve(stream: Any) -> None:
        await net.read_request(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await stream.send(b"x" * 65536)
            await anyio.sleep(0.001)

    async with serving(net, serve) as (client, _, _):
        request = client.build_request("POST", URL, content=b"q", extensions={"whole": True})
        with pytest.raises(httpx.RemoteProtocolError, match="larger than"):
            await client.send(request)


async def test_times_run_out_in_the_phase_they_are_for(net: Any) -> None:
    async def silent(stream: Any) -> None:
        await anyio.sleep_forever()

    timeout = httpx.Timeout(None, connect=3, read=5, write=7)
    async with serving(net, silent, delay=4) as (client, _, _):
        with pytest.raises(httpx.ConnectTimeout):
            await client.post(URL, content=b"q", timeout=timeout)
        assert anyio.current_time() == 3
    async with serving(net, silent) as (client, _, _):
        start = anyio.current_time()
        with pytest.raises(httpx.ReadTimeout):
            await client.post(URL, content=b"q", timeout=timeout)
        assert anyio.current_time() - start == 5
    for size in (1000, 1_000_000):
        async with serving(net, silent, capacity=100) as (client, _, _):
            start = anyio.current_time()
            with pytest.raises(httpx.WriteTimeout):
                await client.post(URL, content=b"q" * size, timeout=timeout)
            assert anyio.current_time() - start == 7


async def test_the_read_limit_is_for_each_silence_and_not_for_the_whole_answer(net: Any) -> None:
    async def serve(stream: Any) -> None:
        await net.read_request(stream)
        await anyio.sleep(4)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n")
        for _ in range(3):
            await anyio.sleep(4)
            await stream.send(b"x")

    async with serving(net, serve) as (client, _, _):
        request = client.build_request(
            "POST", URL, content=b"q", extensions={"whole": True, "timeout": {"read": 5.0, "connect": None}}
        )
        assert (await client.send(request)).content == b"xxx"
        assert anyio.current_time() == 16


async def test_a_large_request_may_be_refused_before_it_is_sent(net: Any) -> None:
    async def serve(stream: Any) -> None:
        await stream.receive()
        await stream.send(net.answer(b"too large", status="413 Payload Too Large"))
        await anyio.sleep_forever()

    async with serving(net, serve, capacity=10_000) as (client, network, own):
        response = await client.post(URL, content=b"q" * 1_000_000)
        assert (response.status_code, response.content) == (413, b"too large")
        assert own.statistics().open == network.open == 0


async def test_a_large_request_that_breaks_says_what_the_server_said(net: Any) -> None:
    async def refuses(stream: Any) -> None:
        await stream.receive()
        await stream.send(net.answer(b"no", status="429 Too Many Requests"))

    async def dies(stream: Any) -> None:
        await stream.receive()

    async with serving(net, refuses, capacity=10_000) as (client, _, _):
        assert (await client.post(URL, content=b"q" * 1_000_000)).status_code == 429
    async with serving(net, dies, capacity=10_000) as (client, _, _):
        with pytest.raises(httpx.TransportError):
            await client.post(URL, content=b"q" * 1_000_000)


async def test_large_requests_keep_their_connection(net: Any) -> None:
    async with serving(net, net.echo, capacity=10_000) as (client, _, own):
        for i in range(3):
            text = b"%d" % i * 300_000
            assert (await client.post(URL, content=text)).content == text
        assert own.statistics().opened == 1


async def test_a_stream_is_read_as_it_comes_and_closing_it_early_closes_the_connection(net: Any) -> None:
    async def serve(stream: Any) -> None:
        rest = bytearray()
        while True:
            await net.read_request(stream, rest)
            await stream.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
            for i in range(3):
                await anyio.sleep(1)
                await stream.send(b"2\r\nc%d\r\n" % i)
            await stream.send(b"0\r\n\r\n")

    async with serving(net, serve) as (_, network, own):
        response = await own.handle_async_request(httpx.Request("GET", URL))
        times = [(anyio.current_time(), part) async for part in response.stream]  # type: ignore[union-attr]
        assert times == [(1, b"c0"), (2, b"c1"), (3, b"c2")]
        assert own.statistics().idle == 1
        response = await own.handle_async_request(httpx.Request("GET", URL))
        async for _part in response.stream:  # type: ignore[union-attr]
            break
        await response.aclose()
        assert own.statistics().open == network.open == 0
        assert own.statistics().opened == 1


async def test_a_stream_that_stalls_is_given_up(net: Any) -> None:
    async def serve(stream: Any) -> None:
        await net.read_request(stream)
        await stream.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(3):
            await anyio.sleep(4)
            await stream.send(b"2\r\nab\r\n")
        await anyio.sleep_forever()

    async with serving(net, serve) as (client, network, _):
        got = []
        with pytest.raises(httpx.ReadTimeout, match="for 5"):
            async with client.stream("POST", URL, timeout=httpx.Timeout(None, read=5)) as response:
                async for part in response.aiter_raw():
                    got.append(part)
        assert got == [b"ab"] * 3
        assert anyio.current_time() == 17
        assert network.open == 0


@pytest.mark.parametrize("at", [0.5, 1.5, 2.5, 3.5, 4.5])
async def test_a_cancelled_request_closes_its_connection_wherever_it_was(net: Any, at: float) -> None:
    async def serve(stream: Any) -> None:
        await anyio.sleep(1)
        await net.read_request(stream)
        await anyio.sleep(1)
        await stream.send(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nab")
        await anyio.sleep(1)
        await stream.send(b"cd")
        await anyio.sleep_forever()

    async with serving(net, serve, delay=1, capacity=50) as (client, network, own):
        with anyio.move_on_after(at) as scope:
            request = client.build_request("POST", URL, content=b"q" * 100, extensions={"whole": True})
            await client.send(request)
        assert scope.cancelled_caught is (at < 4)
        assert own.statistics().open == network.open == own.statistics().idle == (0 if at < 4 else 1)


async def test_idle_connections_are_dropped_after_a_while(net: Any) -> None:
    async with serving(net, net.echo, transport={"keepalive": 20.0}) as (client, network, _):
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(client.get, URL)
        assert network.open == 5
        await anyio.sleep(15)
        await client.get(URL)
        assert network.open == 5
        await anyio.sleep(15)
        await client.get(URL)
        assert network.open == 1


async def test_a_closed_transport_closes_what_comes_back_later(net: Any) -> None:
    async def serve(stream: Any) -> None:
        await net.read_request(stream)
        await anyio.sleep(5)
        await stream.send(net.answer())
        await anyio.sleep_forever()

    async with anyio.create_task_group() as group:
        network = net.FakeNetwork(group, serve)
        own = Transport(connect=network.connect)
        response: list[httpx.Response] = []

        async def call() -> None:
            response.append(await own.handle_async_request(httpx.Request("GET", URL)))

        async with anyio.create_task_group() as calls:
            calls.start_soon(call)
            await anyio.sleep(1)
            await own.aclose()
        assert response[0].status_code == 200
        assert own.statistics().open == network.open == 0
        with pytest.raises(RuntimeError, match="closed"):
            await own.handle_async_request(httpx.Request("GET", URL))
        group.cancel_scope.cancel()


async def test_random_cancellation_leaks_nothing_and_mixes_nothing(net: Any) -> None:
    chance = random.Random(7)

    async def serve(stream: Any) -> None:
        rest = bytearray()
        while True:
            _, _, body = await net.read_request(stream, rest)
            await anyio.sleep(chance.choice([0, 0.01, 0.5]))
            await stream.send(net.answer(body)[: chance.choice([5, 50, 1000])])
            await anyio.sleep(chance.choice([0, 0.01]))
            if chance.random() < 0.05:
                return

    done = []
    async with serving(net, serve, delay=0.02) as (client, network, own):

        async def worker(number: int) -> None:
            for i in range(25):
                text = b"%d/%d" % (number, i)
                with anyio.move_on_after(chance.choice([0.01, 0.02, 0.03, 0.3, 5])):
                    try:
                        response = await client.post(URL, content=text)
                    except httpx.TransportError:
                        continue
                    assert response.content == text
                    done.append(text)

        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(worker, number)
        assert own.statistics().open == own.statistics().idle == network.open
        assert len(done) > 100


async def test_a_refused_connection_and_an_unknown_scheme_are_connect_errors(net: Any) -> None:
    async with serving(net, net.echo) as (client, network, own):
        network.refuse = [ConnectionRefusedError(111, "refused")]
        with pytest.raises(httpx.ConnectError) as caught:
            await client.get(URL)
        assert isinstance(caught.value.__cause__, ConnectionRefusedError)
        assert own.statistics().opened == 0
        with pytest.raises(httpx.UnsupportedProtocol):
            await own.handle_async_request(httpx.Request("GET", "ftp://model.test/x"))


@pytest.fixture(scope="module")
def authority() -> Any:
    """A private certificate authority."""
    return pytest.importorskip("trustme").CA()


def tls_pair(authority: Any, name: str = "model.test") -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a client that trusts the authority and of a server that has its certificate."""
    client, server = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.configure_trust(client)
    authority.issue_cert(name).configure_cert(server)
    return client, server


async def test_tls_connections_are_reused_polled_and_replaced(net: Any, authority: Any) -> None:
    client_tls, server_tls = tls_pair(authority)

    async def serve(stream: Any) -> None:
        tls = await TLSStream.wrap(stream, server_side=True, ssl_context=server_tls, standard_compatible=False)
        rest = bytearray()
        while True:
            _, _, body = await net.read_request(tls, rest)
            await tls.send(net.answer(body))
            if body == b"late":
                await tls.send(net.answer(b"WRONG"))
            if body == b"close":
                return

    options = {"ssl_context": lambda: client_tls}
    async with serving(net, serve, transport=options) as (client, _, own):
        for text, opened in ((b"1", 1), (b"2", 1), (b"late", 1), (b"3", 2), (b"close", 2), (b"4", 3), (b"5", 3)):
            assert (await client.post(URL.replace("http", "https"), content=text)).content == text
            assert own.statistics().opened == opened
            await anyio.sleep(1)


async def test_a_certificate_that_is_not_trusted_is_a_connect_error(net: Any, authority: Any) -> None:
    client_tls, server_tls = tls_pair(authority, "other.test")

    async def serve(stream: Any) -> None:
        with pytest.raises((ssl.SSLError, anyio.BrokenResourceError, anyio.EndOfStream)):
            await TLSStream.wrap(stream, server_side=True, ssl_context=server_tls, standard_compatible=False)

    async with serving(net, serve, transport={"ssl_context": lambda: client_tls}) as (client, network, own):
        with pytest.raises(httpx.ConnectError, match="TLS") as caught:
            await client.get(URL.replace("http", "https"))
        assert isinstance(caught.value.__cause__, ssl.SSLCertVerificationError)
        assert network.open == own.statistics().open == 0


@pytest.mark.parametrize("at", [0.5, 1.5])
async def test_a_handshake_that_hangs_or_is_cancelled_leaves_nothing(net: Any, authority: Any, at: float) -> None:
    client_tls, _ = tls_pair(authority)

    async def serve(stream: Any) -> None:
        await anyio.sleep_forever()

    async with serving(net, serve, delay=1, transport={"ssl_context": lambda: client_tls}) as (client, network, own):
        with anyio.move_on_after(at):
            await client.get(URL.replace("http", "https"))
        assert network.open == own.statistics().open == 0
        with pytest.raises(httpx.ConnectTimeout):
            await client.get(URL.replace("http", "https"), timeout=httpx.Timeout(None, connect=7))
        assert network.open == own.statistics().open == 0
