"""From a service of a compose file to the arguments of ``podman run`` or ``docker run``: no engine is asked here.

Where the two differ it is said; everything else is the same for both.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal

from attrs import field, frozen

from proctor.errors import OptionError
from proctor.sandbox.compose import ComposeDeviceReservation, ComposeService, ComposeVolumeMount
from proctor.sandbox.compose_file import duration

EngineName = Literal["docker", "podman"]
CONDITIONS: Final = frozenset({"service_started", "service_healthy", "service_completed_successfully"})


@frozen(kw_only=True)
class Placement:
    """Where a service's container goes.

    Attributes:
        name: of the container. image: what it runs. labels: how it is found again.
        networks: ``--network`` arguments. hosts: lines of its ``/etc/hosts``, ``name:address``.
        folder: what relative paths of the host are relative to. volumes: named volumes, by their name in the file.
    """

    name: str
    image: str
    labels: Mapping[str, str] = field(factory=dict)
    networks: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    folder: Path = field(factory=Path)
    volumes: Mapping[str, str] = field(factory=dict)


def run_arguments(engine: EngineName, service: ComposeService, place: Placement) -> list[str]:
    """The arguments that create and start the container of a service, detached.

    Raises:
        OptionError: the service asks for something that cannot be had this way.
    """
    words = entrypoint(service)
    out = ["run", "--detach", "--name", place.name, *_labels(service, place)]
    if engine == "podman":
        # Its own health checks need systemd; ours are commands that are run in the container.
        out += ["--pull", "never", "--no-healthcheck"]
    else:
        out += ["--pull", "never"]
    for each in place.networks:
        out += ["--network", each]
    for each in [*place.hosts, *_pairs(service.extra_hosts, ":")]:
        out += ["--add-host", _host(each)]
    out += _identity(service)
    out += _environment(service, place.folder)
    out += _limits(service)
    out += _rights(service)
    out += _mounts(service, place)
    out += _devices(engine, service)
    for port in service.ports or []:
        out += ["--publish", str(port)]
    for port in service.expose or []:
        out += ["--expose", str(port)]
    if words is not None:
        out += ["--entrypoint", words[0] if words else ""]
    return [*out, place.image, *(words or [])[1:], *command(service)]


def command(service: ComposeService) -> list[str]:
    """The words of a service's command; a text is split as a shell would."""
    return _words(service.command) or []


def entrypoint(service: ComposeService) -> list[str] | None:
    """The words of a service's entry point, empty to have none, None for the image's."""
    return _words(service.entrypoint)


def dependencies(service: ComposeService) -> dict[str, str]:
    """The services that one waits for, with the condition.

    Raises:
        OptionError: the condition is none.
    """
    found: dict[str, str] = {}
    given = service.depends_on or {}
    items: Iterable[tuple[str, Any]] = given.items() if isinstance(given, Mapping) else ((each, None) for each in given)
    for name, how in items:
        condition = how.get("condition", "service_started") if isinstance(how, Mapping) else "service_started"
        if condition not in CONDITIONS:
            raise OptionError(
                f"depends_on: {name}: no such condition: {condition!r}; known: {', '.join(sorted(CONDITIONS))}"
            )
        found[name] = condition
    return found


def start_order(services: Mapping[str, ComposeService]) -> list[str]:
    """The services in an order in which each comes after those it waits for.

    Raises:
        OptionError: one waits for a service that is not there, or for itself over others.
    """
    order: list[str] = []
    path: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        if name in path:
            raise OptionError(
                f"services wait for each other (depends_on): {' -> '.join([*path[path.index(name) :], name])}"
            )
        path.append(name)
        waits_for = [*dependencies(services[name])]
        if (services[name].network_mode or "").startswith("service:"):
            waits_for.append(str(services[name].network_mode).removeprefix("service:"))
        for other in waits_for:
            if other not in services:
                raise OptionError(f"service {name!r} waits for {other!r}, which is no service of the file")
            visit(other)
        path.pop()
        order.append(name)

    for name in services:
        visit(name)
    return order


