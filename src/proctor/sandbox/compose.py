"""Compose files as values: what `proctor` knows of the Compose specification, under Inspect's names.

A field that is not listed here is refused, with the fields that it may have been meant as, because one that were
silently ignored (a memory limit, a network) would make a sandbox into something else than its file says. Keys that
begin with ``x-`` are kept in `extensions` and mean nothing here, except ``x-default``.
"""

from __future__ import annotations

import difflib
import json
import types
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, Self, TypeGuard, Union, get_args, get_origin, get_type_hints

import attrs
from attrs import define, field

from proctor.errors import OptionError
from proctor.model.portable import Portable, plain

COMPOSE_FILES: Final = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
DOCKERFILE: Final = "Dockerfile"
IGNORED: Final = frozenset({"version", "name"})
"""Keys at the top of a compose file that say nothing of its services."""


def _cpus(value: Any) -> Any:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _restart(value: Any) -> Any:
    return "no" if value in (False, "false") else value  # YAML 1.1 reads a bare `no` as false


@define(kw_only=True)
class ComposeModel(Portable):
    """What the parts of a compose file share: how they are made from mappings and turned into them again.

    Attributes:
        extensions: the keys that begin with ``x-``.
    """

    extensions: dict[str, Any] = field(factory=dict, kw_only=True)

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """Make it from a mapping; an instance is returned as it is.

        Raises:
            OptionError: a field is unknown or of the wrong type; the text says where.
        """
        return value if isinstance(value, cls) else _structure(value, cls, cls.__name__)

    def to_compose(self) -> dict[str, Any]:
        """The mapping that a compose file would hold: what is not set is left out."""
        out: dict[str, Any] = {}
        for each in attrs.fields(type(self)):
            value = getattr(self, each.name)
            if each.name != "extensions" and value is not None:
                out[_key(each)] = _unstructure(value)
        return out | self.extensions


@define(kw_only=True)
class ComposeHealthcheck(ComposeModel):
    """When a service counts as healthy.

    Attributes:
        test: the command. interval, timeout, start_period, start_interval: durations such as ``1m30s``.
        retries: failures in a row that make it unhealthy. disable: ask nothing.
    """

    test: list[str] | str | None = None
    interval: str | None = None
    timeout: str | None = None
    start_period: str | None = None
    start_interval: str | None = None
    retries: int | None = None
    disable: bool | None = None


@define(kw_only=True)
class ComposeBuild(ComposeModel):
    """How an image is built.

    Attributes:
        context: the folder, relative to the compose file. dockerfile: relative to the context.
        args: build arguments. target: the stage to stop at.
        no_cache, pull: build every step again; look for a newer base image.
    """

    context: str | None = None
    dockerfile: str | None = None
    args: list[str] | dict[str, Any] | None = None
    target: str | None = None
    no_cache: bool | None = None
    pull: bool | None = None


@define(kw_only=True)
class ComposeBindOptions(ComposeModel):
    """Options of a mounted folder of the host."""

    propagation: str | None = None
    create_host_path: bool | None = None
    recursive: str | None = None
    selinux: str | None = None


@define(kw_only=True)
class ComposeVolumeOptions(ComposeModel):
    """Options of a mounted volume."""

    nocopy: bool | None = None
    subpath: str | None = None


@define(kw_only=True)
class ComposeTmpfsOptions(ComposeModel):
    """Options of a mounted memory file system: size in bytes or as ``100mb``, file mode."""

    size: str | int | None = None
    mode: str | int | None = None


@define(kw_only=True)
class ComposeImageOptions(ComposeModel):
    """Options of a mounted image."""

    subpath: str | None = None


@define(kw_only=True)
class ComposeVolumeMount(ComposeModel):
    """A mount in its long form.

    Attributes:
        type: bind, volume, tmpfs or image. source: a path, a volume or an image. target: where it is in the container.
    """

    type: str | None = None
    source: str | None = None
    target: str | None = None
    read_only: bool | None = None
    consistency: str | None = None
    bind: ComposeBindOptions | None = None
    volume: ComposeVolumeOptions | None = None
    tmpfs: ComposeTmpfsOptions | None = None
    image: ComposeImageOptions | None = None


