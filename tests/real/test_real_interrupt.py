"""Ctrl-C at a real process: by how many signals it ends, with what status, in a plain run and inside a running loop."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

pytestmark = pytest.mark.real

PROGRAM = textwrap.dedent(
    """
    import asyncio, faulthandler, signal, sys, time, anyio
    faulthandler.dump_traceback_later(30, exit=True)
    from proctor.runtime.backend import run
    from proctor.runtime.interrupt import open_interrupts

    place, kind, backend = sys.argv[1:]

    async def phases():
        async with open_interrupts((signal.SIGINT, signal.SIGTERM)) as interrupts:
            print("ready", flush=True)
            await interrupts.wait_phase(1)
            print("phase 1", flush=True)
            await interrupts.wait_phase(2)
            print("phase 2", flush=True)
            await anyio.sleep_forever()

    async def orderly():
        async with open_interrupts((signal.SIGINT, signal.SIGTERM)) as interrupts:
            print("ready", flush=True)
            await interrupts.wait_phase(1)
            print("log written", flush=True)
        raise KeyboardInterrupt

    async def busy():
        async with open_interrupts() as interrupts:
            print("ready", flush=True)
            while interrupts.phase == 0:  # the loop is blocked: only the handler can see the signal
                pass
            await interrupts.wait_phase(1)
            print("seen", flush=True)

    async def synchronous():
        # Stands for a step of a limiter, which must not be torn in two.
        print("ready", flush=True)
        try:
            end = time.monotonic() + 0.5
            while time.monotonic() < end:
                pass
            print("whole", flush=True)
        except KeyboardInterrupt:
            print("torn", flush=True)
        await anyio.sleep(20)

    async def plain():
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.sleep_forever)
                print("ready", flush=True)
                await anyio.sleep_forever()
        finally:
            print("cleaned up", flush=True)

    def call():
        try:
            run(globals()[kind], backend=backend)
        except KeyboardInterrupt:
            print("KeyboardInterrupt", signal.getsignal(signal.SIGINT) is before, flush=True)
            return
        print("returned", signal.getsignal(signal.SIGINT) is before, flush=True)

    async def hosted():
        global before
        before = signal.getsignal(signal.SIGINT)
        call()
        await anyio.sleep(0.01)
        print("host goes on", flush=True)

    before = signal.getsignal(signal.SIGINT)
    if place == "alone":
        call()
    else:
        anyio.run(hosted, backend=place)
    """
)

BACKENDS = ["asyncio", "trio"]


class Program:
    def __init__(self, place: str, kind: str, backend: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, place, kind, backend],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline().strip()
        assert line, self.process.communicate()[1]
        return line

    def send(self, number: int = signal.SIGINT) -> None:
        assert self.process.poll() is None
        self.process.send_signal(number)

    def end(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=20)
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[type[Program]]:
    started: list[Program] = []

    class Started(Program):
        def __init__(self, place: str, kind: str, backend: str) -> None:
            super().__init__(place, kind, backend)
            started.append(self)

    yield Started
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_third_signal_ends_the_process_at_once(
    start: type[Program], backend: str, number: signal.Signals, status: int
) -> None:
    program = start("alone", "phases", backend)
    for expected in ("ready", "phase 1", "phase 2"):
        assert program.line() == expected
        program.send(number)
    assert program.end() == (status, "", "")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_first_signal_begins_an_orderly_end_and_the_handler_is_put_back(start: type[Program], backend: str) -> None:
    program = start("alone", "orderly", backend)
    assert program.line() == "ready"
    program.send()
    assert program.end() == (0, "log written\nKeyboardInterrupt True\n", "")


@pytest.mark.parametrize("place", ["alone", *BACKENDS])
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_signal_during_synchronous_work_is_not_lost(start: type[Program], place: str, backend: str) -> None:
    program = start(place, "busy", backend)
    assert program.line() == "ready"
    program.send()
    assert program.line() == "seen"
    assert program.line() == "returned True"
    assert program.end()[0] == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_synchronous_step_is_not_torn_in_two(start: type[Program], backend: str) -> None:
    program = start("alone", "synchronous", backend)
    assert program.line() == "ready"
    program.send()
    assert program.end() == (0, "whole\nKeyboardInterrupt True\n", "")


@pytest.mark.parametrize("place", BACKENDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_inside_a_running_loop_the_interrupt_is_relayed_and_the_host_lives_on(
    start: type[Program], place: str, backend: str
) -> None:
    program = start(place, "orderly", backend)
    assert program.line() == "ready"
    program.send()
    assert program.end() == (0, "log written\nKeyboardInterrupt True\nhost goes on\n", "")


@pytest.mark.parametrize("place", BACKENDS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_inside_a_running_loop_the_third_signal_ends_the_wait_and_not_the_host(
    start: type[Program], place: str, backend: str
) -> None:
    program = start(place, "phases", backend)
    for expected in ("ready", "phase 1", "phase 2"):
        assert program.line() == expected
        program.send()
    assert program.end() == (0, "KeyboardInterrupt True\nhost goes on\n", "")


@pytest.mark.parametrize("place", ["alone", *BACKENDS])
@pytest.mark.parametrize("backend", BACKENDS)
def test_without_anyone_handling_it_the_run_is_cancelled(start: type[Program], place: str, backend: str) -> None:
    program = start(place, "plain", backend)
    assert program.line() == "ready"
    program.send()
    assert program.line() == "cleaned up"
    assert program.line() == "KeyboardInterrupt True"
    assert program.end()[::2] == (0, "")
