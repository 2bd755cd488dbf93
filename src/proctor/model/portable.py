"""What value classes share with the pydantic models of code that is being ported.

Ported evaluations call ``message.model_copy(update=...)`` or ``output.model_dump()``. Value classes here are plain
attrs classes, because msgspec encodes those natively and five times faster than pydantic; this mixin gives them
the handful of methods that such code uses. It has no fields and no state. A base class of pydantic's own was
rejected: it would make every message of every sample pay for validation.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, Union, cast, get_args, get_origin

import attrs

if TYPE_CHECKING:
    from cattrs import Converter

_MISSING = object()


class Portable:
    """`model_copy`, `model_dump`, `model_dump_json`, `model_validate` for an attrs class."""

    __slots__ = ()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, with the fields in `update` replaced; `deep` copies what the fields hold too."""
        made = copy.deepcopy(self) if deep else copy.copy(self)
        for name, value in (update or {}).items():
            setattr(made, name, value)
        return made

    def model_dump(
        self,
        *,
        mode: str = "python",
        exclude_none: bool = False,
        include: set[str] | None = None,
        exclude: set[str] | None = None,
    ) -> dict[str, Any]:
        """The fields as plain dicts and lists.

        Args:
            mode: accepted for ported code; both of its modes give the same here.
            exclude_none: leave out fields that are None, at every depth.
            include, exclude: names of top-level fields to keep or to leave out.
        """
        whole = cast("dict[str, Any]", plain(self, exclude_none=exclude_none))
        return {
            name: value
            for name, value in whole.items()
            if (include is None or name in include) and (exclude is None or name not in exclude)
        }

    def model_dump_json(self, *, exclude_none: bool = False, indent: int | None = None) -> str:
        """The fields as JSON text; numbers that are not finite become NaN and Infinity, as in a log."""
        import json

        return json.dumps(plain(self, exclude_none=exclude_none), indent=indent, default=str)

    @classmethod
    def model_validate(cls, value: Any) -> Self:
        """Build an instance from a mapping (an instance is returned as it is).

        Raises:
            Exception: of cattrs, where a required field is missing or a value has the wrong type.
        """
        return value if isinstance(value, cls) else converter().structure(value, cls)


def plain(value: Any, *, exclude_none: bool = False) -> Any:
    """`value` with attrs classes turned into dicts, tuples and sets into lists, recursively."""
    if isinstance(value, str | int | float | bool | None):
        return value
    if isinstance(value, Mapping):
        return {key: plain(item, exclude_none=exclude_none) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, exclude_none=exclude_none) for item in value]
    kind: type = type(value)
    names = field_names(kind)
    if names is None:
        return value
    return {
        name: plain(item, exclude_none=exclude_none)
        for name in names
        if (item := getattr(value, name)) is not None or not exclude_none
    }


@functools.cache
def field_names(cls: type) -> tuple[str, ...] | None:
    """The public fields of an attrs class in order, None for any other class."""
    if not attrs.has(cls):
        return None
    return tuple(field.name for field in attrs.fields(cls) if not field.name.startswith("_"))


@functools.cache
def converter() -> Converter:
    """The cattrs converter that knows the unions of messages, contents and citations (by their tag field)."""
    from cattrs.preconf.json import make_converter

    made = make_converter(forbid_extra_keys=False)
    register_structure_hooks(made)
    return made


def register_structure_hooks(target: Converter) -> None:
    """Teach a cattrs converter the unions of this package's value classes.

    Args:
        target: a converter; only structuring is touched.
    """
    from proctor.model import messages

    target.register_structure_hook_func(_is_mixed_union, functools.partial(_structure_mixed, target))
    _tagged(target, messages.Content, "type")
    _tagged(target, messages.Citation, "type")
    _tagged(target, messages.ChatMessage, "role")


def _tagged(target: Converter, union: Any, tag: str) -> None:
    by_tag = {attrs.fields_dict(cls)[tag].default: cls for cls in union.__args__}

    def structure(value: Any, _: Any) -> Any:
        if attrs.has(type(value)):
            return value
        cls = by_tag.get(value.get(tag, _MISSING))
        if cls is None:
            raise ValueError(f"{tag} is {value.get(tag)!r}; known: {', '.join(map(str, by_tag))}")
        return target.structure(value, cls)

    target.register_structure_hook_func(lambda kind: kind == union, structure)


def _is_mixed_union(kind: Any) -> bool:
    """Whether a type is a union like ``str | list[Content]`` or ``bool | CachePolicy | None``: its JSON tells which."""
    return get_origin(kind) in {Union, types.UnionType}


def _structure_mixed(target: Converter, value: Any, kind: Any) -> Any:
    arms = get_args(kind)
    if isinstance(value, Mapping):
        arm = next((arm for arm in arms if attrs.has(arm) or get_origin(arm) is dict), None)
    elif isinstance(value, list | tuple):
        arm = next((arm for arm in arms if get_origin(arm) in {list, tuple, Sequence}), None)
        if arm is not None and get_origin(arm) is Sequence:
            arm = list[get_args(arm)[0]]  # type: ignore[misc]
    else:
        scalars = [arm for arm in arms if isinstance(arm, type) or get_origin(arm) is Literal or arm is Any]
        if any(_is_scalar(value, arm) for arm in scalars) or attrs.has(type(value)):
            return value
        arm = None
    if arm is None:
        raise ValueError(f"{value!r} is none of {', '.join(str(arm) for arm in arms)}")
    return target.structure(value, arm)


def _is_scalar(value: Any, arm: Any) -> bool:
    if get_origin(arm) is Literal:
        return value in get_args(arm)
    if arm is float:
        return isinstance(value, int | float)
    return arm is Any or (isinstance(arm, type) and isinstance(value, arm))
