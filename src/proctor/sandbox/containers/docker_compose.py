"""Compose files through ``docker compose`` (version 2): everything such a file may say means what docker says it means.

What this adds to the user's file is a second one with labels by which everything is found again, and with one name for
each image that is built, so that it is built once and not for every sample.
"""

from __future__ import annotations

import json
import logging
import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import anyio
from attrs import define, field

from proctor.errors import OptionError, SandboxUnavailableError, UsageError, with_notes
from proctor.sandbox.compose import ComposeConfig, ComposeHealthcheck, ComposeService
from proctor.sandbox.compose_file import compose_text, duration
from proctor.sandbox.containers.arguments import health
from proctor.sandbox.containers.engine import Engine, explain
from proctor.sandbox.containers.images import as_build, container_name_refused, find_image, recipe
from proctor.sandbox.containers.leftovers import PROJECT_LABEL, RUN_LABEL, remove_project, run_label
from proctor.sandbox.containers.project import as_container, default_service, ended_at_once
from proctor.sandbox.containers.state import Container
from proctor.sandbox.owned import remove_note
from proctor.sandbox.threads import in_thread

logger: Final = logging.getLogger(__name__)

STARTUP: Final = 600.0  # seconds for services without health checks to start, as Inspect's
ALLOWANCE: Final = 60.0  # seconds beside the health checks of those that have some
FOLDER: Final = "proctor-compose-"
REST: Final = 30.0  # seconds for compose to answer after its own time is over


