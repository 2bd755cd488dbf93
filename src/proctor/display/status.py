"""What a display shows of a run, computed from the engine's counters.

`run_status` is a pure function of the view, the time and an earlier status; `Watch` remembers the earlier ones for
one display, and how long the running metrics of a task took, so that a display never spends more than a small
share of the run on them. Nothing here is called when nobody watches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import anyio
from attrs import frozen

from proctor.evaluation.view import RunView, Status, TaskView

WINDOW: Final = 30.0
"""Seconds over which throughput is measured: long enough to be steady, short enough to follow a slow-down."""
TELLING: Final = 5.0
"""Seconds of looking after which recent throughput is preferred to the average since the start."""
METRICS_EVERY: Final = 2.0
"""Seconds between two computations of a task's running metrics, at least."""
METRICS_SHARE: Final = 0.02
"""Share of the time that running metrics may take; costly ones are computed less often."""

ENDED: Final[frozenset[Status]] = frozenset({"success", "cancelled", "error"})
Metrics = tuple[tuple[str, float], ...]


@frozen(kw_only=True)
class TaskStatus:
    """One task run on one model, as it is shown.

    Attributes:
        total, waiting: None while the size of the dataset is unknown.
        elapsed: seconds since it started, 0 before.
        rate: samples a second, None before one can be told.
        eta: seconds until its end, None when it cannot be told.
    """

    id: str
    name: str
    model: str
    state: Status
    total: int | None
    done: int
    running: int
    waiting: int | None
    errors: int
    cancelled: int
    retries: int
    tokens: int
    metrics: Metrics
    elapsed: float
    rate: float | None
    eta: float | None
    log: str | None
    error: str | None

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def share(self) -> float:
        """Share of the samples that are done, 0 while the total is unknown."""
        return min(1.0, self.done / self.total) if self.total else float(self.ended)


@frozen(kw_only=True)
class LimiterStatus:
    """One limit in use; `limit` None is unlimited, `note` is what else there is to say: a model's quotas and pauses."""

    name: str
    used: int
    limit: int | None
    waiting: int
    note: str = ""


@frozen(kw_only=True)
class RunStatus:
    """A whole run, as it is shown.

    Attributes:
        at: `anyio.current_time` seconds of this look.
        elapsed, eta: seconds; rate: samples a second over all tasks.
    """

    at: float
    elapsed: float
    tasks: tuple[TaskStatus, ...]
    limiters: tuple[LimiterStatus, ...]
    tokens: int
    retries: int
    rate: float | None
    eta: float | None
    note: str
    log_dir: str
    ended: bool

    @property
    def done(self) -> int:
        return sum(task.done for task in self.tasks)

    @property
    def total(self) -> int | None:
        """Samples of all tasks, None while one of them is not known."""
        return _sum(task.total for task in self.tasks)

    @property
    def tasks_ended(self) -> int:
        return sum(task.ended for task in self.tasks)


def run_status(
    view: RunView,
    now: float,
    *,
    earlier: RunStatus | None = None,
    metrics: Callable[[TaskView], Mapping[str, float]] = lambda task: task.metrics(),
) -> RunStatus:
    """What to show of `view` at `now`.

    Args:
        now: `anyio.current_time` seconds.
        earlier: a status of some seconds ago; throughput is measured from there, else from the start.
        metrics: how a task's running metrics are had.
    """
    if view.ended:
        # A display notices the end a little late.
        now = max([task.ended for task in view.tasks if task.ended is not None], default=now)
    before = {task.id: task for task in earlier.tasks} if earlier else {}
    since = now - earlier.at if earlier else 0.0
    tasks = tuple(_task_status(task, now, before.get(task.id), since, metrics) for task in view.tasks)
    left = _sum(None if t.total is None else 0 if t.ended else max(0, t.total - t.done) for t in tasks)
    recent = 0.0 if view.ended else since
    rate = _rate(sum(t.done for t in tasks), now - view.started, earlier.done if earlier else 0, recent)
    return RunStatus(
        at=now,
        elapsed=now - view.started,
        tasks=tasks,
        limiters=() if view.ended else tuple(_limiters(view)),
        tokens=view.tokens,
        retries=view.retries,
        rate=rate,
        eta=None if view.ended or not left else _eta(left, rate),
        note=view.note,
        log_dir=view.log_dir,
        ended=view.ended,
    )


class Watch:
    """The looks that one display takes at one run."""

    def __init__(self, view: RunView) -> None:
        self._view = view
        self._history: deque[RunStatus] = deque()
        self._metrics: dict[str, _Measured] = {}
        self._messages = 0
        self._seen: int | None = None

    @property
    def changed(self) -> bool:
        """Whether anything moved since the last look."""
        return self._seen != self._view.changed or self._view.ended

    def look(self, now: float) -> RunStatus:
        """The status now; throughput is measured over the last half minute."""
        while len(self._history) > 1 and now - self._history[1].at >= WINDOW:
            self._history.popleft()
        earlier = self._history[0] if self._history else None
        self._seen = self._view.changed
        status = run_status(self._view, now, earlier=earlier, metrics=self._measured)
        if not self._history or now - self._history[-1].at >= 1.0:
            self._history.append(status)
        return status

    def messages(self) -> list[str]:
        """The messages that came since the last call."""
        new = self._view.messages[self._messages :]
        self._messages += len(new)
        return new

    def _measured(self, task: TaskView) -> Mapping[str, float]:
        known = self._metrics.get(task.id)
        key = (task.done, task.status)
        started = anyio.current_time()
        if known and (known.key == key or (task.status not in ENDED and started < known.again)):
            return known.values
        try:
            values = dict(task.metrics())
        except Exception:
            # A metric may not be computable on the samples so far; the end of the task is where that is an error.
            values = {}
        took = anyio.current_time() - started
        self._metrics[task.id] = _Measured(key, values, started + max(METRICS_EVERY, took / METRICS_SHARE))
        return values


@frozen
class _Measured:
    key: tuple[int, str]
    values: dict[str, float]
    again: float


def _task_status(
    task: TaskView,
    now: float,
    before: TaskStatus | None,
    since: float,
    metrics: Callable[[TaskView], Mapping[str, float]],
) -> TaskStatus:
    elapsed = 0.0 if task.started is None else (now if task.ended is None else task.ended) - task.started
    over = task.status in ENDED
    rate = _rate(task.done, elapsed, before.done if before else 0, 0.0 if over else since)
    left = None if task.total is None or over else task.total - task.done
    return TaskStatus(
        id=task.id,
        name=task.name,
        model=task.model,
        state=task.status,
        total=task.total,
        done=task.done,
        running=task.running,
        waiting=task.waiting,
        errors=task.errors,
        cancelled=task.cancelled,
        retries=task.retries,
        tokens=task.tokens,
        metrics=tuple(metrics(task).items()) if task.done else (),
        elapsed=elapsed,
        rate=rate,
        eta=_eta(left, rate) if left else None,
        log=task.log,
        error=task.error,
    )


def _limiters(view: RunView) -> list[LimiterStatus]:
    return [
        LimiterStatus(name=s.name, used=s.used, limit=s.limit, waiting=s.waiting, note=s.note)
        for s in view.limiters()
        if s.limit is not None or s.used or s.waiting
    ]


def _rate(done: int, elapsed: float, done_before: int, since: float) -> float | None:
    """Samples a second: over the last `since` seconds when that is long enough to tell, else from the start."""
    if since >= TELLING and elapsed > since:
        return max(0, done - done_before) / since
    return done / elapsed if done and elapsed > 0 else None


def _eta(left: int, rate: float | None) -> float | None:
    return left / rate if rate else None


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
