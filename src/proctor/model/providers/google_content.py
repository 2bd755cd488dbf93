"""Messages, tools and options as Gemini's generateContent protocol has them. No I/O but files.

A thought signature must come back on the very part that it came with. A signature of text follows it as a redacted
`ContentReasoning` before that text, as Inspect has it. Signatures of calls, and the places of calls among the other
parts of such an answer, are kept by redacted reasoning whose ``internal`` names the call
(``{"gemini_function_call_id": id}``); one without a signature only keeps the place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from proctor.errors import ModelError, UsageError
from proctor.model.config import GenerateConfig, ImageOutput
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
    ContentToolUse,
    ContentVideo,
)
from proctor.model.portable import plain
from proctor.model.providers.claude_models import EFFORT_TOKENS
from proctor.model.providers.dataurl import split_data_url
from proctor.model.providers.history import with_history
from proctor.model.providers.media import as_url
from proctor.model.toolcall import ToolCall, ToolChoice, ToolFunction, ToolInfo

Part = dict[str, Any]

NO_CONTENT: Final = "(no content)"
CALL_ID: Final = "gemini_function_call_id"
PARTS: Final = "gemini_parts"
OURS: Final = "google"
BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
VERSION_NAME: Final = re.compile(r"gemini-(\d+)(?:\.(\d+))?")
FIELDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "temperature": "temperature",
        "top_p": "topP",
        "top_k": "topK",
        "max_tokens": "maxOutputTokens",
        "stop_seqs": "stopSequences",
        "num_choices": "candidateCount",
        "presence_penalty": "presencePenalty",
        "frequency_penalty": "frequencyPenalty",
        "seed": "seed",
        "logprobs": "responseLogprobs",
        "top_logprobs": "logprobs",
    }
)
CATEGORIES: Final = ("CIVIC_INTEGRITY", "DANGEROUS_CONTENT", "HARASSMENT", "HATE_SPEECH", "SEXUALLY_EXPLICIT")
THRESHOLDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "LOW": "BLOCK_LOW_AND_ABOVE",
        "MEDIUM": "BLOCK_MEDIUM_AND_ABOVE",
        "HIGH": "BLOCK_ONLY_HIGH",
        "NONE": "BLOCK_NONE",
        "OFF": "OFF",
    }
)


# -- the model --------------------------------------------------------------------------------------------------------


def gemini_version(model: str) -> tuple[int, int]:
    """The version in a model's name; one that is not known counts as the newest."""
    found = VERSION_NAME.search(model.rpartition("/")[2])
    return (int(found[1]), int(found[2] or 0)) if found else (99, 0)


def thinking_config(model: str, config: GenerateConfig) -> dict[str, Any] | None:
    """How a model is asked to think; None for one that does not.

    Facts: https://ai.google.dev/gemini-api/docs/thinking, as inspect_ai 0.3.285 applies them.
    """
    version, name = gemini_version(model), model.rpartition("/")[2]
    if version < (2, 5):
        return None
    effort, tokens = config.reasoning_effort, config.reasoning_tokens
    if tokens == 0 or effort == "none":
        if "-pro" in name:  # cannot be switched off
            return {"includeThoughts": True}
        return {"includeThoughts": False, "thinkingBudget": 0}
    if effort is not None and version >= (3, 0):
        return {"includeThoughts": True, "thinkingLevel": _level(effort, version, name)}
    if tokens is None and effort is not None:
        most = 32_768 if "-pro" in name else 24_576
        return {"includeThoughts": True, "thinkingBudget": min(EFFORT_TOKENS[effort], most)}
    if tokens is not None:
        return {"includeThoughts": True, "thinkingBudget": tokens}
    return {"includeThoughts": True}


def _level(effort: str, version: tuple[int, int], name: str) -> str:
    if effort == "minimal":
        low, high = ((3, 1), (3, 6)) if "flash-lite" in name else ((3, 0), (3, 7))
        return "MINIMAL" if "flash" in name and low <= version < high else "LOW"
    return {"xhigh": "HIGH", "max": "HIGH"}.get(effort, effort.upper())


