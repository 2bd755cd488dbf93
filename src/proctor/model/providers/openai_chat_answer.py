"""Answers of OpenAI's chat completions, whole or streamed: wire to values. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from proctor.errors import ModelError
from proctor.model.messages import ChatMessageAssistant, Content, ContentReasoning, ContentText
from proctor.model.output import (
    ChatCompletionChoice,
    Logprob,
    Logprobs,
    ModelOutput,
    ModelUsage,
    StopCategory,
    StopDetails,
    StopReason,
    TopLogprob,
    as_stop_reason,
)
from proctor.model.providers.openai_chat import REASONING_DETAILS, REASONING_FIELDS
from proctor.model.toolcall import ToolCall, ToolInfo
from proctor.runtime.runtime import new_id

THINK: Final = re.compile(r"\s*<think>(.*?)</think>\s*", re.DOTALL)


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
    ordered = sorted(choices, key=lambda choice: choice.get("index") or 0)
    output = ModelOutput(
        model=name,
        choices=[choice_from_wire(choice, tools, model=name) for choice in ordered],
        usage=usage_from_wire(data.get("usage")),
        response_id=data.get("id"),
    )
    if (prompt := prompt_logprobs_from_wire(data.get("prompt_logprobs"))) is not None:
        for choice in output.choices:
            choice.prompt_logprobs = prompt
    return output


def choice_from_wire(choice: Mapping[str, Any], tools: list[ToolInfo], *, model: str) -> ChatCompletionChoice:
    """One choice of a response."""
    message = choice.get("message") or {}
    calls = [tool_call_from_wire(call, tools) for call in message.get("tool_calls") or ()]
    reason: StopReason = as_stop_reason(choice.get("finish_reason"))
    if calls and reason in {"stop", "unknown"}:
        reason = "tool_calls"
    return ChatCompletionChoice(
        message=ChatMessageAssistant(
            content=content_from_wire(message), source="generate", tool_calls=calls or None, model=model
        ),
        stop_reason=reason,
        stop_details=stop_details_from_wire(choice),
        logprobs=logprobs_from_wire(choice.get("logprobs")),
    )


def stop_details_from_wire(choice: Mapping[str, Any]) -> StopDetails | None:
    """A refusal's words, and the categories of a content filter (Azure's) that made it."""
    refusal = (choice.get("message") or {}).get("refusal")
    results = choice.get("content_filter_results")
    categories = [
        StopCategory(category=name, level=None if result.get("severity") is None else str(result["severity"]))
        for name, result in (results.items() if isinstance(results, dict) else ())
        if isinstance(result, dict) and result.get("filtered")
    ]
    if not refusal and not categories:
        return None
    filtered = choice.get("finish_reason") == "content_filter"
    return StopDetails(
        type="content_filter" if filtered else "refusal",
        category=categories[0].category if categories else None,
        explanation=str(refusal) if refusal else None,
        categories=categories,
    )


def content_from_wire(message: Mapping[str, Any]) -> str | list[Content]:
    """The content of an answer, its reasoning apart: from a field of its own, else from ``<think>`` tags."""
    text = message.get("content") or ""
    if isinstance(text, list):
        text = "\n".join(part.get("text") or "" for part in text if isinstance(part, dict))
    reasoning = reasoning_from_wire(message)
    if refusal := message.get("refusal"):
        said: Content = ContentText(text=str(refusal), refusal=True)
        return [said] if reasoning is None else [reasoning, said]
    if reasoning is not None:
        return [reasoning, ContentText(text=str(text))]
    if "</think>" in text and (found := THINK.match(text)):
        return [ContentReasoning(reasoning=found.group(1).strip()), ContentText(text=text[found.end() :])]
    return str(text)


def reasoning_from_wire(message: Mapping[str, Any]) -> ContentReasoning | None:
    """The reasoning of an answer, and under `internal` where it came from: it goes back there."""
    details = message.get(REASONING_DETAILS)
    if isinstance(details, list) and details:
        return _detailed(details)
    for field in REASONING_FIELDS:
        if isinstance(reasoning := message.get(field), str) and reasoning:
            return ContentReasoning(reasoning=reasoning, internal=field)
    return None


def _detailed(details: list[Any]) -> ContentReasoning:
    """OpenRouter's reasoning: parts that are text, a summary, or encrypted, and go back as they are."""
    parts = [part for part in details if isinstance(part, dict)]
    text = "".join(part.get("text") or "" for part in parts if part.get("type") == "reasoning.text")
    summary = "\n".join(part.get("summary") or "" for part in parts if part.get("type") == "reasoning.summary")
    hidden = next((part.get("data") for part in parts if part.get("type") == "reasoning.encrypted"), None)
    signature = next((part.get("signature") for part in parts if part.get("signature")), None)
    return ContentReasoning(
        reasoning=text or str(hidden or ""),
        summary=summary or None,
        signature=signature,
        redacted=not text and hidden is not None,
        internal={REASONING_DETAILS: details},
    )


