"""Plant a small fault into the pacer, and see the property that is named for it find the fault.

A property that no fault can break proves nothing. Each fault replaces one method or number for the length of a test.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import Phase, settings

from proctor.model.pacing import books, buckets, learning, pause, queue
from proctor.model.pacing.pacer import Pacer
from proctor.testing.pacing_monitor import PacingViolation

HERE = Path(__file__).resolve().parent

Plant = Callable[[pytest.MonkeyPatch], None]


@attrs.frozen
class Mutant:
    """A fault: the invariants it breaks, and the property that finds it, as ``file::test``."""

    name: str
    invariants: tuple[int, ...]
    caught_by: str
    plant: Plant


MUTANTS: list[Mutant] = []
SCHEDULES = "test_pacing_invariants.py::test_no_promise_is_broken_by_any_schedule"
HEADERS = "test_pacing_invariants.py::test_levels_and_shares_stay_within_their_bounds_whatever_headers_say"
PROBE = "test_pacing_invariants.py::test_a_lost_or_cancelled_probe_is_followed_by_another"
ROOM = "test_pacing_invariants.py::test_work_is_conserved"
CROWD = "test_pacing_invariants.py::test_a_crowd_never_passes_a_window_whatever_becomes_of_it"
REFUNDED = "test_pacing_invariants.py::test_what_was_never_admitted_costs_nothing"
DRAINED = "test_pacing_invariants.py::test_every_call_leaves_in_the_end_and_nothing_is_left_over"


def mutant(name: str, invariants: tuple[int, ...], caught_by: str) -> Any:
    def add(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(name, invariants, caught_by, plant))
        return plant

    return add


def unlimited(patch: pytest.MonkeyPatch) -> None:
    plain = Pacer._when

    def when(self: Any, *args: Any) -> float:
        counted, self._in_flight = self._in_flight, 0
        try:
            return plain(self, *args)
        finally:
            self._in_flight = counted

    patch.setattr(Pacer, "_when", when)


mutant("the window is not looked at", (1,), CROWD)(unlimited)
mutant("a static window is not looked at", (1,), ROOM)(unlimited)


@mutant("one more than the window leaves", (1,), CROWD)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = Pacer._when

    def when(self: Any, *args: Any) -> float:
        self._in_flight -= 1
        try:
            return plain(self, *args)
        finally:
            self._in_flight += 1

    patch.setattr(Pacer, "_when", when)


@mutant("the room is not used", (7,), ROOM)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = Pacer.poll

    def poll(self: Any, now: float, most: int | None = None) -> list[Any]:
        return plain(self, now, 1 if most is None else most)

    patch.setattr(Pacer, "poll", poll)


@mutant("a refused call keeps its place", (2,), SCHEDULES)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = Pacer.on_rate_limited

    def on_rate_limited(self: Any, *args: Any, **kwargs: Any) -> None:
        plain(self, *args, **kwargs)
        self._in_flight += 1

    patch.setattr(Pacer, "on_rate_limited", on_rate_limited)


@mutant("what is expected of a cancelled call is kept free for ever", (3,), DRAINED)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(books.Books, "fail", lambda self, ticket: None)


@mutant("what was refused is not given back", (3,), REFUNDED)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(books.Books, "refund", books.Books.fail)


@mutant("what was refused is not given back to the mirror", (3,), REFUNDED)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(buckets.Mirror, "settle", lambda self, difference: None)


@mutant(
    "a declared rate is refilled twice as fast",
    (4,),
    "test_pacing_invariants.py::test_a_declared_rate_is_kept_over_every_interval",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def advance(self: Any, now: float) -> None:
        self.level = min(self.capacity, self.level + 2 * (now - self.at) * self.eff)
        self.at = now

    patch.setattr(buckets.Bucket, "advance", advance)


@mutant(
    "a cancelled call is given back",
    (4, 13),
    "test_pacing_invariants.py::test_a_declared_rate_is_kept_over_every_interval",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(books.Books, "fail", books.Books.refund)


@mutant("a level above its capacity", (5,), HEADERS)
def _(patch: pytest.MonkeyPatch) -> None:
    def settle(self: Any, difference: float) -> None:
        self.level += difference
        self.corrected += difference

    patch.setattr(buckets.Mirror, "settle", settle)


@mutant("our share of a rate has no bounds", (5,), HEADERS)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(buckets, "SLOWEST", 0.001)
    patch.setattr(buckets, "LESS", 0.1)


@mutant(
    "stale headers count",
    (6,),
    "test_pacing_invariants.py::test_stale_headers_change_nothing_and_their_order_hardly_anything",
)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = buckets.Mirror.read

    def read(self: Any, *args: Any) -> None:
        self.newest = -1
        plain(self, *args)

    patch.setattr(buckets.Mirror, "read", read)


@mutant("nobody is woken for those that wait after a failure", (7,), SCHEDULES)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = Pacer.next_wakeup

    def next_wakeup(self: Any, now: float) -> float | None:
        delayed, self._delayed = self._delayed, []
        try:
            return plain(self, now)
        finally:
            self._delayed = delayed

    patch.setattr(Pacer, "next_wakeup", next_wakeup)


@mutant("all leave in probe mode", (8,), PROBE)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = Pacer._send

    def send(self: Any, ticket: Any, now: float) -> None:
        plain(self, ticket, now)
        self._pause.probe = None

    patch.setattr(Pacer, "_send", send)


@mutant("a lost probe is waited for", (7, 8, 11), PROBE)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pause.Pause, "gone", lambda self, ticket: None)
    patch.setattr(pause.Pause, "reopens_at", lambda self: None)


@mutant(
    "every refusal is a block", (9,), "test_pacing_invariants.py::test_a_burst_of_refusals_is_one_pause_and_one_rate"
)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = pause.Pause.refused

    def refused(self: Any, *args: Any, **kwargs: Any) -> Any:
        self._noticed = -1
        return plain(self, *args, **kwargs)

    patch.setattr(pause.Pause, "refused", refused)


@mutant(
    "nothing is kept free",
    (10,),
    "test_pacing_providers.py::test_no_call_is_refused_after_the_first_headers_of_a_provider_that_tells_the_truth",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(buckets, "MOST_MARGIN", -0.2)


@mutant(
    "who was idle has credit",
    (11,),
    "test_pacing_invariants.py::test_groups_of_equal_weight_differ_by_one_call_at_most",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def take(self: Any, ticket: Any, cost: float) -> None:
        plain(self, ticket, cost * (1 + ticket.line.group))

    plain = queue.Lines.take
    patch.setattr(queue.Lines, "take", take)


@mutant("Retry-After is believed", (12,), SCHEDULES)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pause, "LONGEST_ASKED", math.inf)
    patch.setattr(pause, "ASKED", math.inf)


@mutant("who was withdrawn leaves all the same", (2, 13), SCHEDULES)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = Pacer.withdraw

    def withdraw(self: Any, call: Any, now: float) -> None:
        plain(self, call, now)
        self.enqueue(call, now)

    patch.setattr(Pacer, "withdraw", withdraw)


@mutant(
    "the probing clock is the wall's",
    (14,),
    "test_pacing_invariants.py::test_the_probing_clock_stands_still_while_idle_or_paused",
)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = learning.Learned.send

    def send(self: Any, now: float) -> float:
        gap = plain(self, now)
        if self._recent and self.rate is not None:
            self.clock = now
        return gap

    patch.setattr(learning.Learned, "send", send)


@mutant("chance of its own", (15,), "test_pacing_invariants.py::test_the_same_seed_and_schedule_give_the_same_sends")
def _(patch: pytest.MonkeyPatch) -> None:
    import itertools

    numbers = itertools.count()
    plain = Pacer.on_failure

    def on_failure(self: Any, *args: Any, **kwargs: Any) -> None:
        for _ in range(next(numbers) % 7):
            self._rng.random()
        plain(self, *args, **kwargs)

    patch.setattr(Pacer, "on_failure", on_failure)


def property_named(address: str) -> Any:
    """A property test of this folder, to be run with unshrunk examples that are always the same."""
    file, _, name = address.partition("::")
    path = HERE / file
    spec = importlib.util.spec_from_file_location(f"{path.stem}_with_a_mutant", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test: Any = getattr(module, name)
    test._hypothesis_internal_use_settings = settings(  # a test may not be decorated with settings twice
        max_examples=500, phases=[Phase.generate], derandomize=True, database=None, deadline=None
    )
    return test


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, planted: Mutant) -> None:
    test = property_named(planted.caught_by)
    planted.plant(monkeypatch)
    with pytest.raises(AssertionError) as caught:
        test()
    if isinstance(caught.value, PacingViolation):
        assert caught.value.number in planted.invariants


def test_every_invariant_has_a_mutant() -> None:
    assert {number for each in MUTANTS for number in each.invariants} == set(range(1, 16))
