"""What a message to an actor costs, in round trips through two memory channels of anyio.

The measurements take turns within one run, so that a busy machine is busy for all of them; of each the median round
counts. Exit code 1 when an ask takes more than GOAL round trips.

    python bench/actors.py [--rounds N] [--messages N] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio

from proctor.actors import ActorContext, ChildSpec, Ledger, open_supervisor

GOAL = 3.0
"""Asks may take this many round trips (the bound of the actor kernel)."""


class Echo:
    """An actor that answers at once."""

    async def handle(self, message: object) -> object:
        return message


@asynccontextmanager
async def open_echo(_: ActorContext[Any]) -> AsyncIterator[Echo]:
    yield Echo()


async def round_trips(messages: int) -> float:
    """Through one channel and back through another, to a task that answers at once."""
    there_send, there_receive = anyio.create_memory_object_stream[int](1)
    back_send, back_receive = anyio.create_memory_object_stream[int](1)

    async def answer() -> None:
        async for item in there_receive:
            await back_send.send(item)

    with there_send, there_receive, back_send, back_receive:
        async with anyio.create_task_group() as nursery:
            nursery.start_soon(answer)
            began = time.perf_counter()
            for number in range(messages):
                await there_send.send(number)
                await back_receive.receive()
            took = time.perf_counter() - began
            nursery.cancel_scope.cancel()
    return took / messages


async def asks(messages: int) -> float:
    """One caller that asks one actor."""
    async with open_supervisor("bench") as supervisor:
        ref = await supervisor.start(ChildSpec("echo", open_echo))
        began = time.perf_counter()
        for number in range(messages):
            await ref.ask(number)
        return (time.perf_counter() - began) / messages


async def asks_with_a_listener(messages: int) -> float:
    """The same while somebody reads the ledger."""
    ledger = Ledger()
    ledger.subscribe(lambda _: None)
    async with open_supervisor("bench", ledger=ledger) as supervisor:
        ref = await supervisor.start(ChildSpec("echo", open_echo))
        began = time.perf_counter()
        for number in range(messages):
            await ref.ask(number)
        return (time.perf_counter() - began) / messages


async def tells(messages: int) -> float:
    """Tells, in batches that fit into the mailbox, until each is handled."""
    async with open_supervisor("bench") as supervisor:
        ref = await supervisor.start(ChildSpec("echo", open_echo))
        began = time.perf_counter()
        for _ in range(messages // 50):
            for number in range(49):
                ref.tell(number)
            await ref.ask(0)
        return (time.perf_counter() - began) / messages


MEASURED: dict[str, Callable[[int], Awaitable[float]]] = {
    "round trip": round_trips,
    "ask": asks,
    "ask, with a listener": asks_with_a_listener,
    "tell": tells,
}


def measure(backend: str, rounds: int, messages: int) -> dict[str, float]:
    """The median seconds of each measurement; one round before warms up."""
    found: dict[str, list[float]] = {name: [] for name in MEASURED}
    for number in range(rounds + 1):
        for name, fn in MEASURED.items():
            took = anyio.run(fn, messages, backend=backend)
            if number:
                found[name].append(took)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    failed = False
    for backend in ("asyncio", "trio"):
        medians = measure(backend, options.rounds, options.messages)
        ratios = {name: seconds / medians["round trip"] for name, seconds in medians.items()}
        failed = failed or ratios["ask"] > GOAL
        if options.json:
            print(json.dumps({"backend": backend, "seconds": medians, "ratios": ratios, "goal": {"ask": GOAL}}))
            continue
        print(f"{backend:24}{'us':>8}{'ratio':>8}{'goal':>8}")
        for name, seconds in medians.items():
            goal = f"<= {GOAL:g}" if name == "ask" else ""
            print(f"{name:24}{seconds * 1e6:8.1f}{ratios[name]:8.2f}{goal:>8}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
