"""Requests of OpenAI's Responses API: values to wire. No I/O but files.

Nothing is stored with the vendor unless that is asked for: what a model must be told of its earlier reasoning goes
back and forth encrypted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from proctor.errors import ModelError
from proctor.model.config import GenerateConfig, ImageOutput
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentAudio,
    ContentData,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    ContentVideo,
)
from proctor.model.portable import plain
from proctor.model.providers.media import as_url
from proctor.model.providers.openai_chat import reasoning_kept, tool_text, without_keys
from proctor.model.toolcall import ToolCall, ToolChoice, ToolFunction, ToolInfo

PATH: Final = "/responses"
MESSAGE_ID: Final = "message_id"
MESSAGE_PHASE: Final = "message_phase"
REASONING_ID: Final = "reasoning_id"
ENCRYPTED: Final = "reasoning_encrypted_content"
ALIASES: Final[Mapping[str, str]] = {"python": "python_exec"}  # names of its own tools
VIDEO_TYPES: Final[Mapping[str, str]] = {"mp4": "video/mp4", "mpeg": "video/mpeg", "mov": "video/quicktime"}


@frozen(kw_only=True)
class Ask:
    """What a model takes of a request.

    Attributes:
        reasoning: it has options of reasoning. sampling: it takes temperature, top_p and logprobs.
        effort: of reasoning, by the vendor's name. summary: of reasoning, None for none.
        store: the vendor keeps the response. parallel: it takes `parallel_tool_calls`.
        system_role: of system messages. strict: tools are declared strict where their schema allows it.
        reasoning_text: its reasoning goes back as text where it is not encrypted.
    """

    reasoning: bool = True
    sampling: bool = True
    effort: str | None = None
    summary: str | None = None
    store: bool = False
    parallel: bool = True
    system_role: str = "developer"
    strict: bool = False
    reasoning_text: bool = False


async def request_body(
    model: str,
    input: list[ChatMessage],
    tools: list[ToolInfo],
    tool_choice: ToolChoice,
    config: GenerateConfig,
    ask: Ask,
) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any] = {"model": model, "input": await input_to_wire(input, config, ask)}
    if drawing := _drawing(config):
        body["tools"] = drawing
    if tools:
        body["tools"] = [*(tool_to_wire(tool, strict=ask.strict) for tool in tools), *drawing]
        body["tool_choice"] = choice_to_wire(tool_choice, tools)
        if config.parallel_tool_calls is not None and ask.parallel:
            body["parallel_tool_calls"] = config.parallel_tool_calls
    if config.max_tokens is not None:
        body["max_output_tokens"] = config.max_tokens
    include = _sampling(body, config) if ask.sampling else []
    if not ask.store:
        body["store"] = False
        include += ["reasoning.encrypted_content"] if ask.reasoning else []
    if include:
        body["include"] = include
    if ask.reasoning and (reasoning := _reasoning(config, ask)):
        body["reasoning"] = reasoning
    if text := _text(config):
        body["text"] = text
    body.update(config.extra_body or {})
    return body


def unsupported(config: GenerateConfig, ask: Ask) -> list[str]:
    """Options of a configuration that say something and that this model takes no notice of."""
    names = ["frequency_penalty", "presence_penalty", "stop_seqs", "logit_bias", "seed", "num_choices", "top_k"]
    if not ask.sampling:
        names += ["temperature", "top_p", "logprobs", "top_logprobs"]
    if not ask.reasoning:
        names += ["reasoning_effort", "reasoning_summary", "reasoning_mode"]
    return [name for name in names if getattr(config, name) is not None]


def _drawing(config: GenerateConfig) -> list[dict[str, Any]]:
    """The vendor's own tool that draws, where images are wanted."""
    for wanted in config.modalities or ():
        if wanted == "image":
            return [{"type": "image_generation"}]
        if isinstance(wanted, ImageOutput):
            return [{"type": "image_generation", **((wanted.options or {}).get("openai") or {})}]
    return []


def _sampling(body: dict[str, Any], config: GenerateConfig) -> list[str]:
    for name in ("temperature", "top_p", "top_logprobs"):
        if (value := getattr(config, name)) is not None:
            body[name] = value
    return ["message.output_text.logprobs"] if config.logprobs else []


