"""The live display: drawn in place, never trusted with the run or the terminal."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import anyio
import attrs
import pytest
from rich.console import Console

from proctor.actors import Limiter
from proctor.display import rich
from proctor.display.status import LimiterStatus, run_status
from proctor.evaluation.view import RunView, TaskView

SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def drawn(view: RunView, *, now: float = 10.0, width: int = 120, height: int = 30) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, force_terminal=False)
    with console.capture() as capture:
        console.print(rich.layout(run_status(view, now), console.size))
    return capture.get().splitlines()


def task(index: int = 0, **values: Any) -> TaskView:
    plain = {"id": str(index), "name": "arithmetic", "model": f"mock/{index}", "total": 100, "done": 25, "running": 5}
    return TaskView(**{**plain, "status": "started", "started": 0.0, **values})


def test_a_task_is_shown_with_its_counts_metrics_and_what_is_left() -> None:
    view = RunView([task(errors=2, tokens=1500, retries=3, metrics=lambda: {"accuracy": 0.5})], started=0.0)
    lines = drawn(view)
    assert lines[0].split("  ") == [
        "proctor", "0/1 task", "25/100 samples", "2.5/s", "1.5k tokens", "retries 3", "10s", "30s left",
    ]  # fmt: skip
    row = lines[2].split()
    assert row[:2] == ["arithmetic", "mock/0"]
    assert row[-6:] == ["25/100", "5", "2", "accuracy", "0.500", "30s"]


async def test_limits_and_the_note_are_shown() -> None:
    limiter = Limiter(1, name="mock/0")
    view = RunView([task()], started=0.0, note="interrupted: finishing", limiters=lambda: [limiter.statistics()])
    async with limiter.lease():
        text = "\n".join(drawn(view))
    assert "mock/0 1/1" in text
    assert "waiting" not in text
    assert "interrupted: finishing" in text


def test_limits_that_somebody_waits_for_come_first_and_take_a_few_lines() -> None:
    limiters = [
        LimiterStatus(name=f"connections of openai-api/somewhere/model-{i}", used=1, limit=2, waiting=i)
        for i in range(40)
    ]
    view = RunView([task()], started=0.0)
    status = attrs.evolve(run_status(view, 10.0), limiters=tuple(limiters))
    lines = rich._limiters(status, 100)
    assert len(lines) == rich.LIMITER_LINES
    assert max(map(len, lines)) <= 100
    assert lines[0].startswith("connections of openai-api/somewhere/model-1 1/2 +1 waiting")


def test_more_tasks_than_lines_show_the_running_ones_and_count_the_rest() -> None:
    states = ["success"] * 30 + ["started"] * 10 + ["waiting"] * 60
    view = RunView([task(i, status=s, started=0.0) for i, s in enumerate(states)], started=0.0)
    lines = drawn(view, height=20)
    assert len(lines) <= 20
    assert sum("mock/3" in line for line in lines) == 10
    assert any("success" in line and "waiting" in line for line in lines if line.startswith("…"))


@pytest.mark.parametrize("width", [30, 60, 80, 200])
def test_lines_are_no_wider_than_the_terminal(width: int) -> None:
    view = RunView([task(i, model="openai-api/somewhere/a-very-long-name") for i in range(3)], started=0.0)
    assert max(map(len, drawn(view, width=width))) <= width


def test_markup_and_control_characters_of_names_are_shown_as_they_are() -> None:
    view = RunView([task(name="[bold]x[/bold]", model="m\x1b[2J")], started=0.0, note="[red]n\x07")
    text = "\n".join(drawn(view, width=200))
    assert "[bold]x[/bold]" in text
    assert "m\\x1b[2J" in text
    assert "[red]n\\x07" in text


async def test_the_end_of_a_run_is_its_results(scripted: Any, terminal: Any) -> None:
    scripted.plan("mock/a", "mock/b", samples=5)
    with terminal.shown():
        await scripted.play_all(rich.show)
    text = SEQUENCE.sub("", terminal.getvalue())
    assert text.rstrip().endswith("inspect view --log-dir logs")
    last = text[text.rindex("status") :]
    assert last.count("success") == 2
    assert "arithmetic_1.eval" in last
    assert "10 samples, 1.0k tokens in 5.0s" in last


async def test_the_terminal_is_as_it_was_when_the_display_is_cancelled(scripted: Any, terminal: Any) -> None:
    view = scripted.plan("mock/a")
    with terminal.shown():
        async with anyio.create_task_group() as nursery:
            nursery.start_soon(rich.show, view)
            scripted.start(view.tasks[0])
            await anyio.sleep(3)
            await terminal.drawn()
            scripted.end(view.tasks[0], "cancelled")
            nursery.cancel_scope.cancel()
    written = terminal.getvalue()
    assert "0/1 task" in written
    # A cursor that is hidden stays hidden when the process is killed.
    assert "\x1b[?25l" not in written.replace("\x1b[?25l\x1b[?25h", "")
    assert "\x1b[?1049h" not in written
    assert "cancelled" in written


async def test_a_drawing_that_fails_leaves_the_run_and_the_terminal_alone_and_the_results_are_told(
    scripted: Any, terminal: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("cannot draw")

    monkeypatch.setattr(rich, "layout", fail)
    view = scripted.plan("mock/a")
    with terminal.shown():
        async with anyio.create_task_group() as nursery:
            nursery.start_soon(rich.show, view)
            await anyio.sleep(3)
            await terminal.drawn()
            scripted.end(view.tasks[0])
            scripted.finish()
    assert "arithmetic_0.eval" in terminal.getvalue()


async def test_messages_are_printed_once_above_the_live_region(scripted: Any, terminal: Any) -> None:
    view = scripted.plan("mock/a", samples=5)
    view.messages.append("model \x1b]0;owned\x07 is slow")
    with terminal.shown():
        await scripted.play_all(rich.show)
    assert terminal.getvalue().count("model \\x1b]0;owned\\x07 is slow") == 1
    assert "\x1b]0;" not in terminal.getvalue()


async def test_lines_are_written_where_there_is_no_terminal(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scripted.plan("mock/a", samples=5)
    await scripted.play_all(rich.show)
    out = capsys.readouterr().out
    assert out.startswith("proctor: 1 task on mock/a")
    assert "\x1b" not in out


async def test_a_dumb_terminal_gets_lines(scripted: Any, terminal: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    scripted.plan("mock/a", samples=5)
    with terminal.shown():
        await scripted.play_all(rich.show)
    assert "\x1b" not in terminal.getvalue()
    assert terminal.getvalue().startswith("proctor: 1 task on mock/a")


async def test_two_live_displays_do_not_share_a_terminal(scripted: Any, terminal: Any) -> None:
    other = type(scripted)()
    scripted.plan("mock/a", samples=5)
    with terminal.shown():
        async with anyio.create_task_group() as nursery:
            nursery.start_soon(scripted.play_all, rich.show)
            await anyio.sleep(2)
            await terminal.drawn()
            assert sys.stdout is not terminal, "the first display has not taken standard output over"
            other.plan("mock/b", samples=2)
            nursery.start_soon(other.play_all, rich.show)
    assert "proctor: 1 task on mock/b" in terminal.getvalue()
