"""What a docstring says of a function: its description, its parameters, its examples.

Google's style is read, and the fields of Sphinx (``:param name: text``).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

from attrs import field, frozen

PARAMETERS: Final = frozenset({"Args", "Arguments", "Parameters", "Params", "Attributes"})
EXAMPLES: Final = frozenset({"Example", "Examples"})
TITLES: Final = PARAMETERS | EXAMPLES | {"Raises", "Except", "Exceptions", "Returns", "Yields"}
_TITLE: Final = re.compile(rf"^({'|'.join(sorted(TITLES))}):[ \t]*$", re.MULTILINE)
_TYPED: Final = re.compile(r"\s*(\S.*?)\s*\(\s*(.*\S)\s*\)\s*$", re.DOTALL)
_FIELD: Final = re.compile(r"^:(\w+)(?:[ \t]+([^:\n]*?))?:[ \t]*", re.MULTILINE)


@frozen
class ParameterText:
    """What is said of one parameter; `type` is that of ``name (type): text``."""

    text: str
    type: str | None = None


@frozen
class Docstring:
    """A docstring, taken apart."""

    description: str = ""
    parameters: dict[str, ParameterText] = field(factory=dict)
    examples: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """The description with the examples, as a model is told of the tool."""
        if not self.examples:
            return self.description
        return f"{self.description}\n\nExamples\n\n" + "\n\n".join(self.examples)


def parse_docstring(text: str | None) -> Docstring:
    """Take a docstring apart."""
    if not text or not text.strip():
        return Docstring()
    cleaned = inspect.cleandoc(text)
    if not _TITLE.search(cleaned) and re.search(r"^:(param|return|raise|type)", cleaned, re.MULTILINE):
        return _sphinx(cleaned)
    titles = list(_TITLE.finditer(cleaned))
    parameters: dict[str, ParameterText] = {}
    examples: list[str] = []
    for place, title in enumerate(titles):
        end = titles[place + 1].start() if place + 1 < len(titles) else len(cleaned)
        body = cleaned[title.end() : end].strip("\n")
        if title[1] in PARAMETERS:
            parameters.update(_parameters(body))
        elif title[1] in EXAMPLES and body.strip():
            examples.append(inspect.cleandoc(body))
    before = cleaned[: titles[0].start()] if titles else cleaned
    return Docstring(before.strip(), parameters, tuple(examples))


def _parameters(body: str) -> Iterator[tuple[str, ParameterText]]:
    """The entries of a section: each begins at the indent of the first, and goes on further in."""
    first = re.match(r"[ \t]*", body)
    indent = "" if first is None else first[0]
    for entry in re.split(rf"^{re.escape(indent)}(?=\S)", body, flags=re.MULTILINE):
        name, colon, text = entry.strip("\n").partition(":")
        if not colon:
            continue
        typed = _TYPED.match(name)
        known_as, type = (typed[1], typed[2]) if typed is not None else (name.strip(), None)
        if type is not None:
            type = type.removesuffix(", optional").removesuffix("?")
        yield known_as.lstrip("*"), ParameterText(_joined(text), type)


def _joined(text: str) -> str:
    """A text whose first line stands behind a name, and whose others are indented."""
    first, line_end, rest = text.removeprefix(" ").partition("\n")
    return (first + line_end + inspect.cleandoc(rest) if line_end else first).strip("\n")


def _sphinx(text: str) -> Docstring:
    fields = list(_FIELD.finditer(text))
    parameters: dict[str, ParameterText] = {}
    types: dict[str, str] = {}
    for place, found in enumerate(fields):
        end = fields[place + 1].start() if place + 1 < len(fields) else len(text)
        body, words = _joined(text[found.end() : end]).strip(), (found[2] or "").split()
        if found[1] == "param" and words:
            parameters[words[-1]] = ParameterText(body, words[0] if len(words) > 1 else None)
        elif found[1] == "type" and words:
            types[words[-1]] = body
    for name, type in types.items():
        if name in parameters:
            parameters[name] = ParameterText(parameters[name].text, type)
    return Docstring((text[: fields[0].start()] if fields else text).strip(), parameters)
