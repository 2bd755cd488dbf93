"""A model's arguments: held against the tool's schema, and turned into values of the annotated types.

A model is told everything that is wrong at once, so that it can mend its call in one go.
"""

from __future__ import annotations

import copy
import enum
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin, is_typeddict

from proctor.errors import ToolParsingError
from proctor.model.schema import JSONSchema, ToolParams
from proctor.tool.schema import ARRAYS, OBJECTS, UNIONS, bare, has_members, is_pydantic, json_schema, members

Convert: TypeAlias = Callable[[Any], Any]

MAX_DEPTH: Final = 100
"""Of nested arguments: readers of logs and encoders give up not far above."""
_SHOWN: Final = 200


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_FITS: Final[Mapping[str, Callable[[Any], bool]]] = MappingProxyType(
    {
        "string": lambda value: isinstance(value, str),
        "integer": lambda value: _is_number(value) and value == value // 1,
        "number": _is_number,
        "boolean": lambda value: isinstance(value, bool),
        "array": lambda value: isinstance(value, list),
        "object": lambda value: isinstance(value, dict),
        "null": lambda value: value is None,
    }
)


def check_arguments(arguments: Mapping[str, Any], schema: ToolParams) -> None:
    """Hold a call's arguments against a tool's schema.

    Raises:
        ToolParsingError: naming everything that does not fit.
    """
    if too_deep(arguments):
        raise ToolParsingError(f"The arguments are nested more than {MAX_DEPTH} levels deep.")
    wrong = list(_object(arguments, "", schema.properties, schema.required, schema.additionalProperties))
    if wrong:
        raise ToolParsingError(
            "\n".join(["The arguments do not fit the tool's parameters:", *(f"- {w}" for w in wrong)])
        )


