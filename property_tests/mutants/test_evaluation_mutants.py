"""Plant a small fault into the engine, and see the property of whole evaluations that is named for it find it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import Phase, settings

from proctor.evaluation import ending, samplerun, taskrun
from proctor.evaluation.failure import is_cancellation
from proctor.model import actor
from proctor.runtime import blocks, sample_limits

PLANS = Path(__file__).resolve().parents[1] / "plans" / "test_evaluation_plans.py"
EXAMPLES = 60

Plant = Callable[[pytest.MonkeyPatch], None]


@attrs.frozen
class Mutant:
    """A fault and the property that finds it."""

    name: str
    caught_by: str
    plant: Plant


MUTANTS: list[Mutant] = []


def mutant(name: str, caught_by: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(name, caught_by, plant))
        return plant

    return add


@mutant("a cancelled sample leaves no record", "test_32_every_sample_that_started_has_exactly_one_record")
@mutant("a sample cancelled at some await leaves no record", "test_32_whatever_await_it_is_cancelled_at")
def _(patch: pytest.MonkeyPatch) -> None:
    deliver = taskrun.TaskRun._deliver_to

    def deliver_to(self: Any, writer: Any) -> Any:
        plain = deliver(self, writer)

        async def some(sample_run: Any, record: Any, failure: Any) -> None:
            if failure is None or not is_cancellation(failure):
                await plain(sample_run, record, failure)

        return some

    patch.setattr(taskrun.TaskRun, "_deliver_to", deliver_to)


@mutant("a record is handed over twice", "test_32_every_sample_that_started_has_exactly_one_record")
def _(patch: pytest.MonkeyPatch) -> None:
    deliver = taskrun.TaskRun._deliver_to

    def deliver_to(self: Any, writer: Any) -> Any:
        plain = deliver(self, writer)

        async def twice(sample_run: Any, record: Any, failure: Any) -> None:
            await writer.send(record)
            await plain(sample_run, record, failure)

        return twice

    patch.setattr(taskrun.TaskRun, "_deliver_to", deliver_to)


@mutant("a hand-over that can be cancelled", "test_32_whatever_await_it_is_cancelled_at")
def _(patch: pytest.MonkeyPatch) -> None:
    plain = ending.Ending.shielded

    def shielded(self: Any, seconds: float = 1e9, *, reserve: float = 0.0) -> Any:
        # The hand-over of a sample that ended in order has no time of its own, and the log's reserve.
        return anyio.CancelScope() if seconds == float("inf") and reserve else plain(self, seconds, reserve=reserve)

    patch.setattr(ending.Ending, "shielded", shielded)


@mutant("a drain cancels what runs", "test_30_after_a_drain_nothing_starts_and_what_runs_is_finished")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(taskrun.TaskRun, "drain", taskrun.TaskRun.cancel)


@mutant("a drain forgets the waiting sample", "test_30_after_a_drain_nothing_starts_and_what_runs_is_finished")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(samplerun.SampleRun, "withdraw", lambda self: None)


@mutant("a drain goes on feeding", "test_30_after_a_drain_nothing_starts_and_what_runs_is_finished")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(taskrun.TaskRun, "drain", lambda self, reason: None)


@mutant("a token limit counts what other samples use", "test_33_outcomes_do_not_depend_on_limits_timing_or_backend")
def _(patch: pytest.MonkeyPatch) -> None:
    open_now: list[Any] = []
    enter, leave, count = blocks.TokenBlock.__enter__, blocks.TokenBlock.__exit__, blocks.TokenBlock.count

    def enters(self: Any) -> Any:
        open_now.append(self)
        return enter(self)

    def leaves(self: Any, *error: Any) -> Any:
        open_now.remove(self)
        return leave(self, *error)

    def counts(self: Any, usage: Any) -> None:
        for limit in open_now:
            count(limit, usage)

    patch.setattr(blocks.TokenBlock, "__enter__", enters)
    patch.setattr(blocks.TokenBlock, "__exit__", leaves)
    patch.setattr(blocks.TokenBlock, "count", counts)


@mutant("the last who asks for connections wins", "test_36_two_evaluations_in_one_runtime_share_one_limit")
def _(patch: pytest.MonkeyPatch) -> None:
    def fit(self: Any) -> None:
        limit = max(self._asked, default=self.default)
        if limit != self.limiter.limit:
            self.limiter.resize(limit)

    patch.setattr(actor.ModelShare, "_fit", fit)


@mutant("waiting is work", "test_40_waiting_for_a_connection_is_no_work")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sample_limits.WorkingTime, "waiting", sample_limits.WorkingTime.active)


@mutant(
    "waits are counted although others work",
    "test_40_the_working_time_of_every_record_is_between_0_and_its_total",
)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = sample_limits.WorkingTime.working
    patch.setattr(sample_limits.WorkingTime, "working", lambda self: plain(self) - self.waited_twice)

    def waited(self: Any) -> float:
        return self.elapsed() - plain(self)

    patch.setattr(sample_limits.WorkingTime, "waited_twice", property(waited), raising=False)


def property_named(name: str) -> Any:
    """The property, freshly loaded."""
    spec = importlib.util.spec_from_file_location("evaluation_plans_with_a_mutant", PLANS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test: Any = getattr(module, name)
    test._hypothesis_internal_use_settings = settings(  # a test may not be decorated with settings twice
        max_examples=EXAMPLES, phases=[Phase.generate], derandomize=True, database=None, deadline=None
    )
    return test


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_planted_fault_is_found(backend: str, monkeypatch: pytest.MonkeyPatch, planted: Mutant) -> None:
    test = property_named(planted.caught_by)
    planted.plant(monkeypatch)
    with pytest.raises(BaseException) as caught:
        test(backend=backend)
    for leaf in leaves(caught.value):  # a fault that does not fit the engine any more proves nothing
        assert not isinstance(leaf, KeyboardInterrupt | SystemExit | AttributeError | TypeError | NameError), leaf


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]
