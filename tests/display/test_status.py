"""What a display shows is computed from the engine's counters, and only when somebody looks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from proctor.actors import Limiter
from proctor.display.status import Watch, run_status
from proctor.evaluation.view import RunView, TaskView


def run(*tasks: TaskView) -> RunView:
    return RunView(list(tasks), started=0.0, log_dir="logs")


def task(**values: Any) -> TaskView:
    plain = {"id": "1", "name": "t", "model": "mock/m", "total": 100, "status": "started", "started": 0.0}
    return TaskView(**{**plain, **values})


def test_throughput_and_what_is_left_come_from_the_whole_run_at_first() -> None:
    status = run_status(run(task(done=20, running=5)), 10.0)
    assert status.tasks[0].rate == 2.0
    assert status.tasks[0].eta == 40.0
    assert (status.rate, status.eta, status.total) == (2.0, 40.0, 100)
    assert status.tasks[0].waiting == 75


def test_throughput_follows_a_slow_down_once_there_is_an_earlier_look() -> None:
    view = run(task(done=80))
    earlier = run_status(view, 20.0)
    view.tasks[0].done = 90
    assert run_status(view, 30.0, earlier=earlier).tasks[0].rate == 1.0


def test_nothing_is_promised_while_the_size_of_the_dataset_is_unknown() -> None:
    status = run_status(run(task(total=None, done=20)), 10.0)
    assert (status.tasks[0].eta, status.eta, status.total) == (None, None, None)
    assert status.tasks[0].share == 0.0


def test_nothing_is_promised_while_nothing_is_done() -> None:
    status = run_status(run(task(done=0, running=5)), 10.0)
    assert (status.tasks[0].rate, status.tasks[0].eta, status.eta) == (None, None, None)


def test_an_ended_task_keeps_its_time_and_the_rate_of_all_of_it() -> None:
    view = run(task(done=100, status="success", ended=50.0))
    status = run_status(view, 90.0, earlier=run_status(view, 80.0))
    assert (status.tasks[0].elapsed, status.tasks[0].rate, status.tasks[0].eta) == (50.0, 2.0, None)


def test_an_ended_run_took_as_long_as_its_last_task_whenever_one_looks() -> None:
    view = run(task(done=100, status="success", ended=50.0), task(done=3, status="cancelled", ended=60.0))
    view.ended = True
    assert run_status(view, 63.0).elapsed == 60.0


def test_a_task_that_has_not_started_has_no_time() -> None:
    status = run_status(run(task(status="waiting", started=None)), 10.0)
    assert (status.tasks[0].elapsed, status.tasks[0].waiting) == (0.0, 100)


async def test_limiters_are_shown_with_their_use() -> None:
    view = run(task())
    limiter = Limiter(2, name="mock/m")
    view.limiters = lambda: [limiter.statistics()]
    async with limiter.lease():
        [shown] = run_status(view, 1.0).limiters
    assert (shown.name, shown.used, shown.limit, shown.waiting) == ("mock/m", 1, 2, 0)


def test_an_unlimited_limiter_that_nobody_uses_is_not_shown() -> None:
    view = run(task())
    view.limiters = lambda: [Limiter(None, name="idle").statistics()]
    assert run_status(view, 1.0).limiters == ()


async def test_metrics_are_computed_again_only_when_samples_ended_and_time_has_passed() -> None:
    computed = 0

    def metrics() -> Mapping[str, float]:
        nonlocal computed
        computed += 1
        return {"accuracy": computed}

    view = run(task(done=1, metrics=metrics))
    watch = Watch(view)
    for _ in range(30):
        view.tasks[0].done += 1
        view.changed += 1
        watch.look(anyio.current_time())
        await anyio.sleep(0.1)
    assert computed == 2
    before = computed
    await anyio.sleep(60)
    watch.look(anyio.current_time())
    watch.look(anyio.current_time())
    assert computed == before + 1


async def test_the_metrics_of_an_ended_task_are_its_last() -> None:
    view = run(task(done=1, metrics=lambda: {"accuracy": view.tasks[0].done}))
    watch = Watch(view)
    watch.look(anyio.current_time())
    view.tasks[0].done, view.tasks[0].status = 100, "success"
    assert watch.look(anyio.current_time()).tasks[0].metrics == (("accuracy", 100),)

    def fail() -> Mapping[str, float]:
        raise AssertionError("computed again")

    view.tasks[0].metrics = fail
    await anyio.sleep(60)
    assert watch.look(anyio.current_time()).tasks[0].metrics == (("accuracy", 100),)


async def test_metrics_that_cannot_be_computed_yet_are_left_out() -> None:
    def metrics() -> Mapping[str, float]:
        raise ZeroDivisionError

    assert Watch(run(task(done=1, metrics=metrics))).look(0.0).tasks[0].metrics == ()


@pytest.mark.parametrize("changes", [0, 1])
async def test_a_watch_knows_whether_anything_moved(changes: int) -> None:
    view = run(task())
    watch = Watch(view)
    assert watch.changed
    watch.look(0.0)
    view.changed += changes
    assert watch.changed is bool(changes)


async def test_each_message_is_given_once() -> None:
    view = run(task())
    watch = Watch(view)
    view.messages += ["one", "two"]
    assert watch.messages() == ["one", "two"]
    view.messages.append("three")
    assert watch.messages() == ["three"]
    assert watch.messages() == []
