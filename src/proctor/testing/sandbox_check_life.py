"""Checks of environments: each is its own, and when it is removed nothing is left."""

from __future__ import annotations

from typing import Final

import anyio

from proctor.errors import SandboxUnavailableError
from proctor.sandbox.environment import SandboxEnvironment
from proctor.testing.awaits import Awaits
from proctor.testing.sandbox_check_words import SOON, CheckFailed, CheckSkipped, Subject, raises, same, true

MOST_AWAITS: Final = 60


async def samples_do_not_see_each_other(subject: Subject) -> None:
    await subject.sandbox.write_file("mine", "x")
    others = await subject.make()
    other = next(iter(others.values()))
    await raises(FileNotFoundError, other.read_file("mine"))
    await subject.remove(others)
    same("text", await subject.sandbox.read_file("mine"), "x")


async def a_removed_sandbox_is_SandboxUnavailableError(subject: Subject) -> None:  # noqa: N802 - the name says it
    others = await subject.make()
    other = next(iter(others.values()))
    true("it works before", (await other.exec(["true"])).success)
    await subject.remove(others)
    await raises(SandboxUnavailableError, other.exec(["true"]))
    await raises(SandboxUnavailableError, other.read_file("x"))
    await raises(SandboxUnavailableError, other.write_file("x", "y"))
    true("it says that it is alive", not await other.alive())


async def a_sandbox_is_removed_with_all_that_is_in_it(subject: Subject) -> None:
    before = _left(subject)
    others = await subject.make()
    other = next(iter(others.values()))
    same("made", _left(subject), before + 1)
    script = "mkdir -p a/b; echo x > a/b/c; chmod 000 a/b/c; chmod 500 a/b; ln -s / link; mkfifo pipe"
    same("code", (await other.exec(["sh", "-c", script])).returncode, 0)
    await subject.remove(others)
    same("left", _left(subject), before)


async def removals_at_once_do_not_disturb_each_other(subject: Subject) -> None:
    made = [await subject.make() for _ in range(4)]
    async with anyio.create_task_group() as nursery:
        for each in made:
            nursery.start_soon(_remove, subject, each)
    same("works", await subject.out("echo works"), "works\n")


async def cancelled_at_any_await_of_its_making_nothing_is_left(subject: Subject) -> None:
    before = _left(subject)
    for number in range(1, MOST_AWAITS):
        awaits = Awaits(number)
        made = None
        with anyio.CancelScope() as awaits.scope:
            made = await awaits.drive(subject.make())
        if made is not None:
            await subject.remove(made)
        same(f"left after a cancellation at await {number}", _left(subject), before)
        if awaits.count < number:
            return
    raise CheckFailed(f"its making awaits more than {MOST_AWAITS} times")


async def a_connection_is_a_command_or_not_implemented(subject: Subject) -> None:
    try:
        connection = await subject.sandbox.connection()
    except NotImplementedError:
        return
    true("the command is empty", connection.command)


async def a_process_can_be_talked_to_and_ends_with_its_block(subject: Subject) -> None:
    try:
        opening = subject.sandbox.open_process(["sh", "-c", "read line; echo got $line; exec sleep 100"])
    except NotImplementedError:
        raise CheckSkipped("the provider has no processes that can be talked to") from None
    with anyio.fail_after(60):
        async with opening as process:
            await process.stdin.send(b"hello\n")
            said = b""
            while b"\n" not in said:
                said += await process.stdout.receive()
    same("answer", said, b"got hello\n")
    same("works", await subject.out("echo works"), "works\n")


async def _remove(subject: Subject, environments: dict[str, SandboxEnvironment]) -> None:
    await subject.remove(environments)


async def its_removal_ends_what_still_runs(subject: Subject) -> None:
    others = await subject.make()
    other = next(iter(others.values()))
    try:
        opening = other.open_process(["sh", "-c", "echo up; exec sleep 1000"])
    except NotImplementedError:
        raise CheckSkipped("the provider has no processes that can be talked to") from None
    async with opening as process:
        with anyio.fail_after(SOON):
            said = await process.stdout.receive()
        same("answer of the victim", said, b"up\n")
        await subject.remove(others)
        with anyio.move_on_after(SOON):
            await process.wait()
            return
    raise CheckFailed("it still runs after the removal of its environment")


def _left(subject: Subject) -> int:
    if subject.left is None:
        raise CheckSkipped("nobody says how many environments there are: give left=")
    return subject.left()


LIFE_CHECKS: Final = (
    samples_do_not_see_each_other,
    a_removed_sandbox_is_SandboxUnavailableError,
    a_sandbox_is_removed_with_all_that_is_in_it,
    removals_at_once_do_not_disturb_each_other,
    cancelled_at_any_await_of_its_making_nothing_is_left,
    a_connection_is_a_command_or_not_implemented,
    a_process_can_be_talked_to_and_ends_with_its_block,
    its_removal_ends_what_still_runs,
)