@define(eq=False, kw_only=True)
class ComposeProject:
    """The containers of one sample, made by ``docker compose``.

    Attributes:
        engine: docker. id: its name. task_name: whose sample it is.
        config: the path of a compose file, or a configuration; folder: what paths in that are relative to.
        variables: for ``${NAME}`` in the file.
    """

    engine: Engine
    id: str
    task_name: str
    config: str | ComposeConfig
    folder: Path
    variables: Mapping[str, str] = field(factory=dict)
    containers: dict[str, Container] = field(factory=dict, init=False)
    _own: Path | None = field(default=None, init=False)
    _files: list[str] = field(factory=list, init=False)

    async def prepare(self) -> None:
        """Build and pull the images, once for all samples.

        Raises:
            UsageError: the file is refused, or an image cannot be had.
        """
        try:
            services = await self._resolve()
            if any("build" in each for each in services.values()):
                await self._build()
            for name, service in services.items():
                if "build" not in service and not service.get("x-local"):
                    await self._pull(name, service)
        finally:
            await self.remove_files()

    async def start(self) -> dict[str, Container]:
        """Start all services and wait until they are well.

        Returns:
            The containers that run, by service, the default one first.

        Raises:
            UsageError: the file is refused, or a service ended at once. SandboxUnavailableError: docker failed.
        """
        services = await self._resolve()
        default = default_service({name: _marks(each) for name, each in services.items()})
        wait = _longest(services)
        result = await self._compose(
            "up", "--detach", "--wait", "--wait-timeout", str(math.ceil(wait)), "--no-build", timeout=wait + REST
        )
        # Its code is not 0 too when a service has ended well; so unless the reason is known, what runs is looked at.
        said = _text(result.stderr)
        if not result.success:
            error = explain("docker", ("compose", "up"), result.returncode, result.stderr)
            if isinstance(error, UsageError):
                raise error
        ids = (await self._ask("ps", "--all", "--quiet")).split()
        if not ids:
            raise self._failed("up", said)
        self.containers = await self._running(ids, default, said)
        return self.containers

    async def remove(self) -> None:
        """Remove all of it.

        Raises:
            SandboxUnavailableError: something is still there.
        """
        try:
            if self._files:
                result = await self._compose("down", "--volumes", "--remove-orphans", timeout=None, ending=True)
                if result.success:
                    await in_thread(remove_note, self.id)
                    return
                logger.warning("docker compose down of %s failed: %s", self.id, _text(result.stderr)[-500:])
            await remove_project(self.engine, self.id)
        finally:
            await self.remove_files()

    # -- steps

    async def _resolve(self) -> dict[str, dict[str, Any]]:
        """What docker understands of the file, after the second file was written beside it."""
        await in_thread(self._write_own)
        said = await self._ask("config", "--format", "json")
        try:
            found = json.loads(said)
            services: dict[str, dict[str, Any]] = found["services"]
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"docker compose config said nothing that can be used: {said[:200]!r}") from error
        for name, service in services.items():
            if service.get("container_name"):
                raise container_name_refused(name, str(service["container_name"]))
        await in_thread(self._write_override, found)
        return services

    def _write_own(self) -> None:
        if self._own is None:
            self._own = Path(tempfile.mkdtemp(prefix=f"{FOLDER}{self.id}-"))
        if isinstance(self.config, str):
            self._files = [self.config]
        else:
            main = self._own / "compose.json"
            main.write_text(compose_text(self.config), encoding="utf-8")
            self._files = [str(main)]

    def _write_override(self, found: Mapping[str, Any]) -> None:
        assert self._own is not None
        labels = {RUN_LABEL: run_label(), PROJECT_LABEL: self.id, "proctor.task": self.task_name.replace("$", "$$")}
        services: dict[str, Any] = {}
        for name, service in found["services"].items():
            services[name] = {"labels": {**labels, "proctor.service": name}}
            if "build" in service and "image" not in service:
                services[name]["image"] = f"proctor-{recipe(as_build(_build(service['build'])), self.folder)}"
        override: dict[str, Any] = {"services": services}
        for kind in ("networks", "volumes"):
            own = {
                name: {"labels": labels}
                for name, it in (found.get(kind) or {}).items()
                if not (it or {}).get("external")
            }
            if own:
                override[kind] = own
        path = self._own / "override.json"
        path.write_text(json.dumps(override), encoding="utf-8")
        self._files.append(str(path))

    async def _build(self) -> None:
        result = await self._compose("build", timeout=None)
        if not result.success:
            lines = _text(result.stdout + result.stderr).splitlines()
            raise UsageError("docker compose build failed:\n" + "\n".join(lines[-20:]))

    async def _pull(self, name: str, service: Mapping[str, Any]) -> None:
        image = service.get("image")
        if not image:
            raise OptionError(f"service {name!r} has neither an image nor a build")
        await find_image(self.engine, str(image), str(service.get("pull_policy") or "missing"), service.get("platform"))

    async def _running(self, ids: list[str], default: str, said: str) -> dict[str, Container]:
        running: dict[str, Container] = {}
        for found in await self.engine.inspect(*ids):
            labels = (found.get("Config") or {}).get("Labels") or {}
            name = labels.get("com.docker.compose.service") or labels.get("proctor.service") or ""
            state = found.get("State") or {}
            if (state.get("Health") or {}).get("Status") == "unhealthy":
                log = (state["Health"].get("Log") or [{}])[-1].get("Output", "")
                raise UsageError(f"service {name!r} did not become healthy; its last check: {str(log).strip()[-500:]}")
            if state.get("Running"):
                running[name] = as_container(self.engine, self.id, name, found)
            elif state.get("ExitCode") != 0 or name == default:
                error = await ended_at_once(self.engine, self.id, name, str(found.get("Id")), found)
                raise with_notes(error, f"docker compose up said: {said[-600:]}")
        if default not in running:
            raise self._failed("up", said)
        return {default: running.pop(default), **running}

    def _failed(self, what: str, said: str) -> Exception:
        return SandboxUnavailableError(f"docker compose {what} started no service {self.id}: {said[-600:]}")

    # -- calls

    def _words(self, *args: str) -> list[str]:
        files = [word for file in self._files for word in ("--file", file)]
        place = [] if isinstance(self.config, str) else ["--project-directory", str(self.folder)]
        return ["compose", "--ansi", "never", "--project-name", self.id, *place, *files, *args]

    async def _compose(self, *args: str, timeout: float | None = STARTUP, ending: bool = False) -> Any:
        env = dict(self.variables) or None
        return await self.engine.call(*self._words(*args), env=env, timeout=timeout, ending=ending)

    async def _ask(self, *args: str) -> str:
        return await self.engine.ask(*self._words(*args), env=dict(self.variables) or None)

    async def remove_files(self) -> None:
        """Remove the files that were written for it."""
        if self._own is not None:
            own, self._own = self._own, None
            self._files = []
            with anyio.CancelScope(shield=True):
                await in_thread(_remove_folder, own)


def remove_compose_files(id: str) -> None:
    """Remove the files that a dead run wrote for a project."""
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDER}{id}-*"):
        _remove_folder(path)


def _remove_folder(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)


def _build(given: Any) -> Any:
    if isinstance(given, Mapping):
        from proctor.sandbox.compose import ComposeBuild

        known = {key: given[key] for key in ("context", "dockerfile", "args", "target") if given.get(key) is not None}
        return ComposeBuild(**known)
    return str(given)


def _marks(service: Mapping[str, Any]) -> ComposeService:
    return ComposeService(x_default=bool(service.get("x-default")) or None)


def _longest(services: Mapping[str, Mapping[str, Any]]) -> float:
    """Seconds that starting may take: as long as the health checks may take, else a fixed time."""
    longest = 0.0
    for service in services.values():
        given = service.get("healthcheck")
        if isinstance(given, Mapping):
            times = ("interval", "timeout", "start_period", "start_interval")
            known: dict[str, Any] = {key: given[key] for key in ("test", "retries", "disable") if key in given}
            known |= {key: str(duration(given[key])) for key in times if given.get(key) is not None}
            check = health(ComposeService(healthcheck=ComposeHealthcheck(**known)))
            longest = max(longest, check.longest if check is not None else 0.0)
    return longest + ALLOWANCE if longest else STARTUP


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").strip()


__all__ = ["ComposeProject", "remove_compose_files"]
