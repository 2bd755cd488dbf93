"""Messages and tools as Anthropic's Messages protocol has them. No I/O but files.

What must come back as it was travels in the contents themselves, so that a conversation can be continued from a log:

- thinking is a `ContentReasoning` whose `reasoning` is the signature and whose `summary` is the text, as Inspect has
  it; its ``internal`` says that it is Anthropic's (``{"anthropic": "thinking"}``);
- thinking after a tool call is only accepted again in that order, which a message does not have: its calls are apart
  from its contents. So a content that followed calls names them (``{"after": [ids]}`` in ``internal``);
- what the vendor ran itself keeps its blocks in the ``internal`` of the `ContentToolUse`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proctor.errors import ModelError, UsageError
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Citation,
    Content,
    ContentData,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    ContentToolUse,
    DocumentCitation,
    UrlCitation,
)
from proctor.model.portable import plain
from proctor.model.providers.dataurl import split_data_url
from proctor.model.providers.media import as_url
from proctor.model.toolcall import ToolCall, ToolInfo

Block = dict[str, Any]

NO_CONTENT: Final = "(no content)"  # the protocol refuses empty text
OURS: Final = "anthropic"
AFTER: Final = "after"
IMAGES: Final = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
THINKING: Final = frozenset({"thinking", "redacted_thinking"})


def split_system(messages: Sequence[ChatMessage], *, inline: bool) -> tuple[list[ChatMessageSystem], list[ChatMessage]]:
    """Take out the system messages that go before the conversation.

    Those at its start do. Later ones stay where they are if the model takes that (`inline`), else they become user
    messages marked as reminders, so that the prompt cache of what is before them stays valid; one at a place where
    neither is accepted goes to the start.
    """
    count = next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))
    top = [message for message in messages[:count] if isinstance(message, ChatMessageSystem)]
    rest: list[ChatMessage] = []
    later = list(messages[count:])
    for i, message in enumerate(later):
        if not isinstance(message, ChatMessageSystem):
            rest.append(message)
            continue
        before = rest[-1].role if rest else None
        after = next((other.role for other in later[i + 1 :] if inline or other.role != "system"), None)
        if inline and before == "system":
            rest[-1] = ChatMessageSystem(content=f"{rest[-1].text}\n\n{message.text}")
        elif inline and before in {"user", "tool"} and after in {None, "assistant", "system"}:
            rest.append(message)
        elif inline or "tool" in {before, after}:
            top.append(message)
        else:
            rest.append(ChatMessageUser(content=f"<system-reminder>\n{message.text}\n</system-reminder>"))
    return top, _settled(rest, top)


def _settled(rest: list[ChatMessage], top: list[ChatMessageSystem]) -> list[ChatMessage]:
    """Move inline system messages up that are, after merging, not followed by an answer."""
    kept: list[ChatMessage] = []
    for i, message in enumerate(rest):
        follows = rest[i + 1].role if i + 1 < len(rest) else None
        if isinstance(message, ChatMessageSystem) and follows not in {None, "assistant"}:
            top.append(message)
        else:
            kept.append(message)
    return kept


def without_orphans(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Results of calls that the conversation does not have become user messages: the protocol refuses them."""
    called = {
        call.id
        for message in messages
        if isinstance(message, ChatMessageAssistant)
        for call in message.tool_calls or ()
    }
    return [
        _as_text(message) if isinstance(message, ChatMessageTool) and message.tool_call_id not in called else message
        for message in messages
    ]


def _as_text(message: ChatMessageTool) -> ChatMessageUser:
    failed = f" (failed: {message.error.message})" if message.error is not None else ""
    return ChatMessageUser(content=f"[result of {message.function or 'a tool'}{failed}]\n{message.text}")


