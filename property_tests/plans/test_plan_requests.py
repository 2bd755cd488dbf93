"""Requests from their senders' side: a caller is back in time (14, 16), messages keep their order (37)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
from attrs import frozen
from hypothesis import given
from hypothesis import strategies as st

from proctor.actors import ActorContext, Backoff, ChildSpec, open_supervisor
from proctor.errors import ActorGone, MailboxFull
from proctor.testing import run_virtual
from proctor.testing.strategies import scaled, times


@scaled(4)
@given(
    hold=times(),
    cleanup=times(),
    timeout=times(),
    bound=st.integers(1, 4),
    others=st.lists(st.tuples(times(), times(3)), max_size=3),
)
def test_an_ask_is_back_within_its_deadline_and_the_bound(
    backend: str, hold: int, cleanup: int, timeout: int, bound: int, others: list[tuple[int, int]]
) -> None:
    running: dict[str, int] = {"slow": 0}
    ended_in_time: list[bool] = []

    class State:
        async def handle(self, message: Any) -> str:
            if message != "slow":
                await anyio.sleep(message)
                return "answer"
            running["slow"] += 1
            try:
                await anyio.sleep(hold)
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(cleanup)
                running["slow"] -= 1
            return "answer"

    @asynccontextmanager
    async def opened(context: ActorContext[State]) -> AsyncIterator[State]:
        yield State()

    async def other(ref: Any, delay: int, length: int) -> None:
        await anyio.sleep(delay)
        with suppress(ActorGone):  # the slow handler's actor was given up
            await ref.ask(length)

    async def main() -> None:
        backoff = Backoff(initial=0.0)
        async with open_supervisor("root", random=random.Random(0), backoff=backoff, grace=1.0) as supervisor:
            ref = await supervisor.start(ChildSpec("actor", opened, bound=bound))
            async with anyio.create_task_group() as tg:
                for each in others:
                    tg.start_soon(other, ref, *each)
                with anyio.move_on_after(timeout) as scope:
                    assert await ref.ask("slow") == "answer"
                now = anyio.current_time()
                ended_in_time.append(cleanup < bound)
                if scope.cancelled_caught:
                    assert now <= timeout + bound
                    if cleanup < bound:
                        assert now <= max(timeout, min(hold, timeout) + cleanup)
                        assert running["slow"] == 0, "the ask returned while its handler ran"
                else:
                    assert now <= hold + cleanup

    run_virtual(backend, main)
    assert ended_in_time


@scaled(4)
@given(
    senders=st.lists(
        st.lists(st.tuples(times(2), st.none() | st.integers(0, 2)), min_size=1, max_size=6), min_size=1, max_size=3
    ),
    hold=times(3),
    bound=st.integers(1, 6),
)
def test_tells_are_handled_in_the_order_of_their_sender(
    backend: str, senders: list[list[tuple[int, int | None]]], hold: int, bound: int
) -> None:
    """Invariant 37: order, bound, and that only an older message of the same key is dropped."""
    handled: list[tuple[int, int]] = []
    accepted: dict[tuple[int, int], int | None] = {}

    class State:
        async def handle(self, message: Tell) -> None:
            handled.append(message.name)
            await anyio.sleep(hold)

    @asynccontextmanager
    async def opened(context: ActorContext[State]) -> AsyncIterator[State]:
        yield State()

    async def sender(ref: Any, number: int, messages: list[tuple[int, int | None]]) -> None:
        for position, (gap, key) in enumerate(messages):
            await anyio.sleep(gap)
            try:
                ref.tell(Tell((number, position), None if key is None else (number, key)))
            except MailboxFull:
                assert ref.statistics().queued >= bound
            else:
                accepted[number, position] = key
            assert ref.statistics().queued <= bound

    async def main() -> None:
        async with open_supervisor("root", random=random.Random(0)) as supervisor:
            ref = await supervisor.start(ChildSpec("actor", opened, mailbox=bound))
            async with anyio.create_task_group() as tg:
                for number, messages in enumerate(senders):
                    tg.start_soon(sender, ref, number, messages)
            await anyio.sleep(100)

    run_virtual(backend, main)
    for number in range(len(senders)):
        own = [position for sender, position in handled if sender == number]
        assert own == sorted(own)
    assert len(set(handled)) == len(handled)
    assert set(handled) <= set(accepted)
    for name in set(accepted) - set(handled):
        sender_number, position = name
        later = [key for (n, p), key in accepted.items() if n == sender_number and p > position]
        assert accepted[name] is not None
        assert accepted[name] in later, "dropped, though no later message of its key came"


@frozen
class Tell:
    """A message with the key by which a later one may take its place."""

    name: tuple[int, int]
    coalesce_key: Any
