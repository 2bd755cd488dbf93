"""Answers of OpenAI's Responses API, whole or streamed: wire to values. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proctor.errors import TransientModelError
from proctor.model.event_stream import ServerEvent
from proctor.model.messages import (
    ChatMessageAssistant,
    Citation,
    Content,
    ContentData,
    ContentImage,
    ContentReasoning,
    ContentText,
    UrlCitation,
)
from proctor.model.output import ChatCompletionChoice, Logprobs, ModelOutput, ModelUsage, StopDetails, StopReason
from proctor.model.providers.openai_chat_answer import logprobs_from_wire, parse_arguments
from proctor.model.providers.openai_responses import ALIASES, ENCRYPTED, MESSAGE_ID, MESSAGE_PHASE, REASONING_ID
from proctor.model.providers.service import StreamFailure, json_of
from proctor.model.toolcall import ToolCall, ToolInfo
from proctor.runtime.runtime import new_id

NAMES: Final[Mapping[str, str]] = {alias: name for name, alias in ALIASES.items()}
FINAL_EVENTS: Final = frozenset({"response.completed", "response.incomplete", "response.failed"})
REASONS: Final[Mapping[str, StopReason]] = {
    "max_output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "content_filter": "content_filter",
}


def output_from_wire(data: Mapping[str, Any], tools: list[ToolInfo], *, model: str) -> ModelOutput:
    """The output that a response holds.

    Args:
        model: who was asked, where the response does not say.
    """
    name = data.get("model") or model
    content: list[Content] = []
    calls: list[ToolCall] = []
    logprobs: Logprobs | None = None
    for item in data.get("output") or ():
        kind = item.get("type")
        if kind == "message":
            content += [text_from_wire(part, item) for part in item.get("content") or ()]
            logprobs = _logprobs(item) or logprobs
        elif kind == "reasoning":
            content.append(reasoning_from_wire(item))
        elif kind in {"function_call", "custom_tool_call"}:
            calls.append(call_from_wire(item, tools))
        elif kind == "image_generation_call" and item.get("result"):
            content.append(ContentImage(image=f"data:image/png;base64,{item['result']}"))
        else:  # what the vendor did on its own side goes back to it as it is
            content.append(ContentData(data=dict(item)))
    reason: StopReason = REASONS.get(str((data.get("incomplete_details") or {}).get("reason")), "stop")
    choice = ChatCompletionChoice(
        message=ChatMessageAssistant(content=content, source="generate", tool_calls=calls or None, model=name),
        stop_reason="tool_calls" if calls else reason,
        stop_details=_stop_details(content, reason),
        logprobs=logprobs,
    )
    return ModelOutput(
        model=name,
        choices=[choice],
        usage=usage_from_wire(data.get("usage")),
        metadata=dict(data["metadata"]) if data.get("metadata") else None,
        response_id=data.get("id"),
    )


def text_from_wire(part: Mapping[str, Any], item: Mapping[str, Any]) -> ContentText:
    """A part of a message: text or a refusal, with the message's id, under which it goes back."""
    internal = {MESSAGE_ID: item.get("id"), MESSAGE_PHASE: item.get("phase")}
    known = {name: value for name, value in internal.items() if value is not None} or None
    if part.get("type") == "refusal":
        return ContentText(text=str(part.get("refusal") or ""), refusal=True, internal=known)
    citations: list[Citation] = [
        UrlCitation(
            url=str(each.get("url") or ""),
            title=each.get("title"),
            cited_text=(each.get("start_index") or 0, each.get("end_index") or 0),
        )
        for each in part.get("annotations") or ()
        if each.get("type") == "url_citation"
    ]
    return ContentText(text=str(part.get("text") or ""), internal=known, citations=citations or None)


