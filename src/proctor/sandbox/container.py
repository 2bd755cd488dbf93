"""The sandboxes `docker` and `podman`: containers, driven by the engine's own command line.

A configuration is the path of a compose file or of a Dockerfile, the name of an image, a `ComposeConfig`, or nothing
(then a plain Python image). A single image has no network; a compose file says for itself what its services may reach.

``docker`` reads compose files by ``docker compose``; for ``podman`` they are read here (`proctor.sandbox.compose`), so
that it needs no program besides.
"""

from __future__ import annotations

import logging
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import PurePosixPath
from typing import Any, ClassVar, Final, Literal, cast, overload

import anyio
from attrs import define

from proctor.errors import ProcessTimeout
from proctor.process import ExecResult
from proctor.process.result import decode
from proctor.runtime.cpus import cpus
from proctor.sandbox.compose import (
    COMPOSE_FILES,
    DOCKERFILE,
    ComposeConfig,
    is_compose_yaml,
)
from proctor.sandbox.containers.arguments import EngineName
from proctor.sandbox.containers.config import folder_of, image_variables, resolve_config, sample_variables
from proctor.sandbox.containers.docker_compose import ComposeProject, remove_compose_files
from proctor.sandbox.containers.engine import Engine, engine
from proctor.sandbox.containers.execution import Execution, Outcome
from proctor.sandbox.containers.files import read_container_file, write_container_file
from proctor.sandbox.containers.images import image_names, provide_images
from proctor.sandbox.containers.leftovers import (
    PROJECT_LABEL,
    RUN_LABEL,
    new_project_id,
    note_project,
    of_dead_run,
    remove_project,
)
from proctor.sandbox.containers.process import open_container_process
from proctor.sandbox.containers.project import Project
from proctor.sandbox.containers.shell import SHELL
from proctor.sandbox.containers.state import Container
from proctor.sandbox.environment import (
    HostMapping,
    PortMapping,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxProcess,
    sandboxenv,
)
from proctor.sandbox.limits import exec_output_limit
from proctor.sandbox.owned import orphans
from proctor.sandbox.task import task_environment
from proctor.sandbox.threads import in_thread

logger: Final = logging.getLogger(__name__)

ANY: Final = "0.0.0.0"  # noqa: S104  what engines mean by no address

AnyProject = Project | ComposeProject


