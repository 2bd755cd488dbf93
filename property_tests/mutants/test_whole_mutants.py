"""Plant a small fault into the engine, and see the property of evaluations with sandboxes and commands find it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import Phase, settings

from proctor.dataset import paging
from proctor.errors import ProcessTimeout
from proctor.evaluation import taskrun
from proctor.evaluation.failure import is_cancellation
from proctor.process import place, pool
from proctor.runtime import limits, sample_limits, scopes
from proctor.sandbox import task

subprocess = importlib.import_module("proctor.process.subprocess")  # its package has a function of this name
PLANS = Path(__file__).resolve().parents[1] / "plans" / "test_whole_plans.py"
EXAMPLES = 60

Plant = Callable[[pytest.MonkeyPatch], None]

LIMITS = "test_1_no_limit_is_passed_and_nothing_is_left"
CANCELLED = "test_30_after_a_cancellation_nothing_starts_and_all_is_gone_within_the_budget"
DRAINED = "test_30_after_a_drain_what_runs_is_finished_as_if_nothing_had_been_said"
RECORDS = "test_32_one_record_each_wherever_samples_fail_and_at_whatever_await_all_is_cancelled"
OUTCOMES = "test_33_outcomes_do_not_depend_on_limits_timing_or_backend"
SHARED = "test_36_two_evaluations_in_one_runtime_share_every_limit"
APART = "test_36_two_runtimes_in_one_loop_do_not_see_each_other"
WORKING = "test_40_working_time_is_between_0_and_the_total_and_no_wait_for_a_place_counts"
PAGED = "test_42_paged_samples_come_in_the_same_order_with_all_they_have"


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


@mutant("commands take no place", LIMITS)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = place.Place.__aenter__

    async def enter(self: Any) -> None:
        self.limiter = None
        await plain(self)

    patch.setattr(place.Place, "__aenter__", enter)


@mutant("a sample takes no place of a sandbox", LIMITS)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(task.Want, "lease", lambda self, group, outer=None: None)


@mutant("a command whose caller is cancelled lives on", CANCELLED)
@mutant("a command whose caller is cancelled at some await lives on", RECORDS)
def _(patch: pytest.MonkeyPatch) -> None:
    def leave(self: Any, attendance: Any) -> None:
        self._live.pop(attendance, None)
        attendance.running.close()

    async def end(self: Any) -> None:
        await checkpoint()

    patch.setattr(pool.SubprocessPool, "leave", leave)
    patch.setattr(pool.Attendance, "end", end)


@mutant("a cancelled sample leaves no record", RECORDS)
def _(patch: pytest.MonkeyPatch) -> None:
    deliver = taskrun.TaskRun._deliver_to

    def deliver_to(self: Any, writer: Any) -> Any:
        plain = deliver(self, writer)

        async def some(sample_run: Any, record: Any, failure: Any) -> None:
            if failure is None or not is_cancellation(failure):
                await plain(sample_run, record, failure)

        return some

    patch.setattr(taskrun.TaskRun, "_deliver_to", deliver_to)


@mutant("a drain cancels what runs", DRAINED)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(taskrun.TaskRun, "drain", taskrun.TaskRun.cancel)


@mutant("the time of a command begins in the queue", OUTCOMES)
def _(patch: pytest.MonkeyPatch) -> None:
    plain, enters = subprocess._run, place.Place.__aenter__
    began: dict[Any, float] = {}

    async def enter(self: Any) -> Any:
        began[anyio.get_current_task().id] = anyio.current_time()
        return await enters(self)

    async def run(pool: Any, command: Any, timeout: Any, grace: Any) -> Any:
        waited = anyio.current_time() - began[anyio.get_current_task().id]
        if timeout is not None and waited >= timeout:
            raise ProcessTimeout("while it waited")
        return await plain(pool, command, None if timeout is None else timeout - waited, grace)

    patch.setattr(place.Place, "__aenter__", enter)
    patch.setattr(subprocess, "_run", run)


@mutant("limits that a runtime shares are not held", SHARED)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(limits.SharedLimit, "value", property(lambda self: None))


@mutant("scopes are shared by runtimes", APART)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scopes, "current_runtime", lambda: None)


@mutant("waiting is work", WORKING)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sample_limits.WorkingTime, "waiting", sample_limits.WorkingTime.active)


@mutant("what is paged comes back without its files", PAGED)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = paging.unpack
    patch.setattr(paging, "unpack", lambda data: attrs.evolve(plain(data), files=None))


@mutant("rows of the file come back in another order", PAGED)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = paging.Pages.__getitem__

    def swapped(self: Any, row: int) -> Any:
        return plain(self, row ^ 1 if row ^ 1 < len(self) else row)

    patch.setattr(paging.Pages, "__getitem__", swapped)


def property_named(name: str) -> Any:
    """The property, freshly loaded."""
    spec = importlib.util.spec_from_file_location("whole_plans_with_a_mutant", PLANS)
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
