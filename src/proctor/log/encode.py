"""Values to JSON: None fields left out, at the speed of msgspec, and never a wrong number.

msgspec encodes attrs classes natively but writes a None field as ``null``, which doubles small records and which
readers refuse in some places. It drops defaults of its own Structs only. So each attrs class gets a Struct twin with
``omit_defaults`` and a generated function that copies the fields over, positionally: no loop, no test per field, and
only fields whose annotation can hold other attrs classes are looked into. A required field keeps its ``null``.

msgspec writes NaN and infinities as ``null`` and refuses lone surrogates and odd keys. A record in which either may
have happened goes through `json`, which writes ``NaN``; half a surrogate pair is written out as the six characters of
its escape, as Inspect does, because data frames of a log that holds one cannot be made. The test is exact and cheap:
no ``null`` in the text means no lost number; else the record is encoded as MessagePack, where a number that is not
finite has a bit pattern that UTF-8 text cannot contain.

Rejected: `msgspec.to_builtins` and a filter (8 times slower), a regular expression over the JSON (drops None from the
user's own dicts too), `enc_hook` (never called for attrs classes), pydantic, orjson (no attrs).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from enum import Enum
from types import UnionType
from typing import Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import attrs
import msgspec

Shaper: TypeAlias = Callable[..., Any]

DEPTH: Final = 200
"""Values nested deeper are cut: readers fail from about 250 levels on."""

_SCALARS: Final = frozenset({str, int, float, bool, type(None), datetime})
_KEPT: Final = object()
"""The default of a required field in its Struct twin: nothing is identical to it, so that nothing is left out."""


def encode(value: Any) -> bytes:
    """A value of the log as compact JSON in UTF-8; None fields of attrs classes are left out, at every depth.

    Args:
        value: an attrs instance, or lists and dicts of them.

    Returns:
        JSON, where ``NaN``, ``Infinity`` and ``-Infinity`` may stand for numbers.
    """
    return encode_shaped(shape(value))


def encode_shaped(shaped: Any, *, finite: bool = False) -> bytes:
    """What `shape` returned, as JSON.

    Args:
        finite: it is known that every number in it is.
    """
    try:
        data = _ENCODER.encode(shaped)
        if finite or b"null" not in data or not loses_numbers(shaped):
            return data
    except (UnicodeError, TypeError, ValueError, OverflowError, RecursionError):
        pass
    return json.dumps(plain(shaped), ensure_ascii=True, separators=(",", ":")).encode("ascii")


def decode(data: bytes) -> Any:
    """JSON of a log as dicts, lists and scalars: the reverse of `encode`.

    Raises:
        ValueError: it is none.
    """
    try:
        return msgspec.json.decode(data)
    except msgspec.DecodeError:  # NaN, infinities, lone surrogates
        return json.loads(data)


def to_builtins(value: Any) -> Any:
    """A value of the log as dicts, lists and scalars, exactly as `encode` would write it."""
    return plain(shape(value))


def shape(value: Any) -> Any:
    """A value with its attrs instances replaced by their Struct twins."""
    return SHAPERS[value.__class__](value)


def loses_numbers(shaped: Any) -> bool:
    """Whether there may be a number in it that is not finite; wrong only towards True."""
    data = _PACKER.encode(shaped)
    return b"\xcb\x7f" in data or b"\xcb\xff" in data


def _foreign(value: Any) -> Any:
    """What an object that JSON has no form for is written as; None and truth values come here as keys only."""
    if value is None or value.__class__ is bool:
        return _key(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int | float):
        return float(value) if isinstance(value, float) else int(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return list(value)
    for method in ("model_dump", "tolist", "_asdict"):
        made = getattr(value, method, None)
        if callable(made):
            return made()
    return str(value)


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_foreign)
_PACKER: Final = msgspec.msgpack.Encoder(enc_hook=_foreign)


def plain(value: Any, depth: int = 0) -> Any:
    """Shaped values as what `json` can write, whatever is in them; the slow path, which never fails."""
    if value.__class__ is str:
        return _text(value)
    if value is None or value.__class__ in {int, float, bool}:
        return value
    if depth > DEPTH:
        return "(nested too deeply)"
    if isinstance(value, msgspec.Struct):
        return _plain_struct(value, depth)
    if isinstance(value, msgspec.Raw):
        return json.loads(bytes(value))
    if isinstance(value, dict):
        return {_key(key): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Enum):
        return plain(value.value, depth + 1)
    if attrs.has(value.__class__):
        return plain(SHAPERS[value.__class__](value), depth)
    return plain(_foreign(value), depth + 1)


def _plain_struct(value: msgspec.Struct, depth: int) -> dict[str, Any]:
    return {
        written: plain(item, depth + 1)
        for name, written, default in zip(
            value.__struct_fields__, value.__struct_encode_fields__, value.__struct_defaults__, strict=True
        )
        if (item := getattr(value, name)) is not default
    }


def _text(text: str) -> str:
    """Text that has a form in UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _key(key: Any) -> str:
    if key is None or key.__class__ is bool:
        return {True: "true", False: "false", None: "null"}[key]
    return _text(str(key))


