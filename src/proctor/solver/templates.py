"""Templates: a text, or a file with it, whose places are filled from metadata, store and parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any, Literal

from proctor.errors import NotFoundError

_FORMATTER = Formatter()


def resource(resource: str, type: Literal["auto", "file"] = "auto", fs_options: dict[str, Any] | None = None) -> str:
    """The text of a file, where `resource` is the path of one, else `resource` itself.

    Args:
        resource: a path, or a text.
        type: `file`: it must be a path.
        fs_options: accepted for ported code; local files have none.

    Raises:
        NotFoundError: `type` is `file` and there is none.
    """
    try:
        # A text of many lines is no path; asking the system about it can fail in ways of its own.
        path = None if type == "auto" and ("\n" in resource or len(resource) > 1024) else Path(resource)
        found = path is not None and path.is_file()
    except (OSError, ValueError):
        path, found = None, False
    if path is not None and found:
        return path.read_text(encoding="utf-8")
    if type == "file":
        raise NotFoundError(f"there is no file {resource!r} (from {Path.cwd()})")
    return resource


def format_template(template: str, values: Mapping[str, Any]) -> str:
    """Fill the places of a template that have a value, and leave every other pair of braces as it is.

    Prompts hold JSON, code and set notation: only what names a value is a place. Places are written as for
    `str.format`: ``{name}``, ``{name.attribute}``, ``{name[key]}``, ``{name:>10}``; doubled braces are single ones.
    """
    return "".join(_filled(template, values))


def _filled(template: str, values: Mapping[str, Any]) -> Iterator[str]:
    try:
        parts = list(_FORMATTER.parse(template))
    except ValueError:
        yield from _filled_where_possible(template, values)
        return
    for literal, name, spec, conversion in parts:
        yield literal
        if name is not None:
            yield _place(name, spec or "", conversion, values)


def _place(name: str, spec: str, conversion: str | None, values: Mapping[str, Any]) -> str:
    raw = "{" + name + (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "") + "}"
    first = name.partition(".")[0].partition("[")[0]
    if values.get(first) is None:
        return raw
    try:
        value, _ = _FORMATTER.get_field(name, (), values)
        return format(_FORMATTER.convert_field(value, conversion), format_template(spec, values))
    except (AttributeError, LookupError, TypeError, ValueError):
        return raw


def _filled_where_possible(template: str, values: Mapping[str, Any]) -> Iterator[str]:
    """A template whose braces do not pair: each ``{…}`` that names a value is filled, the rest is text."""
    rest = template
    while rest:
        before, brace, after = rest.partition("{")
        yield before
        inside, closing, behind = after.partition("}")
        if (
            brace
            and closing
            and "{" not in inside
            and values.get(inside.partition(".")[0].partition("[")[0]) is not None
        ):
            yield from _filled(brace + inside + closing, values)
            rest = behind
        else:
            yield brace
            rest = after


def without(values: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """A copy without some names."""
    return {key: value for key, value in values.items() if key not in names}
