"""How close the pacer comes to a dispatcher that knows the provider's buckets, scenario by scenario, in virtual time.

For every scenario of the table in the design: efficiency (makespan of the ideal dispatcher by ours), refusals (429) for
each thousand calls that succeeded, and fairness where there are two tasks; the worst of the seeds is held against the
goal. Exit code 1 when a goal is missed.

    python bench/pacing.py [--seeds 3] [--scenarios a,b,c] [--json] [--list]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from random import Random

from attrs import evolve, frozen

from proctor.model.pacing import Dimension, Pacer, PacingConfig, Signal
from proctor.testing.pacing_simulation import Outcome, PacingSimulation, Step, TaskPlan, ideal_makespan
from proctor.testing.provider import Penalty, ProviderTraits, Quota, RetryAfter, SimulatedProvider

REQUESTS, INPUT, OUTPUT, TOKENS = (
    Dimension.REQUESTS,
    Dimension.INPUT_TOKENS,
    Dimension.OUTPUT_TOKENS,
    Dimension.TOKENS,
)


@frozen(kw_only=True)
class Load:
    """What samples ask for; token counts are log-normal round their mean.

    Attributes:
        calls: of a sample, fewest and most. growth: input tokens that every further call has more, on average.
        tail: sigma of the token counts. tools: seconds after each call but the last, on average.
    """

    samples: int
    calls: tuple[int, int] = (1, 1)
    input: float = 600
    growth: float = 0
    output: float = 250
    tail: float = 0.5
    tools: float = 0.0
    max_tokens: int | None = 4096


@frozen(kw_only=True)
class Scenario:
    """A row of the table: least efficiency, most refusals per thousand, least Jain index."""

    traits: ProviderTraits
    load: Load
    config: PacingConfig = PacingConfig()
    second: float | None = None  # when a second task with the same load begins
    efficiency: float
    refusals: float
    jain: float | None = None


def lognormal(rng: Random, mean: float, sigma: float) -> int:
    return max(1, round(mean * math.exp(sigma * rng.gauss(0, 1) - sigma * sigma / 2)))


def sample(rng: Random, load: Load) -> list[Step]:
    steps = []
    size = lognormal(rng, load.input, load.tail)
    for _ in range(rng.randint(*load.calls)):
        output = lognormal(rng, load.output, load.tail)
        steps.append(
            Step(
                input_tokens=size,
                counted=max(1, round(size * rng.uniform(0.9, 1.1))),
                output_tokens=min(output, load.max_tokens or output),
                max_output_tokens=load.max_tokens,
                slowness=rng.gauss(0, 1),
                luck=rng.random(),
                tools=load.tools * rng.uniform(0.5, 1.5),
            )
        )
        size += lognormal(rng, load.growth, load.tail) if load.growth else 0
    return steps


def plans(scenario: Scenario, seed: int) -> list[TaskPlan]:
    rng = Random(seed)
    load = scenario.load
    first = TaskPlan(samples=[sample(rng, load) for _ in range(load.samples)], group="first")
    if scenario.second is None:
        return [first]
    second = [sample(rng, load) for _ in range(load.samples)]
    return [first, TaskPlan(samples=second, group="second", begins=scenario.second)]


SCENARIOS: dict[str, Scenario] = {
    "50-rpm": Scenario(
        traits=ProviderTraits(
            quotas=(Quota(dimension=REQUESTS, per_minute=50),), headers=True, retry_after=RetryAfter.WHOLE
        ),
        load=Load(samples=800),
        efficiency=0.99,
        refusals=0.1,
    ),
    "500-rpm": Scenario(
        traits=ProviderTraits(quotas=(Quota(dimension=REQUESTS, per_minute=500, burst=10),), headers=True),
        load=Load(samples=5000),
        efficiency=0.99,
        refusals=0.1,
    ),
    "tokens": Scenario(
        traits=ProviderTraits(
            quotas=(Quota(dimension=INPUT, per_minute=1e6), Quota(dimension=OUTPUT, per_minute=4e5)),
            headers=True,
            retry_after=RetryAfter.WHOLE,
        ),
        load=Load(samples=8000, input=1000, output=420, tail=1.2),
        efficiency=0.99,
        refusals=0.5,
    ),
    "10000-rpm": Scenario(
        traits=ProviderTraits(quotas=(Quota(dimension=REQUESTS, per_minute=10000, burst=10),), headers=True),
        load=Load(samples=7000, calls=(3, 3)),
        efficiency=0.98,
        refusals=0.1,
    ),
    "windows": Scenario(
        traits=ProviderTraits(quotas=(Quota(dimension=REQUESTS, per_minute=600, fixed=True),)),
        load=Load(samples=5000),
        efficiency=0.95,
        refusals=25,
    ),
    "bare": Scenario(
        traits=ProviderTraits(quotas=(Quota(dimension=REQUESTS, per_minute=600, burst=2),)),
        load=Load(samples=6000),
        efficiency=0.99,
        refusals=8,
    ),
    "agentic": Scenario(
        traits=ProviderTraits(quotas=(Quota(dimension=TOKENS, per_minute=3e6),), headers=True),
        load=Load(samples=800, calls=(1, 10), input=2500, growth=2000, output=300, tools=8.0),
        efficiency=0.99,
        refusals=1,
    ),
    "shared-headers": Scenario(
        traits=ProviderTraits(quotas=(Quota(dimension=REQUESTS, per_minute=600, taken=(300, 600, 0.5)),), headers=True),
        load=Load(samples=8000),
        efficiency=0.99,
        refusals=1,
    ),
    "shared-bare": Scenario(
        traits=ProviderTraits(quotas=(Quota(dimension=REQUESTS, per_minute=600, taken=(300, 600, 0.5)),)),
        load=Load(samples=8000),
        efficiency=0.99,
        refusals=8,
    ),
    "faults": Scenario(
        traits=ProviderTraits(
            quotas=(Quota(dimension=REQUESTS, per_minute=600),), headers=True, faults=0.03, hangs=0.005
        ),
        load=Load(samples=6000),
        efficiency=0.99,
        refusals=0.1,
    ),
    "concurrency": Scenario(
        traits=ProviderTraits(concurrency=64),
        load=Load(samples=5000),
        config=PacingConfig(signal=Signal.UNKNOWN),
        efficiency=0.96,
        refusals=3,
    ),
    "own-server": Scenario(
        traits=ProviderTraits(knee=96),
        load=Load(samples=8000),
        config=PacingConfig(signal=Signal.LATENCY),
        efficiency=0.95,
        refusals=0,
    ),
    "penalty": Scenario(
        traits=ProviderTraits(
            quotas=(Quota(dimension=REQUESTS, per_minute=600, burst=10),), counts_refused=True, penalty=Penalty()
        ),
        load=Load(samples=6000),
        efficiency=0.98,
        refusals=10,
    ),
    "two-tasks": Scenario(
        traits=ProviderTraits(quotas=(Quota(dimension=REQUESTS, per_minute=600, burst=10),), headers=True),
        load=Load(samples=4000),
        second=120.0,
        efficiency=0.99,
        refusals=0,
        jain=0.99,
    ),
    "reasoning": Scenario(
        traits=ProviderTraits(
            quotas=(Quota(dimension=REQUESTS, per_minute=500),), headers=True, per_token=0.025, spread=0.3
        ),
        load=Load(samples=5000, output=2000, max_tokens=32000),
        efficiency=0.99,
        refusals=0.1,
    ),
    "lies": Scenario(
        traits=ProviderTraits(quotas=(Quota(dimension=REQUESTS, per_minute=600, burst=10),), retry_after=89.0),
        load=Load(samples=6000),
        efficiency=0.97,
        refusals=25,
    ),
}


@frozen
class Result:
    """One run."""

    scenario: str
    seed: int
    efficiency: float
    refusals: float
    jain: float | None
    makespan: float
    ideal: float
    seconds: float


def play(scenario: Scenario, seed: int, *, pacer: Callable[[PacingConfig, Random], Pacer] | None = None) -> Outcome:
    """One run of a scenario."""
    provider = SimulatedProvider(scenario.traits, Random(seed + 1))
    rng = Random(seed + 2)
    made = Pacer(scenario.config, now=0.0, rng=rng) if pacer is None else pacer(scenario.config, rng)
    return PacingSimulation(plans(scenario, seed), provider, made, Random(seed + 3), horizon=20000).run()


def run(name: str, seed: int) -> Result:
    """One run of a scenario, held against the ideal."""
    scenario = SCENARIOS[name]
    still = evolve(scenario.traits, headers=False)
    ideal = ideal_makespan(plans(scenario, seed), SimulatedProvider(still, Random(seed + 1)))
    before = time.perf_counter()
    outcome = play(scenario, seed)
    took = time.perf_counter() - before
    efficiency = ideal / outcome.makespan if outcome.finished else 0.0
    fair = None if scenario.second is None else outcome.jain(scenario.second + 30)
    return Result(name, seed, efficiency, outcome.refusals_per_1000, fair, outcome.makespan, ideal, took)


def judge(results: list[Result]) -> bool:
    """Whether the runs of one scenario reach its goals."""
    goal = SCENARIOS[results[0].scenario]
    return (
        min(round(each.efficiency, 3) for each in results) >= goal.efficiency
        and max(each.refusals for each in results) <= goal.refusals
        and (goal.jain is None or min(each.jain or 0.0 for each in results) >= goal.jain)
    )


def show(results: list[Result]) -> str:
    goal = SCENARIOS[results[0].scenario]
    least, most = min(each.efficiency for each in results), max(each.refusals for each in results)
    mean = math.exp(sum(math.log(max(each.efficiency, 1e-9)) for each in results) / len(results))
    text = (
        f"{results[0].scenario:16} {mean:7.1%} {least:7.1%} ≥{goal.efficiency:4.0%}  {most:8.2f} ≤{goal.refusals:<5g}"
        f" {results[0].makespan:8.0f} s {sum(each.seconds for each in results) / len(results):6.1f} s"
    )
    if goal.jain is not None:
        text += f"  Jain {min(each.jain or 0.0 for each in results):.4f} ≥{goal.jain}"
    return f"{text}  {'PASS' if judge(results) else 'over'}"


def main() -> int:
    """Run, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--scenarios", default="", help="names, separated by commas; all unless given")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(SCENARIOS))
        return 0
    names = options.scenarios.split(",") if options.scenarios else list(SCENARIOS)
    everything: list[Result] = []
    good = True
    if not options.json:
        print(
            f"{'scenario':16} {'mean':>7} {'worst':>7} {'goal':>5}  {'429/1000':>8} {'goal':6} {'makespan':>10} {'took':>8}"
        )
    for name in names:
        results = [run(name, seed) for seed in range(options.seeds)]
        everything.extend(results)
        good &= judge(results)
        if not options.json:
            print(show(results), flush=True)
    mean = math.exp(sum(math.log(max(each.efficiency, 1e-9)) for each in everything) / len(everything))
    worst = min(each.efficiency for each in everything)
    if options.json:
        print(json.dumps({"mean": mean, "worst": worst, "runs": [vars_of(each) for each in everything]}))
    else:
        print(f"geometric mean {mean:.2%} (goal 98.5 %), worst run {worst:.1%} (goal 92 %)")
    return 0 if good else 1


def vars_of(result: Result) -> dict[str, object]:
    return {name: getattr(result, name) for name in Result.__slots__ if not name.startswith("__")}


if __name__ == "__main__":
    sys.exit(main())
