"""The HTTP/1.1 transport under httpx's client: one connection a request, idle ones on a free list.

httpx's own pool searches all its requests and connections at every event: 15 ms of CPU a request with 100
connections, and worse with more. How many requests may be in flight is already decided, by the limiter of the
model actor; a second queue here could only add waits that nobody sees. So there is none: a request takes an idle
connection from the end of a list (the one used last, whose peer is the least likely to have closed it) or opens
one, and puts it back when the response is complete. No step but the network's is awaited.

Rules that hold this together:

- An idle connection is polled at *every* reuse. One that has been closed, or on which bytes lie that nobody asked
  for, is dropped before anything is sent. What fails after that is not replayed: the server may have acted on it.
  The retry loop above decides.
- A connection is in exactly one place: the free list, one request, or closed. Whatever ends a request early,
  cancellation included, closes its connection, in a shield of bounded length.
- One cancel scope a request, whose deadline moves from phase to phase. Reads and writes get none of their own.
- A response whose body came with its head is complete when the head is returned, and its connection free.

Rejected: a lock or an event a connection (nothing is shared, so there is nothing to guard); replaying requests
that are safe to repeat (two rules for one thing, and the retry loop does it); HTTP/2 (one connection would carry
many requests, which needs flow control and a second queue).
"""

from __future__ import annotations

import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, TypeAlias

import anyio
import anyio.lowlevel
import h11
import httpx
from anyio.abc import ByteStream
from anyio.streams.tls import TLSAttribute, TLSStream
from attrs import define, field, frozen

from proctor.model import socketstream
from proctor.model.socketstream import Connector

Origin: TypeAlias = tuple[bytes, bytes, int]  # scheme, host, port

CONNECT_TIMEOUT: Final = 30.0  # seconds for DNS, TCP and TLS together, unless the request says otherwise
KEEPALIVE: Final = 60.0  # seconds an idle connection is kept; the poll at reuse makes a longer one safe, not useful
CLOSE_BOUND: Final = 1.0  # seconds a close may take in its shield
HELD: Final = 1.0  # a deadline overrun by this many seconds says that the loop was held, not the network slow
MAX_HEAD: Final = 100 * 1024  # bytes of a response head, as in httpcore
MAX_BODY: Final = 512 * 1024 * 1024  # bytes of a body that is read whole
LARGE_BODY: Final = 256 * 1024  # bytes from which a request is sent beside the wait for its response
PORTS: Final[Mapping[bytes, int]] = {b"http": 80, b"https": 443}


@frozen
class TransportStatistics:
    """Connections of a transport.

    Attributes:
        open: all that are open, in use or idle. idle: those on the free list. opened: since the start.
    """

    open: int
    idle: int
    opened: int


