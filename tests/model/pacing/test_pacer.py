"""What a pacer does, step by step, in made-up time."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from proctor.model.config import AdaptiveConcurrency
from proctor.model.pacing import Call, Dimension, Pacer, PacingConfig, QuotaReading, Signal, Usage
from proctor.testing.pacing_monitor import WatchedPacer


def watched(**config: Any) -> WatchedPacer:
    return WatchedPacer(Pacer(PacingConfig(**config), now=0.0, rng=Random(0)))


def calls(count: int, *, group: object = "task", made: int = 0, tokens: int = 100, first: int = 0) -> list[Call]:
    return [Call(group, (made, first + number), 1.0, tokens, 1000) for number in range(count)]


def enqueue(pacer: WatchedPacer, batch: list[Call], now: float = 0.0) -> list[Call]:
    for call in batch:
        pacer.enqueue(call, now)
    return batch


def leave(pacer: WatchedPacer, count: int, now: float = 0.0) -> list[tuple[float, Call]]:
    """Follow the wake-ups until so many have left."""
    left: list[tuple[float, Call]] = []
    while len(left) < count:
        now, granted = pacer.until_something_leaves(now)
        assert granted
        left.extend((now, call) for call in granted)
    return left


def requests(remaining: float, limit: float = 600, window: float = 60.0) -> list[QuotaReading]:
    return [QuotaReading(Dimension.REQUESTS, limit, remaining, None, window)]


def ok(pacer: WatchedPacer, call: Call, now: float, remaining: float | None = None, **reading: float) -> None:
    quota = [] if remaining is None else requests(remaining, **reading)
    pacer.on_success(call, now, usage=Usage(call.input_tokens, 50), quota=quota)


# -- who leaves when


def test_before_anything_is_known_twenty_calls_leave_in_two_seconds() -> None:
    pacer = watched()
    enqueue(pacer, calls(30))
    left = leave(pacer, 20)
    assert left[0][0] == 0.0
    assert left[-1][0] == pytest.approx(1.9)


def test_with_a_static_window_all_of_it_leaves_at_once_and_nothing_is_learned() -> None:
    pacer = watched(max_connections=7)
    enqueue(pacer, calls(10))
    granted = pacer.poll(0.0)
    assert len(granted) == 7
    ok(pacer, granted[0], 1.0, remaining=0)
    pacer.on_rate_limited(granted[1], 1.0, retry_after=None)
    assert pacer.statistics(1.0).rates == ()
    assert pacer.statistics(1.0).window == 7
    assert len(pacer.poll(2.0)) == 2


def test_a_declared_rate_paces_what_leaves() -> None:
    pacer = watched(requests_per_minute=60, max_connections=100)
    enqueue(pacer, calls(5))
    assert [round(at, 3) for at, _ in leave(pacer, 5)] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_declared_tokens_are_corrected_by_what_a_call_used() -> None:
    pacer = watched(tokens_per_minute=6000, max_connections=100)
    first, _ = enqueue(pacer, calls(2, tokens=50))
    leave(pacer, 1)
    (rate,) = pacer.statistics(0.0).rates
    assert rate.level == 100 - 50 - 250  # output is expected to be a quarter of its limit
    pacer.on_success(first, 0.0, usage=Usage(50, 20))
    (rate,) = pacer.statistics(0.0).rates
    assert rate.level == 100 - 50 - 20


def test_what_every_call_has_beside_its_text_is_known_after_the_first() -> None:
    """Tool definitions and templates may be forty times the text: what is sent next must be counted in full."""
    pacer = watched(tokens_per_minute=60_000, max_connections=100)
    first, _ = enqueue(pacer, calls(2, tokens=2))
    leave(pacer, 1)
    pacer.on_success(first, 0.0, usage=Usage(82, 20))
    (before,) = pacer.statistics(0.0).rates
    now, _ = pacer.until_something_leaves(0.1)
    (after,) = pacer.statistics(now).rates
    assert before.level == 1000 - 82 - 20
    assert after.level == pytest.approx(1000 - 82 - 20, abs=5)


def test_the_first_headers_set_the_rate_and_what_is_left_may_be_spent_four_times_as_fast() -> None:
    pacer = watched()
    enqueue(pacer, calls(200))
    (at, first), *_ = leave(pacer, 1)
    ok(pacer, first, at + 0.5, remaining=599)
    left = leave(pacer, 100, now=0.5)
    assert 100 / (left[-1][0] - left[0][0]) == pytest.approx(40, rel=0.05)
    assert pacer.statistics(left[-1][0]).window == 4000


def test_when_nothing_is_left_the_rate_is_kept() -> None:
    pacer = watched()
    enqueue(pacer, calls(60))
    (_, first), *_ = leave(pacer, 1)
    ok(pacer, first, 1.0, remaining=3)
    left = leave(pacer, 30, now=1.0)
    assert left[-1][0] - left[10][0] == pytest.approx(19 / 10, rel=0.05)


def test_a_quota_of_a_day_is_not_spread_over_the_day() -> None:
    pacer = watched()
    enqueue(pacer, calls(600))
    (_, first), *_ = leave(pacer, 1)
    ok(pacer, first, 1.0, remaining=14_000, limit=14_400, window=86_400.0)
    left = leave(pacer, 500, now=1.0)
    assert left[-1][0] < 5.0


def test_several_limits_of_one_dimension_are_all_kept() -> None:
    pacer = watched()
    enqueue(pacer, calls(30))
    (_, first), *_ = leave(pacer, 1)
    quota = [*requests(9, limit=10, window=10.0), *requests(4000, limit=5000, window=86_400.0)]
    pacer.on_success(first, 1.0, usage=Usage(100, 10), quota=quota)
    assert {round(rate.per_minute, 2) for rate in pacer.statistics(1.0).rates} == {60.0, 3.47}
    left = leave(pacer, 25, now=1.0)
    assert left[-1][0] - left[-2][0] == pytest.approx(1.0)


def test_zero_declares_that_there_is_no_such_limit() -> None:
    pacer = watched(requests_per_minute=0)
    enqueue(pacer, calls(2))
    (_, first), *_ = leave(pacer, 1)
    ok(pacer, first, 1.0, remaining=0)
    assert pacer.statistics(1.0).rates == ()


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_limits_that_make_no_sense_are_absent(limit: float) -> None:
    pacer = watched()
    enqueue(pacer, calls(2))
    (_, first), *_ = leave(pacer, 1)
    ok(pacer, first, 1.0, remaining=0, limit=limit)
    assert pacer.statistics(1.0).rates == ()


def test_a_call_larger_than_the_bucket_leaves_when_it_is_full() -> None:
    pacer = watched(tokens_per_minute=600, max_connections=5)
    enqueue(pacer, calls(2, tokens=5000))
    left = leave(pacer, 2)
    assert left[0][0] == 0.0
    assert left[1][0] == pytest.approx((5000 + 250) / 10)


# -- who is next


def test_samples_that_have_made_fewer_calls_go_first() -> None:
    pacer = watched(max_connections=1)
    late = calls(1, made=3)
    early = calls(1, made=1, first=7)
    enqueue(pacer, late + early)
    assert [pacer.poll(0.0)] == [early]


def test_a_refused_call_is_the_first_of_its_group_again() -> None:
    pacer = watched(max_connections=1)
    refused, *_ = enqueue(pacer, calls(1, made=9))
    pacer.poll(0.0)
    enqueue(pacer, calls(3))
    pacer.on_rate_limited(refused, 0.1, retry_after=None)
    assert leave(pacer, 1, now=0.1)[0][1] is refused


def test_two_groups_take_turns() -> None:
    pacer = watched(max_connections=6)
    enqueue(pacer, calls(10, group="a") + calls(10, group="b"))
    groups = [call.group for call in pacer.poll(0.0)]
    assert groups.count("a") == groups.count("b") == 3


# -- refusals


def test_one_refusal_stops_everybody_for_a_moment() -> None:
    pacer = watched(max_connections=3)
    enqueue(pacer, calls(9))
    first, second, third = pacer.poll(0.0)
    pacer.on_rate_limited(first, 0.1, retry_after=None)
    ok(pacer, second, 0.11)
    ok(pacer, third, 0.11)
    assert pacer.poll(0.11) == []
    assert pacer.next_wakeup(0.11) == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("asked", "pause"),
    [(None, 0.05), (0.3, 0.3), (1.0, 1.0), (89.0, 2.0), (math.inf, 2.0), (math.nan, 0.05), (0.0, 0.05), (-7.0, 0.05)],
)
def test_retry_after_bounds_the_first_pause_from_above(asked: float | None, pause: float) -> None:
    pacer = watched(max_connections=3)
    enqueue(pacer, calls(3))
    first, *_ = pacer.poll(0.0)
    pacer.on_rate_limited(first, 1.0, retry_after=asked)
    assert pacer.statistics(1.0).pause == pytest.approx(pause)


def probing() -> tuple[WatchedPacer, float]:
    """A pacer that was refused twice in a row, with 20 calls in line."""
    pacer = watched(max_connections=10)
    enqueue(pacer, calls(20))
    now = 0.0
    for _ in range(2):
        now, granted = pacer.until_something_leaves(now)
        for call in granted:
            pacer.on_rate_limited(call, now + 0.1, retry_after=None)
        now += 0.1
    return pacer, now


def test_after_two_refusals_in_a_row_one_call_at_a_time_leaves() -> None:
    pacer, now = probing()
    assert pacer.statistics(now).probing
    now, granted = pacer.until_something_leaves(now)
    assert len(granted) == 1
    assert pacer.poll(now + 0.3) == []


def test_a_probe_that_succeeds_opens_the_lane() -> None:
    pacer, now = probing()
    now, (probe,) = pacer.until_something_leaves(now)
    ok(pacer, probe, now + 0.2)
    assert len(pacer.poll(now + 0.2)) == 10


def test_a_probe_that_is_not_refused_in_time_opens_the_lane() -> None:
    pacer, now = probing()
    now, _ = pacer.until_something_leaves(now)
    at, granted = pacer.until_something_leaves(now)
    assert at == pytest.approx(now + 0.4)
    assert len(granted) == 9


def test_who_always_asks_for_too_little_is_not_asked_twenty_times_a_second() -> None:
    pacer = watched(max_connections=1)
    enqueue(pacer, calls(1))
    now, attempts = 0.0, 0
    while now < 60.0:
        now, (call,) = pacer.until_something_leaves(now)
        attempts += 1
        pacer.on_rate_limited(call, now + 0.01, retry_after=0.05)
        now += 0.01
    assert attempts < 30


def test_a_rate_is_learned_from_refusals_when_no_header_shows_it() -> None:
    pacer = watched()
    enqueue(pacer, calls(400))
    level, at, now = 20.0, 0.0, 0.0  # a bucket of 20 that refills ten times a second
    while pacer.waiting:
        now, granted = pacer.until_something_leaves(now)
        for call in granted:
            level, at = min(20.0, level + (now - at) * 10), now
            if level < 1.0:
                pacer.on_rate_limited(call, now, retry_after=None)
            else:
                level -= 1.0
                ok(pacer, call, now)
    (rate,) = pacer.statistics(now).rates
    assert rate.source == "learned"
    assert rate.per_minute == pytest.approx(600, rel=0.03)
    assert pacer.statistics(now).rate_limited < 30


def test_a_refusal_for_calls_in_flight_sets_the_window_and_quiet_raises_it_again() -> None:
    pacer = watched(signal=Signal.UNKNOWN)
    enqueue(pacer, calls(100))
    left = [call for _, call in leave(pacer, 20)]
    now = 2.0
    pacer.on_rate_limited(left.pop(), now, retry_after=None, dimension=Dimension.CONCURRENCY)
    assert pacer.statistics(now).window == 19
    while now < 13.0:
        now += 0.5
        ok(pacer, left.pop(0), now)
        left += pacer.poll(now)
    assert pacer.statistics(now).window == 20


# -- other failures


def test_a_call_that_fails_waits_off_its_slot_while_others_leave() -> None:
    pacer = watched(max_connections=1)
    enqueue(pacer, calls(2))
    (failed,) = pacer.poll(0.0)
    pacer.on_failure(failed, 1.0, transient=True)
    (other,) = pacer.poll(1.0)
    assert other is not failed
    ok(pacer, other, 1.1)
    at, (again,) = pacer.until_something_leaves(1.1)
    assert again is failed
    assert 1.25 <= at <= 1.75


def test_the_wait_after_failures_doubles_up_to_half_a_minute() -> None:
    pacer = watched(max_connections=1)
    enqueue(pacer, calls(1))
    now, waits = 0.0, []
    for _ in range(12):
        at, (call,) = pacer.until_something_leaves(now)
        waits.append(at - now)
        pacer.on_failure(call, at, transient=True)
        now = at
    assert 0.25 <= waits[1] <= 0.75
    assert 2.0 <= waits[4] <= 6.0
    assert max(waits) <= 45.0


def test_a_call_that_fails_for_good_is_gone() -> None:
    pacer = watched(max_connections=1)
    enqueue(pacer, calls(1))
    (call,) = pacer.poll(0.0)
    pacer.on_failure(call, 1.0, transient=False)
    assert pacer.statistics(1.0).queued == 0
    pacer.enqueue(call, 2.0)  # and may be asked for anew


def test_a_caller_without_attempts_left_withdraws_what_was_put_back() -> None:
    pacer = watched(max_connections=2)
    enqueue(pacer, calls(2))
    refused, failed = pacer.poll(0.0)
    pacer.on_rate_limited(refused, 1.0, retry_after=None)
    pacer.withdraw(refused, 1.0)
    pacer.on_failure(failed, 1.0, transient=True)
    pacer.withdraw(failed, 1.0)
    assert pacer.statistics(1.0).queued == 0
    assert pacer.poll(100.0) == []


def test_what_was_granted_and_never_sent_costs_nothing() -> None:
    pacer = watched(requests_per_minute=60, max_connections=10)
    enqueue(pacer, calls(2))
    (call,) = pacer.poll(0.0)
    pacer.abandon(call, 0.0)
    (rate,) = pacer.statistics(0.0).rates
    assert rate.level == 1.0


def test_misuse_is_named() -> None:
    pacer = watched()
    (call,) = enqueue(pacer, calls(1))
    with pytest.raises(ValueError, match="enqueued once"):
        pacer.pacer.enqueue(call, 0.0)
    with pytest.raises(ValueError, match="settled once"):
        pacer.pacer.on_cancelled(call, 0.0)


# -- live changes


def test_lowering_the_window_disturbs_nobody_and_raising_it_admits() -> None:
    pacer = watched(max_connections=5)
    enqueue(pacer, calls(20))
    granted = pacer.poll(0.0)
    pacer.configure(PacingConfig(max_connections=2), 1.0)
    assert len(pacer.out) == 5
    for call in granted[:3]:
        ok(pacer, call, 1.0)
        assert pacer.poll(1.0) == []
    pacer.configure(PacingConfig(max_connections=8), 2.0)
    assert len(pacer.poll(2.0)) == 6


def test_a_window_that_was_static_grows_when_it_may() -> None:
    pacer = watched(max_connections=2)
    enqueue(pacer, calls(100))
    granted = pacer.poll(0.0)
    pacer.configure(PacingConfig(), 1.0)
    for call in granted:
        ok(pacer, call, 1.0)
    now, left = 1.0, []
    while now < 12.0:
        now, granted = pacer.until_something_leaves(now)
        left += granted
        if not granted:
            break
    assert pacer.statistics(now).window > 2


def test_the_users_bounds_hold() -> None:
    pacer = watched(adaptive=AdaptiveConcurrency(min=3, start=4, max=6))
    enqueue(pacer, calls(50))
    left = [call for _, call in leave(pacer, 4)]
    now = 3.0
    for _ in range(40):
        ok(pacer, left.pop(0), now, remaining=500)
        left += pacer.poll(now)
        now += 0.5
        if not left:
            break
        assert 3 <= pacer.statistics(now).window <= 6


# -- samples


def test_another_sample_is_wanted_when_its_call_could_leave_at_once() -> None:
    pacer = watched(requests_per_minute=60, max_connections=10)
    assert pacer.wants_sample(0.0)
    enqueue(pacer, calls(1))
    assert not pacer.wants_sample(0.0)
    pacer.poll(0.0)
    assert not pacer.wants_sample(0.5)
    assert pacer.next_wakeup(0.5) == pytest.approx(1.0)  # with an empty line too
    assert pacer.wants_sample(1.0)


def test_another_sample_is_wanted_while_calls_of_older_ones_wait_but_not_while_first_calls_do() -> None:
    pacer = watched(requests_per_minute=600, max_connections=100)
    enqueue(pacer, calls(40, made=2))
    pacer.poll(0.0)
    assert pacer.wants_sample(0.0)
    enqueue(pacer, calls(1, first=99))
    assert not pacer.wants_sample(0.0)


def test_no_sample_is_wanted_while_paused() -> None:
    pacer = watched(max_connections=10)
    enqueue(pacer, calls(1))
    (call,) = pacer.poll(0.0)
    pacer.on_rate_limited(call, 0.0, retry_after=1.0)
    pacer.withdraw(call, 0.0)
    assert not pacer.wants_sample(0.5)
    assert pacer.next_wakeup(0.5) == pytest.approx(1.0)
    assert pacer.wants_sample(1.0)


# -- what is to be seen


def test_decisions_are_kept_with_their_reasons() -> None:
    pacer = watched()
    enqueue(pacer, calls(3))
    (_, first), (_, second) = leave(pacer, 2)
    ok(pacer, first, 1.0, remaining=599)
    pacer.on_rate_limited(second, 1.5, retry_after=1.0)
    told = [(each.time, each.kind, each.value) for each in pacer.history()]
    assert (1.0, "rate", 600.0) in told
    assert (1.5, "pause", 1.0) in told


def test_the_history_is_bounded() -> None:
    pacer = watched(max_connections=1)
    for number in range(1500):
        pacer.configure(PacingConfig(max_connections=1 + number % 2), float(number))
    assert len(pacer.history()) == 1000


def test_statistics_tell_where_everything_is() -> None:
    pacer = watched(max_connections=3)
    enqueue(pacer, calls(4, group="a") + calls(1, group="b"))
    first, second, _ = pacer.poll(0.0)
    ok(pacer, first, 2.0)
    pacer.on_failure(second, 2.0, transient=True)
    state = pacer.statistics(2.0)
    assert (state.window, state.in_flight, state.queued, state.delayed) == (3, 1, 3, 1)
    assert (state.sent, state.succeeded, state.failed, state.rate_limited) == (3, 1, 1, 0)
    assert state.latency == 2.0
    assert state.outstanding == 250.0
