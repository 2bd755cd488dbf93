"""Python's search for garbage in cycles, kept out of the way of a run.

Samples are made of many small objects that die without a search. Left alone it looks at every 700 new ones, a seventh
of the processor's time of a trivial sample, and now and then at all that was ever imported, which holds the loop for
tens of milliseconds. So while a loop of our own runs, a search begins at `YOUNG` new objects, and what was there before
the run is not looked at again. `eval_async` and `open_runtime` run in the loop of somebody else and change nothing.

Rejected: no search at all (frames of exceptions are cycles: an agent's thousand errors would stay).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

YOUNG: Final = 20_000
"""New objects before a search among them; garbage waits for it, a few MB at most."""
OLDER: Final = 3
"""Searches among young objects before one among those that outlived them, and of these before one among all: what was
in flight during a search and died later waits for the next one, and with it a sample's record."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for garbage less often in this block; afterwards as before. Nested blocks and a disabled search stay."""
    before = gc.get_threshold()
    if not gc.isenabled() or before[0] >= YOUNG:
        yield
        return
    fresh = gc.get_freeze_count() == 0  # objects that the program froze itself stay its own affair
    gc.set_threshold(YOUNG, OLDER, OLDER)
    if fresh:
        gc.freeze()
    try:
        yield
    finally:
        if fresh:
            gc.unfreeze()
        gc.set_threshold(*before)