@define(eq=False)
class _Connection:
    """One HTTP/1.1 connection: a byte stream and the state of the protocol on it."""

    stream: ByteStream
    origin: Origin
    idle_since: float = 0.0
    unsent: bool = False  # part of the request has not been sent
    ended: bool = False  # the peer has closed its side
    early: list[bytes] = field(factory=list)  # parts of the body that came with the head
    protocol: h11.Connection = field(factory=lambda: h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD))

    def stale(self) -> bool:
        """Whether the peer closed it, or sent what nobody asked for, while it was idle."""
        stream = self.stream
        if isinstance(stream, TLSStream):
            if not _tls_is_quiet(stream):
                return True
            stream = stream.transport_stream  # type: ignore[assignment]
        probe: Callable[[], bool] | None = getattr(stream, "stale", None)
        return probe is not None and probe()

    async def send(self, data: bytes) -> None:
        self.unsent = True
        try:
            await self.stream.send(data)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
            raise httpx.WriteError(f"the connection broke while the request was sent: {error}") from error
        self.unsent = False

    async def next_event(self) -> Any:
        """The next h11 event; reads until there is one."""
        while True:
            event = self.protocol.next_event()
            if event is not h11.NEED_DATA:
                return event
            try:
                data = await self.stream.receive(socketstream.CHUNK)
            except anyio.EndOfStream:
                self.ended = True
                if self.protocol.their_state is h11.SEND_RESPONSE and not self.protocol.trailing_data[0]:
                    raise httpx.RemoteProtocolError("the server closed the connection without an answer") from None
                data = b""
            except (anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
                raise httpx.ReadError(f"the connection broke while the answer was read: {error}") from error
            self.protocol.receive_data(data)

    async def head(self) -> h11.Response:
        """The head of the final response; interim ones are skipped."""
        while True:
            event = await self.next_event()
            if isinstance(event, h11.Response):
                return event
            if isinstance(event, h11.InformationalResponse):
                continue
            raise httpx.RemoteProtocolError(f"the server sent {type(event).__name__} in place of an answer")

    async def chunk(self) -> bytes | None:
        """The next part of the body, None at its end."""
        event = await self.next_event()
        if isinstance(event, h11.Data):
            return bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            return None
        raise httpx.RemoteProtocolError(f"the server sent {type(event).__name__} within a body")

    def reusable(self) -> bool:
        """Make it ready for another request; whether that is possible."""
        if self.unsent or self.ended or self.protocol.trailing_data[0]:
            return False
        try:
            self.protocol.start_next_cycle()
        except h11.LocalProtocolError:  # either side said close, or is not done
            return False
        return True


def _tls_is_quiet(stream: TLSStream) -> bool:
    """Whether nothing decrypted lies in a TLS stream (a read of nothing raises)."""
    state = stream.extra(TLSAttribute.ssl_object)  # noqa: S610  anyio's typed attributes, no database
    try:
        state.read(1)
    except ssl.SSLWantReadError:
        return True
    except (ssl.SSLError, OSError):
        return False
    return False


class _Body(httpx.AsyncByteStream):
    """The body of a response that is read as it comes. Closing it early closes the connection.

    An iterator and no async generator: one that is left half-way is closed when it is collected, which is too late for
    a connection (and a warning on trio).
    """

    def __init__(self, transport: Transport, connection: _Connection, timeout: float | None) -> None:
        self._transport, self._connection, self._timeout = transport, connection, timeout
        self._early = iter(connection.early)
        connection.early = []
        self._ended = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if (early := next(self._early, None)) is not None:
            return early
        if self._ended:
            raise StopAsyncIteration
        part: bytes | None = None
        try:
            with anyio.CancelScope(deadline=_after(self._timeout)) as scope, _as_httpx_errors():
                part = await self._connection.chunk()
            if part is None and scope.cancelled_caught:
                raise httpx.ReadTimeout(f"nothing of the answer came for {self._timeout} s")
        except BaseException:
            await self.aclose()
            raise
        if part is None:
            self._ended = True
            await self._transport.give_back(self._connection)
            raise StopAsyncIteration
        return part

    async def aclose(self) -> None:
        """Close the connection unless the body was read to its end."""
        if not self._ended:
            self._ended = True
            await self._transport.discard(self._connection)


class _Ready:
    """A body that is there already, in the one part that it came in."""

    def __init__(self, body: bytes) -> None:
        self._parts = [body] if body else []

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await anyio.lowlevel.checkpoint_if_cancelled()
        if not self._parts:
            raise StopAsyncIteration
        return self._parts.pop()


class _as_httpx_errors:  # noqa: N801  a context manager that reads as a phrase
    """Turn the protocol's errors into httpx's."""

    __slots__ = ()

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, h11.RemoteProtocolError):
            raise httpx.RemoteProtocolError(f"the server broke HTTP/1.1: {error}") from error
        if isinstance(error, h11.LocalProtocolError):
            raise httpx.LocalProtocolError(str(error)) from error


def _after(seconds: float | None) -> float:
    return float("inf") if seconds is None else anyio.current_time() + seconds