async def message_to_wire(message: ChatMessage) -> Block:
    """One message of a request, its content always a list of blocks.

    Raises:
        ModelError: a content that the protocol does not have. UsageError: a file that cannot be read.
    """
    match message:
        case ChatMessageAssistant():
            return {"role": "assistant", "content": await _assistant_blocks(message)}
        case ChatMessageTool():
            return {"role": "user", "content": [await _result_block(message)]}
        case ChatMessageSystem():
            return {"role": "system", "content": text_blocks(message)}
    return {"role": "user", "content": await _blocks(message.content_list) or [_text(NO_CONTENT)]}


def text_blocks(message: ChatMessageSystem) -> list[Block]:
    """The text of a system message, a block for each part that ends at a cache breakpoint."""
    runs: list[list[str]] = [[]]
    marks: list[bool] = []
    for part in message.content_list:
        if isinstance(part, ContentText):
            runs[-1].append(part.text)
            if part.cache_breakpoint:
                marks.append(True)
                runs.append([])
    texts = ["\n".join(run) for run in runs]
    blocks = []
    for i, text in enumerate(texts):
        if text:
            marked = i < len(marks)
            blocks.append({**_text(text), **({"cache_control": {"type": "ephemeral"}} if marked else {})})
    return blocks or [_text(NO_CONTENT)]


async def _result_block(message: ChatMessageTool) -> Block:
    failed = message.error is not None
    content: Any
    if message.error is not None:
        content = message.error.message or message.text or "error"  # an error without words is refused
    else:
        content = await _blocks(message.content_list) or [_text(NO_CONTENT)]
        for block in content:
            block.pop("citations", None)  # a result has none
    return {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id or "",
        "content": content,
        "is_error": failed,
    }


async def _assistant_blocks(message: ChatMessageAssistant) -> list[Block]:
    waiting = {call.id: call for call in message.tool_calls or ()}
    blocks: list[Block] = []
    for part in message.content_list:
        blocks += [_call_block(waiting.pop(name)) for name in _after(part) if name in waiting]
        if isinstance(part, ContentReasoning):
            blocks.append(_reasoning_block(part, own="claude" in (message.model or "")))
        else:
            blocks += await part_to_wire(part)
    blocks = [block for block in blocks if block["type"] != "text" or block["text"]]
    blocks += [_call_block(call) for call in waiting.values()]
    if not blocks or blocks[-1]["type"] in THINKING:
        blocks.append(_text(NO_CONTENT))  # thinking may not be the end of a turn
    return blocks


def _after(part: Content) -> Sequence[str]:
    internal = part.internal
    return internal.get(AFTER, ()) if isinstance(internal, Mapping) else ()


def _call_block(call: ToolCall) -> Block:
    return {"type": "tool_use", "id": call.id, "name": call.function, "input": call.arguments}


async def _blocks(parts: Sequence[Content]) -> list[Block]:
    blocks = [block for part in parts for block in await part_to_wire(part)]
    return [block for block in blocks if block["type"] != "text" or block["text"]]


async def part_to_wire(part: Content) -> list[Block]:
    """The blocks of a content."""
    match part:
        case ContentText():
            return [_text_block(part)]
        case ContentReasoning():
            return [_reasoning_block(part, own=False)]
        case ContentImage():
            return [await _image_block(part.image)]
        case ContentDocument():
            return [await _document_block(part)]
        case ContentToolUse():
            return _tool_use_blocks(part)
        case ContentData():
            if isinstance(block := part.data.get(OURS), dict):
                return [block]
            return []
    raise ModelError(f"Anthropic's models take no content of type {part.type!r}")


def _text(text: str) -> Block:
    return {"type": "text", "text": text}


def _text_block(part: ContentText) -> Block:
    block = _text(part.text)
    citations = [wire for one in part.citations or () if (wire := _citation(one)) is not None]
    if citations:
        block["citations"] = citations
    if part.cache_breakpoint:
        block["cache_control"] = {"type": "ephemeral"}
    return block


