"""Blocking code of users in threads: those of the runtime, which are not the ones the engine works with."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

import anyio.to_thread

from proctor.runtime.runtime import current_runtime

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def run_blocking(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call a function that blocks, in a thread, from a solver, a scorer or a tool.

    At most 40 such calls run at once in a runtime (`Settings.max_user_threads`); further ones wait. Logs, datasets and
    whatever else the engine does in threads has threads of its own. A caller that is cancelled leaves at once; the
    call goes on, and is named at the end of the run if it has not ended by then.

    Args:
        function: what to call. args: its arguments.

    Returns:
        What it returned.

    Raises:
        Exception: what it raised.
    """
    runtime = current_runtime()
    if runtime is None:
        return await anyio.to_thread.run_sync(function, *args, abandon_on_cancel=True)
    return await runtime.run_user(function, *args)
