"""Limits measured by a model server that is a process of its own, set from Python, command line and environment."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.shared, pytest.mark.timeout(300)]

WAYS = ("Python", "command line", "environment")
TASKS = """
from proctor import Task, task
from proctor.dataset import Sample

def made(name):
    return Task([Sample(f"{name} {number}") for number in range(40)])

@task
def one():
    return made("one")

@task
def two():
    return made("two")
"""
SCRIPT = """
import json, sys
from proctor import eval

if __name__ == "__main__":
    options = json.loads(sys.argv[2])
    logs = eval(sys.argv[1], display="none", **options)
    sys.exit(0 if all(log.status == "success" for log in logs) else 1)
"""


@contextmanager
def server(shared: Path, *options: str) -> Iterator[str]:
    """The model server as a process; gives its address."""
    command = [sys.executable, str(shared / "tools" / "fake_openai.py"), "--port", "0", "--latency", "0.25", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", line)
        assert found, f"the server said {line!r}"
        yield f"http://{found[0]}"
    finally:
        process.terminate()
        process.communicate(timeout=10)


def stats(address: str) -> Any:
    with urllib.request.urlopen(f"{address}/stats", timeout=10) as answer:
        return json.load(answer)


def evaluate(
    way: str, address: str, folder: Path, backend: str, spec: str = "", prefix: list[str] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a file of two tasks of forty samples in a process, its limits given in one of the ways."""
    (folder / "tasks.py").write_text(TASKS)
    (folder / "script.py").write_text(SCRIPT)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_", "OPENAI_"))}
    environment |= {"PROCTOR_ASYNC_BACKEND": backend, "LOCAL_API_KEY": "k", "LOCAL_BASE_URL": f"{address}/v1"}
    tasks, model = f"tasks.py{spec}", "openai-api/local/m"
    if way == "Python":
        command = [sys.executable, "script.py", tasks, json.dumps({"model": model, **options})]
    else:
        command = [sys.executable, "-m", "proctor", "eval", tasks, "--display", "none"]
        if way == "command line":
            command += [f"--{name.replace('_', '-')}={value}" for name, value in options.items()] + ["--model", model]
        else:
            environment |= {f"PROCTOR_EVAL_{name.upper()}": str(value) for name, value in options.items()}
            environment["INSPECT_EVAL_MODEL"] = model
    return subprocess.run(
        [*(prefix or []), *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("spec", "options", "peak"),
    [
        ("@one", {"max_connections": 7}, 7),
        ("@one", {"max_samples": 4, "max_connections": 30}, 4),
        ("", {"max_tasks": 2, "max_samples": 3, "max_connections": 30}, 6),
        ("", {"max_tasks": 2, "max_samples": 5, "max_connections": 30, "max_total_samples": 8}, 8),
    ],
    ids=["max_connections", "max_samples", "max_tasks", "max_total_samples"],
)
def test_a_limit_holds_and_is_used_to_the_full(
    shared: Path, tmp_path: Path, backend: str, way: str, spec: str, options: dict[str, int], peak: int
) -> None:
    with server(shared) as address:
        done = evaluate(way, address, tmp_path, backend, spec, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        seen = stats(address)
    assert seen["requests"] == seen["ok"] == (40 if spec else 80)
    assert seen["peak"] == peak


def test_a_soft_limit_of_open_files_is_raised_before_it_is_met(shared: Path, tmp_path: Path, backend: str) -> None:
    """Under a soft limit of 60 files a hundred connections would fail in the middle."""
    narrow = ["sh", "-c", 'ulimit -Sn 60; exec "$@"', "sh"]
    with server(shared, "--latency", "4") as address:
        options = {"max_connections": 100, "max_tasks": 2}
        done = evaluate("command line", address, tmp_path, backend, prefix=narrow, **options)
        assert done.returncode == 0, done.stdout + done.stderr
        assert stats(address)["peak"] > 60


def test_a_hard_limit_of_open_files_is_told_before_anything_starts(shared: Path, tmp_path: Path, backend: str) -> None:
    narrow = ["sh", "-c", 'ulimit -n 150; exec "$@"', "sh"]
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 150
    with server(shared) as address:
        done = evaluate("command line", address, tmp_path, backend, prefix=narrow, max_connections=80, max_tasks=2)
        assert done.returncode == 2, done.stdout + done.stderr
        assert "this process may have at most 150: lower max_connections" in done.stderr
        assert done.stderr.count("\n") == 1
        assert stats(address)["requests"] == 0
    assert not (tmp_path / "logs").exists()
