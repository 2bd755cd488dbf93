"""Lines of text: a header, progress now and then, the results. For files, pipes, CI and terminals without colour."""

from __future__ import annotations

import shutil
from typing import Final

import anyio

from proctor.display.results import results
from proctor.display.status import RunStatus, TaskStatus, Watch
from proctor.display.terminal import Terminal
from proctor.display.text import count, duration, metric, plural, printable
from proctor.display.ticks import watched
from proctor.evaluation.view import RunView

FIRST_PROGRESS: Final = 5.0
LONGEST_PAUSE: Final = 60.0
"""Seconds between two reports of progress, at least and at most; a long run reports about every 5 % of its time."""
TASKS_SHOWN: Final = 6
LIMITERS_SHOWN: Final = 12


async def show(view: RunView) -> None:
    """Report `view` line by line until it has ended; the results are written however this ends."""
    terminal = Terminal()
    report = Report(view, terminal)
    try:
        report.begin()
        await watched(view, report.go_on, report.end)
    finally:
        terminal.close()


def tell_results(view: RunView) -> None:
    """Write the results of `view` as they are, and nothing else."""
    terminal = Terminal()
    Report(view, terminal).end(anyio.current_time())
    terminal.close()


class Report:
    """What has been said of a run, so that nothing is said twice."""

    def __init__(self, view: RunView, terminal: Terminal) -> None:
        self._view = view
        self._watch = Watch(view)
        self._terminal = terminal
        self._states: dict[str, str] = {}
        self._note = ""
        self._due = view.started + FIRST_PROGRESS
        self._done = 0

    def begin(self) -> None:
        """The header: how many tasks, on which models, where the logs go."""
        models = list(dict.fromkeys(printable(task.model) for task in self._view.tasks))
        shown = ", ".join(models[:3]) + (f" and {len(models) - 3} more" if len(models) > 3 else "")
        names = len({task.name for task in self._view.tasks})
        where = f", logs in {printable(self._view.log_dir)}" if self._view.log_dir else ""
        self._terminal.line(f"proctor: {plural(names, 'task')} on {shown or 'no model'}{where}")

    def go_on(self, now: float) -> None:
        """Say what changed: a task's state and a note at once, progress when it is due."""
        self._say_messages()
        due = now >= self._due
        if not self._watch.changed or not (due or self._news()):
            return
        status = self._watch.look(now)
        clock = f"[{duration(status.elapsed):>5}]"
        self._say_note(clock, status)
        for task in status.tasks:
            if self._states.get(task.id, "waiting") != task.state:
                self._states[task.id] = task.state
                self._say(clock, _change(task))
        if due:
            self._due = now + min(LONGEST_PAUSE, max(FIRST_PROGRESS, status.elapsed / 20))
            if status.done != self._done:
                self._done = status.done
                self._progress(clock, status)

    def end(self, now: float) -> None:
        """The results, as they are."""
        self._say_messages()
        status = self._watch.look(now)
        # A run that ends within a tick of Ctrl-C still says what it was told.
        self._say_note(f"[{duration(status.elapsed):>5}]", status)
        width = shutil.get_terminal_size().columns if self._terminal.interactive else None
        for line in ["", *results(status, width)]:
            self._terminal.line(line)

    def _news(self) -> bool:
        return self._view.note != self._note or any(
            self._states.get(task.id, "waiting") != task.status for task in self._view.tasks
        )

    def _progress(self, clock: str, status: RunStatus) -> None:
        running = [task for task in status.tasks if task.state == "started"]
        for task in running[:TASKS_SHOWN]:
            self._say(clock, progress(task))
        if len(running) > TASKS_SHOWN:
            self._say(clock, f"and {plural(len(running) - TASKS_SHOWN, 'task')} more")
        if len(status.tasks) > 1 or status.limiters:
            self._say(clock, overall(status))

    def _say_note(self, clock: str, status: RunStatus) -> None:
        if status.note != self._note:
            self._note = status.note
            self._say(clock, printable(status.note))

    def _say_messages(self) -> None:
        for message in self._watch.messages():
            self._terminal.line(printable(message, lines=True))

    def _say(self, clock: str, text: str) -> None:
        if text:
            self._terminal.line(f"{clock} {text}")


def progress(task: TaskStatus) -> str:
    """A running task in one line."""
    of = f"/{task.total} ({task.share:.0%})" if task.total else ""
    parts = [f"{task.done}{of} samples", f"{task.running} running"]
    if task.errors:
        parts.append(plural(task.errors, "error"))
    parts += [f"{printable(name)} {metric(value)}" for name, value in task.metrics]
    if task.rate:
        parts.append(f"{task.rate:.1f}/s")
    if task.eta is not None:
        parts.append(f"{duration(task.eta)} left")
    return f"{printable(task.name)} ({printable(task.model)}): {', '.join(parts)}"


def overall(status: RunStatus) -> str:
    """Tasks, limits, tokens and retries in one line."""
    parts = [f"{status.tasks_ended}/{plural(len(status.tasks), 'task')} ended"] if len(status.tasks) > 1 else []
    for limiter in status.limiters[:LIMITERS_SHOWN]:
        limit = "" if limiter.limit is None else f"/{limiter.limit}"
        waiting = f" (+{limiter.waiting} waiting)" if limiter.waiting else ""
        note = f" ({printable(limiter.note)})" if limiter.note else ""
        parts.append(f"{printable(limiter.name)} {limiter.used}{limit}{waiting}{note}")
    if len(status.limiters) > LIMITERS_SHOWN:
        parts.append(f"{plural(len(status.limiters) - LIMITERS_SHOWN, 'limit')} more")
    if status.tokens:
        parts.append(f"{count(status.tokens)} tokens")
    if status.retries:
        parts.append(f"retries {status.retries}")
    if len(status.tasks) > 1 and status.eta is not None:
        parts.append(f"{duration(status.eta)} left")
    return "in all: " + ", ".join(parts)


def _change(task: TaskStatus) -> str:
    what = f"{printable(task.name)} ({printable(task.model)})"
    if task.state == "started":
        return f"{what}: started" + (f", {plural(task.total, 'sample')}" if task.total is not None else "")
    if not task.ended:
        return ""
    values = "".join(f", {printable(name)} {metric(value)}" for name, value in task.metrics)
    wrong = f", {plural(task.errors, 'error')}" if task.errors else ""
    return f"{what}: {task.state}, {plural(task.done, 'sample')}{wrong}{values} in {duration(task.elapsed, exact=True)}"
