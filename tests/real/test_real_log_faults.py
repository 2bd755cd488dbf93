"""Logs under real faults of the disk: a limit on the size of files in the middle of a run, beside a run that fits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proctor.log import read_eval_log

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

TASKS = """
from pathlib import Path
from random import Random
from proctor import Task, task
from proctor.dataset import Sample
from proctor.scorer import includes
from proctor.solver import solver

@solver
def noting(name, size):
    async def solve(state, generate):
        with Path(f"ran-{name}").open("a") as file:
            file.write(f"{state.sample_id}\\n")
        state.store.set("ballast", Random(state.sample_id).randbytes(size).hex())
        return await generate(state)
    return solve

def made(name, size):
    return Task([Sample(f"q{n}", id=n, target="Default") for n in range(40)], solver=noting(name, size),
                scorer=includes())

@task
def large():
    return made("large", 30_000)

@task
def small():
    return made("small", 10)
"""
LIMITED = """
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.argv = ["proctor", *sys.argv[2:]]
runpy.run_module("proctor", run_name="__main__")
"""


def run(folder: Path, backend: str, *command: str) -> subprocess.CompletedProcess[str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_"))}
    return subprocess.run(
        [sys.executable, *command, "--display", "plain"], cwd=folder, capture_output=True, text=True, timeout=200,
        env=kept | {"PROCTOR_ASYNC_BACKEND": backend}, check=False,
    )  # fmt: skip


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on the size of files")
def test_a_log_that_may_not_grow_ends_its_own_task_and_is_gone_on_in_later(tmp_path: Path, backend: str) -> None:
    (tmp_path / "tasks.py").write_text(TASKS)
    (tmp_path / "limited.py").write_text(LIMITED)
    options = [
        "eval",
        "tasks.py",
        "--model",
        "mockllm/model",
        "--max-tasks",
        "2",
        "--max-samples",
        "2",
        "--log-buffer",
        "1",
    ]
    done = run(tmp_path, backend, "limited.py", "300000", *options)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "the log cannot be written: File too large" in done.stdout
    [small] = (tmp_path / "logs").glob("*small*.eval")
    [large] = (tmp_path / "logs").glob("*large*.eval")
    assert read_eval_log(small).status == "success"
    assert len((tmp_path / "ran-small").read_text().splitlines()) == 40
    before = (tmp_path / "ran-large").read_text().splitlines()
    assert 0 < len(before) < 40, "it stopped in the middle"
    (tmp_path / "ran-large").unlink()
    again = run(tmp_path, backend, "-m", "proctor", "retry", str(large))
    assert again.returncode == 0, again.stdout + again.stderr
    log = read_eval_log(large)
    assert (log.status, len(log.samples or ())) == ("success", 40)
    ran = (tmp_path / "ran-large").read_text().splitlines()
    assert len(ran) == len(set(ran))
    assert f"{40 - len(ran)} samples reused without a request" in again.stdout
    assert len(ran) < 40, "nothing of it was kept"
