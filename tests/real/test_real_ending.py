"""How a run ends when it is told to, or killed: bounded exits, one record a started sample, a readable log."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.log import read_eval_log, recover_eval_log

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

BUDGET = 5.0
"""Seconds that an ending may take in all; the interpreter's own start and end come on top."""
MARGIN = 10.0
TASK = """
import os
import anyio
from proctor import Task, task
from proctor.dataset import MemoryDataset, Sample
from proctor.solver import solver

@solver
def noted(folder, seconds, stubborn):
    async def solve(state, generate):
        with open(os.path.join(folder, "started"), "a") as file:
            file.write(f"{state.sample_id}\\n")
        try:
            await anyio.sleep(0 if state.sample_id <= 5 else seconds)
        finally:
            if stubborn:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(stubborn)
        return state
    return solve

@task
def waiting(folder, samples=40, seconds=600, stubborn=0):
    data = MemoryDataset([Sample("x") for _ in range(samples)])
    return Task(data, solver=noted(folder, seconds, stubborn))
"""


class Run:
    """`proctor eval` as a process, with samples that wait until something ends them."""

    def __init__(self, folder: Path, backend: str, *options: str) -> None:
        self.folder = folder
        (folder / "waiting.py").write_text(TASK)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_"))}
        command = [sys.executable, "-m", "proctor", "eval", "waiting.py", "-T", f"folder={folder}", "--model", "mock/m"]
        self.process = subprocess.Popen(
            [*command, "--max-samples", "20", "--display", "plain", *options],
            cwd=folder,
            env=kept | {"PROCTOR_ASYNC_BACKEND": backend},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.wait_until_waiting()

    def started(self) -> list[int]:
        try:
            return [int(line) for line in (self.folder / "started").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def wait_until_waiting(self) -> None:
        """All slots are held by samples that wait."""
        end = time.monotonic() + 60
        while len(self.started()) < 25:
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < end, "the samples did not start"
            time.sleep(0.05)
        time.sleep(0.3)

    def signal(self, number: int, times: int = 1) -> float:
        """Send a signal, 0.1 s apart; gives the seconds until the process was gone."""
        assert self.process.poll() is None
        began = time.monotonic()
        for n in range(times):
            if n:
                time.sleep(0.1)
            if self.process.poll() is None:
                self.process.send_signal(number)
        self.said, _ = self.process.communicate(timeout=60)
        return time.monotonic() - began

    @property
    def log(self) -> Path:
        [path] = (self.folder / "logs").glob("*.eval")
        return path


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_ends_the_run_with_a_record_for_each_sample(
    tmp_path: Path, backend: str, number: int, code: int
) -> None:
    run = Run(tmp_path, backend)
    took = run.signal(number)
    assert run.process.returncode == code, run.said
    assert took < BUDGET + MARGIN
    assert "Traceback" not in run.said
    log = read_eval_log(str(run.log))
    assert log.status == "cancelled"
    assert sorted(s.id for s in log.samples) == sorted(run.started())
    assert [s.id for s in log.samples if s.error is None] == [1, 2, 3, 4, 5]
    assert all(s.error.message.startswith("CancelledError(") for s in log.samples if s.error)
    assert not list((tmp_path / "logs").glob("*.wal"))


def test_samples_that_resist_are_left_behind_within_the_budget(tmp_path: Path, backend: str) -> None:
    run = Run(tmp_path, backend, "-T", "stubborn=2")
    took = run.signal(signal.SIGINT)
    assert run.process.returncode == 130, run.said
    assert took < BUDGET + MARGIN
    log = read_eval_log(str(run.log))
    assert log.status == "cancelled"
    assert {1, 2, 3, 4, 5} <= {s.id for s in log.samples}


@pytest.mark.parametrize("times", [2, 3])
def test_more_signals_end_it_sooner_and_the_log_can_be_read(tmp_path: Path, backend: str, times: int) -> None:
    run = Run(tmp_path, backend)
    took = run.signal(signal.SIGINT, times)
    # A run that has already ended in order when the next signal comes dies of it, which a shell shows as 130 as well.
    assert run.process.returncode in {130, -signal.SIGINT}, run.said
    assert took < BUDGET + MARGIN
    if list((tmp_path / "logs").glob("*.wal")):
        recover_eval_log(str(run.log), overwrite=True)
    log = read_eval_log(str(run.log))
    assert log.status in {"cancelled", "started"}
    assert {1, 2, 3, 4, 5} <= {s.id for s in log.samples}


def test_a_killed_run_loses_no_finished_sample(tmp_path: Path, backend: str) -> None:
    run = Run(tmp_path, backend)
    time.sleep(0.5)  # several group commits
    run.signal(signal.SIGKILL)
    assert run.process.returncode == -signal.SIGKILL
    recover_eval_log(str(run.log), overwrite=True)
    log = read_eval_log(str(run.log))
    assert log.status == "started"
    assert [s.id for s in log.samples] == [1, 2, 3, 4, 5]


def test_inspect_opens_the_log_of_an_interrupted_run(tmp_path: Path) -> None:
    run = Run(tmp_path, "asyncio")
    run.signal(signal.SIGINT)
    code = (
        "import sys, json; from inspect_ai.log import read_eval_log; log = read_eval_log(sys.argv[1]);"
        "print(json.dumps([log.status, len(log.samples)]))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(run.log)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == ["cancelled", len(run.started())]
