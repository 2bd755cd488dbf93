"""Requests of OpenAI's chat completions, which most servers speak: values to wire. No I/O but files.

What a vendor calls a field, or does not have, is in its row of the table (vendors.py); answers are in
openai_chat_answer.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from proctor.errors import ModelError
from proctor.model.config import GenerateConfig, ResponseSchema
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentAudio,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    ContentVideo,
)
from proctor.model.portable import plain
from proctor.model.providers.media import as_url, base64_of
from proctor.model.providers.vendors import SELF_HOSTED_FIELDS, Vendor
from proctor.model.toolcall import ToolChoice, ToolFunction, ToolInfo

PATH: Final = "/chat/completions"
REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
REASONING_DETAILS: Final = "reasoning_details"


async def request_body(
    model: str,
    input: list[ChatMessage],
    tools: list[ToolInfo],
    tool_choice: ToolChoice,
    config: GenerateConfig,
    *,
    row: Vendor,
    system_role: str = "system",
) -> dict[str, Any]:
    """The body of a request.

    Args:
        model: the vendor's name for it. row: what the vendor calls the fields, and which it has.
        system_role: of system messages.
    """
    body: dict[str, Any] = {"model": model, "messages": await messages_to_wire(input, config, system_role=system_role)}
    if tools:
        body["tools"] = [tool_to_wire(tool, without=row.refuses_tool_schema) for tool in tools]
        body["tool_choice"] = choice_to_wire(tool_choice)
        if config.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = config.parallel_tool_calls
    body.update(parameters(config, row))
    if (schema := config.response_schema) is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": schema_to_wire(schema)}
    body.update(config.extra_body or {})
    return body


def parameters(config: GenerateConfig, row: Vendor) -> dict[str, Any]:
    """The fields of a request that are fields of a configuration, under the vendor's names."""
    body: dict[str, Any] = {}
    for name, wire in row.fields.items():
        value = getattr(config, name)
        if name == "reasoning_effort" and value in row.efforts:
            value = row.efforts[value]
        if name == "logit_bias" and isinstance(value, Mapping):
            value = {str(token): int(bias) if float(bias).is_integer() else bias for token, bias in value.items()}
        if value is not None:
            body[wire] = value
    return body


def unsupported(config: GenerateConfig, row: Vendor) -> list[str]:
    """Options of a configuration that say something and have no field in the vendor's chat completions."""
    return [name for name in SELF_HOSTED_FIELDS if name not in row.fields and getattr(config, name) is not None]


def schema_to_wire(schema: ResponseSchema) -> dict[str, Any]:
    """A response schema as ``json_schema`` has it."""
    wire = {
        "name": schema.name,
        "schema": plain(schema.json_schema, exclude_none=True),
        "description": schema.description,
        "strict": schema.strict,
    }
    return {name: value for name, value in wire.items() if value is not None}


async def messages_to_wire(
    messages: list[ChatMessage], config: GenerateConfig, *, system_role: str = "system"
) -> list[dict[str, Any]]:
    """The messages of a request. Images that a tool gave follow its message, whose own content can only be text."""
    keep = reasoning_kept(messages, config)
    wire: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        if images and not isinstance(message, ChatMessageTool):
            wire.append({"role": "user", "content": images})
            images = []
        wire.append(await message_to_wire(message, reasoning=i in keep, system_role=system_role))
        if isinstance(message, ChatMessageTool) and message.error is None:
            images += [await part_to_wire(part) for part in message.content_list if isinstance(part, ContentImage)]
    if images:
        wire.append({"role": "user", "content": images})
    return wire


def reasoning_kept(messages: list[ChatMessage], config: GenerateConfig) -> frozenset[int]:
    """The places of the messages whose reasoning is sent back to the model."""
    history = config.reasoning_history or "all"
    places = [i for i, message in enumerate(messages) if message.role == "assistant"]
    if history == "last":
        places = places[-1:]
    return frozenset() if history == "none" else frozenset(places)


