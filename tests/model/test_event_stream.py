"""Server-sent events: the same events whatever the chunks, as the standard has them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

import pytest

from proctor.errors import TransientModelError
from proctor.model import event_stream
from proctor.model.event_stream import EventParser, ServerEvent, cut_off, iterate_events


def parse(chunks: Iterable[bytes]) -> list[tuple[str, str]]:
    parser = EventParser()
    return [(event.name, event.data.decode()) for chunk in chunks for event in parser.feed(chunk)]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("data: a\n\ndata: b\n\n", [("message", "a"), ("message", "b")]),
        ("data:a\r\n\r\ndata: b\r\n\r\n", [("message", "a"), ("message", "b")]),
        ("data: a\r\rdata: b\r\r", [("message", "a"), ("message", "b")]),
        ("event: done\ndata: {}\n\ndata: x\n\n", [("done", "{}"), ("message", "x")]),
        ("data: one\ndata: two\ndata:\n\n", [("message", "one\ntwo\n")]),
        ("event: e\r\ndata: one\r\ndata: two\r\n\r\n", [("e", "one\ntwo")]),
        (": keep-alive\n\n: another\ndata: a\n\n", [("message", "a")]),
        ("id: 7\nretry: 10\nunknown: x\ndata: a\n\n", [("message", "a")]),
        ("data\n\n", [("message", "")]),
        ("event: empty\n\ndata: a\n\n", [("message", "a")]),
        ("\ufeffdata: a\n\n", [("message", "a")]),
        ("data:  two spaces\n\n", [("message", " two spaces")]),
        ("data: {\"a\": \"b: c\"}\n\n", [("message", '{"a": "b: c"}')]),
        ("data: grüße 👩‍🚀\n\n", [("message", "grüße 👩‍🚀")]),
        ("data: unfinished", []),
        ("data: a\n\n\n\n\n", [("message", "a")]),
    ],
)  # fmt: skip
def test_events_are_the_same_whatever_the_chunks(text: str, events: list[tuple[str, str]]) -> None:
    data = text.encode()
    assert parse([data]) == events
    assert parse(data[i : i + 1] for i in range(len(data))) == events
    for cut in range(len(data)):
        assert parse([data[:cut], b"", data[cut:]]) == events


def test_the_end_of_chat_completions_is_known() -> None:
    assert [event.done for event in EventParser().feed(b"data: {}\n\ndata: [DONE]\n\n")] == [False, True]


def test_an_event_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "MAX_EVENT", 10)
    parser = EventParser()
    parser.feed(b"data: a\n\n" * 20)
    with pytest.raises(TransientModelError, match="larger"):
        for _ in range(5):
            parser.feed(b"data: abc\n")


class Chunks:
    """An iterator of chunks that says how many were asked for."""

    def __init__(self, *chunks: bytes) -> None:
        self.left = list(chunks)
        self.taken = 0

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if not self.left:
            raise StopAsyncIteration
        self.taken += 1
        return self.left.pop(0)


async def test_events_come_as_their_chunks_do() -> None:
    chunks = Chunks(b"data: a\n\ndata: b\n", b"\ndata: c\n", b"\n")
    events = iterate_events(chunks)
    assert await anext(events) == ServerEvent("message", b"a")
    assert chunks.taken == 1
    assert await anext(events) == ServerEvent("message", b"b")
    assert chunks.taken == 2
    assert [event.data async for event in events] == [b"c"]


def test_a_stream_that_ends_early_may_be_tried_again() -> None:
    error = cut_off("m", "[DONE]")
    assert isinstance(error, TransientModelError)
    assert "[DONE]" in str(error)
