"""What a sandbox was configured with, as services: a path, an image, a `ComposeConfig`, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from proctor.errors import OptionError
from proctor.sandbox.compose import ComposeBuild, ComposeConfig, ComposeService, is_compose_yaml, is_dockerfile
from proctor.sandbox.compose_file import parse_compose_yaml, read_yaml, variables_in
from proctor.sandbox.containers.shell import KEEP_ALIVE, SHELL

DEFAULT_IMAGE: Final = "docker.io/library/python:3.12-slim"
"""What is used where nothing is configured: a Python, as Inspect's default."""
METADATA: Final = "SAMPLE_METADATA_"
NO_NETWORK: Final = "none"


def resolve_config(config: Any, variables: Mapping[str, str]) -> tuple[ComposeConfig, Path]:
    """A configuration as services, and the folder that their paths are relative to.

    Raises:
        OptionError: it is none, or there is no such file.
    """
    if isinstance(config, ComposeConfig):
        return config, Path.cwd()
    if config is None:
        return single(ComposeService(image=DEFAULT_IMAGE)), Path.cwd()
    if isinstance(config, Mapping):
        return ComposeConfig.model_validate(config), Path.cwd()
    if not isinstance(config, str):
        raise OptionError(f"a container's configuration is a path, an image or a ComposeConfig, not {config!r}")
    path = Path(config)
    if is_dockerfile(config):
        if not path.is_file():
            raise OptionError(f"there is no Dockerfile {config}")
        folder = path.resolve().parent
        return single(ComposeService(build=ComposeBuild(context=".", dockerfile=path.name))), folder
    if is_compose_yaml(config) or path.suffix in {".yaml", ".yml"}:
        try:
            return parse_compose_yaml(config, variables=variables), path.resolve().parent
        except FileNotFoundError:
            raise OptionError(f"there is no compose file {config}") from None
    if path.exists() or config.startswith((".", "/", "~")):
        raise OptionError(
            f"{config!r} is neither a compose file (…compose.yaml) nor a Dockerfile (Dockerfile, name.Dockerfile); the "
            "name of an image looks like python:3.12"
        )
    return single(ComposeService(image=config)), Path.cwd()


def folder_of(config: str | ComposeConfig) -> Path:
    """What the paths in a compose file, or in a configuration, are relative to.

    Raises:
        OptionError: there is no such file.
    """
    if isinstance(config, ComposeConfig):
        return Path.cwd()
    if not Path(config).is_file():
        raise OptionError(f"there is no compose file {config}")
    return Path(config).resolve().parent


def single(service: ComposeService) -> ComposeConfig:
    """The configuration of one container that stays, without a network."""
    service.command = [SHELL, "-c", KEEP_ALIVE]
    service.stdin_open = True
    service.network_mode = NO_NETWORK
    return ComposeConfig(services={"default": service})


def sample_variables(metadata: Mapping[str, Any]) -> dict[str, str]:
    """A sample's metadata as variables of a compose file: ``SAMPLE_METADATA_<NAME>``, as in Inspect."""
    return {f"{METADATA}{name.replace(' ', '_').upper()}": str(value) for name, value in metadata.items()}


def image_variables(file: str, variables: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that stand where a compose file names images and builds."""
    try:
        raw = read_yaml(Path(file))
    except Exception:
        return {}  # it is read again, and refused with a message, when it is used
    services = (raw or {}).get("services") if isinstance(raw, Mapping) else None
    text = str(
        [(each.get("image"), each.get("build")) for each in (services or {}).values() if isinstance(each, Mapping)]
    )
    return {name: variables[name] for name in sorted(variables_in(text)) if name in variables}


__all__ = ["DEFAULT_IMAGE", "folder_of", "image_variables", "resolve_config", "sample_variables"]
