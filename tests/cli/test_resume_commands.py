"""``proctor retry``, ``eval-set``, ``score``, ``log recover`` and ``log convert``, and logs in the JSON format."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor.cli.retry import RetryCommand
from proctor.log import EvalLog, read_eval_log
from proctor.log.evalfile import wal_path

TASK = """
from pathlib import Path
from proctor import Task, task
from proctor.dataset import Sample
from proctor.scorer import includes
from proctor.solver import solver

@solver
def noting():
    async def solve(state, generate):
        with Path("ran").open("a") as file:
            file.write(f"{state.sample_id}\\n")
        if state.sample_id == 2 and not Path("mended").exists():
            raise ValueError("no")
        return await generate(state)
    return solve

@task
def sums(n=3):
    return Task([Sample(f"q{i}", id=i, target="Default") for i in range(n)], solver=noting(), scorer=includes())
"""
QUIET = ("--display", "none")


@pytest.fixture
def failed(cli: Any, clean: Path) -> Path:
    """The log of a run of which one sample failed."""
    (clean / "sums.py").write_text(TASK)
    assert cli("eval", "sums.py", "--model", "mockllm/model", *QUIET).code == 1
    [path] = (clean / "logs").iterdir()
    (clean / "mended").touch()
    (clean / "ran").unlink()
    return path.relative_to(clean)


def ran(clean: Path) -> list[int]:
    file = clean / "ran"
    found = [int(line) for line in file.read_text().splitlines()] if file.exists() else []
    file.unlink(missing_ok=True)
    return found


def test_a_log_is_gone_on_in(cli: Any, clean: Path, failed: Path) -> None:
    outcome = cli("retry", str(failed), "--display", "plain")
    assert outcome.code == 0
    assert "2 of its samples are done and will be reused; run again: 1 failed" in outcome.out
    assert "2 samples reused without a request; run: 1 failed" in outcome.out
    assert ran(clean) == [2]
    assert read_eval_log(failed).status == "success"
    assert cli("retry", str(failed), *QUIET).code == 0
    assert ran(clean) == []


def test_flags_go_before_what_the_log_says(
    cli: Any, clean: Path, failed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (clean / "mended").unlink()
    assert cli("retry", str(failed), *QUIET).code == 1
    assert cli("retry", str(failed), "--no-fail-on-error", "--max-connections", "2", *QUIET).code == 0
    log = read_eval_log(failed, header_only=True)
    assert (log.eval.config.fail_on_error, log.eval.model_generate_config.max_connections) == (False, 2)
    monkeypatch.setenv("PROCTOR_EVAL_MAX_CONNECTIONS", "9")
    assert cli("retry", str(failed), *QUIET).code == 0
    assert read_eval_log(failed, header_only=True).eval.model_generate_config.max_connections == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "missing argument"),
        (("none.eval",), "none.eval: the log cannot be read: no such file"),
        (("sums.py",), "sums.py"),
        (("--limit", "3", "x.eval"), "no such option"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("failed")
def test_a_mistake_is_told_in_a_line(cli: Any, arguments: tuple[str, ...], said: str) -> None:
    outcome = cli("retry", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert "Traceback" not in outcome.err


def test_what_a_log_decides_has_no_flag() -> None:
    offered = {option.parameter for option in RetryCommand.offered}
    assert {"model_base_url", "max_connections", "max_samples", "fail_on_error", "display", "log_cleanup"} <= offered
    assert not offered & {"limit", "sample_id", "sample_shuffle", "task_args", "tags", "temperature", "dry_run"}


def test_a_set_is_tried_until_it_is_done_and_then_left_alone(cli: Any, clean: Path) -> None:
    (clean / "sums.py").write_text(TASK)
    command = ["eval-set", "sums.py", "--model", "mockllm/model", "--log-dir", "set", "--retry-wait", "0.01", *QUIET]
    assert cli(*command, "--retry-attempts", "2").code == 1
    assert ran(clean).count(2) == 2
    (clean / "mended").touch()
    outcome = cli(*command)
    assert (outcome.code, "all done: 1 log is a success" in outcome.err) == (0, True)
    assert ran(clean) == [2]
    assert cli(*command).code == 0
    assert ran(clean) == []
    [log] = (clean / "set").iterdir()
    assert read_eval_log(log).status == "success"


def test_how_often_can_be_said_in_the_environment(cli: Any, clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (clean / "sums.py").write_text(TASK)
    monkeypatch.setenv("PROCTOR_EVAL_RETRY_ATTEMPTS", "3")
    monkeypatch.setenv("INSPECT_EVAL_RETRY_WAIT", "0.01")
    assert cli("eval-set", "sums.py", "--model", "mockllm/model", *QUIET).code == 1
    assert ran(clean).count(2) == 3
    outcome = cli("eval-set", "sums.py", "--model", "mockllm/model", "--retry-attempts", "0", *QUIET)
    assert (outcome.code, "retry-attempts" in outcome.err) == (2, True)


def test_a_log_is_scored_anew(cli: Any, clean: Path, failed: Path) -> None:
    outcome = cli("score", str(failed), "--scorer", "match", "-S", "location=any")
    assert outcome.code == 0
    assert "match: accuracy" in outcome.out
    scored = failed.with_name(f"{failed.stem}-scored.eval")
    assert {name for s in read_eval_log(scored).samples or () for name in s.scores or ()} == {"includes", "match"}
    outcome = cli("score", str(failed), "--scorer", "match")
    assert (outcome.code, "exists" in outcome.err) == (2, True)
    assert cli("score", str(failed), "--action", "overwrite", "--overwrite").code == 0
    assert [list(s.scores or ()) for s in read_eval_log(failed).samples or ()] == [["includes"]] * 3
    assert ran(clean) == []
    assert cli("score", str(failed), "--scorer", "no_such").code == 2
    assert cli("score", str(failed), "-S", "location").code == 2


def test_a_crashed_log_is_recovered(cli: Any, clean: Path, failed: Path) -> None:
    whole = failed.read_bytes()
    failed.write_bytes(whole[:-30])
    outcome = cli("log", "recover", str(failed))
    assert outcome.code == 0
    assert "3 samples; to run what is missing: proctor retry" in outcome.out
    recovered = failed.with_name(f"{failed.stem}-recovered.eval")
    assert len(read_eval_log(recovered).samples or ()) == 3
    assert cli("log", "recover", str(failed), "--overwrite").code == 0
    assert read_eval_log(failed).status == "started"
    assert not wal_path(failed).exists()
    assert cli("log", "recover", str(failed), "--overwrite", "--output", "x.eval").code == 2
    assert cli("log", "recover", "sums.py").code == 2
    assert clean.exists()


def test_logs_are_converted_both_ways(cli: Any, clean: Path, failed: Path) -> None:
    assert cli("log", "convert", "logs", "--to", "json", "--output-dir", "out").code == 0
    [made] = (clean / "out").iterdir()
    assert made.name == f"{failed.stem}.json"
    keys = list(json.loads(made.read_text()))
    assert keys.index("samples") > keys.index("status")
    assert cli("log", "convert", "logs", "--to", "json", "--output-dir", "out").code == 2
    assert cli("log", "convert", str(made), "--to", "eval", "--output-dir", "back", "--overwrite").code == 0
    [back] = (clean / "back").iterdir()
    one, other = read_eval_log(failed), read_eval_log(back)
    assert (one.status, one.samples, one.results) == (other.status, other.samples, other.results)
    assert cli("log", "convert", "nowhere", "--to", "eval", "--output-dir", "back").code == 2


def test_logs_are_exported_as_json_when_they_end(cli: Any, clean: Path, failed: Path) -> None:
    assert (
        cli("eval", "sums.py", "--model", "mockllm/model", "--log-dir", "j", "--log-format", "json", *QUIET).code == 0
    )
    [path] = (clean / "j").iterdir()
    assert path.suffix == ".json"
    log: EvalLog = read_eval_log(path)
    assert (log.status, len(log.samples or ())) == ("success", 3)
    assert failed.suffix == ".eval"
    ran(clean)
    assert cli("retry", str(path), *QUIET).code == 0
    assert ran(clean) == []


def test_a_converted_log_is_read_a_sample_at_a_time(failed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.log import whole
    from proctor.log.convert import convert_log
    from proctor.log.logfile import LogFile

    steps: list[str] = []
    read, write = LogFile.sample, whole.encode_record
    monkeypatch.setattr(LogFile, "sample", lambda *args: steps.append("read") or read(*args))  # type: ignore[func-returns-value]
    monkeypatch.setattr(whole, "encode_record", lambda *args: steps.append("written") or write(*args))  # type: ignore[func-returns-value]
    convert_log(failed, failed.with_suffix(".json"))
    assert steps == ["read", "written"] * 3
