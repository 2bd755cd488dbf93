"""JSON Schema from Python types: for the parameters of tools and for structured output."""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import sys
import types
import typing
from collections.abc import Mapping
from datetime import date, datetime, time
from types import MappingProxyType
from typing import Any, Final, Literal, Union, cast, get_args, get_origin, get_type_hints, is_typeddict

import attrs
from attrs import frozen

from proctor.model.portable import plain
from proctor.model.schema import JSONSchema, JSONType

_SCALARS: Final[Mapping[Any, tuple[JSONType, str | None]]] = MappingProxyType(
    {
        int: ("integer", None),
        float: ("number", None),
        str: ("string", None),
        bool: ("boolean", None),
        type(None): ("null", None),
        datetime: ("string", "date-time"),
        date: ("string", "date"),
        time: ("string", "time"),
    }
)
ARRAYS: Final = frozenset(
    {list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Set}
)
OBJECTS: Final = frozenset({dict, collections.abc.Mapping, collections.abc.MutableMapping})
UNIONS: Final = frozenset({Union, types.UnionType})
_KNOWN: Final = frozenset(field.name for field in attrs.fields(JSONSchema))


@frozen
class Member:
    """A field of a class that becomes a JSON object.

    Attributes:
        name: of the property, which is that of the constructor's parameter. hint: its type.
        required: whether an object must have it. description: from the field's metadata.
    """

    name: str
    hint: Any
    required: bool
    description: str | None = None


def json_schema(t: Any) -> JSONSchema:
    """The JSON Schema of a type.

    Args:
        t: a scalar, `datetime`, `date`, `time`, an enum, a `Literal`, a list, tuple, set or mapping, a union, or a
            class with fields: attrs, dataclass, `TypedDict`, pydantic. Fields are described by
            ``metadata["description"]``.

    Returns:
        The schema; one that allows anything for a type that says nothing to JSON.
    """
    return _schema(t, frozenset())


def _schema(t: Any, open: frozenset[Any]) -> JSONSchema:
    """`open` holds the classes further up, so that one which contains itself comes to an end."""
    t = bare(t)
    if (scalar := _SCALARS.get(t) if _hashable(t) else None) is not None:
        return JSONSchema(type=scalar[0], format=scalar[1])
    origin, arguments = get_origin(t) or t, get_args(t)
    if origin in UNIONS:
        return JSONSchema(anyOf=[_schema(arm, open) for arm in arguments])
    if origin is Literal:
        return _choice(list(arguments))
    if origin in ARRAYS:
        return JSONSchema(type="array", items=_items(arguments, open))
    if origin in OBJECTS:
        values = _schema(arguments[1], open) if len(arguments) > 1 else JSONSchema()
        return JSONSchema(type="object", additionalProperties=values)
    if isinstance(origin, enum.EnumMeta):
        return _choice([each.value for each in cast("type[enum.Enum]", origin)])
    if is_pydantic(origin):
        return _of_pydantic(origin)
    if has_members(origin) and origin not in open:
        return _object(origin, open | {origin})
    return JSONSchema()


def bare(t: Any) -> Any:
    """A type without what only names or annotates it: `Annotated`, `NewType`, a ``type`` alias, `Required`."""
    while True:
        if get_origin(t) is not None and hasattr(t, "__metadata__"):
            t = t.__origin__
        elif isinstance(t, typing.NewType):
            t = t.__supertype__
        elif hasattr(t, "__value__") and hasattr(t, "__type_params__"):
            t = t.__value__
        elif get_origin(t) in {typing.Required, typing.NotRequired}:
            t = get_args(t)[0]
        else:
            return t


def has_members(t: Any) -> bool:
    """Whether it is a class with fields: attrs, dataclass or `TypedDict`."""
    return isinstance(t, type) and (attrs.has(t) or dataclasses.is_dataclass(t) or is_typeddict(t))


