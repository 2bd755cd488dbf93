"""``proctor completion``: the script with which a shell completes commands and flags."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

import typer
import typer.completion

from proctor.cli.commands import new_app
from proctor.cli.output import show


class Shell(StrEnum):
    """The shells there is a script for."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


app = new_app()


@app.command()
def script(shell: Annotated[Shell, typer.Argument(help="The shell.")]) -> None:
    """Print a shell's completion script: add eval "$(proctor completion bash)" to ~/.bashrc."""
    completion: Any = typer.completion  # what it has is documented, but not declared as exported
    show(completion.get_completion_script(prog_name="proctor", complete_var="_PROCTOR_COMPLETE", shell=shell.value))
