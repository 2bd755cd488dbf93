"""Answers of Anthropic's Messages protocol: the events of a stream to a message, and a message to an output. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from proctor.errors import ModelError
from proctor.model.messages import (
    ChatMessageAssistant,
    Citation,
    Content,
    ContentCitation,
    ContentData,
    ContentReasoning,
    ContentText,
    ContentToolUse,
    DocumentCitation,
    DocumentRange,
    UrlCitation,
)
from proctor.model.output import (
    ChatCompletionChoice,
    ModelFallback,
    ModelOutput,
    ModelUsage,
    StopCategory,
    StopDetails,
    StopReason,
)
from proctor.model.providers.anthropic_content import AFTER, OURS, RANGES, Block
from proctor.model.providers.openai_chat_answer import parse_arguments
from proctor.model.toolcall import ToolCall, ToolInfo

STOP_REASONS: Final[Mapping[str, StopReason]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "max_tokens",
    "refusal": "content_filter",
    "model_context_window_exceeded": "model_length",
}
STATUSES: Final[Mapping[str, int]] = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""The HTTP status that an error within a stream would have had, by its type."""
LONG_TITLE: Final = 255  # characters of a citation's title that are accepted when it comes back
TOOL_TYPES: Final = {"web_search": "web_search", "web_fetch": "web_search"}


# -- a stream ---------------------------------------------------------------------------------------------------------


