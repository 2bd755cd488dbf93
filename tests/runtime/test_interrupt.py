"""Signals as phases: who is woken, and that the handlers are put back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import anyio
import pytest

from proctor.runtime.backend import run
from proctor.runtime.interrupt import Interrupts, open_interrupts


@pytest.fixture(autouse=True)
def own_handler() -> Iterator[list[int]]:
    """A handler of the test's, to be found again afterwards."""
    taken: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, lambda number, frame: taken.append(number))
    yield taken
    for number, handler in before.items():
        signal.signal(number, handler)


async def test_each_signal_wakes_those_who_wait_for_its_phase() -> None:
    exits: list[int] = []
    woken: list[tuple[str, int]] = []

    async def waits(interrupts: Interrupts, phase: int) -> None:
        await interrupts.wait_phase(phase)
        woken.append(("woken", phase))

    async with open_interrupts(exit_now=exits.append) as interrupts:
        async with anyio.create_task_group() as group:
            for phase in (2, 1, 2):
                group.start_soon(waits, interrupts, phase)
            await anyio.sleep(1)
            assert (interrupts.phase, interrupts.began, interrupts.exit_status) == (0, None, None)
            for phase in (1, 2):
                signal.raise_signal(signal.SIGINT)
                await anyio.sleep(1)
                woken.append(("signalled", phase))
        assert woken == [("woken", 1), ("signalled", 1), ("woken", 2), ("woken", 2), ("signalled", 2)]
        assert (interrupts.phase, interrupts.began, interrupts.exit_status) == (2, 1, 130)
        await interrupts.wait_phase(2)
        assert exits == []
        signal.raise_signal(signal.SIGINT)
        assert exits == [signal.SIGINT]


async def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async with open_interrupts(()) as interrupts:
        with anyio.move_on_after(1):
            await interrupts.wait_phase(1)
        interrupts()
        await interrupts.wait_phase(1)


async def test_the_first_signal_says_how_the_process_exits() -> None:
    async with open_interrupts((signal.SIGINT, signal.SIGTERM)) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        await interrupts.wait_phase(2)
        assert interrupts.exit_status == 143


async def test_the_old_handlers_are_put_back(own_handler: list[int]) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="out of the block"):
        async with open_interrupts((signal.SIGINT, signal.SIGTERM)):
            assert signal.getsignal(signal.SIGINT) is not before
            raise ValueError("out of the block")
    assert signal.getsignal(signal.SIGINT) is before
    signal.raise_signal(signal.SIGTERM)
    assert own_handler == [signal.SIGTERM]


async def test_a_signal_that_is_not_asked_for_is_left_alone(own_handler: list[int]) -> None:
    async with open_interrupts((signal.SIGINT,)) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        assert (own_handler, interrupts.phase) == ([signal.SIGTERM], 0)


@pytest.mark.parametrize("name", ["asyncio", "trio"])
def test_in_another_thread_nothing_is_installed(name: str, own_handler: list[int]) -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    async def main() -> None:
        async with open_interrupts() as interrupts:
            seen.append(signal.getsignal(signal.SIGINT) is before)
            interrupts()
            await interrupts.wait_phase(1)
            seen.append(interrupts.phase)

    thread = threading.Thread(target=run, args=(main,), kwargs={"backend": name})
    thread.start()
    thread.join()
    assert seen == [True, 1]
