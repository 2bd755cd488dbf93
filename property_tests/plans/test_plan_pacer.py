"""A toy pacer takes the fair queue's place: the interface of admission policies holds for one that counts for itself.

It admits at most `burst` items in flight and no two within `gap` seconds; a rate-limited item goes back in line.
"""

from __future__ import annotations

import itertools
import math
from collections import OrderedDict
from collections.abc import Sequence

import anyio
import pytest
from attrs import define, field
from hypothesis import given
from hypothesis import strategies as st

from proctor.actors import Ledger, Limiter, lease_all
from proctor.errors import LeaseMisuse
from proctor.testing import run_virtual
from proctor.testing.monitor import Monitor
from proctor.testing.strategies import scaled, times


@define(eq=False)
class Item:
    number: int
    rejected: int = 0


@define(eq=False)
class ToyPacer:
    gap: float
    burst: int
    last: float = -math.inf
    waiting: OrderedDict[Item, None] = field(factory=OrderedDict)
    flying: set[Item] = field(factory=set)
    log: list[tuple[float, str, int]] = field(factory=list)

    def enqueue(self, item: Item, now: float) -> None:
        self.log.append((now, "enqueue", item.number))
        self.waiting[item] = None

    def withdraw(self, item: Item, now: float) -> None:
        self.log.append((now, "withdraw", item.number))
        del self.waiting[item]

    def abandon(self, item: Item, now: float) -> None:
        self.log.append((now, "abandon", item.number))
        self.flying.remove(item)

    def release(self, item: Item, now: float) -> None:
        self.log.append((now, "release", item.number))
        self.flying.remove(item)

    def reject(self, item: Item) -> None:
        """The server said: too fast. Books are settled, the item is first in line again."""
        self.flying.remove(item)
        item.rejected += 1
        self.waiting[item] = None
        self.waiting.move_to_end(item, last=False)

    def poll(self, now: float, room: int | None) -> Sequence[Item]:
        granted: list[Item] = []
        if self.waiting and len(self.flying) < self.burst and now >= self.last + self.gap and room != 0:
            item, _ = self.waiting.popitem(last=False)
            self.flying.add(item)
            self.last = now
            self.log.append((now, "grant", item.number))
            granted.append(item)
        return granted

    def next_wakeup(self, now: float) -> float | None:
        if not self.waiting or len(self.flying) >= self.burst:
            return None
        return self.last + self.gap


async def pump(limiter: Limiter) -> None:
    """The owner's part: poll again at the time that the policy asks for."""
    changed = anyio.Event()
    wakeup: list[float | None] = [None]

    def tell(at: float | None) -> None:
        wakeup[0] = at
        changed.set()

    limiter.on_wakeup = tell
    while True:
        at = wakeup[0]
        with anyio.CancelScope(deadline=math.inf if at is None else at) as scope:
            await changed.wait()
        changed = anyio.Event()
        if scope.cancelled_caught:
            wakeup[0] = None
            limiter.poll()


@scaled(2)
@given(
    gap=st.integers(0, 2),
    burst=st.integers(1, 3),
    calls=st.lists(st.tuples(times(6), times(3), st.none() | times(6), st.integers(0, 2)), min_size=1, max_size=8),
    pause=st.none() | st.tuples(times(4), st.integers(1, 4)),
)
def test_a_pacer_decides_who_goes_when_and_nothing_is_lost(
    backend: str,
    gap: int,
    burst: int,
    calls: list[tuple[int, int, int | None, int]],
    pause: tuple[int, int] | None,
) -> None:
    pacer = ToyPacer(gap, burst)
    flights = 0

    async def main() -> list[str]:
        nonlocal flights
        ledger = Ledger()
        limiter = Limiter(None, name="model", admission=pacer, ledger=ledger)
        monitor = Monitor([limiter], fair=False, raises=True)
        ledger.subscribe(monitor.listen)
        ends: list[str] = []

        async def call(number: int, delay: int, hold: int, timeout: int | None, rejections: int) -> None:
            nonlocal flights
            await anyio.sleep(delay)
            item = Item(number)
            with anyio.move_on_after(math.inf if timeout is None else timeout) as scope:
                async with limiter.lease(item=item) as lease:
                    for _ in range(rejections):
                        await anyio.sleep(hold)
                        await lease.requeue(lambda now: pacer.reject(item))
                    flights += 1
                    assert len(pacer.flying) <= burst
                    await anyio.sleep(hold)
            ends.append("timeout" if scope.cancelled_caught else "done")

        async def pauses(at: int, length: int) -> None:
            await anyio.sleep(at)
            limiter.pause()
            await anyio.sleep(length)
            limiter.resume()

        async with anyio.create_task_group() as owner:
            owner.start_soon(pump, limiter)
            async with anyio.create_task_group() as clients:
                if pause is not None:
                    clients.start_soon(pauses, *pause)
                for number, (delay, hold, timeout, rejections) in enumerate(calls):
                    clients.start_soon(call, number, delay, hold, timeout, rejections)
            owner.cancel_scope.cancel()
        monitor.ended()
        return ends

    ends = run_virtual(backend, main)
    assert len(ends) == len(calls)
    assert (len(pacer.waiting), len(pacer.flying)) == (0, 0)
    granted = [now for now, what, _ in pacer.log if what == "grant"]
    assert all(later - earlier >= gap for earlier, later in itertools.pairwise(granted))
    if all(timeout is None for _, _, timeout, _ in calls):
        assert len(granted) == sum(1 + rejections for *_, rejections in calls)
        assert flights == len(calls)
    if pause is not None:
        at, length = pause
        assert not [now for now in granted if at < now < at + length]


async def test_a_limiter_that_does_not_go_by_room_takes_no_part_in_joint_leases() -> None:
    paced, plain = Limiter(None, name="paced", admission=ToyPacer(1, 1)), Limiter(1, name="plain")
    with pytest.raises(LeaseMisuse, match="paced"):
        async with lease_all([paced.lease(item=Item(1)), plain.lease()]):
            pass
    assert (plain.used, plain.waiting) == (0, 0)
