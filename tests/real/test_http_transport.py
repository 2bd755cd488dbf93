"""The transport and the retry loop over real sockets, on every backend: servers that close, hang, refuse and count."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Self

import anyio
import httpx
import pytest

from proctor import Task, eval
from proctor.dataset import Sample
from proctor.errors import ModelGivenUp, RateLimitError, TransientModelError
from proctor.model import GenerateConfig, get_model
from proctor.model.actor import shares
from proctor.model.transport import Transport
from proctor.runtime import open_runtime

pytestmark = pytest.mark.real

FULL = os.environ.get("PROCTOR_SIZE") == "full"

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Loopback:
    """A server in a thread with a loop of its own; `port` is where it listens."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self.connections = 0
        self._ready = threading.Event()
        self._handler, self._tls = handler, tls
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        tasks: set[asyncio.Task[None]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await self._handler(reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass
            finally:
                writer.close()
                with contextlib.suppress(OSError, ssl.SSLError, asyncio.CancelledError):
                    await writer.wait_closed()
                tasks.discard(task)

        server = await asyncio.start_server(handle, "127.0.0.1", 0, ssl=self._tls, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stop.wait()
        server.close()
        for task in list(tasks):
            task.cancel()
        while tasks:
            await asyncio.sleep(0.01)


async def next_body(reader: asyncio.StreamReader) -> bytes:
    """The body of the next request."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = head.partition(b"content-length:")[2].partition(b"\r\n")[0]
    return await reader.readexactly(int(length or 0))


def answer(body: bytes, status: str = "200 OK", extra: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{extra}\r\n".encode() + body


def echo_after(delays: list[float]) -> Handler:
    """Answers each request with its body, after one of the delays."""
    chance = random.Random(3)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            body = await next_body(reader)
            await asyncio.sleep(chance.choice(delays))
            writer.write(answer(body))

    return handle


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def client_of(transport: Transport, **timeouts: float) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=transport, trust_env=False, timeout=httpx.Timeout(None, **timeouts))


@pytest.fixture(scope="module")
def authority() -> Any:
    """A private certificate authority, and the contexts of a client and a server under it."""
    trustme = pytest.importorskip("trustme")
    made = trustme.CA()
    client, server = ssl.create_default_context(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.configure_trust(client)
    made.issue_cert("127.0.0.1", "localhost").configure_cert(server)
    return made, client, server


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_requests_under_random_cancellation_leak_nothing_and_mix_nothing(authority: Any, secure: bool) -> None:
    _, client_tls, server_tls = authority
    """At least so many cancelled ones; in full size 20,000 requests, of which it depends on the load how many are."""
    chance = random.Random(11)
    wanted, workers = (1000, 1000) if FULL and not secure else (2000, 100) if not secure else (300, 30)
    least = 20_000 if FULL and not secure else 0
    done: list[bytes] = []
    cancelled = made = 0
    with Loopback(echo_after([0, 0.002, 0.02]), server_tls if secure else None) as server:
        url = f"{'https' if secure else 'http'}://127.0.0.1:{server.port}/"
        await anyio.sleep(0)
        before = descriptors()
        transport = Transport(ssl_context=lambda: client_tls)
        async with client_of(transport) as client:

            async def worker(number: int) -> None:
                nonlocal cancelled, made
                i = 0
                while cancelled < wanted or made < least:
                    i, made = i + 1, made + 1
                    text = b"%d/%d " % (number, i) * chance.choice([1, 1000])
                    with anyio.move_on_after(chance.choice([0.0005, 0.002, 0.01, 10])) as scope:
                        response = await client.post(url, content=text)
                        assert response.content == text
                        done.append(text)
                    cancelled += scope.cancelled_caught

            async with anyio.create_task_group() as group:
                for number in range(workers):
                    group.start_soon(worker, number)
            assert cancelled >= wanted
            assert len(done) > wanted / 10
            assert len(done) + cancelled == made >= least
            assert len(set(done)) == len(done)
            counts = transport.statistics()
            assert counts.open == counts.idle <= workers
            for i in range(20):
                assert (await client.post(url, content=b"%d" % i)).content == b"%d" % i
        assert transport.statistics().open == 0
        while descriptors() > before:  # the server, in this process too, closes its ends a moment later
            await anyio.sleep(0.01)


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
async def test_megabytes_go_through_both_ways(authority: Any, secure: bool) -> None:
    _, client_tls, server_tls = authority
    with Loopback(echo_after([0]), server_tls if secure else None) as server:
        transport = Transport(ssl_context=lambda: client_tls)
        async with client_of(transport) as client:
            for size in (3_000_000, 0, 70_000, 5_000_000):
                text = os.urandom(size)
                url = f"{'https' if secure else 'http'}://127.0.0.1:{server.port}/"
                assert (await client.post(url, content=text)).content == text
        assert transport.statistics().opened == 1


async def test_a_server_that_closes_idle_connections_costs_no_request() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(TimeoutError):
            while True:
                writer.write(answer(await asyncio.wait_for(next_body(reader), 0.02)))

    with Loopback(handle) as server:
        transport = Transport()
        async with client_of(transport) as client:
            for pause in [0.1, 0.0, 0.1, 0.0, 0.1] * 4:
                assert (await client.post(f"http://127.0.0.1:{server.port}/", content=b"x")).content == b"x"
                await anyio.sleep(pause)
        assert server.connections == transport.statistics().opened
        assert server.connections < 20


@pytest.mark.parametrize(("secure", "seconds"), [(False, 6), (True, 2)], ids=["plain", "tls"])
async def test_a_held_loop_fails_no_connection_that_the_kernel_has_made(
    authority: Any, caplog: pytest.LogCaptureFixture, secure: bool, seconds: float
) -> None:
    """And who held it is named, once."""
    _, client_tls, server_tls = authority
    with Loopback(echo_after([0]), server_tls if secure else None) as server:
        url = f"{'https' if secure else 'http'}://127.0.0.1:{server.port}/"
        transport = Transport(ssl_context=lambda: client_tls)
        answered = 0
        async with open_runtime(), client_of(transport, connect=0.5, read=0.5) as client:

            async def call(number: int) -> None:
                nonlocal answered
                text = b"%d" % number
                assert (await client.post(url, content=text)).content == text
                answered += 1

            async def hold() -> None:
                await anyio.sleep(0)
                time.sleep(seconds)

            async with anyio.create_task_group() as group:
                for number in range(10):
                    group.start_soon(call, number)
                group.start_soon(hold)
                for number in range(10, 20):
                    group.start_soon(call, number)
            assert answered == 20
            with anyio.fail_after(30):
                while not (named := [each.getMessage() for each in caplog.records if "hold (" in each.getMessage()]):
                    await anyio.sleep(0.02)
    assert len(named) == 1
    assert __file__ in named[0]


@pytest.mark.parametrize("sent", [0, 10], ids=["no body", "part of a body"])
async def test_a_body_that_stalls_ends_with_its_attempt(sent: int) -> None:
    """A response that is not streamed: its head has come, and then no more of it than that."""
    asked = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await next_body(reader)
        asked += 1
        whole = answer(json.dumps({"choices": [{"message": {"content": "never"}}]}).encode())
        writer.write(whole[: whole.index(b"\r\n\r\n") + 4 + sent])
        await reader.read()  # until the client closes

    with Loopback(handle) as server:
        async with open_runtime() as runtime:
            model = get_model("openai-api/s/m", base_url=f"http://127.0.0.1:{server.port}/v1", api_key="k")
            with anyio.fail_after(60), pytest.raises(TransientModelError, match="attempt_timeout"):
                await model.generate("q", config=GenerateConfig(max_retries=1, attempt_timeout=1))
            [share] = shares(runtime)
            assert (share.limiter.used, share.limiter.waiting) == (0, 0)
    assert asked == 2


async def test_a_body_that_comes_slowly_is_waited_for() -> None:
    """Byte by byte, for longer than any silence between two of them may last."""
    asked = 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        while True:
            await next_body(reader)
            asked += 1
            whole = answer(json.dumps({"choices": [{"message": {"content": "slow"}}]}).encode())
            for index in range(len(whole)):
                writer.write(whole[index : index + 1])
                await asyncio.sleep(0.02)

    with Loopback(handle) as server:
        async with open_runtime():
            model = get_model("openai-api/s/m", base_url=f"http://127.0.0.1:{server.port}/v1", api_key="k")
            with anyio.fail_after(60):
                assert (await model.generate("q", config=GenerateConfig(attempt_timeout=60))).completion == "slow"
    assert asked == 1


async def test_a_private_authority_is_trusted_by_the_environment_and_not_otherwise(
    authority: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, _, server_tls = authority

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await next_body(reader)
            writer.write(answer(json.dumps({"choices": [{"message": {"content": "safe"}}]}).encode()))

    file = tmp_path / "authority.pem"
    made.cert_pem.write_to_path(str(file))
    with Loopback(handle, server_tls) as server:
        model = get_model("openai-api/s/m", base_url=f"https://localhost:{server.port}/v1", api_key="k")
        async with open_runtime():
            with pytest.raises(ModelGivenUp, match="SSL_CERT_FILE"):
                await model.generate("q")
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        async with open_runtime():
            assert (await model.generate("q")).completion == "safe"


async def test_a_refused_connection_is_one_clear_message_soon() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        async with open_runtime():
            model = get_model("openai-api/s/m", base_url=url, api_key="k")
            with anyio.fail_after(20), pytest.raises(ModelGivenUp, match=r"refused.*Is the server running") as caught:
                await model.generate("q")
    assert url in str(caught.value)


async def test_a_host_that_does_not_exist_is_named() -> None:
    async with open_runtime():
        model = get_model("openai-api/s/m", base_url="http://nowhere.invalid/v1", api_key="k")
        with anyio.fail_after(60), pytest.raises(ModelGivenUp, match=r"nowhere\.invalid"):
            await model.generate("q")


@pytest.mark.parametrize("backends", [("asyncio", "trio", "asyncio"), ("trio", "asyncio", "trio")], ids="-".join)
def test_one_model_object_serves_three_loops(tmp_path: Path, backends: tuple[str, ...]) -> None:
    """Each evaluation has a loop of its own, and connections that an earlier one left open would belong to that."""
    asked: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked.append(json.loads(await next_body(reader))["messages"][-1]["content"])
            writer.write(answer(json.dumps({"choices": [{"message": {"content": "fine"}}]}).encode()))

    with Loopback(handle) as server:
        model = get_model("openai-api/s/m", base_url=f"http://127.0.0.1:{server.port}/v1", api_key="k")
        for number, backend in enumerate(backends):
            samples = [Sample(f"{number}.{each}") for each in range(3)]
            [log] = eval(Task(samples), model, async_backend=backend, display="none", log_dir=str(tmp_path))
            assert log.status == "success", log.error
            assert log.samples is not None
            assert [sample.output.completion for sample in log.samples] == ["fine"] * 3
    assert sorted(asked) == [f"{number}.{each}" for number in range(3) for each in range(3)]


async def test_one_model_with_a_wrong_key_ends_after_one_request_and_the_other_goes_on() -> None:
    asked: list[str] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            model = json.loads(await next_body(reader))["model"]
            asked.append(model)
            if model == "bad":
                writer.write(answer(b'{"error": {"message": "wrong key"}}', "401 Unauthorized"))
            else:
                writer.write(answer(json.dumps({"choices": [{"message": {"content": "fine"}}]}).encode()))

    with Loopback(handle) as server:
        async with open_runtime():
            url = f"http://127.0.0.1:{server.port}/v1"
            bad, good = (get_model(f"openai-api/s/{name}", base_url=url, api_key="k") for name in ("bad", "good"))
            for _ in range(3):
                with pytest.raises(ModelGivenUp, match="wrong key"):
                    await bad.generate("q")
                assert (await good.generate("q")).completion == "fine"
    assert asked == ["bad", "good", "good", "good"]


# -- against the fake server as a process, which counts for itself ----------------------------------------------------


class FakeServer:
    """``fake_openai.py`` as a process; `configure` starts its counters and options anew."""

    def __init__(self, shared: Path) -> None:
        command = [sys.executable, str(shared / "tools" / "fake_openai.py"), "--port", "0"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().split()[1]
        self._options: dict[str, float] = {}

    def configure(self, **options: float) -> None:
        plain = dict.fromkeys(self._options, 0) | options
        self._options = options
        self._post("/config", json.dumps(plain).encode())
        self._post("/reset", b"")

    def stats(self) -> dict[str, Any]:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/stats") as response:
            found: dict[str, Any] = json.load(response)
        return found

    def _post(self, path: str, body: bytes) -> None:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + path, data=body) as response:
            assert response.status == 200


@pytest.fixture(scope="module")
def fake(shared: Path) -> Iterator[FakeServer]:
    server = FakeServer(shared)
    yield server
    server.process.terminate()
    server.process.communicate(timeout=10)


@pytest.mark.shared
@pytest.mark.parametrize("allowed", [0, 1, 2])
@pytest.mark.parametrize("failure", ["fail_rate", "drop_rate", "rps"])
async def test_the_server_counts_one_request_more_than_the_retries_allowed(
    fake: FakeServer, allowed: int, failure: str
) -> None:
    fake.configure(**{failure: 1e-9 if failure == "rps" else 1.0}, burst=0)
    async with open_runtime():
        model = get_model("openai-api/s/m", base_url=fake.url, api_key="k")
        with pytest.raises((TransientModelError, RateLimitError)) as caught:
            await model.generate("q", config=GenerateConfig(max_retries=allowed))
    assert fake.stats()["requests"] == allowed + 1
    assert any("made (max_retries" in note for note in caught.value.__notes__)


@pytest.mark.shared
async def test_the_server_sees_exactly_as_many_at_once_as_are_allowed_and_no_more(fake: FakeServer) -> None:
    fake.configure(latency=0.05)
    async with open_runtime():
        model = get_model("openai-api/s/m", base_url=fake.url, api_key="k")
        async with anyio.create_task_group() as group:
            for number in range(60):
                group.start_soon(model.generate, f"{number}", (), None, GenerateConfig(max_connections=7))
    stats = fake.stats()
    assert (stats["requests"], stats["ok"], stats["peak"]) == (60, 60, 7)
    assert stats["connections_opened"] == 7 + 1  # and one for the statistics


@pytest.mark.shared
async def test_a_storm_of_limits_and_failures_loses_and_repeats_nothing(fake: FakeServer) -> None:
    fake.configure(latency=0.01, fail_rate=0.05, drop_rate=0.05, limit_concurrent=5, retry_after=0.05)
    answers: list[str] = []

    async def call(model: Any, number: int) -> None:
        output = await model.generate(f"{number}")
        answers.append(output.completion)

    async with open_runtime():
        config = GenerateConfig(max_connections=20)
        model = get_model("openai-api/s/m", base_url=fake.url, api_key="k", config=config)
        async with anyio.create_task_group() as group:
            for number in range(100):
                group.start_soon(call, model, number)
    stats = fake.stats()
    assert answers == ["Default"] * 100
    assert stats["ok"] == 100
    assert stats["limited"] > 0


@pytest.mark.shared
async def test_a_request_that_is_never_answered_ends_with_its_attempt(fake: FakeServer) -> None:
    fake.configure(hang_rate=1.0)
    async with open_runtime():
        model = get_model("openai-api/s/m", base_url=fake.url, api_key="k")
        with pytest.raises(TransientModelError, match="attempt_timeout"):
            await model.generate("q", config=GenerateConfig(max_retries=1, attempt_timeout=1))
    assert fake.stats()["models"]["m"]["requests"] == 2
    while fake.stats()["in_flight"]:  # it sees the closed connections a moment later
        await anyio.sleep(0.01)
