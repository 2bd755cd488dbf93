"""A plan as lines of text: its runs, the limits with where each came from, what is to be warned of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from proctor.display.text import cells, duration, plural, printable
from proctor.evaluation.effective import Effective
from proctor.evaluation.plan import varied_text
from proctor.evaluation.report import PlanReport, RunReport, differing, shown

Row = Sequence[str]


def lines(report: PlanReport) -> Iterator[str]:
    """The report for people, one line after another."""
    models = len({run.model for run in report.runs})
    tasks = len({run.task for run in report.runs})
    yield (
        f"{plural(len(report.runs), 'run')} of {plural(tasks, 'task')} on {plural(models, 'model')}: "
        f"{report.total:,} {'sample' if report.total == 1 else 'samples'}"
    )
    yield ""
    yield from _table([("", "task", "model", "varied", "samples", ""), *map(_run_row, report.runs)])
    yield ""
    yield from _table([("limit", "", "from", ""), *map(_limit_row, report.limits), *_run_limits(report.runs)])
    allowed = report.descriptors["allowed"]
    yield ""
    yield (
        f"open files and connections: at most {report.descriptors['needed']:,} of "
        f"{'any number' if allowed is None else f'{allowed:,}'}"
    )
    for quota in report.quotas:
        what = f"{plural(quota.calls, 'call')} (one a sample)"
        if quota.tokens is not None:
            what += f" with about {quota.tokens:,} tokens of input"
        yield (
            f"{printable(quota.model)}: {what} at {quota.per_minute:g} {'' if quota.tokens is None else 'tokens '}"
            f"a minute take at least {duration(quota.seconds)}"
        )
    if report.seconds is not None:
        yield f"shortest possible time: {duration(report.seconds)}"
    for warning in report.warnings:
        yield printable(f"warning: {warning}")


def _run_row(run: RunReport) -> Row:
    of = f"{run.samples:,} × {run.epochs} epochs" if run.epochs > 1 else ""
    return (str(run.number), run.task, run.model, varied_text(run.varied), f"{run.total:,}", of)


def _limit_row(limit: Effective) -> Row:
    source = f"{limit.source} ({limit.note})" if limit.note and limit.note != shown(limit) else limit.source
    return (limit.name, shown(limit), source, "")


def _run_limits(runs: Sequence[RunReport]) -> Iterator[Row]:
    before = ""
    for limit, held in differing(runs):
        name, value, source, _ = _limit_row(limit)
        which = "" if len(held) == len(runs) else f"runs {_numbers([run.number for run in held])}"
        yield (name if name != before else "", value, source, which)
        before = name


def _numbers(numbers: Sequence[int]) -> str:
    """``1-3, 7``."""
    parts: list[str] = []
    start = end = numbers[0]
    for number in [*numbers[1:], 0]:
        if number == end + 1:
            end = number
            continue
        parts.append(str(start) if start == end else f"{start}-{end}")
        start = end = number
    return ", ".join(parts)


def _table(rows: Sequence[Row]) -> Iterator[str]:
    """Columns as wide as they need; one that is empty in every row is left out."""
    clean = [[printable(cell) for cell in row] for row in rows]
    kept = [column for column in range(len(clean[0])) if any(row[column] for row in clean[1:])]
    widths = {column: max(cells(row[column]) for row in clean) for column in kept}
    for row in clean:
        padded = (row[column] + " " * (widths[column] - cells(row[column])) for column in kept)
        yield ("  " + "  ".join(padded)).rstrip()
