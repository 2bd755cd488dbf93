"""The chat completions protocol of OpenAI, which most servers speak: values to wire and back. No I/O but files."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from proctor.errors import ModelError
from proctor.model.config import GenerateConfig
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
from proctor.model.output import (
    ChatCompletionChoice,
    Logprob,
    Logprobs,
    ModelOutput,
    ModelUsage,
    StopDetails,
    StopReason,
    TopLogprob,
    as_stop_reason,
)
from proctor.model.portable import plain
from proctor.model.providers.media import as_url, base64_of
from proctor.model.toolcall import ToolCall, ToolChoice, ToolFunction, ToolInfo

REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
THINK: Final = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)
SAME_NAME: Final = (
    "frequency_penalty", "presence_penalty", "logit_bias", "seed", "temperature", "top_p", "logprobs", "top_logprobs",
    "reasoning_effort", "verbosity", "prompt_logprobs",
)  # fmt: skip
TOO_LONG: Final = re.compile(
    r"maximum context length|context (window|length)|prompt is too long|too many tokens|input is too long|"
    r"exceed\w* .*context",
    re.IGNORECASE,
)
FILTERED: Final = frozenset({"content_filter", "content_policy_violation", "invalid_prompt"})


# -- the request ------------------------------------------------------------------------------------------------------


async def request_body(
    model: str,
    input: list[ChatMessage],
    tools: list[ToolInfo],
    tool_choice: ToolChoice,
    config: GenerateConfig,
    *,
    max_tokens_name: str = "max_tokens",
) -> dict[str, Any]:
    """The body of a request.

    Args:
        model: the server's name for it. max_tokens_name: newer servers of OpenAI's call it max_completion_tokens.
    """
    body: dict[str, Any] = {"model": model, "messages": await messages_to_wire(input, config)}
    if tools:
        body["tools"] = [tool_to_wire(tool) for tool in tools]
        body["tool_choice"] = choice_to_wire(tool_choice)
        if config.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = config.parallel_tool_calls
    for name in SAME_NAME:
        if (value := getattr(config, name)) is not None:
            body[name] = value
    if config.max_tokens is not None:
        body[max_tokens_name] = config.max_tokens
    if config.stop_seqs is not None:
        body["stop"] = config.stop_seqs
    if config.num_choices is not None:
        body["n"] = config.num_choices
    if (schema := config.response_schema) is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": _schema_to_wire(schema)}
    body.update(config.extra_body or {})
    return body


def _schema_to_wire(schema: Any) -> dict[str, Any]:
    wire = {
        "name": schema.name,
        "schema": plain(schema.json_schema, exclude_none=True),
        "description": schema.description,
        "strict": schema.strict,
    }
    return {name: value for name, value in wire.items() if value is not None}


def encode(body: Mapping[str, Any]) -> bytes:
    """The body as JSON; text with lone surrogates is escaped, which the fast encoder refuses."""
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(body).encode("ascii")


async def messages_to_wire(messages: list[ChatMessage], config: GenerateConfig) -> list[dict[str, Any]]:
    """The messages of a request."""
    history = config.reasoning_history or "all"
    last = max((i for i, message in enumerate(messages) if message.role == "assistant"), default=-1)
    wire = []
    for i, message in enumerate(messages):
        keep = history in {"all", "auto"} or (history == "last" and i == last)
        wire.append(await message_to_wire(message, reasoning=keep))
    return wire


async def message_to_wire(message: ChatMessage, *, reasoning: bool = True) -> dict[str, Any]:
    """One message of a request; `reasoning`: send a model's earlier reasoning back to it."""
    match message:
        case ChatMessageSystem():
            return {"role": "system", "content": message.text}
        case ChatMessageUser():
            if isinstance(message.content, str):
                return {"role": "user", "content": message.content}
            return {"role": "user", "content": [await part_to_wire(part) for part in message.content]}
        case ChatMessageAssistant():
            return _assistant_to_wire(message, reasoning=reasoning)
        case ChatMessageTool():
            text = f"Error: {message.error.message}" if message.error is not None else message.text
            return {"role": "tool", "content": text, "tool_call_id": message.tool_call_id or ""}
    raise TypeError(f"{message!r} is no chat message")


def _assistant_to_wire(message: ChatMessageAssistant, *, reasoning: bool) -> dict[str, Any]:
    texts: list[str] = []
    wire: dict[str, Any] = {"role": "assistant", "content": ""}
    for part in message.content_list:
        if isinstance(part, ContentText):
            texts.append(part.text)
        elif isinstance(part, ContentReasoning) and reasoning:
            if part.internal in REASONING_FIELDS:
                wire[part.internal] = part.reasoning
            else:
                texts.append(part.text)
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
                image["detail"] = part.detail
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


def tool_to_wire(tool: ToolInfo) -> dict[str, Any]:
    """A tool as it is offered."""
    parameters = plain(tool.parameters, exclude_none=True)
    function = {"name": tool.name, "description": tool.description, "parameters": parameters}
    return {"type": "function", "function": function}


def choice_to_wire(choice: ToolChoice) -> str | dict[str, Any]:
    """Which tool must be called."""
    if isinstance(choice, ToolFunction):
        return {"type": "function", "function": {"name": choice.name}}
    return "required" if choice == "any" else choice


# -- the response -----------------------------------------------------------------------------------------------------


