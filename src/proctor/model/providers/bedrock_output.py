"""Answers of Bedrock's Converse protocol: the events of a stream to a response, a response to an output. No I/O."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec

from proctor.errors import ModelError
from proctor.model.messages import (
    ChatMessageAssistant,
    Content,
    ContentData,
    ContentImage,
    ContentReasoning,
    ContentText,
)
from proctor.model.output import (
    ChatCompletionChoice,
    ModelOutput,
    ModelUsage,
    StopCategory,
    StopDetails,
    StopReason,
)
from proctor.model.providers.bedrock_content import REDACTED, Block
from proctor.model.providers.filtered import filter_details
from proctor.model.providers.openai_chat_answer import parse_arguments
from proctor.model.toolcall import ToolCall, ToolInfo

STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "content_filtered": "content_filter",
    "guardrail_intervened": "content_filter",
    "model_context_window_exceeded": "model_length",
}
FILTERED: Final = frozenset({"content_filtered", "guardrail_intervened"})


# -- a stream ---------------------------------------------------------------------------------------------------------


class ConverseAssembly:
    """The response that the events of a stream make up."""

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._role = "assistant"
        self._stopped: dict[str, Any] = {}
        self._metadata: dict[str, Any] = {}
        self.complete = False

    def feed(self, kind: str, event: Mapping[str, Any]) -> None:
        """Take one event; kinds that are not known are skipped.

        Args:
            kind: the event's type. event: its payload.
        """
        if kind == "messageStart":
            self._role = event.get("role") or self._role
        elif kind == "contentBlockStart":
            started = self._blocks.setdefault(event["contentBlockIndex"], {})
            started.update({name: dict(value) for name, value in (event.get("start") or {}).items()})
        elif kind == "contentBlockDelta":
            _extend(self._blocks.setdefault(event["contentBlockIndex"], {}), event.get("delta") or {})
        elif kind == "messageStop":
            self._stopped = dict(event)
        elif kind == "metadata":
            self._metadata = dict(event)
            self.complete = bool(self._stopped)

    def answer(self) -> dict[str, Any]:
        """The whole response."""
        content = [_whole(self._blocks[index]) for index in sorted(self._blocks)]
        return {
            "output": {"message": {"role": self._role, "content": [block for block in content if block]}},
            **self._stopped,
            **self._metadata,
        }


def _extend(block: Block, delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        if name == "text":
            block["text"] = block.get("text", "") + value
        elif name == "toolUse":
            use = block.setdefault("toolUse", {})
            use["input"] = use.get("input", "") + (value.get("input") or "")
        elif name == "reasoningContent":
            _extend_reasoning(block.setdefault("reasoningContent", {}), value)
        elif name == "citation":
            block.setdefault("citations", []).append(value)
        elif name == "toolResult":
            result = block.setdefault("toolResult", {})
            result["content"] = [*result.get("content", ()), *value]
        elif isinstance(value, Mapping):
            block[name] = {**block.get(name, {}), **value}


def _extend_reasoning(block: Block, delta: Mapping[str, Any]) -> None:
    for name, value in delta.items():
        if name == "redactedContent":
            block.setdefault(name, []).append(base64.b64decode(value))
        else:
            text = block.setdefault("reasoningText", {})
            text[name] = text.get(name, "") + value


def _whole(block: Block) -> Block:
    """A block as it would have come without a stream."""
    if (use := block.get("toolUse")) is not None:
        return {"toolUse": {**use, "input": _input(use.get("input") or "")}}
    if isinstance(parts := block.get("reasoningContent", {}).get("redactedContent"), list):
        return {"reasoningContent": {"redactedContent": base64.b64encode(b"".join(parts)).decode("ascii")}}
    if "citations" in block:
        cited = {"content": [{"text": block.get("text", "")}], "citations": block["citations"]}
        return {"citationsContent": cited}
    return block


def _input(text: str) -> Any:
    """The input of a call; what is no JSON stays text, and the model is told."""
    with suppress(msgspec.DecodeError, UnicodeError):
        return msgspec.json.decode(text) if text else {}
    return text


# -- a response -------------------------------------------------------------------------------------------------------


def output_from_wire(data: Mapping[str, Any], tools: list[ToolInfo], *, model: str) -> ModelOutput:
    """The output that a response holds.

    Args:
        model: who was asked.

    Raises:
        ModelError: it is no response.
    """
    message = (data.get("output") or {}).get("message")
    if not isinstance(message, dict):
        raise ModelError(f"bedrock/{model}: the answer has no message: {json.dumps(data, default=str)[:300]}")
    served = ((data.get("trace") or {}).get("promptRouter") or {}).get("invokedModelId") or model
    contents: list[Content] = []
    calls: list[ToolCall] = []
    for block in message.get("content") or ():
        use = block.get("toolUse")
        if use is not None:
            arguments, error = parse_arguments(use["name"], use.get("input") or {}, tools)
            calls.append(ToolCall(id=use["toolUseId"], function=use["name"], arguments=arguments, parse_error=error))
        else:
            contents += _contents(block)
    reason = data.get("stopReason") or ""
    choice = ChatCompletionChoice(
        message=ChatMessageAssistant(content=contents, source="generate", tool_calls=calls or None, model=served),
        stop_reason=STOP_REASONS.get(reason, "unknown"),
        stop_details=_stop_details(reason, data.get("trace") or {}),
    )
    return ModelOutput(model=served, choices=[choice], usage=usage_from_wire(data.get("usage")))


def _contents(block: Block) -> list[Content]:
    if "text" in block:
        return [ContentText(text=block["text"])]
    if (reasoning := block.get("reasoningContent")) is not None:
        return [_reasoning(reasoning)]
    if (image := block.get("image")) is not None and "bytes" in (image.get("source") or {}):
        return [ContentImage(image=f"data:image/{image['format']};base64,{image['source']['bytes']}")]
    if (cited := block.get("citationsContent")) is not None:
        text = "".join(part.get("text") or "" for part in cited.get("content") or ())
        return [ContentText(text=text, internal={"bedrock_citations": cited.get("citations") or []})]
    return [ContentData(data={"bedrock": block})]


def _reasoning(block: Block) -> ContentReasoning:
    text = block.get("reasoningText")
    if text is not None:
        return ContentReasoning(reasoning=text.get("text") or "", signature=text.get("signature"))
    data = block.get("redactedContent")
    return ContentReasoning(reasoning="", redacted=True, internal=None if data is None else {REDACTED: data})


def _stop_details(reason: str, trace: Mapping[str, Any]) -> StopDetails | None:
    """What a guardrail found; it tells only where its trace was asked for."""
    if reason not in FILTERED:
        return None
    categories = [category for found in _assessments(trace.get("guardrail") or {}) for category in _found(found)]
    return filter_details(reason, None, categories) if categories else None


def _assessments(guardrail: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = [*(guardrail.get("inputAssessment") or {}).values()]
    for value in (guardrail.get("outputAssessments") or {}).values():
        found += value if isinstance(value, list) else [value]
    return [one for one in found if isinstance(one, Mapping)]


def _found(assessment: Mapping[str, Any]) -> list[StopCategory]:
    filters = (assessment.get("contentPolicy") or {}).get("filters") or ()
    topics = (assessment.get("topicPolicy") or {}).get("topics") or ()
    return [
        *(
            StopCategory(category=str(one.get("type", "unknown")), level=one.get("confidence") or None)
            for one in filters
            if _blocked(one)
        ),
        *(StopCategory(category=str(one["name"])) for one in topics if _blocked(one) and one.get("name")),
    ]


def _blocked(one: Mapping[str, Any]) -> bool:
    return one.get("action") == "BLOCKED" or bool(one.get("detected"))


def usage_from_wire(usage: Mapping[str, Any] | None) -> ModelUsage | None:
    """Tokens used. The protocol counts what the cache took apart from the input already."""
    if not usage:
        return None
    given, made = usage.get("inputTokens") or 0, usage.get("outputTokens") or 0
    read, written = usage.get("cacheReadInputTokens"), usage.get("cacheWriteInputTokens")
    return ModelUsage(
        input_tokens=given,
        output_tokens=made,
        total_tokens=given + (read or 0) + (written or 0) + made,
        input_tokens_cache_read=read,
        input_tokens_cache_write=written,
    )
