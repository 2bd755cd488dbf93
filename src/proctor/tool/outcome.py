"""What became of a tool call: errors as the model is told of them, and results cut to size."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Final

from attrs import define, field

from proctor.errors import (
    LimitExceededError,
    OutputLimitExceededError,
    SandboxUnavailableError,
    ToolApprovalError,
    ToolError,
    ToolParsingError,
)
from proctor.model.messages import ContentAudio, ContentDocument, ContentImage, ContentText, ContentVideo
from proctor.model.toolcall import ToolCallError, ToolCallErrorType
from proctor.runtime.blocks import holds_here

DEFAULT_MAX_OUTPUT: Final = 16 * 1024
"""Bytes of a tool's output, as in Inspect."""
CONTENTS: Final = (ContentText, ContentImage, ContentAudio, ContentVideo, ContentDocument)

_max_output: Final[ContextVar[int | None]] = ContextVar("proctor_max_tool_output", default=None)


@define(eq=False)
class use_max_tool_output:  # noqa: N801  # reads as the function it stands for
    """``with use_max_tool_output(n):`` the size of tool outputs where a call of `execute_tools` says nothing."""

    size: int | None
    _token: Token[int | None] | None = field(default=None, init=False)

    def __enter__(self) -> None:
        self._token = _max_output.set(self.size)

    def __exit__(self, *exc: object) -> None:
        if self._token is not None:
            _max_output.reset(self._token)


def error_for_model(error: BaseException) -> tuple[ToolCallError, str] | None:
    """The error of a tool as the model is told of it, with what there was of a result; None for what ends the sample.

    Limits that hold around the tools, such as the sample's, end the sample; those of blocks inside a tool have ended
    with it and are the tool's failure. In a group of errors each has to be for the model; it is told of the first.
    """
    if isinstance(error, BaseExceptionGroup):
        told = [error_for_model(each) for each in error.exceptions]
        return told[0] if all(told) else None
    if isinstance(error, LimitExceededError) and holds_here(error.source):
        return None
    if isinstance(error, ValueError) and "embedded null byte" in str(error):
        return ToolCallError("parsing", "An argument holds a null byte, which no command or path may."), ""
    for kind, type, text, output in _TOLD:
        if isinstance(error, kind):
            return ToolCallError(type, text(error)), output(error)
    return None


def _of_file(error: OSError) -> str:
    what = error.strerror or str(error)
    return f"{what}: {error.filename!r}." if isinstance(error.filename, str) else f"{what}."


def _not_found(error: OSError) -> str:
    named = isinstance(error.filename, str)
    return f"There is no file {error.filename!r}." if named else error.strerror or str(error)


def _nothing(_: object) -> str:
    return ""


def _output_of(error: Any) -> str:
    """What a command had said before its time was over, where its error carries that."""
    said = [_text(getattr(error, stream, "")) for stream in ("stderr", "stdout")]
    return "\n".join(text for text in said if text)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


_TOLD: Final[tuple[tuple[type[Exception], ToolCallErrorType, Callable[[Any], str], Callable[[Any], str]], ...]] = (
    (TimeoutError, "timeout", lambda _: "The command ran out of time before it ended.", _output_of),
    (
        UnicodeDecodeError,
        "unicode_decode",
        lambda error: f"The bytes are no {error.encoding}: {error.reason}",
        _nothing,
    ),
    (SandboxUnavailableError, "sandbox_unavailable", str, _nothing),
    (PermissionError, "permission", _of_file, _nothing),
    (FileNotFoundError, "file_not_found", _not_found, _nothing),
    (IsADirectoryError, "is_a_directory", _of_file, _nothing),
    (
        OutputLimitExceededError,
        "limit",
        lambda error: f"The tool's output exceeded its limit of {error.limit_str}.",
        lambda error: error.truncated_output or "",
    ),
    (LimitExceededError, "limit", lambda error: f"The tool met a limit: {error}", _nothing),
    (ToolParsingError, "parsing", lambda error: error.message, _nothing),
    (ToolApprovalError, "approval", lambda error: error.message, _nothing),
    (ToolError, "unknown", lambda error: error.message, _nothing),
)
"""Errors that the model is told of: the class, its type in the log, its text, and what there was of a result."""


def as_content(result: Any, function: str, limit: int | None) -> tuple[str | list[Any], tuple[int, int] | None]:
    """A tool's result as the content of its message.

    Args:
        function: the tool's name. limit: bytes, 0 for any number, None for what holds here.

    Returns:
        Text, or a list of contents, which are left as they are; and the bytes before and after a text was cut.
    """
    if isinstance(result, CONTENTS):
        return [_without_citations(result)], None
    if isinstance(result, list) and result and all(isinstance(each, CONTENTS) for each in result):
        return [_without_citations(each) for each in result], None
    text = result if isinstance(result, str) else str(result)
    return cut(text, function, limit if limit is not None else default_max_output())


def default_max_output() -> int:
    """The bytes of a tool's output that are kept where nothing else is said."""
    held = _max_output.get()
    return DEFAULT_MAX_OUTPUT if held is None else held


def _without_citations(content: Any) -> Any:
    """They refer to what the tool saw, which is not in this conversation."""
    if isinstance(content, ContentText) and content.citations:
        return content.model_copy(update={"citations": None})
    return content


def cut(text: str, function: str, limit: int) -> tuple[str, tuple[int, int] | None]:
    """A text of at most `limit` bytes as it is; of a longer one the two ends around a notice.

    Returns:
        The text; and its bytes before and after, None when it was left as it is.
    """
    if limit <= 0 or len(text) * 4 <= limit:
        return text, None
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit:
        return text, None
    head, tail = _boundary(data, limit - limit // 2), _boundary(data, len(data) - limit // 2, back=False)
    notice = (
        f"[The output of {function} was {len(data):,} bytes long. The {tail - head:,} bytes in its middle are left out "
        "here.]"
    )
    start, end = data[:head].decode("utf-8", "surrogatepass"), data[tail:].decode("utf-8", "surrogatepass")
    return f"{start}\n\n{notice}\n\n{end}", (len(data), limit)


def _boundary(data: bytes, place: int, *, back: bool = True) -> int:
    """The nearest start of a character, so that none is split."""
    while 0 < place < len(data) and data[place] & 0xC0 == 0x80:
        place += -1 if back else 1
    return place
