"""Streams of OpenAI's chat completions: chunks put together to the completion that they are parts of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import define, field

from proctor.errors import TransientModelError
from proctor.model.event_stream import ServerEvent
from proctor.model.providers.openai_chat import REASONING_DETAILS, REASONING_FIELDS
from proctor.model.providers.service import StreamFailure, json_of

TEXTS: Final = ("content", "refusal", *REASONING_FIELDS)
FIRST_COUNTS: Final = ("id", "object", "created", "model", "service_tier", "system_fingerprint")
LAST_COUNTS: Final = ("usage", "prompt_logprobs")


@define(eq=False)
class _Call:
    """A tool call of which parts have come."""

    id: str = ""
    name: str = ""
    arguments: list[str] = field(factory=list)

    def wire(self) -> dict[str, Any]:
        function = {"name": self.name, "arguments": "".join(self.arguments)}
        return {"id": self.id, "type": "function", "function": function}


@define(eq=False)
class _Choice:
    """A choice of which parts have come."""

    texts: dict[str, list[str]] = field(factory=dict)
    pieces: list[Any] = field(factory=list)  # of a content that is a list
    details: list[dict[str, Any]] = field(factory=list)
    calls: dict[int, _Call] = field(factory=dict)
    logprobs: dict[str, list[Any]] = field(factory=dict)
    finish_reason: str | None = None
    filtered: Any = None

    def take(self, choice: Mapping[str, Any]) -> None:
        """Take a chunk's part of this choice."""
        delta = choice.get("delta") or {}
        for name in TEXTS:
            if isinstance(part := delta.get(name), str):
                self.texts.setdefault(name, []).append(part)
        if isinstance(content := delta.get("content"), list):
            self.pieces += content
        for detail in delta.get(REASONING_DETAILS) or ():
            if isinstance(detail, dict):
                self._take_detail(detail)
        for call in delta.get("tool_calls") or ():
            self._take_call(call)
        for name, values in (choice.get("logprobs") or {}).items():
            if isinstance(values, list):
                self.logprobs.setdefault(name, []).extend(values)
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.filtered = choice.get("content_filter_results") or self.filtered

    def _take_call(self, part: Mapping[str, Any]) -> None:
        place, name = part.get("index"), (part.get("function") or {}).get("name")
        if not isinstance(place, int):  # some servers do not count: an id or a name begins the next call
            starts = bool(part.get("id") or name) or not self.calls
            place = max(self.calls, default=-1) + starts
        call = self.calls.setdefault(place, _Call())
        call.id = call.id or str(part.get("id") or "")
        call.name += name or ""
        arguments = (part.get("function") or {}).get("arguments")
        if isinstance(arguments, str):
            call.arguments.append(arguments)
        elif isinstance(arguments, dict):
            call.arguments.append(json.dumps(arguments))

    def _take_detail(self, part: dict[str, Any]) -> None:
        """A part of reasoning: it goes on with the last one where it has its place and type."""
        last = self.details[-1] if self.details else {}
        if not last or any(part.get(name) != last.get(name) for name in ("index", "type")):
            self.details.append(dict(part))
            return
        for name, value in part.items():
            if name in {"text", "summary", "data"} and isinstance(value, str):
                last[name] = (last.get(name) or "") + value
            elif value is not None:
                last[name] = value

    def wire(self, index: int) -> dict[str, Any]:
        """The choice of the completion."""
        message: dict[str, Any] = {"role": "assistant", "content": None}
        message |= {name: "".join(parts) for name, parts in self.texts.items()}
        if self.pieces:
            message["content"] = [*_as_pieces(message["content"]), *self.pieces]
        if self.details:
            message[REASONING_DETAILS] = self.details
        if self.calls:
            message["tool_calls"] = [call.wire() for _, call in sorted(self.calls.items())]
        choice: dict[str, Any] = {"index": index, "message": message, "finish_reason": self.finish_reason}
        if self.logprobs:
            choice["logprobs"] = self.logprobs
        if self.filtered:
            choice["content_filter_results"] = self.filtered
        return choice


def _as_pieces(text: str | None) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] if text else []


class ChatStream:
    """Puts chunks together; a `StreamReader`."""

    missing = "[DONE]"

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._choices: dict[int, _Choice] = {}

    def take(self, event: ServerEvent) -> bool:
        """Take a chunk.

        Raises:
            StreamFailure: it is an error. TransientModelError: it is no JSON.
        """
        if event.done:
            return True
        if not event.data:
            return False
        chunk = json_of(event.data)
        if not isinstance(chunk, dict):
            raise TransientModelError(f"the stream holds what is no JSON object: {event.data[:100]!r}")
        self._check(event.name, chunk)
        for name in FIRST_COUNTS:
            if chunk.get(name) is not None:
                self._head.setdefault(name, chunk[name])
        for name in LAST_COUNTS:
            if chunk.get(name) is not None:
                self._head[name] = chunk[name]
        for choice in chunk.get("choices") or ():
            self._choices.setdefault(choice.get("index") or 0, _Choice()).take(choice)
        return False

    def ended(self) -> bool:
        """Whether nothing is missing but the last event: some servers send none."""
        return bool(self._choices) and all(choice.finish_reason for choice in self._choices.values())

    def answer(self) -> dict[str, Any]:
        """The completion."""
        choices = [choice.wire(index) for index, choice in sorted(self._choices.items())]
        return {**self._head, "object": "chat.completion", "choices": choices}

    def _check(self, name: str, chunk: dict[str, Any]) -> None:
        groq = chunk.get("x_groq")
        if isinstance(groq, dict):
            if groq.get("error"):
                raise StreamFailure(groq["error"])
            if groq.get("usage"):
                self._head["usage"] = groq["usage"]
        if chunk.get("error"):
            raise StreamFailure(chunk)
        if name == "error" or chunk.get("object") == "error":
            raise StreamFailure(chunk)
