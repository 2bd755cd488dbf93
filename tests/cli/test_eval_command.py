"""``proctor eval``: what reaches the engine, and what comes back as an exit code."""

from __future__ import annotations

import signal
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from proctor.cli.eval import completed
from proctor.errors import DatasetError, ModelGivenUp, NotFoundError, UsageError


def proctor_code(function: Any) -> Any:
    """The function as if it stood in a file of proctor's."""
    from proctor.cli.report import PACKAGE

    code = function.__code__.replace(co_filename=f"{PACKAGE}/somewhere.py")
    return type(function)(code, function.__globals__)


def log(status: str = "success", message: str | None = None) -> Any:
    error = None if message is None else SimpleNamespace(message=message)
    spec = SimpleNamespace(task="arithmetic", model="mock/m")
    return SimpleNamespace(status=status, error=error, eval=spec, location="logs/a.eval")


def test_everything_given_reaches_the_engine(cli: Any, called: Any) -> None:
    outcome = cli(
        "eval", "a.py@x", "b.py", "--model", "mock/a,mock/b", "-T", "data=x.jsonl", "-T", "n=3", "-M", "api-key=k",
        "--limit", "11-20", "--max-tasks=2", "--max-connections", "10", "--temperature", "0.5", "--no-score",
        "--retry-on-error", "--log-dir", "out", "--display", "plain", "--metadata", "who=me", "--tags", "a,b",
        "--message-limit", "5", "--no-fail-on-error", "--system-message", "-", "--seed", "-1",
    )  # fmt: skip
    assert (outcome.code, outcome.err) == (0, "")
    assert called.tasks == ["a.py@x", "b.py"]
    assert called.options == {
        "model": "mock/a,mock/b", "task_args": {"data": "x.jsonl", "n": 3}, "model_args": {"api_key": "k"},
        "limit": (10, 20), "max_tasks": 2, "max_connections": 10, "temperature": 0.5, "score": False,
        "retry_on_error": 1, "log_dir": "out", "display": "plain", "metadata": {"who": "me"}, "tags": ["a", "b"],
        "message_limit": 5, "fail_on_error": False, "system_message": "-", "seed": -1,
    }  # fmt: skip


def test_what_is_not_given_is_left_to_the_engine(cli: Any, called: Any) -> None:
    assert cli("eval").code == 0
    assert (called.tasks, called.options) == (None, {})


def test_variables_are_left_to_the_engine_where_tasks_go_before_them(
    cli: Any, called: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_EVAL_MAX_TASKS", "3")
    monkeypatch.setenv("INSPECT_EVAL_TASK_ARGS", "a=1 b=two")
    assert cli("eval", "--max-tasks", "5").code == 0
    assert (called.options, called.sources) == ({"max_tasks": 5}, {"command line"})


def test_a_reducer_completes_epochs_from_wherever_they_come(
    cli: Any, called: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("eval", "--epochs", "3", "--epochs-reducer", "mean,max").code == 0
    made = called.options["epochs"]
    assert (made.epochs, len(made.reducer)) == (3, 2)
    outcome = cli("eval", "--epochs-reducer", "mean")
    assert (outcome.code, called.calls) == (2, 1)
    assert "--epochs-reducer needs --epochs" in outcome.err
    monkeypatch.setenv("INSPECT_EVAL_EPOCHS", "5")
    assert cli("eval", "--epochs-reducer", "max").code == 0
    assert called.options["epochs"].epochs == 5


def test_what_the_command_line_does_itself_has_variables_too(
    cli: Any, called: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr("proctor.cli.outcome.messages_to_stderr", lambda level: nullcontext(seen.append(level)))
    cli("eval")
    monkeypatch.setenv("INSPECT_LOG_LEVEL", "info")
    cli("eval")
    cli("eval", "--log-level", "error")
    assert seen == ["warning", "info", "error"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--retry-on-error"], ["--retry-on-error=1"]),
        (["--retry-on-error", "3", "a.py"], ["--retry-on-error", "3", "a.py"]),
        (["--retry-on-error", "a.py"], ["--retry-on-error=1", "a.py"]),
        (["--retry-on-error=3"], ["--retry-on-error=3"]),
        (["--fail-on-error", "0.1"], ["--fail-on-error", "0.1"]),
        (["--fail-on-error", "--limit", "3"], ["--fail-on-error=true", "--limit", "3"]),
        (["--no-fail-on-error", "a.py"], ["--no-fail-on-error=true", "a.py"]),
        (["--sample-shuffle", "42"], ["--sample-shuffle", "42"]),
        (["--sample-shuffle"], ["--sample-shuffle=true"]),
        (["a.py", "--", "--retry-on-error"], ["a.py", "--", "--retry-on-error"]),
    ],
)
def test_flags_that_may_stand_alone(arguments: list[str], expected: list[str]) -> None:
    assert completed(arguments) == expected


def test_all_successes_are_exit_code_0_and_anything_else_is_1(cli: Any, called: Any) -> None:
    called.logs = [log(), log()]
    assert cli("eval").code == 0
    for status in ("error", "cancelled", "started"):
        called.logs = [log(), log(status)]
        assert cli("eval").code == 1


def test_without_a_display_failures_are_still_told(cli: Any, called: Any) -> None:
    called.logs = [log(), log("error", "the key was refused\x1b[2J")]
    outcome = cli("eval", "--display", "none")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        "proctor: arithmetic (mock/m) ended with status error: the key was refused\\x1b[2J; log: logs/a.eval\n"
    )


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NotFoundError("task file a.py does not exist"), 2),
        (DatasetError("data.csv, row 3, column target: missing"), 2),
        (ModelGivenUp("the key was refused", status=401), 1),
        (ExceptionGroup("both", [UsageError("one"), UsageError("two"), UsageError("one")]), 2),
        (ExceptionGroup("both", [UsageError("one"), ModelGivenUp("two")]), 1),
    ],
)
def test_a_mistake_is_one_message_and_no_traceback(cli: Any, called: Any, error: Exception, code: int) -> None:
    called.error = error
    outcome = cli("eval", "a.py")
    assert outcome.code == code
    messages = [str(e) for e in error.exceptions] if isinstance(error, ExceptionGroup) else [str(error)]
    assert outcome.err.splitlines() == [f"proctor: {text}" for text in dict.fromkeys(messages)]


