"""``proctor plan`` and ``proctor eval --dry-run``: the plan as text and as JSON, and nothing is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TASKS = """
from proctor import Task, task
from proctor.dataset import Sample
from proctor.solver import solver

@solver
def never():
    async def solve(state, generate):
        raise AssertionError("run while planning")
    return solve

@task
def sums(count: int = 50):
    return Task([Sample("x") for _ in range(count)], solver=never(), message_limit=7)
"""


@pytest.fixture
def file(clean: Path) -> str:
    (clean / "t.py").write_text(TASKS)
    return "t.py"


def test_the_plan_as_text(cli: Any, file: str, monkeypatch: pytest.MonkeyPatch, clean: Path) -> None:
    monkeypatch.setenv("PROCTOR_EVAL_EPOCHS", "2")
    monkeypatch.setenv("PROCTOR_EVAL_MESSAGE_LIMIT", "3")
    outcome = cli(
        "plan", file, "--model", "mock/a,mock/b", "--temperature", "0,0.5", "--max-tasks", "3", "-T", "count=5",
        "--requests-per-minute", "10",
    )  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "4 runs of 1 task on 2 models: 40 samples"
    rows = [line.split() for line in lines]
    assert ["1", "sums", "mock/a", "temperature=0", "10", "5", "×", "2", "epochs"] in rows
    assert ["4", "sums", "mock/b", "temperature=0.5", "10", "5", "×", "2", "epochs"] in rows
    assert ["max_tasks", "3", "command", "line"] in rows
    assert ["epochs", "2", "environment", "variable", "PROCTOR_EVAL_EPOCHS"] in rows
    assert ["message_limit", "7", "task"] in rows
    assert ["max_samples", "11", "built-in", "(max_connections", "+", "1)"] in rows
    assert next(row[:3] for row in rows if row[:1] == ["max_connections"]) == ["max_connections", "10", "provider"]
    assert "mock/a: 20 calls (one a sample) at 10 a minute take at least 2:00" in lines
    assert "shortest possible time: 2:00" in lines
    assert [path.name for path in clean.iterdir() if path.suffix != ".py" and path.name != "__pycache__"] == []


def test_limits_that_differ_name_their_runs(cli: Any, clean: Path) -> None:
    (clean / "two.py").write_text(
        "from proctor import Task, task\nfrom proctor.dataset import Sample\nfrom proctor.model import GenerateConfig\n"
        "@task\ndef a():\n    return Task([Sample('x')])\n"
        "@task\ndef b():\n    return Task([Sample('x')], time_limit=5, config=GenerateConfig(max_connections=3))\n"
    )
    lines = cli("plan", "two.py", "--model", "mock/m,mock/n").out.splitlines()
    rows = [line.split() for line in lines]
    assert next(row[:3] for row in rows if row[:1] == ["max_connections"]) == ["max_connections", "10", "provider"]
    assert ["3", "task", "runs", "2,", "4"] in rows
    assert ["time_limit", "none", "built-in", "runs", "1,", "3"] in rows
    assert ["5", "task", "runs", "2,", "4"] in rows


def test_the_plan_as_json_by_either_command(cli: Any, file: str) -> None:
    arguments = (file, "--model", "mock/a", "--max-samples", "5", "--json")
    outcome = cli("plan", *arguments)
    found = json.loads(outcome.out)
    assert json.loads(cli("eval", "--dry-run", *arguments).out) == found
    assert (outcome.code, found["total"], found["fits"], found["seconds"]) == (0, 50, True, None)
    [run] = found["runs"]
    assert (run["task"], run["model"], run["samples"], run["varied"]) == ("sums", "mock/a", 50, {})
    assert run["limits"]["max_samples"] == {"value": 5, "source": "command line", "note": ""}
    assert found["limits"]["max_tasks"]["value"] == 1
    assert found["warnings"][0].startswith("mock/a: at most 5 samples run at once (max_samples)")


def test_json_is_for_plans(cli: Any, file: str) -> None:
    outcome = cli("eval", file, "--model", "mock/a", "--json")
    assert outcome.code == 2
    assert outcome.err == "proctor: --json shows a plan: give --dry-run too, or use proctor plan\n"


def test_a_dry_run_by_variable(cli: Any, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_EVAL_DRY_RUN", "true")
    assert cli("eval", file, "--model", "mock/a").out.startswith("1 run of 1 task on 1 model: 50 samples\n")


def test_a_mistake_is_one_message(cli: Any, file: str) -> None:
    outcome = cli("plan", file)
    assert outcome.code == 2
    assert outcome.err.startswith("proctor: no model was given for task sums")
    assert cli("plan", file, "--model", "mock/a", "-T", "cuont=3").err.startswith("proctor: task sums has no argument")
    assert cli("plan", file, "--model", "mock/a", "--max-tasks", "0").code == 2


def test_a_plan_that_cannot_fit_is_exit_code_1(cli: Any, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.runtime.descriptors import Descriptors

    monkeypatch.setattr("proctor.evaluation.report.descriptors", lambda: Descriptors(50, 60))
    outcome = cli("plan", file, "--model", "mock/a")
    assert outcome.code == 1
    assert "warning: the plan can need" in outcome.out


def test_names_from_tasks_and_models_reach_a_terminal_escaped(cli: Any, clean: Path) -> None:
    (clean / "bad.py").write_text(
        "from proctor import Task, task\nfrom proctor.dataset import Sample\n"
        "@task(name='x\\x1b[2J')\ndef bad():\n    return Task([Sample('x')])\n"
    )
    outcome = cli("plan", "bad.py", "--model", "mock/a\x1b]0;owned\x07", "--max-samples", "1")
    assert outcome.code == 0
    assert "\x1b" not in outcome.out
    assert "x\\x1b[2J" in outcome.out
