"""When a display looks: ten times a second, which costs nothing while nothing changed, and once at the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import anyio

from proctor.evaluation.view import RunView

TICK: Final = 0.1
"""Seconds between two looks: as late as that may a display notice that the run has ended."""

Look = Callable[[float], None]


async def watched(view: RunView, look: Look, last: Look) -> None:
    """Call `look` again and again until `view` has ended, then `last`, also when this is cancelled.

    Args:
        look, last: called with `anyio.current_time`; neither may wait.
    """
    try:
        while not view.ended:
            look(anyio.current_time())
            await anyio.sleep(TICK)
    finally:
        last(anyio.current_time())


__all__ = ["TICK", "watched"]
