"""A TCP byte stream straight on a non-blocking socket, and how it is connected.

Why not anyio's own socket stream: on asyncio it reads through a transport that buffers. What the peer sent after
a response, and the end of the stream, may sit in that buffer where nothing outside can see them, and the next
request on a reused connection would take them for its answer. Here every byte is either in the kernel, where one
`recv` with ``MSG_PEEK`` shows it, or in the hands of the HTTP parser.

A second property is used by the transport: bytes that have arrived are returned without a checkpoint. When the
loop was held for longer than a deadline, an answer that came in time is still taken, because nothing between the
wake-up and the end of the parse gives the cancellation a chance. Every 32 such reads one checkpoint is made, so
that a flood cannot hold the loop.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import anyio
import anyio.lowlevel
from anyio.abc import ByteStream, SocketAttribute

Address: TypeAlias = tuple[int, Any]  # family, socket address
Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[Address]]]
Connector: TypeAlias = Callable[[str, int], Awaitable[ByteStream]]

STAGGER: Final = 0.25  # seconds before the next address is tried beside the last one (RFC 8305, section 5)
DIRECT_READS: Final = 32
CHUNK: Final = 65536


class SocketStream(ByteStream):
    """A connected stream socket, which it owns.

    Args:
        sock: connected and non-blocking.
    """

    __slots__ = ("_direct", "_socket")

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._direct = 0

    async def receive(self, max_bytes: int = CHUNK) -> bytes:
        """The next bytes, at least one.

        Raises:
            EndOfStream: the peer has closed its side. BrokenResourceError: the connection failed.
        """
        while True:
            try:
                data = self._socket.recv(max_bytes)
            except (BlockingIOError, InterruptedError):
                self._direct = 0
                await self._wait(anyio.wait_readable)
                continue
            except OSError as error:
                raise self._broken(error) from error
            if not data:
                raise anyio.EndOfStream
            self._direct += 1
            if self._direct >= DIRECT_READS:
                self._direct = 0
                await anyio.lowlevel.checkpoint()
            return data

    async def send(self, item: bytes) -> None:
        """Send all of `item`.

        Raises:
            BrokenResourceError: the connection failed; how much was sent is unknown.
        """
        rest: bytes | memoryview = item
        while True:
            try:
                sent = self._socket.send(rest)
            except (BlockingIOError, InterruptedError):
                await self._wait(anyio.wait_writable)
                continue
            except OSError as error:
                raise self._broken(error) from error
            if sent == len(rest):
                return
            rest = memoryview(rest)[sent:]

    async def send_eof(self) -> None:
        """Close the sending side."""
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            raise self._broken(error) from error

    async def aclose(self) -> None:
        """Close the socket; nothing is waited for."""
        self.close()

    def close(self) -> None:
        """Close the socket; harmless when it is closed."""
        if self._socket.fileno() >= 0:
            anyio.notify_closing(self._socket)
            self._socket.close()

    def stale(self) -> bool:
        """Whether an idle connection is of no more use: closed, failed, or holding bytes nobody asked for."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            return True
        return True

    @property
    def extra_attributes(self) -> Mapping[Any, Callable[[], Any]]:
        """The raw socket, for anyio's typed attributes."""
        return {SocketAttribute.raw_socket: lambda: self._socket}

    async def _wait(self, ready: Callable[[socket.socket], Awaitable[None]]) -> None:
        if self._socket.fileno() < 0:
            raise anyio.ClosedResourceError
        await ready(self._socket)

    def _broken(self, error: OSError) -> Exception:
        if self._socket.fileno() < 0:
            return anyio.ClosedResourceError()
        return anyio.BrokenResourceError(str(error))


async def resolve(host: str, port: int) -> list[Address]:
    """The addresses of a host, IPv6 and IPv4 in turn, each family in the resolver's order.

    Raises:
        OSError: the name has none (`socket.gaierror`).
    """
    try:
        literal = ipaddress.ip_address(host)
    except ValueError:
        return interleave(await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    family = socket.AF_INET6 if literal.version == 6 else socket.AF_INET
    return [(family, (str(literal), port))]


def interleave(found: Sequence[tuple[Any, ...]]) -> list[Address]:
    """`getaddrinfo` rows as addresses without repeats, the families in turn (RFC 8305, section 4)."""
    families: dict[int, list[Address]] = {}
    for family, _type, _protocol, _name, address in found:
        entry = (int(family), address)
        if entry not in families.setdefault(int(family), []):
            families[int(family)].append(entry)
    rows = list(families.values())
    longest = max(map(len, rows), default=0)
    return [row[i] for i in range(longest) for row in rows if i < len(row)]


async def connect(host: str, port: int, *, resolver: Resolver = resolve) -> SocketStream:
    """Connect to the first address that answers; a slow one does not hold back the next.

    Raises:
        OSError: none answered. With one address its own error; with several the first, noted with the others.
    """
    addresses = await resolver(host, port)
    if len(addresses) == 1:
        return SocketStream(await _connect_address(addresses[0]))
    race = _Race()
    try:
        async with anyio.create_task_group() as group:
            for address in addresses:
                failed = anyio.Event()
                group.start_soon(race.enter, address, failed, group.cancel_scope)
                with anyio.move_on_after(STAGGER):
                    await failed.wait()
    except BaseException:
        race.drop()
        raise
    return race.result(host)


class _Race:
    """Attempts on several addresses, of which the first to connect wins."""

    def __init__(self) -> None:
        self.winner: socket.socket | None = None
        self.errors: list[OSError] = []

    async def enter(self, address: Address, failed: anyio.Event, scope: anyio.CancelScope) -> None:
        try:
            sock = await _connect_address(address)
        except OSError as error:
            self.errors.append(error)
            failed.set()
            return
        if self.winner is None:
            self.winner = sock
            scope.cancel()
        else:
            sock.close()

    def drop(self) -> None:
        if self.winner is not None:
            self.winner.close()

    def result(self, host: str) -> SocketStream:
        if self.winner is not None:
            return SocketStream(self.winner)
        if not self.errors:
            raise OSError(errno.EADDRNOTAVAIL, f"{host} has no address")
        first, *others = self.errors
        for error in others:
            first.add_note(f"another address: {error}")
        raise first


async def _connect_address(address: Address) -> socket.socket:
    family, where = address
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.connect(where)
        except (BlockingIOError, InterruptedError):
            await anyio.wait_writable(sock)
            if code := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, errno.errorcode.get(code, "")) from None
    except BaseException:
        if sock.fileno() >= 0:
            anyio.notify_closing(sock)
        sock.close()
        raise
    return sock
