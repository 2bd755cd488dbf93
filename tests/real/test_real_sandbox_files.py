"""Files of samples over HTTP, sandboxes that are kept, and what a run says of a sandbox that it cannot have."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from proctor.cli.app import main
from proctor.errors import UsageError
from proctor.log import read_eval_log
from proctor.sandbox.files import contents
from proctor.testing import run_real

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

TASK = """
from proctor import Task, task
from proctor.dataset import Sample
from proctor.solver import solver
from proctor.util import sandbox

@solver
def works():
    async def solve(state, generate):
        await sandbox().write_file("f", "x")
        return state
    return solve

@task
def kept():
    return Task([Sample("x")], solver=works())
"""


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        data = b"\0\xff of the server"
        self.send_response(200 if self.path == "/file" else 404)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_url_is_downloaded(url: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(path: str) -> object:
        return await contents(f"{url}{path}")

    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert run_real(backend, fetch, "/file") == [("", b"\0\xff of the server")]
    with pytest.raises(UsageError, match=r"cannot be downloaded: .*404"):
        run_real(backend, fetch, "/missing")
    monkeypatch.setenv("PROCTOR_SANDBOX_MAX_READ_FILE_SIZE", "5")
    with pytest.raises(UsageError, match="is larger than 5 bytes"):
        run_real(backend, fetch, "/file")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str) -> Path:
    (tmp_path / "kept.py").write_text(TASK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PROCTOR_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("PROCTOR_ASYNC_BACKEND", backend.partition("-")[0])
    return tmp_path


def test_a_kept_sandbox_is_said_to_be_there_and_how_it_is_removed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from proctor.sandbox.owned import read_notes

    assert main(["eval", "kept.py", "--model", "mock/m", "--sandbox", "local", "--no-sandbox-cleanup"]) == 0
    said = capsys.readouterr()
    text = "kept: its local sandboxes are kept; remove what is left with: proctor sandbox cleanup local"
    assert text in said.out + said.err
    [note] = read_notes("local")
    assert (Path(note.things["folder"]) / "f").read_text() == "x"
    [log] = (folder / "logs").glob("*.eval")
    assert read_eval_log(str(log)).eval.config.sandbox_cleanup is False
    shutil.rmtree(note.things["folder"])


def test_where_bwrap_is_missing_the_run_says_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(folder))
    assert main(["eval", "kept.py", "--model", "mock/m", "--sandbox", "bubblewrap"]) == 1
    said = capsys.readouterr()
    assert "bwrap is not installed; install it with: apt-get install bubblewrap" in said.out + said.err
    assert "Traceback" not in said.out + said.err


def test_an_unknown_sandbox_is_a_slip(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "kept.py", "--model", "mock/m", "--sandbox", "bubblewrp"]) == 2
    assert "no sandbox is called 'bubblewrp'; did you mean bubblewrap?" in capsys.readouterr().err
    assert not (folder / "logs").exists()
