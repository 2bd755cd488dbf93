"""Whether a request is one that a vendor's own package would make: its types say so, not ours.

The packages (``anthropic``, ``google-genai``, ``botocore``) are imported when asked for; they are for tests only.
Where the types are typed dictionaries, unknown keys are found as well.
"""

from __future__ import annotations

import base64
import collections.abc
import functools
import importlib
import json
import types
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, Required, Union, get_args, get_origin

import typing_extensions


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Where two JSON values differ, a text each."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        found = []
        for key in sorted({*a, *b}, key=str):
            here = f"{path}.{key}" if path else str(key)
            if key not in a or key not in b:
                found.append(f"{here} is only in the {'first' if key in a else 'second'}")
            else:
                found += differences(a[key], b[key], here)
        return found
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        return [text for i, pair in enumerate(zip(a, b, strict=True)) for text in differences(*pair, f"{path}[{i}]")]
    return [] if a == b else [f"{path}: {a!r} is not {b!r}"]


def typed_problems(value: Any, kind: Any, path: str = "") -> list[str]:
    """What a value has that a typed dictionary, or what is in one, has not: missing and unknown keys, wrong types.

    Pydantic takes such types too, but lets unknown keys pass.
    """
    origin = get_origin(kind)
    if origin in {Annotated, Required, NotRequired}:
        return typed_problems(value, get_args(kind)[0], path)
    if kind in {Any, object} or (value is None and kind in {None, type(None)}):
        return []
    if origin in {Union, types.UnionType}:
        return min((typed_problems(value, arm, path) for arm in get_args(kind)), key=_badness)
    if origin is Literal:
        return [] if value in get_args(kind) else [f"{path}: {value!r} is none of {get_args(kind)}"]
    if typing_extensions.is_typeddict(kind):
        return _dict_problems(value, kind, path)
    if origin in LISTS or kind in LISTS or getattr(origin, "__name__", "") == "SequenceNotStr":
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no list"]
        inner = (*get_args(kind), Any)[0]
        return [text for i, one in enumerate(value) for text in typed_problems(one, inner, f"{path}[{i}]")]
    if origin in {dict, collections.abc.Mapping}:
        if not isinstance(value, Mapping):
            return [f"{path}: {value!r} is no mapping"]
        return [text for key, one in value.items() for text in typed_problems(one, get_args(kind)[1], f"{path}.{key}")]
    return _plain_problems(value, kind, path)


LISTS: Final = frozenset({list, collections.abc.Iterable, collections.abc.Sequence})


def _badness(problems: list[str]) -> tuple[int, int]:
    """How far a value is from an alternative: the one with the right ``type`` is the nearest."""
    return sum(" is none of " in text for text in problems), len(problems)


@functools.cache
def _fields(kind: Any) -> Mapping[str, Any]:
    """The types of a typed dictionary's keys, resolved: that takes a hundred times longer than to compare."""
    return typing_extensions.get_type_hints(kind, include_extras=True)


def _dict_problems(value: Any, kind: Any, path: str) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path}: {value!r} is no mapping"]
    fields = _fields(kind)
    found = [f"{path}.{key} is missing" for key in sorted(kind.__required_keys__ - set(value))]
    for key, one in value.items():
        found += typed_problems(one, fields[key], f"{path}.{key}") if key in fields else [f"{path}.{key} is unknown"]
    return found


def _plain_problems(value: Any, kind: Any, path: str) -> list[str]:
    plain = get_origin(kind) or getattr(kind, "__supertype__", kind)
    if not isinstance(plain, type) or plain.__module__ != "builtins":
        return [f"{path}: {value!r} is no {kind}"]  # a file, an open stream: nothing that JSON has
    right = isinstance(value, float | int) if plain is float else isinstance(value, plain)
    return [] if right and (plain is bool or not isinstance(value, bool)) else [f"{path}: {value!r} is no {kind}"]


