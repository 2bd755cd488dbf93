"""Vendors that speak OpenAI's chat completions with quirks: Together, Groq, OpenRouter, Fireworks, DeepSeek, and
servers of one's own: vLLM, Ollama. What is a matter of data is in their rows of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from attrs import evolve

from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage, ChatMessageSystem
from proctor.model.providers.openai_compatible import CompatibleAPI
from proctor.model.providers.vendors import LOW_TO_HIGH, Vendor, vendor
from proctor.model.toolcall import ToolChoice, ToolInfo


class FamilyAPI(CompatibleAPI):
    """A client of one model of the vendor that a subclass names."""

    vendor_name: ClassVar[str]

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, config, row=vendor(self.vendor_name), **model_args)

    def named(self, *words: str) -> bool:
        """Whether the model's name holds one of the words."""
        return any(word in self.sent_name.lower() for word in words)


class TogetherAPI(FamilyAPI):
    """Together."""

    vendor_name = "together"

    def chat_row(self, config: GenerateConfig) -> Vendor:
        """Models of OpenAI's know fewer efforts."""
        return evolve(self.row, efforts=LOW_TO_HIGH) if self.named("gpt-oss") else self.row

    async def chat_body(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> dict[str, Any]:
        """Several choices need a temperature there."""
        body = await super().chat_body(input, tools, tool_choice, config)
        if "n" in body:
            body.setdefault("temperature", 1)
        return body


class GroqAPI(FamilyAPI):
    """Groq."""

    vendor_name = "groq"


class OpenRouterAPI(FamilyAPI):
    """OpenRouter."""

    vendor_name = "openrouter"

    async def chat_body(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> dict[str, Any]:
        """One system message, as some of those it routes to want; reasoning in an object of its own."""
        body = await super().chat_body(_systems_together(input), tools, tool_choice, config)
        reasoning: dict[str, Any] = {}
        if (effort := body.pop("reasoning_effort", None)) is not None:
            reasoning["effort"] = effort
        elif config.reasoning_tokens is not None:
            reasoning["max_tokens"] = config.reasoning_tokens
        if (enabled := body.pop("reasoning_enabled", None)) is not None:
            reasoning["enabled"] = enabled
        if reasoning:
            body.setdefault("reasoning", reasoning)
        if self.named("anthropic/") and config.cache_prompt is not False:
            _mark_for_cache(body)
        return body


class FireworksAPI(FamilyAPI):
    """Fireworks."""

    vendor_name = "fireworks"

    def chat_row(self, config: GenerateConfig) -> Vendor:
        """Some models know fewer efforts."""
        return evolve(self.row, efforts=LOW_TO_HIGH) if self.named("gpt-oss", "minimax-m2") else self.row


class DeepSeekAPI(FamilyAPI):
    """DeepSeek: it thinks unless told not to, and while it thinks it cannot be made to call a tool."""

    vendor_name = "deepseek"

    async def chat_body(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> dict[str, Any]:
        """Thinking is switched off by a field of its own; a schema is only asked for as JSON."""
        body = await super().chat_body(input, tools, tool_choice, config)
        if body.get("reasoning_effort") == "none":
            del body["reasoning_effort"]
            body.setdefault("thinking", {"type": "disabled"})
        thinking = body.get("thinking")
        thinks = not (isinstance(thinking, Mapping) and thinking.get("type") == "disabled")
        if thinks and body.get("tool_choice") not in {None, "auto", "none"}:
            body["tool_choice"] = "auto"
            self.tell_unsupported(["tool_choice that forces a call while it thinks (reasoning_effort=none ends that)"])
        if (body.get("response_format") or {}).get("type") == "json_schema":
            body["response_format"] = {"type": "json_object"}
            self.tell_unsupported(["response_schema (it is told to answer in JSON; say in the prompt how it looks)"])
        return body


class VLLMAPI(FamilyAPI):
    """A vLLM server that runs already (``VLLM_BASE_URL``)."""

    vendor_name = "vllm"


class OllamaAPI(FamilyAPI):
    """An Ollama server that runs already, by default on this machine."""

    vendor_name = "ollama"

    async def chat_body(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> dict[str, Any]:
        """Reasoning has an object of its own."""
        body = await super().chat_body(input, tools, tool_choice, config)
        if (effort := body.pop("reasoning_effort", None)) is not None:
            body.setdefault("reasoning", {"effort": effort})
        return body


def _systems_together(messages: list[ChatMessage]) -> list[ChatMessage]:
    """The messages with system messages that follow each other made one."""
    together: list[ChatMessage] = []
    for message in messages:
        last = together[-1] if together else None
        if isinstance(message, ChatMessageSystem) and isinstance(last, ChatMessageSystem):
            together[-1] = ChatMessageSystem(content=f"{last.text}\n\n{message.text}")
        else:
            together.append(message)
    return together


def _mark_for_cache(body: dict[str, Any]) -> None:
    """Mark where the cache of Anthropic's prompts may end: after the tools, the system message, and the last message
    but one, so that each turn finds what the one before it left."""
    mark = {"type": "ephemeral"}
    messages = body["messages"]
    systems = [message for message in messages if message["role"] == "system"]
    for message in [*systems[-1:], *[one for one in messages[-2:-1] if one["role"] == "user"]]:
        if isinstance(message["content"], str) and message["content"]:
            message["content"] = [{"type": "text", "text": message["content"]}]
        if isinstance(message["content"], list) and message["content"]:
            message["content"][-1]["cache_control"] = mark
    if body.get("tools"):
        body["tools"][-1]["cache_control"] = mark
