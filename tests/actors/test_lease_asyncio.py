"""Leases among tasks that asyncio's own means started or cancel."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from proctor.actors import Limiter, lease_all, lease_scope
from proctor.errors import SampleEnded
from proctor.testing import BACKENDS, run_virtual, settle

ASYNCIO = [name for name in BACKENDS if name.startswith("asyncio")]


@pytest.mark.parametrize("loop", ASYNCIO)
def test_a_native_cancellation_of_a_waiter_loses_nothing(loop: str) -> None:
    async def main() -> None:
        limiter, other = Limiter(1, name="door"), Limiter(1, name="gate")
        began: list[str] = []

        async def single(name: str) -> None:
            async with limiter.lease():
                began.append(name)
                await anyio.sleep(1)

        async def joint() -> None:
            async with lease_all([limiter.lease(), other.lease()]):
                began.append("joint")

        holder = asyncio.create_task(single("holder"))
        await settle()
        waiting, granted, both = (asyncio.create_task(each) for each in (single("waiting"), single("granted"), joint()))
        await settle()
        waiting.cancel()
        both.cancel()
        await settle()
        assert (limiter.waiting, other.waiting) == (1, 0)
        limiter.resize(2)
        assert limiter.used == 2
        granted.cancel()  # granted, and not awake yet
        results = await asyncio.gather(holder, waiting, granted, both, return_exceptions=True)
        assert [type(result).__name__ for result in results] == ["NoneType", *["CancelledError"] * 3]
        assert began == ["holder"]
        assert (limiter.used, limiter.waiting, other.used) == (0, 0, 0)

    run_virtual(loop, main)


@pytest.mark.parametrize("loop", ASYNCIO)
def test_what_a_failed_gather_leaves_behind_ends_with_the_scope(loop: str) -> None:
    async def main() -> None:
        limiter = Limiter(2, name="door")
        ends: dict[str, str] = {}

        async def call(name: str) -> None:
            try:
                async with limiter.lease():
                    if name == "fails":
                        await anyio.sleep(1)
                        raise ValueError(name)
                    await anyio.sleep(100)
            except SampleEnded as error:
                ends[name] = str(error)
                raise

        with pytest.raises(ValueError, match="fails"):
            async with lease_scope(ended=SampleEnded, name="sample 3") as scope:
                await asyncio.gather(call("holds"), call("fails"), call("waits"), call("waits too"))
        assert len(scope.stray) == 3
        await settle()
        assert sorted(ends) == ["holds", "waits", "waits too"]
        assert (limiter.used, limiter.waiting) == (0, 0)
        assert anyio.current_time() == 1

    run_virtual(loop, main)
