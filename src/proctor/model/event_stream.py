"""Server-sent events: the bytes of a streamed answer to events, as they come.

The format is that of the HTML standard ("Server-sent events", parsing an event stream): lines that end in LF, CR or
CRLF, a blank line between events, comments, several ``data`` lines an event. The data stays bytes: a character that is
split over two chunks is whole again once its line is, and JSON is decoded from bytes anyway.

The reader does not know which event is an answer's last one, every protocol has another. So a stream that ends is no
error here; a protocol that misses its last event raises `cut_off`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import Final

from attrs import frozen

from proctor.errors import TransientModelError

MAX_EVENT: Final = 64 * 1024 * 1024  # bytes of one event; a server that never ends one would fill the memory
BOM: Final = b"\xef\xbb\xbf"
DONE: Final = b"[DONE]"


@frozen
class ServerEvent:
    """One event.

    Attributes:
        name: of its ``event`` field, ``message`` where it has none. data: its ``data`` lines, joined by LF.
    """

    name: str
    data: bytes

    @property
    def done(self) -> bool:
        """Whether it is the ``[DONE]`` that ends a stream of OpenAI's chat completions."""
        return self.data == DONE


class EventParser:
    """Bytes to events, whatever the chunks they come in."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # parts of a line whose end has not come
        self._line_size = 0
        self._name = b""
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """The events that a chunk completes.

        Raises:
            TransientModelError: an event is larger than can be right.
        """
        events: list[ServerEvent] = []
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
            self._after_cr = False
        if not chunk:
            return events
        self._after_cr = chunk.endswith(b"\r")
        for part in chunk.splitlines(keepends=True):
            self._line.append(part)
            self._line_size += len(part)
            if part[-1] in b"\r\n":
                line = part if len(self._line) == 1 else b"".join(self._line)
                self._line.clear()
                self._line_size = 0
                self._take(line.rstrip(b"\r\n"), events)
        if self._line_size + self._data_size > MAX_EVENT:
            raise TransientModelError(f"an event of the stream is larger than {MAX_EVENT >> 20} MiB")
        return events

    def _take(self, line: bytes, events: list[ServerEvent]) -> None:
        if not self._started:
            self._started = True
            line = line.removeprefix(BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value[1:] if value.startswith(b" ") else value
        if name == b"data":
            self._data.append(value)
            self._data_size += len(value)
        elif name == b"event":
            self._name = value

    def _dispatch(self, events: list[ServerEvent]) -> None:
        if self._data:
            name = self._name.decode("utf-8", "replace") or "message"
            events.append(ServerEvent(name, b"\n".join(self._data)))
        self._name = b""
        self._data = []
        self._data_size = 0


class EventStream:
    """The events of chunks of bytes, as an async iterator.

    No async generator: one that is left half-way is closed when it is collected, which trio warns of.
    """

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._parser = EventParser()
        self._ready: deque[ServerEvent] = deque()

    def __aiter__(self) -> AsyncIterator[ServerEvent]:
        return self

    async def __anext__(self) -> ServerEvent:
        while not self._ready:
            self._ready.extend(self._parser.feed(await anext(self._chunks)))
        return self._ready.popleft()


def iterate_events(chunks: AsyncIterator[bytes]) -> EventStream:
    """The events of a streamed answer; one that no blank line ended is dropped, as the standard has it."""
    return EventStream(chunks)


def cut_off(model: str, missing: str) -> TransientModelError:
    """The error for a stream that ended before the event that ends an answer.

    Args:
        model: named in the text. missing: the event.
    """
    return TransientModelError(f"{model}: the stream ended early, without {missing}")
