"""What a model call gives back: value classes with the field names, defaults and order of the log format."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, TypeVar

from attrs import define, field

from proctor.model.messages import ChatMessage, ChatMessageAssistant, Content
from proctor.model.portable import Portable
from proctor.model.toolcall import ToolCall

StopReason: TypeAlias = Literal["stop", "max_tokens", "model_length", "tool_calls", "content_filter", "unknown"]

N = TypeVar("N", int, float)


@define(kw_only=True)
class ModelUsage(Portable):
    """Tokens that a call, or several, used.

    Attributes:
        input_tokens: those charged at the full rate; cached ones are counted apart.
        output_tokens, total_tokens: as the provider reports them.
        input_tokens_cache_write, input_tokens_cache_read: written to and read from the provider's cache.
        reasoning_tokens: part of the output. total_cost: in dollars.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    input_tokens_cache_write: int | None = None
    input_tokens_cache_read: int | None = None
    reasoning_tokens: int | None = None
    total_cost: float | None = None

    def __add__(self, other: ModelUsage) -> ModelUsage:
        return ModelUsage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
            input_tokens_cache_write=_sum(self.input_tokens_cache_write, other.input_tokens_cache_write),
            input_tokens_cache_read=_sum(self.input_tokens_cache_read, other.input_tokens_cache_read),
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            total_cost=_sum(self.total_cost, other.total_cost),
        )


def _sum(a: N | None, b: N | None) -> N | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


@define(kw_only=True)
class ModelFallback(Portable):
    """A request that another model than the asked one served."""

    model: str
    fallback_model: str
    count: int = 1
    metadata: dict[str, Any] | None = None


@define(kw_only=True)
class StopCategory(Portable):
    """One category of a refusal, with the severity the provider reported."""

    category: str
    level: str | None = None


@define(kw_only=True)
class StopDetails(Portable):
    """Why a model stopped, beyond the reason: the categories of a refusal and a summary of them."""

    type: str | None = None
    category: str | None = None
    explanation: str | None = None
    categories: list[StopCategory] = field(factory=list)


@define(kw_only=True)
class TopLogprob(Portable):
    """One of the likeliest tokens at a position."""

    token: str
    logprob: float
    bytes: list[int] | None = None


@define(kw_only=True)
class Logprob(Portable):
    """The log probability of a token that was produced, and of the likeliest others."""

    token: str
    logprob: float
    bytes: list[int] | None = None
    top_logprobs: list[TopLogprob] | None = None


@define(kw_only=True)
class Logprobs(Portable):
    """Log probabilities, one entry a token."""

    content: list[Logprob]


@define(kw_only=True)
class ChatCompletionChoice(Portable):
    """One answer of a model."""

    message: ChatMessageAssistant
    stop_reason: StopReason = "unknown"
    stop_details: StopDetails | None = None
    logprobs: Logprobs | None = None
    prompt_logprobs: Logprobs | None = None

    def __attrs_post_init__(self) -> None:
        if self.stop_reason == "length":  # type: ignore[comparison-overlap]  # logs of old versions
            self.stop_reason = "max_tokens"


@define(kw_only=True)
class ModelOutput(Portable):
    """The output of a model call.

    Attributes:
        model: who answered. choices: the answers, usually one.
        completion: the text of the first answer, unless another was given.
        usage: tokens of the call. input_context_tokens: what the input took of the context window, cached tokens
        included.
        fallback: set when another model answered. time: seconds the call took.
        error: the provider's words on a refusal. response_id: the provider's id.
    """

    model: str = ""
    choices: list[ChatCompletionChoice] = field(factory=list)
    completion: str = ""
    usage: ModelUsage | None = None
    input_context_tokens: int | None = None
    fallback: ModelFallback | None = None
    time: float | None = None
    metadata: dict[str, Any] | None = None
    error: str | None = None
    response_id: str | None = None

    def __attrs_post_init__(self) -> None:
        if not self.completion and self.choices:
            self.completion = self.choices[0].message.text

    @property
    def empty(self) -> bool:
        """Whether there is no answer at all."""
        return not self.choices

    @property
    def stop_reason(self) -> StopReason:
        """Why the first answer ended."""
        return self._first().stop_reason

    @property
    def message(self) -> ChatMessageAssistant:
        """The message of the first answer."""
        return self._first().message

    def _first(self) -> ChatCompletionChoice:
        if not self.choices:
            raise IndexError("the model output has no choices" + (f": {self.error}" if self.error else ""))
        return self.choices[0]

    @staticmethod
    def from_message(message: ChatMessage, stop_reason: StopReason = "stop") -> ModelOutput:
        """An output whose one answer is `message` (taken as an assistant's)."""
        if not isinstance(message, ChatMessageAssistant):
            message = ChatMessageAssistant(content=message.content, source="generate")
        choice = ChatCompletionChoice(message=message, stop_reason=stop_reason)
        return ModelOutput(model=message.model or "", choices=[choice])

    @staticmethod
    def from_content(
        model: str,
        content: str | list[Content],
        stop_reason: StopReason = "stop",
        error: str | None = None,
        stop_details: StopDetails | None = None,
    ) -> ModelOutput:
        """An output whose one answer is this content."""
        message = ChatMessageAssistant(content=content, model=model, source="generate")
        choice = ChatCompletionChoice(message=message, stop_reason=stop_reason, stop_details=stop_details)
        return ModelOutput(model=model, choices=[choice], error=error)

    @staticmethod
    def for_tool_call(
        model: str,
        tool_name: str,
        tool_arguments: dict[str, Any],
        internal: Any = None,
        tool_call_id: str | None = None,
        content: str | None = None,
    ) -> ModelOutput:
        """An output that asks for one tool call.

        Args:
            model: who asks. tool_name, tool_arguments: the call.
            internal: accepted for ported code and ignored.
            tool_call_id: default a new one.
            content: default a line that names the tool.
        """
        from proctor.runtime import new_id

        call = ToolCall(tool_call_id or f"for_tool_call_{new_id()}", tool_name, tool_arguments)
        message = ChatMessageAssistant(
            content=f"tool call for tool {tool_name}" if content is None else content,
            model=model,
            source="generate",
            tool_calls=[call],
        )
        return ModelOutput(model=model, choices=[ChatCompletionChoice(message=message, stop_reason="tool_calls")])


@define(kw_only=True)
class ModelCall(Portable):
    """The raw request and response of a call, without keys, as the log keeps them.

    Attributes:
        response: None while it is pending. error: whether it failed. time: seconds.
        call_refs, call_key: where `request` is pooled (see the log format).
    """

    request: dict[str, Any]
    response: dict[str, Any] | None = None
    error: bool | None = None
    time: float | None = None
    call_refs: list[tuple[int, int]] | None = None
    call_key: str | None = None


@define(kw_only=True)
class ModelRequestId(Portable):
    """A provider's id of one HTTP request: the header it came in and the response's status."""

    id: str
    header: str
    status: int


def as_stop_reason(reason: str | None) -> StopReason:
    """The stop reason for a provider's word for it."""
    match reason:
        case "stop" | "eos":
            return "stop"
        case "length" | "max_tokens":
            return "max_tokens"
        case "tool_calls" | "function_call":
            return "tool_calls"
        case "content_filter":
            return "content_filter"
        case "model_length":
            return "model_length"
        case _:
            return "unknown"