def members(t: Any) -> list[Member]:
    """The fields of a class with fields, in order, those that its constructor takes."""
    hints = _hints(t)
    if is_typeddict(t):
        return [Member(name, hint, name in t.__required_keys__) for name, hint in hints.items()]
    found = []
    if attrs.has(t):
        fields: tuple[attrs.Attribute[Any], ...] = attrs.fields(t)
        for field in fields:
            if field.init:
                hint, text = hints.get(field.name, field.type or Any), field.metadata.get("description")
                found.append(Member(field.alias or field.name, hint, field.default is attrs.NOTHING, text))
        return found
    for each in dataclasses.fields(t):
        if each.init:
            needed = each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
            hint, text = hints.get(each.name, each.type), each.metadata.get("description")
            found.append(Member(each.name, hint, needed, text))
    return found


def _hints(t: Any) -> dict[str, Any]:
    try:
        return get_type_hints(t)
    except (NameError, TypeError):  # a name that only a type checker imports
        return dict(getattr(t, "__annotations__", {}))


def is_pydantic(t: Any) -> bool:
    """Whether it is a model class of pydantic, which is not imported for the question."""
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(t, type) and issubclass(t, pydantic.BaseModel)


def _object(cls: Any, open: frozenset[Any]) -> JSONSchema:
    fields = members(cls)
    properties = {}
    for member in fields:
        properties[member.name] = made = _schema(member.hint, open)
        if member.description:
            made.description = member.description
    required = [member.name for member in fields if member.required]
    return JSONSchema(type="object", properties=properties, required=required or None, additionalProperties=False)


def _items(arguments: tuple[Any, ...], open: frozenset[Any]) -> JSONSchema:
    """What the values of an array may be; in a tuple of several types any of them, as `JSONSchema` has no places."""
    arms: list[JSONSchema] = []
    for argument in arguments:
        if argument is not Ellipsis and (arm := _schema(argument, open)) not in arms:
            arms.append(arm)
    if not arms:
        return JSONSchema()
    return arms[0] if len(arms) == 1 else JSONSchema(anyOf=arms)


def _choice(values: list[Any]) -> JSONSchema:
    if not values:
        return JSONSchema(enum=values)
    kind = _SCALARS.get(type(values[0]))
    return JSONSchema(type="string" if kind is None else kind[0], enum=values)


def _of_pydantic(cls: Any) -> JSONSchema:
    whole: dict[str, Any] = cls.model_json_schema()
    definitions: dict[str, Any] = whole.get("$defs", {})
    properties = {
        name: schema_from(_inlined(each, definitions, frozenset()))
        for name, each in whole.get("properties", {}).items()
    }
    return JSONSchema(
        type="object", properties=properties, required=whole.get("required") or None, additionalProperties=False
    )


def _inlined(node: Any, definitions: Mapping[str, Any], open: frozenset[str]) -> Any:
    """A schema with its references replaced by what they refer to, once along each path."""
    if isinstance(node, list):
        return [_inlined(each, definitions, open) for each in node]
    if not isinstance(node, dict):
        return node
    name = str(node.get("$ref", "")).removeprefix("#/$defs/")
    if name in definitions:
        rest = {key: value for key, value in node.items() if key != "$ref"}
        target = definitions[name] if name not in open else {}
        return _inlined({**target, **rest}, definitions, open | {name})
    return {key: _inlined(value, definitions, open) for key, value in node.items()}


def schema_from(value: Mapping[str, Any]) -> JSONSchema:
    """A schema from its JSON; keywords that `JSONSchema` has no field for are left out."""
    known = {key: each for key, each in value.items() if key in _KNOWN}
    if "const" in value:
        known.setdefault("enum", [value["const"]])
    for key in ("items", "additionalProperties"):
        if isinstance(known.get(key), Mapping):
            known[key] = schema_from(known[key])
    if (properties := known.get("properties")) is not None:
        known["properties"] = {name: schema_from(each) for name, each in properties.items()}
    if (arms := known.get("anyOf")) is not None:
        known["anyOf"] = [schema_from(each) for each in arms]
    return JSONSchema(**known)


def json_default(value: Any) -> Any:
    """A parameter's default as JSON can hold it."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if is_pydantic(type(value)):
        return cast("Any", value).model_dump()
    if isinstance(value, date | time):
        return value.isoformat()
    return plain(value)


def _hashable(t: Any) -> bool:
    return isinstance(t, collections.abc.Hashable)
