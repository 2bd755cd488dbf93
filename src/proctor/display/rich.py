"""A live table on a terminal, then the results.

The event loop only looks at counters, four times a second at most and only when something moved; `rich` lays out and
writes in the display's own thread (see `terminal`). The cursor is never hidden and no alternate screen is used, so
there is nothing that a killed process could leave behind. Where standard output is no terminal, or another live
display has it, the lines of the plain display are written instead.

Nothing is ever given to `rich` as markup: every text is a `Text` made of `printable` characters.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Final, cast

from rich.console import Console, ConsoleDimensions, Group, RenderableType
from rich.file_proxy import FileProxy
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from proctor.display import plain
from proctor.display.results import TEXT_COLUMNS, errors, opening, results, samples, summary, table
from proctor.display.status import RunStatus, TaskStatus, Watch
from proctor.display.terminal import Terminal
from proctor.display.text import cells, count, cut_start, duration, metric, plural, printable
from proctor.display.ticks import watched
from proctor.evaluation.view import RunView

DRAW_EVERY: Final = 0.3
CLOCK_EVERY: Final = 1.0
"""Seconds between two drawings of a run that changed, and of one where only the clocks move."""
LIMITER_LINES: Final = 3
LIMITER_NAME: Final = 48
STATE_STYLES: Final = {"waiting": "dim", "started": "cyan", "success": "green", "cancelled": "yellow", "error": "red"}


async def show(view: RunView) -> None:
    """Draw `view` as it goes and its results when it has ended, whatever the end."""
    terminal = Terminal()
    console = Console(file=cast("IO[str]", terminal.file))
    if not terminal.interactive or console.is_dumb_terminal or isinstance(sys.stdout, FileProxy):
        await plain.show(view)
        return
    screen = Screen(console)
    watch = Watch(view)
    drawn = float("-inf")

    def look(now: float) -> None:
        nonlocal drawn
        if now - drawn >= (DRAW_EVERY if watch.changed else CLOCK_EVERY):
            drawn = now
            terminal.draw(screen.frame(watch.look(now), watch.messages()))

    def last(now: float) -> None:
        terminal.draw(screen.last(watch.look(now), watch.messages()))

    try:
        await watched(view, look, last)
    finally:
        terminal.close()
        screen.restore()
        if terminal.failure is not None and not isinstance(terminal.failure, OSError):
            # Drawing failed, not the terminal: the results are still to be told.
            plain.tell_results(view)


class Screen:
    """The live region of one terminal; its methods make the jobs that the display's thread runs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._unsaid: list[str] = []

    def frame(self, status: RunStatus, messages: Sequence[str]) -> Callable[[], None]:
        """A job that draws the run as it stands, below the messages."""
        # A job may be replaced before it began: what it had to say is said by the next one.
        self._unsaid += messages
        return lambda: self._draw(status)

    def last(self, status: RunStatus, messages: Sequence[str]) -> Callable[[], None]:
        """A job that replaces the live region by the results."""
        self._unsaid += messages
        return lambda: self._finish(status)

    def restore(self) -> None:
        """Give standard output back, also when the thread could not."""
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, FileProxy):
                setattr(sys, name, stream.rich_proxied_file)

    def _draw(self, status: RunStatus) -> None:
        if not self._live.is_started:
            self._live.start()
            self._console.show_cursor(show=True)
        self._say()
        self._live.update(layout(status, self._console.size), refresh=True)

    def _finish(self, status: RunStatus) -> None:
        if self._live.is_started:
            self._live.stop()
        self._say()
        for part in _results(status, self._console.width):
            # Lines of text are left for the terminal to wrap, so that a path copied from it is whole.
            self._console.print(part, soft_wrap=isinstance(part, Text))

    def _say(self) -> None:
        while self._unsaid:
            self._console.print(Text(printable(self._unsaid.pop(0), lines=True)))


def layout(status: RunStatus, size: ConsoleDimensions) -> RenderableType:
    """The live region: a header, the tasks that matter most, limits, a note; as high as the terminal at most."""
    limiters = _limiters(status, size.width)
    # A header, the table's own, a line on what is hidden, a note, and the line of the cursor.
    shown, hidden = _chosen(status.tasks, max(1, size.height - 5 - len(limiters)))
    parts: list[RenderableType] = [_header(status), _tasks(shown)]
    if hidden:
        parts.append(Text(f"… {hidden}", style="dim"))
    parts += [Text(line, style="dim", no_wrap=True, overflow="crop") for line in limiters]
    if status.note:
        parts.append(Text(printable(status.note), style="bold yellow"))
    return Group(*parts)


