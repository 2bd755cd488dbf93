"""Mistakes that only show with real servers, processes and keys pressed: what is said, and how the command ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme

from proctor.log import read_eval_log

pytestmark = pytest.mark.real

KEY = "sk-canary-77aa"

TASK = """\
from proctor import Task, task
from proctor.dataset import Sample
from proctor.scorer import accuracy, includes, metric
from proctor.solver import generate, solver

@task
def t():
    return Task([Sample(input="hello", target="Default") for _ in range(3)], scorer=includes())
"""


def clean_environment(**more: str) -> dict[str, str]:
    dropped = ("PROCTOR_", "INSPECT_", "OPENAI_", "SSL_CERT")
    return {**{k: v for k, v in os.environ.items() if not k.startswith(dropped)}, **more}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t.py").write_text(TASK)
    return tmp_path


Proctor = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def proctor(folder: Path, backend: str) -> Proctor:
    """Run `python -m proctor` in the folder, with arguments and variables."""

    def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "proctor", *arguments], cwd=folder, capture_output=True, text=True, timeout=60,
            env=clean_environment(PROCTOR_ASYNC_BACKEND=backend.partition("-")[0], **variables), check=False,
        )  # fmt: skip

    return run


@contextmanager
def server(status: int, body: Any, *, tls: ssl.SSLContext | None = None, requests: list[str] | None = None) -> Any:
    """A server that gives one answer to everything; its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            if requests is not None:
                requests.append(self.path)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            pass  # a handshake that is refused is what some tests are about

    serving = Quiet(("127.0.0.1", 0), Handler)
    if tls is not None:
        serving.socket = tls.wrap_socket(serving.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=serving.serve_forever)
    thread.start()
    try:
        yield serving.server_address[1]
    finally:
        serving.shutdown()
        thread.join()
        serving.server_close()


