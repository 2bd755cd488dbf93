"""Models: messages, configuration and output as values, and `get_model` to call one.

The value classes are imported here; what talks to a network is imported at first use, so that importing the
values (a log reader does) costs little and makes no circle of imports.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from proctor.model.config import (
    AdaptiveConcurrency,
    BatchConfig,
    CachePolicy,
    GenerateConfig,
    ImageOutput,
    ResponseSchema,
)
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageBase,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Citation,
    Content,
    ContentAudio,
    ContentCitation,
    ContentData,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    ContentToolUse,
    ContentVideo,
    DocumentCitation,
    UrlCitation,
)
from proctor.model.output import (
    ChatCompletionChoice,
    Logprob,
    Logprobs,
    ModelCall,
    ModelFallback,
    ModelOutput,
    ModelRequestId,
    ModelUsage,
    StopCategory,
    StopDetails,
    StopReason,
    TopLogprob,
)

if TYPE_CHECKING:
    from proctor.model.api import ModelAPI, RetryDecision, modelapi
    from proctor.model.cache import cache_clear, cache_list_expired, cache_path, cache_prune, cache_size
    from proctor.model.cost import ModelCost
    from proctor.model.generation import log_model_api
    from proctor.model.model import Model, evaluated_model, get_model, model_roles, roles
    from proctor.model.trim import trim_messages
    from proctor.tool.execution import ExecuteToolsResult, call_tools, execute_tools

_LATER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ExecuteToolsResult": "proctor.tool.execution",
        "cache_clear": "proctor.model.cache",
        "cache_list_expired": "proctor.model.cache",
        "cache_path": "proctor.model.cache",
        "cache_prune": "proctor.model.cache",
        "cache_size": "proctor.model.cache",
        "call_tools": "proctor.tool.execution",
        "execute_tools": "proctor.tool.execution",
        "trim_messages": "proctor.model.trim",
        "Model": "proctor.model.model",
        "ModelAPI": "proctor.model.api",
        "ModelCost": "proctor.model.cost",
        "RetryDecision": "proctor.model.api",
        "evaluated_model": "proctor.model.model",
        "get_model": "proctor.model.model",
        "log_model_api": "proctor.model.generation",
        "model_roles": "proctor.model.model",
        "modelapi": "proctor.model.api",
        "roles": "proctor.model.model",
    }
)


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AdaptiveConcurrency",
    "BatchConfig",
    "CachePolicy",
    "ChatCompletionChoice",
    "ChatMessage",
    "ChatMessageAssistant",
    "ChatMessageBase",
    "ChatMessageSystem",
    "ChatMessageTool",
    "ChatMessageUser",
    "Citation",
    "Content",
    "ContentAudio",
    "ContentCitation",
    "ContentData",
    "ContentDocument",
    "ContentImage",
    "ContentReasoning",
    "ContentText",
    "ContentToolUse",
    "ContentVideo",
    "DocumentCitation",
    "ExecuteToolsResult",
    "GenerateConfig",
    "ImageOutput",
    "Logprob",
    "Logprobs",
    "Model",
    "ModelAPI",
    "ModelCall",
    "ModelCost",
    "ModelFallback",
    "ModelOutput",
    "ModelRequestId",
    "ModelUsage",
    "ResponseSchema",
    "RetryDecision",
    "StopCategory",
    "StopDetails",
    "StopReason",
    "TopLogprob",
    "UrlCitation",
    "cache_clear",
    "cache_list_expired",
    "cache_path",
    "cache_prune",
    "cache_size",
    "call_tools",
    "evaluated_model",
    "execute_tools",
    "get_model",
    "log_model_api",
    "model_roles",
    "modelapi",
    "roles",
    "trim_messages",
]
