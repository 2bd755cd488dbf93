"""Lines for log collectors: ``key=value`` pairs through `logging`, logger ``proctor.display``, level INFO."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from proctor.display.status import TaskStatus, Watch
from proctor.display.text import metric, printable
from proctor.display.ticks import watched
from proctor.evaluation.view import RunView

PROGRESS_EVERY: Final = 30.0
"""Seconds between two lines on the progress of a task."""

logger: Final = logging.getLogger("proctor.display")


async def show(view: RunView) -> None:
    """Log each change of a task's state, its progress every half minute, and the notes of the run.

    Where nothing is configured to take the lines, they go to standard error with the time of day.
    """
    lines = Lines(view)
    with _taken():
        await watched(view, lines.log, lines.log)


class Lines:
    """What has been logged of a run, so that nothing is logged twice."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._watch = Watch(view)
        self._states: dict[str, str] = {}
        self._note = ""
        self._due = view.started + PROGRESS_EVERY

    def log(self, now: float) -> None:
        """Log what is new."""
        for message in self._watch.messages():
            logger.info("message=%s", _quoted(message))
        if not self._watch.changed:
            return
        if self._view.note != self._note:
            self._note = self._view.note
            logger.info("note=%s", _quoted(self._note))
        due = now >= self._due
        if not due and all(self._states.get(task.id, "waiting") == task.status for task in self._view.tasks):
            return
        if due:
            self._due = now + PROGRESS_EVERY
        for task in self._watch.look(now).tasks:
            if self._states.get(task.id, "waiting") != task.state or (due and task.state == "started"):
                self._states[task.id] = task.state
                logger.info("%s", _line(task))


def _line(task: TaskStatus) -> str:
    pairs: dict[str, object] = {"task": task.name, "model": task.model, "status": task.state, "done": task.done}
    pairs |= {} if task.total is None else {"total": task.total}
    pairs |= {"running": task.running, "errors": task.errors, "retries": task.retries, "tokens": task.tokens}
    pairs |= {name: metric(value) for name, value in task.metrics}
    pairs |= {} if task.log is None else {"log": task.log}
    pairs |= {} if task.error is None else {"error": task.error}
    return " ".join(f"{_key(key)}={_quoted(value)}" for key, value in pairs.items())


def _key(name: str) -> str:
    return printable(name).replace(" ", "_").replace("=", "_")


def _quoted(value: object) -> str:
    text = printable(value)
    return text if text and not any(c in text for c in ' "=') else json.dumps(text, ensure_ascii=False)


@contextmanager
def _taken() -> Iterator[None]:
    """Let the lines through, to standard error where no handler is configured; put all back afterwards."""
    level = logger.level
    handler = None if logger.hasHandlers() else logging.StreamHandler(sys.stderr)
    if handler is not None:
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
    if not logger.isEnabledFor(logging.INFO):
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        if handler is not None:
            logger.removeHandler(handler)
