"""A simulated evaluation of 2,000 samples with faults: real seconds for minutes of virtual time. Goal: under 10 s.

Every fifth sample fails somewhere (before its solvers, in its model call, after it, in its scorer, in its clean-up),
some of them again when they are tried a second time. The scheduler, actors, limiters and records are the real ones.

    python bench/simulation.py [--samples 2000] [--backend asyncio|trio]
"""

from __future__ import annotations

import argparse
import random
import time

import anyio

from proctor import Task
from proctor.dataset import Sample
from proctor.log import EvalLog
from proctor.scorer import includes
from proctor.testing import FakeModel, Fault, FaultPlan, run_virtual, simulate
from proctor.testing.faults import Where

GOAL = 10.0
PLACES: tuple[Where, ...] = ("setup", "solver", "model", "scorer", "cleanup")


async def evaluate(count: int) -> tuple[EvalLog, FaultPlan, float]:
    """Play it; the log, what failed and the virtual seconds it took."""
    chance = random.Random(1)  # a schedule, no secret
    planned = [
        Fault(chance.choice(PLACES), sample, times=chance.choice((1, 1, None)))
        for sample in range(1, count + 1)
        if chance.random() < 0.2
    ]
    faults = FaultPlan(tuple(planned))
    fake = FakeModel(answer="yes", latency=lambda call: 4 * call.chance.random(), faults=faults, max_connections=100)
    task = Task([Sample(f"q{n}", target="yes") for n in range(count)], scorer=includes())
    [log] = await simulate(task, fake.model(), faults=faults, retry_on_error=1, fail_on_error=False)
    return log, faults, anyio.current_time()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--backend", choices=("asyncio", "trio"))
    given = parser.parse_args()
    for backend in [given.backend] if given.backend else ["asyncio", "trio"]:
        cpu, wall = time.process_time(), time.perf_counter()
        log, faults, virtual = run_virtual(backend, evaluate, given.samples, timeout=600.0)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        assert log.status == "success"
        assert log.samples is not None
        assert len(log.samples) == given.samples
        failed = sum(sample.error is not None for sample in log.samples)
        print(
            f"{backend}: {given.samples} samples, {faults.raised.total()} faults, {failed} failed in the end, "
            f"{virtual:.0f} s virtual: {wall:.1f} s, {cpu:.1f} s of them CPU (goal {GOAL:g} s)"
        )


if __name__ == "__main__":
    main()
