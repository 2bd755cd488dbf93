"""Tool calls and the description of tools that a model is offered: value classes."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from attrs import define, field

from proctor.model.portable import Portable
from proctor.model.schema import ToolParams

ToolCallErrorType: TypeAlias = Literal[
    "parsing",
    "timeout",
    "unicode_decode",
    "permission",
    "file_not_found",
    "is_a_directory",
    "limit",
    "approval",
    "cancelled",
    "sandbox_unavailable",
    "unknown",
    "output_limit",
]


@define(kw_only=True)
class ToolCallContent(Portable):
    """How a tool call is shown: text or markdown under a plain title."""

    title: str | None = None
    format: Literal["text", "markdown"]
    content: str = ""


@define(kw_only=True)
class ToolCallView(Portable):
    """The view of one tool call: what surrounds it and the call itself, each optional."""

    context: ToolCallContent | None = None
    call: ToolCallContent | None = None


@define
class ToolCall(Portable):
    """A call of a tool that a model asked for.

    Attributes:
        id: names the call; the tool's message answers to it.
        function: the tool's name. arguments: by parameter name.
        parse_error: why the arguments could not be read, None when they could.
        view: how to show it. type: ``custom`` for a call whose single argument is free text.
    """

    id: str
    function: str
    arguments: dict[str, Any]
    parse_error: str | None = None
    view: ToolCallContent | None = None
    type: Literal["function", "custom"] = "function"


@define
class ToolCallError(Portable):
    """The error of a tool call that the model is told of."""

    type: ToolCallErrorType
    message: str


@define(kw_only=True)
class ToolInfo(Portable):
    """A tool as it is offered to a model: name, description, parameters.

    Attributes:
        options: what a provider may use to choose an implementation of its own.
    """

    name: str
    description: str
    parameters: ToolParams = field(factory=ToolParams)
    options: dict[str, Any] | None = None


@define
class ToolFunction(Portable):
    """A tool choice that names the tool which must be called."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "any", "none"] | ToolFunction
