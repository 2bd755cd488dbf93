"""How fast commands follow each other: `subprocess(["true"])` against the event loops' own ways to run one.

Three ways are measured in turns, so that a busy machine slows them alike; ratios count, not rates::

    python bench/processes.py [seconds] [at once]

Ours runs in a runtime (pool, lease, limits, reaping). Against it stand bare `trio.run_process` on trio and
`asyncio.create_subprocess_exec` with `communicate` on asyncio, both capturing both streams as ours does.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess as standard
import sys
import time
from collections.abc import Awaitable, Callable

import anyio
import trio

from proctor.runtime import Settings, open_runtime
from proctor.util import subprocess

COMMAND = ["true"]


async def ours() -> None:
    await subprocess(COMMAND)


async def trio_own() -> None:
    await trio.run_process(COMMAND, capture_stdout=True, capture_stderr=True)


async def asyncio_own() -> None:
    process = await asyncio.create_subprocess_exec(*COMMAND, stdout=standard.PIPE, stderr=standard.PIPE)
    await process.communicate()


async def rate(one: Callable[[], Awaitable[None]], seconds: float, at_once: int) -> float:
    """Commands a second, `at_once` at a time."""
    count, end = 0, time.perf_counter() + seconds

    async def work() -> None:
        nonlocal count
        while time.perf_counter() < end:
            await one()
            count += 1

    began = time.perf_counter()
    async with anyio.create_task_group() as group:
        for _ in range(at_once):
            group.start_soon(work)
    return count / (time.perf_counter() - began)


async def compare(other: Callable[[], Awaitable[None]], seconds: float, at_once: int) -> tuple[float, float]:
    """The median rates of ours and of the other, measured in turns."""
    found: tuple[list[float], list[float]] = [], []
    async with open_runtime(Settings(max_subprocesses=at_once)):
        for turn in range(5):
            order = [(0, ours), (1, other)]
            for place, one in order if turn % 2 else reversed(order):
                found[place].append(await rate(one, seconds / 10, at_once))
    return statistics.median(found[0]), statistics.median(found[1])


def main() -> None:
    """Print both comparisons; fail when ours is below what performance.md asks."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 8.0
    at_once = int(sys.argv[2]) if len(sys.argv) > 2 else 4
    worst = 10.0
    for backend, other in (("trio", trio_own), ("asyncio", asyncio_own)):
        mine, theirs = anyio.run(compare, other, seconds, at_once, backend=backend)
        worst = min(worst, mine / theirs)
        print(f"{backend:8} ours {mine:7.0f}/s   {other.__name__:12} {theirs:7.0f}/s   ratio {mine / theirs:.2f}")
    if worst < 0.85:
        sys.exit("below 0.85 of the loop's own")


if __name__ == "__main__":
    main()
