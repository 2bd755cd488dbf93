"""The root command, which knows the others by name and imports the one that is asked for."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable
from typing import Annotated, Any, cast

import typer
import typer.completion
from typer.core import TyperGroup
from typer.main import get_command

from proctor.cli.app import SUMMARIES
from proctor.cli.version import show_version
from proctor.errors import UsageError

SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class Commands(TyperGroup):
    """A group whose commands are modules; typer hands contexts whose class is private, hence `Any`."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(SUMMARIES)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in SUMMARIES:
            command: Any = get_command(importlib.import_module(f"proctor.cli.{cmd_name.replace('-', '_')}").app)
            command.name = cmd_name
            return command
        if ctx.resilient_parsing or cmd_name.startswith("-"):
            return None
        near = difflib.get_close_matches(cmd_name, SUMMARIES, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(SUMMARIES)}"
        if cmd_name.partition("@")[0].endswith(".py"):
            hint = f"to evaluate the tasks in it: proctor eval {cmd_name}"
        raise UsageError(f"no command is called {cmd_name!r}; {hint}")

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(SUMMARIES.items()))


def new_app(**settings: Any) -> typer.Typer:
    """A typer application as all of ours are: plain help, no completion options, exceptions left to `main`."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=SETTINGS,
        **settings,
    )


def say_version(wanted: bool) -> None:
    """Print the version and leave, when asked to."""
    if wanted:
        show_version()
        raise typer.Exit(0)


def proctor(
    *,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Say the version.", is_eager=True, callback=say_version)
    ] = False,
) -> None:
    """Evaluate language models: many samples, tasks and models at once."""


def root() -> Callable[..., Any]:
    """The root command."""
    # typer makes its shells known only where its own options for completion are on, and ours are a command.
    cast("Any", typer.completion).completion_init()
    app = new_app(cls=Commands)
    app.callback()(proctor)
    return cast("Callable[..., Any]", get_command(app))