def _header(status: RunStatus) -> Text:
    total = "" if status.total is None else f"/{status.total}"
    parts = [f"{status.tasks_ended}/{plural(len(status.tasks), 'task')}", f"{status.done}{total} samples"]
    if status.rate:
        parts.append(f"{status.rate:.1f}/s")
    parts.append(f"{count(status.tokens)} tokens")
    if status.retries:
        parts.append(f"retries {status.retries}")
    parts.append(duration(status.elapsed))
    if status.eta is not None:
        parts.append(f"{duration(status.eta)} left")
    return Text.assemble(("proctor", "bold"), "  ", "  ".join(parts))


def _tasks(tasks: Sequence[TaskStatus]) -> Table:
    grid = Table(box=None, padding=(0, 2, 0, 0), expand=True, show_header=True, header_style="dim")
    grid.add_column("task", no_wrap=True, ratio=2, overflow="ellipsis")
    grid.add_column("model", no_wrap=True, ratio=3, overflow="ellipsis")
    grid.add_column("", width=16)
    grid.add_column("done", no_wrap=True, justify="right")
    grid.add_column("run", no_wrap=True, justify="right")
    grid.add_column("err", no_wrap=True, justify="right")
    grid.add_column("metrics", no_wrap=True, ratio=2, overflow="ellipsis")
    grid.add_column("left", no_wrap=True, justify="right")
    for task in tasks:
        style = STATE_STYLES[task.state]
        metrics = ", ".join(f"{printable(name)} {metric(value)}" for name, value in task.metrics)
        left = duration(task.elapsed) if task.ended else "" if task.eta is None else duration(task.eta)
        grid.add_row(
            Text(printable(task.name)),
            Text(printable(task.model)),
            _bar(task),
            Text(samples(task) if task.total is None or task.ended else f"{task.done}/{task.total}"),
            Text("" if task.ended else str(task.running)),
            Text(str(task.errors), style="red" if task.errors else "dim"),
            Text(metrics),
            Text(left, style=style),
        )
    return grid


def _bar(task: TaskStatus) -> RenderableType:
    if task.ended or task.state == "waiting":
        return Text(task.state, style=STATE_STYLES[task.state])
    if not task.total:
        return Text("running", style=STATE_STYLES["started"])
    return ProgressBar(total=task.total, completed=task.done, width=16)


def _limiters(status: RunStatus, width: int) -> list[str]:
    """Every limit with its use, as many as fit a few lines; those that somebody waits for first."""
    lines: list[str] = []
    for limiter in sorted(status.limiters, key=lambda each: not each.waiting):
        limit = "" if limiter.limit is None else f"/{limiter.limit}"
        waiting = f" +{limiter.waiting} waiting" if limiter.waiting else ""
        note = f" ({printable(limiter.note)})" if limiter.note else ""
        piece = f"{cut_start(printable(limiter.name), LIMITER_NAME)} {limiter.used}{limit}{waiting}{note}"
        if lines and cells(lines[-1]) + 2 + cells(piece) <= width:
            lines[-1] += f"  {piece}"
        elif len(lines) < LIMITER_LINES:
            lines.append(piece)
    return lines


def _chosen(tasks: Sequence[TaskStatus], room: int) -> tuple[list[TaskStatus], str]:
    """The tasks to show in plan order, running ones first to be kept; and a word on the others."""
    if len(tasks) <= room:
        return list(tasks), ""
    importance = {"started": 0, "error": 1, "cancelled": 1, "waiting": 2, "success": 3}
    order = sorted(range(len(tasks)), key=lambda i: (importance[tasks[i].state], i))
    kept = set(order[: max(1, room - 1)])
    hidden = [task for i, task in enumerate(tasks) if i not in kept]
    states: dict[str, int] = {}
    for task in hidden:
        states[task.state] = states.get(task.state, 0) + 1
    return [tasks[i] for i in sorted(kept)], ", ".join(f"{n} {state}" for state, n in states.items())


def _results(status: RunStatus, width: int) -> Iterator[RenderableType]:
    full = table(status)
    fits = full.width() + 2 <= width
    if not fits:
        full = table(status, logs=False)
    if full.width() + 2 > width:
        yield Text("\n".join(results(status, width)))
        return
    grid = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for header in full.headers:
        grid.add_column(Text(header), no_wrap=True, justify="left" if header in TEXT_COLUMNS else "right")
    for task, row in zip(status.tasks, full.rows, strict=True):
        grid.add_row(*(Text(cell, style=STATE_STYLES[task.state] if cell == task.state else "") for cell in row))
    yield grid
    if not fits:
        yield Text("\n".join(["", *(printable(task.log) for task in status.tasks if task.log)]))
    yield Text(f"\n{summary(status)}")
    for error in errors(status):
        yield Text(f"\n{error}", style="red")
    for line in opening(status):
        yield Text(f"\n{line}")
