"""`FakeSandbox`: sandboxes that cost nothing, behind a real pool, in whatever time the test has.

What is real: the pool, its limits, the lease taken together with a sample's, files, set-up, removal, deadlines. What is
played: the machine. The script counts on *its* side what lives and what starts, as a host would.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import anyio
from attrs import define, field, frozen

from proctor.errors import SandboxUnavailableError
from proctor.log.spec import SandboxEnvironmentSpec
from proctor.process import ExecResult
from proctor.sandbox.environment import SandboxConnection, SandboxEnvironment, sandboxenv
from proctor.testing.faults import FaultPlan

T = TypeVar("T")
Seconds = float | Callable[[], float]


@frozen
class FakeSandboxCommand:
    """A command as the sandbox sees it."""

    environment: FakeSandboxEnvironment
    cmd: tuple[str, ...]
    input: bytes
    timeout: float | None


Said = str | ExecResult[str] | Exception
Command = Said | Callable[[FakeSandboxCommand], Said | Awaitable[Said]]


@define(eq=False, kw_only=True)
class FakeSandbox:
    """A scripted host of sandboxes: ``Task(sandbox=fake.spec)``.

    Args:
        names: of the environments that each sample gets.
        start, command, removal, preparation: seconds that each takes, or a function that says.
        answer: the output of every command, its result, an exception, or a function of the command, async or not.
        faults: raises what is planned under ``sandbox``, ``command`` and ``removal``.
        stuck: removals sleep for ever; ``resisting``: and do not obey their cancellation for so many seconds.

    Attributes:
        live: environments that exist now. peak: at once. starting, peak_starting: those that are being made.
        made, removed: how many in all. prepared, tidied: configurations. commands: in order.
        interrupted: what each removal was told.
    """

    names: tuple[str, ...] = ("default",)
    start: Seconds = 0.0
    command: Seconds = 0.0
    removal: Seconds = 0.0
    preparation: Seconds = 0.0
    answer: Command = ""
    faults: FaultPlan = field(factory=FaultPlan)
    stuck: bool = False
    resisting: float = 0.0
    live: dict[FakeSandboxEnvironment, None] = field(factory=dict, init=False)
    peak: int = field(default=0, init=False)
    starting: int = field(default=0, init=False)
    peak_starting: int = field(default=0, init=False)
    made: int = field(default=0, init=False)
    removed: int = field(default=0, init=False)
    prepared: int = field(default=0, init=False)
    tidied: list[bool] = field(factory=list, init=False)
    commands: list[FakeSandboxCommand] = field(factory=list, init=False)
    interrupted: list[bool] = field(factory=list, init=False)

    @property
    def spec(self) -> SandboxEnvironmentSpec:
        """What a task or a sample is given."""
        return SandboxEnvironmentSpec("fake", self)

    def kill_all(self) -> None:
        """Let what lives be gone, as when the host kills it."""
        for each in list(self.live):
            each.dead = True

    async def counted(self, step: Awaitable[T]) -> T:
        """Do what the pool asks for; with a cancellation planned its awaits count like those of the sample."""
        if self.faults.cancel_at is None:
            return await step
        return await self.faults.awaits.drive(step)

    async def make(self) -> dict[str, SandboxEnvironment]:
        """Make the environments of a sample; on the way out of a failure what was made is taken back."""
        made: list[FakeSandboxEnvironment] = []
        self.starting += 1
        self.peak_starting = max(self.peak_starting, self.starting)
        try:
            await anyio.sleep(_seconds(self.start))
            self.faults.hit("sandbox")
            for name in self.names:
                made.append(FakeSandboxEnvironment(self, name))
                self._begins(made[-1])
                await anyio.lowlevel.checkpoint()
        except BaseException:
            for each in made:
                self.live.pop(each, None)
            raise
        finally:
            self.starting -= 1
        self.made += len(made)
        return {each.name: each for each in made}

    def _begins(self, environment: FakeSandboxEnvironment) -> None:
        self.live[environment] = None
        self.peak = max(self.peak, len(self.live))

    async def remove(self, environments: list[FakeSandboxEnvironment], *, interrupted: bool) -> None:
        """Remove the environments of a sample."""
        self.interrupted.append(interrupted)
        await anyio.sleep(_seconds(self.removal))
        self.faults.hit("removal")
        if self.stuck:
            await self._never()
        for each in environments:
            if each in self.live:
                del self.live[each]
                self.removed += 1

    async def _never(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            if self.resisting:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(self.resisting)


@sandboxenv(name="fake")
@define(eq=False)
class FakeSandboxEnvironment(SandboxEnvironment):
    """The provider ``fake``; its configuration is the `FakeSandbox`.

    Attributes:
        files: what was written. dead: it is gone, and every operation says so.
    """

    script: FakeSandbox
    name: str
    files: dict[str, bytes] = field(factory=dict)
    dead: bool = False

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: float | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Play a command."""
        self._check()
        script = self.script
        given = input.encode() if isinstance(input, str) else input or b""
        command = FakeSandboxCommand(self, tuple(cmd), given, timeout)
        script.commands.append(command)
        with anyio.fail_after(timeout):
            await anyio.sleep(_seconds(script.command))
            script.faults.hit("command")
            said: Any = script.answer(command) if callable(script.answer) else script.answer
            if inspect.isawaitable(said):
                said = await said
        self._check()
        if isinstance(said, Exception):
            raise said
        return ExecResult(success=True, returncode=0, stdout=said, stderr="") if isinstance(said, str) else said

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Keep a file."""
        self._check()
        await anyio.lowlevel.checkpoint()
        self.files[file] = contents.encode() if isinstance(contents, str) else contents

    async def read_file(self, file: str, text: bool = True) -> Any:
        """Give a file back."""
        self._check()
        await anyio.lowlevel.checkpoint()
        if file not in self.files:
            raise FileNotFoundError(file)
        return self.files[file].decode() if text else self.files[file]

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """A connection that leads nowhere."""
        return SandboxConnection(type="fake", command="true")

    async def alive(self) -> bool:
        """Whether nobody killed it."""
        return not self.dead

    def _check(self) -> None:
        if self.dead or self not in self.script.live:
            raise SandboxUnavailableError(f"the fake sandbox {self.name} is gone")

    @classmethod
    async def task_init(cls, task_name: str, config: Any) -> None:
        """Count it."""
        await anyio.sleep(_seconds(config.preparation))
        config.prepared += 1

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """Make what the script says."""
        made: dict[str, SandboxEnvironment] = await config.counted(config.make())
        return made

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Remove them."""
        await config.counted(config.remove(list(environments.values()), interrupted=interrupted))

    @classmethod
    async def task_cleanup(cls, task_name: str, config: Any, cleanup: bool) -> None:
        """Count it."""
        await anyio.lowlevel.checkpoint()
        config.tidied.append(cleanup)


def _seconds(given: Seconds) -> float:
    return given() if callable(given) else given
