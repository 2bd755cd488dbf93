"""``mistral/<model>``: Mistral's models, by its chat completions, which differ from OpenAI's.

Contents are lists of chunks, reasoning among them; a tool call's id is nine letters and digits; after a tool's
message no user's message may come, so that one goes into the tool's; ``any`` is the choice that forces a call.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Final

from proctor.errors import ModelError
from proctor.model.config import GenerateConfig
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    Content,
    ContentAudio,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
)
from proctor.model.output import ModelOutput
from proctor.model.providers.media import as_url, base64_of
from proctor.model.providers.openai_chat import (
    choice_to_wire,
    parameters,
    reasoning_kept,
    schema_to_wire,
    tool_text,
    tool_to_wire,
    unsupported,
)
from proctor.model.providers.openai_compatible import CompatibleAPI
from proctor.model.providers.vendors import vendor
from proctor.model.toolcall import ToolChoice, ToolInfo

CALL_ID: Final = re.compile(r"[a-zA-Z0-9]{9}")
THINKING: Final = "thinking"
NO_CONTENT: Final = "(no content)"  # an empty text is refused


class MistralAPI(CompatibleAPI):
    """A client of one model of Mistral's.

    Args:
        model_args: ``safe_prompt``, ``prompt_mode``, ``stream``.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, config, row=vendor("mistral"), **model_args)

    async def chat_body(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> dict[str, Any]:
        """The body of a request."""
        self.tell_unsupported(unsupported(config, self.row))
        body: dict[str, Any] = {
            **self.extras,
            "model": self.sent_name,
            "messages": await messages_to_wire(input, config),
            **parameters(config, self.row),
        }
        if tools:
            body["tools"] = [tool_to_wire(tool, without=self.row.refuses_tool_schema) for tool in tools]
            body["tool_choice"] = "any" if tool_choice == "any" else choice_to_wire(tool_choice)
            if config.parallel_tool_calls is not None:
                body["parallel_tool_calls"] = config.parallel_tool_calls
        if (schema := config.response_schema) is not None:
            body["response_format"] = {"type": "json_schema", "json_schema": schema_to_wire(schema)}
        body.update(config.extra_body or {})
        return body

    def chat_answer(self, data: dict[str, Any], tools: list[ToolInfo]) -> ModelOutput:
        """The output of a completion; contents that are lists of chunks are read apart."""
        output = super().chat_answer(data, tools)
        wire = sorted(data["choices"], key=lambda choice: choice.get("index") or 0)
        for choice, read in zip(wire, output.choices, strict=True):
            content = (choice.get("message") or {}).get("content")
            if isinstance(content, list):
                read.message.content = chunks_from_wire(content)
        output.completion = output.choices[0].message.text
        return output


async def messages_to_wire(messages: list[ChatMessage], config: GenerateConfig) -> list[dict[str, Any]]:
    """The messages of a request."""
    keep = reasoning_kept(messages, config)
    wire: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        one = await _message_to_wire(message, reasoning=i in keep)
        if wire and one["role"] == "user" and wire[-1]["role"] == "tool":
            wire[-1]["content"] = [*_chunks(wire[-1]["content"]), *_chunks(one["content"])]
        else:
            wire.append(one)
    return wire


async def _message_to_wire(message: ChatMessage, *, reasoning: bool) -> dict[str, Any]:
    if isinstance(message, ChatMessageSystem):
        return {"role": "system", "content": message.text or NO_CONTENT}
    if isinstance(message, ChatMessageTool):
        images = [part for part in message.content_list if isinstance(part, ContentImage)]
        text = tool_text(message)
        content: Any = text
        if images and message.error is None:
            content = [*_chunks(text or NO_CONTENT), *[await chunk_to_wire(image) for image in images]]
        return {
            "role": "tool",
            "tool_call_id": call_id(message.tool_call_id or ""),
            "name": message.function,
            "content": content,
        }
    parts = [part for part in message.content_list if not _withheld(part, reasoning=reasoning)]
    if isinstance(message.content, str):
        wire: dict[str, Any] = {"role": message.role, "content": message.content or NO_CONTENT}
    else:
        wire = {"role": message.role, "content": [await chunk_to_wire(part) for part in parts]}
    if isinstance(message, ChatMessageAssistant) and message.tool_calls:
        if not message.text:
            thoughts = [chunk for chunk in _chunks(wire["content"]) if chunk["type"] == "thinking"]
            wire["content"] = thoughts or ""
        wire["tool_calls"] = [
            {
                "id": call_id(call.id),
                "type": "function",
                "function": {"name": call.function, "arguments": json.dumps(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return wire


def _withheld(part: Content, *, reasoning: bool) -> bool:
    """Whether reasoning is not sent back: it is not wanted, or another vendor has sealed it."""
    return isinstance(part, ContentReasoning) and (part.redacted or not reasoning)


def call_id(identity: str) -> str:
    """A tool call's id as Mistral takes it: one from elsewhere gets nine characters of its own, always the same."""
    if CALL_ID.fullmatch(identity):
        return identity
    return hashlib.blake2b(identity.encode(), digest_size=8).hexdigest()[:9]


def _chunks(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else [{"type": "text", "text": content or NO_CONTENT}]


async def chunk_to_wire(part: Content) -> dict[str, Any]:
    """One content of a message.

    Raises:
        UsageError: a file cannot be read. ModelError: the protocol has no such content.
    """
    match part:
        case ContentText():
            return {"type": "text", "text": part.text or NO_CONTENT}
        case ContentReasoning():
            thought = {"type": "thinking", "thinking": [{"type": "text", "text": part.reasoning}]}
            ours = part.internal == THINKING and part.signature is not None
            return {**thought, "signature": part.signature} if ours else thought
        case ContentImage():
            detail = "high" if part.detail == "original" else part.detail
            return {"type": "image_url", "image_url": {"url": await as_url(part.image), "detail": detail}}
        case ContentAudio():
            return {"type": "input_audio", "input_audio": base64_of(await as_url(part.audio))}
        case ContentDocument():
            url = await as_url(part.document, mime_type=part.mime_type)
            return {"type": "document_url", "document_url": url, "document_name": part.filename}
    raise ModelError(f"Mistral's chat completions cannot carry a content of type {part.type!r}")


def chunks_from_wire(chunks: list[Any]) -> list[Content]:
    """The contents of an answer; parts of one kind that follow each other are one, as streams have many."""
    content: list[Content] = []
    for chunk in (each if isinstance(each, dict) else {"type": "text", "text": str(each)} for each in chunks):
        last = content[-1] if content else None
        if chunk.get("type") == "thinking":
            parts = [part for part in chunk.get("thinking") or () if isinstance(part, dict)]
            thought = "".join(part.get("text") or "" for part in parts)
            if not isinstance(last, ContentReasoning):
                content.append(last := ContentReasoning(reasoning="", internal=THINKING))
            last.reasoning += thought
            last.signature = chunk.get("signature") or last.signature
        elif chunk.get("type") == "image_url":
            url = chunk.get("image_url")
            content.append(ContentImage(image=url.get("url", "") if isinstance(url, dict) else str(url)))
        elif isinstance(text := chunk.get("text") or chunk.get("document_url"), str):
            if isinstance(last, ContentText):
                last.text += text
            else:
                content.append(ContentText(text=text))
    return content
