"""Messages, tools and options as Bedrock's Converse protocol has them. No I/O but files."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proctor.errors import ModelError, UsageError
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
    ContentVideo,
)
from proctor.model.portable import plain
from proctor.model.providers.anthropic_request import closed_schema
from proctor.model.providers.claude_models import Claude, claude
from proctor.model.providers.dataurl import split_data_url
from proctor.model.providers.history import with_history
from proctor.model.providers.media import as_url
from proctor.model.toolcall import ToolCall, ToolChoice, ToolFunction, ToolInfo

Block = dict[str, Any]

NO_CONTENT: Final = "(no content)"
REDACTED: Final = "bedrock_redacted_content"
IMAGES: Final = {"image/png": "png", "image/jpeg": "jpeg", "image/gif": "gif", "image/webp": "webp"}
DOCUMENTS: Final = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/markdown": "md",
}
NAME: Final = re.compile(r"[^A-Za-z0-9 \-()\[\]]+")  # what a document's name may not have
CALL_ID: Final = re.compile(r"[^a-zA-Z0-9_.:-]")
UNCACHED: Final = ("claude-3-haiku", "claude-3-opus", "claude-3-5-sonnet-20240620")
NOVA_WITHOUT_REASONING: Final = re.compile(r"(?:^|[./])amazon\.nova-(?:micro|lite|pro|premier)-v1(?::|$)")
DEFAULT_MAX_TOKENS: Final = 2048


def max_tokens(model: str) -> int:
    """The most tokens of an answer when nobody says otherwise: what the older models allow, else 2048."""
    name = model.lower()
    if any(one in name for one in ("llama3-70", "llama3-8", "llama-3-70", "llama-3-8")):
        return DEFAULT_MAX_TOKENS
    if any(one in name for one in ("llama3", "llama-3", "claude-3")):
        return 4096
    return 8192 if "mistral-large" in name else DEFAULT_MAX_TOKENS


def as_claude(model: str) -> Claude | None:
    """What is known of a model that is a Claude, None for others."""
    return claude(model) if "claude" in model.lower() else None


async def request_body(
    model: str,
    input: Sequence[ChatMessage],
    tools: Sequence[ToolInfo],
    tool_choice: ToolChoice,
    config: GenerateConfig,
) -> Block:
    """The body of a request (the model is in the URL).

    Raises:
        UsageError: a file or an image that cannot be sent. ModelError: a content that the protocol does not have.
    """
    known = as_claude(model)
    system: list[Block] = [{"text": one.text} for one in input if isinstance(one, ChatMessageSystem) and one.text]
    rest = [message for message in with_history(input, config) if message.role != "system"]
    messages = joined([await message_to_wire(message, emulate=known is not None) for message in rest])
    body: Block = {"messages": messages or [{"role": "user", "content": [{"text": NO_CONTENT}]}]}
    offered = [tool_to_wire(tool) for tool in tools] or called_tools(rest)
    if config.cache_prompt is not False and _caches(model, known):
        add_cache_points(system, body["messages"], offered if known is not None else [])
    if system:
        body["system"] = system
    if offered:
        choice = {"toolChoice": choice_to_wire(tool_choice, known)} if tools else {}
        body["toolConfig"] = {"tools": offered, **choice}
    extra = more_fields(model, known, config)
    if inference := _inference(model, known, config, extra):
        body["inferenceConfig"] = inference
    if extra:
        body["additionalModelRequestFields"] = extra
    body.update(config.extra_body or {})
    return body


def _caches(model: str, known: Claude | None) -> bool:
    if known is None:
        return "nova" in model.lower()
    return known.caches and not any(name in model for name in UNCACHED)


def add_cache_points(system: list[Block], messages: list[Block], tools: list[Block]) -> None:
    """Prompt cache points: after the system messages, else after the tools, and after the last two messages.

    The one before the last message serves requests that differ only in that; with one message there is nothing that
    another request could find.
    """
    point = {"cachePoint": {"type": "default"}}
    if system:
        system.append(dict(point))
    elif tools:
        tools.append(dict(point))
    if len(messages) >= 2:
        for message in messages[-2:]:
            message["content"].append(dict(point))


# -- messages ---------------------------------------------------------------------------------------------------------


async def message_to_wire(message: ChatMessage, *, emulate: bool) -> Block:
    """One message; `emulate`: reasoning that cannot be sent back as such becomes text."""
    if isinstance(message, ChatMessageTool):
        return {"role": "user", "content": [{"toolResult": await _result(message)}]}
    content: list[Block] = []
    for part in message.content_list:
        content += await part_to_wire(part, emulate=emulate)
    if isinstance(message, ChatMessageAssistant):
        if message.tool_calls:
            content = [block for block in content if block.get("text") != NO_CONTENT]
        content += [_call(call) for call in message.tool_calls or ()]
        return {"role": "assistant", "content": content or [{"text": NO_CONTENT}]}
    return {"role": "user", "content": content or [{"text": NO_CONTENT}]}


def _call(call: ToolCall) -> Block:
    return {"toolUse": {"toolUseId": _call_id(call.id), "name": call.function, "input": call.arguments}}


def _call_id(name: str) -> str:
    """The id of a call, which another vendor may have made: 64 characters of a few kinds."""
    return CALL_ID.sub("_", name)[-64:] or "call"


async def _result(message: ChatMessageTool) -> Block:
    content: list[Block] = []
    if message.error is not None:
        content = [{"text": message.error.message or message.text or "error"}]
    else:
        for part in message.content_list:
            content += await part_to_wire(part, emulate=True)
    return {
        "toolUseId": _call_id(message.tool_call_id or ""),
        "content": content or [{"text": NO_CONTENT}],
        "status": "success" if message.error is None else "error",
    }


async def part_to_wire(part: Content, *, emulate: bool) -> list[Block]:
    """The blocks of a content."""
    match part:
        case ContentText():
            return [{"text": part.text}] if part.text else []
        case ContentReasoning():
            return _reasoning(part, emulate=emulate)
        case ContentImage():
            return [await _image(part.image)]
        case ContentDocument():
            return [await _document(part)]
        case ContentVideo():
            _, data = split_data_url(await as_url(part.video))
            return [{"video": {"format": part.format, "source": {"bytes": data}}}]
        case ContentAudio():
            _, data = split_data_url(await as_url(part.audio))
            return [{"audio": {"format": part.format, "source": {"bytes": data}}}]
    raise ModelError(f"Bedrock's models take no content of type {part.type!r}")


def _reasoning(part: ContentReasoning, *, emulate: bool) -> list[Block]:
    internal = part.internal if isinstance(part.internal, Mapping) else {}
    if isinstance(data := internal.get(REDACTED), str):
        return [{"reasoningContent": {"redactedContent": data}}]
    if part.redacted:
        return []  # another vendor's, which nobody here can read
    if part.signature is not None:
        text = {"text": part.reasoning, "signature": part.signature}
        return [{"reasoningContent": {"reasoningText": text}}]
    if not part.reasoning:
        return []
    if emulate:  # Claude takes no thinking without its signature
        return [{"text": part.text}]
    return [{"reasoningContent": {"reasoningText": {"text": part.reasoning}}}]


async def _image(reference: str) -> Block:
    kind, data = split_data_url(await as_url(reference))
    known = IMAGES.get(kind)
    if known is None:
        raise UsageError(f"Bedrock's models take no image of type {kind or 'unknown'} ({reference[:60]})")
    return {"image": {"format": known, "source": {"bytes": data}}}


async def _document(part: ContentDocument) -> Block:
    _, data = split_data_url(await as_url(part.document, mime_type=part.mime_type))
    kind = DOCUMENTS.get(part.mime_type, "txt")
    stem = part.filename.rpartition(".")[0] or part.filename
    name = " ".join(NAME.sub(" ", stem).split())[:200] or "document"
    document: Block = {"format": kind, "name": name, "source": {"bytes": data or base64.b64encode(b" ").decode()}}
    if part.citations:
        document["citations"] = {"enabled": True}
    return {"document": document}


def joined(messages: list[Block]) -> list[Block]:
    """Messages with neighbours of one role made one: turns alternate.

    What follows a tool's result in the same turn goes into that result: a turn has results or a conversation.
    """
    out: list[Block] = []
    for message in messages:
        if not out or out[-1]["role"] != message["role"]:
            out.append(message)
            continue
        last = out[-1]["content"]
        for block in message["content"]:
            if "toolResult" in last[-1] and block.keys() & {"text", "image", "document", "video"}:
                last[-1]["toolResult"]["content"].append(block)
            else:
                last.append(block)
    return out


# -- tools and options ------------------------------------------------------------------------------------------------


def tool_to_wire(tool: ToolInfo) -> Block:
    """A tool as it is offered."""
    schema = plain(tool.parameters, exclude_none=True)
    schema.pop("additionalProperties", None)
    spec = {"name": tool.name, "description": tool.description or tool.name, "inputSchema": {"json": schema}}
    return {"toolSpec": spec}


def called_tools(messages: Sequence[ChatMessage]) -> list[Block]:
    """Tools that a conversation has calls of: one with calls must offer some."""
    names = {
        call.function: None
        for message in messages
        if isinstance(message, ChatMessageAssistant)
        for call in message.tool_calls or ()
    }
    schema = {"json": {"type": "object", "properties": {}}}
    return [{"toolSpec": {"name": name, "description": name, "inputSchema": schema}} for name in names]


def choice_to_wire(choice: ToolChoice, known: Claude | None) -> Block:
    """Which tool must be called; the protocol has no ``none``."""
    forced = choice == "any" or isinstance(choice, ToolFunction)
    if not forced or (known is not None and known.refuses_forced_tools):
        return {"auto": {}}
    return {"tool": {"name": choice.name}} if isinstance(choice, ToolFunction) else {"any": {}}


def ignored(model: str, tools: Sequence[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig) -> list[str]:
    """What a configuration asks for that the model does not take, a text each."""
    known = as_claude(model)
    found = []
    if _no_sampling(known, config):
        names = [name for name in ("temperature", "top_p", "top_k") if getattr(config, name) is not None]
        found += [f"bedrock/{model}: {name} is not sent: the model takes none when it thinks" for name in names]
    forced = tool_choice == "any" or isinstance(tool_choice, ToolFunction)
    if tools and forced and known is not None and known.refuses_forced_tools:
        found.append(f"bedrock/{model}: it refuses a tool choice that forces a call and is asked to choose itself")
    if config.response_schema is not None and known is None:
        found.append(f"bedrock/{model}: response_schema is not sent: the model takes none")
    if config.reasoning_effort is not None and NOVA_WITHOUT_REASONING.search(model):
        found.append(f"bedrock/{model}: reasoning_effort is not sent: the model takes none")
    return found


def _no_sampling(known: Claude | None, config: GenerateConfig) -> bool:
    return known is not None and (known.adaptive_only or known.is_thinking(config))


def _inference(model: str, known: Claude | None, config: GenerateConfig, extra: Mapping[str, Any]) -> Block:
    wire: Block = {}
    high = (extra.get("reasoningConfig") or {}).get("maxReasoningEffort") == "high"
    if not high:  # Nova refuses a bound then
        wire["maxTokens"] = config.max_tokens or _default_tokens(model, known, config)
    if not _no_sampling(known, config):
        wire.update({"temperature": config.temperature, "topP": config.top_p})
    wire["stopSequences"] = config.stop_seqs
    return {name: value for name, value in wire.items() if value is not None}


def _default_tokens(model: str, known: Claude | None, config: GenerateConfig) -> int:
    if known is not None and known.is_thinking(config):
        return known.max_tokens(config)
    return max_tokens(model)


def more_fields(model: str, known: Claude | None, config: GenerateConfig) -> Block:
    """Fields of the models' own: reasoning, top_k, the schema of an answer."""
    fields: Block = {}
    if known is not None:
        fields = _claude_fields(known, config)
    elif "gpt-oss" in model and config.reasoning_effort is not None:
        fields["reasoning_effort"] = config.reasoning_effort
    elif "nova" in model and config.reasoning_effort is not None and not NOVA_WITHOUT_REASONING.search(model):
        fields["reasoningConfig"] = {"type": "enabled", "maxReasoningEffort": config.reasoning_effort}
    if config.top_k and not _no_sampling(known, config):
        if "nova" in model:
            fields["inferenceConfig"] = {"topK": config.top_k}
        else:
            fields["top_k"] = config.top_k
    return fields


def _claude_fields(known: Claude, config: GenerateConfig) -> Block:
    fields: Block = {}
    output: Block = {}
    if config.effort is not None:
        output["effort"] = known.known_effort(config.effort)
    effort, budget = known.effort(config), known.budget(config)
    if effort is not None:
        fields["thinking"] = {"type": "adaptive"}
        output["effort"] = effort
    elif budget is not None and known.adaptive_only:
        fields["thinking"] = {"type": "adaptive"}
        output.setdefault("effort", "high")
    elif budget is not None:
        fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
    if config.response_schema is not None:
        output["format"] = {"type": "json_schema", "schema": closed_schema(config.response_schema.json_schema)}
    if output:
        fields["output_config"] = output
    return fields
