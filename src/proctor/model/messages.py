"""Chat messages and their contents: value classes with the field names, defaults and order of the log format.

They are mutable where code of the field mutates them, keyword-only, and hold no identity of their own: an ``id``
is given by whoever creates the message.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Literal, TypeAlias

from attrs import define, field

from proctor.model.portable import Portable
from proctor.model.toolcall import ToolCall, ToolCallError

MessageSource: TypeAlias = Literal["input", "generate", "operator"]


@define(kw_only=True)
class DocumentRange(Portable):
    """A part of a document: indices from 0."""

    type: Literal["block", "page", "char"]
    start_index: int
    end_index: int


@define(kw_only=True)
class ContentCitation(Portable):
    """A citation of some content.

    Attributes:
        cited_text: the text, or the range of it within what is cited.
        internal: the provider's own payload.
    """

    cited_text: str | tuple[int, int] | None = None
    title: str | None = None
    internal: dict[str, Any] | None = None
    type: Literal["content"] = "content"


@define(kw_only=True)
class DocumentCitation(Portable):
    """A citation of a range of a document."""

    cited_text: str | tuple[int, int] | None = None
    title: str | None = None
    internal: dict[str, Any] | None = None
    type: Literal["document"] = "document"
    range: DocumentRange | None = None


@define(kw_only=True)
class UrlCitation(Portable):
    """A citation of a web page."""

    cited_text: str | tuple[int, int] | None = None
    title: str | None = None
    internal: dict[str, Any] | None = None
    type: Literal["url"] = "url"
    url: str


Citation: TypeAlias = ContentCitation | DocumentCitation | UrlCitation


@define(kw_only=True)
class ContentText(Portable):
    """Text.

    Attributes:
        internal: the provider's own payload (the same in every content class).
        refusal: whether the text is a refusal. citations: what supports it.
        cache_breakpoint: ask for a prompt-cache boundary after this block.
    """

    internal: Any = None
    type: Literal["text"] = "text"
    text: str
    refusal: bool | None = None
    citations: Sequence[Citation] | None = None
    cache_breakpoint: bool | None = None


@define(kw_only=True)
class ContentReasoning(Portable):
    """A model's reasoning.

    Attributes:
        reasoning: the text, or what must be sent back unread when `redacted`.
        summary: a readable summary. signature: proves to the provider that the text is unchanged.
    """

    internal: Any = None
    type: Literal["reasoning"] = "reasoning"
    reasoning: str
    summary: str | None = None
    signature: str | None = None
    redacted: bool = False

    @property
    def text(self) -> str:
        """The reasoning in the tags that models without a field for it are sent."""
        return f"<think>{(self.summary or '') if self.redacted else self.reasoning}</think>"


@define(kw_only=True)
class ContentImage(Portable):
    """An image: a URL, a data URI or a path."""

    internal: Any = None
    type: Literal["image"] = "image"
    image: str
    detail: Literal["auto", "low", "high", "original"] = "auto"


@define(kw_only=True)
class ContentAudio(Portable):
    """Audio: a data URI or a path."""

    internal: Any = None
    type: Literal["audio"] = "audio"
    audio: str
    format: Literal["wav", "mp3"]


@define(kw_only=True)
class ContentVideo(Portable):
    """Video: a data URI or a path."""

    internal: Any = None
    type: Literal["video"] = "video"
    video: str
    format: Literal["mp4", "mpeg", "mov"]


@define(kw_only=True)
class ContentDocument(Portable):
    """A document: a data URI or a path; name and MIME type are found from it where they are not given."""

    internal: Any = None
    type: Literal["document"] = "document"
    document: str
    filename: str = ""
    mime_type: str = ""
    citations: bool = False

    def __attrs_post_init__(self) -> None:
        if self.document.startswith("data:"):
            mime = self.document[5:].partition(",")[0].partition(";")[0]
            self.mime_type = self.mime_type or mime or "application/octet-stream"
            self.filename = self.filename or f"document.{self.mime_type.rpartition('/')[2]}"
        else:
            self.filename = self.filename or PurePath(self.document).name
            self.mime_type = self.mime_type or mimetypes.guess_type(self.document)[0] or "application/octet-stream"


@define(kw_only=True)
class ContentData(Portable):
    """A provider's payload that must come back with the message."""

    internal: Any = None
    type: Literal["data"] = "data"
    data: dict[str, Any]


@define(kw_only=True)
class ContentToolUse(Portable):
    """A tool that the provider ran on its own side."""

    internal: Any = None
    type: Literal["tool_use"] = "tool_use"
    tool_type: Literal["web_search", "mcp_call", "code_execution"]
    id: str
    name: str
    context: str | None = None
    arguments: str
    result: str
    error: str | None = None


Content: TypeAlias = (
    ContentText
    | ContentReasoning
    | ContentImage
    | ContentAudio
    | ContentVideo
    | ContentData
    | ContentToolUse
    | ContentDocument
)


@define(kw_only=True)
class ChatMessageBase(Portable):
    """What all messages have.

    Attributes:
        id: names the message within a log. content: text, or a list of contents.
        source: where it comes from. metadata: of the author's own.
    """

    id: str | None = None
    content: str | list[Content]
    source: MessageSource | None = None
    metadata: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text of the message: its content, or the text parts of it on lines of their own."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, ContentText))

    @text.setter
    def text(self, text: str) -> None:
        """Replace the text: the first text part gets it and the others go; without one it is appended."""
        if isinstance(self.content, str):
            self.content = text
            return
        first = next((i for i, part in enumerate(self.content) if isinstance(part, ContentText)), len(self.content))
        others = [part for part in self.content[first:] if not isinstance(part, ContentText)]
        self.content = [*self.content[:first], ContentText(text=text), *others]

    @property
    def content_list(self) -> list[Content]:
        """The content as a list, a plain text as its one part."""
        return self.content if isinstance(self.content, list) else [ContentText(text=self.content)]

    def metadata_as(self, metadata_cls: Any) -> Any:
        """The metadata as an instance of `metadata_cls` (anything made from keyword arguments).

        Raises:
            ValueError: the message has none.
        """
        if self.metadata is None:
            raise ValueError("the message has no metadata")
        return metadata_cls(**self.metadata)


@define(kw_only=True)
class ChatMessageSystem(ChatMessageBase):
    """A system message."""

    role: Literal["system"] = "system"


@define(kw_only=True)
class ChatMessageUser(ChatMessageBase):
    """A user's message.

    Attributes:
        tool_call_id: the tool calls whose payload it carries.
    """

    role: Literal["user"] = "user"
    tool_call_id: list[str] | None = None


@define(kw_only=True)
class ChatMessageAssistant(ChatMessageBase):
    """A model's message.

    Attributes:
        tool_calls: the tools it asks for. model: who wrote it.
    """

    role: Literal["assistant"] = "assistant"
    tool_calls: list[ToolCall] | None = None
    model: str | None = None


@define(kw_only=True)
class ChatMessageTool(ChatMessageBase):
    """The result of a tool call.

    Attributes:
        tool_call_id: the call it answers. function: the tool's name. error: what went wrong, for the model.
    """

    role: Literal["tool"] = "tool"
    tool_call_id: str | None = None
    function: str | None = None
    error: ToolCallError | None = field(default=None)


ChatMessage: TypeAlias = ChatMessageSystem | ChatMessageUser | ChatMessageAssistant | ChatMessageTool