def anthropic_problems(body: Mapping[str, Any], *, beta: bool = False) -> list[str]:
    """What the types of ``anthropic`` find wrong with a body of its Messages protocol.

    Args:
        beta: by the types of what is asked for with ``anthropic-beta``.
    """
    module = "anthropic.types.beta.message_create_params" if beta else "anthropic.types.message_create_params"
    given = {name: value for name, value in body.items() if name != "stream"}
    return typed_problems(given, importlib.import_module(module).MessageCreateParamsBase)


@functools.cache
def adapter_of(kind: Any, *, many: bool) -> Any:
    """Pydantic's adapter for a type, or for a list of it."""
    pydantic: Any = importlib.import_module("pydantic")
    return pydantic.TypeAdapter(list.__class_getitem__(kind) if many else kind)


def google_problems(body: Mapping[str, Any]) -> list[str]:
    """What the types of ``google-genai``, which take no unknown keys, find wrong with a body of generateContent."""
    pydantic = importlib.import_module("pydantic")
    genai: Any = importlib.import_module("google.genai.types")
    parts = {
        "contents": adapter_of(genai.Content, many=True),
        "systemInstruction": adapter_of(genai.Content, many=False),
        "tools": adapter_of(genai.Tool, many=True),
        "toolConfig": adapter_of(genai.ToolConfig, many=False),
        "safetySettings": adapter_of(genai.SafetySetting, many=True),
        "generationConfig": adapter_of(genai.GenerationConfig, many=False),
    }
    found = [f"{name} is no part of a request" for name in body if name not in parts]
    for name, adapter in parts.items():
        if name not in body:
            continue
        try:
            typed = adapter.validate_json(json.dumps(body[name]))
            taken = json.loads(adapter.dump_json(typed, by_alias=True, exclude_unset=True))
        except pydantic.ValidationError as error:
            found.append(f"{name}: {error}")
        else:
            found += differences(_one_alphabet(body[name]), _one_alphabet(taken), name)
    return found


def _one_alphabet(value: Any) -> Any:
    """A value whose bytes are in the alphabet of URLs: the protocol takes either, and the package writes that one."""
    if isinstance(value, Mapping):
        return {
            key: one.replace("+", "-").replace("/", "_")
            if key in {"data", "thoughtSignature"} and isinstance(one, str)
            else _one_alphabet(one)
            for key, one in value.items()
        }
    return [_one_alphabet(one) for one in value] if isinstance(value, list) else value


@functools.cache
def converse_operation(streamed: bool = False) -> Any:
    """Botocore's model of Converse, or of ConverseStream."""
    session = importlib.import_module("botocore.session").Session()
    return session.get_service_model("bedrock-runtime").operation_model("ConverseStream" if streamed else "Converse")


def bedrock_problems(body: Mapping[str, Any], model: str = "anthropic.claude") -> list[str]:
    """What botocore's validator finds wrong with a body of Converse, and where its own body for it differs."""
    validate = importlib.import_module("botocore.validate")
    serialize = importlib.import_module("botocore.serialize")
    operation = converse_operation()
    parameters = {"modelId": model, **with_blobs(body, operation.input_shape)}
    report = validate.ParamValidator().validate(parameters, operation.input_shape)
    if report.has_errors():
        return [report.generate_report()]
    sent = serialize.create_serializer("rest-json").serialize_to_request(parameters, operation)
    return differences(body, json.loads(sent["body"]))


def with_blobs(value: Any, shape: Any) -> Any:
    """A JSON value as botocore takes and gives it: what its shape says are bytes, decoded."""
    if shape.type_name == "structure" and isinstance(value, Mapping) and not getattr(shape, "is_document_type", False):
        known = shape.members
        return {name: with_blobs(one, known[name]) if name in known else one for name, one in value.items()}
    if shape.type_name == "list" and isinstance(value, list):
        return [with_blobs(one, shape.member) for one in value]
    if shape.type_name == "map" and isinstance(value, Mapping):
        return {name: with_blobs(one, shape.value) for name, one in value.items()}
    if shape.type_name == "blob" and isinstance(value, str):
        return base64.b64decode(value)
    return value