def decode(body: bytes, *, url: str) -> dict[str, Any]:
    """The body of a response.

    Raises:
        ModelError: it is no JSON object.
    """
    data: Any
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        try:
            data = json.loads(body)  # takes NaN, which some servers send as a log probability
        except ValueError:
            data = None
    if not isinstance(data, dict):
        words = body[:100].decode("utf-8", "replace")
        raise ModelError(f"the answer of {url} is no JSON object but {words!r}. Is the base URL right?")
    return data


def output_from_wire(data: Mapping[str, Any], tools: list[ToolInfo], *, model: str) -> ModelOutput:
    """The output that a response holds.

    Args:
        model: who was asked, where the response does not say.

    Raises:
        ModelError: it holds no choices.
    """
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise ModelError(f"{model}: the answer has no choices: {json.dumps(data, default=str)[:300]}")
    name = data.get("model") or model
    return ModelOutput(
        model=name,
        choices=[choice_from_wire(choice, tools, model=name) for choice in choices],
        usage=usage_from_wire(data.get("usage")),
        response_id=data.get("id"),
    )


def choice_from_wire(choice: Mapping[str, Any], tools: list[ToolInfo], *, model: str) -> ChatCompletionChoice:
    """One choice of a response."""
    message = choice.get("message") or {}
    refusal = message.get("refusal")
    calls = [tool_call_from_wire(call, tools) for call in message.get("tool_calls") or ()]
    reason: StopReason = as_stop_reason(choice.get("finish_reason"))
    if calls and reason in {"stop", "unknown"}:
        reason = "tool_calls"
    return ChatCompletionChoice(
        message=ChatMessageAssistant(
            content=content_from_wire(message), source="generate", tool_calls=calls or None, model=model
        ),
        stop_reason=reason,
        stop_details=StopDetails(type="refusal", explanation=str(refusal)) if refusal else None,
        logprobs=logprobs_from_wire(choice.get("logprobs")),
    )


def content_from_wire(message: Mapping[str, Any]) -> str | list[Content]:
    """The content of an answer, its reasoning apart: from a field of its own, else from ``<think>`` tags."""
    if refusal := message.get("refusal"):
        return [ContentText(text=str(refusal), refusal=True)]
    text = message.get("content") or ""
    if isinstance(text, list):
        text = "\n".join(part.get("text") or "" for part in text if isinstance(part, dict))
    for field in REASONING_FIELDS:
        if isinstance(reasoning := message.get(field), str) and reasoning:
            return [ContentReasoning(reasoning=reasoning, internal=field), ContentText(text=text)]
    if "</think>" in text and (found := THINK.match(text)):
        return [ContentReasoning(reasoning=found.group(1).strip()), ContentText(text=text[found.end() :])]
    return str(text)


def tool_call_from_wire(call: Mapping[str, Any], tools: list[ToolInfo]) -> ToolCall:
    """A tool call; arguments that cannot be read leave a `parse_error` for the model to see."""
    function = call.get("function") or {}
    name, text = str(function.get("name") or ""), function.get("arguments") or "{}"
    arguments, error = parse_arguments(name, text, tools)
    return ToolCall(id=str(call.get("id") or ""), function=name, arguments=arguments, parse_error=error)


def parse_arguments(name: str, text: Any, tools: list[ToolInfo]) -> tuple[dict[str, Any], str | None]:
    """The arguments of a call by name, and why they could not be read (None when they could).

    Text that is no JSON object is taken as the one parameter of a tool that has just one.
    """
    if isinstance(text, dict):  # some servers do not encode them
        return text, None
    value: Any = text
    problem = "it is no JSON object"
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError) as error:
        problem = str(error)
    if isinstance(value, dict):
        return value, None
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is not None and len(tool.parameters.properties) == 1:
        return {next(iter(tool.parameters.properties)): value}, None
    return {}, f"the arguments of {name} could not be read ({problem}): {text}"


def usage_from_wire(usage: Mapping[str, Any] | None) -> ModelUsage | None:
    """Tokens used; cached ones are taken out of the input, as the log has it."""
    if not usage:
        return None
    details = usage.get("prompt_tokens_details") or {}
    read, written = details.get("cached_tokens"), details.get("cache_write_tokens")
    given, made = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    return ModelUsage(
        input_tokens=max(0, given - (read or 0) - (written or 0)),
        output_tokens=made,
        total_tokens=usage.get("total_tokens") or given + made,
        input_tokens_cache_write=written,
        input_tokens_cache_read=read,
        reasoning_tokens=(usage.get("completion_tokens_details") or {}).get("reasoning_tokens"),
    )


def logprobs_from_wire(logprobs: Mapping[str, Any] | None) -> Logprobs | None:
    """Log probabilities of a choice."""
    content = (logprobs or {}).get("content")
    if not content:
        return None
    return Logprobs(content=[Logprob(**_token(entry), top_logprobs=_top(entry)) for entry in content])


def _top(entry: Mapping[str, Any]) -> list[TopLogprob] | None:
    top: Iterable[Mapping[str, Any]] | None = entry.get("top_logprobs")
    return None if top is None else [TopLogprob(**_token(other)) for other in top]


def _token(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"token": entry["token"], "logprob": entry["logprob"], "bytes": entry.get("bytes")}


def refused_output(model: str, words: str, code: str) -> ModelOutput | None:
    """The output for a refused request that says something about the sample rather than about the call.

    Args:
        words, code: of the error. Returns: None when it is an ordinary error.
    """
    reason: StopReason
    if code == "context_length_exceeded" or TOO_LONG.search(words):
        reason = "model_length"
    elif code in FILTERED:
        reason = "content_filter"
    else:
        return None
    return ModelOutput.from_content(model, words, stop_reason=reason, error=words)
