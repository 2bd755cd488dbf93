"""The budget of an ending: what may still take time once a run has been told to stop, and how long.

What must be done whatever was cancelled (hand a record over, clean up, finish a log) runs in a shield, and every shield
is bounded. In ordinary times each bound is the step's own; once an ending begins, all of them, those already entered
too, move to what is left of the whole budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio
from attrs import define, field

BUDGET: Final = 5.0  # seconds an ending may take in all (behaviour.md, 8)
HURRIED: Final = 1.0  # seconds that are left after a second Ctrl-C
LOG_RESERVE: Final = 1.0  # seconds of the budget that only the log may use
HAND_OVER: Final = 2.0  # seconds in which a record must reach the log's writer
CLEANUP: Final = 30.0  # seconds a clean-up may take while nothing ends


@define(eq=False)
class Ending:
    """One run's; `deadline` is `anyio.current_time` seconds, infinite until `begin`."""

    deadline: float = math.inf
    _open: dict[anyio.CancelScope, float] = field(factory=dict, init=False)

    @property
    def begun(self) -> bool:
        return self.deadline < math.inf

    def begin(self, seconds: float = BUDGET) -> None:
        """Start the budget, or shorten it."""
        self.deadline = min(self.deadline, anyio.current_time() + seconds)
        for scope, reserve in self._open.items():
            scope.deadline = min(scope.deadline, self.deadline - reserve)

    def hurry(self) -> None:
        """A second Ctrl-C: what is still open gets a last second, and the log's reserve with it."""
        self.begin(HURRIED + LOG_RESERVE)

    @contextmanager
    def shielded(self, seconds: float = math.inf, *, reserve: float = 0.0) -> Iterator[anyio.CancelScope]:
        """A shield for a step of at most `seconds`, and of what the budget leaves without `reserve`."""
        bound = min(anyio.current_time() + seconds, self.deadline - reserve)
        with anyio.CancelScope(shield=True, deadline=bound) as scope:
            self._open[scope] = reserve
            try:
                yield scope
            finally:
                del self._open[scope]
