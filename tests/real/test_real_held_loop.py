"""A call that holds the event loop is named once, with its function, file and line; what does not hold it is not."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable

import anyio
import pytest

from proctor.runtime import current_runtime, heldloop, open_runtime

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

logger = "proctor.runtime.heldloop"


def blocks(seconds: float) -> None:
    time.sleep(seconds)


def computes(seconds: float) -> None:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        sum(range(1000))


def named(caplog: pytest.LogCaptureFixture, function: str) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == logger and function in each.getMessage()]


@pytest.mark.parametrize("call", [blocks, computes])
async def test_who_holds_the_loop_is_named_once(
    caplog: pytest.LogCaptureFixture, call: Callable[[float], None]
) -> None:
    async with open_runtime():
        for _ in range(2):
            await anyio.sleep(0.2)
            call(0.8)
        with anyio.fail_after(30):
            while not named(caplog, call.__name__):
                await anyio.sleep(0.02)
        await anyio.sleep(0.2)
    [said] = named(caplog, call.__name__)
    found = re.match(rf"{call.__name__} \((.*), line (\d+)\) held the event loop for ([\d.]+) s", said)
    assert found, said
    assert found[1] == __file__
    first = call.__code__.co_firstlineno
    assert first < int(found[2]) <= first + 3
    assert float(found[3]) >= 0.6


async def test_a_blocking_call_in_a_thread_is_not_named(caplog: pytest.LogCaptureFixture) -> None:
    async with open_runtime() as runtime:
        await runtime.run_user(blocks, 0.8)
    assert named(caplog, "blocks") == []


async def test_the_watch_ends_with_its_runtime() -> None:
    def watching() -> int:
        return sum(thread.name == "proctor loop watch" for thread in threading.enumerate())

    async with open_runtime():
        assert current_runtime() is not None
        assert watching() == 1
    assert watching() == 0


async def test_a_call_that_never_ends_is_named_while_it_holds_the_loop(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proctor.runtime.heldloop.LONG", 0.5)
    told = threading.Event()

    class Told(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.set()

    handler = Told()
    logging.getLogger(logger).addHandler(handler)
    try:
        async with open_runtime():
            await anyio.sleep(0.1)
            assert told.wait(60), "it is told before the loop goes on"
    finally:
        logging.getLogger(logger).removeHandler(handler)
    [said] = [each.getMessage() for each in caplog.records if each.name == logger]
    assert "has held the event loop" in said


async def test_the_engines_own_steps_are_told_at_level_info(caplog: pytest.LogCaptureFixture) -> None:
    """A step of the engine is no fault of the user's: compiled here as if it stood in one of its files."""
    caplog.set_level(logging.INFO, logger)
    scope: dict[str, Callable[[float], None]] = {}
    source = "import time\ndef step(seconds):\n    time.sleep(seconds)\n"
    exec(compile(source, f"{heldloop.ENGINE}/invented.py", "exec"), scope)
    async with open_runtime():
        await anyio.sleep(0.2)
        scope["step"](0.8)
        with anyio.fail_after(30):
            while not named(caplog, "step ("):
                await anyio.sleep(0.02)
    [record] = [each for each in caplog.records if each.name == logger and "step (" in each.getMessage()]
    assert record.levelno == logging.INFO
    assert "invented.py, line 3" in record.getMessage()
