"""``.env`` files: their grammar, and which ones a folder sees.

A line is ``NAME=value``, ``export NAME=value``, a comment or empty. A value is bare (up to `` #`` or the end of the
line), in single quotes (taken as it is) or in double quotes (where a backslash escapes); quoted ones may span lines. In
bare and double-quoted values ``${NAME}`` and ``${NAME:-default}`` are replaced. A line of another form is skipped with
a warning: a stray file in a parent folder must not stop a run.

Not python-dotenv: one small grammar is no reason for a dependency, and every parent folder's file is read, not only
the nearest.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

logger: Final = logging.getLogger(__name__)

_LINE: Final = re.compile(
    r"""
    [ \t]*(?:export[ \t]+)?(?P<name>[A-Za-z_][A-Za-z0-9_.-]*)[ \t]*=[ \t]*
    (?: '(?P<single>[^']*)' | "(?P<double>(?:[^"\\]|\\.)*)" | (?P<bare>[^\n'"#](?:[^\n]*?(?=[ \t]+\#|[ \t]*$))|) )
    [ \t]*(?:\#[^\n]*)?$
    """,
    re.VERBOSE | re.MULTILINE | re.DOTALL,
)
_SKIP: Final = re.compile(r"[ \t]*(?:#[^\n]*)?$", re.MULTILINE)
_REFERENCE: Final = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")
_ESCAPES: Final = MappingProxyType({"n": "\n", "t": "\t", "r": "\r", '"': '"', "\\": "\\", "$": "$"})


def dotenv_files(folder: Path) -> Iterator[Path]:
    """The ``.env`` files that `folder` sees: its own, then its parents', nearest first."""
    for parent in (folder, *folder.parents):
        path = parent / ".env"
        try:
            if path.is_file():
                yield path
        except OSError:
            continue


def read_dotenv(path: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """The names and values a ``.env`` file gives.

    Args:
        environment: where ``${NAME}`` is looked up before the file's own earlier lines.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        logger.warning("%s is not read: %s", path, error)
        return {}
    return parse_dotenv(text, environment=environment, source=str(path))


def parse_dotenv(text: str, *, environment: Mapping[str, str], source: str = ".env") -> dict[str, str]:
    """The names and values in the text of a ``.env`` file; `source` names it in warnings."""
    text = text.replace("\r\n", "\n")
    found: dict[str, str] = {}
    position, end = 0, len(text)
    while position < end:
        match = _SKIP.match(text, position)
        if match is None:
            match = _LINE.match(text, position)
            if match is None:
                line = text.count("\n", 0, position) + 1
                logger.warning("%s, line %d is skipped: it is not NAME=value", source, line)
                stop = text.find("\n", position)
                position = end if stop < 0 else stop + 1
                continue
            found[match["name"]] = _value(match, {**found, **environment})
        position = match.end() + 1
    return found


def _value(match: re.Match[str], names: Mapping[str, str]) -> str:
    if (single := match["single"]) is not None:
        return single
    if (double := match["double"]) is not None:
        replaced = _expand(double, names)
        return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), replaced, flags=re.DOTALL)
    return _expand((match["bare"] or "").rstrip(), names)


def _expand(text: str, names: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda m: names.get(m["name"]) or (m["default"] or ""), text)
