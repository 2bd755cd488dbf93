"""The process of a local model: started, shared, killed, stuck, left behind. Nothing of it may outlive its owner.

The program is the real one; the library under it is replaced by a small server whose model file says how it behaves.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import ModelError, ModelGivenUp
from proctor.model import get_model
from proctor.model.providers import llama_cpp
from proctor.runtime import open_runtime

pytestmark = pytest.mark.real

LIBRARY = """
import json, os, signal, subprocess, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

def CommonParams():
    model, cpu, batch = SimpleNamespace(), SimpleNamespace(), SimpleNamespace()
    return SimpleNamespace(model=model, cpuparams=cpu, cpuparams_batch=batch)

class Server:
    def __init__(self, params):
        with open(params.model.path, "rb") as file:
            plan = json.loads(file.read()[4:])
        with open(plan["pids"], "a") as file:
            file.write(f"{os.getpid()}\\n")
        if plan.get("stubborn"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if plan.get("child"):
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], stdin=subprocess.DEVNULL)
            with open(plan["pids"], "a") as file:
                file.write(f"{child.pid}\\n")
        if plan.get("holds"):  # as the real library does while it loads: no other thread of Python's runs
            sum(range(10**11))
        time.sleep(plan.get("loads", 0))
        if "fails" in plan:
            print(plan["fails"], file=sys.stderr)
            raise RuntimeError("Failed to init server")
        ready = time.monotonic() + plan.get("unhealthy", 0)
        key = f"Bearer {params.api_keys[0]}"
        print("a library may write anything to standard output")

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                self.reply(200 if time.monotonic() >= ready else 503, {"status": "ok"})

            def do_POST(self):
                self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers["Authorization"] != key:
                    return self.reply(401, {"error": {"message": "no"}})
                if time.monotonic() < ready:
                    return self.reply(503, {"error": {"message": "loading"}})
                open(plan["pids"] + ".asked", "a").close()
                time.sleep(plan.get("takes", 0))
                choice = {"message": {"role": "assistant", "content": "Paris"}, "finish_reason": "stop"}
                self.reply(200, {"choices": [choice]})

            def reply(self, status, body):
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        server = ThreadingHTTPServer(("127.0.0.1", params.port), Handler)
        self.listening_address = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
"""

TASK = """
from proctor import Task, task
from proctor.dataset import Sample
from proctor.scorer import includes

@task
def capitals():
    return Task([Sample("capital?", target="Paris") for _ in range(5)], scorer=includes())
