"""asyncio's own cancellation (`Task.cancel`), which no shield holds back, at a command that is being run or ended."""

from __future__ import annotations

import asyncio
import signal

import anyio
import pytest

from proctor.process.pool import KEY
from proctor.runtime import Settings, open_runtime
from proctor.testing import BACKENDS, FakeProcess, Play, run_virtual, settle
from proctor.util import subprocess


@pytest.fixture(params=[name for name in BACKENDS if name.startswith("asyncio")])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("play", [Play(seconds=60), Play(seconds=60, stubborn=True), Play(seconds=60, lost=True)])
@pytest.mark.parametrize("pause", [0.0, 0.5])
def test_a_command_is_ended_and_its_place_given_back(loop: str, times: int, play: Play, pause: float) -> None:
    fake = FakeProcess(answer=lambda call: play if call.text == "slow" else Play())

    async def main() -> None:
        with fake.installed():
            async with open_runtime(Settings(seed=0, max_subprocesses=1)) as runtime:
                task = asyncio.ensure_future(subprocess("slow"))
                await anyio.sleep(1)
                assert fake.alive == 1
                for _ in range(times):
                    task.cancel()
                    await anyio.sleep(pause)
                    await settle()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert fake.alive == 0
                ref = runtime.find("processes", KEY)
                assert ref is not None
                assert (ref.limiter.used, ref.state.live) == (0, [])
                await subprocess("next")

    run_virtual(loop, main)
    assert fake.plays[0].signals[0] == (1.0, signal.SIGTERM)
    assert fake.plays[0].closed


def test_wait_for_around_a_command_is_a_timeout_like_any(loop: str) -> None:
    fake = FakeProcess(answer=Play(seconds=60))

    async def main() -> None:
        with fake.installed():
            async with open_runtime(Settings(seed=0, max_subprocesses=1)):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(subprocess("slow"), 2)
                assert (fake.alive, anyio.current_time()) == (0, 2.0)

    run_virtual(loop, main)
