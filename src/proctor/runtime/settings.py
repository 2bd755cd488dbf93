"""Settings of a runtime, where each value came from, and the environment.

The only module that reads the environment: everything else asks `environ` or `eval_option`. Precedence, lowest first:
built-in, provider, environment variable, the model's own config, task, argument or command-line flag, the call's own
config; `resolve` picks the last layer that says something and remembers which.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

from attrs import field, fields, frozen

from proctor.errors import OptionError
from proctor.runtime.cpus import cpus
from proctor.runtime.dotenv import dotenv_files, read_dotenv

__all__ = [
    "BACKENDS",
    "BUILT_IN",
    "Resolved",
    "Settings",
    "async_backend",
    "cpus",
    "environ",
    "environment",
    "eval_option",
    "load_dotenv",
    "one_of",
    "real_number",
    "refuse",
    "resolve",
    "truth",
    "whole_number",
]

T = TypeVar("T")

BUILT_IN: Final = "built-in"
BACKENDS: Final = ("asyncio", "trio")
BACKEND_VARIABLES: Final = (
    "PROCTOR_EVAL_ASYNC_BACKEND", "INSPECT_EVAL_ASYNC_BACKEND", "PROCTOR_ASYNC_BACKEND", "INSPECT_ASYNC_BACKEND",
)  # fmt: skip
LOG_DIR_VARIABLES: Final = frozenset(
    {"PROCTOR_LOG_DIR", "PROCTOR_EVAL_LOG_DIR", "INSPECT_LOG_DIR", "INSPECT_EVAL_LOG_DIR"}
)


@frozen
class Resolved(Generic[T]):
    """A value and where it came from.

    Attributes:
        value: the value in force.
        source: `built-in`, or words that name the place: ``environment variable PROCTOR_EVAL_MAX_TASKS``.
    """

    value: T
    source: str = BUILT_IN


def resolve(default: T, *layers: tuple[T | None, str]) -> Resolved[T]:
    """The value of the last layer that has one.

    Args:
        default: the built-in value.
        layers: pairs of a value (None: this layer says nothing) and its source, lowest precedence first.
    """
    resolved = Resolved(default)
    for value, source in layers:
        if value is not None:
            resolved = Resolved(value, source)
    return resolved


def environ(name: str) -> str | None:
    """An environment variable's value; None when it is unset or empty."""
    return os.environ.get(name) or None


def environment() -> dict[str, str]:
    """A copy of the whole environment, for child processes."""
    return dict(os.environ)


def load_dotenv(folder: Path | None = None) -> list[Path]:
    """Put into the environment what the ``.env`` files of a folder and its parents say, and return those files.

    What is set already stays, and a nearer file goes before a farther one. A relative log folder in a file is taken
    relative to that file, as Inspect does. The environment itself is changed (not a table of ours) because task files
    and the libraries they use look for their keys there.

    Args:
        folder: where to begin, default the working folder.
    """
    read = []
    for path in dotenv_files((folder or Path.cwd()).absolute()):
        for name, value in read_dotenv(path, os.environ).items():
            if name not in os.environ:
                os.environ[name] = _beside(path, value) if name in LOG_DIR_VARIABLES else value
        read.append(path)
    return read


def _beside(path: Path, value: str) -> str:
    if not value or urlsplit(value).scheme or Path(value).is_absolute():
        return value
    return str(path.parent / value)


def eval_option(flag: str) -> tuple[str | None, str]:
    """The environment's value for an option of ``proctor eval`` and the words that name the variable.

    ``PROCTOR_EVAL_<FLAG>`` is read first, then ``INSPECT_EVAL_<FLAG>``; an empty one counts as unset.

    Args:
        flag: the option's name, with dashes or underscores: ``max-connections``.

    Returns:
        The text and its source, ``(None, "")`` when neither is set.
    """
    suffix = flag.removeprefix("--").replace("-", "_").upper()
    for prefix in ("PROCTOR_EVAL_", "INSPECT_EVAL_"):
        if (value := environ(prefix + suffix)) is not None:
            return value, f"environment variable {prefix}{suffix}"
    return None, ""


# Parsing and checking. Every message names the option, the value, where the value came from and what is legal.


def refuse(option: str, value: object, source: str, wanted: str) -> OptionError:
    """The error for a value that an option does not take, to be raised by the caller."""
    came_from = "" if source in {"", BUILT_IN} else f" (from {source})"
    return OptionError(f"{option} must be {wanted}, not {value!r}{came_from}")


def whole_number(value: object, *, option: str, source: str = "", minimum: int | None = 1) -> int:
    """`value`, an int or its text, checked.

    Raises:
        OptionError: it is no whole number, or below `minimum`.
    """
    wanted = "a whole number" if minimum is None else f"a whole number of at least {minimum}"
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str):
        try:
            number = int(value.strip())
        except ValueError:
            number = None
    if number is None or (minimum is not None and number < minimum):
        raise refuse(option, value, source, wanted)
    return number


