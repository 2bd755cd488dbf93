"""A run that is killed: what its running samples had done is in the recovered log, and they are run again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from proctor.log import read_eval_log, read_eval_log_sample_summaries, recover_eval_log
from proctor.log.running import journals_beside, running_folder

pytestmark = [pytest.mark.real, pytest.mark.timeout(180)]

TASK = """
from pathlib import Path

import anyio
from proctor import Task, task
from proctor.dataset import Sample
from proctor.solver import generate, solver

@solver
def lingers():
    async def solve(state, generate):
        state = await generate(state)
        if state.sample_id == "long" and not Path("quick").exists():
            await anyio.sleep_forever()
        return state
    return solve

@task
def lingering():
    return Task([Sample("How long?", id="long"), Sample("And you?", id="short")], solver=lingers())
"""


def start(folder: Path, backend: str, *arguments: str) -> subprocess.Popen[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_"))}
    return subprocess.Popen(
        [sys.executable, "-m", "proctor", *arguments, "--display", "none"],
        cwd=folder, env=kept | {"PROCTOR_ASYNC_BACKEND": backend},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("backend_name", ["asyncio", "trio"])
def test_a_killed_run_leaves_its_running_samples(tmp_path: Path, backend_name: str) -> None:
    (tmp_path / "lingering.py").write_text(TASK)
    process = start(tmp_path, backend_name, "eval", "lingering.py", "--model", "mock/model")
    try:
        give_up = time.monotonic() + 120
        found: list[Path] = []
        while time.monotonic() < give_up and process.poll() is None:
            found = list((tmp_path / "logs").glob("*.eval"))
            if found and journals_beside(found[0]):
                break
            time.sleep(0.2)
    finally:
        process.send_signal(signal.SIGKILL)
        said, _ = process.communicate(timeout=30)
    assert found, said
    (log,) = found
    assert journals_beside(log), said

    recovered = recover_eval_log(log, tmp_path / "recovered.eval")
    samples = {sample.id: sample for sample in read_eval_log(recovered.location).samples or []}
    assert set(samples) == {"long", "short"}
    assert samples["short"].error is None
    assert samples["long"].error is not None
    assert samples["long"].error.message.startswith("CancelledError(")
    assert "model" in {event.event for event in samples["long"].events}
    assert samples["long"].messages[-1].role == "assistant"
    assert running_folder(log).exists(), "a copy was recovered: the log is as it was"

    (tmp_path / "quick").touch()
    again = start(tmp_path, backend_name, "retry", str(log))
    said, _ = again.communicate(timeout=120)
    assert again.returncode == 0, said
    header = read_eval_log(log, header_only=True)
    assert header.status == "success"
    assert header.results is not None
    assert (header.results.total_samples, header.results.completed_samples) == (2, 2)
    assert [summary.error for summary in read_eval_log_sample_summaries(log)] == [None, None]
    assert not running_folder(log).exists()