def reasoning_from_wire(item: Mapping[str, Any]) -> ContentReasoning:
    """An item of reasoning: its text, else what is encrypted of it."""
    text = "\n".join(part.get("text") or "" for part in item.get("content") or ())
    summary = "\n\n".join(part.get("text") or "" for part in item.get("summary") or ()) or None
    identity, encrypted = item.get("id"), item.get("encrypted_content")
    internal = {REASONING_ID: identity, ENCRYPTED: encrypted if text else None}
    return ContentReasoning(
        reasoning=text or encrypted or "",
        summary=summary,
        signature=identity,
        redacted=not text and bool(encrypted),
        internal={name: value for name, value in internal.items() if value is not None} or None,
    )


def call_from_wire(item: Mapping[str, Any], tools: list[ToolInfo]) -> ToolCall:
    """A tool call; arguments that cannot be read leave a `parse_error` for the model to see."""
    name = str(item.get("name") or "")
    identity = str(item.get("call_id") or item.get("id") or f"{name}_{new_id()}")
    if item.get("type") == "custom_tool_call":
        return ToolCall(id=identity, function=name, arguments={"input": item.get("input") or ""}, type="custom")
    name = NAMES.get(name, name)
    arguments, error = parse_arguments(name, item.get("arguments") or "{}", tools)
    return ToolCall(id=identity, function=name, arguments=arguments, parse_error=error)


def usage_from_wire(usage: Mapping[str, Any] | None) -> ModelUsage | None:
    """Tokens used; cached ones are taken out of the input, as the log has it."""
    if not usage:
        return None
    details = usage.get("input_tokens_details") or {}
    read, written = details.get("cached_tokens"), details.get("cache_write_tokens")
    given, made = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
    return ModelUsage(
        input_tokens=max(0, given - (read or 0) - (written or 0)),
        output_tokens=made,
        total_tokens=usage.get("total_tokens") or given + made,
        input_tokens_cache_write=written,
        input_tokens_cache_read=read,
        reasoning_tokens=(usage.get("output_tokens_details") or {}).get("reasoning_tokens"),
    )


def _logprobs(item: Mapping[str, Any]) -> Logprobs | None:
    entries = [entry for part in item.get("content") or () for entry in part.get("logprobs") or ()]
    return logprobs_from_wire({"content": entries})


def _stop_details(content: list[Content], reason: StopReason) -> StopDetails | None:
    refusals = [part.text for part in content if isinstance(part, ContentText) and part.refusal]
    if not refusals and reason != "content_filter":
        return None
    kind = "content_filter" if reason == "content_filter" else "refusal"
    return StopDetails(type=kind, explanation="\n".join(refusals) or None)


class ResponsesStream:
    """Waits for the event that carries the whole response; a `StreamReader`.

    Items that were done are kept, for servers whose last event has none.
    """

    missing = "response.completed"

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None
        self._items: list[dict[str, Any]] = []

    def take(self, event: ServerEvent) -> bool:
        """Take an event.

        Raises:
            StreamFailure: it is an error. TransientModelError: it is no JSON.
        """
        if event.done:
            return self._response is not None
        if not event.data:
            return False
        data = json_of(event.data)
        if not isinstance(data, dict):
            raise TransientModelError(f"the stream holds what is no JSON object: {event.data[:100]!r}")
        kind = data.get("type") or event.name
        if kind == "error" or (data.get("error") and "response" not in data):
            raise StreamFailure(data if isinstance(data.get("error"), dict | str) else _error_of(data))
        if kind == "response.output_item.done" and isinstance(item := data.get("item"), dict):
            self._items.append(item)
        if kind not in FINAL_EVENTS:
            return False
        self._response = dict(data.get("response") or {})
        if not self._response.get("output") and kind != "response.failed":
            self._response["output"] = self._items
        return True

    def ended(self) -> bool:
        """Never: there is nothing to go by without the last event."""
        return False

    def answer(self) -> dict[str, Any]:
        """The response."""
        return self._response or {}


def _error_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """The error of an event that has it in its own fields; its ``type`` is that of the event."""
    return {name: data[name] for name in ("code", "message", "param") if data.get(name) is not None}
