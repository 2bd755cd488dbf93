"""The plain display: a header, a line now and then, the results."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.display import none as silent
from proctor.display import plain


async def test_a_run_is_told_from_its_header_to_its_results(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scripted.plan("mock/a", "mock/b", samples=20)
    scripted.view.tasks[1].total = 30
    await scripted.play_all(plain.show)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "proctor: 1 task on mock/a, mock/b, logs in logs"
    assert "arithmetic (mock/a): started, 20 samples" in lines[1]
    progress = [line for line in lines if "mock/a" in line and "running" in line]
    assert "arithmetic (mock/a): 5/20 (25%) samples, 1 running, 1.0/s, 15s left" in progress[0]
    assert len(progress) in {3, 4}
    assert any("arithmetic (mock/a): success, 20 samples in 20s" in line for line in lines)
    assert lines[-1].endswith("inspect view --log-dir logs")
    assert sum("arithmetic_0.eval" in line for line in lines) == 1


async def test_a_long_run_is_not_told_every_few_seconds(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scripted.plan("mock/a", samples=3600)
    await scripted.play_all(plain.show)
    told = [line for line in capsys.readouterr().out.splitlines() if "running" in line]
    assert 60 <= len(told) <= 110


async def test_a_run_in_which_nothing_moves_says_nothing(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    view = scripted.plan("mock/a")
    async with anyio.create_task_group() as nursery:
        nursery.start_soon(plain.show, view)
        scripted.start(view.tasks[0])
        for _ in range(1000):
            await anyio.sleep(1)
            view.changed += 1  # a sample waits for something else now; nothing to tell
        scripted.finish()
    header, started, *results = capsys.readouterr().out.splitlines()
    assert header.startswith("proctor:")
    assert "started" in started
    assert results[0] == ""


async def test_a_note_is_said_when_it_comes(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    view = scripted.plan("mock/a")
    async with anyio.create_task_group() as nursery:
        nursery.start_soon(plain.show, view)
        await anyio.sleep(3)
        view.note = "interrupted: finishing\x1b[2J"
        view.messages.append("a message\nof two lines")
        view.changed += 1
        await anyio.sleep(10)
        scripted.finish()
    said = capsys.readouterr().out
    assert "[   3s] interrupted: finishing\\x1b[2J\n" in said
    assert "a message\nof two lines\n" in said


async def test_the_last_state_is_drawn_when_the_display_is_cancelled(
    scripted: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    view = scripted.plan("mock/a")
    async with anyio.create_task_group() as nursery:
        nursery.start_soon(plain.show, view)
        scripted.start(view.tasks[0])
        scripted.sample(view.tasks[0], error=True)
        await anyio.sleep(0.05)
        scripted.end(view.tasks[0], "cancelled")
        nursery.cancel_scope.cancel()
    out = capsys.readouterr().out
    assert "cancelled" in out
    assert "1/10" in out
    assert "1 sample, 1 error" in out


async def test_a_display_ends_at_most_a_tenth_of_a_second_after_the_run(scripted: Any) -> None:
    view = scripted.plan("mock/a")
    async with anyio.create_task_group() as nursery:
        nursery.start_soon(plain.show, view)
        await anyio.sleep(1.05)
        scripted.finish()
        ended = anyio.current_time()
    assert anyio.current_time() - ended <= 0.1


async def test_many_running_tasks_are_told_in_a_few_lines(scripted: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scripted.plan(*(f"mock/{i}" for i in range(40)), samples=7)
    await scripted.play_all(plain.show)
    lines = capsys.readouterr().out.splitlines()
    assert "and 37 more" in lines[0]
    assert sum("[   5s]" in line for line in lines) == plain.TASKS_SHOWN + 2
    assert any("and 34 tasks more" in line for line in lines)


async def test_none_computes_nothing(scripted: Any) -> None:
    view = scripted.plan("mock/a")

    def fail() -> Any:
        raise AssertionError("computed for nobody")

    view.limiters = view.tasks[0].metrics = fail
    with anyio.fail_after(0.001):
        await silent.show(view)


async def test_the_reader_may_go_away(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        encoding = "utf-8"
        written = 0

        def isatty(self) -> bool:
            return False

        def flush(self) -> None: ...

        def write(self, text: str) -> int:
            self.written += 1
            raise BrokenPipeError

    gone = Gone()
    monkeypatch.setattr("sys.stdout", gone)
    scripted.plan("mock/a", samples=20)
    await scripted.play_all(plain.show)
    assert gone.written == 1
    assert scripted.view.tasks[0].done == 20
