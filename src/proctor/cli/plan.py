"""``proctor plan``: the same arguments as ``proctor eval``, and nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from proctor.cli.commands import new_app
from proctor.cli.eval import EvalCommand, command, run
from proctor.runtime.options import OPTIONS


def plan(tasks: Sequence[str], given: Mapping[str, Any]) -> int:
    """Show the plan and return the exit code."""
    return run(tasks, {**given, "dry_run": True})


app = new_app()
app.command(cls=EvalCommand)(command(OPTIONS, plan, "Show what an evaluation would run, and under which limits."))
