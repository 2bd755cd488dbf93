"""Reading a compose file: YAML, variables, and what `proctor` itself does not take.

Variables are filled in as the Compose specification says (``$NAME``, ``${NAME}``, ``${NAME:-default}``,
``${NAME-default}``, ``${NAME:?text}``, ``${NAME:+other}``, ``$$`` for a dollar) from the environment, with those of the
sample before it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from proctor.errors import OptionError, UsageError
from proctor.runtime.dotenv import read_dotenv
from proctor.runtime.settings import environment
from proctor.sandbox.compose import ComposeConfig

VARIABLE: Final = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?:(?P<how>:?[-?+])(?P<rest>[^{}]*))?\}|(?P<bad>))"
)
DURATION: Final = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>h|ms|m|us|ns|s)")
SECONDS: Final[Mapping[str, float]] = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def parse_compose_yaml(
    file: str, *, multiple_services: bool = True, variables: Mapping[str, str] | None = None
) -> ComposeConfig:
    """Read a compose file.

    Args:
        file: its path.
        multiple_services: whether there may be more than one service.
        variables: for ``${NAME}``, before those of the environment and of the file ``.env`` beside it.

    Raises:
        FileNotFoundError: there is no such file.
        OptionError: it is no compose file, or says something that is not understood; the text names the place.
    """
    path = Path(file)
    if not path.exists():
        raise FileNotFoundError(f"there is no compose file {file}")
    known = _variables(path, variables or {})
    try:
        raw = read_yaml(path)
        filled = _fill(raw, known)
    except OptionError as error:
        raise OptionError(f"{file}: {error}") from None
    except (ValueError, _yaml().YAMLError) as error:
        raise OptionError(f"{file} cannot be read as YAML: {' '.join(str(error).split())}") from error
    if not isinstance(filled, Mapping) or "services" not in filled:
        raise OptionError(f"{file} is no compose file: it has no 'services'")
    try:
        config = ComposeConfig.model_validate(filled)
    except OptionError as error:
        raise OptionError(
            f"{file}: {str(error).removeprefix('ComposeConfig.').removeprefix('ComposeConfig ')}"
        ) from None
    if not multiple_services and len(config.services) > 1:
        raise OptionError(f"{file} has the services {', '.join(config.services)}, but this sandbox takes one only")
    return config


def read_yaml(path: Path) -> Any:
    """What a file of YAML holds.

    Raises:
        Exception: it holds none. UsageError: there is nothing here that can read it.
    """
    return _yaml().safe_load(path.read_text(encoding="utf-8"))


def compose_text(config: ComposeConfig) -> str:
    """A compose file's text. It is JSON, which is YAML too; a dollar is doubled, so that it is no variable."""
    import json

    return json.dumps(_escaped(config.to_compose()), indent=1)


def duration(text: str | float) -> float:
    """Seconds of a duration such as ``1m30s``, ``500ms``, ``10s``; a bare number is seconds.

    Raises:
        OptionError: it is none.
    """
    if isinstance(text, int | float):
        return float(text)
    found = list(DURATION.finditer(text))
    if found and "".join(each.group().replace(" ", "") for each in found) == text.replace(" ", ""):
        return sum(float(each["number"]) * SECONDS[each["unit"]] for each in found)
    try:
        return float(text)
    except ValueError:
        raise OptionError(f"{text!r} is no duration; write it as 1m30s, 10s or 500ms") from None


def variables_in(text: str) -> set[str]:
    """The names of the variables that a compose file's text uses."""
    return {name for each in VARIABLE.finditer(text) if (name := each["plain"] or each["braced"])}


def _variables(path: Path, given: Mapping[str, str]) -> dict[str, str]:
    known = environment()
    dotenv = path.parent / ".env"
    beside = read_dotenv(dotenv, known) if dotenv.is_file() else {}
    return {**beside, **known, **given}


def _fill(value: Any, known: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return VARIABLE.sub(_replacement(known, value), value)
    if isinstance(value, Mapping):
        return {key: _fill(item, known) for key, item in value.items()}
    if isinstance(value, list):
        return [_fill(item, known) for item in value]
    return value


def _replacement(known: Mapping[str, str], text: str) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        name = match["plain"] or match["braced"]
        if not name:
            raise OptionError(f"the variable in {text!r} is not understood; a dollar alone is written $$")
        how, rest, value = match["how"] or "", match["rest"] or "", known.get(name)
        there = bool(value) if how.startswith(":") else value is not None
        if how.endswith("+"):
            return rest if there else ""
        if there:
            return value or ""
        if how.endswith("?"):
            raise OptionError(f"the variable {name} is not set: {rest or 'the file requires it'}")
        return rest

    return replace


def _escaped(value: Any) -> Any:
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, Mapping):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    return value


def _yaml() -> Any:
    try:
        return importlib.import_module("yaml")
    except ImportError:
        raise UsageError("compose files need PyYAML, which is not installed: pip install pyyaml") from None


__all__ = ["compose_text", "duration", "parse_compose_yaml", "read_yaml", "variables_in"]
