"""What a lease costs, against anyio's CapacityLimiter in the same run; what cancelling a waiter costs; what one weighs.

The measurements take turns, so that a busy machine is busy for all of them; of each the fastest round counts, in
seconds of this process's CPU. Exit code 1 when a goal is missed by more than a busy machine explains (5 %).

    uncontended     one task, a free place, an empty body
    1,000 waiters   1,000 tasks that each take one of 10 places for a turn of the loop; starting the tasks is part of it
    handed over     the same, each task ten times in a row: more of it is lease and less is task
    cancelling      400 waiters of 1,000 and of 20,000 are cancelled, each in its own scope, and have ended
    bytes           of a task that waits for a lease, less those of one that waits on an event shared by all; the same
                    for a CapacityLimiter

    python bench/limiter.py [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
from anyio.lowlevel import checkpoint

from proctor.actors import Limiter

LEASE_GOAL = {"asyncio": 1.2, "trio": 2.0}
"""How many times as long as anyio's own limiter a lease may take."""
CANCEL_GOAL = 2.5
"""How many times as long cancelling a waiter may take among 20,000 as among 1,000."""
NOISE = 1.05
FEW, MANY, CANCELLED = 1_000, 20_000, 400

Context = Callable[[], AbstractAsyncContextManager[Any]]


def lease_of(limit: int) -> Context:
    """Leases of a new limiter."""
    return Limiter(limit, name="bench").lease


def token_of(limit: int) -> Context:
    """Tokens of a new CapacityLimiter."""
    limiter = anyio.CapacityLimiter(limit)
    return lambda: limiter


async def uncontended(context: Context, times: int = 20_000) -> float:
    """One task that enters and leaves again and again."""
    began = time.process_time()
    for _ in range(times):
        async with context():
            pass
    return (time.process_time() - began) / times


async def contended(context: Context, tasks: int = 1_000, times: int = 1) -> float:
    """Many tasks for few places."""

    async def client() -> None:
        for _ in range(times):
            async with context():
                await checkpoint()

    began = time.process_time()
    async with anyio.create_task_group() as group:
        for _ in range(tasks):
            group.start_soon(client)
    return (time.process_time() - began) / tasks / times


async def handed_over(context: Context) -> float:
    """Many tasks for few places, again and again."""
    return await contended(context, times=10)


async def cancelling(waiters: int) -> float:
    """Some of many waiters are cancelled, wherever they stand."""
    limiter = Limiter(0, name="bench")
    scopes: list[anyio.CancelScope] = []

    async def client() -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            async with limiter.lease():
                pass

    async with anyio.create_task_group() as group:
        for _ in range(waiters):
            group.start_soon(client)
        while limiter.waiting < waiters:
            await checkpoint()
        gc.collect()
        chosen = scopes[:: waiters // CANCELLED][:CANCELLED]
        # The collector's own cost grows with all that lives, waiters or not.
        gc.disable()
        began = time.process_time()
        for scope in chosen:
            scope.cancel()
        while limiter.waiting > waiters - CANCELLED:
            await checkpoint()
        took = time.process_time() - began
        gc.enable()
        group.cancel_scope.cancel()
    return took / CANCELLED


async def weight(wait: Callable[[], Awaitable[object]], tasks: int = 2_000) -> float:
    """Bytes that a waiting task adds."""
    async with anyio.create_task_group() as group:
        gc.collect()
        tracemalloc.start()
        for _ in range(tasks):
            group.start_soon(wait)
        for _ in range(5):
            await checkpoint()
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        group.cancel_scope.cancel()
    return taken / tasks


async def weights() -> dict[str, float]:
    """Bytes of a waiting lease and of a waiting token, without the task."""

    async def wait_in(context: Context) -> None:
        async with context():
            pass

    lease, token, event = lease_of(0), token_of(0), anyio.Event()
    asleep = await weight(event.wait)
    return {
        "lease": await weight(lambda: wait_in(lease)) - asleep,
        "token": await weight(lambda: wait_in(token)) - asleep,
    }


LEASES: dict[str, Callable[[Context], Awaitable[float]]] = {
    "uncontended": uncontended,
    "1,000 waiters": contended,
    "handed over": handed_over,
}


async def measure(rounds: int) -> dict[str, Any]:
    """The fastest round of everything, and the ratios."""
    found: dict[str, float] = {}

    def note(name: str, took: float) -> None:
        found[name] = min(took, found.get(name, took))

    for _ in range(rounds):
        for name, fn in LEASES.items():
            note(f"{name}, token", await fn(token_of(10)))
            note(f"{name}, lease", await fn(lease_of(10)))
    for _ in range(max(2, rounds // 3)):
        note("cancelling, few", await cancelling(FEW))
        note("cancelling, many", await cancelling(MANY))
    ratios = {name: found[f"{name}, lease"] / found[f"{name}, token"] for name in LEASES}
    ratios["cancelling"] = found["cancelling, many"] / found["cancelling, few"]
    return {"seconds": found, "ratios": ratios, "bytes": await weights()}


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    over = False
    for backend in ("asyncio", "trio"):
        result = anyio.run(measure, options.rounds, backend=backend)
        goals = {"uncontended": LEASE_GOAL[backend], "1,000 waiters": LEASE_GOAL[backend], "cancelling": CANCEL_GOAL}
        over = over or any(result["ratios"][name] > goal * NOISE for name, goal in goals.items())
        if options.json:
            print(json.dumps({"backend": backend, "goals": goals, **result}))
            continue
        print(f"{backend:24}{'against, us':>12}{'us':>8}{'ratio':>8}{'goal':>8}")
        for name, ratio in result["ratios"].items():
            before, after = ("few", "many") if name == "cancelling" else ("token", "lease")
            times = [result["seconds"][f"{name}, {which}"] * 1e6 for which in (before, after)]
            goal = goals.get(name)
            verdict = f"{f'<= {goal:g}':>8}  {'PASS' if ratio <= goal else 'over'}" if goal is not None else ""
            print(f"{name:24}{times[0]:12.1f}{times[1]:8.1f}{ratio:8.2f}{verdict}")
        print(f"{'bytes waiting':24}{result['bytes']['token']:12.0f}{result['bytes']['lease']:8.0f}")
    return int(over)


if __name__ == "__main__":
    sys.exit(main())
