"""A function's parameters: as a schema for the model, and as what its arguments are turned into."""

from __future__ import annotations

import builtins
import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, get_args, get_origin, get_type_hints

from attrs import frozen

from proctor.errors import UsageError
from proctor.model.schema import JSONSchema, ToolParams
from proctor.tool.arguments import Convert, converter_for
from proctor.tool.docstring import Docstring, parse_docstring
from proctor.tool.schema import UNIONS, json_default, json_schema

MISSING: Final = inspect.Parameter.empty
_UNNAMED: Final = frozenset({inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD})
_DOCUMENTED: Final = frozenset({"str", "int", "float", "bool", "list", "dict"})


@frozen
class Parameter:
    """One parameter of a tool's function.

    Attributes:
        rest: it takes the arguments that no other parameter does (``**kwargs``).
        convert: turns the model's value into one of the annotated type.
        default: of the function; `MISSING` for none.
    """

    name: str
    convert: Convert
    default: Any
    rest: bool = False


def described(function: Callable[..., Any]) -> tuple[str, Docstring]:
    """The name of a function, and what its docstring says."""
    target = _plain(function)
    name = getattr(target, "__name__", None) or type(target).__name__
    return name, parse_docstring(inspect.getdoc(target))


def schema_of(name: str, function: Callable[..., Any], said: Docstring) -> ToolParams:
    """The schema of a function's parameters.

    Args:
        name: of the tool, for errors. said: its docstring.

    Raises:
        UsageError: a parameter has no type.
    """
    hints = hints_of(name, function)
    schema = ToolParams()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _UNNAMED:
            continue
        text = said.parameters.get(parameter.name)
        hint = _hint(parameter.name, hints, said)
        if hint is None:
            raise UsageError(f"the parameter {parameter.name!r} of the tool {name!r} has no type annotation")
        made = JSONSchema() if hint is Any else json_schema(hint)
        if parameter.default is inspect.Parameter.empty:
            schema.required.append(parameter.name)
        else:
            made.default = json_default(parameter.default)
        if text is not None and text.text:
            made.description = text.text
        schema.properties[parameter.name] = made
    return schema


def parameters_of(name: str, function: Callable[..., Any]) -> list[Parameter]:
    """A function's parameters, with how a model's argument becomes each."""
    hints = hints_of(name, function)
    said = described(function)[1]
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            continue
        rest = parameter.kind is inspect.Parameter.VAR_KEYWORD
        hint = _hint(parameter.name, hints, said)
        default = parameter.default
        if default is inspect.Parameter.empty and hint is not None and not rest and _allows_none(hint):
            default = None
        found.append(Parameter(parameter.name, converter_for(Any if hint is None else hint), default, rest))
    return found


def hints_of(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's parameters.

    Raises:
        UsageError: an annotation names something that cannot be found when the program runs.
    """
    target = _plain(function)
    if not (inspect.isfunction(target) or inspect.ismethod(target)):
        target = type(target).__call__
    try:
        return get_type_hints(target)
    except NameError as error:
        raise UsageError(
            f"an annotation of the tool {name!r} cannot be resolved: {error}. Types of a tool's parameters must be "
            "importable where it is defined, not under TYPE_CHECKING or inside a function."
        ) from None


def _plain(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.unwrap(function)


def _hint(name: str, hints: dict[str, Any], said: Docstring) -> Any:
    if name in hints:
        return hints[name]
    text = said.parameters.get(name)
    return getattr(builtins, text.type) if text is not None and text.type in _DOCUMENTED else None


def _allows_none(hint: Any) -> bool:
    return hint is type(None) or (get_origin(hint) in UNIONS and type(None) in get_args(hint))
