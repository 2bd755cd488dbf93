"""The version of the installed package."""

from __future__ import annotations

from proctor.cli.output import show


def version(package: str = "proctor") -> str | None:
    """The version of an installed distribution, None when it is not installed."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as of

    try:
        return of(package)
    except PackageNotFoundError:
        return None


def show_version() -> None:
    """Print the version of proctor."""
    show(f"proctor {version()}")
