"""The table that ends a run says everything, in the width there is."""

from __future__ import annotations

import pytest

from proctor.display.results import results, table
from proctor.display.status import RunStatus, run_status
from proctor.display.text import cells
from proctor.evaluation.view import RunView, TaskView


def status(*tasks: TaskView, log_dir: str = "logs") -> RunStatus:
    view = RunView(list(tasks), started=0.0, log_dir=log_dir, ended=True)
    return run_status(view, 61.0)


def task(model: str = "mock/m", **values: object) -> TaskView:
    plain = {"id": model, "name": "arithmetic", "model": model, "total": 20, "done": 20, "status": "success"}
    plain |= {"started": 0.0, "ended": 61.0, "tokens": 5000, "log": f"logs/arithmetic_{model[-1]}.eval"}
    plain |= {"metrics": lambda: {"accuracy": 0.65, "stderr": 0.109}}
    return TaskView(**{**plain, **values})  # type: ignore[arg-type]


def test_every_figure_is_in_the_table() -> None:
    lines = results(status(task()))
    assert lines[0].split() == ["task", "model", "status", "accuracy", "stderr", "samples", "errors", "time", "log"]
    assert lines[2].split() == [
        "arithmetic", "mock/m", "success", "0.650", "0.109", "20", "0", "1:01", "logs/arithmetic_m.eval",
    ]  # fmt: skip
    assert "20 samples, 5.0k tokens in 1:01" in lines
    assert lines[-1] == "Logs are in logs; to open them:  inspect view --log-dir logs"


def test_a_log_folder_with_a_space_can_be_pasted_into_a_shell() -> None:
    assert results(status(task(), log_dir="my logs"))[-1].endswith("inspect view --log-dir 'my logs'")


def test_nothing_is_offered_to_be_opened_when_there_is_no_log() -> None:
    text = "\n".join(results(status(task(log=None, status="error", error="refused"))))
    assert "inspect view" not in text


def test_samples_that_are_missing_are_told() -> None:
    found = table(status(task(done=12, cancelled=3, status="cancelled")))
    row = dict(zip(found.headers, found.rows[0], strict=True))
    assert (row["samples"], row["cancelled"], row["status"]) == ("12/20", "3", "cancelled")


def test_each_metric_has_a_column_and_a_task_without_it_a_gap() -> None:
    found = table(status(task("a/1"), task("a/2", metrics=lambda: {"f1": 0.5})))
    assert found.headers[3:6] == ("accuracy", "stderr", "f1")
    assert [row[3:6] for row in found.rows] == [("0.650", "0.109", ""), ("", "", "0.500")]


def test_one_error_of_two_tasks_is_said_once_with_both_names() -> None:
    text = "the server at http://x refused the key"
    lines = results(status(*(task(f"a/{i}", status="error", error=text, log=None) for i in (1, 2))))
    assert [line for line in lines if "refused" in line] == [f"arithmetic (a/1), arithmetic (a/2): {text}"]


def test_a_long_error_is_cut_in_the_middle() -> None:
    text = "\n".join(f"line {i}" for i in range(100))
    lines = [line for line in results(status(task(status="error", error=text))) if "line" in line]
    assert len(lines) <= 14
    assert lines[0].endswith("line 0")
    assert lines[-1] == "line 99"
    assert "88 lines more in the log" in "\n".join(lines)


def test_an_error_cannot_write_to_the_terminal() -> None:
    text = "\n".join(results(status(task("m\x1b[2J", name="t\x07", status="error", error="\x1b]0;owned\x07"))))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b]0;owned\\x07" in text


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_lines_fit_the_terminal_but_for_paths_and_commands(width: int) -> None:
    wide = [task(f"openai-api/somewhere/漢字-model-{i}") for i in range(3)]
    failed = task("openai-api/x/y", status="error", error="something went wrong " * 20)
    lines = results(status(*wide, failed), width)
    too_wide = [line for line in lines if cells(line) > width and ".eval" not in line and "inspect view" not in line]
    assert too_wide == []


def test_a_narrow_terminal_gets_a_block_for_each_task_with_all_figures() -> None:
    text = "\n".join(results(status(task("openai-api/somewhere/a-long-name")), 40))
    for part in ("arithmetic", "success", "accuracy 0.650", "samples 20", "errors 0", "logs/arithmetic_e.eval"):
        assert part in text


def test_columns_line_up_under_wide_characters() -> None:
    lines = results(status(task("漢字/1"), task("ab/2")))[:4]
    ends = {cells(line.split("success")[0]) for line in lines if "success" in line}
    assert len(ends) == 1
