"""The messages of a state: a list that the message limit around it does not let grow too long."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any, Self, SupportsIndex

from proctor.model.messages import ChatMessage
from proctor.runtime.blocks import check_messages


class Conversation(list[ChatMessage]):
    """Messages. Adding one too many raises `LimitExceededError` and adds nothing."""

    __slots__ = ()

    def append(self, message: ChatMessage, /) -> None:
        check_messages(len(self) + 1)
        list.append(self, message)

    def extend(self, messages: Iterable[ChatMessage], /) -> None:
        added = list(messages)
        check_messages(len(self) + len(added))
        list.extend(self, added)

    def insert(self, index: SupportsIndex, message: ChatMessage, /) -> None:
        check_messages(len(self) + 1)
        list.insert(self, index, message)

    def __iadd__(self, messages: Iterable[ChatMessage], /) -> Self:  # type: ignore[override,misc]
        self.extend(messages)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Conversation:
        # Copying message by message would ask the limit, which says nothing about copies.
        return Conversation([deepcopy(message, memo) for message in self])

    def __reduce__(self) -> tuple[Any, ...]:
        return Conversation, (list(self),)