"""

Plan = Callable[..., str]


@pytest.fixture
def pids(tmp_path: Path) -> Callable[[], list[int]]:
    """The processes that were started, dead or alive."""
    file = tmp_path / "pids"
    file.touch()
    return lambda: [int(line) for line in file.read_text().splitlines()]


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pids: Any) -> Plan:
    """Makes a model file that behaves so; gives the model's name."""
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "xllamacpp.py").write_text(LIBRARY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "library"))
    monkeypatch.setattr(llama_cpp, "_installed", lambda module: True)

    def write(**behaviour: Any) -> str:
        behaviour["pids"] = str(tmp_path / "pids")
        (tmp_path / "m.gguf").write_bytes(b"GGUF" + json.dumps(behaviour).encode())
        return f"llama-cpp/{tmp_path / 'm.gguf'}"

    return write


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def gone(pids: list[int], within: float = 5.0) -> bool:
    """Whether all are gone, or go within so many seconds."""
    deadline = time.monotonic() + within
    while any(map(alive, pids)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not any(map(alive, pids))


@pytest.fixture
def asked(tmp_path: Path) -> Callable[[], bool]:
    """Whether a server is at work on a request, or was."""
    return (tmp_path / "pids.asked").exists


async def until(condition: Callable[[], Any]) -> None:
    with anyio.fail_after(20):
        while not condition():
            await anyio.sleep(0.02)


async def test_it_serves_and_is_gone_when_the_runtime_ends(plan: Plan, pids: Any) -> None:
    async with open_runtime():
        model = get_model(plan(unhealthy=0.3), parallel=3)
        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(model.generate, "capital?")
        assert (await model.generate("capital?")).completion == "Paris"
        [pid] = pids()
        assert os.getsid(pid) == pid
    assert not alive(pid)


async def test_everything_in_its_group_goes_with_it(plan: Plan, pids: Any) -> None:
    async with open_runtime():
        await get_model(plan(child=True)).generate("x")
        assert len(pids()) == 2
    assert gone(pids())


async def test_one_that_ignores_the_polite_signal_is_killed(plan: Plan, pids: Any) -> None:
    async with open_runtime():
        await get_model(plan(stubborn=True)).generate("x")
        before = anyio.current_time()
    assert gone(pids(), within=0)
    assert anyio.current_time() - before < 5


async def test_cancelled_while_it_loads_nothing_is_left(plan: Plan, pids: Any) -> None:
    async with open_runtime():
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(get_model(plan(holds=True)).generate, "x")
                await until(pids)
                scope.cancel()
    assert gone(pids(), within=0)


async def test_killed_while_it_answers_it_is_an_error_of_that_call_alone(
    plan: Plan, pids: Any, asked: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", "proctor")
    errors: list[Exception] = []
    async with open_runtime():
        model = get_model(plan(takes=1))

        async def call() -> None:
            try:
                await model.generate("x")
            except ModelError as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            group.start_soon(call)
            await until(asked)
            os.kill(pids()[0], signal.SIGKILL)
        [error] = errors
        assert "its server was killed by SIGKILL (was there not enough memory?)" in str(error)
        assert (await model.generate("x")).completion == "Paris"
        assert len(pids()) == 2
    assert gone(pids(), within=0)


async def test_one_that_does_not_load_says_why(plan: Plan, pids: Any) -> None:
    async with open_runtime():
        with pytest.raises(ModelGivenUp) as caught:
            await get_model(plan(fails="tensor 'a' is not within the file: the model is incomplete")).generate("x")
    text = str(caught.value)
    assert "m.gguf: the server ended with exit code 3 before it was ready:\n" in text
    assert "the model is incomplete" in text
    assert "Traceback" not in text


async def test_one_that_takes_too_long_is_given_up_and_stopped(plan: Plan, pids: Any) -> None:
    async with open_runtime():
        with pytest.raises(ModelGivenUp, match=r"not ready within 1 s; .*start_timeout"):
            await get_model(plan(unhealthy=60), start_timeout=1).generate("x")
    assert gone(pids(), within=0)


def evaluate(tmp_path: Path, model: str, backend: str, *options: str) -> subprocess.Popen[str]:
    (tmp_path / "capitals.py").write_text(TASK)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "proctor", "eval", "capitals.py", "--model", model, "--display", "plain", *options],
        cwd=tmp_path, env={**clean, "PROCTOR_ASYNC_BACKEND": backend}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("behaviour", [{"takes": 1}, {"holds": True}], ids=["answering", "loading"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_when_proctor_is_stopped_or_killed_nothing_is_left(
    tmp_path: Path, plan: Plan, pids: Any, number: signal.Signals, behaviour: dict[str, Any], backend: str
) -> None:
    proctor = evaluate(tmp_path, plan(**behaviour), backend)
    wait_for(pids)
    time.sleep(0.3)
    proctor.send_signal(number)
    _, err = proctor.communicate(timeout=20)
    assert proctor.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in err
    assert gone(pids())


def test_a_run_from_the_command_line_ends_well_and_leaves_nothing(
    tmp_path: Path, plan: Plan, pids: Any, backend: str
) -> None:
    proctor = evaluate(tmp_path, plan(), backend)
    out, err = proctor.communicate(timeout=30)
    assert proctor.returncode == 0, out + err
    assert " 1.000 " in out
    assert len(pids()) == 1
    assert gone(pids(), within=0)


def test_a_death_is_an_error_of_its_sample_and_the_others_go_on(
    tmp_path: Path, plan: Plan, pids: Any, asked: Any, backend: str
) -> None:
    proctor = evaluate(tmp_path, plan(takes=1), backend, "--no-fail-on-error")
    wait_for(asked)
    os.kill(pids()[0], signal.SIGKILL)
    out, err = proctor.communicate(timeout=30)
    assert proctor.returncode == 0, out + err
    assert "5 samples, 1 error" in out
    assert "was killed by SIGKILL" in out + err
    assert len(pids()) == 2
    assert gone(pids(), within=0)
