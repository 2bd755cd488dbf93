"""What every sandbox must do, as checks that any provider can be run through.

::

    from proctor.testing.sandbox_checks import CHECKS, CheckSkipped, run_check

    @pytest.mark.parametrize("check", CHECKS, ids=str)
    def test_my_sandbox(check):
        try:
            anyio.run(run_check, check, "mine", my_config)
        except CheckSkipped as reason:
            pytest.skip(str(reason))

They run in real time on a Linux userland inside (``sh``, ``cat``, ``sleep``, ``head``, ``od``, ``stat``). A check of a
kill first sees that its victim lives: a counter in a file, which grows; afterwards it must stand still.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
from attrs import define, field, frozen

from proctor.runtime import current_runtime, open_runtime
from proctor.sandbox.environment import SandboxEnvironment, find_provider
from proctor.testing.sandbox_check_exec import EXEC_CHECKS
from proctor.testing.sandbox_check_files import FILE_CHECKS
from proctor.testing.sandbox_check_kills import KILL_CHECKS
from proctor.testing.sandbox_check_life import LIFE_CHECKS
from proctor.testing.sandbox_check_words import CheckFailed, CheckSkipped, Subject

LONGEST: Final = 120.0  # seconds that a check may take; it is there to end one that hangs

Run = Callable[[Subject], Awaitable[None]]


@frozen
class SandboxCheck:
    """One check.

    Attributes:
        name: what a sandbox must do. run: does the check. kills: it is about ending what runs.
    """

    name: str
    run: Run
    kills: bool = False

    def __str__(self) -> str:
        return self.name


def _named(runs: tuple[Run, ...], *, kills: bool = False) -> tuple[SandboxCheck, ...]:
    return tuple(SandboxCheck(getattr(run, "__name__", "?"), run, kills) for run in runs)


CHECKS: Final = (
    *_named(EXEC_CHECKS),
    *_named(FILE_CHECKS),
    *_named(KILL_CHECKS, kills=True),
    *_named(LIFE_CHECKS),
)
"""All of them."""


@define(eq=False)
class _Host:
    """Makes and removes environments as the engine does."""

    provider: type[SandboxEnvironment]
    config: Any
    left: Callable[[], int] | None
    made: list[dict[str, SandboxEnvironment]] = field(factory=list)

    async def make(self) -> dict[str, SandboxEnvironment]:
        made = await self.provider.sample_init("check", self.config, {})
        self.made.append(made)
        return made

    async def remove(self, environments: dict[str, SandboxEnvironment], *, interrupted: bool = False) -> None:
        self.made = [each for each in self.made if each is not environments]
        await self.provider.sample_cleanup("check", self.config, environments, interrupted)

    async def close(self) -> None:
        for each in list(self.made):
            await self.remove(each, interrupted=True)


@asynccontextmanager
async def open_subject(
    sandbox: str | type[SandboxEnvironment], config: Any = None, *, left: Callable[[], int] | None = None
) -> AsyncIterator[Subject]:
    """An environment of a provider to be checked, in a runtime; both end with the block.

    Args:
        sandbox: a provider, or the name of one.
        config: its configuration.
        left: how many environments of the provider exist, as seen from outside; checks of leftovers need it.
    """
    provider = find_provider(sandbox) if isinstance(sandbox, str) else sandbox
    if current_runtime() is None:
        async with open_runtime(), open_subject(provider, config, left=left) as subject:
            yield subject
        return
    host = _Host(provider, config, left)
    await provider.task_init("check", config)
    try:
        environments = await host.make()
        yield Subject(next(iter(environments.values())), environments, host.make, host.remove, left)
    finally:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + LONGEST):
            await host.close()
            await provider.task_cleanup("check", config, True)  # noqa: FBT003 - the provider's own signature


async def run_check(
    check: SandboxCheck,
    sandbox: str | type[SandboxEnvironment],
    config: Any = None,
    *,
    left: Callable[[], int] | None = None,
) -> None:
    """Run one check on an environment made for it.

    Args:
        sandbox, config, left: as for `open_subject`.

    Raises:
        CheckFailed: the sandbox does not do what it must; the text says what.
        CheckSkipped: it cannot be checked here.
    """
    with anyio.fail_after(LONGEST):
        async with open_subject(sandbox, config, left=left) as subject:
            await check.run(subject)


__all__ = ["CHECKS", "CheckFailed", "CheckSkipped", "SandboxCheck", "Subject", "open_subject", "run_check"]
