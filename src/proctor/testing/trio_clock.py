"""trio in virtual time: its own `MockClock`, asked to consult the watch before each jump, and a fixed order.

trio accepts no other clock than `MockClock` for jumping, and that class may not be subclassed; so the hook is put
on the one instance. trio runs the tasks of a batch in random order on purpose. Its test switch makes the order
repeatable: batches are sorted by the age of the task, then shuffled by a `Random` that we replace. With seed 0 that
does nothing, and the youngest task runs first (trio takes from the end), the opposite of asyncio's order; other
seeds give other orders, repeatable too.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import trio
from trio.testing import MockClock

from proctor.testing.threads import trio_threads_at_work
from proctor.testing.watch import VirtualDeadlock, Watch, in_background

POLL: Final = 0.005
"""Real seconds between two looks at the worker threads; a result wakes the loop at once."""


class UnshuffledRandom(random.Random):
    """A source of chance whose `shuffle` leaves the order as it is."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Do nothing."""


class RealTimeCheck(trio.abc.Instrument):
    """Fails a run that takes more real time than it may."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def before_io_wait(self, timeout: float) -> None:
        """Look at the real clock once a pass of the loop."""
        self._watch.check_real_time()


def virtual_clock(watch: Watch) -> MockClock:
    """A clock that starts at 0 and jumps to the next deadline when the watch says so."""
    clock = MockClock(autojump_threshold=0)

    def idle() -> None:
        busy = trio_threads_at_work()
        if _runner().entry_queue.size():  # a thread called back after descriptors were polled
            return
        deadlines = _runner().deadlines
        deadline = deadlines.next_deadline()
        foreground = not watch.background_used or any(
            not _is_background(scope) for when, _, scope in deadlines._heap if when == scope._registered_deadline
        )
        try:
            verdict = watch.idle(timer=deadline, foreground=foreground, busy=busy)
        except VirtualDeadlock as failure:
            _throw_into_all(failure)
            return
        clock.autojump_threshold = POLL if verdict == "hold" else 0
        if verdict == "jump":
            clock.jump(deadline - clock.current_time())
            if clock.current_time() < deadline:  # the sum was rounded down
                clock.jump(math.ulp(deadline))

    setattr(clock, "_autojump", idle)  # noqa: B010  (mypy refuses the assignment to a method)
    return clock


@contextmanager
def fixed_order(seed: int) -> Iterator[None]:
    """Make trio's order of tasks repeatable inside the block."""
    run: Any = trio._core._run
    before = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r
    run._ALLOW_DETERMINISTIC_SCHEDULING = True
    run._r = random.Random(seed) if seed else UnshuffledRandom(0)
    try:
        yield
    finally:
        run._ALLOW_DETERMINISTIC_SCHEDULING, run._r = before


def _runner() -> Any:
    context: Any = trio._core._run.GLOBAL_RUN_CONTEXT
    return context.runner


def main_tasks() -> Iterator[trio.lowlevel.Task]:
    """The main task and all below it, parents first, children by age."""
    return _tree(_runner().main_task)


def all_tasks() -> Iterator[trio.lowlevel.Task]:
    """Every task of the running loop, trio's own among them."""
    return _tree(trio.lowlevel.current_root_task())


def _tree(root: trio.lowlevel.Task | None) -> Iterator[trio.lowlevel.Task]:
    queue: list[trio.lowlevel.Task] = [root] if root is not None else []
    for task in queue:
        yield task
        for nursery in task.child_nurseries:
            queue.extend(sorted(nursery.child_tasks, key=lambda child: child._counter))


def _throw_into_all(failure: BaseException) -> None:
    """End tasks that shield themselves for ever, as cancelling them natively does on asyncio.

    Raises:
        BaseException: `failure`, when no task took it.
    """

    def throw() -> NoReturn:
        raise failure

    runner = _runner()
    for task in list(main_tasks()):
        if task._abort_func is not None:
            task._attempt_abort(throw)
    if not runner.runq:
        raise failure


def _is_background(scope: Any) -> bool:
    """Whether every task in the scope is marked as background."""
    statuses = [scope._cancel_status] if scope._cancel_status is not None else []
    for status in statuses:
        statuses.extend(status._children)
        if not all(task.context.get(in_background, False) for task in status._tasks):
            return False
    return True
