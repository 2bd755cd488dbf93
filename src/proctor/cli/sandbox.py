"""``proctor sandbox``: what sandboxes there are, and removing those that ended runs left behind."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from proctor.cli.commands import new_app
from proctor.cli.output import say, show
from proctor.display.text import printable
from proctor.errors import NotFoundError, UsageError

app = new_app(help="List sandboxes and remove those that are left behind.", no_args_is_help=True)

TypeArgument = Annotated[str | None, typer.Argument(metavar="[TYPE]", help="Only this type, as bubblewrap or docker.")]


@app.callback()
def sandboxes() -> None:
    """List sandboxes and remove those that are left behind."""


@app.command("list")
def list_sandboxes(
    type: TypeArgument = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Sandboxes on this machine that runs of yours have made: which still belong to one, which were left behind."""
    from proctor.sandbox.owned import read_notes

    rows: list[dict[str, Any]] = [
        {
            "id": note.id,
            "type": note.type,
            "state": "left behind" if note.orphaned else "in use",
            "process": note.pid,
            "task": note.task,
            "created": note.created,
            **{name: thing for name, thing in note.things.items() if isinstance(thing, str)},
        }
        for note in read_notes(type)
    ]
    if as_json:
        show(json.dumps(rows, indent=2))
        return
    for row in rows:
        whose = f"process {row['process']}" if row["state"] == "in use" else "its process has ended"
        show(printable(f"{row['id']}  {row['type']}  {row['state']} ({whose})  {row['task']}  {row['created']}"))
    if not rows:
        show("no sandboxes")


@app.command()
def cleanup(
    type: TypeArgument = None,
    id: Annotated[str | None, typer.Argument(metavar="[ID]", help="Only this one.")] = None,
) -> int:
    """Remove sandboxes that runs left behind which have ended (killed, or with --no-sandbox-cleanup)."""
    from proctor.runtime import run
    from proctor.sandbox.environment import find_provider
    from proctor.sandbox.owned import read_notes

    notes = [note for note in read_notes(type) if id in {None, note.id}]
    for note in notes:
        if id is not None and not note.orphaned:
            raise UsageError(f"sandbox {id} is in use by process {note.pid}: end that run first")
    before = {note.id for note in notes if note.orphaned}
    if (
        id is not None
        and type is not None
        and not before
        and find_provider(type).__module__.startswith("proctor.sandbox.")
    ):
        known = ", ".join(sorted(note.id for note in read_notes(type) if note.orphaned)) or "none"
        raise NotFoundError(f"no {type} sandbox {id} was left behind; there is {known}")
    failed = False
    for kind in [type] if type is not None else sorted({note.type for note in notes if note.orphaned}):
        try:
            run(find_provider(kind).cli_cleanup, id)
        except OSError as error:
            failed = True
            say(f"{kind}: {error}")
    left = {note.id for note in read_notes(type)} & before
    show(f"{len(before - left)} removed" if before or type is None else f"{type}: removed what was left")
    for each in sorted(left):
        say(f"{each} could not be removed")
    return 1 if failed or left else 0
