"""The simulated provider does what its traits say, and the simulation plays clients of it to the end."""

from __future__ import annotations

from random import Random

import pytest

from proctor.model.pacing import Dimension, Pacer, PacingConfig
from proctor.testing.pacing_ideal import ideal_makespan
from proctor.testing.pacing_simulation import PacingSimulation, Step, TaskPlan
from proctor.testing.provider import Penalty, ProviderTraits, Quota, Request, RetryAfter, SimulatedProvider, Status

REQUESTS = Quota(dimension=Dimension.REQUESTS, per_minute=60, burst=5)


def provider(*quotas: Quota, **traits: object) -> SimulatedProvider:
    return SimulatedProvider(ProviderTraits(quotas=quotas, **traits), Random(0))  # type: ignore[arg-type]


def request(size: int = 100, output: int = 50, *, most: int | None = None, luck: float = 1.0) -> Request:
    return Request(input_tokens=size, output_tokens=output, max_output_tokens=most, luck=luck)


def statuses(of: SimulatedProvider, count: int, now: float) -> list[str]:
    return [of.arrive(request(), now).status.value for _ in range(count)]


def test_a_bucket_admits_its_burst_and_then_its_rate() -> None:
    served = provider(REQUESTS)
    assert statuses(served, 6, 0.0) == ["ok"] * 5 + ["429"]
    assert statuses(served, 2, 1.0) == ["ok", "429"]


def test_a_fixed_window_is_full_again_every_minute() -> None:
    served = provider(Quota(dimension=Dimension.REQUESTS, per_minute=3, fixed=True))
    assert statuses(served, 4, 50.0) == ["ok", "ok", "ok", "429"]
    assert statuses(served, 1, 59.9) == ["429"]
    assert statuses(served, 4, 60.0) == ["ok", "ok", "ok", "429"]


def test_output_counts_when_it_is_produced_unless_it_is_reserved() -> None:
    quota = Quota(dimension=Dimension.OUTPUT_TOKENS, per_minute=600, burst=10)
    late, early = provider(quota), provider(quota, reserves=True)
    for served in (late, early):
        answer = served.arrive(request(output=70, most=90), 0.0)
        assert served.tanks[0].level == (100 if served is late else 10)
        served.leave(answer, 1.0)
        assert served.tanks[0].level == (30 if served is late else 40)  # 10 were refilled if there was room


def test_another_user_takes_a_share() -> None:
    served = provider(Quota(dimension=Dimension.REQUESTS, per_minute=60, burst=5, taken=(10.0, 20.0, 0.5)))
    statuses(served, 5, 12.0)
    served.arrive(request(), 14.0)
    assert served.tanks[0].level == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("trait", "expected"),
    [(RetryAfter.ABSENT, None), (RetryAfter.WHOLE, 1.0), (RetryAfter.FRACTION, 0.25), (89.0, 89.0), (-1.0, -1.0)],
)
def test_retry_after_in_every_spelling(trait: object, expected: float | None) -> None:
    served = provider(REQUESTS, retry_after=trait)
    statuses(served, 5, 0.0)
    assert served.arrive(request(), 0.75).retry_after == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(("at_completion", "remaining"), [(False, 4.0), (True, 2.0)])
def test_headers_are_stamped_at_admission_or_at_completion(at_completion: bool, remaining: float) -> None:
    served = provider(REQUESTS, headers=True, at_completion=at_completion)
    first = served.arrive(request(), 0.0)
    statuses(served, 2, 0.0)
    served.leave(first, 0.5)
    assert first.quota[0].remaining == remaining
    assert first.quota[0].limit == 60


def test_calls_in_flight_are_capped_and_make_each_other_slow() -> None:
    served = provider(concurrency=3, knee=2, names_dimension=True)
    quick, _, slow = (served.arrive(request(), 0.0) for _ in range(3))
    assert slow.duration == pytest.approx(quick.duration * 1.5**1.3)
    refused = served.arrive(request(), 0.0)
    assert (refused.status, refused.dimension) == (Status.LIMITED, Dimension.CONCURRENCY)
    served.leave(quick, 1.0)
    assert served.arrive(request(), 1.0).status is Status.OK


def test_luck_decides_faults_and_hangs() -> None:
    served = provider(faults=0.1, hangs=0.05, hang=120.0)
    assert served.arrive(request(luck=0.04), 0.0).duration == 120.0
    assert served.arrive(request(luck=0.14), 0.0).status is Status.FAULT
    assert served.arrive(request(luck=0.16), 0.0).status is Status.OK


def test_who_does_not_stop_is_locked_out() -> None:
    served = provider(REQUESTS, penalty=Penalty(refusals=3, within=10.0, lasting=20.0))
    statuses(served, 9, 0.0)  # 5 admitted, 4 refused
    assert statuses(served, 1, 15.0) == ["429"]
    assert statuses(served, 1, 20.1) == ["ok"]


def test_refused_requests_may_count() -> None:
    served = provider(REQUESTS, counts_refused=True)
    statuses(served, 8, 0.0)
    assert served.tanks[0].level == -3.0


def plan(count: int, *, calls: int = 1, tools: float = 0.0, luck: float = 1.0) -> TaskPlan:
    step = Step(input_tokens=100, counted=100, output_tokens=100, tools=tools, luck=luck)
    return TaskPlan(samples=[[step] * calls for _ in range(count)])


def test_the_ideal_takes_as_long_as_arithmetic_says() -> None:
    traits = ProviderTraits(quotas=(Quota(dimension=Dimension.REQUESTS, per_minute=600, burst=10),), jitter=0.0)
    latency = traits.first_token + 100 * traits.per_token + 2 * traits.travel
    ideal = ideal_makespan([plan(600)], SimulatedProvider(traits, Random(0)))
    assert ideal == pytest.approx((600 - 100) / 10 + latency, abs=0.2)


def test_the_ideal_waits_for_tools_and_tries_again_after_faults() -> None:
    traits = ProviderTraits(jitter=0.0, travel=0.0, faults=0.5)
    latency = traits.first_token + 100 * traits.per_token
    once = ideal_makespan([plan(1, calls=3, tools=7.0)], SimulatedProvider(traits, Random(0)))
    assert once == pytest.approx(3 * latency + 2 * 7.0)
    failed_first = ideal_makespan([plan(1, luck=0.3)], SimulatedProvider(traits, Random(0)))
    assert failed_first == pytest.approx(latency + traits.first_token)


def play(seed: int) -> PacingSimulation:
    traits = ProviderTraits(quotas=(Quota(dimension=Dimension.REQUESTS, per_minute=600, burst=5),), faults=0.1)
    pacer = Pacer(PacingConfig(), now=0.0, rng=Random(seed))
    work = [plan(150, calls=2, tools=0.5, luck=0.5), plan(150)]
    simulation = PacingSimulation(work, SimulatedProvider(traits, Random(seed)), pacer, Random(seed))
    simulation.run()
    return simulation


def test_every_sample_is_played_to_its_end() -> None:
    outcome = play(1).outcome
    assert outcome.finished
    assert outcome.successes == 450
    assert sum(len(times) for times in outcome.sends.values()) == 450


def test_the_same_seed_gives_the_same_run() -> None:
    one, other = play(2).outcome, play(2).outcome
    assert (one.makespan, one.refusals, one.events) == (other.makespan, other.refusals, other.events)
    assert play(3).outcome.makespan != one.makespan
