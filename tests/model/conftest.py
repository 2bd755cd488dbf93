"""A network in memory: byte streams whose other end is an async function of the test."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import anyio
import pytest
from anyio.abc import ByteStream, TaskGroup

Serve = Callable[["PipeEnd"], Awaitable[None]]


class Direction:
    """Bytes on their way from one end to the other."""

    def __init__(self, capacity: float = float("inf")) -> None:
        self.data = bytearray()
        self.capacity = capacity
        self.ended = self.broken = False
        self._changed = anyio.Event()

    def notify(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def changed(self) -> None:
        await self._changed.wait()


class PipeEnd(ByteStream):
    """One end of a connection. `capacity`: bytes that fit between the ends before `send` blocks."""

    def __init__(self, incoming: Direction, outgoing: Direction) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.closed = False

    async def receive(self, max_bytes: int = 65536) -> bytes:
        await anyio.lowlevel.checkpoint_if_cancelled()
        while not self.incoming.data:
            if self.closed:
                raise anyio.ClosedResourceError
            if self.incoming.broken:
                raise anyio.BrokenResourceError
            if self.incoming.ended:
                raise anyio.EndOfStream
            await self.incoming.changed()
        data = bytes(self.incoming.data[:max_bytes])
        del self.incoming.data[:max_bytes]
        self.incoming.notify()
        return data

    async def send(self, item: bytes) -> None:
        await anyio.lowlevel.checkpoint_if_cancelled()
        rest = item
        while rest:
            if self.closed:
                raise anyio.ClosedResourceError
            if self.outgoing.ended or self.outgoing.broken:
                raise anyio.BrokenResourceError("the peer has closed")
            room = int(min(len(rest), self.outgoing.capacity - len(self.outgoing.data)))
            if room > 0:
                self.outgoing.data += rest[:room]
                rest = rest[room:]
                self.outgoing.notify()
            else:
                await self.outgoing.changed()

    async def send_eof(self) -> None:
        self.outgoing.ended = True
        self.outgoing.notify()

    async def aclose(self) -> None:
        await anyio.lowlevel.checkpoint()  # a close that does not get through when it is cancelled
        self.closed = True
        for direction in (self.incoming, self.outgoing):
            direction.ended = True
            direction.notify()

    def stale(self) -> bool:
        return bool(self.incoming.data) or self.incoming.ended

    @property
    def extra_attributes(self) -> dict[Any, Any]:
        return {}


class FakeNetwork:
    """Connects to `serve`, a function of the server's end, run once a connection in `group`.

    `refuse` is raised by that many next connects; `delay` is how long one takes.
    """

    def __init__(self, group: TaskGroup, serve: Serve, *, capacity: float = float("inf"), delay: float = 0.0) -> None:
        self.group, self.serve, self.capacity, self.delay = group, serve, capacity, delay
        self.clients: list[PipeEnd] = []
        self.servers: list[PipeEnd] = []
        self.refuse: list[OSError] = []

    async def connect(self, host: str, port: int) -> ByteStream:
        await anyio.sleep(self.delay)
        if self.refuse:
            raise self.refuse.pop(0)
        there, back = Direction(self.capacity), Direction(self.capacity)
        client, server = PipeEnd(back, there), PipeEnd(there, back)
        self.clients.append(client)
        self.servers.append(server)
        self.group.start_soon(self._run, server)
        return client

    async def _run(self, server: PipeEnd) -> None:
        try:
            await self.serve(server)
        except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
            pass
        finally:
            with anyio.CancelScope(shield=True):
                await server.aclose()

    @property
    def open(self) -> int:
        """Connections whose client's end is not closed."""
        return sum(not client.closed for client in self.clients)


async def read_request(stream: ByteStream, rest: bytearray | None = None) -> tuple[str, dict[str, str], bytes]:
    """The request line, the headers (names in lower case) and the body of the next request."""
    data = bytearray() if rest is None else rest
    while b"\r\n\r\n" not in data:
        data += await stream.receive()
    head, _, tail = bytes(data).partition(b"\r\n\r\n")
    line, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
    body = bytearray(tail)
    while len(body) < int(headers.get("content-length", 0)):
        body += await stream.receive()
    length = int(headers.get("content-length", 0))
    if rest is not None:
        rest[:] = body[length:]
    return line, headers, bytes(body[:length])


def answer(body: bytes = b"ok", *, status: str = "200 OK", extra: str = "") -> bytes:
    """A response with a content length."""
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{extra}\r\n".encode() + body


async def echo(stream: ByteStream) -> None:
    """A server that answers every request with its body."""
    rest = bytearray()
    while True:
        _, _, body = await read_request(stream, rest)
        await stream.send(answer(body))


@pytest.fixture
def net() -> SimpleNamespace:
    """The names above, for tests (which cannot import this file)."""
    return SimpleNamespace(
        FakeNetwork=FakeNetwork,
        PipeEnd=PipeEnd,
        Direction=Direction,
        read_request=read_request,
        answer=answer,
        echo=echo,
    )
