"""What the checks of sandboxes are written with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
from attrs import define

from proctor.process import ExecResult
from proctor.sandbox.environment import SandboxEnvironment

SOON: Final = 20.0  # seconds in which something must be seen, on a slow machine
STILL: Final = 0.6  # seconds that a counter must stand still to be dead; it counts ten times as often
COUNT: Final = 'while :; do echo x >> "$0"; sleep 0.05; done'
"""A script that counts in the file that is its name."""


class CheckFailed(AssertionError):
    """A sandbox does not do what it must."""


class CheckSkipped(Exception):
    """Something cannot be checked here, and why."""


@define(eq=False)
class Subject:
    """What a check is given.

    Attributes:
        sandbox: the environment to be checked. environments: all that were made with it, by name.
        make, remove: environments of another sample. left: how many exist, as seen from outside.
    """

    sandbox: SandboxEnvironment
    environments: dict[str, SandboxEnvironment]
    make: Callable[[], Awaitable[dict[str, SandboxEnvironment]]]
    remove: Callable[[dict[str, SandboxEnvironment]], Awaitable[None]]
    left: Callable[[], int] | None = None

    async def sh(self, script: str, *args: str, **more: Any) -> ExecResult[str]:
        """Run a shell script."""
        return await self.sandbox.exec(["sh", "-c", script, *args], **more)

    async def out(self, script: str, *args: str, **more: Any) -> str:
        """The output of a script that must succeed."""
        result = await self.sh(script, *args, **more)
        same("exit code", result.returncode, 0, result.stderr)
        return result.stdout

    async def size(self, file: str) -> int:
        """Bytes of a file, 0 when there is none."""
        return int(await self.out('stat -c %s -- "$0" 2>/dev/null || echo 0', file))

    async def lives(self, file: str) -> None:
        """See that a counter counts."""
        with anyio.move_on_after(SOON):
            first = await self.size(file)
            while True:
                await anyio.sleep(0.05)
                if await self.size(file) > first:
                    return
        raise CheckFailed("the victim never lived: its counter did not count")

    async def is_dead(self, file: str) -> None:
        """See that a counter that has counted stands still."""
        then = await self.size(file)
        if not then:
            raise CheckFailed("the victim never lived: its counter is empty")
        await anyio.sleep(STILL)
        now = await self.size(file)
        if now != then:
            raise CheckFailed(f"it still runs inside: the counter went from {then} to {now} after its end")


def same(what: str, found: object, wanted: object, more: object = "") -> None:
    """Raise `CheckFailed` unless two things are equal."""
    if found != wanted:
        raise CheckFailed(f"{what}: {_short(found)} instead of {_short(wanted)}{f' ({more})' if more else ''}")


def true(what: str, truth: object) -> None:
    """Raise `CheckFailed` unless something is true."""
    if not truth:
        raise CheckFailed(what)


async def raises(kind: type[BaseException] | tuple[type[BaseException], ...], awaited: Awaitable[object]) -> Any:
    """The exception of a kind that something must raise."""
    try:
        result = await awaited
    except kind as error:
        return error
    except Exception as error:
        raise CheckFailed(f"{type(error).__name__} ({error}) was raised instead of {_names(kind)}") from error
    raise CheckFailed(f"{_names(kind)} was not raised, there was a result: {_short(result)}")


def _names(kind: type[BaseException] | tuple[type[BaseException], ...]) -> str:
    return " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:150]}…{text[-40:]}"
