"""``proctor log``: list, show, print, mend and convert logs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from proctor.cli.commands import new_app
from proctor.cli.output import show, show_bytes
from proctor.display.text import metric, printable
from proctor.errors import LogError, OptionError

if TYPE_CHECKING:
    from proctor.log import EvalLog, EvalLogInfo

app = new_app(help="List, read and print logs.", no_args_is_help=True)


class Format(StrEnum):
    """The formats of logs."""

    EVAL = "eval"
    JSON = "json"


class Status(StrEnum):
    """The states of a log that can be asked for."""

    STARTED = "started"
    SUCCESS = "success"
    CANCELLED = "cancelled"
    ERROR = "error"


LogDir = Annotated[
    str | None, typer.Option("--log-dir", metavar="DIR", help="Where the logs are; default PROCTOR_LOG_DIR, ./logs.")
]


@app.callback()
def logs() -> None:
    """List, read and print logs."""


@app.command("list")
def list_logs(
    *,
    log_dir: LogDir = None,
    status: Annotated[Status | None, typer.Option("--status", help="Only logs with this status.")] = None,
    absolute: Annotated[bool, typer.Option("--absolute", help="Show absolute paths.")] = False,
    no_recursive: Annotated[bool, typer.Option("--no-recursive", help="Not the folders below.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """The logs in a folder, newest first."""
    from proctor.log import list_eval_logs
    from proctor.runtime.settings import load_dotenv

    load_dotenv()
    wanted = status.value if status is not None else None
    found = list_eval_logs(
        log_dir,
        filter=None if wanted is None else lambda log: log.status == wanted,
        recursive=not no_recursive,
    )
    names = [_place(info, absolute=absolute) for info in found]
    if as_json:
        rows = [{**_fields(info), "name": name} for info, name in zip(found, names, strict=True)]
        show(json.dumps(rows, indent=2))
        return
    for name in names:
        show(printable(name))


@app.command()
def dump(
    path: Annotated[str, typer.Argument(help="A log.")],
    *,
    header_only: Annotated[bool, typer.Option("--header-only", help="Without the samples.")] = False,
    resolve_attachments: Annotated[
        bool, typer.Option("--resolve-attachments", help="With attachments put back where they belong.")
    ] = False,
) -> None:
    """A log as JSON."""
    from proctor.log import read_eval_log

    _print_json(read_eval_log(path, header_only=header_only, resolve_attachments=resolve_attachments))


@app.command()
def headers(files: Annotated[list[str], typer.Argument(help="Logs.")]) -> None:
    """The headers of logs as a JSON list."""
    from proctor.log import read_eval_log

    _print_json([read_eval_log(file, header_only=True) for file in files])


@app.command("show")
def summary(files: Annotated[list[str], typer.Argument(help="Logs.")]) -> None:
    """Task, model, status and results of logs in a few lines each."""
    summarized(files)


def summarized(files: Sequence[str]) -> None:
    """Print what logs say of themselves."""
    from proctor.log import read_eval_log

    for position, file in enumerate(files):
        if position:
            show("")
        for name, value in _summary(read_eval_log(file, header_only=True)):
            show(f"{name:<10}{printable(value, lines=True)}")


@app.command()
def recover(
    path: Annotated[str, typer.Argument(help="A log that a crash left behind.")],
    *,
    output: Annotated[
        str | None, typer.Option("--output", metavar="FILE", help="Where to write; default the name with -recovered.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Mend the log itself.")] = False,
) -> None:
    """Make a log whole again after a crash, from itself and what is beside it; its status stays "started"."""
    from proctor.log import read_eval_log_sample_summaries, recover_eval_log

    if overwrite and output is not None:
        raise OptionError("--overwrite and --output contradict each other; give one of them")
    made = recover_eval_log(path, output, overwrite)
    found = read_eval_log_sample_summaries(made.location)
    cut = sum(1 for sample in found if (sample.error or "").startswith("CancelledError("))
    place = printable(made.location)
    running = f" ({cut} of them cut short)" if cut else ""
    show(f"{place}: {len(found)} samples{running}; to run what is missing: proctor retry {place}")


@app.command()
def convert(
    path: Annotated[str, typer.Argument(help="A log, or a folder of logs.")],
    *,
    to: Annotated[Format, typer.Option("--to", help="The format to write.")],
    output_dir: Annotated[str, typer.Option("--output-dir", metavar="DIR", help="Where to write.")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Write over files that are there.")] = False,
    resolve_attachments: Annotated[
        bool, typer.Option("--resolve-attachments", help="With attachments put back where they belong.")
    ] = False,
) -> None:
    """Write logs in another format, a sample at a time."""
    from proctor.log.convert import convert_log
    from proctor.log.listing import find_logs
    from proctor.log.places import place_of, within

    source = place_of(path)
    files = [place_of(info.name) for info in find_logs(source, formats=None, recursive=True, descending=False)]
    if not files:
        raise LogError(f"{path}: there is no log")
    names = [str(Path(within(file, source)).with_suffix(f".{to.value}")) for file in files]
    targets = [place_of(output_dir) / name for name in names]
    there = next((target for target in targets if target.exists()), None)
    if there is not None and not overwrite:
        raise OptionError(f"{there} exists; give --overwrite, or another --output-dir")
    for file, target in zip(files, targets, strict=True):
        if isinstance(target, Path):
            target.parent.mkdir(parents=True, exist_ok=True)
        convert_log(file, target, resolve_attachments=resolve_attachments)
        show(printable(os.path.relpath(target) if isinstance(target, Path) else str(target)))


def _summary(log: EvalLog) -> list[tuple[str, str]]:
    spec = log.eval
    lines = [("task", spec.task), ("model", spec.model), ("status", log.status), ("created", str(spec.created))]
    if log.results is not None:
        lines.append(("samples", f"{log.results.completed_samples} of {log.results.total_samples}"))
        for score in log.results.scores:
            named = ", ".join(f"{name} {metric(found.value)}" for name, found in score.metrics.items())
            lines.append(("score", f"{score.name}: {named}" if named else score.name))
    for model, usage in (log.stats.model_usage or {}).items():
        lines.append(("tokens", f"{model}: {usage.total_tokens}"))
    if log.error is not None:
        lines.append(("error", log.error.message))
    return [*lines, ("log", log.location)]


def _place(info: EvalLogInfo, *, absolute: bool) -> str:
    name = str(info.name).removeprefix("file://")
    if "://" in name:
        return name
    return str(Path(name).resolve()) if absolute else os.path.relpath(name)


def _fields(info: EvalLogInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in ("name", "type", "size", "mtime", "task", "task_id", "suffix")}


def _print_json(value: Any) -> None:
    from proctor.log.encode import encode

    # `json` and not msgspec.json.format, because a log may hold NaN.
    show_bytes(json.dumps(json.loads(encode(value)), indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace"))
