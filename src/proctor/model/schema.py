"""JSON Schema as tools and structured output use it: a value class, field names as in the standard."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from attrs import define, field

from proctor.model.portable import Portable

JSONType: TypeAlias = Literal["string", "integer", "number", "boolean", "array", "object", "null"]


@define(kw_only=True)
class JSONSchema(Portable):
    """A JSON Schema; a field that is None is absent.

    Attributes:
        type: one JSON type or several. format: such as ``date-time``. description: for the model.
        default, enum, items, properties, additionalProperties, anyOf, required, pattern, minLength, maxLength,
        minimum, maximum, examples: as JSON Schema defines them.
    """

    type: JSONType | list[JSONType] | None = None
    format: str | None = None
    description: str | None = None
    default: Any = None
    enum: list[Any] | None = None
    items: JSONSchema | None = None
    properties: dict[str, JSONSchema] | None = None
    additionalProperties: JSONSchema | bool | None = None  # noqa: N815
    anyOf: list[JSONSchema] | None = None  # noqa: N815
    required: list[str] | None = None
    pattern: str | None = None
    minLength: int | None = None  # noqa: N815
    maxLength: int | None = None  # noqa: N815
    minimum: int | float | None = None
    maximum: int | float | None = None
    examples: list[Any] | None = None


ToolParam: TypeAlias = JSONSchema


@define(kw_only=True)
class ToolParams(Portable):
    """The parameters of a tool: an object schema."""

    type: Literal["object"] = "object"
    properties: dict[str, JSONSchema] = field(factory=dict)
    required: list[str] = field(factory=list)
    additionalProperties: JSONSchema | bool | None = False  # noqa: N815