def safety_settings(given: Any) -> list[dict[str, str]]:
    """The safety settings of a request: nothing is blocked but what is asked for.

    Args:
        given: thresholds by category, short or whole names in any case: ``{"harassment": "high"}``.

    Raises:
        UsageError: a category or a threshold that there is not.
    """
    chosen: dict[str, str] = dict.fromkeys(CATEGORIES, "BLOCK_NONE")
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"google: safety_settings must map categories to thresholds, not {given!r}")
    for category, threshold in (given or {}).items():
        known = next((name for name in CATEGORIES if name in str(category).upper()), None)
        value = next((THRESHOLDS[word] for word in THRESHOLDS if word in str(threshold).upper()), None)
        if known is None or value is None:
            raise UsageError(
                f"google: safety_settings has {category!r}: {threshold!r}; categories: "
                f"{', '.join(CATEGORIES).lower()}; thresholds: {', '.join(THRESHOLDS).lower()}"
            )
        chosen[known] = value
    return [{"category": f"HARM_CATEGORY_{name}", "threshold": value} for name, value in chosen.items()]


# -- the request ------------------------------------------------------------------------------------------------------


async def request_body(
    model: str,
    input: Sequence[ChatMessage],
    tools: Sequence[ToolInfo],
    tool_choice: ToolChoice,
    config: GenerateConfig,
    safety: list[dict[str, str]],
) -> dict[str, Any]:
    """The body of a request.

    Raises:
        ModelError: a content that the protocol does not have. UsageError: a file that cannot be read.
    """
    thinks = gemini_version(model) >= (2, 5)
    body: dict[str, Any] = {"contents": await contents_to_wire(with_history(input, config), thinks=thinks)}
    system = [part for message in input if isinstance(message, ChatMessageSystem) for part in _system_parts(message)]
    if system:
        body["systemInstruction"] = {"parts": system}
    if tools:
        body["tools"] = [{"functionDeclarations": [tool_to_wire(tool) for tool in tools]}]
        body["toolConfig"] = choice_to_wire(tool_choice)
    body["safetySettings"] = safety
    generation = {name: value for field, name in FIELDS.items() if (value := getattr(config, field)) is not None}
    if config.response_schema is not None:
        generation["responseMimeType"] = "application/json"
        generation["responseJsonSchema"] = plain(config.response_schema.json_schema, exclude_none=True)
    if (thinking := thinking_config(model, config)) is not None:
        generation["thinkingConfig"] = thinking
    if any(modality == "image" or isinstance(modality, ImageOutput) for modality in config.modalities or ()):
        generation["responseModalities"] = ["TEXT", "IMAGE"]
    if generation:
        body["generationConfig"] = generation
    body.update(config.extra_body or {})
    return body


def _system_parts(message: ChatMessageSystem) -> list[Part]:
    return [{"text": part.text} for part in message.content_list if isinstance(part, ContentText) and part.text]


async def contents_to_wire(messages: Sequence[ChatMessage], *, thinks: bool) -> list[dict[str, Any]]:
    """The conversation; results of parallel calls are one content. Without `thinks` earlier thoughts become text."""
    contents: list[dict[str, Any]] = []
    was_tool = False
    for message in messages:
        match message:
            case ChatMessageUser():
                parts = [await _part(part) for part in message.content_list]
                contents.append({"role": "user", "parts": parts or [{"text": NO_CONTENT}]})
            case ChatMessageAssistant():
                parts = await _model_parts(message, thinks=thinks)
                contents.append({"role": "model", "parts": parts or [{"text": NO_CONTENT}]})
            case ChatMessageTool():
                parts = await _result_parts(message)
                if was_tool:
                    contents[-1]["parts"] += parts
                else:
                    contents.append({"role": "user", "parts": parts})
        was_tool = isinstance(message, ChatMessageTool)
    return contents or [{"role": "user", "parts": [{"text": NO_CONTENT}]}]


