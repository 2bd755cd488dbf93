"""The command line as a process of its own, and the live display in a real terminal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

BIN = Path(sys.executable).parent
PROCTOR = str(BIN / "proctor")
HEAVY = {"httpx", "trio", "rich", "cattrs", "zstandard", "proctor.evaluation", "proctor.runtime", "proctor.model"}

TASK = """
from proctor import Task, task
from proctor.dataset import MemoryDataset, Sample
from proctor.scorer import includes

@task
def greeting(samples=5):
    return Task(MemoryDataset([Sample(input="hello", target="Default") for _ in range(samples)]), scorer=includes())
"""


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_"))}
    return {**kept, **more}


def run(*arguments: str, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PROCTOR, *arguments], cwd=cwd, capture_output=True, text=True, timeout=60, env=environment(**more), check=False
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "greeting.py").write_text(TASK)
    return tmp_path


def test_help_imports_neither_the_engine_nor_what_it_needs(tmp_path: Path) -> None:
    code = "import sys; from proctor.cli.app import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert "eval" in found.stdout
    assert not HEAVY & set(found.stderr.split())


def test_a_run_from_an_empty_folder_to_its_results(folder: Path) -> None:
    outcome = run("eval", "greeting.py", "--model", "mock/a,mock/b", cwd=folder)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.count("success") >= 2
    assert "inspect view --log-dir logs" in outcome.stdout
    assert len(list((folder / "logs").glob("*.eval"))) == 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@pytest.mark.parametrize("display", ["plain", "rich", "log", "none"])
def test_every_display_on_every_backend(folder: Path, backend: str, display: str) -> None:
    arguments = ["eval", "greeting.py", "--model", "mock/a", "--display", display]
    outcome = run(*arguments, cwd=folder, PROCTOR_ASYNC_BACKEND=backend)
    assert outcome.returncode == 0, outcome.stderr
    assert ("success" in outcome.stdout + outcome.stderr) is (display != "none")
    assert "\x1b" not in outcome.stdout


def test_a_mistake_is_one_line_on_standard_error(folder: Path) -> None:
    outcome = run("eval", "greting.py", "--model", "mock/a", cwd=folder)
    assert (outcome.returncode, outcome.stdout) == (2, "")
    assert "greting.py" in outcome.stderr
    assert "greeting.py" in outcome.stderr
    assert outcome.stderr.count("\n") == 1
    assert not (folder / "logs").exists()


def test_a_reader_that_leaves_is_no_error(folder: Path) -> None:
    command = f"'{PROCTOR}' eval --help | head -1; exit ${{PIPESTATUS[0]}}"
    outcome = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder, check=False)
    assert (outcome.returncode, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith("Usage: proctor eval")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_run_with_a_log_and_their_exit_code(folder: Path, number: signal.Signals, code: int) -> None:
    arguments = ["eval", "greeting.py", "--model", "mock/a", "-M", "latency=30", "--display", "plain"]
    process = subprocess.Popen(
        [PROCTOR, *arguments], cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "started" in line:
            break
    assert process.poll() is None
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "cancelled" in out
    assert "Traceback" not in err
    assert len(list((folder / "logs").glob("*.eval"))) == 1


@pytest.fixture
def tmux(tmp_path: Path) -> object:
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux, to look at a real terminal")
    socket = str(tmp_path / "tmux")

    def call(*arguments: str) -> str:
        done = subprocess.run(
            ["tmux", "-S", socket, "-f", "/dev/null", *arguments], capture_output=True, text=True, check=True
        )
        return done.stdout

    yield call
    subprocess.run(["tmux", "-S", socket, "kill-server"], capture_output=True, check=False)


def until(look: object, *wanted: str) -> str:
    """What the screen shows once all of `wanted` are on it."""
    screen = ""
    for _ in range(300):
        screen = look()  # type: ignore[operator]
        if all(each in screen for each in wanted):
            return screen
        time.sleep(0.1)
    raise AssertionError(f"never saw {wanted} in:\n{screen}")


def test_a_terminal_shows_the_run_live_and_then_the_results(folder: Path, tmux: object) -> None:
    call = tmux
    call("new-session", "-d", "-x", "120", "-y", "24", "-c", str(folder), "bash --norc")  # type: ignore[operator]
    variables = "PS1='ready> ' TERM=tmux-256color"
    command = (
        f"{variables}; {PROCTOR} eval greeting.py --model mock/a,mock/b -M latency=1 --max-samples 1; echo code=$?"
    )
    call("send-keys", command, "Enter")  # type: ignore[operator]
    look = lambda: call("capture-pane", "-p")  # type: ignore[operator] # noqa: E731
    live = until(look, "0/2 tasks", "greeting", "/5")
    assert "mock/a" in live
    assert "mock/b" in live
    last = until(look, "code=0", "ready>")
    assert "0/2 tasks" not in last
    assert last.count("success") == 2
    assert "inspect view --log-dir logs" in last
    assert call("display-message", "-p", "#{cursor_flag}").strip() == "1"  # type: ignore[operator]


def test_a_killed_display_leaves_a_usable_terminal(folder: Path, tmux: object) -> None:
    call = tmux
    call("new-session", "-d", "-x", "100", "-y", "24", "-c", str(folder), "bash --norc")  # type: ignore[operator]
    call("send-keys", f"PS1='ready> '; {PROCTOR} eval greeting.py --model mock/a -M latency=30", "Enter")  # type: ignore[operator]
    look = lambda: call("capture-pane", "-p")  # type: ignore[operator] # noqa: E731
    until(look, "0/1 task", "/5")
    shell = call("display-message", "-p", "#{pane_pid}").strip()  # type: ignore[operator]
    [child] = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    os.kill(int(child), signal.SIGKILL)
    until(look, "ready> ")
    call("send-keys", "echo us''able", "Enter")  # type: ignore[operator]
    until(look, "\nusable")
    assert call("display-message", "-p", "#{cursor_flag}").strip() == "1"  # type: ignore[operator]
