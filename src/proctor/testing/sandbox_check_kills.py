"""Checks of ends: what timed out or was cancelled is dead inside, with all that it started."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from proctor.testing.awaits import Awaits
from proctor.testing.sandbox_check_words import COUNT, Subject, raises, same, true

LATE: Final = 20.0  # seconds after its timeout by which a command must have been given up, on a slow machine
MOST_AWAITS: Final = 60


async def a_timeout_raises_in_time(subject: Subject) -> None:
    began = anyio.current_time()
    await raises(TimeoutError, subject.sandbox.exec(["sleep", "100"], timeout=1))
    true("it came too late", anyio.current_time() - began < 1 + LATE)


async def what_timed_out_is_dead(subject: Subject) -> None:
    await _times_out(subject, COUNT)


async def a_child_of_what_timed_out_is_dead(subject: Subject) -> None:
    await _times_out(subject, f"( {COUNT} ) & wait")


async def a_child_in_a_session_of_its_own_is_dead(subject: Subject) -> None:
    await _times_out(subject, f"setsid sh -c '{COUNT}' \"$0\" & sleep 100")


async def what_ignores_signals_is_dead(subject: Subject) -> None:
    await _times_out(subject, f"trap '' TERM INT HUP; {COUNT}")


async def what_floods_its_output_is_dead(subject: Subject) -> None:
    await _times_out(subject, f"yes & {COUNT}")


async def after_a_timeout_the_sandbox_goes_on(subject: Subject) -> None:
    await subject.sandbox.write_file("kept", "x")
    await raises(TimeoutError, subject.sandbox.exec(["sleep", "100"], timeout=1))
    same("output", await subject.out("cat kept"), "x")


async def what_timed_out_is_not_run_again(subject: Subject) -> None:
    slow = ["sh", "-c", "echo once >> runs; sleep 100"]
    await raises(TimeoutError, subject.sandbox.exec(slow, timeout=1, timeout_retry=True))
    same("runs", await subject.sandbox.read_file("runs"), "once\n")


async def what_was_cancelled_is_dead(subject: Subject) -> None:
    async with anyio.create_task_group() as nursery:
        nursery.start_soon(lambda: subject.sandbox.exec(["sh", "-c", COUNT, "count"]))
        await subject.lives("count")
        nursery.cancel_scope.cancel()
    await subject.is_dead("count")


async def cancelled_at_any_await_a_command_leaves_nothing(subject: Subject) -> None:
    async def command() -> object:
        return await subject.sh('echo x >> "$0"; sleep 0.05; echo x >> "$0"', "steps", input="some input")

    await _cancelled_everywhere(subject, command)
    before = await subject.size("steps")
    await anyio.sleep(0.3)
    same("the file of steps", await subject.size("steps"), before)


async def cancelled_at_any_await_a_file_does_no_harm(subject: Subject) -> None:
    async def files() -> None:
        await subject.sandbox.write_file("w/f", b"x" * 100_000)
        await subject.sandbox.read_file("w/f", text=False)

    await _cancelled_everywhere(subject, files)
    await subject.sandbox.write_file("w/f", "whole")
    same("text", await subject.sandbox.read_file("w/f"), "whole")


async def _times_out(subject: Subject, script: str) -> None:
    """Run a script that counts until its time is over; it must have counted, and then stand still."""
    began = anyio.current_time()
    await raises(TimeoutError, subject.sandbox.exec(["sh", "-c", script, "count"], timeout=1))
    true("the timeout came too late", anyio.current_time() - began < 1 + LATE)
    await subject.is_dead("count")


async def _cancelled_everywhere(subject: Subject, step: Callable[[], Awaitable[object]]) -> None:
    """Cancel a step at its first await, then at its second, until it gets through; the sandbox works each time."""
    for number in range(1, MOST_AWAITS):
        awaits = Awaits(number)
        with anyio.CancelScope() as awaits.scope:
            await awaits.drive(step())
        same(f"after a cancellation at await {number}", await subject.out("echo works"), "works\n")
        if awaits.count < number:
            true("it never waited", number > 1)
            return


KILL_CHECKS: Final = (
    a_timeout_raises_in_time,
    what_timed_out_is_dead,
    a_child_of_what_timed_out_is_dead,
    a_child_in_a_session_of_its_own_is_dead,
    what_ignores_signals_is_dead,
    what_floods_its_output_is_dead,
    after_a_timeout_the_sandbox_goes_on,
    what_timed_out_is_not_run_again,
    what_was_cancelled_is_dead,
    cancelled_at_any_await_a_command_leaves_nothing,
    cancelled_at_any_await_a_file_does_no_harm,
)