@define(kw_only=True)
class ComposeResources(ComposeModel):
    """Limits: processors (``0.5``), memory (``512m``), number of processes."""

    cpus: str | None = field(default=None, converter=_cpus)
    memory: str | None = None
    pids: int | None = None


@define(kw_only=True)
class ComposeDeviceReservation(ComposeModel):
    """Devices such as graphics processors; `count` may be ``all``."""

    driver: str | None = None
    count: int | str | None = None
    device_ids: list[str] | None = None
    capabilities: list[str] | None = None
    options: dict[str, str] | None = None


@define(kw_only=True)
class ComposeResourceReservations(ComposeModel):
    """What is set aside for a service."""

    cpus: str | None = field(default=None, converter=_cpus)
    memory: str | None = None
    devices: list[ComposeDeviceReservation] | None = None


@define(kw_only=True)
class ComposeResourceConfig(ComposeModel):
    """Limits and reservations."""

    limits: ComposeResources | None = None
    reservations: ComposeResourceReservations | None = None


@define(kw_only=True)
class ComposeDeploy(ComposeModel):
    """Of a deployment only its resources count."""

    resources: ComposeResourceConfig | None = None


@define(kw_only=True)
class ComposeService(ComposeModel):
    """One service, field by field as in the Compose specification.

    Attributes:
        x_default: whether this is the environment that ``sandbox()`` gives (``x-default``).
    """

    image: str | None = None
    build: ComposeBuild | str | None = None
    command: list[str] | str | None = None
    entrypoint: list[str] | str | None = None
    working_dir: str | None = None
    environment: list[str] | dict[str, Any] | None = None
    env_file: list[str] | str | None = None
    user: str | None = None
    healthcheck: ComposeHealthcheck | None = None
    ports: list[str | int] | None = None
    expose: list[str | int] | None = None
    volumes: list[str | ComposeVolumeMount] | None = None
    devices: list[str] | None = None
    networks: list[str] | dict[str, Any] | None = None
    network_mode: str | None = None
    hostname: str | None = None
    container_name: str | None = None
    runtime: str | None = None
    init: bool | None = None
    privileged: bool | None = None
    read_only: bool | None = None
    shm_size: str | int | None = None
    ulimits: dict[str, Any] | None = None
    pids_limit: int | str | None = None
    cgroup: str | None = None
    stop_grace_period: str | None = None
    stop_signal: str | None = None
    depends_on: list[str] | dict[str, Any] | None = None
    pull_policy: str | None = None
    platform: str | None = None
    extra_hosts: list[str] | dict[str, str] | None = None
    dns: list[str] | str | None = None
    sysctls: list[str] | dict[str, Any] | None = None
    group_add: list[str | int] | None = None
    cap_add: list[str] | None = None
    cap_drop: list[str] | None = None
    security_opt: list[str] | None = None
    tmpfs: str | list[str] | None = None
    restart: str | None = field(default=None, converter=_restart)
    stdin_open: bool | None = None
    tty: bool | None = None
    labels: list[str] | dict[str, Any] | None = None
    deploy: ComposeDeploy | None = None
    mem_limit: str | int | None = None
    mem_reservation: str | int | None = None
    memswap_limit: str | int | None = None
    cpus: float | None = None
    x_default: bool | None = None


@define(kw_only=True)
class ComposeConfig(ComposeModel):
    """A compose file: its services, and the volumes and networks that they name."""

    services: dict[str, ComposeService]
    volumes: dict[str, Any] | None = None
    networks: dict[str, Any] | None = None

    def __hash__(self) -> int:  # type: ignore[override]  # attrs says None for the base class, which has == too
        return hash(json.dumps(plain(self), sort_keys=True, default=str))


def is_compose_yaml(file: Any) -> TypeGuard[str]:
    """Whether a value is the path of a compose file: ``compose.yaml``, ``docker-compose.yml``, ``web-compose.yaml``."""
    if not isinstance(file, str):
        return False
    name = Path(file).name
    return name in COMPOSE_FILES or name.endswith(("-compose.yaml", ".compose.yaml"))


def is_dockerfile(file: Any) -> TypeGuard[str]:
    """Whether a value is the path of a Dockerfile: ``Dockerfile``, ``Dockerfile.web``, ``web.Dockerfile``."""
    return isinstance(file, str) and (Path(file).stem == DOCKERFILE or Path(file).suffix == f".{DOCKERFILE}")