def too_deep(value: Any, limit: int = MAX_DEPTH) -> bool:
    """Whether a value is nested more than `limit` levels deep (itself without limit, so without recursion)."""
    level: list[Any] = [value]
    for _ in range(limit):
        level = [
            child
            for each in level
            if isinstance(each, dict | list)
            for child in (each.values() if isinstance(each, dict) else each)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def misfits(value: Any, schema: JSONSchema, path: str = "") -> Iterator[str]:
    """What of a value does not fit a schema, in words."""
    if schema.anyOf and not any(_fits(value, arm) for arm in schema.anyOf):
        closest = min((list(misfits(value, arm, path)) for arm in schema.anyOf), key=len)
        shown = f": {closest[0]}" if len(closest) == 1 and len(schema.anyOf) == 1 else ""
        yield f"{_at(path)}{_shown(value)} is none of {' or '.join(_kind(arm) for arm in schema.anyOf)}{shown}"
        return
    kinds = [schema.type] if isinstance(schema.type, str) else schema.type or []
    if kinds and not any(_FITS[kind](value) for kind in kinds):
        yield f"{_at(path)}{_shown(value)} is not of type {' or '.join(kinds)}"
        return
    if schema.enum is not None and not any(_same(value, each) for each in schema.enum):
        yield f"{_at(path)}{_shown(value)} is none of {', '.join(repr(each) for each in schema.enum)}"
    yield from _outside(value, schema, path)
    if isinstance(value, list) and schema.items is not None:
        for place, each in enumerate(value):
            yield from misfits(each, schema.items, f"{path}[{place}]")
    if isinstance(value, dict) and (schema.properties is not None or schema.additionalProperties is not None):
        yield from _object(value, path, schema.properties or {}, schema.required or (), schema.additionalProperties)


def _object(
    value: Mapping[str, Any],
    path: str,
    properties: Mapping[str, JSONSchema],
    required: Sequence[str],
    others: JSONSchema | bool | None,
) -> Iterator[str]:
    for name in required:
        if name not in value:
            yield f"{_at(path)}{name!r} is required and missing"
    for name, each in value.items():
        inside = f"{path}.{name}" if path else name
        if (schema := properties.get(name)) is not None:
            yield from misfits(each, schema, inside)
        elif others is False:
            yield f"{_at(path)}there is no {name!r}; known: {', '.join(properties) or 'none'}"
        elif isinstance(others, JSONSchema):
            yield from misfits(each, others, inside)


def _outside(value: Any, schema: JSONSchema, path: str) -> Iterator[str]:
    """Bounds of numbers and texts."""
    if _is_number(value):
        if schema.minimum is not None and value < schema.minimum:
            yield f"{_at(path)}{value!r} is less than {schema.minimum}"
        if schema.maximum is not None and value > schema.maximum:
            yield f"{_at(path)}{value!r} is more than {schema.maximum}"
    if isinstance(value, str):
        if schema.minLength is not None and len(value) < schema.minLength:
            yield f"{_at(path)}{_shown(value)} is shorter than {schema.minLength} characters"
        if schema.maxLength is not None and len(value) > schema.maxLength:
            yield f"{_at(path)}{_shown(value)} is longer than {schema.maxLength} characters"
        if schema.pattern is not None and re.search(schema.pattern, value) is None:
            yield f"{_at(path)}{_shown(value)} does not match {schema.pattern}"


def _fits(value: Any, schema: JSONSchema) -> bool:
    return next(misfits(value, schema), None) is None


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def _at(path: str) -> str:
    return f"{path}: " if path else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _kind(schema: JSONSchema) -> str:
    if schema.enum is not None:
        return ", ".join(repr(each) for each in schema.enum)
    return schema.type if isinstance(schema.type, str) else "/".join(schema.type or ["anything"])


# -- conversion -------------------------------------------------------------------------------------------------------


def converter_for(t: Any) -> Convert:
    """A function that turns a JSON value into a value of a type, or raises `ToolParsingError`."""
    try:
        return _converter(t)
    except TypeError:  # a type that cannot be hashed, such as Literal[[]]
        return _made(t)


@functools.lru_cache(maxsize=1024)
def _converter(t: Any) -> Convert:
    return _made(t)


def _made(t: Any) -> Convert:
    t = bare(t)
    origin, arguments = get_origin(t) or t, get_args(t)
    if t in {int, float, str, bool}:
        return functools.partial(_scalar, t)
    if t in {datetime, date, time}:
        return functools.partial(_moment, t)
    if origin in UNIONS:
        return _union(arguments)
    if origin in ARRAYS:
        return functools.partial(_array, origin, t, arguments)
    if origin in OBJECTS:
        values = converter_for(arguments[1]) if len(arguments) > 1 else _as_it_is
        return lambda value: {key: values(each) for key, each in _of(dict, value, t).items()}
    if isinstance(origin, enum.EnumMeta) or is_pydantic(origin):
        return functools.partial(_called, origin)
    if has_members(origin):
        return functools.partial(_instance, origin)
    if origin is Literal:
        return _as_it_is
    return _as_it_is


def _as_it_is(value: Any) -> Any:
    """The value; of a container a copy, which a tool may change without changing the conversation."""
    return copy.deepcopy(value) if isinstance(value, dict | list) else value


def _scalar(t: Any, value: Any) -> Any:
    if type(value) is t:
        return value
    try:
        return t(value)
    except (TypeError, ValueError, OverflowError):
        raise ToolParsingError(f"{_shown(value)} is no {t.__name__}") from None


def _moment(t: Any, value: Any) -> Any:
    try:
        return t.fromisoformat(value)
    except (TypeError, ValueError) as error:
        raise ToolParsingError(f"{_shown(value)} is no {t.__name__} in ISO 8601: {error}") from None


def _union(arms: Sequence[Any]) -> Convert:
    """The first arm whose schema the value fits; where none does (the tool's own schema said it may), as it is."""
    choices = [(json_schema(arm), converter_for(arm)) for arm in arms]

    def convert(value: Any) -> Any:
        if value is None and type(None) in arms:
            return None
        problem: ToolParsingError | None = None
        for schema, converter in choices:
            if _fits(value, schema):
                try:
                    return converter(value)
                except ToolParsingError as error:  # a text that is no date may be the text that the next arm takes
                    problem = problem or error
        if problem is not None:
            raise problem
        return value

    return convert


def _array(origin: Any, t: Any, arguments: Sequence[Any], value: Any) -> Any:
    items = _of(list, value, t)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(items) != len(arguments):
            raise ToolParsingError(f"{len(arguments)} values are needed, not {len(items)}: {_shown(value)}")
        return tuple(converter_for(arm)(each) for arm, each in zip(arguments, items, strict=True))
    convert = converter_for(arguments[0]) if arguments else _as_it_is
    made = [convert(each) for each in items]
    if origin in {set, frozenset, tuple}:
        return origin(made)
    return made


def _called(cls: Any, value: Any) -> Any:
    make = cls.model_validate if is_pydantic(cls) else cls
    try:
        return make(value)
    except (TypeError, ValueError) as error:
        raise ToolParsingError(f"{_shown(value)} is no {cls.__name__}: {error}") from None


def _instance(cls: Any, value: Any) -> Any:
    given = _of(dict, value, cls)
    fields = members(cls)
    made = {each.name: converter_for(each.hint)(given[each.name]) for each in fields if each.name in given}
    missing = [each.name for each in fields if each.required and each.name not in given]
    if missing:
        raise ToolParsingError(f"{cls.__name__} needs {', '.join(missing)}: {_shown(value)}")
    if is_typeddict(cls):
        return made
    try:
        return cls(**made)
    except (TypeError, ValueError) as error:  # a validator of the class
        raise ToolParsingError(f"{_shown(value)} is no {cls.__name__}: {error}") from None


def _of(kind: Any, value: Any, t: Any) -> Any:
    if not isinstance(value, kind):
        raise ToolParsingError(f"{_shown(value)} is no {getattr(t, '__name__', t)}")
    return value
