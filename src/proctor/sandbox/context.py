"""`sandbox()`: the environments of the sample that runs.

They are in a context variable that the engine sets around a sample. What solvers and tools get is not the provider's
environment itself but a recorder (`proctor.sandbox.recording`), which puts what is done into the transcript.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from attrs import define, field

from proctor.errors import SandboxUnavailableError
from proctor.sandbox.environment import DEFAULT, SandboxEnvironment


@define(eq=False)
class Surroundings:
    """What `sandbox()` finds.

    Attributes:
        environments: by name. default: the name of the one that no name asks for.
        found: what `sandbox_with` found before.
    """

    environments: Mapping[str, SandboxEnvironment]
    default: str
    found: dict[tuple[str | None, str, bool], SandboxEnvironment] = field(factory=dict)


surroundings_variable: Final[ContextVar[Surroundings | None]] = ContextVar("proctor_sandboxes", default=None)
default_variable: Final[ContextVar[str | None]] = ContextVar("proctor_sandbox_default", default=None)


def sandbox(name: str | None = None) -> SandboxEnvironment:
    """The environment of the running sample.

    Args:
        name: one of several; None or ``default`` is the default one.

    Raises:
        ProcessLookupError: the sample has no sandbox.
        ValueError: it has none of that name.
    """
    around = _surroundings()
    chosen = (default_variable.get() or around.default) if name is None or name == DEFAULT else name
    if chosen not in around.environments:
        raise ValueError(
            f"the sample has no sandbox environment called {chosen!r}; it has {', '.join(around.environments)}"
        )
    return around.environments[chosen]


async def sandbox_with(file: str, on_path: bool = False, *, name: str | None = None) -> SandboxEnvironment | None:
    """The environment of the running sample that has a file, None when none has.

    Args:
        file: its path; with `on_path` the name of a program on the search path.
        on_path: look for a program.
        name: look in the environment of this name only.

    Raises:
        ProcessLookupError: the sample has no sandbox.
    """
    around = _surroundings()
    key = (name, file, on_path)
    if key not in around.found:
        for each, environment in around.environments.items():
            if name in {None, each} and await _has(environment, file, on_path=on_path):
                around.found[key] = environment
                break
    return around.found.get(key)


@contextmanager
def sandbox_default(name: str) -> Iterator[None]:
    """Make another environment the default one for a block."""
    token = default_variable.set(name)
    try:
        yield
    finally:
        default_variable.reset(token)


def _surroundings() -> Surroundings:
    around = surroundings_variable.get()
    if around is None or not around.environments:
        raise ProcessLookupError(
            "this sample has no sandbox: give its task or the sample one, as in Task(sandbox='bubblewrap')"
        )
    return around


async def _has(environment: SandboxEnvironment, file: str, *, on_path: bool) -> bool:
    command = ["sh", "-c", 'command -v -- "$0"', file] if on_path else ["test", "-r", file]
    try:
        return (await environment.exec(command)).success
    except SandboxUnavailableError:
        return False