def tool_call_from_wire(call: Mapping[str, Any], tools: list[ToolInfo]) -> ToolCall:
    """A tool call; arguments that cannot be read leave a `parse_error` for the model to see."""
    function = call.get("function") or {}
    name, text = str(function.get("name") or ""), function.get("arguments") or "{}"
    arguments, error = parse_arguments(name, text, tools)
    return ToolCall(
        id=str(call.get("id") or f"{name}_{new_id()}"), function=name, arguments=arguments, parse_error=error
    )


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
    read = _first(details.get("cached_tokens"), usage.get("prompt_cache_hit_tokens"))  # the latter DeepSeek's
    written = _first(details.get("cache_write_tokens"), usage.get("cache_creation_input_tokens"))  # OpenRouter's
    given, made = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    return ModelUsage(
        input_tokens=max(0, given - (read or 0) - (written or 0)),
        output_tokens=made,
        total_tokens=usage.get("total_tokens") or given + made,
        input_tokens_cache_write=written,
        input_tokens_cache_read=read,
        reasoning_tokens=(usage.get("completion_tokens_details") or {}).get("reasoning_tokens"),
    )


def _first(*values: Any) -> Any:
    return next((value for value in values if value is not None), None)


def logprobs_from_wire(logprobs: Mapping[str, Any] | None) -> Logprobs | None:
    """Log probabilities of a choice."""
    content = (logprobs or {}).get("content")
    if content:
        return Logprobs(content=[Logprob(**_token(entry), top_logprobs=_top(entry)) for entry in content])
    tokens, values = (logprobs or {}).get("tokens"), (logprobs or {}).get("token_logprobs")
    if tokens and values:  # Together's shape
        return Logprobs(
            content=[
                Logprob(token=token, logprob=value, bytes=list(token.encode()))
                for token, value in zip(tokens, values, strict=False)
                if value is not None
            ]
        )
    return None


def prompt_logprobs_from_wire(positions: Any) -> Logprobs | None:
    """Log probabilities of the input, in the shape of vLLM: one mapping a position, the token itself first."""
    if not isinstance(positions, list):
        return None
    found = []
    for position in positions:
        if not isinstance(position, dict) or not position:
            continue  # the first has nothing before it
        first, *others = [
            (str(entry.get("decoded_token") or ""), float(entry["logprob"])) for entry in position.values()
        ]
        top = [TopLogprob(token=token, logprob=value) for token, value in others]
        found.append(Logprob(token=first[0], logprob=first[1], top_logprobs=top or None))
    return Logprobs(content=found) if found else None


def _top(entry: Mapping[str, Any]) -> list[TopLogprob] | None:
    top: Iterable[Mapping[str, Any]] | None = entry.get("top_logprobs")
    return None if top is None else [TopLogprob(**_token(other)) for other in top]


def _token(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {"token": entry["token"], "logprob": entry["logprob"], "bytes": entry.get("bytes")}