class MessageAssembly:
    """The message that the events of a stream make up."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {}
        self.complete = False
        self._inputs: dict[int, list[str]] = {}

    def feed(self, event: Mapping[str, Any]) -> None:
        """Take one event; those of kinds that are not known are skipped, as the vendor asks.

        Raises:
            ModelError: events that cannot follow each other.
        """
        kind = event.get("type")
        if kind == "message_start":
            self.message = {**event["message"], "content": list(event["message"].get("content") or ())}
        elif kind in {"content_block_start", "content_block_delta", "content_block_stop", "message_delta"}:
            if not self.message:
                raise ModelError(f"the stream has a {kind} before its message_start")
            getattr(self, f"_{kind}")(event)
        elif kind == "message_stop":
            self.complete = bool(self.message)

    def _content_block_start(self, event: Mapping[str, Any]) -> None:
        self.message["content"].append(dict(event["content_block"]))

    def _content_block_delta(self, event: Mapping[str, Any]) -> None:
        index, delta = event["index"], event["delta"]
        try:
            block: Block = self.message["content"][index]
        except IndexError:
            raise ModelError(f"the stream has a delta of block {index} before its start") from None
        match delta.get("type"):
            case "text_delta":
                block["text"] = block.get("text", "") + delta["text"]
            case "thinking_delta":
                block["thinking"] = block.get("thinking", "") + delta["thinking"]
            case "signature_delta":
                block["signature"] = delta["signature"]
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
            case "compaction_delta":
                block["content"] = (block.get("content") or "") + (delta.get("content") or "")

    def _content_block_stop(self, event: Mapping[str, Any]) -> None:
        text = "".join(self._inputs.pop(event["index"], ()))
        if text:
            block = self.message["content"][event["index"]]
            try:
                block["input"] = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeError):
                block["input"] = text  # told to the model when the call is read

    def _message_delta(self, event: Mapping[str, Any]) -> None:
        self.message.update({name: value for name, value in event["delta"].items() if value is not None})
        usage = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
        self.message["usage"] = {**(self.message.get("usage") or {}), **usage}  # totals, not differences


def status_of(error: Mapping[str, Any]) -> int:
    """The HTTP status that an error event would have had as a response."""
    inner = error.get("error")
    return STATUSES.get(str(inner.get("type")) if isinstance(inner, Mapping) else "", 500)


# -- a message --------------------------------------------------------------------------------------------------------


def output_from_wire(data: Mapping[str, Any], tools: list[ToolInfo], *, model: str) -> ModelOutput:
    """The output that a message holds.

    Args:
        model: who was asked.

    Raises:
        ModelError: it is no message.
    """
    blocks = data.get("content")
    if not isinstance(blocks, list):
        raise ModelError(f"{model}: the answer is no message: {json.dumps(data, default=str)[:300]}")
    contents, calls = contents_from_wire(blocks, tools)
    served, fallback = _fallback(blocks, data.get("model") or model)
    choice = ChatCompletionChoice(
        message=ChatMessageAssistant(content=contents, source="generate", tool_calls=calls or None, model=served),
        stop_reason=STOP_REASONS.get(data.get("stop_reason") or "", "unknown"),
        stop_details=_stop_details(data.get("stop_details")),
    )
    return ModelOutput(
        model=served,
        choices=[choice],
        usage=usage_from_wire(data.get("usage")),
        fallback=fallback,
        response_id=data.get("id"),
    )


def contents_from_wire(blocks: list[Block], tools: list[ToolInfo]) -> tuple[list[Content], list[ToolCall]]:
    """The contents and the tool calls of a message."""
    contents: list[Content] = []
    calls: list[ToolCall] = []
    after: list[str] = []  # calls since the last content
    pending: dict[str, Block] = {}
    last_fallback = max((i for i, block in enumerate(blocks) if block.get("type") == "fallback"), default=-1)
    for i, block in enumerate(blocks):
        kind = block.get("type", "")
        if i < last_fallback and kind in {"thinking", "redacted_thinking", "tool_use"}:
            continue  # of a model that declined; the protocol refuses them when they come back
        if kind == "tool_use":
            calls.append(_call(block, tools))
            after.append(calls[-1].id)
        elif kind in {"server_tool_use", "mcp_tool_use"}:
            pending[block["id"]] = block
        elif (part := _content(block, pending)) is not None:
            if after:
                part.internal = {**(part.internal or {}), AFTER: after}
                after = []
            contents.append(part)
    contents += [ContentData(data={OURS: block}) for block in pending.values()]
    return contents, calls


def _call(block: Block, tools: list[ToolInfo]) -> ToolCall:
    arguments, error = parse_arguments(block["name"], block.get("input") or {}, tools)
    return ToolCall(id=block["id"], function=block["name"], arguments=arguments, parse_error=error)


def _content(block: Block, pending: dict[str, Block]) -> Content | None:
    kind = block.get("type", "")
    if kind == "text":
        return _text(block)
    if kind == "thinking":
        return ContentReasoning(
            reasoning=block.get("signature") or "",
            summary=block.get("thinking") or "",
            redacted=True,
            internal={OURS: "thinking"},
        )
    if kind == "redacted_thinking":
        return ContentReasoning(reasoning=block["data"], redacted=True, internal={OURS: "redacted_thinking"})
    if kind.endswith("_tool_result") and (use := pending.pop(block.get("tool_use_id", ""), None)) is not None:
        return _tool_use(use, block)
    return ContentData(data={OURS: block})


def _text(block: Block) -> ContentText | None:
    if block.get("text") is None:
        return None
    citations = [_citation(one) for one in block.get("citations") or ()]
    return ContentText(text=block["text"], citations=citations or None)


def _tool_use(use: Block, result: Block) -> ContentToolUse:
    content = result.get("content")
    error = content.get("error_code") if isinstance(content, dict) else None
    if use["type"] == "mcp_tool_use":
        kind = "mcp_call"
        error = error or ("error" if result.get("is_error") else None)
    else:
        kind = TOOL_TYPES.get(use["name"], "code_execution")
    return ContentToolUse(
        tool_type=kind,  # type: ignore[arg-type]
        id=use["id"],
        name=use["name"],
        context=use.get("server_name"),
        arguments=json.dumps(use.get("input") or {}),
        result=content if isinstance(content, str) else json.dumps(content),
        error=error,
        internal={OURS: [use, result]},
    )


def _citation(wire: Mapping[str, Any]) -> Citation:
    kind, cited = wire.get("type"), wire.get("cited_text")
    if kind == "web_search_result_location":
        title = wire.get("title")
        if title is not None and len(title) > LONG_TITLE:
            title = f"{title[: LONG_TITLE - 1]}…"
        internal = {"encrypted_index": wire.get("encrypted_index")}
        return UrlCitation(cited_text=cited, title=title, url=wire.get("url") or "", internal=internal)
    for name, (known, start, end, first) in RANGES.items():
        if kind == known:
            return DocumentCitation(
                cited_text=cited,
                title=wire.get("document_title"),
                range=DocumentRange(type=name, start_index=wire[start] - first, end_index=wire[end] - first),  # type: ignore[arg-type]
                internal={"document_index": wire.get("document_index")},
            )
    return ContentCitation(cited_text=cited, title=wire.get("title"), internal=dict(wire))


def _stop_details(details: Mapping[str, Any] | None) -> StopDetails | None:
    if not details:
        return None
    category = details.get("category")
    return StopDetails(
        type=details.get("type"),
        category=category,
        explanation=details.get("explanation"),
        categories=[StopCategory(category=category)] if category else [],
    )


def _fallback(blocks: list[Block], model: str) -> tuple[str, ModelFallback | None]:
    """Who answered, and the record of it where that was another than the one asked."""
    handoffs = [
        {"from": (block.get("from") or {}).get("model"), "to": (block.get("to") or {}).get("model")}
        for block in blocks
        if block.get("type") == "fallback"
    ]
    if not handoffs or not handoffs[-1]["to"]:
        return model, None
    asked, served = handoffs[0]["from"] or model, handoffs[-1]["to"]
    return served, ModelFallback(model=asked, fallback_model=served, metadata={"handoffs": handoffs})


def usage_from_wire(usage: Mapping[str, Any] | None) -> ModelUsage | None:
    """Tokens used. The protocol counts what the cache took apart from the input already."""
    if not usage:
        return None
    given, made = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
    written, read = usage.get("cache_creation_input_tokens"), usage.get("cache_read_input_tokens")
    thought = (usage.get("output_tokens_details") or {}).get("thinking_tokens")
    return ModelUsage(
        input_tokens=given,
        output_tokens=made,
        total_tokens=given + (written or 0) + (read or 0) + made,
        input_tokens_cache_write=written,
        input_tokens_cache_read=read,
        reasoning_tokens=thought or None,
    )