def refused(proctor: Proctor, folder: Path, url: str, *says: str, **variables: str) -> None:
    """Evaluate on a server, one call at a time; all must be said once, and the log be whole and without the key."""
    done = proctor(
        "eval", "t.py", "--model", "openai-api/mine/m", "--model-base-url", url, "-M", f"api_key={KEY}",
        "--display", "plain", "--max-connections", "1", **variables,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 1, said
    assert "Traceback" not in said
    for words in says:
        assert said.count(words) == 1, f"{words!r} once, please:\n{said}"
    [log] = folder.glob("logs/*.eval")
    read = read_eval_log(str(log))
    assert read.status == "error"
    assert read.error is not None
    assert says[0] in read.error.message
    assert KEY not in said
    assert KEY.encode() not in log.read_bytes()


def test_a_key_that_is_refused_costs_one_request(proctor: Proctor, folder: Path) -> None:
    asked: list[str] = []
    answer = {"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}}
    with server(401, answer, requests=asked) as port:
        refused(proctor, folder, f"http://127.0.0.1:{port}/v1", "HTTP 401", "Incorrect API key", "check the key")
    assert len(asked) == 1


def test_a_model_that_the_server_does_not_know(proctor: Proctor, folder: Path) -> None:
    answer = {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}
    with server(404, answer) as port:
        refused(
            proctor, folder, f"http://127.0.0.1:{port}/v1", "The model `m` does not exist", "model is unknown there"
        )


def test_a_base_url_with_the_wrong_path(proctor: Proctor, folder: Path) -> None:
    with server(404, b"<html>not found</html>") as port:
        refused(
            proctor, folder, f"http://127.0.0.1:{port}", "HTTP 404", "Is the base URL right? It usually ends in /v1"
        )


def test_a_server_that_is_no_model(proctor: Proctor, folder: Path) -> None:
    with server(200, b"<html>hello</html>") as port:
        refused(proctor, folder, f"http://127.0.0.1:{port}/v1", f"http://127.0.0.1:{port}/v1/chat/completions")


def test_a_server_that_is_down(proctor: Proctor, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    refused(proctor, folder, f"http://127.0.0.1:{port}/v1", "nothing listens there", "Is the server running?")


def test_a_host_that_has_no_address(proctor: Proctor, folder: Path) -> None:
    refused(proctor, folder, "http://nowhere.invalid/v1", "the host nowhere.invalid", "Check the base URL")


def test_https_at_a_server_that_speaks_http(proctor: Proctor, folder: Path) -> None:
    with server(200, {}) as port:
        refused(proctor, folder, f"https://127.0.0.1:{port}/v1", "no TLS connection", "Is it http:// rather?")


@pytest.fixture
def certificate() -> tuple[ssl.SSLContext, trustme.CA]:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context, authority


def test_a_certificate_that_is_not_trusted(proctor: Proctor, folder: Path, certificate: Any) -> None:
    with server(200, {}, tls=certificate[0]) as port:
        refused(proctor, folder, f"https://127.0.0.1:{port}/v1", "is not trusted", "SSL_CERT_FILE")


def test_a_certificate_file_that_is_not_there(proctor: Proctor, folder: Path, certificate: Any) -> None:
    with server(200, {}, tls=certificate[0]) as port:
        refused(proctor, folder, f"https://127.0.0.1:{port}/v1", "SSL_CERT_FILE=", SSL_CERT_FILE="/nowhere/ca.pem")


def test_the_certificate_of_ones_own_authority_is_trusted(proctor: Proctor, folder: Path, certificate: Any) -> None:
    context, authority = certificate
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    answer = {"choices": [{"message": {"role": "assistant", "content": "Default"}, "finish_reason": "stop"}]}
    with server(200, answer, tls=context) as port:
        done = proctor(
            "eval", "t.py", "--model", "openai-api/mine/m", "--model-base-url", f"https://127.0.0.1:{port}/v1",
            "-M", f"api_key={KEY}", "--display", "plain", SSL_CERT_FILE=str(folder / "ca.pem"),
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_asyncios_gather_under_trio_says_what_to_use(proctor: Proctor, folder: Path, backend: str) -> None:
    (folder / "t.py").write_text(
        TASK.replace("scorer=includes()", "solver=both()")
        + "\nimport asyncio\n\n@solver\ndef both():\n    async def solve(state, generate):\n"
        "        await asyncio.gather(generate(state), generate(state))\n        return state\n    return solve\n"
    )
    done = proctor("eval", "t.py", "--model", "mock/m", "--display", "plain")
    said = done.stdout + done.stderr
    assert done.returncode == (1 if backend == "trio" else 0), said
    assert ("this code calls asyncio, but the run is on trio" in said) is (backend == "trio")


# -- Ctrl-C -----------------------------------------------------------------------------------------------------------


def start(folder: Path, backend: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=clean_environment(PROCTOR_ASYNC_BACKEND=backend.partition("-")[0]),
    )  # fmt: skip


def press_ctrl_c(process: subprocess.Popen[str], marker: Path) -> tuple[str, str]:
    deadline = time.monotonic() + 30
    while not marker.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    return process.communicate(timeout=30)


EVAL = ("-m", "proctor", "eval", "t.py", "--model", "mock/m", "--display", "plain")

AT_THE_START = "import pathlib, time\npathlib.Path('here').touch()\ntime.sleep(30)\n"

DURING = """
import pathlib, anyio
@solver
def s():
    async def solve(state, generate):
        pathlib.Path('here').touch()
        await anyio.sleep(30)
        return state
    return solve
"""

AT_THE_END = """
import pathlib, time
@metric
def slow():
    def compute(scores):
        pathlib.Path('here').touch()
        time.sleep(1)
        return 1.0
    return compute
"""


def test_ctrl_c_at_the_start(folder: Path, backend: str) -> None:
    (folder / "t.py").write_text(AT_THE_START + TASK)
    process = start(folder, backend, *EVAL)
    out, err = press_ctrl_c(process, folder / "here")
    assert (process.returncode, out, err) == (130, "", "proctor: interrupted\n")
    assert not list(folder.glob("logs/*.eval"))


def test_ctrl_c_during_a_run(folder: Path, backend: str) -> None:
    (folder / "t.py").write_text(TASK.replace("scorer=", "solver=s(), scorer=") + DURING)
    process = start(folder, backend, *EVAL)
    out, err = press_ctrl_c(process, folder / "here")
    assert process.returncode == 130, out + err
    assert err == "proctor: interrupted\n"
    assert "finishing the logs" in out
    [log] = folder.glob("logs/*.eval")
    read = read_eval_log(str(log))
    assert read.status == "cancelled"
    assert read.samples


def test_ctrl_c_at_the_end(folder: Path, backend: str) -> None:
    (folder / "t.py").write_text(TASK.replace("scorer=", "metrics=[slow()], scorer=") + AT_THE_END)
    process = start(folder, backend, *EVAL)
    out, err = press_ctrl_c(process, folder / "here")
    assert process.returncode == 130, out + err
    assert "Traceback" not in out + err
    [log] = folder.glob("logs/*.eval")
    assert read_eval_log(str(log)).status in {"success", "cancelled"}
    assert len(read_eval_log(str(log)).samples or ()) == 3


def test_ctrl_c_in_a_program_of_ones_own(folder: Path, backend: str) -> None:
    (folder / "t.py").write_text(TASK.replace("scorer=", "solver=s(), scorer=") + DURING)
    (folder / "mine.py").write_text(
        "from proctor import eval\nfrom t import t\ntry:\n    eval(t(), model='mock/m', display='none')\n"
        "except KeyboardInterrupt:\n    print('stopped')\n"
    )
    process = start(folder, backend, "mine.py")
    out, err = press_ctrl_c(process, folder / "here")
    assert (process.returncode, out, err) == (0, "stopped\n", "")
    [log] = folder.glob("logs/*.eval")
    assert read_eval_log(str(log)).status == "cancelled"
