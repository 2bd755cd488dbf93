"""The pacer keeps its promises whatever a provider does: random schedules of calls, answers, refusals and lies.

Most of it is checked at every step by `WatchedPacer`; what needs a provider that tells the truth is in
test_pacing_providers.py.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from attrs import define, evolve, field
from hypothesis import given
from hypothesis import strategies as st

from proctor.model.config import AdaptiveConcurrency
from proctor.model.pacing import Call, Dimension, Pacer, PacingConfig, QuotaReading, Signal, Usage
from proctor.testing.pacing_monitor import WatchedPacer

DIMENSIONS = [each for each in Dimension if each is not Dimension.CONCURRENCY]
SECONDS = [0.0, 0.001, 0.05, 0.3, 1.0, 2.0, 7.0, 40.0, 300.0]
ASKED = [None, -3.0, 0.0, 0.2, 1.0, 89.0, 86400.0, 1e300, math.inf, math.nan]

any_float = st.one_of(st.sampled_from([-1.0, 0.0, 1.0, 60.0, math.inf, math.nan]), st.floats(0.0, 1e7))
readings = st.builds(
    QuotaReading,
    dimension=st.sampled_from(list(Dimension)),
    limit=any_float,
    remaining=any_float,
    reset_after=st.one_of(st.none(), any_float),
    window=st.sampled_from([1.0, 10.0, 60.0, 86400.0, 0.0, math.nan]),
)
sensible = st.builds(
    QuotaReading,
    dimension=st.sampled_from(DIMENSIONS),
    limit=st.sampled_from([60.0, 600.0, 20_000.0]),
    remaining=st.integers(0, 60).map(float),
    reset_after=st.sampled_from([None, 1.0, 30.0]),
)
quotas = st.lists(st.one_of(readings, sensible, sensible), max_size=3)
rates = st.one_of(st.none(), st.just(0.0), st.floats(1.0, 1e5))
bounds = st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(1, 30)).map(sorted)
configs = st.builds(
    PacingConfig,
    max_connections=st.one_of(st.none(), st.none(), st.integers(1, 20)),
    adaptive=st.one_of(st.none(), bounds.map(lambda b: AdaptiveConcurrency(min=b[0], start=b[1], max=b[2]))),
    requests_per_minute=rates,
    input_tokens_per_minute=rates,
    output_tokens_per_minute=rates,
    tokens_per_minute=rates,
    signal=st.sampled_from(list(Signal)),
    reserves_max_tokens=st.booleans(),
)
steps = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from(SECONDS)),
    st.tuples(st.just("wake")),
    st.tuples(st.just("enqueue"), st.integers(0, 2), st.integers(0, 3), st.integers(0, 20000)),
    st.tuples(st.just("enqueue"), st.integers(0, 2), st.integers(0, 3), st.integers(0, 2000)),
    st.tuples(st.just("withdraw"), st.integers(0, 50)),
    st.tuples(st.just("success"), st.integers(0, 50), st.sampled_from([0, 1, 1, 3]), st.integers(0, 4000), quotas),
    st.tuples(
        st.just("refused"), st.integers(0, 50), st.sampled_from(ASKED), quotas, st.sampled_from([None, *Dimension])
    ),
    st.tuples(st.just("refused"), st.integers(0, 50), st.none(), st.just([]), st.none()),
    st.tuples(st.just("failure"), st.integers(0, 50), st.sampled_from(ASKED), st.booleans()),
    st.tuples(st.just("cancel"), st.integers(0, 50)),
    st.tuples(st.just("abandon"), st.integers(0, 50)),
    st.tuples(st.just("configure"), configs),
)
schedules = st.lists(steps, min_size=5, max_size=80)


@define(eq=False)
class Play:
    """Plays a schedule; indices into what there is are taken modulo how many there are."""

    watched: WatchedPacer
    now: float = 100.0
    made: int = 0
    calls: list[Call] = field(factory=list)
    wakeups: list[float | None] = field(factory=list)

    def step(self, kind: str, *args: Any) -> None:
        getattr(self, f"do_{kind}")(*args)
        if kind not in {"wait", "abandon"}:
            self.watched.poll(self.now)
            self.wakeups.append(self.watched.next_wakeup(self.now))

    def pick(self, among: Sequence[Call], index: int) -> Call | None:
        return among[index % len(among)] if among else None

    def one_out(self, index: int) -> Call | None:
        return self.pick(list(self.watched.out), index)

    def do_wait(self, seconds: float) -> None:
        self.now += seconds

    def do_wake(self) -> None:
        wakeup = self.watched.next_wakeup(self.now)
        if wakeup is not None:
            self.now = wakeup

    def do_enqueue(self, group: int, made: int, tokens: int) -> None:
        self.made += 1
        call = Call(f"group {group}", (made, self.made), 1.0, tokens, None if tokens % 3 else 1000)
        self.calls.append(call)
        self.watched.enqueue(call, self.now)

    def do_withdraw(self, index: int) -> None:
        call = self.pick([call for call in self.calls if call in self.watched.waiting], index)
        if call is not None:
            self.watched.withdraw(call, self.now)

    def do_success(self, index: int, times: int, output: int, quota: list[QuotaReading]) -> None:
        call = self.one_out(index)
        if call is not None:
            usage = Usage(call.input_tokens * times // 2, output)
            self.watched.on_success(call, self.now, usage=usage, quota=quota)

    def do_refused(self, index: int, asked: float | None, quota: list[QuotaReading], named: Dimension | None) -> None:
        call = self.one_out(index)
        if call is not None:
            self.watched.on_rate_limited(call, self.now, retry_after=asked, quota=quota, dimension=named)

    def do_failure(self, index: int, asked: float | None, transient: bool) -> None:
        call = self.one_out(index)
        if call is not None:
            self.watched.on_failure(call, self.now, transient=transient, retry_after=asked)

    def do_cancel(self, index: int) -> None:
        call = self.one_out(index)
        if call is not None:
            self.watched.on_cancelled(call, self.now)

    def do_abandon(self, index: int) -> None:
        granted = self.watched.poll(self.now)
        call = self.pick(granted, index)
        if call is not None:
            self.watched.abandon(call, self.now)

    def do_configure(self, config: PacingConfig) -> None:
        out = set(self.watched.out)
        self.watched.configure(config, self.now)
        assert set(self.watched.out) == out


def play(config: PacingConfig, schedule: Sequence[Any], *, seed: int = 0) -> Play:
    played = Play(WatchedPacer(Pacer(config, now=100.0, rng=Random(seed))))
    for step in schedule:
        played.step(*step)
    return played


def drain(played: Play) -> None:
    """Answer everything until nobody waits and nobody is out."""
    watched = played.watched
    for _ in range(4 * len(played.calls) + 10):
        if not watched.waiting and not watched.out:
            return
        for call in list(watched.out):
            watched.on_success(call, played.now, usage=Usage(call.input_tokens, 10))
        played.now, _ = watched.until_something_leaves(played.now)
    raise AssertionError(f"calls starve: {watched.statistics(played.now)}")


@given(configs, schedules)
def test_no_promise_is_broken_by_any_schedule(config: PacingConfig, schedule: list[Any]) -> None:
    """Invariants 1, 2, 3, 5, 7, 8, 9, 12 and 13, at every step."""
    play(config, schedule)


narrow = st.builds(
    PacingConfig,
    max_connections=st.one_of(st.none(), st.integers(1, 4)),
    adaptive=bounds.map(lambda b: AdaptiveConcurrency(min=b[0], start=b[1], max=b[2])),
    signal=st.sampled_from(list(Signal)),
)
crowds = st.lists(
    st.one_of(
        *[st.tuples(st.just("enqueue"), st.integers(0, 2), st.integers(0, 3), st.just(100))] * 3,
        st.tuples(st.just("wait"), st.sampled_from([0.05, 1.0, 2.0, 7.0])),
        st.tuples(st.just("wake")),
        st.tuples(st.just("success"), st.integers(0, 50), st.just(1), st.integers(0, 400), st.just([])),
        st.tuples(st.just("refused"), st.integers(0, 50), st.none(), st.just([]), st.sampled_from([None, *Dimension])),
        st.tuples(st.just("cancel"), st.integers(0, 50)),
        st.tuples(st.just("configure"), narrow),
    ),
    min_size=10,
    max_size=60,
)


@given(narrow, crowds)
def test_a_crowd_never_passes_a_window_whatever_becomes_of_it(config: PacingConfig, schedule: list[Any]) -> None:
    """Invariant 1 for windows that are static, adapt within bounds, are cut by refusals and change while in use."""
    waiting = [("enqueue", number % 3, 0, 100) for number in range(10)]
    play(config, [*waiting, *schedule])


@given(configs, schedules)
def test_every_call_leaves_in_the_end_and_nothing_is_left_over(config: PacingConfig, schedule: list[Any]) -> None:
    """Invariants 3, 7, 11 and 12: no schedule, whatever was asked to wait for, leaves a call behind."""
    played = play(config, schedule)
    drain(played)
    state = played.watched.statistics(played.now)
    assert (state.in_flight, state.queued, state.delayed) == (0, 0, 0)
    assert state.outstanding == pytest.approx(0.0, abs=1e-3)


@given(configs, schedules, st.integers(0, 3))
def test_the_same_seed_and_schedule_give_the_same_sends(config: PacingConfig, schedule: list[Any], seed: int) -> None:
    """Invariant 15."""
    one, other = play(config, schedule, seed=seed), play(config, schedule, seed=seed)
    sends = [[(at, call.group, call.order) for at, call in each.watched.sends] for each in (one, other)]
    assert sends[0] == sends[1]
    assert one.wakeups == other.wakeups
    assert one.watched.history() == other.watched.history()


@given(
    st.floats(60.0, 6000.0),
    st.lists(st.sampled_from(["ok", "refused", "cancelled", "failed"]), max_size=30),
    st.sampled_from(["requests_per_minute", "input_tokens_per_minute"]),
)
def test_a_declared_rate_is_kept_over_every_interval(rate: float, ends: list[str], declared: str) -> None:
    """Invariant 4, with invariant 13: what is refused is given back, what is cancelled or failed is not."""
    each = 1 if declared == "requests_per_minute" else 100  # units of a call
    config = evolve(PacingConfig(max_connections=1000), **{declared: rate * each})
    watched = WatchedPacer(Pacer(config, now=0.0, rng=Random(0)))
    burst, now = max(1.0, rate / 60), 0.0
    for number in range(40 + int(2 * burst)):
        watched.enqueue(Call("task", (0, number), 1.0, 100), 0.0)
    back: list[float] = []
    outcomes = iter(ends)
    while watched.waiting:
        now, granted = watched.until_something_leaves(now)
        for call in granted:
            match next(outcomes, "ok"):
                case "refused":
                    back.append(now)
                    watched.on_rate_limited(call, now, retry_after=0.01)
                case "cancelled":
                    watched.on_cancelled(call, now)
                case "failed":
                    watched.on_failure(call, now, transient=False)
                case _:
                    watched.on_success(call, now, usage=Usage(100, 10))
    least = math.inf  # of what was sent before a send, less what was refilled by then
    for number, (at, _) in enumerate(watched.sends):
        least = min(least, number - bisect_left(back, at) - at * rate / 60)
        assert number + 1 - bisect_right(back, at) - at * rate / 60 - least <= burst + 1e-3


@given(
    st.integers(1, 30),
    st.lists(st.sampled_from(["refused", "abandoned"]), min_size=1, max_size=30),
    st.sampled_from(["requests_per_minute", "input_tokens_per_minute", "output_tokens_per_minute", None]),
    st.booleans(),
)
def test_what_was_never_admitted_costs_nothing(
    calls: int, ends: list[str], declared: str | None, reserves: bool
) -> None:
    """Invariant 3: each debit is given back in full, in declared rates and in those of headers."""
    config = PacingConfig(reserves_max_tokens=reserves)
    if declared is not None:
        config = evolve(config, **{declared: 60_000.0})
    watched = WatchedPacer(Pacer(config, now=0.0, rng=Random(0)))
    first = Call("task", (0, 0), 1.0, 100, 400)
    watched.enqueue(first, 0.0)
    assert watched.poll(0.0) == [first]
    quota = [QuotaReading(dimension, 600.0 * 400, 300.0 * 400, None) for dimension in DIMENSIONS]
    watched.on_success(first, 1.0, usage=Usage(100, 50), quota=quota)
    for number in range(calls):
        watched.enqueue(Call("task", (0, 1 + number), 1.0, 100, 400), 1.0)
    for how in ends:
        before = [rate.level for rate in watched.statistics(1.0).rates]
        granted = watched.poll(1.0)
        for call in granted:
            if how == "refused":
                watched.on_rate_limited(call, 1.0, retry_after=None, dimension=Dimension.CONCURRENCY)
            else:
                watched.abandon(call, 1.0)
        assert [rate.level for rate in watched.statistics(1.0).rates] == pytest.approx(before)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=60), st.sampled_from([1, 3]), st.integers(1, 5))
def test_groups_of_equal_weight_differ_by_one_call_at_most(arrivals: list[int], room: int, weight: int) -> None:
    """Invariant 11, while both have calls waiting."""
    watched = WatchedPacer(Pacer(PacingConfig(max_connections=room), now=0.0, rng=Random(0)))
    served = [0, 0]
    calls = [Call(group, (1, number), float(weight), 100) for number in range(40) for group in (0, 1)]
    for call in calls:
        watched.enqueue(call, 0.0)
    for extra, group in enumerate(arrivals):
        watched.enqueue(Call(group, (0, extra), float(weight), 100), 0.0)
    left = [40 + arrivals.count(0), 40 + arrivals.count(1)]
    while all(left):
        for call in watched.poll(0.0):
            if not all(left):
                break
            served[call.group] += 1
            left[call.group] -= 1
            assert abs(served[0] - served[1]) <= 1
        for call in list(watched.out):
            watched.on_success(call, 0.0, usage=Usage(100, 10))


@given(st.integers(1, 6), st.integers(1, 6))
def test_shares_follow_the_weights(light: int, heavy: int) -> None:
    """Invariant 11 for other weights."""
    watched = WatchedPacer(Pacer(PacingConfig(max_connections=1), now=0.0, rng=Random(0)))
    served = {"light": 0, "heavy": 0}
    for number in range(200):
        watched.enqueue(Call("light", (1, number), float(light), 100), 0.0)
        watched.enqueue(Call("heavy", (1, number), float(heavy), 100), 0.0)
    for _ in range(150):
        (call,) = watched.poll(0.0)
        served[call.group] += 1
        watched.on_success(call, 0.0, usage=Usage(100, 10))
        assert abs(served["light"] / light - served["heavy"] / heavy) <= 1 / light + 1 / heavy


@given(st.integers(2, 30), st.sampled_from(ASKED), st.floats(0.001, 0.3))
def test_a_burst_of_refusals_is_one_pause_and_one_rate(burst: int, asked: float | None, apart: float) -> None:
    """Invariant 9."""
    watched = WatchedPacer(Pacer(PacingConfig(), now=0.0, rng=Random(0)))
    now = 0.0
    for number in range(burst):
        watched.enqueue(Call("task", (0, number), 1.0, 100), now)
    while watched.waiting:
        now, _ = watched.until_something_leaves(now)
    for call in list(watched.out):
        watched.on_rate_limited(call, now, retry_after=asked)
        now += apart / burst
    kinds = [each.kind for each in watched.history()]
    assert (kinds.count("pause"), kinds.count("rate")) == (1, 1)


@given(st.floats(0.1, 1000.0), st.integers(5, 40))
def test_the_probing_clock_stands_still_while_idle_or_paused(idle: float, calls: int) -> None:
    """Invariant 14: how fast is sent next depends on what was sent since, not on how long ago that was."""

    def pace(pause: float) -> float:
        watched = WatchedPacer(Pacer(PacingConfig(), now=0.0, rng=Random(0)))
        now = 0.0
        for number in range(calls):
            watched.enqueue(Call("task", (0, number), 1.0, 100), now)
            now, (call,) = watched.until_something_leaves(now)
            if number == 2:
                watched.on_rate_limited(call, now, retry_after=None)
                now, (call,) = watched.until_something_leaves(now)
            if number > 2:
                now += pause
            watched.on_success(call, now, usage=Usage(100, 10))
        (rate,) = watched.statistics(now).rates
        return rate.effective

    assert pace(idle) == pytest.approx(pace(0.0))


shown = st.lists(sensible, max_size=2)
headers = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([0.3, 7.0, 300.0])),
        st.tuples(st.just("enqueue"), st.just(0), st.just(0), st.integers(100, 20000)),
        st.tuples(st.just("success"), st.integers(0, 9), st.sampled_from([1, 2, 3]), st.integers(0, 4000), shown),
        st.tuples(st.just("refused"), st.integers(0, 9), st.just(0.05), shown, st.sampled_from([None, *DIMENSIONS])),
    ),
    min_size=20,
    max_size=80,
)


@given(st.builds(PacingConfig, reserves_max_tokens=st.booleans()), headers)
def test_levels_and_shares_stay_within_their_bounds_whatever_headers_say(
    config: PacingConfig, steps: list[Any]
) -> None:
    """Invariant 5."""
    play(config, steps)


@given(st.permutations(range(8)), st.integers(0, 499))
def test_stale_headers_change_nothing_and_their_order_hardly_anything(order: list[int], absurd: int) -> None:
    """Invariant 6."""

    def level(order: Sequence[int], *, lie: bool = False) -> float:
        watched = WatchedPacer(Pacer(PacingConfig(), now=0.0, rng=Random(0)))
        first = Call("task", (0, 0), 1.0, 100)
        watched.enqueue(first, 0.0)
        watched.poll(0.0)
        watched.on_success(first, 1.0, usage=Usage(100, 10), quota=[reading(499)])
        now, sent = 1.0, []
        for number in range(8):
            watched.enqueue(Call("task", (0, 1 + number), 1.0, 100), now)
            now, granted = watched.until_something_leaves(now)
            sent.append((granted[0], int(500 - (number + 2) + (now - 1.0) * 500 / 60)))
        newest = -1
        for index in order:
            call, remaining = sent[index]
            shown = absurd if lie and index < newest else remaining
            newest = max(newest, index)
            watched.on_success(call, now + 1.0, usage=Usage(100, 10), quota=[reading(shown)])
        (rate,) = watched.statistics(now + 1.0).rates
        return rate.level

    def reading(remaining: float) -> QuotaReading:
        return QuotaReading(Dimension.REQUESTS, 500, remaining, None)

    assert level(order) == pytest.approx(level(range(8)), abs=1.0)
    assert level(order, lie=True) == pytest.approx(level(order), abs=1e-9)


@given(configs, st.integers(1, 40), st.integers(1, 40))
def test_work_is_conserved(config: PacingConfig, calls: int, room: int) -> None:
    """Invariant 7: with a static window and no rate all that fits leaves in one poll."""
    free = evolve(
        config,
        max_connections=room,
        requests_per_minute=None,
        input_tokens_per_minute=None,
        output_tokens_per_minute=None,
        tokens_per_minute=None,
    )
    watched = WatchedPacer(Pacer(free, now=0.0, rng=Random(0)))
    for number in range(calls):
        watched.enqueue(Call(number % 2, (0, number), 1.0, 100), 0.0)
    assert len(watched.poll(0.0)) == min(calls, room)


@given(st.integers(1, 5))
def test_a_lost_or_cancelled_probe_is_followed_by_another(lost: int) -> None:
    """Invariants 8 and 11."""
    watched = WatchedPacer(Pacer(PacingConfig(max_connections=10), now=0.0, rng=Random(0)))
    for number in range(20):
        watched.enqueue(Call("task", (0, number), 1.0, 100), 0.0)
    now = 0.0
    while not watched.statistics(now).probing:
        now, granted = watched.until_something_leaves(now)
        for call in granted:
            watched.on_rate_limited(call, now + 0.01, retry_after=None)
        now += 0.01
    for turn in range(lost):
        now, granted = watched.until_something_leaves(now)
        assert len(granted) == 1
        if turn % 2:
            watched.on_cancelled(granted[0], now)
        else:
            watched.on_failure(granted[0], now, transient=False)
    now, granted = watched.until_something_leaves(now)
    assert len(granted) == 1
    watched.on_success(granted[0], now + 0.1, usage=Usage(100, 10))
    assert not watched.statistics(now + 0.1).probing