async def _model_parts(message: ChatMessageAssistant, *, thinks: bool) -> list[Part]:
    waiting = {call.id: call for call in message.tool_calls or ()}
    loose = set(waiting) - {_named_call(content) for content in message.content_list}
    parts: list[Part] = []
    signature: str | None = None
    for content in message.content_list:
        if not isinstance(content, ContentReasoning):
            made = _server_parts(content) if isinstance(content, ContentToolUse) else [await _part(content)]
            if signature and made and not loose:  # else it is the first such call's
                made[0] = {**made[0], "thoughtSignature": signature}
                signature = None
            parts += made
            continue
        name = _named_call(content)
        if not thinks:
            if name is None:
                parts.append({"text": content.text})
        elif name in waiting:
            parts.append(_signed(_call_part(waiting.pop(name)), content.reasoning))
            signature = None
        elif content.redacted:
            signature = content.reasoning if _is_own(content) else signature
        else:
            parts.append({"text": content.reasoning, "thought": True})
    for call in waiting.values():
        parts.append(_signed(_call_part(call), signature))
        signature = None
    return parts


def _is_own(content: ContentReasoning) -> bool:
    """Whether redacted reasoning is a signature of this vendor's, as far as can be told."""
    internal = content.internal
    return (internal is None or (isinstance(internal, Mapping) and OURS in internal)) and bool(
        BASE64.fullmatch(content.reasoning)
    )


def _named_call(content: Content) -> str | None:
    internal = content.internal
    return internal.get(CALL_ID) if isinstance(internal, Mapping) else None


def _signed(part: Part, signature: str | None) -> Part:
    return {**part, "thoughtSignature": signature} if signature else part


def _call_part(call: ToolCall) -> Part:
    return {"functionCall": {"id": call.id, "name": call.function, "args": call.arguments}}


def _server_parts(content: ContentToolUse) -> list[Part]:
    """What the vendor ran itself, as it was; a run of another vendor's becomes text."""
    internal = content.internal
    if isinstance(internal, Mapping) and isinstance(parts := internal.get(PARTS), list):
        return list(parts)
    return [{"text": f"[{content.name}({content.arguments})]\n{content.result}"}]


async def _result_parts(message: ChatMessageTool) -> list[Part]:
    result = {"output": message.text} if message.error is None else {"error": message.error.message}
    response: Part = {"name": message.function or "", "response": result}
    if message.tool_call_id:
        response["id"] = message.tool_call_id
    parts: list[Part] = [{"functionResponse": response}]
    for content in message.content_list:
        if isinstance(content, ContentImage):
            parts.append(await _part(content))  # noqa: PERF401  awaited one after the other
    return parts


async def _part(content: Content) -> Part:
    match content:
        case ContentText():
            return {"text": content.text or NO_CONTENT}
        case ContentImage():
            return await _media(content.image, None)
        case ContentAudio():
            return await _media(content.audio, f"audio/{content.format}")
        case ContentVideo():
            return await _media(
                content.video, "video/quicktime" if content.format == "mov" else f"video/{content.format}"
            )
        case ContentDocument():
            return await _media(content.document, content.mime_type)
    raise ModelError(f"Google's models take no content of type {content.type!r}")


async def _media(reference: str, kind: str | None) -> Part:
    if reference.startswith("gs://"):
        url = reference
    else:
        url = await as_url(reference, mime_type=kind)
    if url.startswith("data:"):
        found, data = split_data_url(url)
        return {"inlineData": {"mimeType": found or kind or "image/png", "data": data}}
    return {"fileData": {"fileUri": url, "mimeType": kind} if kind else {"fileUri": url}}


def tool_to_wire(tool: ToolInfo) -> dict[str, Any]:
    """A tool as it is offered."""
    wire: dict[str, Any] = {"name": tool.name, "description": tool.description}
    if tool.parameters.properties:
        wire["parametersJsonSchema"] = plain(tool.parameters, exclude_none=True)
    return wire


def choice_to_wire(choice: ToolChoice) -> dict[str, Any]:
    """Which tool must be called."""
    if isinstance(choice, ToolFunction):
        return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [choice.name]}}
    return {"functionCallingConfig": {"mode": choice.upper()}}
