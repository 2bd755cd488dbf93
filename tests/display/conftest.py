"""A run to be watched: the engine's counters, moved by a script instead of an engine."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import anyio
import pytest

from proctor.evaluation.view import RunView, TaskView
from proctor.testing import outside

Show = Callable[[RunView], Awaitable[None]]


class FakeTerminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    async def drawn(self) -> None:
        """Return when the display's thread has written something: in virtual time it may lag behind."""
        while not self.getvalue():
            with outside():
                await anyio.to_thread.run_sync(time.sleep, 0.001)

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Make it standard output, and see to it that it is when the block ends."""
        # Not a fixture: pytest puts its own there when a test begins.
        before, sys.stdout = sys.stdout, self
        try:
            yield
            assert sys.stdout is self, "standard output was not given back"
        finally:
            sys.stdout = before


class ScriptedRun:
    """A run of some tasks, each `samples` long and one sample every `pace` seconds, all at once."""

    def __init__(self) -> None:
        self.view: RunView

    def plan(self, *models: str, samples: int = 10, log_dir: str = "logs") -> RunView:
        tasks = [TaskView(id=str(i), name="arithmetic", model=model, total=samples) for i, model in enumerate(models)]
        self.view = RunView(tasks, started=anyio.current_time(), log_dir=log_dir)
        return self.view

    def start(self, task: TaskView) -> None:
        task.status, task.started, task.running = "started", anyio.current_time(), 1
        self.view.changed += 1

    def sample(self, task: TaskView, *, error: bool = False) -> None:
        task.done += 1
        task.errors += error
        task.tokens += 100
        self.view.changed += 1

    def end(self, task: TaskView, status: str = "success", *, error: str | None = None, log: bool = True) -> None:
        task.status, task.error, task.ended, task.running = status, error, anyio.current_time(), 0  # type: ignore[assignment]
        task.log = f"logs/arithmetic_{task.id}.eval" if log else None
        self.view.changed += 1

    def finish(self) -> None:
        self.view.ended = True
        self.view.changed += 1

    async def play(self, task: TaskView, pace: float) -> None:
        self.start(task)
        for _ in range(task.total or 0):
            await anyio.sleep(pace)
            self.sample(task)
        self.end(task)

    async def play_all(self, show: Show, *, pace: float = 1.0) -> None:
        """Play every task to its end under a display."""
        async with anyio.create_task_group() as watching:
            watching.start_soon(show, self.view)
            async with anyio.create_task_group() as tasks:
                for task in self.view.tasks:
                    tasks.start_soon(self.play, task, pace)
            self.finish()


@pytest.fixture
def scripted() -> ScriptedRun:
    return ScriptedRun()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> FakeTerminal:
    """A terminal of 120 columns; `terminal.shown()` makes it standard output."""
    for name, value in {"TERM": "xterm", "COLUMNS": "120", "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    return FakeTerminal()
