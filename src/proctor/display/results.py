"""The table that ends a run: what came out, what went wrong, where the logs are and how to open them."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from typing import Final

from attrs import frozen

from proctor.display.status import RunStatus, TaskStatus
from proctor.display.text import cells, count, cut, duration, fit, metric, plural, printable

GAP: Final = 2
NARROWEST: Final = 40
ERROR_LINES: Final = 12
TEXT_COLUMNS: Final = frozenset({"task", "model", "status", "log"})


@frozen
class Table:
    """Cells of a table, all printable; `headers` name the columns."""

    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def widths(self) -> list[int]:
        """Columns of the terminal that each column needs."""
        return [max(map(cells, column)) for column in zip(self.headers, *self.rows, strict=True)]

    def width(self) -> int:
        """Columns of the terminal that a line of the table needs."""
        return sum(self.widths()) + GAP * (len(self.headers) - 1)


def table(status: RunStatus, *, logs: bool = True) -> Table:
    """Task, model, status, each metric, samples, errors, time and log of every task.

    Args:
        logs: with a column for the log files.
    """
    metrics = list(dict.fromkeys(name for task in status.tasks for name, _ in task.metrics))
    cancelled = any(task.cancelled for task in status.tasks)
    headers = ["task", "model", "status", *map(printable, metrics), "samples", "errors"]
    headers += ["cancelled"] * cancelled + ["time"] + ["log"] * logs
    rows = []
    for task in status.tasks:
        values = dict(task.metrics)
        row = [printable(task.name), printable(task.model), task.state]
        row += [metric(values[name]) if name in values else "" for name in metrics]
        row += [samples(task), str(task.errors)]
        row += [str(task.cancelled)] * cancelled + [duration(task.elapsed, exact=True)]
        rows.append((*row, *[printable(task.log or "")] * logs))
    return Table(tuple(headers), tuple(rows))


def results(status: RunStatus, width: int | None = None) -> list[str]:
    """The end of a run in lines.

    Args:
        width: columns of the terminal; None where lines may have any length (a file, a pipe).
    """
    lines = _fitted(status, width)
    lines += ["", summary(status)]
    for error in errors(status):
        lines += ["", *_wrapped(error, width)]
    return [*lines, "", *opening(status)]


def summary(status: RunStatus) -> str:
    """One line: samples, errors, tokens, retries, time."""
    wrong = sum(task.errors for task in status.tasks)
    parts = [plural(status.done, "sample"), plural(wrong, "error")] if wrong else [plural(status.done, "sample")]
    if status.tokens:
        parts.append(f"{count(status.tokens)} tokens")
    if status.retries:
        parts.append(f"{status.retries} {'retry' if status.retries == 1 else 'retries'}")
    return f"{', '.join(parts)} in {duration(status.elapsed, exact=True)}"


def errors(status: RunStatus) -> list[str]:
    """What to say of each task that did not end well; one text for all tasks that ended with the same error."""
    by_text: dict[str, list[TaskStatus]] = {}
    for task in status.tasks:
        if task.error or task.state == "error":
            by_text.setdefault(task.error or "no reason was given", []).append(task)
    out = []
    for text, tasks in by_text.items():
        where = ", ".join(f"{printable(task.name)} ({printable(task.model)})" for task in tasks)
        kept = printable(text.strip(), lines=True).splitlines()
        if len(kept) > ERROR_LINES:
            kept = [*kept[:2], f"… {len(kept) - ERROR_LINES} lines more in the log …", *kept[2 - ERROR_LINES :]]
        out.append("\n".join([f"{where}: {kept[0] if kept else ''}", *kept[1:]]))
    return out


def opening(status: RunStatus) -> list[str]:
    """How to look at the logs; nothing when there is none."""
    if not any(task.log for task in status.tasks):
        return []
    folder = printable(status.log_dir or ".")
    return [f"Logs are in {folder}; to open them:  inspect view --log-dir {shlex.quote(folder)}"]


def samples(task: TaskStatus) -> str:
    """``1319``, or ``12/1319`` when some are missing."""
    if task.total is None or task.done == task.total:
        return str(task.done)
    return f"{task.done}/{task.total}"


def _fitted(status: RunStatus, width: int | None) -> list[str]:
    """The table with the logs in it; where that is too wide with the logs below it; or one block a task."""
    full = table(status)
    if width is None or full.width() <= width:
        return _drawn(full)
    short = table(status, logs=False)
    if short.width() <= width:
        logs = [printable(task.log) for task in status.tasks if task.log]
        return [*_drawn(short), *(["", *logs] if logs else [])]
    return _blocks(short, [task.log for task in status.tasks], max(width, NARROWEST))


def _drawn(cells_of: Table) -> list[str]:
    widths = cells_of.widths()

    def line(row: Sequence[str]) -> str:
        placed = [
            fit(cell, width) if header in TEXT_COLUMNS else " " * (width - cells(cell)) + cell
            for header, cell, width in zip(cells_of.headers, row, widths, strict=True)
        ]
        return (" " * GAP).join(placed).rstrip()

    return [line(cells_of.headers), line(["-" * w for w in widths]), *map(line, cells_of.rows)]


def _blocks(short: Table, logs: Sequence[str | None], width: int) -> list[str]:
    out: list[str] = []
    for row, log in zip(short.rows, logs, strict=True):
        name, model, state, *values = row
        out += [""] * bool(out)
        out += [cut(name, width), cut(f"  {model}", width)]
        pairs = [f"{h} {v}" for h, v in zip(short.headers[3:], values, strict=True) if v]
        out += textwrap.wrap(", ".join([state, *pairs]), width, initial_indent="  ", subsequent_indent="  ")
        # A path is never cut: it is there to be copied.
        out += [f"  {printable(log)}"] * bool(log)
    return out


def _wrapped(text: str, width: int | None) -> list[str]:
    out: list[str] = []
    for line in text.splitlines():
        fits = width is None or cells(line) <= width
        out += [line] if fits else textwrap.wrap(line, max(width or 0, NARROWEST), subsequent_indent="  ")
    return out
