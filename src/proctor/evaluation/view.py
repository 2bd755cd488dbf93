"""What a running evaluation shows of itself: plain counters that the engine moves and a display reads.

The engine changes attributes in place and computes nothing for a display that is not there: what costs
something (statistics of limiters, running metrics) is a callable, called by whoever draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from attrs import define, field

from proctor.actors import LimiterStatistics

Status = Literal["waiting", "started", "success", "cancelled", "error"]


@define(eq=False)
class TaskView:
    """One task run on one model.

    Attributes:
        total: planned samples × epochs; None while a streamed dataset has not been read to its end.
        done, running, errors, cancelled: samples so far, `done` counts every ended one.
        started, ended: `anyio.current_time` seconds.
        metrics: running metrics by name, computed when called.
        log: where the log is, None before it is open.
        error: the message of a task that ended with one.
    """

    id: str
    name: str
    model: str
    total: int | None = None
    done: int = 0
    running: int = 0
    errors: int = 0
    cancelled: int = 0
    retries: int = 0
    tokens: int = 0
    status: Status = "waiting"
    metrics: Callable[[], Mapping[str, float]] = dict
    log: str | None = None
    started: float | None = None
    ended: float | None = None
    error: str | None = None

    @property
    def waiting(self) -> int | None:
        """Samples that have not started, None while the total is unknown."""
        return None if self.total is None else max(0, self.total - self.done - self.running)


@define(eq=False)
class RunView:
    """One call of `eval`: its tasks in plan order.

    Attributes:
        limiters: statistics of the limiters now in use, computed when called.
        started: `anyio.current_time` seconds.
        note: one line the user should see now (an ending that was asked for), "" for none.
        changed: grows by one at each change; a display that saw the same number need not draw.
        ended: nothing changes any more; a display draws a last time and returns.
        log_dir: where the logs are.
    """

    tasks: list[TaskView]
    started: float
    log_dir: str = ""
    limiters: Callable[[], list[LimiterStatistics]] = list
    note: str = ""
    changed: int = 0
    ended: bool = False
    messages: list[str] = field(factory=list)

    @property
    def tokens(self) -> int:
        return sum(task.tokens for task in self.tasks)

    @property
    def retries(self) -> int:
        return sum(task.retries for task in self.tasks)
