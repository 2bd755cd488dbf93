"""The containers of one sample: made from a compose configuration, found again by their labels, removed together.

`podman` needs no compose program for this, and `docker` none for a single image. Services that share a network find
each other by name through fixed addresses and ``/etc/hosts``, since name servers in container networks are an option
that many hosts lack.
"""

from __future__ import annotations

import ipaddress
import itertools
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import anyio
from attrs import define, evolve, field

from proctor.errors import OptionError, ProcessTimeout, SandboxUnavailableError, UsageError
from proctor.sandbox.compose import ComposeConfig, ComposeService
from proctor.sandbox.compose_file import duration
from proctor.sandbox.containers.arguments import (
    Health,
    Placement,
    dependencies,
    health,
    run_arguments,
    service_networks,
    start_order,
)
from proctor.sandbox.containers.engine import Engine
from proctor.sandbox.containers.execution import Execution
from proctor.sandbox.containers.images import Images
from proctor.sandbox.containers.leftovers import PROJECT_LABEL, RUN_LABEL, remove_project, run_label
from proctor.sandbox.containers.state import Container, unavailable

logger: Final = logging.getLogger(__name__)

NO_INIT: Final = "container-init binary not found"
COMPLETION: Final = 600.0  # seconds for a service that others wait to complete, as Inspect waits at most
STOPPING: Final = 10.0  # seconds at most between asking a container to end and ending it