async def message_to_wire(
    message: ChatMessage, *, reasoning: bool = True, system_role: str = "system"
) -> dict[str, Any]:
    """One message of a request; `reasoning`: send a model's earlier reasoning back to it."""
    match message:
        case ChatMessageSystem():
            return {"role": system_role, "content": message.text}
        case ChatMessageUser():
            if isinstance(message.content, str):
                return {"role": "user", "content": message.content}
            return {"role": "user", "content": [await part_to_wire(part) for part in message.content]}
        case ChatMessageAssistant():
            return _assistant_to_wire(message, reasoning=reasoning)
        case ChatMessageTool():
            return {"role": "tool", "content": tool_text(message), "tool_call_id": message.tool_call_id or ""}
    raise TypeError(f"{message!r} is no chat message")


def tool_text(message: ChatMessageTool) -> str:
    """The text of a tool's message, as a model is told it."""
    return f"Error: {message.error.message}" if message.error is not None else message.text


def _assistant_to_wire(message: ChatMessageAssistant, *, reasoning: bool) -> dict[str, Any]:
    texts: list[str] = []
    wire: dict[str, Any] = {"role": "assistant", "content": ""}
    for part in message.content_list:
        if isinstance(part, ContentText):
            texts.append(part.text)
        elif isinstance(part, ContentReasoning) and reasoning:
            wire.update(_reasoning_to_wire(part, texts))
    wire["content"] = "\n".join(texts)
    if message.tool_calls:
        wire["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function, "arguments": json.dumps(call.arguments)},
            }
            for call in message.tool_calls
        ]
    return wire


def _reasoning_to_wire(part: ContentReasoning, texts: list[str]) -> dict[str, Any]:
    """Reasoning in the field that it came in; without one it goes among the texts, where it is readable."""
    if part.internal in REASONING_FIELDS:
        return {part.internal: part.reasoning}
    if isinstance(part.internal, Mapping) and REASONING_DETAILS in part.internal:
        return {REASONING_DETAILS: part.internal[REASONING_DETAILS]}
    if not part.redacted or part.summary:
        texts.append(part.text)
    return {}


async def part_to_wire(part: Content) -> dict[str, Any]:
    """One content of a user's message.

    Raises:
        UsageError: a file cannot be read. ModelError: the protocol has no such content.
    """
    match part:
        case ContentText():
            return {"type": "text", "text": part.text}
        case ContentImage():
            image = {"url": await as_url(part.image)}
            if part.detail != "auto":
                image["detail"] = "high" if part.detail == "original" else part.detail
            return {"type": "image_url", "image_url": image}
        case ContentAudio():
            url = await as_url(part.audio)
            return {"type": "input_audio", "input_audio": {"data": base64_of(url), "format": part.format}}
        case ContentVideo():
            return {"type": "video_url", "video_url": {"url": await as_url(part.video)}}
        case ContentDocument():
            url = await as_url(part.document, mime_type=part.mime_type)
            return {"type": "file", "file": {"filename": part.filename, "file_data": url}}
    raise ModelError(f"chat completions cannot carry a content of type {part.type!r} in a user's message")


def tool_to_wire(tool: ToolInfo, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
    """A tool as it is offered; `without`: fields of its schema that the vendor refuses."""
    parameters = without_keys(plain(tool.parameters, exclude_none=True), without)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def without_keys(schema: Any, refused: frozenset[str]) -> Any:
    """A JSON schema without some of its keywords, at every depth; names of properties are no keywords."""
    if not refused:
        return schema
    if isinstance(schema, list):
        return [without_keys(item, refused) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {each: without_keys(item, refused) for each, item in value.items()}
        if name == "properties"
        else without_keys(value, refused)
        for name, value in schema.items()
        if name not in refused
    }


def choice_to_wire(choice: ToolChoice) -> str | dict[str, Any]:
    """Which tool must be called."""
    if isinstance(choice, ToolFunction):
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice == "any" else choice
