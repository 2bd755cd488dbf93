"""`Sample`: one question of a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast

import attrs
from attrs import define, field

from proctor.log.records import SandboxEnvironmentSpec
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
)
from proctor.model.portable import Portable

M = TypeVar("M")

SandboxEnvironmentType: TypeAlias = "SandboxEnvironmentSpec | str | tuple[str, Any]"

_MESSAGES: Final = (ChatMessageSystem, ChatMessageUser, ChatMessageAssistant, ChatMessageTool)
_BY_ROLE: Final[Mapping[str, type[Any]]] = {cls.__name__.removeprefix("ChatMessage").lower(): cls for cls in _MESSAGES}


def as_messages(messages: Sequence[Any], *, source: str | None = None) -> list[ChatMessage]:
    """Chat messages from messages or from mappings with a role and a content.

    Args:
        source: given to the messages made from mappings that name none.

    Raises:
        ValueError: a mapping has no role, an unknown one, or no content.
    """
    return [message if isinstance(message, _MESSAGES) else _as_message(message, source) for message in messages]


def _as_message(value: Any, source: str | None) -> ChatMessage:
    if not isinstance(value, Mapping):
        raise ValueError(f"a chat message must be a mapping with role and content, not {type(value).__name__}")
    role = str(value.get("role"))
    if role not in _BY_ROLE:
        raise ValueError(f"the role of a chat message must be one of {', '.join(_BY_ROLE)}, not {value.get('role')!r}")
    if value.get("content") is None:
        raise ValueError(f"a chat message of role {role} has no content")
    if source is not None and value.get("source") is None:
        value = {**value, "source": source}
    return cast("ChatMessage", _BY_ROLE[role].model_validate(dict(value)))


def as_sandbox(value: SandboxEnvironmentType | None) -> SandboxEnvironmentSpec | None:
    """A sandbox specification from its type, or from its type and configuration.

    Raises:
        TypeError: it is neither.
    """
    if value is None or isinstance(value, SandboxEnvironmentSpec):
        return value
    if isinstance(value, str):
        return SandboxEnvironmentSpec(type=value)
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return SandboxEnvironmentSpec(type=value[0], config=value[1])
    raise TypeError(f"sandbox must be a type or a tuple (type, configuration), not {value!r}")


def _as_input(value: str | Sequence[ChatMessage | Mapping[str, Any]]) -> str | list[ChatMessage]:
    return as_messages(value) if isinstance(value, (list, tuple)) else cast("str", value)


@define
class Sample(Portable):
    """One question of a dataset.

    Args:
        input: the text for the model, or a conversation (messages, or mappings with role and content).
        choices: the answers to choose from, for multiple choice.
        target: the ideal answer, or several that are each right; letters for multiple choice.
        id: unique within the dataset as `str(id)`; without one a sample gets its number in the dataset.
        metadata: anything of the author's own.
        sandbox: type of sandbox, or a tuple of type and configuration.
        files: contents, paths or data URLs by their path in the sandbox.
        setup: a script run in the sandbox before the solvers.
        description: a short statement of what is asked, for the log.

    Raises:
        TypeError: input, target, choices or sandbox has another type.
    """

    input: str | list[ChatMessage] = field(converter=_as_input)
    choices: list[str] | None = None
    target: str | list[str] = ""
    id: int | str | None = None
    metadata: dict[str, Any] | None = None
    sandbox: SandboxEnvironmentSpec | None = field(default=None, converter=as_sandbox)
    files: dict[str, str] | None = None
    setup: str | None = None
    description: str | None = field(default=None, kw_only=True)

    def __attrs_post_init__(self) -> None:
        # A number as target is the commonest slip; it would surface as a scorer's error on every sample.
        if not isinstance(self.input, (str, list)):
            raise TypeError(f"Sample input must be text or a list of messages, not {type(self.input).__name__}")
        for name, value in (("target", self.target), ("choices", self.choices)):
            if isinstance(value, str if name == "target" else type(None)):
                continue
            if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
                raise TypeError(f"Sample {name} must be text or a list of texts, not {value!r}: str(…) makes text")

    def metadata_as(self, metadata_cls: type[M]) -> M:
        """The metadata as an instance of a class with the fields that it has.

        Raises:
            ValueError: there is no metadata, or it does not fit the class.
        """
        if self.metadata is None:
            raise ValueError(f"sample {self.id!r} has no metadata")
        return metadata_as(self.metadata, metadata_cls)


def metadata_as(metadata: Mapping[str, Any], cls: type[M]) -> M:
    """The entries of `metadata` that `cls` (attrs, dataclass or pydantic) has as fields, as an instance of it.

    Raises:
        ValueError: they do not fit the class.
    """
    names = getattr(cls, "model_fields", None) or getattr(cls, "__dataclass_fields__", None)
    if names is None and attrs.has(cls):
        names = [attribute.name for attribute in attrs.fields(cls)]
    chosen = dict(metadata) if names is None else {key: metadata[key] for key in names if key in metadata}
    try:
        return cls(**chosen)
    except (TypeError, ValueError) as error:
        raise ValueError(f"the metadata does not fit {cls.__name__}: {error}") from error


def input_length(sample: Sample) -> int:
    """Characters of a sample's input, the key by which datasets are sorted unless another is given."""
    return len(sample.input) if isinstance(sample.input, str) else sum(len(message.text) for message in sample.input)
