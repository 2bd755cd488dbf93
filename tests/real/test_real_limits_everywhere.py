"""Limits on sandboxes, on memory for a dataset, and rates of tokens, set in each way and seen from the other side."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

WAYS = ("Python", "command line", "environment", "Inspect's environment")
HANG = 120.0
SCRIPT = """
import json, sys
from proctor import eval

if __name__ == "__main__":
    [log] = eval("tasks.py", display="none", **json.loads(sys.argv[1]))
    sys.exit(log.status != "success")
"""
SANDBOXED = """
from proctor import Task, task
from proctor.dataset import Sample
from proctor.solver import solver
from proctor.util import sandbox

@solver
def works():
    async def solve(state, generate):
        waits = "while [ ! -e %r ]; do sleep 0.02; done"
        assert (await sandbox().exec(["sh", "-c", waits])).success
        return state
    return solve

@task
def sandboxed():
    return Task([Sample("x") for _ in range(12)], solver=works(), sandbox="local")
"""
PAGED = """
import os, time
from proctor import Task, task
from proctor.dataset import json_dataset
from proctor.solver import solver

@solver
def waits():
    async def solve(state, generate):
        import anyio
        while not os.path.exists(%r):
            await anyio.sleep(0.02)
        return state
    return solve

@task
def paged():
    return Task(json_dataset("rows.jsonl"), solver=waits())
"""
ASKING = """
from proctor import Task, task
from proctor.dataset import Sample

@task
def asking():
    return Task([Sample(f"question {number}") for number in range(30)])
"""


@contextmanager
def evaluating(way: str, folder: Path, backend: str, model: str, tasks: str, **options: Any) -> Iterator[Any]:
    """A run in a process of its own, with options given in one of the ways."""
    (folder / "tasks.py").write_text(tasks)
    (folder / "script.py").write_text(SCRIPT)
    (folder / "tmp").mkdir()
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_", "OPENAI_"))}
    environment |= {
        "PROCTOR_ASYNC_BACKEND": backend,
        "PROCTOR_STATE_DIR": str(folder / "state"),
        "TMPDIR": str(folder / "tmp"),
        "LOCAL_API_KEY": "k",
        "LOCAL_BASE_URL": model,
    }
    name = "openai-api/local/m" if model else "mock/m"
    if way == "Python":
        command = [sys.executable, "script.py", json.dumps({"model": name, **options})]
    else:
        command = [sys.executable, "-m", "proctor", "eval", "tasks.py", "--display", "none", "--model", name]
        if way == "command line":
            command += [f"--{option.replace('_', '-')}={value}" for option, value in options.items()]
        else:
            prefix = "PROCTOR_EVAL_" if way == "environment" else "INSPECT_EVAL_"
            environment |= {prefix + option.upper(): str(value) for option, value in options.items()}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until(process: Any, seen: Any) -> None:
    end = time.monotonic() + HANG
    while not seen():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.02)


@pytest.mark.parametrize("way", WAYS)
def test_as_many_sandboxes_live_as_were_asked_for(tmp_path: Path, backend: str, way: str) -> None:
    go, limit = tmp_path / "go", 3
    options = {"max_sandboxes": limit, "max_samples": 9, "max_subprocesses": 9}
    with evaluating(way, tmp_path, backend, "", SANDBOXED % str(go), **options) as process:

        def live() -> int:
            return len(list((tmp_path / "tmp").glob("proctor-sandbox-*")))

        wait_until(process, lambda: live() == limit)
        for _ in range(15):  # nobody else comes in while they are full
            assert live() == limit
            time.sleep(0.02)
        go.touch()
        most = 0
        while process.poll() is None:
            most = max(most, live())
            time.sleep(0.005)
        assert process.wait() == 0, process.communicate()[0]
        assert most <= limit
        assert live() == 0


def unnamed_files(pid: int) -> list[int]:
    """Sizes of the files without a name that a process has open."""
    sizes = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            target = os.readlink(entry)
            if target.endswith("(deleted)"):
                sizes.append(entry.stat().st_size)
    return sizes


@pytest.mark.parametrize("way", [*WAYS, "not at all"])
def test_rows_beyond_the_memory_that_was_asked_for_are_on_disk(tmp_path: Path, backend: str, way: str) -> None:
    """Six megabytes of rows: with two allowed the rest is in a file of the process, without a limit nothing is."""
    go, rows = tmp_path / "go", 6000
    text = "word " * 180
    with (tmp_path / "rows.jsonl").open("w") as file:
        for number in range(rows):
            file.write(json.dumps({"input": f"{number} {text}", "target": "x"}) + "\n")
    options = {"max_samples": 5, "limit": rows}
    if way != "not at all":
        options["max_dataset_memory"] = 2
    given = "Python" if way == "not at all" else way
    with evaluating(given, tmp_path, backend, "", PAGED % str(go), **options) as process:
        if way == "not at all":
            wait_until(process, lambda: list((tmp_path / "logs").glob("*")))
            time.sleep(0.5)
            assert sum(unnamed_files(process.pid)) < 1_000_000
        else:
            wait_until(process, lambda: sum(unnamed_files(process.pid)) >= 3_000_000)
        assert list((tmp_path / "tmp").iterdir()) == []


@contextmanager
def server(shared: Path, *options: str) -> Iterator[str]:
    command = [sys.executable, str(shared / "tools" / "fake_openai.py"), "--port", "0", "--ids", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"127\.0\.0\.1:\d+", process.stdout.readline())
        assert found
        yield f"http://{found[0]}"
    finally:
        process.terminate()
        process.communicate(timeout=10)


@pytest.mark.shared
@pytest.mark.parametrize("way", WAYS)
def test_a_rate_of_tokens_is_what_the_server_sees(shared: Path, tmp_path: Path, backend: str, way: str) -> None:
    """A hundred tokens a call and 1,000 a second: ten calls a second, after what a second gives at once."""
    with (
        server(shared, "--prompt-tokens", "60", "--completion-tokens", "40") as address,
        evaluating(way, tmp_path, backend, f"{address}/v1", ASKING, tokens_per_minute=60_000) as process,
    ):
        said = process.communicate(timeout=HANG)[0]
        assert process.returncode == 0, said
        with urllib.request.urlopen(f"{address}/stats", timeout=10) as answer:
            seen = json.load(answer)
    assert (seen["ok"], seen["limited"]) == (30, 0)
    burst = 10 + 4  # a second of the rate, and those that are sent before their cost is known
    assert seen["seconds"] > 0.9 * (30 - burst) / 10