@define(eq=False, kw_only=True)
class Project:
    """The containers of one sample.

    Attributes:
        engine: whose. id: its name, and the label of everything that belongs to it.
        task_name: whose sample it is. config: the services. folder: what paths of the host are relative to.
        images: by service. containers: by service, once they were started. default: the service `sandbox()` gives.
    """

    engine: Engine
    id: str
    task_name: str
    config: ComposeConfig
    folder: Path
    images: Images
    containers: dict[str, Container] = field(factory=dict, init=False)
    _networks: dict[str, str] = field(factory=dict, init=False)
    _addresses: dict[str, dict[str, str]] = field(factory=dict, init=False)
    _volumes: dict[str, str] = field(factory=dict, init=False)
    _ids: dict[str, str] = field(factory=dict, init=False)

    @property
    def labels(self) -> dict[str, str]:
        """What everything of it is found by."""
        return {RUN_LABEL: run_label(), PROJECT_LABEL: self.id, "proctor.task": self.task_name}

    async def start(self) -> dict[str, Container]:
        """Make networks, volumes and containers, in the order of ``depends_on``, and wait until all are well.

        Returns:
            The containers that run, by service, the default one first.

        Raises:
            UsageError: the configuration asks for something that cannot be had, or a service ended at once.
            SandboxUnavailableError: the engine failed.
        """
        services = self.config.services
        default = default_service(services)
        order = start_order(services)
        await self._make_networks()
        await self._make_volumes()
        checked: set[str] = set()
        for name in order:
            for other, condition in dependencies(services[name]).items():
                await self._await(other, condition, checked)
            await self._run(name)
        for name in order:
            if health(services[name]) is not None and name not in checked:
                await self._await(name, "service_healthy", checked)
        self.containers = await self._running(default)
        return self.containers

    # -- networks and volumes

    async def _make_networks(self) -> None:
        members: dict[str, list[str]] = {}
        for name, service in self.config.services.items():
            for network in service_networks(service):
                members.setdefault(network, []).append(name)
        for network, names in members.items():
            options = (self.config.networks or {}).get(network)
            if network != "default" and network not in (self.config.networks or {}):
                raise OptionError(
                    f"the network {network!r} is not defined: add it under 'networks' at the top of the file"
                )
            await self._make_network(network, options or {}, names)

    async def _make_network(self, network: str, options: Mapping[str, Any], members: list[str]) -> None:
        if options.get("external"):
            self._networks[network] = str(options.get("name") or network)
            return
        unknown = [
            key for key in options if key not in {"driver", "internal", "name", "labels"} and not key.startswith("x-")
        ]
        if unknown:
            raise OptionError(f"networks.{network}: {', '.join(unknown)} cannot be had with {self.engine.name} here")
        made = self._networks[network] = f"{self.id}-{network}"
        flags = ["--internal"] if options.get("internal") else []
        if options.get("driver"):
            flags += ["--driver", str(options["driver"])]
        await self.engine.ask("network", "create", *self._label_flags(), *flags, made)
        if len(self.config.services) > 1:
            self._addresses[network] = await self._divide(made, members)

    async def _divide(self, network: str, members: Iterable[str]) -> dict[str, str]:
        """A fixed address for each member of a network; nothing where the engine tells no range."""
        found = await self.engine.inspect(network, kind="network")
        for subnet in (found[0].get("subnets") or []) if found else []:
            with suppress(ValueError, KeyError):
                # The first is the gateway's, also where it is not told (of internal networks).
                hosts = itertools.islice(ipaddress.ip_network(subnet["subnet"]).hosts(), 1, None)
                free = (str(host) for host in hosts if str(host) != subnet.get("gateway"))
                return dict(zip(members, free, strict=False))
        return {}

    async def _make_volumes(self) -> None:
        for name, given in (self.config.volumes or {}).items():
            options = given or {}
            if options.get("external"):
                self._volumes[name] = str(options.get("name") or name)
                continue
            made = self._volumes[name] = f"{self.id}-{name}"
            await self.engine.ask("volume", "create", *self._label_flags(), made)

    def _label_flags(self) -> list[str]:
        return [word for name, value in self.labels.items() for word in ("--label", f"{name}={value}")]

    # -- containers

    async def _run(self, name: str) -> None:
        service = self.config.services[name]
        place = Placement(
            name=f"{self.id}-{name}",
            image=self.images[name],
            labels={**self.labels, "proctor.service": name},
            networks=self._network_arguments(name, service),
            hosts=self._hosts(name, service),
            folder=self.folder,
            volumes=self._volumes,
        )
        if self.engine.lacks_init:
            service = evolve(service, init=None)
        try:
            said = await self.engine.ask(*run_arguments(self.engine.name, service, place))
        except SandboxUnavailableError as error:
            if service.init and NO_INIT in str(error):
                self.engine.lacks_init = True
                logger.warning(
                    "services with 'init: true' run without an init process, as podman has none here: install catatonit"
                )
                await self._run(name)
                return
            raise SandboxUnavailableError(f"service {name!r} could not be started: {error}") from None
        self._ids[name] = said.split()[-1] if said else place.name

    def _network_arguments(self, name: str, service: ComposeService) -> tuple[str, ...]:
        mode = service.network_mode
        if mode is not None:
            if mode.startswith("service:"):
                return (f"container:{self._ids[mode.removeprefix('service:')]}",)
            return (mode,)
        out = []
        for network in service_networks(service):
            address = self._addresses.get(network, {}).get(name)
            out.append(self._networks[network] + (f":ip={address}" if address else ""))
        return tuple(out)

    def _hosts(self, name: str, service: ComposeService) -> tuple[str, ...]:
        out = []
        for network in service_networks(service):
            for other, address in self._addresses.get(network, {}).items():
                aliases = service_networks(self.config.services[other]).get(network, ())
                out += [f"{each}:{address}" for each in (other, *aliases) if other != name]
        return tuple(out)

    async def _container(self, name: str) -> tuple[Container, dict[str, Any]]:
        found = await self.engine.inspect(self._ids[name])
        if not found:
            raise SandboxUnavailableError(f"the container of service {name!r} vanished as it was started")
        return self._as_container(name, found[0]), found[0]

    def _as_container(self, name: str, found: Mapping[str, Any]) -> Container:
        return as_container(self.engine, self.id, name, found)

    async def _running(self, default: str) -> dict[str, Container]:
        """Those that run; those that ended well are left out."""
        found = await self.engine.inspect(*self._ids.values())
        by_id = {str(each.get("Id")): each for each in found}
        running = {}
        for name, id in self._ids.items():
            each = by_id.get(id) or next((it for key, it in by_id.items() if key.startswith(id)), None)
            state = (each or {}).get("State") or {}
            if each is not None and state.get("Running"):
                running[name] = self._as_container(name, each)
            elif each is None or state.get("ExitCode") != 0 or name == default:
                raise await ended_at_once(self.engine, self.id, name, id, each)
        return {default: running.pop(default), **running}

    async def _await(self, name: str, condition: str, checked: set[str]) -> None:
        if condition == "service_completed_successfully":
            await self._completed(name)
        elif condition == "service_healthy" and name not in checked:
            check = health(self.config.services[name])
            if check is None:
                raise OptionError(
                    f"a service waits for {name!r} to be healthy, but that has no healthcheck with a test"
                )
            container, _ = await self._container(name)
            await await_healthy(container, check)
            checked.add(name)

    async def _completed(self, name: str) -> None:
        said = await self.engine.ask("wait", self._ids[name], timeout=COMPLETION)
        if said.split()[-1:] != ["0"]:
            container, found = await self._container(name)
            raise UsageError(str(await unavailable(container, "others wait for it to complete", [found])))

    async def remove(self) -> None:
        """Remove all of it.

        Raises:
            SandboxUnavailableError: something is still there.
        """
        periods = [duration(each.stop_grace_period) for each in self.config.services.values() if each.stop_grace_period]
        await remove_project(
            self.engine, self.id, patience=min(STOPPING, max(periods, default=0.0)), known=tuple(self._ids.values()),
            networks=bool(self._networks), volumes=bool(self._volumes),
        )  # fmt: skip


