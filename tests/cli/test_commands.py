"""The other commands, and the front door."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

TASKS = """
from proctor import Task, task

raise RuntimeError("listing must not run the file")

@task
def addition():
    return Task()

@task(name="times", light=True)
def multiplication():
    return Task()
"""


@pytest.fixture
def tasks(clean: Path) -> Path:
    (clean / "evals").mkdir()
    (clean / "evals" / "arithmetic.py").write_text(TASKS)
    (clean / "evals" / "helpers.py").write_text("x = 1\n")
    return clean / "evals"


def test_without_arguments_there_is_help(cli: Any) -> None:
    outcome = cli()
    assert outcome.code == 0
    for command in ("eval", "plan", "list", "log", "info"):
        assert f"\n  {command}" in outcome.out
    assert cli("--help").out == cli("-h").out == outcome.out


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_that_of_the_package(cli: Any, flag: str) -> None:
    from importlib.metadata import version

    assert cli(flag).out == f"proctor {version('proctor')}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evl"], "no command is called 'evl'; did you mean eval?"),
        (
            ["wholly-different"],
            "no command is called 'wholly-different'; there are eval, eval-set, retry, score, plan, list",
        ),
        (["--foo"], "no such option: --foo; see proctor --help"),
        (["list", "taks"], "no such command 'taks'"),
        (["log", "dump"], "missing argument"),
        (["list", "tasks", "--jso"], "no such option: --jso"),
    ],
)
def test_a_slip_is_answered_with_a_hint(cli: Any, arguments: list[str], message: str) -> None:
    outcome = cli(*arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"proctor: {message}")
    assert "Traceback" not in outcome.err


def test_tasks_are_listed_without_running_their_file(cli: Any, tasks: Path) -> None:
    outcome = cli("list", "tasks")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "evals/arithmetic.py@addition\nevals/arithmetic.py@times\n"
    assert cli("list", "tasks", "evals", "--absolute").out.splitlines()[0] == f"{tasks / 'arithmetic.py'}@addition"


def test_tasks_are_listed_as_json(cli: Any, tasks: Path) -> None:
    assert json.loads(cli("list", "tasks", "evals/arithmetic.py", "--json").out) == [
        {"file": "evals/arithmetic.py", "name": "addition", "attribs": {}},
        {"file": "evals/arithmetic.py", "name": "times", "attribs": {"light": True}},
    ]


def test_tasks_are_listed_by_attribute(cli: Any, tasks: Path) -> None:
    assert cli("list", "tasks", "-F", "light=true").out == "evals/arithmetic.py@times\n"
    assert cli("list", "tasks", "-F", "light~=true").out == "evals/arithmetic.py@addition\n"
    assert cli("list", "tasks", "-F", "light").code == 2


def test_a_folder_without_tasks_says_what_a_task_is(cli: Any) -> None:
    outcome = cli("list", "tasks")
    assert outcome.code == 0
    assert "@task" in outcome.out


def test_a_folder_that_is_not_there_is_a_mistake(cli: Any) -> None:
    outcome = cli("list", "tasks", "nowhere")
    assert outcome.code == 2
    assert "nowhere does not exist" in outcome.err


def test_a_file_that_is_no_python_is_named_with_its_line(cli: Any, clean: Path) -> None:
    (clean / "broken.py").write_text("x = 1\ndef (\n")
    outcome = cli("list", "tasks", "broken.py")
    assert outcome.code == 2
    assert "broken.py, line 2" in outcome.err


def test_info_says_what_a_bug_report_needs(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INSPECT_ASYNC_BACKEND", "trio")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-canary")
    found = json.loads(cli("info", "--json").out)
    assert found["backend"] == "trio (environment variable INSPECT_ASYNC_BACKEND)"
    assert found["packages"]["anyio"]
    assert found["cpus"] >= 1
    text = cli("info").out
    assert "proctor" in text
    assert "sk-canary" not in text + str(found)


def test_a_backend_that_there_is_not_is_a_mistake(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_ASYNC_BACKEND", "curio")
    outcome = cli("info")
    assert outcome.code == 2
    assert "curio" in outcome.err
    assert "PROCTOR_ASYNC_BACKEND" in outcome.err
