"""``proctor list tasks``: what tasks there are, found without running the files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from proctor.cli.commands import new_app
from proctor.cli.output import show
from proctor.display.text import printable
from proctor.errors import OptionError
from proctor.runtime.options import values

app = new_app(help="List tasks without running them.", no_args_is_help=True)


@app.callback()
def listing() -> None:
    """List tasks without running them."""


@app.command()
def tasks(
    paths: Annotated[list[str] | None, typer.Argument(help="Files and folders; default: the working folder.")] = None,
    *,
    where: Annotated[
        list[str] | None,
        typer.Option("-F", metavar="NAME=VALUE", help="Only tasks with this attribute; NAME~=VALUE: without it."),
    ] = None,
    absolute: Annotated[bool, typer.Option("--absolute", help="Show absolute paths.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """The tasks in files and folders, as FILE@TASK."""
    from proctor.evaluation.load import list_tasks

    filters = _filters(where or [])
    found = [info for info in list_tasks(paths or []) if _matches(info.attribs, filters)]
    rows = [
        {"file": _place(info.file, absolute=absolute), "name": info.name, "attribs": info.attribs} for info in found
    ]
    if as_json:
        show(json.dumps(rows, indent=2, default=str))
        return
    for row in rows:
        show(printable(f"{row['file']}@{row['name']}"))
    if not rows:
        show("no tasks found: a task is a function with the decorator @task that returns a Task")


def _filters(texts: list[str]) -> dict[str, Any]:
    try:
        return values.pairs(texts)
    except ValueError as error:
        raise OptionError(f"-F must be {error}, not {' '.join(texts)!r}") from None


def _matches(attribs: Any, filters: dict[str, Any]) -> bool:
    return all(
        attribs.get(name[:-1]) != wanted if name.endswith("~") else attribs.get(name) == wanted
        for name, wanted in filters.items()
    )


def _place(file: str, *, absolute: bool) -> str:
    return str(Path(file).resolve()) if absolute else os.path.relpath(file)
