"""Invariant 36: runtimes in one loop do not touch each other; evaluations in one runtime share its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from proctor.actors import ActorContext, ChildSpec, Event, Limiter
from proctor.errors import Fault
from proctor.runtime import Runtime, Settings, open_runtime
from proctor.runtime.scopes import concurrency
from proctor.testing import settle

Told = list[tuple[float, str, str, int]]


class Model:
    def __init__(self, context: ActorContext[Model]) -> None:
        self.context = context

    async def handle(self, message: object) -> int:
        await anyio.sleep(1)
        if message == "fail" and self.context.incarnation < 3:
            self.context.start_soon(self.fail)
        return self.context.incarnation

    async def fail(self) -> None:
        raise Fault("on purpose")


@asynccontextmanager
async def open_model(context: ActorContext[Model]) -> AsyncIterator[Model]:
    yield Model(context)


def spec(runtime: Runtime) -> ChildSpec[Model]:
    return ChildSpec("model", open_model, limiter=Limiter(2, name="model", ledger=runtime.ledger))


async def client(runtime: Runtime, message: str) -> None:
    await anyio.sleep(runtime.random.randrange(8))
    ref = await runtime.obtain("models", "model", lambda: spec(runtime))
    async with concurrency("service", 3), ref.limiter.lease():
        await anyio.sleep(runtime.random.randrange(1, 4))
    try:
        await ref.ask(message)
    except Exception:
        await ref.started()


async def evaluate(seed: int) -> Told:
    """Some clients in a runtime of their own; what its ledger said."""
    told: Told = []

    def listen(event: Event) -> None:
        told.append((event.time, event.kind, event.name, getattr(event, "item", 0)))

    async with open_runtime(Settings(seed=seed)) as runtime:
        runtime.ledger.subscribe(listen)
        async with anyio.create_task_group() as group:
            for number in range(10):
                group.start_soon(client, runtime, "fail" if number % 4 == 0 else "go on")
                await settle()
    return told


async def test_each_ledger_is_as_if_the_runtime_were_alone() -> None:
    together: dict[int, Told] = {}

    async def run(seed: int) -> None:
        together[seed] = await evaluate(seed)

    began = anyio.current_time()
    alone = {}
    for seed in (1, 2, 3):
        start = anyio.current_time() - began
        alone[seed] = [(round(time - start, 6), *rest) for time, *rest in await evaluate(seed)]
    start = anyio.current_time() - began
    async with anyio.create_task_group() as group:
        for seed in alone:
            group.start_soon(run, seed)
    for seed, told in alone.items():
        assert {"granted", "queued", "restarting", "delivered"} <= {kind for _, kind, _, _ in told}
        # The order of what happens in one instant may differ with what else the loop does.
        assert Counter(told) == Counter((round(time - start, 6), *rest) for time, *rest in together[seed])
    assert alone[1] != alone[2]


async def test_two_evaluations_in_one_runtime_share_a_limit() -> None:
    inside = peak = 0

    async def evaluation(runtime: Runtime) -> None:
        async def call() -> None:
            nonlocal inside, peak
            ref = await runtime.obtain("models", "model", lambda: spec(runtime))
            async with ref.limiter.lease():
                inside += 1
                peak = max(peak, inside)
                await anyio.sleep(1)
                inside -= 1

        async with anyio.create_task_group() as group:
            for _ in range(4):
                group.start_soon(call)

    async with open_runtime() as runtime, anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(evaluation, runtime)
    assert (peak, anyio.current_time()) == (2, 4)
