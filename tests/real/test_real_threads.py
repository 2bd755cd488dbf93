"""Threads in real time: a stuck call holds neither the exit of the process nor the end of a run."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import anyio
import pytest

from proctor.runtime import run
from proctor.runtime.threads import EngineThreads

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
