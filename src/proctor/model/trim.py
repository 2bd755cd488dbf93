"""`trim_messages`: shorten a conversation so that it fits a model's context again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from proctor.errors import OptionError
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentText,
)
from proctor.runtime import new_id


async def trim_messages(messages: list[ChatMessage], preserve: float = 0.7) -> list[ChatMessage]:
    """A shorter conversation: system messages and the sample's input stay, of the others the oldest go.

    A tool's message stays only with the call that it answers, a call only with its answer, and the conversation does
    not end with a model's message: providers refuse anything else. Citations go, as what they refer to may have gone.

    Args:
        preserve: the share of the other messages to keep, from 0 to 1.

    Raises:
        OptionError: it is no such share.
    """
    if not 0 <= preserve <= 1:
        raise OptionError(f"preserve: a share from 0 to 1 is needed, not {preserve}")
    system = [message for message in messages if isinstance(message, ChatMessageSystem)]
    given, others = _parted([message for message in messages if not isinstance(message, ChatMessageSystem)])
    kept = _answered(_with_their_calls(others[int(len(others) * (1 - preserve)) :]))
    if kept and isinstance(kept[-1], ChatMessageAssistant):
        kept.pop()
    return [_without_citations(message) for message in [*system, *given, *kept]]


def _parted(messages: Sequence[ChatMessage]) -> tuple[list[ChatMessage], list[ChatMessage]]:
    """The sample's input and the rest. Where nothing says it is input, it goes up to the first user message."""
    given = [message for message in messages if message.source == "input" and not _is_summary(message)]
    if given:
        known = {id(message) for message in given}
        return given, [message for message in messages if id(message) not in known]
    for place, message in enumerate(messages):
        if _is_summary(message):
            return list(messages[:place]), list(messages[place:])
        if isinstance(message, ChatMessageUser):
            return list(messages[: place + 1]), list(messages[place + 1 :])
    return list(messages), []


def _is_summary(message: ChatMessage) -> bool:
    return "summary" in (message.metadata or {})


def _with_their_calls(messages: Iterable[ChatMessage]) -> list[ChatMessage]:
    """Without tool messages whose call is not in the model's message before them."""
    kept: list[ChatMessage] = []
    asked: set[str | None] = set()
    for message in messages:
        if isinstance(message, ChatMessageAssistant):
            asked = {call.id for call in message.tool_calls or ()}
        elif isinstance(message, ChatMessageUser):
            asked = set()
        elif isinstance(message, ChatMessageTool) and message.tool_call_id not in asked:
            continue
        kept.append(message)
    return kept


def _answered(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Without the tool calls that no tool message answers."""
    answered = {message.tool_call_id for message in messages if isinstance(message, ChatMessageTool)}
    kept: list[ChatMessage] = []
    for message in messages:
        asked = (message.tool_calls or []) if isinstance(message, ChatMessageAssistant) else []
        calls = [call for call in asked if call.id in answered]
        same = len(calls) == len(asked)
        kept.append(message if same else message.model_copy(update={"id": new_id(), "tool_calls": calls or None}))
    return kept


def _without_citations(message: ChatMessage) -> ChatMessage:
    if isinstance(message.content, str) or not any(_cites(part) for part in message.content):
        return message
    content = [part.model_copy(update={"citations": None}) if _cites(part) else part for part in message.content]
    return message.model_copy(update={"id": new_id(), "content": content})


def _cites(part: Content) -> bool:
    return isinstance(part, ContentText) and bool(part.citations)
