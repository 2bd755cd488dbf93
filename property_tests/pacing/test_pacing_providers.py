"""The pacer against providers of every kind, in whole simulated runs: all gets done, and no promise is broken."""

from __future__ import annotations

from random import Random
from typing import Any, cast

from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from proctor.model.pacing import Call, Dimension, Pacer, PacingConfig, Signal
from proctor.testing.pacing_ideal import ideal_makespan
from proctor.testing.pacing_monitor import WatchedPacer
from proctor.testing.pacing_simulation import PacingSimulation, Step, TaskPlan
from proctor.testing.provider import Penalty, ProviderTraits, Quota, RetryAfter, SimulatedProvider
from proctor.testing.strategies import scaled

COUNTED = [Dimension.REQUESTS, Dimension.INPUT_TOKENS, Dimension.OUTPUT_TOKENS, Dimension.TOKENS]
MEAN = {Dimension.REQUESTS: 1, Dimension.INPUT_TOKENS: 300, Dimension.OUTPUT_TOKENS: 100, Dimension.TOKENS: 400}


@st.composite
def quotas(draw: st.DrawFn, *, dimensions: list[Dimension], least_burst: float = 2.0) -> tuple[Quota, ...]:
    chosen = draw(st.lists(st.sampled_from(dimensions), min_size=1, max_size=2, unique=True))
    calls = draw(st.floats(60, 3000))
    return tuple(
        Quota(
            dimension=dimension,
            per_minute=calls * MEAN[dimension] * draw(st.floats(1.0, 1.5)),
            burst=draw(st.floats(least_burst, 60.0)),
        )
        for dimension in chosen
    )


@frozen
class Work:
    """What is to be done, in few words: a seed and for each task samples, seconds until it begins, and of set-up."""

    seed: int
    tasks: list[tuple[int, float, tuple[float, float]]]

    def plans(self, *, exact: bool = False, most: int = 2000) -> list[TaskPlan]:
        rng = Random(self.seed)
        return [
            TaskPlan(
                samples=[[step(rng, exact=exact, most=most) for _ in range(rng.randint(1, 3))] for _ in range(samples)],
                group=group,
                begins=begins,
                set_up=set_up,
            )
            for group, (samples, begins, set_up) in enumerate(self.tasks)
        ]


tasks = st.tuples(
    st.integers(1, 150), st.sampled_from([0.0, 7.0]), st.sampled_from([(0.0, 0.0), (1.0, 2.0), (0.0, 20.0)])
)
works = st.builds(Work, seed=st.integers(0, 10**6), tasks=st.lists(tasks, min_size=1, max_size=2))


def step(rng: Random, *, exact: bool, most: int) -> Step:
    size = min(most, int(rng.lognormvariate(5.5, 0.6)))
    return Step(
        input_tokens=size,
        counted=size if exact else max(1, int(size * rng.uniform(0.7, 1.2))),
        output_tokens=min(1000, 1 + int(rng.lognormvariate(4.3, 0.6))),
        max_output_tokens=1000,
        slowness=rng.gauss(0, 1),
        luck=rng.random(),
        tools=rng.choice([0.0, 0.5]),
    )


providers = st.builds(
    ProviderTraits,
    quotas=quotas(dimensions=COUNTED),
    concurrency=st.one_of(st.none(), st.integers(2, 60)),
    first_token=st.floats(0.05, 2.0),
    travel=st.floats(0.0, 0.1),
    jitter=st.floats(0.0, 0.1),
    knee=st.one_of(st.none(), st.integers(5, 60)),
    faults=st.sampled_from([0.0, 0.03, 0.3]),
    hangs=st.sampled_from([0.0, 0.01]),
    hang=st.just(30.0),
    retry_after=st.sampled_from([*RetryAfter, 0.0, -1.0, 89.0]),
    headers=st.booleans(),
    at_completion=st.booleans(),
    reserves=st.booleans(),
    names_dimension=st.booleans(),
    counts_refused=st.booleans(),
    penalty=st.one_of(st.none(), st.just(Penalty(refusals=5, within=5.0, lasting=5.0))),
)
configs = st.builds(
    PacingConfig,
    max_connections=st.one_of(st.none(), st.none(), st.integers(1, 80)),
    signal=st.sampled_from(list(Signal)),
    reserves_max_tokens=st.booleans(),
)


def simulate(traits: ProviderTraits, work: list[TaskPlan], config: PacingConfig, **options: Any) -> PacingSimulation:
    watched = WatchedPacer(Pacer(config, now=0.0, rng=Random(1)))
    provider = SimulatedProvider(traits, Random(2))
    simulation = PacingSimulation(work, provider, cast("Pacer", watched), Random(3), horizon=50_000, **options)
    simulation.run()
    return simulation


@scaled(4)
@given(providers, works, configs)
def test_everything_gets_done_whatever_the_provider(traits: ProviderTraits, work: Work, config: PacingConfig) -> None:
    """Invariants 1 to 9, 11 to 13 in whole runs; `Stuck` would be raised if nobody woke the rest."""
    plans = work.plans()
    simulation = simulate(traits, plans, config)
    outcome = simulation.outcome
    assert outcome.finished
    assert outcome.successes == sum(len(steps) for plan in plans for steps in plan.samples)
    state = cast("WatchedPacer", simulation.pacer).statistics(simulation.now)
    assert (state.in_flight, state.queued) == (0, 0)
    assert simulation.provider.in_flight == 0


truthful = st.builds(
    ProviderTraits,
    quotas=quotas(dimensions=[Dimension.REQUESTS, Dimension.INPUT_TOKENS], least_burst=10.0),
    first_token=st.floats(0.05, 3.0),
    travel=st.floats(0.0, 0.1),
    spread=st.floats(0.0, 0.5),
    jitter=st.floats(0.0, 0.01),
    headers=st.just(True),
)


@scaled(4)
@given(truthful, works)
def test_no_call_is_refused_after_the_first_headers_of_a_provider_that_tells_the_truth(
    traits: ProviderTraits, work: Work
) -> None:
    """Invariant 10."""
    first_headers: list[float] = []
    sent_at: dict[Call, float] = {}
    refused: list[tuple[float, float]] = []

    def observe(now: float, kind: str, call: Call) -> None:
        if kind == "send":
            sent_at[call] = now
        elif kind in {"ok", "limited"}:
            if kind == "limited" and first_headers and sent_at[call] > first_headers[0]:
                refused.append((sent_at[call], now))
            first_headers.append(now)

    simulate(traits, work.plans(exact=True, most=400), PacingConfig(), observe=observe)
    assert refused == []


@scaled(20)
@given(quotas(dimensions=[Dimension.REQUESTS], least_burst=5.0), st.booleans(), st.integers(0, 10**6))
def test_the_rate_is_used_with_and_without_headers(quota: tuple[Quota, ...], headers: bool, seed: int) -> None:
    """What the table of the design asks of a few providers, roughly asked of all."""
    rng = Random(seed)
    count = int(2 * quota[0].per_minute) + 200
    work = [TaskPlan(samples=[[step(rng, exact=True, most=2000)] for _ in range(count)])]
    traits = ProviderTraits(quotas=quota, headers=headers)
    ideal = ideal_makespan(work, SimulatedProvider(traits, Random(2)))
    outcome = simulate(traits, work, PacingConfig()).outcome
    assert ideal / outcome.makespan >= (0.93 if headers else 0.85)
    assert outcome.refusals <= 20 + count * (0.002 if headers else 0.04)
