"""``proctor info``: versions and surroundings, as a bug report needs them."""

from __future__ import annotations

import json
import platform
import sys
from typing import Annotated, Any, Final

import typer

from proctor.cli.commands import new_app
from proctor.cli.output import show
from proctor.cli.version import version

PACKAGES: Final = ("anyio", "trio", "httpx", "h11", "attrs", "cattrs", "msgspec", "typer", "rich", "zstandard")
OPTIONAL: Final = ("textual", "obstore", "botocore", "xllamacpp", "inspect_ai")

app = new_app()


@app.command()
def info(*, as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """Versions and surroundings, for bug reports."""
    found = surroundings()
    if as_json:
        show(json.dumps(found, indent=2))
        return
    packages = found.pop("packages")
    width = max(map(len, [*found, *packages])) + 2
    for name, value in [*found.items(), *packages.items()]:
        show(f"{name:<{width}}{value}")


def surroundings() -> dict[str, Any]:
    """What a bug report should say of the machine and the installation; nothing secret."""
    from proctor.runtime.settings import async_backend, cpus

    backend = async_backend()
    return {
        "proctor": version(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "executable": sys.executable,
        "backend": f"{backend.value} ({backend.source})",
        "cpus": cpus(),
        "packages": {name: found for name in (*PACKAGES, *OPTIONAL) if (found := version(name))},
    }
