"""JSON to value classes: the reverse of `encode`, for logs of any version and of other programs.

Lenient on purpose: unknown fields are dropped, fields of simple types are taken as they are, what an older version
wrote otherwise is moved to where it is now. Neither msgspec nor cattrs reads these classes by itself: their fields are
unions of attrs classes told apart by a field (``event``, ``role``, ``type``), which msgspec refuses and which cattrs
needs a hook for each of. Walking the annotations once, as `encode` does, is shorter than those hooks.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import UnionType
from typing import Any, Final, TypeAlias, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import attrs

from proctor.errors import UsageError
from proctor.log.events import FOREIGN_KINDS, EventFields, ForeignEvent, SampleInitEvent
from proctor.log.samples import EvalSample
from proctor.log.scores import EvalSampleScore, Score
from proctor.log.spec import EvalConfig, EvalPlanStep, EvalResults, EvalSpec

T = TypeVar("T")
Builder: TypeAlias = Callable[[Any], Any]


def build(value: Any, kind: type[T]) -> T:
    """An instance of a value class from the dict that was read.

    Raises:
        TypeError: a field that the class cannot do without is missing.
    """
    return cast("T", _builder(cast("Any", kind))(value))


@functools.cache
def _builder(hint: Any) -> Builder:
    """How JSON becomes a value of this annotation."""
    if hint is datetime:
        return _time
    if attrs.has(hint):
        return _class(hint)
    origin, args = get_origin(hint), get_args(hint)
    if origin in {Union, UnionType}:
        return _union(args)
    if origin is tuple:
        return lambda value: tuple(value) if isinstance(value, list) else value
    if origin is list or origin is Sequence:
        one = _builder(args[0])
        return _same if one is _same else lambda value: [one(v) for v in value] if isinstance(value, list) else value
    if origin is dict:
        of = _builder(args[1])
        return _same if of is _same else lambda value: _values(value, of)
    return _same


def _same(value: Any) -> Any:
    return value


def _values(value: Any, of: Builder) -> Any:
    return {key: of(item) for key, item in value.items()} if isinstance(value, dict) else value


def _time(value: Any) -> Any:
    if isinstance(value, str):
        made = datetime.fromisoformat(value)
        return made if made.tzinfo is not None else made.replace(tzinfo=UTC)
    return datetime.fromtimestamp(value, UTC) if isinstance(value, int | float) else value


def _union(args: tuple[Any, ...]) -> Builder:
    """A list goes to the list in the union, a dict to the class its tag names, text to a time where there is one."""
    classes = [arg for arg in args if attrs.has(arg)]
    by_list = next((_builder(arg) for arg in args if get_origin(arg) in {list, Sequence, tuple}), _same)
    by_dict = _tagged(classes) if classes else next((_builder(a) for a in args if get_origin(a) is dict), _same)
    by_text = _time if datetime in args else _same
    if by_list is by_dict is by_text is _same:
        return _same

    def either(value: Any) -> Any:
        if value.__class__ is dict:
            return by_dict(value)
        if value.__class__ is list:
            return by_list(value)
        return by_text(value) if value.__class__ is str else value

    return either


def _tagged(classes: list[Any]) -> Builder:
    if len(classes) == 1:
        return _builder(classes[0])
    tag = next(name for name in ("event", "role", "type") if all(name in attrs.fields_dict(c) for c in classes))
    members = {attrs.fields_dict(cls)[tag].default: cls for cls in classes if cls is not ForeignEvent}

    def choose(value: dict[str, Any]) -> Any:
        cls = members.get(value.get(tag))
        if cls is not None:
            return _builder(cls)(value)
        if tag == "event":
            common = _class(EventFields)(value)
            names = [field.name for field in attrs.fields(EventFields)]
            said = {name: getattr(common, name) for name in names}
            return ForeignEvent(event=value.get("event", FOREIGN_KINDS[0]), fields=value, **said)
        return value

    return choose


@functools.cache
def _class(cls: Any) -> Builder:
    hints = get_type_hints(cls)
    fields = {
        field.metadata.get("name", field.name): (field.alias or field.name, _builder_later(hints[field.name]))
        for field in attrs.fields(cls)
        if field.init
    }
    if cls is SampleInitEvent:
        fields["sample"] = ("sample", _dataset_sample)
    before = _MOVED.get(cls)
    said = {
        field.name: None for field in attrs.fields(cls) if hints[field.name] is Any and field.default is attrs.NOTHING
    }

    def make(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if before is not None:
            value = before(value)
        found: dict[str, Any] = dict(said)
        for name, item in value.items():
            known = fields.get(name)
            if known is not None:
                found[known[0]] = known[1](item)
        return cls(**found)

    return make


def _dataset_sample(value: Any) -> Any:
    """The sample of a `SampleInitEvent` as the dataset had it; a dict where it is none that we can make."""
    from proctor.dataset.sample import Sample

    try:
        return build(value, Sample)
    except (TypeError, ValueError, UsageError):
        return value


def _builder_later(hint: Any) -> Builder:
    """The builder of a field; looked up at its first use, because classes may hold themselves."""
    if not attrs.has(hint) and not get_args(hint):
        return _builder(hint)

    def later(value: Any) -> Any:
        return _builder(hint)(value)

    return later


def _move_sample(value: dict[str, Any]) -> dict[str, Any]:
    value = dict(_move_arguments(value))
    if "score" in value:
        value.setdefault("scores", {"score": value.pop("score")})
    old = value.pop("transcript", None)
    if isinstance(old, Mapping):
        value.setdefault("events", old.get("events", []))
        value.setdefault("attachments", old.get("content", {}))
    return value


def _move_score(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "value": math.nan} if value.get("value") is None else value


def _move_step(value: dict[str, Any]) -> dict[str, Any]:
    return value if "params_passed" in value else {**value, "params_passed": value.get("params", {})}


def _move_arguments(value: dict[str, Any]) -> dict[str, Any]:
    """What samples and specs of old versions have in common."""
    sandbox = value.get("sandbox")
    if isinstance(sandbox, list):
        value = {**value, "sandbox": {"type": sandbox[0], "config": sandbox[1] if len(sandbox) > 1 else None}}
    for name in ("task_args", "solver_args"):
        if value.get(name) and f"{name}_passed" not in value:
            value = {**value, f"{name}_passed": value[name]}
    return value


def _move_config(value: dict[str, Any]) -> dict[str, Any]:
    return {**value, "message_limit": value["max_messages"]} if value.get("max_messages") else value


def _move_results(value: dict[str, Any]) -> dict[str, Any]:
    if "scorer" not in value or "scores" in value:
        return value
    scorer = value["scorer"] or {}
    said = dict(scorer) if isinstance(scorer, Mapping) else {"name": scorer}
    said = {**said, "scorer": said.get("name", ""), "metrics": value.get("metrics", {})}
    return {**value, "scores": [said]}


_MOVED: Final[Mapping[type, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    EvalSample: _move_sample,
    Score: _move_score,
    EvalSampleScore: _move_score,
    EvalConfig: _move_config,
    EvalPlanStep: _move_step,
    EvalSpec: _move_arguments,
    EvalResults: _move_results,
}
