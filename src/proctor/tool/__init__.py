"""Tools: functions that a model may call, and how its calls are run."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from proctor.errors import ToolApprovalError, ToolError, ToolParsingError
from proctor.model.schema import JSONSchema, JSONType, ToolParam, ToolParams
from proctor.model.toolcall import (
    ToolCall,
    ToolCallContent,
    ToolCallError,
    ToolCallView,
    ToolChoice,
    ToolFunction,
    ToolInfo,
)
from proctor.tool.definition import (
    Tool,
    ToolCallModelInput,
    ToolCallViewer,
    ToolDef,
    ToolResult,
    ToolSource,
    tool,
    tool_with,
)
from proctor.tool.schema import json_schema

if TYPE_CHECKING:
    from proctor.tool.commands import bash, code_viewer, python
    from proctor.tool.editor import text_editor
    from proctor.tool.sessions import bash_session
    from proctor.tool.thinking import think

# What works in a sandbox is imported at first use: models are called with tools, and know of no sandbox.
_LATER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bash": "proctor.tool.commands",
        "bash_session": "proctor.tool.sessions",
        "code_viewer": "proctor.tool.commands",
        "python": "proctor.tool.commands",
        "text_editor": "proctor.tool.editor",
        "think": "proctor.tool.thinking",
    }
)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "JSONSchema",
    "JSONType",
    "Tool",
    "ToolApprovalError",
    "ToolCall",
    "ToolCallContent",
    "ToolCallError",
    "ToolCallModelInput",
    "ToolCallView",
    "ToolCallViewer",
    "ToolChoice",
    "ToolDef",
    "ToolError",
    "ToolFunction",
    "ToolInfo",
    "ToolParam",
    "ToolParams",
    "ToolParsingError",
    "ToolResult",
    "ToolSource",
    "bash",
    "bash_session",
    "code_viewer",
    "json_schema",
    "python",
    "text_editor",
    "think",
    "tool",
    "tool_with",
]
