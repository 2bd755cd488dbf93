"""Commands of whole runs: how many at once, and that none lives on, however the run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from proctor.log import read_eval_log

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

BACKENDS = ["asyncio", "trio"]
LIMIT = 3
TOKEN = "TOKEN_OF_THIS_TEST"  # an environment variable that everything a run starts inherits
TASK = """
import os, time, anyio
from proctor import Task, eval, task
from proctor.dataset import MemoryDataset, Sample
from proctor.solver import solver
from proctor.util import subprocess

@solver
def command(folder, blocks):
    async def solve(state, generate):
        if blocks and state.sample_id == 1:
            while not os.path.exists(f"{folder}/block"):
                await anyio.sleep(0.01)
            time.sleep(600)
        await subprocess(["sh", "script.sh"], cwd=folder)
        return state
    return solve

@task
def commands(folder, samples=9, blocks=False):
    return Task(MemoryDataset([Sample("x") for _ in range(samples)]), solver=command(folder, blocks))

if __name__ == "__main__":
    [log] = eval(commands(os.getcwd()), "mock/m", max_samples=9, max_subprocesses=3, display="none")
    raise SystemExit(log.status != "success")
"""
COUNTING = f"""
mkdir -p run
touch run/$$
round=0
while [ $round -lt 400 ]; do
    count=$(ls run | wc -l)
    echo $count >> counts
    [ $count -ge {LIMIT} ] && touch reached
    [ -e reached ] && break
    round=$((round + 1))
    sleep 0.05
done
sleep 0.1
ls run | wc -l >> counts
rm run/$$
"""
WAITING = "echo $$ >> pids; sleep 600 & echo $! >> pids; wait"
STUBBORN = "trap '' TERM; echo $$ >> pids; sleep 600 & echo $! >> pids; wait; wait; sleep 600"
LINGERING = """
trap 'touch told; sleep 1.5; touch lingered' TERM
echo $$ >> pids; sleep 600 & echo $! >> pids; wait; sleep 600
"""
"""Told to end, it takes more than a moment and less than the grace."""
SHORT = "echo $$ >> pids; sleep 0.05; sleep 600 & sleep 0.05"


def marked(token: str) -> list[int]:
    """Living processes whose environment holds the token."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                stat = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()
                if stat[0] not in "ZX" and f"{TOKEN}={token}".encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    found.append(int(entry))
    return found


def children(pid: int) -> int:
    """Living children of a process."""
    count = 0
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()
                count += int(fields[1]) == pid and fields[0] not in "ZX"
    return count