@define(eq=False)
class ContainerSandbox(SandboxEnvironment):
    """One container of a sample. Made by `sample_init` only.

    Attributes:
        container: the container. project: all of the sample's.
    """

    engine_name: ClassVar[EngineName]

    container: Container
    project: AnyProject

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
        """Run a command in the container; see `SandboxEnvironment.exec`."""
        execution = Execution(
            container=self.container,
            command=list(cmd),
            folder=self.path(cwd or "."),
            env=env,
            user=user,
            input=input.encode() if isinstance(input, str) else input,
            timeout=timeout,
            limit=exec_output_limit(),
        )
        try:
            outcome = await execution.run()
        except ProcessTimeout as error:
            cut = error.truncated
            raise ProcessTimeout(
                str(error),
                stdout=decode(error.stdout, cut="stdout" in cut),
                stderr=decode(error.stderr, cut="stderr" in cut),
                truncated=cut,
            ) from None
        if outcome.refused == "folder":
            raise FileNotFoundError(f"{cwd}: the working folder does not exist in the sandbox")
        if outcome.refused:
            raise PermissionError(f"{cmd[0]} may not be executed: {decode(outcome.stderr).strip()}")
        return as_result(outcome)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file in the container; see `SandboxEnvironment.write_file`."""
        await write_container_file(self.container, self.path(file), file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...
    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file of the container; see `SandboxEnvironment.read_file`."""
        data = await read_container_file(self.container, self.path(file), file)
        return data.decode("utf-8") if text else data

    def path(self, file: str) -> str:
        """A path made absolute."""
        return str(PurePosixPath(self.container.folder) / file)

    @asynccontextmanager
    async def open_process(
        self, cmd: list[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None, user: str | None = None
    ) -> AsyncIterator[SandboxProcess]:
        """Run a command for the block and talk to it; see `SandboxEnvironment.open_process`."""
        async with open_container_process(
            self.container, cmd, folder=self.path(cwd or "."), env=env, user=user
        ) as live:
            yield live

    async def alive(self) -> bool:
        """Whether the container runs."""
        found = await self.container.engine.inspect(self.container.id, ending=True)
        return bool(found and (found[0].get("State") or {}).get("Running"))

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """A shell in the container, and its published ports.

        Raises:
            ConnectionError: it does not run.
        """
        found = await self.container.engine.inspect(self.container.id)
        if not found or not (found[0].get("State") or {}).get("Running"):
            raise ConnectionError(f"the container {self.container.name} does not run at present")
        name = self.container.name
        shell = [SHELL, "-c", "exec $(command -v bash || echo sh) -l"]
        words = [self.engine_name, "exec", "-it", *(["--user", user] if user else []), name, *shell]
        vscode = None if user else ["remote-containers.attachToRunningContainer", name]
        ports = published_ports((found[0].get("NetworkSettings") or {}).get("Ports") or {})
        return SandboxConnection(
            type=self.engine_name, command=shlex.join(words), vscode_command=vscode, ports=ports, container=name
        )

    # -- what the engine asks of the provider

    @classmethod
    def default_concurrency(cls) -> int | None:
        """Two samples for each processor."""
        return 2 * cpus()

    @classmethod
    def config_files(cls) -> list[str]:
        """Compose files, then a Dockerfile."""
        return [*COMPOSE_FILES, DOCKERFILE]

    @classmethod
    def is_docker_compatible(cls) -> bool:
        """It is."""
        return True

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> ComposeConfig:
        """A `ComposeConfig` from a log."""
        return ComposeConfig.model_validate(config)

    @classmethod
    async def task_init(cls, task_name: str, config: SandboxEnvironmentConfigType | None) -> None:
        """Build or pull the images of a configuration.

        Raises:
            UsageError: the engine, the configuration or an image is at fault; the text says what to do.
        """
        project = await cls._project(task_name, config, task_environment())
        if isinstance(project, ComposeProject):
            await project.prepare()
        else:
            await provide_images(project.engine, project.config, project.folder)

    @classmethod
    async def task_init_environment(
        cls, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, str]:
        """The variables of a sample that its images depend on."""
        if not is_compose_yaml(config):
            return {}
        return await in_thread(image_variables, str(config), sample_variables(metadata))

    @classmethod
    async def sample_init(
        cls, task_name: str, config: SandboxEnvironmentConfigType | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        """Start the containers of a sample."""
        project = await cls._project(task_name, config, sample_variables(metadata))
        try:
            await note_project(project.engine, project.id, task_name)
            containers = await project.start()
        except BaseException:
            await discard(project)
            raise
        return {name: cls(container, project) for name, container in containers.items()}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Remove the containers of a sample with their networks and volumes."""
        projects = {
            each.project.id: each.project for each in environments.values() if isinstance(each, ContainerSandbox)
        }
        for project in projects.values():
            await project.remove()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Remove what dead runs left.

        Args:
            id: of one sample's containers, which are removed whoever they belong to; None: of all dead runs.
        """
        used = await engine(cls.engine_name, remove=remove_project)
        ids = [id] if id is not None else [note.id for note in await in_thread(orphans, cls.engine_name)]
        if id is None:
            ids += [each for each in await of_dead_runs(used) if each not in ids]
        for each in ids:
            await remove_project(used, each)
            await in_thread(remove_compose_files, each)

    @classmethod
    async def _project(cls, task_name: str, config: Any, variables: Mapping[str, str]) -> AnyProject:
        used = await engine(cls.engine_name, remove=remove_project)
        used.words()  # says so at once when it is not installed
        id = new_project_id(task_name)
        if cls.engine_name == "docker" and (isinstance(config, ComposeConfig) or is_compose_yaml(config)):
            folder = await in_thread(folder_of, config)
            return ComposeProject(
                engine=used, id=id, task_name=task_name, config=config, folder=folder, variables=variables
            )
        resolved, folder = await in_thread(resolve_config, config, variables)
        images = image_names(used, resolved, folder)
        return Project(engine=used, id=id, task_name=task_name, config=resolved, folder=folder, images=images)


@sandboxenv(name="docker")
class DockerSandboxEnvironment(ContainerSandbox):
    """Containers of docker."""

    engine_name: ClassVar[EngineName] = "docker"


@sandboxenv(name="podman")
class PodmanSandboxEnvironment(ContainerSandbox):
    """Containers of podman."""

    engine_name: ClassVar[EngineName] = "podman"


async def discard(project: AnyProject) -> None:
    """Remove what was made of a project whose start failed or was cancelled.

    The engine does it where there is a runtime, and goes on with it, since whoever is cancelled has little time.
    """
    if await project.engine.discard(project.id):
        if isinstance(project, ComposeProject):
            await project.remove_files()
        return
    with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 30):
        try:
            await project.remove()
        except Exception as error:
            logger.warning("what was made of %s was left behind: %s", project.id, error)


def published_ports(found: Mapping[str, Any]) -> list[PortMapping] | None:
    """Ports as the engine's ``inspect`` has them; None when none is published."""
    ports = []
    for key, mappings in found.items():
        number, _, protocol = key.partition("/")
        if mappings and protocol in {"tcp", "udp"}:
            hosts = [
                HostMapping(host_ip=each.get("HostIp") or ANY, host_port=int(each["HostPort"])) for each in mappings
            ]
            named = cast("Literal['tcp', 'udp']", protocol)
            ports.append(PortMapping(container_port=int(number), protocol=named, mappings=hosts))
    return ports or None


async def of_dead_runs(used: Engine) -> list[str]:
    """The projects of runs that have ended, from the labels of what is still there."""
    found: list[str] = []
    ids = (
        await used.ask("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={RUN_LABEL}", ending=True)
    ).split()
    for each in await used.inspect(*ids, ending=True) if ids else []:
        labels = (each.get("Config") or {}).get("Labels") or {}
        id = labels.get(PROJECT_LABEL)
        if id and id not in found and of_dead_run(str(labels.get(RUN_LABEL))):
            found.append(id)
    return found


def as_result(outcome: Outcome) -> ExecResult[str]:
    """An outcome as users see it."""
    cut = outcome.truncated
    return ExecResult(
        outcome.code == 0,
        outcome.code,
        decode(outcome.stdout, cut="stdout" in cut),
        decode(outcome.stderr, cut="stderr" in cut),
        cut,
    )


__all__ = ["ContainerSandbox", "DockerSandboxEnvironment", "PodmanSandboxEnvironment"]