class _Shapers(dict[type, Shaper]):
    """How a value of each type is shaped; made when the type is first met."""

    def __missing__(self, kind: type) -> Shaper:
        made = self[kind] = shaper(kind) if attrs.has(kind) else _container(kind)
        return made


def _container(kind: type) -> Shaper:
    if issubclass(kind, list | tuple):
        return _shape_list
    if issubclass(kind, dict):
        return _shape_dict
    return _same


def _same(value: Any) -> Any:
    return value


def _shape_list(value: Any) -> list[Any]:
    return [SHAPERS[item.__class__](item) for item in value]


def _shape_dict(value: Any) -> dict[Any, Any]:
    return {key: SHAPERS[item.__class__](item) for key, item in value.items()}


def _shape_any(value: Any) -> Any:
    """A value of the user's own: attrs instances in it, or in a list of them, are shaped; dicts are left alone."""
    if value.__class__ is list:
        return _shape_list(value) if value and attrs.has(value[0].__class__) else value
    return SHAPERS[value.__class__](value) if value.__class__ is not dict else value


SHAPERS: Final = _Shapers()


def shaper(kind: type, given: tuple[str, ...] = ()) -> Shaper:
    """Make the function that turns an instance of an attrs class into its Struct twin.

    Args:
        kind: the class. given: fields that the function takes as further arguments instead of from the instance,
            already shaped.
    """
    fields = [field for field in attrs.fields(kind) if field.metadata.get("written", True)]
    hints = get_type_hints(kind)
    twin = _twin(kind, fields)
    scope: dict[str, Any] = {"twin": twin, "SHAPERS": SHAPERS, "any_": _shape_any}
    parts = []
    for field in fields:
        if field.name in given:
            parts.append(field.name)
        elif _is_flat(hints.get(field.name, Any)):
            parts.append(f"o.{field.name}")
        elif hints.get(field.name, Any) is Any:
            parts.append(f"any_(o.{field.name})")
        else:
            parts.append(f"None if (v := o.{field.name}) is None else SHAPERS[v.__class__](v)")
    source = f"def shape({', '.join(['o', *given])}):\n    return twin({', '.join(parts)})\n"
    exec(source, scope)  # noqa: S102  # as attrs and dataclasses make theirs; the names are those of fields
    return scope["shape"]  # type: ignore[no-any-return]


def _twin(kind: type, fields: list[attrs.Attribute[Any]]) -> type[msgspec.Struct]:
    return msgspec.defstruct(
        kind.__name__,
        [(field.name, Any, _KEPT if field.default is attrs.NOTHING else None) for field in fields],
        omit_defaults=True,
        rename={field.name: field.metadata["name"] for field in fields if "name" in field.metadata},
        gc=False,
        eq=False,
    )


def _is_flat(hint: Any) -> bool:
    """Whether a value of this annotation holds no attrs class that the log knows."""
    origin, args = get_origin(hint), get_args(hint)
    if hint in _SCALARS or origin is Literal or hint is Ellipsis:
        return True
    if origin is dict:
        return args[1] is Any or _is_flat(args[1])
    return origin in {list, tuple, Union, UnionType} and all(_is_flat(arg) for arg in args)
