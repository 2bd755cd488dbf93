"""A simulated evaluation of 2,000 samples with faults: real seconds for minutes of virtual time. Goal: under 10 s.

Every sample has a sandbox, runs a command in it and one beside it, and calls a model. Every fifth fails somewhere
(before its solvers, at its sandbox or in it, at its command, in its model call, after it, in its scorer, in its
clean-up, at the removal of its sandbox), some of them again when they are tried a second time. The scheduler, actors,
pools, limiters and records are the real ones. The report must be the same on every backend.

    python bench/simulation.py [--samples 2000] [--backend asyncio|trio] [--models-only]
"""

from __future__ import annotations

import argparse
import logging
import random
import time
from contextlib import ExitStack
from typing import Any

import anyio
from attrs import define, field

from proctor import Task
from proctor.dataset import Sample
from proctor.log import EvalLog
from proctor.scorer import includes
from proctor.solver import Generate, TaskState, generate, solver
from proctor.testing import FakeModel, FakeProcess, FakeSandbox, Fault, FaultPlan, Play, run_virtual, simulate
from proctor.testing.faults import Where
from proctor.util import sandbox, subprocess

GOAL = 10.0
PLACES: tuple[Where, ...] = ("setup", "solver", "model", "scorer", "cleanup")
MACHINE: tuple[Where, ...] = ("sandbox", "command", "process", "removal")
CONNECTIONS, SANDBOXES, SUBPROCESSES = 100, 60, 16


@solver
def working() -> Any:
    """A command in the sandbox and one beside it, then the model."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await sandbox().exec(["work", state.input_text])
        await subprocess(["check", state.input_text])
        return await generate(state)

    return solve


@define
class Simulated:
    """What came of it.

    Attributes:
        seconds: virtual ones. peaks: of calls, sandboxes and commands at once.
    """

    log: EvalLog = field(repr=False)  # asyncio writes down what a task returned
    faults: FaultPlan = field(repr=False)
    seconds: float
    peaks: tuple[int, int, int]


async def evaluate(count: int, machine: bool) -> Simulated:
    """Play it."""
    chance = random.Random(1)  # a schedule, no secret
    places = (*PLACES, *MACHINE) if machine else PLACES
    planned = [
        Fault(chance.choice(places), sample, times=chance.choice((1, 1, None)))
        for sample in range(1, count + 1)
        if chance.random() < 0.2
    ]
    faults = FaultPlan(tuple(planned))
    model = FakeModel(
        answer="yes", latency=lambda call: 4 * call.chance.random(), faults=faults, max_connections=CONNECTIONS
    )
    host = FakeSandbox(start=0.05, command=1.0, removal=0.5, faults=faults)
    commands = FakeProcess(answer=lambda call: Play(seconds=call.chance.random()), faults=faults)
    data = [Sample(f"q{n}", target="yes") for n in range(count)]
    task = Task(
        data, solver=working() if machine else generate(), scorer=includes(), sandbox=host.spec if machine else None
    )
    limits: dict[str, Any] = {"max_sandboxes": SANDBOXES, "max_subprocesses": SUBPROCESSES} if machine else {}
    with ExitStack() as around:
        around.enter_context(commands.installed())
        [log] = await simulate(
            task, model.model(), faults=faults, retry_on_error=1, fail_on_error=False, max_samples=120, **limits
        )
    assert model.peak <= CONNECTIONS
    # A removal that fails leaves its sandbox behind, as it would on a host; its place comes back all the same.
    left = faults.raised["removal"]
    assert host.peak <= SANDBOXES + left
    assert len(host.live) <= left
    assert commands.peak <= SUBPROCESSES
    assert commands.alive == 0
    return Simulated(log, faults, anyio.current_time(), (model.peak, host.peak, commands.peak))


def outcome(log: EvalLog) -> str:
    """What must not depend on the backend."""
    assert log.status == "success"
    assert log.samples is not None
    failed = [(sample.id, None if sample.error is None else sample.error.message) for sample in log.samples]
    return repr((failed, log.results))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=2000)
    parser.add_argument("--backend", choices=("asyncio", "trio"))
    parser.add_argument("--models-only", action="store_true", help="no sandboxes and no commands")
    given = parser.parse_args()
    logging.disable(logging.WARNING)  # each planned removal that fails is told of
    outcomes = set()
    for backend in [given.backend] if given.backend else ["asyncio", "trio"]:
        cpu, wall = time.process_time(), time.perf_counter()
        found = run_virtual(backend, evaluate, given.samples, not given.models_only, timeout=600.0)
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        samples = found.log.samples
        assert samples is not None
        assert len(samples) == given.samples
        outcomes.add(outcome(found.log))
        failed = sum(sample.error is not None for sample in samples)
        calls, sandboxes, commands = found.peaks
        print(
            f"{backend}: {given.samples} samples, {found.faults.raised.total()} faults, {failed} failed in the end, "
            f"{found.seconds:.0f} s virtual, at once {calls} calls, {sandboxes} sandboxes "
            f"({found.faults.raised['removal']} of them left behind as planned), {commands} commands: "
            f"{wall:.1f} s, {cpu:.1f} s of them CPU (goal {GOAL:g} s)"
        )
    assert len(outcomes) == 1, "the report depends on the backend"


if __name__ == "__main__":
    main()
