"""Whether a record is one that every reader of the format accepts, checked on the bytes that will be written.

Readers validate a whole log at once: one score without a value or one message with a wrong field makes all of its
samples unreadable. So each record is decoded once more into Structs that are typed as the format demands, made from
the annotations of the value classes. msgspec does that faster than any test in Python (about half the time of
encoding), and it also covers what objects of users were turned into. Parts that may hold any JSON are skipped over.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs
import msgspec

from proctor.log.events import FOREIGN_KINDS, ForeignEvent, SampleInitEvent, ToolEvent
from proctor.log.scores import Score, ScoreEdit
from proctor.log.spec import SandboxEnvironmentSpec
from proctor.model.messages import (
    ChatMessage,
    ContentAudio,
    ContentDocument,
    ContentImage,
    ContentText,
    ContentVideo,
)
from proctor.model.schema import JSONSchema

Scalar: TypeAlias = str | int | float | bool
ToolResult: TypeAlias = ContentText | ContentImage | ContentAudio | ContentVideo | ContentDocument


@attrs.define
class SampleFields:
    """What the `sample` of a `SampleInitEvent` must look like."""

    input: str | list[ChatMessage]
    choices: list[str] | None = None
    target: str | list[str] = ""
    id: int | str | None = None
    description: str | None = None
    metadata: dict[str, Any] | None = None
    sandbox: SandboxEnvironmentSpec | None = None
    files: dict[str, str] | None = None
    setup: str | None = None


_VALUE: Final = Scalar | list[Scalar] | dict[str, Scalar | None]
_SAID: Final[Mapping[tuple[type, str], Any]] = {
    (Score, "value"): _VALUE,
    (ScoreEdit, "value"): _VALUE,
    (ToolEvent, "result"): Scalar | ToolResult | list[ToolResult],
    (SampleInitEvent, "sample"): SampleFields,
}
"""Fields whose annotation says less than the format demands."""

_TAGS: Final = ("event", "role", "type")


def problem(data: bytes, kind: Any) -> str | None:
    """What is wrong with a record, None when nothing is.

    Args:
        data: its JSON. kind: the value class (or a list of one) that it must be readable as.

    Returns:
        What was expected and found, and where: ``Expected `str`, got `int` - at `$.scores[...].answer```.
    """
    try:
        decoder(kind).decode(data)
    except msgspec.ValidationError as error:
        return str(error)
    except msgspec.DecodeError:  # NaN, or escapes of surrogates: JSON of Python's own kind
        return problem_of(_loads(data), kind)
    return None


def problem_of(value: Any, kind: Any) -> str | None:
    """The same for a record given as dicts and lists."""
    try:
        msgspec.convert(value, check_type(kind, Any))
    except msgspec.ValidationError as error:
        return str(error)
    return None


def _loads(data: bytes) -> Any:
    import json

    return json.loads(data)


@functools.cache
def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """The decoder that checks records of a value class."""
    return msgspec.json.Decoder(check_type(kind))


@functools.cache
def check_type(hint: Any, anything: Any = msgspec.Raw) -> Any:
    """The type, in msgspec's terms, that JSON written for a value of this annotation must have.

    Args:
        anything: what stands for any JSON; the default skips it unread, and works on JSON only.
    """
    if hint is Any or hint is JSONSchema:  # the latter is recursive, and any object is one
        return anything
    if attrs.has(hint):
        return _struct(hint, anything)
    origin, args = get_origin(hint), get_args(hint)
    if origin is Literal or origin is None:
        return hint
    if origin in {Union, UnionType}:
        return _union(args, anything)
    if issubclass(origin, tuple):
        return tuple[tuple(arg if arg is Ellipsis else check_type(arg, anything) for arg in args)]  # type: ignore[misc]
    if issubclass(origin, Mapping):
        return dict[str, check_type(args[1], anything)]  # type: ignore[misc]
    if issubclass(origin, Sequence):
        return list[check_type(args[0], anything)]  # type: ignore[misc]
    return hint


def _union(args: tuple[Any, ...], anything: Any) -> Any:
    if datetime in args:  # written as text either way
        args = tuple(arg for arg in args if arg is not str)
    members = [check_type(arg, anything) for arg in args if arg is not ForeignEvent]
    if ForeignEvent in args:
        members += [_foreign(kind) for kind in FOREIGN_KINDS]
    return anything if anything in members else Union[tuple(members)]  # noqa: UP007


@functools.cache
def _foreign(kind: str) -> type[msgspec.Struct]:
    return msgspec.defstruct(f"Foreign_{kind}", [], tag_field="event", tag=kind)


@functools.cache
def _struct(cls: type, anything: Any) -> type[msgspec.Struct]:
    hints = get_type_hints(cls)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    renamed, tag = {}, _tag(cls)
    for field in attrs.fields(cls):
        if field.name == tag or not field.metadata.get("written", True):
            continue
        hint = check_type(_SAID.get((cls, field.name), hints[field.name]), anything)
        fields.append((field.name, hint) if field.default is attrs.NOTHING else (field.name, hint, None))
        renamed[field.name] = field.metadata.get("name", field.name)
    return msgspec.defstruct(
        cls.__name__,
        fields,
        kw_only=True,
        gc=False,
        eq=False,
        rename=renamed,
        tag_field=tag,
        tag=attrs.fields_dict(cls)[tag].default if tag else None,
    )


def _tag(cls: type) -> str | None:
    """The field that tells members of a union apart: one whose only value is its default."""
    hints, fields = get_type_hints(cls), attrs.fields_dict(cls)
    for name in _TAGS:
        if name in fields and get_args(hints[name]) == (fields[name].default,):
            return name
    return None
