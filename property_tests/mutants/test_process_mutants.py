"""Plant a small fault into the subprocess pool, and see the property of commands that is named for it find it."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import Phase, settings

from proctor.process import attend, place, pool

PLANS = Path(__file__).resolve().parents[1] / "plans" / "test_process_plans.py"
EXAMPLES = 100

BOUNDED = "test_16_a_command_is_back_in_bounded_time_counted_from_its_start"
LIMIT = "test_1_no_more_run_than_the_limit_and_every_place_comes_back"
CHANGES = "test_25_over_resizes_restarts_and_interrupts_too"
SIGNALS = "test_31_what_did_not_end_by_itself_is_told_first_and_then_killed"
NOTHING_LIVES = "test_31_nothing_in_the_group_lives_when_its_caller_has_left"
EVERY_AWAIT = "test_31_whatever_await_it_is_cancelled_at"

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


@mutant("no place is taken", LIMIT)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = place.Place.__aenter__

    async def enter(self: Any) -> None:
        self.limiter = None
        await plain(self)

    patch.setattr(place.Place, "__aenter__", enter)


@mutant("a place is kept by a command that was cancelled", LIMIT)
@mutant("a place is kept by a command that was cancelled at some await", EVERY_AWAIT)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = place.Place.__aexit__

    async def leave(self: Any, kind: Any, error: Any, traceback: Any) -> None:
        if kind is not None and issubclass(kind, anyio.get_cancelled_exc_class()):
            self.limiter.resize(max(0, self.limiter.limit - 1))
        await plain(self, kind, error, traceback)

    patch.setattr(place.Place, "__aexit__", leave)


@mutant("a process whose end is lost is waited for", BOUNDED)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attend, "REAP", math.inf)


@mutant("who holds the output is waited for", BOUNDED)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attend, "DRAIN", math.inf)


@mutant("the grace has no end", BOUNDED)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = attend.Attendance._gone

    async def gone(self: Any, seconds: float, *, hurriable: bool = False) -> bool:
        return await plain(self, math.inf if hurriable else seconds, hurriable=hurriable)

    patch.setattr(attend.Attendance, "_gone", gone)


@mutant("the clock of a timeout starts in the queue", BOUNDED)
def _(patch: pytest.MonkeyPatch) -> None:
    enter, finished = place.Place.__aenter__, attend.Attendance.finished
    queued: dict[int, float] = {}

    async def enters(self: Any) -> None:
        queued[anyio.get_current_task().id] = anyio.current_time()
        await enter(self)

    async def finish(self: Any, timeout: float | None) -> bool:
        waited = anyio.current_time() - queued[anyio.get_current_task().id]
        return await finished(self, None if timeout is None else max(0, timeout - waited))

    patch.setattr(place.Place, "__aenter__", enters)
    patch.setattr(attend.Attendance, "finished", finish)


@mutant("there is no grace", SIGNALS)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = attend.Attendance.end

    async def end(self: Any) -> None:
        self.hurried = True
        await plain(self)

    patch.setattr(attend.Attendance, "end", end)


@mutant("the polite signal is not sent", SIGNALS)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attend, "TERMINATE", 0)


@mutant("nobody is killed", SIGNALS)
@mutant("nobody is killed who does not obey", NOTHING_LIVES)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attend, "KILL", 0)
    patch.setattr(pool, "KILL", 0)


@mutant("a cancelled caller leaves its command running", NOTHING_LIVES)
def _(patch: pytest.MonkeyPatch) -> None:
    async def end(self: Any) -> None:
        self.running.pump()

    patch.setattr(attend.Attendance, "end", end)
    patch.setattr(pool, "KILL", 0)


@mutant("the grace can be cancelled", EVERY_AWAIT)
def _(patch: pytest.MonkeyPatch) -> None:
    class Unshielded:
        def __getattr__(self, name: str) -> Any:
            return getattr(anyio, name)

        def CancelScope(self, *, deadline: float = math.inf, shield: bool = False) -> anyio.CancelScope:
            return anyio.CancelScope(deadline=deadline)

    patch.setattr(attend, "anyio", Unshielded())
    patch.setattr(pool, "KILL", 0)


@mutant("what a caller leaves is not let go of", LIMIT)
def _(patch: pytest.MonkeyPatch) -> None:
    def leave(self: Any, attendance: Any) -> None:
        self._live.pop(attendance, None)

    patch.setattr(pool.SubprocessPool, "leave", leave)


@mutant("a restart leaves the children alive", CHANGES)
def _(patch: pytest.MonkeyPatch) -> None:
    async def close(self: Any, *, for_good: bool) -> None:
        return

    patch.setattr(pool.SubprocessPool, "close", close)


@mutant("after a restart the places are counted anew", CHANGES)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = pool.SubprocessPool.close

    async def close(self: Any, *, for_good: bool) -> None:
        await plain(self, for_good=for_good)
        if not for_good:
            self.limiter.resize(self.limiter.limit + 2)
            patch.setattr(type(self.limiter), "resize", lambda self, limit: None)

    patch.setattr(pool.SubprocessPool, "close", close)


def property_named(name: str) -> Any:
    """The property, freshly loaded."""
    spec = importlib.util.spec_from_file_location("process_plans_with_a_mutant", PLANS)
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