def _reasoning(config: GenerateConfig, ask: Ask) -> dict[str, Any]:
    reasoning = {"effort": ask.effort, "summary": ask.summary, "mode": config.reasoning_mode}
    return {name: value for name, value in reasoning.items() if value is not None}


def _text(config: GenerateConfig) -> dict[str, Any]:
    text: dict[str, Any] = {}
    if (schema := config.response_schema) is not None:
        format = {
            "type": "json_schema",
            "name": schema.name,
            "schema": plain(schema.json_schema, exclude_none=True),
            "description": schema.description,
            "strict": schema.strict,
        }
        text["format"] = {name: value for name, value in format.items() if value is not None}
    if config.verbosity is not None:
        text["verbosity"] = config.verbosity
    return text


async def input_to_wire(messages: list[ChatMessage], config: GenerateConfig, ask: Ask) -> list[dict[str, Any]]:
    """The messages as input items."""
    keep = reasoning_kept(messages, config)
    custom = {
        call.id
        for message in messages
        if isinstance(message, ChatMessageAssistant)
        for call in message.tool_calls or ()
        if call.type == "custom"
    }
    items: list[dict[str, Any]] = []
    for i, message in enumerate(messages):
        match message:
            case ChatMessageSystem():
                items.append(await _message(ask.system_role, message.content_list))
            case ChatMessageUser():
                items.append(await _message("user", message.content_list))
            case ChatMessageAssistant():
                items += await _assistant(message, ask, reasoning=i in keep)
            case ChatMessageTool():
                items.append(await _tool_result(message, custom=message.tool_call_id in custom))
    return items


async def _message(role: str, content: list[Content]) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [await part_to_wire(part) for part in content]}


async def part_to_wire(part: Content) -> dict[str, Any]:
    """One content of a user's or a system's message.

    Raises:
        UsageError: a file cannot be read. ModelError: the protocol has no such content.
    """
    match part:
        case ContentText():
            return {"type": "input_text", "text": part.text}
        case ContentImage():
            return {"type": "input_image", "image_url": await as_url(part.image), "detail": part.detail}
        case ContentDocument():
            data = await as_url(part.document, mime_type=part.mime_type)
            return {"type": "input_file", "filename": part.filename, "file_data": data}
        case ContentAudio():
            kind = "audio/mpeg" if part.format == "mp3" else "audio/wav"
            data = await as_url(part.audio, mime_type=kind)
            return {"type": "input_file", "filename": f"audio.{part.format}", "file_data": data}
        case ContentVideo():
            data = await as_url(part.video, mime_type=VIDEO_TYPES[part.format])
            return {"type": "input_file", "filename": f"video.{part.format}", "file_data": data}
    raise ModelError(f"the Responses API cannot carry a content of type {part.type!r} in a user's message")


async def _assistant(message: ChatMessageAssistant, ask: Ask, *, reasoning: bool) -> list[dict[str, Any]]:
    """A model's message as the items that it came in, then its tool calls."""
    items: list[dict[str, Any]] = []
    for part in message.content_list:
        match part:
            case ContentText() if part.text or not message.tool_calls:
                _add_text(items, part)
            case ContentReasoning() if reasoning:
                items += _reasoning_items(part, ask)
            case ContentImage():
                # A generated image can only go back as what somebody shows to the model.
                items.append(await _message("user", [part]))
            case ContentData() if part.data.get("type"):
                items.append(part.data)
    return [*items, *(_call_to_wire(call) for call in message.tool_calls or ())]


def _add_text(items: list[dict[str, Any]], part: ContentText) -> None:
    """Text of a message: with an id it is an output item, in which texts of one id stand together."""
    internal = part.internal if isinstance(part.internal, dict) else {}
    identity, phase = internal.get(MESSAGE_ID), internal.get(MESSAGE_PHASE)
    if not isinstance(identity, str):
        items.append({"type": "message", "role": "assistant", "content": part.text})
        return
    wire: dict[str, Any] = (
        {"type": "refusal", "refusal": part.text}
        if part.refusal
        else {"type": "output_text", "text": part.text, "annotations": []}
    )
    if items and items[-1].get("id") == identity:
        items[-1]["content"].append(wire)
        return
    item = {"type": "message", "role": "assistant", "id": identity, "status": "completed", "content": [wire]}
    items.append(item if phase is None else {**item, "phase": phase})


