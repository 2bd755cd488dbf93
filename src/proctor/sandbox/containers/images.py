"""The images of a configuration: there, pulled or built, once for all samples that use it."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from proctor.errors import OptionError, UsageError
from proctor.sandbox.compose import DOCKERFILE, ComposeBuild, ComposeConfig, ComposeService
from proctor.sandbox.containers.arguments import environment_of
from proctor.sandbox.containers.engine import Engine, explain

logger: Final = logging.getLogger(__name__)

Images = Mapping[str, str]
"""By service the name of its image."""
REGISTRY: Final = "docker.io"
REGISTRY_PART: Final = re.compile(r"[.:]|^localhost$")
POLICIES: Final = frozenset({"always", "never", "missing", "if_not_present", "build"})


def image_names(engine: Engine, config: ComposeConfig, folder: Path) -> dict[str, str]:
    """What the images of a configuration are called, whether they are there or not.

    Raises:
        OptionError: a service has none.
    """
    return {name: image_name(engine, name, service, folder) for name, service in config.services.items()}


def image_name(engine: Engine, name: str, service: ComposeService, folder: Path) -> str:
    """What the image of one service is called: as it says, or after what it is built from.

    Raises:
        OptionError: it names none and builds none.
    """
    if service.container_name is not None:
        raise container_name_refused(name, service.container_name)
    if service.image is not None:
        return service.image
    if service.build is None:
        raise OptionError(f"service {name!r} has neither an image nor a build")
    return f"localhost/proctor-{recipe(as_build(service.build), folder)}"


def container_name_refused(service: str, name: str) -> OptionError:
    """The error for a service with a name of its own, to be raised by the caller."""
    return OptionError(
        f"service {service!r} has a container_name ({name!r}), which only one sample at a time could have: remove it"
    )


def recipe(build: ComposeBuild, folder: Path) -> str:
    """A name for what a build makes, the same for the same place and arguments."""
    said = [
        str(context(build, folder)),
        build.dockerfile or DOCKERFILE,
        build.target or "",
        *environment_of(build.args),
    ]
    return hashlib.sha256("\0".join(said).encode()).hexdigest()[:16]


def as_build(build: ComposeBuild | str) -> ComposeBuild:
    """A build in its long form."""
    return ComposeBuild(context=build) if isinstance(build, str) else build


def context(build: ComposeBuild, folder: Path) -> Path:
    """The folder that an image is built from."""
    return (folder / (build.context or ".")).resolve()


async def provide_images(engine: Engine, config: ComposeConfig, folder: Path) -> None:
    """Build, or pull if they are not here, the images of all services.

    Raises:
        UsageError: one cannot be had; the text says what to do.
    """
    done: set[str] = set()
    for name, image in image_names(engine, config, folder).items():
        service = config.services[name]
        if image in done:
            continue
        done.add(image)
        if service.build is not None and service.pull_policy != "never":
            await build_image(engine, name, as_build(service.build), folder, image, service.platform)
        else:
            await find_image(engine, image, service.pull_policy or "missing", service.platform)


async def find_image(engine: Engine, image: str, policy: str, platform: str | None = None) -> None:
    """Make sure that an image is here.

    Args:
        policy: always pull it, never, or if it is missing.

    Raises:
        UsageError: it is not, and cannot be pulled.
    """
    if policy not in POLICIES:
        raise OptionError(f"pull_policy must be one of {', '.join(sorted(POLICIES))}, not {policy!r}")
    there = bool(await engine.inspect(image, kind="image"))
    if there and policy != "always":
        return
    if policy == "never":
        raise UsageError(f"there is no image {image!r} here and pull_policy is never: build or load it first")
    chosen = ["--platform", platform] if platform else []
    result = await engine.call("pull", "--quiet", *chosen, qualified(image), timeout=None)
    if not result.success and not there:
        error = explain(engine.name, ("pull", image), result.returncode, result.stderr, advise=False)
        raise UsageError(
            f"the image {image!r} is not here and could not be pulled: check its name and the network, or build or "
            f"load it first with '{engine.name} build' or '{engine.name} load' ({error})"
        )
    if not there and qualified(image) != image and engine.name == "podman":
        await engine.ask("tag", qualified(image), image)


def qualified(image: str) -> str:
    """An image's name with its registry: a bare name is one of Docker Hub's, as it is for docker."""
    first, slash, _ = image.partition("/")
    if slash and REGISTRY_PART.search(first):
        return image
    return f"{REGISTRY}/{image}" if slash else f"{REGISTRY}/library/{image}"


async def build_image(
    engine: Engine, name: str, build: ComposeBuild, folder: Path, image: str, platform: str | None = None
) -> None:
    """Build an image; what did not change is taken from the engine's cache.

    Raises:
        UsageError: there is nothing to build from, or it failed, with the last lines of the output.
    """
    place = context(build, folder)
    file = place / (build.dockerfile or DOCKERFILE)
    if not file.is_file():
        raise UsageError(f"service {name!r} is to be built from {file}, which does not exist")
    flags = {"--no-cache": build.no_cache, "--pull": build.pull}
    options = [flag for flag, on in flags.items() if on]
    for option, value in (("--target", build.target), ("--platform", platform)):
        options += [option, value] if value else []
    for each in environment_of(build.args):
        options += ["--build-arg", each]
    logger.info("building the image of service %s from %s", name, file)
    result = await engine.call(
        "build", "--tag", image, "--file", str(file), "--label", "proctor.image=1", *options, str(place), timeout=None
    )
    if not result.success:
        said = (result.stdout + result.stderr).decode("utf-8", "replace").strip().splitlines()
        raise UsageError(f"building the image of service {name!r} from {file} failed:\n" + "\n".join(said[-20:]))


__all__ = [
    "Images",
    "as_build",
    "container_name_refused",
    "find_image",
    "image_name",
    "image_names",
    "provide_images",
    "qualified",
    "recipe",
]