def service_networks(service: ComposeService) -> dict[str, tuple[str, ...]]:
    """The networks that a service is in, each with the names it has there besides its own; none with a network mode."""
    if service.network_mode is not None:
        return {}
    given = service.networks
    if not given:
        return {"default": ()}
    if isinstance(given, Mapping):
        return {name: tuple((options or {}).get("aliases", ())) for name, options in given.items()}
    return dict.fromkeys(given, ())


def environment_of(given: list[str] | dict[str, Any] | None) -> list[str]:
    """Variables as ``NAME=value``; a ``NAME`` alone is taken from the environment by the engine."""
    if isinstance(given, Mapping):
        return [name if value is None else f"{name}={_scalar(value)}" for name, value in given.items()]
    return list(given or [])


def _words(given: list[str] | str | None) -> list[str] | None:
    return shlex.split(given) if isinstance(given, str) else given


def _scalar(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pairs(given: list[str] | dict[str, Any] | None, between: str) -> list[str]:
    if isinstance(given, Mapping):
        return [f"{name}{between}{_scalar(value)}" for name, value in given.items()]
    return list(given or [])


def _host(text: str) -> str:
    return text.replace("=", ":", 1) if "=" in text.split(":", maxsplit=1)[0] else text


def _many(given: str | list[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or [])


def _labels(service: ComposeService, place: Placement) -> Iterator[str]:
    for each in [*_pairs(service.labels, "="), *_pairs(dict(place.labels), "=")]:
        yield from ("--label", each)


def _identity(service: ComposeService) -> list[str]:
    options = {
        "--workdir": service.working_dir,
        "--user": service.user,
        "--hostname": service.hostname,
        "--platform": service.platform,
        "--restart": None if service.restart == "no" else service.restart,
        "--stop-signal": service.stop_signal,
        "--runtime": service.runtime,
        "--cgroupns": service.cgroup,
    }
    out = [word for name, value in options.items() if value is not None for word in (name, value)]
    flags = {"--init": service.init, "--tty": service.tty, "--interactive": service.stdin_open}
    return out + [name for name, on in flags.items() if on]


def _environment(service: ComposeService, folder: Path) -> Iterator[str]:
    for file in _many(service.env_file):
        yield from ("--env-file", str(folder / file))
    for each in environment_of(service.environment):
        yield from ("--env", each)


def _limits(service: ComposeService) -> list[str]:
    resources = service.deploy.resources if service.deploy is not None else None
    limits = resources.limits if resources is not None else None
    reserved = resources.reservations if resources is not None else None
    options: dict[str, Any] = {
        "--memory": service.mem_limit or (limits.memory if limits is not None else None),
        "--memory-reservation": service.mem_reservation or (reserved.memory if reserved is not None else None),
        "--memory-swap": service.memswap_limit,
        "--cpus": service.cpus or (limits.cpus if limits is not None else None),
        "--pids-limit": service.pids_limit or (limits.pids if limits is not None else None),
        "--shm-size": service.shm_size,
    }
    out = [word for name, value in options.items() if value is not None for word in (name, str(value))]
    for name, value in (service.ulimits or {}).items():
        both = f"{value['soft']}:{value['hard']}" if isinstance(value, Mapping) else str(value)
        out += ["--ulimit", f"{name}={both}"]
    return out


def _rights(service: ComposeService) -> list[str]:
    out = [flag for flag, on in (("--privileged", service.privileged), ("--read-only", service.read_only)) if on]
    lists: dict[str, list[str]] = {
        "--cap-add": service.cap_add or [],
        "--cap-drop": service.cap_drop or [],
        "--security-opt": service.security_opt or [],
        "--group-add": [str(each) for each in service.group_add or []],
        "--dns": _many(service.dns),
        "--sysctl": _pairs(service.sysctls, "="),
    }
    return out + [word for name, values in lists.items() for value in values for word in (name, value)]


def _mounts(service: ComposeService, place: Placement) -> Iterator[str]:
    for each in _many(service.tmpfs):
        yield from ("--tmpfs", each)
    for mount in service.volumes or []:
        if isinstance(mount, str):
            yield from ("--volume", _short_mount(mount, place))
        else:
            yield from ("--mount", _long_mount(mount, place))


def _short_mount(text: str, place: Placement) -> str:
    source, colon, rest = text.partition(":")
    if not colon:
        return text  # an unnamed volume
    return f"{_source(source, place)}:{rest}"


def _source(source: str, place: Placement) -> str:
    if source.startswith(("/", ".", "~")):
        return str((place.folder / Path(source).expanduser()).resolve())
    if source not in place.volumes:
        raise OptionError(
            f"the volume {source!r} is not defined: add it under 'volumes' at the top of the file, or write ./{source} "
            "for a folder"
        )
    return place.volumes[source]


def _long_mount(mount: ComposeVolumeMount, place: Placement) -> str:
    kind = mount.type or ("volume" if mount.source in place.volumes else "bind")
    parts = [f"type={kind}"]
    if mount.source is not None:
        source = mount.source
        if kind == "bind":
            source = str((place.folder / Path(source).expanduser()).resolve())
        elif kind == "volume":
            source = _source(source, place)
        parts.append(f"source={source}")
    parts.append(f"destination={mount.target}")
    if mount.read_only:
        parts.append("readonly")
    if mount.bind is not None and mount.bind.propagation is not None:
        parts.append(f"bind-propagation={mount.bind.propagation}")
    if mount.tmpfs is not None:
        mode = mount.tmpfs.mode if not isinstance(mount.tmpfs.mode, int) else f"{mount.tmpfs.mode:04o}"
        options = (("tmpfs-size", mount.tmpfs.size), ("tmpfs-mode", mode))
        parts += [f"{name}={value}" for name, value in options if value is not None]
    return ",".join(parts)


def _devices(engine: EngineName, service: ComposeService) -> Iterator[str]:
    for each in service.devices or []:
        yield from ("--device", each)
    resources = service.deploy.resources if service.deploy is not None else None
    reserved = resources.reservations if resources is not None else None
    for device in (reserved.devices or []) if reserved is not None else []:
        yield from _reserved(engine, device)


def _reserved(engine: EngineName, device: ComposeDeviceReservation) -> Iterator[str]:
    ids = device.device_ids or []
    if engine == "docker":
        yield from ("--gpus", json.dumps(f"device={','.join(ids)}") if ids else str(device.count or "all"))
        return
    count = device.count if device.count is not None else "all"
    for each in ids or (["all"] if str(count) == "all" else [str(number) for number in range(int(count))]):
        yield from ("--device", f"nvidia.com/gpu={each}")


@frozen
class Health:
    """How a service is asked whether it is well; times in seconds.

    Attributes:
        test: the command. interval, timeout: between two and for one. retries: failures in a row that are too many.
        start_period: in which failures do not count. start_interval: between two meanwhile.
    """

    test: tuple[str, ...]
    interval: float = 30.0
    timeout: float = 30.0
    retries: int = 3
    start_period: float = 0.0
    start_interval: float = 5.0

    @property
    def longest(self) -> float:
        """Seconds after which it is either well or not."""
        return self.start_period + self.timeout + self.retries * (self.interval + self.timeout)


def health(service: ComposeService) -> Health | None:
    """A service's health check, None if it has none. The defaults are those of the Compose specification.

    Raises:
        OptionError: a duration is none.
    """
    check = service.healthcheck
    if check is None or check.disable or check.test in (None, [], ["NONE"]):
        return None
    test = check.test
    words: tuple[str, ...]
    if isinstance(test, str):
        words = ("/bin/sh", "-c", test)
    elif test is not None and test[0] == "CMD-SHELL":
        words = ("/bin/sh", "-c", " ".join(test[1:]))
    else:
        words = tuple(test or ())[1:] if test is not None and test[0] == "CMD" else tuple(test or ())
    given = {
        "interval": check.interval,
        "timeout": check.timeout,
        "start_period": check.start_period,
        "start_interval": check.start_interval,
    }
    times = {name: duration(value) for name, value in given.items() if value is not None}
    retries = check.retries if check.retries is not None else 3
    return Health(words, retries=retries, **times)


__all__ = [
    "EngineName",
    "Health",
    "Placement",
    "command",
    "dependencies",
    "entrypoint",
    "environment_of",
    "health",
    "run_arguments",
    "service_networks",
    "start_order",
]