def test_the_context_of_a_mistake_is_told(cli: Any, called: Any) -> None:
    called.error = UsageError("the file is empty")
    called.error.add_note("in dataset data.csv")
    assert cli("eval", "a.py").err == "proctor: the file is empty\nin dataset data.csv\n"


def test_what_nobody_expected_is_short_and_its_traceback_is_kept(
    cli: Any, called: Any, clean: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(clean))

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("division by zero\x1b[2J")

    monkeypatch.setattr("proctor.cli.outcome.messages_to_stderr", proctor_code(fail))
    outcome = cli("eval", "a.py")
    assert outcome.code == 1
    assert "Traceback" not in outcome.err
    assert outcome.err.startswith("proctor: ZeroDivisionError: division by zero\\x1b[2J\n  at ")
    assert "a fault of proctor" in outcome.err
    [kept] = clean.glob("proctor-*.txt")
    assert str(kept) in outcome.err
    assert "Traceback" in kept.read_text()


def test_an_error_of_a_task_function_is_shown_at_its_line_and_not_blamed_on_proctor(
    cli: Any, clean: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(clean))
    (clean / "broken.py").write_text("def made():\n    import json\n    return json.loads('{')\n")
    namespace: dict[str, Any] = {}
    exec(compile((clean / "broken.py").read_text(), str(clean / "broken.py"), "exec"), namespace)
    monkeypatch.setattr("proctor.evaluation.api.eval", lambda *_, **__: namespace["made"]())
    outcome = cli("eval", "a.py")
    assert outcome.code == 1
    assert outcome.err.startswith("proctor: JSONDecodeError: Expecting property name")
    assert outcome.err.endswith(f"  at {clean / 'broken.py'}, line 3, in made\n    return json.loads('{{')\n")
    assert not list(clean.glob("proctor-*.txt"))


def test_ctrl_c_is_130(cli: Any, called: Any) -> None:
    called.error = KeyboardInterrupt()
    outcome = cli("eval", "a.py")
    assert (outcome.code, outcome.err) == (130, "proctor: interrupted\n")


def test_sigterm_ends_a_run_as_ctrl_c_does_and_is_143(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.evaluation import api

    def eval(*_: Any, **__: Any) -> Any:
        signal.raise_signal(signal.SIGTERM)  # in this thread, before the next line
        raise AssertionError("not interrupted")

    monkeypatch.setattr(api, "eval", eval)
    before = signal.getsignal(signal.SIGTERM)
    outcome = cli("eval", "a.py")
    assert (outcome.code, outcome.err) == (143, "proctor: terminated\n")
    assert signal.getsignal(signal.SIGTERM) is before


def test_without_a_display_by_variable_failures_are_told_too(
    cli: Any, called: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_DISPLAY", "none")
    called.logs = [log("error", "the key was refused")]
    assert "the key was refused" in cli("eval").err
    assert cli("eval", "--display", "plain").err == ""


def test_a_flag_that_cannot_be_read_starts_nothing(cli: Any, called: Any) -> None:
    outcome = cli("eval", "a.py", "--max-tasks", "none")
    assert (outcome.code, called.calls) == (2, 0)
    assert outcome.err == "proctor: --max-tasks must be a whole number of at least 1, not 'none'\n"


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--max-taks", "3"], "no such option: --max-taks"),
        (["--max-tasks"], "requires an argument"),
        (["-Tx"], "name=value"),
        (["--display"], "requires an argument"),
    ],
)
def test_mistakes_in_flags_are_one_line(cli: Any, called: Any, arguments: list[str], part: str) -> None:
    outcome = cli("eval", "a.py", *arguments)
    assert (outcome.code, called.calls, outcome.out) == (2, 0, "")
    assert part in outcome.err
    assert outcome.err.count("\n") == 1


def test_messages_of_logging_are_shown_escaped_from_the_level_asked_for(
    cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import logging

    from proctor.evaluation import api

    def eval(*_: Any, **__: Any) -> list[Any]:
        logging.getLogger("x").info("hidden")
        logging.getLogger("x").warning("model said %s", "\x1b]0;owned\x07")
        return []

    monkeypatch.setattr(api, "eval", eval)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    assert cli("eval", "--display", "none").err == "proctor: warning: model said \\x1b]0;owned\\x07\n"
    assert "hidden" in cli("eval", "--display", "none", "--log-level", "info").err
    assert logging.getLogger().handlers == []


def test_help_has_every_flag_under_its_heading(cli: Any) -> None:
    from proctor.runtime.options import OPTIONS

    outcome = cli("eval", "--help")
    assert outcome.code == 0
    for option in OPTIONS:
        assert option.name in outcome.out or f"{option.flag} " in outcome.out
        assert f"{option.group}:" in outcome.out
    assert "PROCTOR_EVAL_MAX_TASKS" in outcome.out


def test_help_does_not_wait_for_the_engine() -> None:
    import subprocess
    import sys

    code = (
        "import sys; from proctor.cli.app import main; main(['eval', '--help']); "
        "sys.stderr.write(' '.join({'anyio', 'msgspec', 'httpx', 'proctor.evaluation'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--max-total-samples" in done.stdout
    assert done.stderr == ""