def as_container(engine: Engine, project: str, service: str, found: Mapping[str, Any]) -> Container:
    """A container from what the engine says of it."""
    config = found.get("Config") or {}
    return Container(
        engine=engine,
        id=str(found.get("Id")),
        name=str(found.get("Name") or found.get("Id")).lstrip("/"),
        service=service,
        project=project,
        folder=config.get("WorkingDir") or "/",
        user=str(config.get("User") or ""),
    )


async def ended_at_once(
    engine: Engine, project: str, service: str, id: str, found: Mapping[str, Any] | None
) -> Exception:
    """The error for a service that does not run though it was started."""
    container = as_container(engine, project, service, found or {"Id": id})
    why = str(await unavailable(container, "", None if found is None else [dict(found)]))
    return UsageError(
        f"{why}\nA container lives as long as its first process: where the image's own ends, give the service a "
        "command that stays, for example 'command: tail -f /dev/null'"
    )


def default_service(services: Mapping[str, ComposeService]) -> str:
    """The service that `sandbox()` gives: the one marked ``x-default``, called ``default``, or the only one.

    Raises:
        OptionError: it is none of them.
    """
    marked = [name for name, service in services.items() if service.x_default]
    if marked:
        return marked[0]
    if "default" in services:
        return "default"
    if len(services) == 1:
        return next(iter(services))
    raise OptionError(
        f"no service is the default one (there are {', '.join(services)}): call one 'default', or mark it "
        "'x-default: true'"
    )


async def await_healthy(container: Container, check: Health) -> None:
    """Ask a service until it is well.

    Raises:
        UsageError: it failed too often. SandboxUnavailableError: it is gone.
    """
    begun, failures = anyio.current_time(), 0
    while True:
        said = "it did not answer in time"
        asked = anyio.current_time()
        with suppress(ProcessTimeout):
            outcome = await Execution(
                container=container, command=check.test, folder=container.folder, timeout=check.timeout, limit=2000
            ).run()
            if outcome.code == 0:
                return
            said = (outcome.stdout + outcome.stderr).decode("utf-8", "replace").strip() or f"code {outcome.code}"
        early = asked - begun < check.start_period
        failures += not early
        if failures > check.retries - 1:
            raise UsageError(
                f"service {container.service!r} did not become healthy: {failures} failed checks in a row; the last: "
                f"{said}"
            )
        await anyio.sleep(min(check.interval, check.start_interval) if early else check.interval)


__all__ = ["Project", "as_container", "await_healthy", "default_service", "ended_at_once"]
