"""No display: nothing is drawn and nothing is computed."""

from __future__ import annotations

from proctor.evaluation.view import RunView


async def show(view: RunView) -> None:
    """Return at once; the run goes on without being watched."""