class RunOf:
    """A run as a process of its own, whose samples each run `script.sh`."""

    def __init__(
        self,
        folder: Path,
        backend: str,
        script: str,
        *options: str,
        variables: dict[str, str] | None = None,
        python: bool = False,
    ) -> None:
        self.folder, self.token = folder, f"{os.getpid()} {folder}"
        (folder / "commands.py").write_text(TASK)
        (folder / "script.sh").write_text(script)
        command = [sys.executable, "-m", "proctor", "eval", "commands.py", "-T", f"folder={folder}", *options]
        command += ["--model", "mock/m", "--max-samples", "9", "--display", "plain"]
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_"))}
        self.process = subprocess.Popen(
            [sys.executable, "commands.py"] if python else command,
            cwd=folder,
            env=kept | {"PROCTOR_ASYNC_BACKEND": backend, TOKEN: self.token} | (variables or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def alive(self) -> list[int]:
        return marked(self.token)

    def pids(self) -> list[int]:
        with suppress(FileNotFoundError):
            return [int(line) for line in (self.folder / "pids").read_text().split()]
        return []

    def wait_for(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < end, "it did not come to pass"
            time.sleep(0.02)

    def wait_for_victims(self) -> None:
        """All places are taken by commands, each with a child of its own, and all of them live."""
        self.wait_for(lambda: len(self.pids()) == 2 * LIMIT)
        assert set(self.pids()) <= set(self.alive())

    def end(self) -> tuple[int, str]:
        said = self.process.communicate(timeout=60)[0]
        return self.process.returncode, said

    def assert_nothing_lives(self) -> None:
        """At once: what was sent SIGKILL may take a moment to be gone."""
        end = time.monotonic() + 5
        while self.alive():
            assert time.monotonic() < end, f"still alive: {self.alive()}"
            time.sleep(0.02)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunOf]]:
    runs: list[RunOf] = []

    def begin(*args: Any, **more: Any) -> RunOf:
        runs.append(RunOf(tmp_path, *args, **more))
        return runs[-1]

    yield begin
    for each in runs:
        each.process.kill()
        each.process.communicate()
        for pid in each.alive():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("place", ["python", "command line", "environment", "inspect's environment"])
def test_as_many_commands_run_at_once_as_were_asked_for(
    start: Callable[..., RunOf], tmp_path: Path, backend: str, place: str
) -> None:
    options = ["--max-subprocesses", str(LIMIT)] if place == "command line" else []
    names = {"environment": "PROCTOR_EVAL_MAX_SUBPROCESSES", "inspect's environment": "INSPECT_EVAL_MAX_SUBPROCESSES"}
    variables = {names[place]: str(LIMIT)} if place in names else {}
    run = start(backend, COUNTING, *options, variables=variables, python=place == "python")
    most = 0
    while run.process.poll() is None:
        most = max(most, children(run.process.pid))
        time.sleep(0.01)
    status, said = run.end()
    assert status == 0, said
    counts = [int(line) for line in (tmp_path / "counts").read_text().split()]
    assert (max(counts), len(counts) >= 9) == (LIMIT, True)
    assert most <= LIMIT
    run.assert_nothing_lives()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("script", [WAITING, STUBBORN], ids=["obey", "stubborn"])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_leaves_no_command(
    start: Callable[..., RunOf], tmp_path: Path, backend: str, script: str, number: int, status: int
) -> None:
    run = start(backend, script, "--max-subprocesses", str(LIMIT))
    run.wait_for_victims()
    run.process.send_signal(number)
    ended, said = run.end()
    assert ended == status, said
    assert run.alive() == []
    [log] = (tmp_path / "logs").glob("*.eval")
    assert read_eval_log(str(log)).status == "cancelled"


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("signals", [1, 2])
def test_a_second_interrupt_kills_at_once(
    start: Callable[..., RunOf], tmp_path: Path, backend: str, signals: int
) -> None:
    run = start(backend, LINGERING, "--max-subprocesses", str(LIMIT))
    run.wait_for_victims()
    run.process.send_signal(signal.SIGINT)
    run.wait_for((tmp_path / "told").exists)
    if signals == 2:
        run.process.send_signal(signal.SIGINT)
    ended, said = run.end()
    assert ended == 130, said
    assert run.alive() == []
    assert (tmp_path / "lingered").exists() == (signals == 1)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_third_interrupt_of_a_run_that_hangs_kills_its_commands_too(
    start: Callable[..., RunOf], tmp_path: Path, backend: str
) -> None:
    run = start(backend, STUBBORN, "-T", "blocks=true", "--max-subprocesses", str(LIMIT))
    run.wait_for_victims()
    (tmp_path / "block").touch()
    time.sleep(0.5)
    for _ in range(3):  # the loop is blocked: only the handler of the signal runs
        assert run.process.poll() is None
        run.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert run.end()[0] == 130
    run.assert_nothing_lives()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(3))
def test_interrupted_at_a_random_moment_nothing_lives(start: Callable[..., RunOf], backend: str, seed: int) -> None:
    chance = Random(seed)
    run = start(backend, SHORT, "-T", "samples=400", "--max-subprocesses", str(LIMIT))
    run.wait_for(run.pids)
    time.sleep(chance.uniform(0, 0.5))
    run.process.send_signal(chance.choice([signal.SIGINT, signal.SIGTERM]))
    if chance.random() < 0.5:
        time.sleep(chance.uniform(0, 0.3))
        run.process.send_signal(signal.SIGINT)
    assert run.end()[0] in {0, 130, 143, -signal.SIGINT}  # the last: the second came when all was over
    run.assert_nothing_lives()