class Transport(httpx.AsyncBaseTransport):
    """HTTP/1.1 for an `httpx.AsyncClient`, without a pool of its own.

    Of a request's ``timeout`` extension ``connect``, ``write`` (for the whole request) and ``read`` (for the head, and
    between two parts of a body) count; ``pool`` does not, as nothing queues. The extension ``whole`` (bool) asks for
    the body to be read before the response is returned, under the same scope. A response whose body is still to come
    has it in its extension ``raw_body`` too, as an async iterator that is no generator.

    Args:
        ssl_context: makes the context for https, called once, at the first such connection.
        connect: opens a byte stream to a host and port. A stream may have a ``stale()`` that says whether an idle
            connection is of no more use.
        keepalive: seconds an idle connection is kept.
    """

    def __init__(
        self,
        *,
        ssl_context: Callable[[], ssl.SSLContext] = ssl.create_default_context,
        connect: Connector = socketstream.connect,
        keepalive: float = KEEPALIVE,
    ) -> None:
        self._make_ssl_context = ssl_context
        self._ssl_context: ssl.SSLContext | None = None
        self._connect = connect
        self._keepalive = keepalive
        self._idle: dict[Origin, deque[_Connection]] = {}
        self._open = self._opened = 0
        self._closed = False

    def statistics(self) -> TransportStatistics:
        """How many connections there are now."""
        return TransportStatistics(self._open, sum(map(len, self._idle.values())), self._opened)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return its response.

        Raises:
            httpx.TransportError: of the kind that fits; nothing was sent when it is `httpx.ConnectError` or
                `httpx.ConnectTimeout`.
        """
        if self._closed:
            raise RuntimeError("the transport is closed")
        timeouts = request.extensions.get("timeout") or {}
        connection = await self._take(request.url, timeouts.get("connect", CONNECT_TIMEOUT))
        answer: tuple[h11.Response, bytes | None] | None = None
        try:
            with anyio.CancelScope(deadline=_after(timeouts.get("write"))) as scope, _as_httpx_errors():
                await anyio.lowlevel.checkpoint_if_cancelled()
                answer = await self._exchange(connection, request, scope, timeouts.get("read"))
            if answer is None:
                if connection.unsent:
                    raise httpx.WriteTimeout("the request could not be sent in time")
                raise httpx.ReadTimeout("the answer did not come in time")
        except BaseException:
            await self.discard(connection)
            raise
        head, body = answer
        if body is not None:
            await self.give_back(connection)
        given: dict[str, Any]
        more: dict[str, Any] = {}
        if body is None:
            stream = _Body(self, connection, timeouts.get("read"))
            given, more = {"stream": stream}, {"raw_body": stream}
        elif request.extensions.get("whole"):
            given = {"content": body}  # read at once, which saves httpx two async generators a response
        else:
            given, more = {"stream": httpx.ByteStream(body)}, {"raw_body": _Ready(body)}
        return httpx.Response(
            head.status_code,
            headers=head.headers.raw_items(),
            extensions={"http_version": b"HTTP/" + head.http_version, "reason_phrase": head.reason, **more},
            **given,
        )

    async def aclose(self) -> None:
        """Close the idle connections; those in use are closed when their request ends."""
        self._closed = True
        for idle in self._idle.values():
            while idle:
                await self.discard(idle.pop())

    async def give_back(self, connection: _Connection) -> None:
        """Take back a connection whose response is complete: to the free list, or closed."""
        if self._closed or not connection.reusable():
            await self.discard(connection)
            return
        now = connection.idle_since = anyio.current_time()
        idle = self._idle.setdefault(connection.origin, deque())
        idle.append(connection)
        while idle and idle[0].idle_since < now - self._keepalive:
            await self.discard(idle.popleft())

    async def discard(self, connection: _Connection) -> None:
        """Close a connection, whatever has been cancelled."""
        self._open -= 1
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSE_BOUND):
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):  # gone is what was wanted
                await connection.stream.aclose()

    async def _take(self, url: httpx.URL, timeout: float | None) -> _Connection:
        scheme, host, port = url.raw_scheme, url.raw_host, url.port
        origin = (scheme, host, port or PORTS.get(scheme, 0))
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if not connection.stale():
                return connection
            await self.discard(connection)
        if scheme not in PORTS:
            raise httpx.UnsupportedProtocol(f"the URL {url} does not start with http:// or https://")
        return await self._dial(origin, timeout)

    async def _dial(self, origin: Origin, timeout: float | None) -> _Connection:
        """Open a connection. A try that a held loop made late is made once more: nothing has been sent."""
        for tries_left in (1, 0):
            stream: ByteStream | None = None
            with anyio.CancelScope(deadline=_after(timeout)) as scope:
                stream = await self._dial_stream(origin)
            if stream is not None:
                self._open += 1
                self._opened += 1
                return _Connection(stream, origin)
            if not tries_left or anyio.current_time() - scope.deadline < HELD:
                break
        raise httpx.ConnectTimeout(f"no connection within {timeout:g} s")

    async def _dial_stream(self, origin: Origin) -> ByteStream:
        scheme, host, port = origin
        name = host.decode("ascii")
        try:
            stream = await self._connect(name, port)
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        if scheme != b"https":
            return stream
        try:
            return await TLSStream.wrap(
                stream, server_side=False, hostname=name, ssl_context=self._tls(), standard_compatible=False
            )
        except BaseException as error:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSE_BOUND):
                await stream.aclose()
            if isinstance(error, ssl.SSLError | anyio.EndOfStream | anyio.BrokenResourceError | OSError):
                raise httpx.ConnectError(f"TLS: {error or 'the server closed the connection'}") from error
            raise

    def _tls(self) -> ssl.SSLContext:
        if self._ssl_context is None:
            self._ssl_context = self._make_ssl_context()
        return self._ssl_context

    async def _exchange(
        self, connection: _Connection, request: httpx.Request, scope: anyio.CancelScope, read: float | None
    ) -> tuple[h11.Response, bytes | None]:
        """Send the request and read the head of the response, with the body where that is at hand or asked for."""
        data = await _encode(connection.protocol, request)
        if len(data) >= LARGE_BODY:
            head = await _send_beside(connection, data, scope, read)
        else:
            await connection.send(data)
            scope.deadline = _after(read)
            head = await connection.head()
        return head, await _body(connection, whole=bool(request.extensions.get("whole")), scope=scope, read=read)


async def _encode(protocol: h11.Connection, request: httpx.Request) -> bytes:
    """The request as it goes over the wire."""
    head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
    parts = [protocol.send(head)]
    assert isinstance(request.stream, httpx.AsyncByteStream)
    parts += [protocol.send(h11.Data(data=part)) async for part in request.stream]
    parts.append(protocol.send(h11.EndOfMessage()))
    return b"".join(part for part in parts if part)


async def _send_beside(
    connection: _Connection, data: bytes, scope: anyio.CancelScope, read: float | None
) -> h11.Response:
    """Send a large request while its response is awaited: a server may refuse it before it has all of it."""
    failures: list[httpx.TransportError] = []
    head: h11.Response | None = None

    async def send() -> None:
        try:
            await connection.send(data)
        except httpx.WriteError as error:
            failures.append(error)  # an answer, if there is one, says more
        else:
            scope.deadline = _after(read)

    async with anyio.create_task_group() as group:
        group.start_soon(send)
        try:
            with _as_httpx_errors():
                head = await connection.head()
        except httpx.TransportError as error:
            failures.append(error)
        group.cancel_scope.cancel()
    if head is None:
        raise failures[0]
    return head


async def _body(connection: _Connection, *, whole: bool, scope: anyio.CancelScope, read: float | None) -> bytes | None:
    """The body, when all of it has arrived or when `whole` asks to read on; None when it is left to be read."""
    parts: list[bytes] = []
    size = 0
    while True:
        event = connection.protocol.next_event()
        if event is h11.NEED_DATA:
            if not whole:
                connection.early = parts
                return None
            scope.deadline = _after(read)
            event = await connection.next_event()
        if isinstance(event, h11.EndOfMessage):
            return b"".join(parts)
        if not isinstance(event, h11.Data):
            raise httpx.RemoteProtocolError(f"the server sent {type(event).__name__} within a body")
        parts.append(bytes(event.data))
        size += len(event.data)
        if size > MAX_BODY:
            raise httpx.RemoteProtocolError(f"the answer is larger than {MAX_BODY >> 20} MiB")