def real_number(value: object, *, option: str, source: str = "", minimum: float = 0.0) -> float:
    """`value`, a number or its text, checked to be finite and at least `minimum`.

    Raises:
        OptionError: it is not.
    """
    number = float("nan")
    if isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    elif isinstance(value, str):
        try:
            number = float(value.strip())
        except ValueError:
            number = float("nan")
    if not minimum <= number < float("inf"):
        raise refuse(option, value, source, f"a number of at least {minimum:g}")
    return number


def truth(value: object, *, option: str, source: str = "") -> bool:
    """`value`, a bool or one of true/false, yes/no, on/off, 1/0 in any case.

    Raises:
        OptionError: it is none of them.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        word = value.strip().lower()
        if word in {"true", "yes", "on", "1"}:
            return True
        if word in {"false", "no", "off", "0"}:
            return False
    raise refuse(option, value, source, "true or false")


def one_of(*allowed: str) -> Callable[..., str]:
    """A check that a value is one of some words."""

    def check(value: object, *, option: str, source: str = "") -> str:
        if isinstance(value, str) and value.strip().lower() in allowed:
            return value.strip().lower()
        raise refuse(option, value, source, f"one of {', '.join(allowed)}")

    return check


def async_backend(given: str | None = None, *, source: str = "argument") -> Resolved[str]:
    """The event loop to use: `given`, else the first of `BACKEND_VARIABLES` that is set, else asyncio.

    Raises:
        OptionError: it is neither asyncio nor trio.
    """
    check = one_of(*BACKENDS)
    if given is not None:
        return Resolved(check(given, option="async_backend", source=source), source)
    for name in BACKEND_VARIABLES:
        if (value := environ(name)) is not None:
            source = f"environment variable {name}"
            return Resolved(check(value, option="async_backend", source=source), source)
    return Resolved("asyncio")


def _option(default: Any, check: Callable[..., Any]) -> Any:
    return field(default=default, metadata={"check": check})


@frozen(kw_only=True)
class Settings:
    """What a runtime is opened with. Limits are runtime-wide; None means that the built-in rule decides.

    Attributes:
        max_subprocesses: child processes at once (built-in: `cpus`).
        max_sandboxes: live sandboxes of one provider type (built-in: the provider's own).
        max_total_samples: running samples over all tasks (built-in: no bound).
        max_user_threads: threads for blocking user code; 40, which is what anyio's own pool allows.
        max_engine_threads: threads for the engine's own blocking work (log files, compression).
        async_backend: the event loop, asyncio or trio; what `eval()` starts (an open runtime is in one already).
        seed: where all chance and every id of the runtime begins (built-in: drawn from the system).
        shutdown_timeout: seconds that closing the runtime may take; behaviour.md, section 8.
        sources: where the values that are not built in came from, by name.
    """

    max_subprocesses: int | None = _option(None, whole_number)
    max_sandboxes: int | None = _option(None, whole_number)
    max_total_samples: int | None = _option(None, whole_number)
    max_user_threads: int = _option(40, whole_number)
    max_engine_threads: int = _option(8, whole_number)
    async_backend: str | None = _option(None, one_of(*BACKENDS))
    seed: int | None = _option(None, lambda value, **names: whole_number(value, minimum=None, **names))
    shutdown_timeout: float = _option(30.0, real_number)
    sources: Mapping[str, str] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        for name, check in _checks().items():
            if (value := getattr(self, name)) is not None:
                check(value, option=name, source=self.sources.get(name, ""))

    def resolved(self, name: str) -> Resolved[Any]:
        """A setting and where it came from."""
        return Resolved(getattr(self, name), self.sources.get(name, BUILT_IN))

    def subprocess_limit(self) -> Resolved[int]:
        """How many child processes may run at once: as set, else as many as there are processors."""
        return resolve(cpus(), (self.max_subprocesses, self.sources.get("max_subprocesses", BUILT_IN)))

    @classmethod
    def resolve(cls, *, source: str = "argument", **given: object) -> Settings:
        """Settings from arguments, else the environment (``PROCTOR_EVAL_MAX_SUBPROCESSES``, …), else built in.

        Args:
            source: what to call the origin of the arguments: ``eval() argument``, ``command line``.
            given: settings by name; None counts as not given, and a `Resolved` brings its own source.

        Raises:
            OptionError: a value is refused; the text names the option and where it came from.
        """
        checks = _checks()
        if unknown := sorted(set(given) - set(checks)):
            raise OptionError(f"no setting is called {unknown[0]!r}; known: {', '.join(sorted(checks))}")
        values: dict[str, Any] = {}
        sources: dict[str, str] = {}
        for name, check in checks.items():
            value, origin = given.get(name), source
            if isinstance(value, Resolved):
                value, origin = value.value, value.source
            if value is None and name == "async_backend":
                backend = async_backend()
                value, origin = (None, "") if backend.source == BUILT_IN else (backend.value, backend.source)
            elif value is None:
                # A seed without more is that of the model's sampling.
                value, origin = eval_option("runtime-seed" if name == "seed" else name)
            if value is not None:
                values[name] = check(value, option=name, source=origin)
                sources[name] = origin
        return cls(**values, sources=sources)


def _checks() -> dict[str, Callable[..., Any]]:
    return {each.name: each.metadata["check"] for each in fields(Settings) if "check" in each.metadata}