def _reasoning_items(part: ContentReasoning, ask: Ask) -> list[dict[str, Any]]:
    """Reasoning goes back as the item it was; that of another vendor is text, where it is readable."""
    internal = part.internal if isinstance(part.internal, dict) else {}
    identity = internal.get(REASONING_ID) or part.signature
    if not isinstance(identity, str) or not (REASONING_ID in internal or identity.startswith("rs_")):
        readable = part.text if not part.redacted or part.summary else ""
        return [{"type": "message", "role": "assistant", "content": readable}] if readable else []
    encrypted = internal.get(ENCRYPTED) or (part.reasoning if part.redacted else None)
    item: dict[str, Any] = {"type": "reasoning", "id": identity, "summary": []}
    if part.summary:
        item["summary"] = [{"type": "summary_text", "text": part.summary}]
    if encrypted:
        item["encrypted_content"] = encrypted
    elif ask.reasoning_text and part.reasoning and not part.redacted:
        item["content"] = [{"type": "reasoning_text", "text": part.reasoning}]
    elif not ask.store:
        return []  # the vendor does not have it, and there is nothing of it that it would take
    return [item]


def _call_to_wire(call: ToolCall) -> dict[str, Any]:
    if call.type == "custom":
        text = str(call.arguments.get("input", ""))
        return {"type": "custom_tool_call", "call_id": call.id, "name": call.function, "input": text}
    name = ALIASES.get(call.function, call.function)
    return {"type": "function_call", "call_id": call.id, "name": name, "arguments": json.dumps(call.arguments)}


async def _tool_result(message: ChatMessageTool, *, custom: bool) -> dict[str, Any]:
    output: Any = tool_text(message)
    if message.error is None and any(isinstance(part, ContentImage) for part in message.content_list):
        kinds = (ContentText, ContentImage)
        output = [await part_to_wire(part) for part in message.content_list if isinstance(part, kinds)]
    kind = "custom_tool_call_output" if custom else "function_call_output"
    return {"type": kind, "call_id": message.tool_call_id or str(message.function), "output": output}


def tool_to_wire(tool: ToolInfo, *, strict: bool = False) -> dict[str, Any]:
    """A tool as it is offered; one with a ``custom_format`` among its options takes free text."""
    format = (tool.options or {}).get("custom_format")
    if format is not None:
        return {"type": "custom", "name": tool.name, "description": tool.description, "format": format}
    parameters = without_keys(plain(tool.parameters, exclude_none=True), frozenset())
    return {
        "type": "function",
        "name": ALIASES.get(tool.name, tool.name),
        "description": tool.description,
        "parameters": parameters,
        "strict": strict and may_be_strict(parameters),
    }


def may_be_strict(schema: Any) -> bool:
    """Whether a schema is one of those that a vendor can enforce: every property required and no others allowed."""
    if isinstance(schema, list):
        return all(may_be_strict(item) for item in schema)
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if isinstance(properties, dict) or schema.get("type") == "object":
        names = set(properties or {})
        if schema.get("additionalProperties") is not False or set(schema.get("required") or ()) != names:
            return False
        return all(may_be_strict(item) for item in (properties or {}).values())
    return all(may_be_strict(schema[name]) for name in ("items", "anyOf") if name in schema)


def choice_to_wire(choice: ToolChoice, tools: list[ToolInfo]) -> str | dict[str, Any]:
    """Which tool must be called."""
    if not isinstance(choice, ToolFunction):
        return "required" if choice == "any" else choice
    tool = next((tool for tool in tools if tool.name == choice.name), None)
    if tool is not None and (tool.options or {}).get("custom_format") is not None:
        return {"type": "custom", "name": choice.name}
    return {"type": "function", "name": ALIASES.get(choice.name, choice.name)}