# -- from mappings and back


def _key(each: Any) -> str:
    return "x-default" if each.name == "x_default" else str(each.name)


@cache
def _fields(cls: type[ComposeModel]) -> Mapping[str, tuple[str, Any]]:
    """By the key in a file: the attribute and its type."""
    hints = get_type_hints(cls)
    return {_key(each): (each.name, hints[each.name]) for each in attrs.fields(cls) if each.name != "extensions"}


def _structure(value: Any, cls: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise OptionError(f"{where} must be a mapping, not {value!r}")
    known, given, extensions = _fields(cls), {}, {}
    for key, item in value.items():
        if key in known:
            name, kind = known[key]
            given[name] = _value(item, kind, f"{where}.{key}")
        elif str(key).startswith("x-"):
            extensions[str(key)] = item
        elif not (cls is ComposeConfig and key in IGNORED):
            raise OptionError(_unknown(str(key), known, where))
    if cls is ComposeConfig and not given.get("services"):
        raise OptionError(f"{where} has no services")
    return cls(**given, extensions=extensions)


def _unknown(key: str, known: Mapping[str, Any], where: str) -> str:
    near = difflib.get_close_matches(key, known, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known here: {', '.join(known)}"
    return f"{where} has a field {key!r} that proctor does not know; {hint}"


def _value(value: Any, kind: Any, where: str) -> Any:
    if value is None:
        return None
    if get_origin(kind) in {Union, types.UnionType}:
        arms = [arm for arm in get_args(kind) if arm is not type(None)]
    else:
        arms = [kind]
    # Text takes numbers too, so it is the last resort, unless it is text already: `0770` is not 770.
    for arm in sorted(arms, key=lambda arm: (arm is str) != isinstance(value, str)):
        if (made := _arm(value, arm, where)) is not None:
            return made
    raise OptionError(f"{where} must be {_words(arms)}, not {value!r}")


def _arm(value: Any, arm: Any, where: str) -> Any:
    """`value` as one type, None if it is none of it."""
    if arm is Any:
        return value
    if isinstance(arm, type) and issubclass(arm, ComposeModel):
        return _structure(value, arm, where) if isinstance(value, Mapping) else None
    origin = get_origin(arm)
    if origin is list:
        item = get_args(arm)[0]
        return (
            [_value(each, item, f"{where}[{i}]") for i, each in enumerate(value)] if isinstance(value, list) else None
        )
    if origin is dict:
        item = get_args(arm)[1]
        return (
            {str(k): _value(v, item, f"{where}.{k}") for k, v in value.items()} if isinstance(value, Mapping) else None
        )
    return _scalar(value, arm)


def _scalar(value: Any, arm: Any) -> Any:
    """`value` as a scalar type; a number written as text is taken for a number, and the other way round."""
    if arm is bool:
        return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())
    if arm is str:
        return (
            str(value).lower()
            if isinstance(value, bool)
            else str(value)
            if isinstance(value, str | int | float)
            else None
        )
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return arm(value)
    except ValueError:
        return None


def _words(arms: list[Any]) -> str:
    names = {
        str: "a text",
        int: "a whole number",
        float: "a number",
        bool: "true or false",
        list: "a list",
        dict: "a mapping",
    }
    return " or ".join(names.get(get_origin(arm) or arm, "a mapping") for arm in arms)


def _unstructure(value: Any) -> Any:
    if isinstance(value, ComposeModel):
        return value.to_compose()
    if isinstance(value, Mapping):
        return {key: _unstructure(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_unstructure(item) for item in value]
    return value


__all__ = [
    "COMPOSE_FILES",
    "DOCKERFILE",
    "ComposeBindOptions",
    "ComposeBuild",
    "ComposeConfig",
    "ComposeDeploy",
    "ComposeDeviceReservation",
    "ComposeHealthcheck",
    "ComposeImageOptions",
    "ComposeModel",
    "ComposeResourceConfig",
    "ComposeResourceReservations",
    "ComposeResources",
    "ComposeService",
    "ComposeTmpfsOptions",
    "ComposeVolumeMount",
    "ComposeVolumeOptions",
    "is_compose_yaml",
    "is_dockerfile",
]