def _reasoning_block(part: ContentReasoning, *, own: bool) -> Block:
    """Thinking as it came; another model's becomes text. `own`: what does not say whose it is is Claude's."""
    kind = part.internal.get(OURS) if isinstance(part.internal, Mapping) else None
    if kind == "redacted_thinking":
        return {"type": "redacted_thinking", "data": part.reasoning}
    if kind == "thinking" or (own and part.redacted and part.summary is not None and part.internal is None):
        return {"type": "thinking", "thinking": part.summary or "", "signature": part.reasoning}
    return _text(part.text)


async def _image_block(reference: str, mime_type: str | None = None) -> Block:
    url = await as_url(reference, mime_type=mime_type)
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    kind, data = split_data_url(url)
    kind = kind or "image/png"
    if kind not in IMAGES:
        raise UsageError(f"Anthropic's models take no image of type {kind} ({reference[:60]})")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


async def _document_block(part: ContentDocument) -> Block:
    image = part.mime_type in IMAGES
    source: Block
    if image:
        source = {"type": "content", "content": [await _image_block(part.document, part.mime_type)]}
    else:
        url = await as_url(part.document, mime_type=part.mime_type)
        if not url.startswith("data:"):
            source = {"type": "url", "url": url}
        elif part.mime_type == "application/pdf":
            source = {"type": "base64", "media_type": "application/pdf", "data": split_data_url(url)[1]}
        else:
            text = base64.b64decode(split_data_url(url)[1]).decode("utf-8", "replace")
            source = {"type": "text", "media_type": "text/plain", "data": text}
    block: Block = {"type": "document", "source": source, "title": part.filename}
    if part.citations and not image:
        block["citations"] = {"enabled": True}
    return block


def _tool_use_blocks(part: ContentToolUse) -> list[Block]:
    """What the vendor ran itself, as it was; a run of another vendor's becomes text."""
    internal = part.internal
    if isinstance(internal, Mapping) and isinstance(blocks := internal.get(OURS), list):
        return list(blocks)
    failed = f"\nerror: {part.error}" if part.error else ""
    return [_text(f"[{part.name}({part.arguments})]\n{part.result}{failed}")]


RANGES: Final = {
    "char": ("char_location", "start_char_index", "end_char_index", 0),
    "block": ("content_block_location", "start_block_index", "end_block_index", 0),
    "page": ("page_location", "start_page_number", "end_page_number", 1),
}
"""Kinds of a cited range: its type and its two fields in the protocol, and from where the protocol counts."""


def _citation(citation: Citation) -> Block | None:
    """A citation as it came; None for one that did not come from Anthropic."""
    internal = citation.internal or {}
    cited = citation.cited_text if isinstance(citation.cited_text, str) else ""
    if isinstance(citation, UrlCitation) and "encrypted_index" in internal:
        return {
            "type": "web_search_result_location",
            "cited_text": cited,
            "title": citation.title,
            "url": citation.url,
            "encrypted_index": internal["encrypted_index"],
        }
    if isinstance(citation, DocumentCitation) and citation.range is not None and "document_index" in internal:
        kind, start, end, first = RANGES[citation.range.type]
        return {
            "type": kind,
            "cited_text": cited,
            "document_title": citation.title,
            "document_index": internal["document_index"],
            start: citation.range.start_index + first,
            end: citation.range.end_index + first,
        }
    return None


def tool_to_wire(tool: ToolInfo) -> Block:
    """A tool as it is offered."""
    return {
        "name": tool.name,
        "description": tool.description,
        "input_schema": plain(tool.parameters, exclude_none=True),
    }


def called_tools(messages: Sequence[ChatMessage]) -> list[Block]:
    """Tools that a conversation has calls of: one with calls must offer some, even if none is to be called."""
    names = {
        call.function: None
        for message in messages
        if isinstance(message, ChatMessageAssistant)
        for call in message.tool_calls or ()
    }
    return [{"name": name, "description": name, "input_schema": {"type": "object"}} for name in names]
