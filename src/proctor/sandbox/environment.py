"""What a sandbox is: the class that providers derive from, and how they are registered.

The names, parameters and defaults are Inspect's, so that a provider written for it is ported by its imports. Three
things are more exact here. A command that timed out is dead inside the sandbox when `exec` raises. A command is run
once: `timeout_retry` is accepted and never makes it run again. And an environment that is no longer there raises
`SandboxUnavailableError`, which ends its sample as an error.

A provider's class methods are called by the engine's pool (`proctor.sandbox.pool`) in an actor, its instances' methods
by solvers, tools and scorers in their own tasks.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar, overload

from anyio.abc import ByteReceiveStream, ByteSendStream
from attrs import define, field

from proctor import registry
from proctor.errors import SandboxUnavailableError, UsageError
from proctor.log.spec import SandboxEnvironmentSpec
from proctor.model.portable import Portable

if TYPE_CHECKING:
    from proctor.process import ExecResult

E = TypeVar("E", bound="SandboxEnvironment")
C = TypeVar("C", bound="type[SandboxEnvironment]")

SandboxEnvironmentType: TypeAlias = "SandboxEnvironmentSpec | str | tuple[str, Any]"
"""A provider's name, or the name and its configuration (a file, or an object of the provider's)."""
SandboxEnvironmentConfigType: TypeAlias = Any

NAME_ATTRIBUTE: Final = "__proctor_sandbox__"
DEFAULT: Final = "default"


@define(kw_only=True)
class HostMapping(Portable):
    """Where on the host a port is reached."""

    host_ip: str
    host_port: int


@define(kw_only=True)
class PortMapping(Portable):
    """A port of an environment and where it is reached."""

    container_port: int
    protocol: Literal["tcp", "udp"]
    mappings: list[HostMapping]


@define(kw_only=True)
class SandboxConnection(Portable):
    """How a person gets into an environment.

    Attributes:
        type: the provider's name. command: for a shell on this machine.
        vscode_command: a command of VS Code with its arguments. ports: those reached from outside.
        container: its name, of providers that have containers.
    """

    type: str
    command: str
    vscode_command: list[Any] | None = None
    ports: list[PortMapping] | None = None
    container: str | None = None


class SandboxProcess(Protocol):
    """A command that runs in an environment, with its streams: what `SandboxEnvironment.open_process` gives."""

    @property
    def stdin(self) -> ByteSendStream: ...
    @property
    def stdout(self) -> ByteReceiveStream: ...
    @property
    def stderr(self) -> ByteReceiveStream: ...
    async def wait(self) -> int:
        """Wait for its end and return its exit code."""
        ...


class SandboxEnvironment(abc.ABC):
    """Where untrusted code runs. Derive a provider from it and register that with `sandboxenv`."""

    @abc.abstractmethod
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
        """Run a command.

        Args:
            cmd: the program and its arguments; a shell is explicit.
            input: for its standard input.
            cwd: working folder, relative to the environment's own.
            env: variables, added to those the environment has.
            user: name or number of the user to run as.
            timeout: seconds from the start of the command. When they are over it is dead, with all that it started.
            timeout_retry: accepted for ported code; a command is never run twice.
            concurrency: of providers that run on this machine: take a place among the child processes.

        Returns:
            Exit code and output. A program that does not exist is an ordinary failure (code 127). Of each stream at
            most 10 MiB are kept, its tail, and `truncated` says so.

        Raises:
            TimeoutError: it took longer than `timeout`.
            PermissionError: the user may not execute it.
            SandboxUnavailableError: the environment is no longer there.
        """

    @abc.abstractmethod
    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file; folders above it are made.

        Args:
            file: its path, absolute or relative to the working folder.
            contents: text is written as UTF-8.

        Raises:
            PermissionError: it may not be written.
            IsADirectoryError: a folder has this name.
            SandboxUnavailableError: the environment is no longer there.
        """

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    @abc.abstractmethod
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file.

        Args:
            file: its path, absolute or relative to the working folder.
            text: decode it as UTF-8; line ends stay as they are.

        Raises:
            FileNotFoundError: there is no such file.
            UnicodeDecodeError: it is no UTF-8 and `text` is asked for.
            PermissionError: it may not be read.
            IsADirectoryError: it is a folder.
            OutputLimitExceededError: it has more than 100 MiB.
            SandboxUnavailableError: the environment is no longer there.
        """

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """How a person gets into the environment.

        Raises:
            NotImplementedError: the provider offers no way.
            ConnectionError: the environment does not run at present.
        """
        raise NotImplementedError("this sandbox offers no connection")

    def open_process(
        self, cmd: list[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> AbstractAsyncContextManager[SandboxProcess]:
        """``async with environment.open_process(cmd) as process:`` runs a command and talks to it meanwhile.

        Leaving the block ends it and all that it started, within a few seconds. For sessions (a shell that is kept).

        Raises:
            NotImplementedError: the provider cannot do it.
        """
        raise NotImplementedError(f"sandbox {provider_name(type(self))} has no processes that can be talked to")

    async def alive(self) -> bool:
        """Whether the environment is still there; asked when its pool has been restarted. It takes a moment at most."""
        return True

    def as_type(self, sandbox_cls: type[E]) -> E:
        """This environment as an instance of a provider's class.

        Raises:
            TypeError: it is none.
        """
        if isinstance(self, sandbox_cls):
            return self
        raise TypeError(f"the sandbox is a {type(self).__name__}, not a {sandbox_cls.__name__}")

    # -- what the engine asks of the provider itself

    @classmethod
    def default_concurrency(cls) -> int | None:
        """Live environments at once where nobody says how many; None: any number."""
        return None

    @classmethod
    def config_files(cls) -> list[str]:
        """Names of files that configure the provider, looked for beside the task when no configuration is given."""
        return []

    @classmethod
    def is_docker_compatible(cls) -> bool:
        """Whether it takes a Dockerfile or a compose file."""
        return any(name in {"Dockerfile", "compose.yaml", "docker-compose.yaml"} for name in cls.config_files())

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> Any:
        """The provider's configuration from the dict that stands for it in a log.

        Raises:
            NotImplementedError: it has no configuration of its own.
        """
        raise NotImplementedError(f"sandbox {provider_name(cls)} has no configuration object")

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Prepare for environments of one configuration; called once for each in a task, before its first sample."""
        return

    @classmethod
    async def task_init_environment(
        cls, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, str]:
        """Environment variables that `task_init` needs of a sample; each set of them is a configuration of its own."""
        return {}

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Make the environments of a sample, the first of which is the default.

        Whatever interrupts it, a cancellation too, must not leave behind what it had made so far.
        """
        return {}

    @classmethod
    @abc.abstractmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Remove a sample's environments.

        Args:
            interrupted: the sample ended by an error or was cancelled.
        """

    @classmethod
    async def task_cleanup(cls, task_name: str, config: SandboxEnvironmentConfigType | None, cleanup: bool) -> None:
        """Remove what is left of a task's environments; called once for each configuration, at the task's end.

        Args:
            cleanup: False when the user wants them kept (``--no-sandbox-cleanup``): say how to remove them.
        """
        return

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Remove what runs that have ended left: ``proctor sandbox cleanup <provider> [id]``.

        Args:
            id: of one environment; None for all.
        """
        return


@define
class SandboxEnvironments:
    """The environments of one sample by name; the first is the default."""

    environments: dict[str, SandboxEnvironment] = field(factory=dict)


def sandboxenv(name: str) -> Callable[[C], C]:
    """Register a provider under a name: ``@sandboxenv(name="mine") class MySandbox(SandboxEnvironment): …``."""

    def decorate(provider: Any) -> Any:
        made = provider if isinstance(provider, type) else provider()
        setattr(made, NAME_ATTRIBUTE, name)
        registry.register("sandboxenv", name, made)
        return made

    return decorate


def provider_name(provider: type[SandboxEnvironment]) -> str:
    """The name that a provider is registered under, else that of its class."""
    return str(getattr(provider, NAME_ATTRIBUTE, provider.__name__))


def find_provider(name: str) -> type[SandboxEnvironment]:
    """The provider of a name.

    Raises:
        NotFoundError: there is none.
        UsageError: what is registered under the name is no provider.
    """
    found = registry.lookup("sandboxenv", name)
    if not (isinstance(found, type) and hasattr(found, "sample_cleanup")):
        raise UsageError(f"sandbox {name!r} is registered as {found!r}, which is no SandboxEnvironment class")
    return found


__all__ = [
    "HostMapping",
    "PortMapping",
    "SandboxConnection",
    "SandboxEnvironment",
    "SandboxEnvironmentConfigType",
    "SandboxEnvironmentSpec",
    "SandboxEnvironmentType",
    "SandboxEnvironments",
    "SandboxProcess",
    "SandboxUnavailableError",
    "find_provider",
    "provider_name",
    "sandboxenv",
]
