"""``proctor cache``: answers that are kept to be used again."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from proctor.cli.commands import new_app
from proctor.cli.output import show
from proctor.display.text import printable

app = new_app(help="List and remove answers that are kept to be used again.", no_args_is_help=True)

ModelOption = Annotated[
    list[str] | None, typer.Option("--model", metavar="MODEL", help="Only of this model; may be given several times.")
]


@app.callback()
def cache() -> None:
    """List and remove answers that are kept to be used again."""


@app.command("list")
def list_answers(
    *,
    model: ModelOption = None,
    expired: Annotated[bool, typer.Option("--expired", help="Only those too old to be used.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Models with kept answers, and how many bytes they take."""
    from proctor.model.cache import cache_list_expired, cache_size

    if expired:
        files = cache_list_expired(model or [])
        sizes = cache_size(files=files) if files else []
    else:
        sizes = cache_size(model or [])
    if as_json:
        show(json.dumps([{"model": name, "bytes": size} for name, size in sizes], indent=2))
        return
    for name, size in sizes:
        show(printable(f"{size:>12,}  {name}"))
    if not sizes:
        show("no answers")


@app.command()
def clear(
    *,
    model: ModelOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Of all models.")] = False,
) -> None:
    """Remove kept answers: of some models, or all."""
    from proctor.errors import UsageError
    from proctor.model.cache import cache_clear

    if not model and not everything:
        raise UsageError("name a model (--model MODEL), or say --all")
    removed = [name for name in ([""] if everything else model or []) if cache_clear(name)]
    show("removed" if removed else "no answers")


@app.command()
def prune(*, model: ModelOption = None) -> None:
    """Remove answers that are too old to be used."""
    from proctor.model.cache import cache_list_expired, cache_prune

    files = cache_list_expired(model or [])
    if files:
        cache_prune(files)
    show(f"{len(files)} removed")


@app.command()
def path() -> None:
    """Where answers are kept."""
    from proctor.model.cache import cache_path

    show(str(cache_path()))
