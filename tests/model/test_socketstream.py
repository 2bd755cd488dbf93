"""Connecting: which address is tried when, and what is left open."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from typing import Any

import anyio
import pytest

from proctor.model import socketstream
from proctor.model.socketstream import Address, SocketStream, connect, interleave, resolve

V4, V6 = socket.AF_INET, socket.AF_INET6


class Hosts:
    """Addresses that take a time to connect (a number), or fail after one (a number and an error)."""

    def __init__(self) -> None:
        self.plan: dict[str, float | tuple[float, OSError]] = {}
        self.tried: list[tuple[float, str]] = []
        self.made: dict[str, socket.socket] = {}
        self._others: list[socket.socket] = []

    async def connect(self, address: Address) -> socket.socket:
        name = str(address[1])
        self.tried.append((anyio.current_time(), name))
        behaviour = self.plan[name]
        if isinstance(behaviour, tuple):
            await anyio.sleep(behaviour[0])
            raise behaviour[1]
        await anyio.sleep(behaviour)
        self.made[name], other = socket.socketpair()
        self._others.append(other)
        return self.made[name]

    async def resolver(self, host: str, port: int) -> list[Address]:
        return [(V4, name) for name in self.plan]

    def close(self) -> None:
        for sock in self._others:
            sock.close()

    @property
    def open(self) -> set[str]:
        return {name for name, sock in self.made.items() if sock.fileno() >= 0}


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    made = Hosts()
    monkeypatch.setattr(socketstream, "_connect_address", made.connect)
    yield made
    made.close()


def refused(name: str) -> OSError:
    return ConnectionRefusedError(errno.ECONNREFUSED, f"{name} refused")


@pytest.mark.parametrize(
    ("plan", "winner", "tried"),
    [
        ({"a": 1.0}, "a", [(0, "a")]),
        ({"a": 0.1, "b": 0.1}, "a", [(0, "a")]),
        ({"a": 10.0, "b": 0.1}, "b", [(0, "a"), (0.25, "b")]),
        ({"a": (0.0, refused("a")), "b": 0.1}, "b", [(0, "a"), (0, "b")]),
        ({"a": 0.6, "b": 10.0, "c": 10.0}, "a", [(0, "a"), (0.25, "b"), (0.5, "c")]),
        ({"a": (5.0, refused("a")), "b": 6.0}, "b", [(0, "a"), (0.25, "b")]),
    ],
)
async def test_a_slow_or_refusing_address_does_not_hold_back_the_next(
    hosts: Hosts, plan: dict[str, Any], winner: str, tried: list[tuple[float, str]]
) -> None:
    hosts.plan = plan
    stream = await connect("x", 1, resolver=hosts.resolver)
    assert hosts.tried == tried
    assert hosts.open == {winner}
    await stream.aclose()
    await stream.aclose()
    assert not hosts.open


async def test_when_all_refuse_the_first_error_is_raised_with_the_others_noted(hosts: Hosts) -> None:
    hosts.plan = {"a": (0.1, refused("a")), "b": (0.0, refused("b"))}
    with pytest.raises(ConnectionRefusedError, match="a refused") as caught:
        await connect("x", 1, resolver=hosts.resolver)
    assert "b refused" in caught.value.__notes__[0]
    hosts.plan = {}
    with pytest.raises(OSError, match="x has no address"):
        await connect("x", 1, resolver=hosts.resolver)


@pytest.mark.parametrize("at", [0.1, 0.3, 0.55])
async def test_a_cancelled_connect_leaves_nothing_open(hosts: Hosts, at: float) -> None:
    hosts.plan = {"a": 10.0, "b": 0.4}
    with anyio.move_on_after(at) as scope:
        await connect("x", 1, resolver=hosts.resolver)
    assert scope.cancelled_caught
    assert not hosts.open


def test_families_take_turns_and_repeats_are_dropped() -> None:
    def row(family: int, name: str) -> tuple[Any, ...]:
        return (family, socket.SOCK_STREAM, 6, "", (name, 1))

    found = [row(V6, "s1"), row(V6, "s2"), row(V6, "s2"), row(V4, "f1"), row(V6, "s3")]
    assert [address[1][0] for address in interleave(found)] == ["s1", "f1", "s2", "s3"]
    assert interleave([]) == []


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", V4), ("::1", V6)])
async def test_an_address_needs_no_resolver(host: str, family: int) -> None:
    assert await resolve(host, 80) == [(family, (host, 80))]


@pytest.fixture
def pair() -> Iterator[Callable[[], tuple[SocketStream, socket.socket]]]:
    made: list[tuple[SocketStream, socket.socket]] = []

    def make() -> tuple[SocketStream, socket.socket]:
        here, there = socket.socketpair()
        here.setblocking(False)
        made.append((SocketStream(here), there))
        return made[-1]

    yield make
    for _, there in made:
        there.close()


async def test_an_idle_stream_is_stale_once_something_lies_in_it_or_it_is_closed(pair: Any) -> None:
    stream, there = pair()
    assert not stream.stale()
    there.send(b"x")
    assert stream.stale()
    assert await stream.receive() == b"x"
    assert not stream.stale()
    there.close()
    assert stream.stale()
    with pytest.raises(anyio.EndOfStream):
        await stream.receive()
    await stream.aclose()
    assert stream.stale()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.receive()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.send(b"x")


async def test_a_flood_lets_others_run(pair: Any) -> None:
    stream, there = pair()
    there.send(b"x" * 1000)
    others = 0

    async def other() -> None:
        nonlocal others
        while True:
            others += 1
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as group:
        group.start_soon(other)
        for _ in range(500):
            assert await stream.receive(2) == b"xx"
        group.cancel_scope.cancel()
    assert others > 10
    await stream.aclose()


async def test_sending_to_a_peer_that_is_gone_breaks(pair: Any) -> None:
    stream, there = pair()
    there.close()
    with pytest.raises(anyio.BrokenResourceError):
        for _ in range(3):
            await stream.send(b"x" * 100_000)
    await stream.aclose()
