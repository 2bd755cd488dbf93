"""``proctor log``: logs listed, shown and printed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from proctor.log import EvalLog, EvalMetric, EvalResults, EvalScore, write_eval_log
from proctor.log.records import EvalConfig, EvalDataset, EvalError, EvalSpec


def written(folder: Path, name: str, **values: Any) -> Path:
    """A log file of a made-up run."""
    folder.mkdir(exist_ok=True)
    metrics = {"accuracy": EvalMetric(name="accuracy", value=0.25), "odd": EvalMetric(name="odd", value=math.nan)}
    log = EvalLog(
        status=values.pop("status", "success"),
        eval=EvalSpec(
            created="2026-01-02T03:04:05+00:00",
            task=name,
            dataset=EvalDataset(),
            model="mock/m\x1b[2J",
            config=EvalConfig(),
        ),
        results=EvalResults(
            total_samples=4, completed_samples=3, scores=[EvalScore(name="match", scorer="match", metrics=metrics)]
        ),
        samples=[],
        **values,
    )
    path = folder / f"2026-01-02T03-04-05-00-00_{name}_abcdefghijklmnopqrstuv.eval"
    write_eval_log(log, path)
    return path


def test_logs_are_listed_by_status_and_as_json(cli: Any, clean: Path) -> None:
    good = written(clean / "logs", "good")
    bad = written(clean / "logs", "bad", status="error")
    listed = cli("log", "list").out.splitlines()
    assert sorted(listed) == sorted([f"logs/{good.name}", f"logs/{bad.name}"])
    assert cli("log", "list", "--status", "error").out == f"logs/{bad.name}\n"
    assert str(bad) in cli("log", "list", "--absolute").out
    rows = json.loads(cli("log", "list", "--json", "--log-dir", "logs").out)
    assert {row["task"] for row in rows} == {"good", "bad"}


def test_the_folder_comes_from_the_environment(cli: Any, clean: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(clean / "elsewhere", "good")
    monkeypatch.setenv("INSPECT_LOG_DIR", str(clean / "elsewhere"))
    assert cli("log", "list").out == f"elsewhere/{path.name}\n"


def test_a_log_is_printed_as_json(cli: Any, clean: Path) -> None:
    path = written(clean, "good")
    outcome = cli("log", "dump", str(path), "--header-only")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["eval"]["task"] == "good"
    assert math.isnan(found["results"]["scores"][0]["metrics"]["odd"]["value"])
    assert "\x1b" not in outcome.out
    assert json.loads(cli("log", "dump", str(path)).out)["samples"] == []


def test_headers_are_a_list(cli: Any, clean: Path) -> None:
    paths = [str(written(clean, name)) for name in ("one", "two")]
    assert [each["eval"]["task"] for each in json.loads(cli("log", "headers", *paths).out)] == ["one", "two"]


def test_a_log_is_shown_in_a_few_lines_that_cannot_write_to_the_terminal(cli: Any, clean: Path) -> None:
    path = written(clean, "good", status="error", error=EvalError(message="boom\x07", traceback="", traceback_ansi=""))
    outcome = cli("log", "show", str(path))
    assert outcome.code == 0, outcome.err
    for line in ("task      good", "status    error", "samples   3 of 4", "score     match: accuracy 0.250, odd nan"):
        assert line in outcome.out.splitlines()
    assert "mock/m\\x1b[2J" in outcome.out
    assert "boom\\x07" in outcome.out
    assert cli("log", "show", str(path), str(path)).out == f"{outcome.out}\n{outcome.out}"


@pytest.mark.parametrize("command", ["dump", "show", "headers"])
def test_what_is_no_log_is_a_mistake(cli: Any, clean: Path, command: str) -> None:
    (clean / "x.eval").write_text("this is no log")
    for name in ("nowhere.eval", "x.eval"):
        outcome = cli("log", command, name)
        assert (outcome.code, outcome.out) == (2, "")
        assert name in outcome.err
        assert outcome.err.count("\n") == 1


def test_a_status_that_there_is_not_is_a_mistake(cli: Any) -> None:
    outcome = cli("log", "list", "--status", "done")
    assert outcome.code == 2
    assert "success" in outcome.err
