"""Threads in real time: a stuck call holds neither the exit of the process nor the end of a run."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import Task, eval_async, open_runtime
from proctor.dataset import Sample
from proctor.runtime import run
from proctor.runtime.threads import EngineThreads
from proctor.scorer import Score, Target, mean, scorer
from proctor.solver import TaskState
from proctor.util import run_blocking

pytestmark = pytest.mark.real

PROGRAM = textwrap.dedent(
    """
    import faulthandler, logging, sys, threading, anyio
    from proctor.runtime import open_runtime, run

    logging.basicConfig(format="%(message)s")

    def stuck_scorer():
        begun.set()
        threading.Event().wait(60)

    async def main():
        async with open_runtime() as runtime, anyio.create_task_group() as group:
            group.start_soon(runtime.run_user, stuck_scorer)
            while not begun.is_set():
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        print("closed", flush=True)

    begun = threading.Event()
    faulthandler.dump_traceback_later(20, exit=True)
    run(main, backend=sys.argv[1])
    """
)


@pytest.mark.parametrize("name", ["asyncio", "trio"])
def test_a_stuck_call_of_user_code_is_named_and_holds_no_exit(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, name], capture_output=True, text=True, timeout=30, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, "closed\n")
    [line] = ended.stderr.splitlines()
    assert line.startswith("user code still runs in a thread, which ends with the process: stuck_scorer (<string>:")


@pytest.mark.parametrize("name", ["asyncio", "trio"])
def test_a_dead_disk_holds_a_cancelled_engine_call_no_longer_than_its_patience(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()

    def write_to_a_dead_disk() -> None:
        go.wait(30)

    async def main() -> None:
        threads = EngineThreads(1, patience=0.2)
        with anyio.move_on_after(0.1):
            await threads.run(write_to_a_dead_disk)
        assert not go.is_set()
        threads.close()

    run(main, backend=name)
    go.set()
    assert "write_to_a_dead_disk" in caplog.text
    assert "did not end within 0.2 s after it was cancelled" in caplog.text


async def test_forty_stuck_scorers_hold_neither_the_log_nor_the_other_samples(tmp_path: Path) -> None:
    """All threads of user code are stuck. With room for one record, each that ends must be written for the next."""
    go, quick = threading.Event(), 0

    @scorer(metrics=[mean()])
    def sometimes_stuck() -> Any:
        async def score(state: TaskState, target: Target) -> Score:
            nonlocal quick
            if state.input_text == "stuck":
                await run_blocking(go.wait, 60)
            else:
                quick += 1
                if quick == 20:
                    go.set()
            return Score(value=1)

        return score

    samples = [Sample("stuck") for _ in range(40)] + [Sample("quick") for _ in range(20)]
    [log] = await eval_async(
        Task(samples, scorer=sometimes_stuck()),
        "mock/m",
        max_samples=41,
        log_buffer=1,
        display="none",
        log_dir=str(tmp_path),
    )
    assert go.is_set(), "the stuck ones were waited for"
    assert (log.status, quick) == ("success", 20)


@pytest.mark.parametrize("inside", [True, False])
async def test_blocking_code_runs_in_a_thread_inside_of_a_runtime_and_outside(inside: bool) -> None:
    async with open_runtime() if inside else nullcontext():
        assert await run_blocking(threading.get_ident) != threading.get_ident()
        with pytest.raises(ValueError, match="invalid literal"):
            await run_blocking(int, "x")
