"""How much of a model's earlier reasoning goes back to it."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage, ChatMessageAssistant, ContentReasoning


def with_history(messages: Sequence[ChatMessage], config: GenerateConfig) -> list[ChatMessage]:
    """The messages with the reasoning that ``reasoning_history`` leaves: all (the default), the last one or none."""
    history = config.reasoning_history or "all"
    if history in {"all", "auto"}:
        return list(messages)
    last = max((i for i, message in enumerate(messages) if message.role == "assistant"), default=-1)
    return [
        message if history == "last" and i == last else _without_reasoning(message)
        for i, message in enumerate(messages)
    ]


def _without_reasoning(message: ChatMessage) -> ChatMessage:
    if not isinstance(message, ChatMessageAssistant) or isinstance(message.content, str):
        return message
    kept = [part for part in message.content if not isinstance(part, ContentReasoning)]
    return message.model_copy(update={"content": kept})
