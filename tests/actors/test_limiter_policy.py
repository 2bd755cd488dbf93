"""A limiter under a policy of one's own: what it is told, when it is asked, and who wakes it."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import anyio
import pytest
from attrs import define, field

from proctor.actors import Limiter, lease_all
from proctor.errors import LeaseMisuse
from proctor.testing import settle


@define
class Line:
    """First come first served, one each `gap` seconds, as long as the limiter has room."""

    gap: float = 0.0
    next_time: float = 0.0
    waiting: OrderedDict[int, object] = field(factory=OrderedDict)
    told: list[str] = field(factory=list)

    def enqueue(self, item: object, now: float) -> None:
        self.told.append(f"{now:g} enqueue {item}")
        self.waiting[id(item)] = item

    def withdraw(self, item: object, now: float) -> None:
        self.told.append(f"{now:g} withdraw {item}")
        del self.waiting[id(item)]

    def abandon(self, item: object, now: float) -> None:
        self.told.append(f"{now:g} abandon {item}")

    def release(self, item: object, now: float) -> None:
        self.told.append(f"{now:g} release {item}")

    def back(self, item: object) -> None:
        self.waiting[id(item)] = item
        self.waiting.move_to_end(id(item), last=False)

    def poll(self, now: float, room: int | None) -> list[object]:
        if not self.waiting or now < self.next_time or room == 0:
            return []
        self.next_time = now + self.gap
        _, item = self.waiting.popitem(last=False)
        return [item]

    def next_wakeup(self, now: float) -> float | None:
        return self.next_time if self.waiting else None


async def alarm(limiter: Limiter) -> None:
    """What the owner of a limiter does: sleep until the policy wants to be polled."""
    wakeups: list[float | None] = [None]
    changed = anyio.Event()

    def told(at: float | None) -> None:
        wakeups.append(at)
        changed.set()

    limiter.on_wakeup = told
    while True:
        at = wakeups[-1]
        with anyio.CancelScope(deadline=math.inf if at is None else at):
            await changed.wait()
        changed = anyio.Event()
        if at is not None and anyio.current_time() >= at:
            limiter.poll()


async def test_a_pace_is_kept_by_the_owners_timer_alone() -> None:
    limiter = Limiter(None, name="model", admission=Line(gap=2.0))
    times: list[float] = []

    async def call(item: str) -> None:
        async with limiter.lease(item=item):
            times.append(anyio.current_time())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(alarm, limiter)
        await settle()
        async with anyio.create_task_group() as calls:
            for item in "abcd":
                calls.start_soon(call, item)
        tasks.cancel_scope.cancel()
    assert times == [0.0, 2.0, 4.0, 6.0]


async def test_the_policy_is_told_of_each_step_once() -> None:
    policy = Line()
    limiter = Limiter(1, name="model", admission=policy)

    async def impatient() -> None:
        with anyio.move_on_after(3):
            async with limiter.lease(item="b"):
                pass

    async with anyio.create_task_group() as tasks, limiter.lease(item="a"):
        tasks.start_soon(impatient)
        await anyio.sleep(3)
        await settle()
    assert policy.told == ["0 enqueue a", "0 enqueue b", "3 withdraw b", "3 release a"]


async def test_a_grant_that_meets_a_cancellation_is_abandoned_not_released() -> None:
    policy = Line()
    limiter = Limiter(1, name="model", admission=policy)
    scopes: list[anyio.CancelScope] = []

    async def call(item: str) -> None:
        with anyio.CancelScope() as scope:
            scopes.append(scope)
            async with limiter.lease(item=item):
                await anyio.sleep(1 if item == "a" else 0)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call, "a")
        await settle()
        tasks.start_soon(call, "b")
        await settle()
        limiter.resize(2)
        scopes[1].cancel()
        await settle()
        assert limiter.used == 1
    assert policy.told == ["0 enqueue a", "0 enqueue b", "0 abandon b", "1 release a"]


async def test_a_requeued_item_is_settled_by_its_owner_and_not_enqueued_again() -> None:
    policy = Line()
    limiter = Limiter(1, name="model", admission=policy)
    diary: list[str] = []

    async def rejected() -> None:
        async with limiter.lease(item="a") as lease:
            await anyio.sleep(1)
            await lease.requeue(lambda now: policy.back("a"))
            diary.append("a again")

    async def other() -> None:
        async with limiter.lease(item="b"):
            diary.append("b")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(rejected)
        await settle()
        tasks.start_soon(other)
    assert diary == ["a again", "b"]
    assert policy.told == ["0 enqueue a", "0 enqueue b", "1 release a", "1 release b"]


async def test_a_paused_limiter_does_not_ask_its_policy() -> None:
    policy = Line()
    limiter = Limiter(None, name="model", admission=policy)
    wakeups: list[float | None] = []
    limiter.on_wakeup = wakeups.append
    limiter.pause()
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            async with limiter.lease(item="a"):
                pass

        tasks.start_soon(call)
        await settle()
        assert limiter.waiting == 1
        assert wakeups == [None, None], "told at the pause and when somebody came: there is nothing to wake for"
        limiter.resume()
    assert limiter.statistics().next_wakeup is None


async def test_try_lease_asks_the_policy_and_withdraws_what_it_does_not_grant() -> None:
    policy = Line(gap=5.0)
    limiter = Limiter(None, name="model", admission=policy)
    first = limiter.try_lease(item="a")
    assert first is not None
    with first:
        assert limiter.try_lease(item="b") is None
    assert policy.told == ["0 enqueue a", "0 enqueue b", "0 withdraw b", "0 release a"]
    assert (limiter.used, limiter.waiting) == (0, 0)


async def test_such_a_limiter_takes_no_part_in_joint_leases() -> None:
    limiter = Limiter(None, name="model", admission=Line())
    with pytest.raises(LeaseMisuse, match="admission policy does not go by room"):
        lease_all([limiter.lease(item="a"), Limiter(1, name="door").lease()])


async def test_group_weight_and_order_are_read_off_the_item_for_whoever_looks() -> None:
    @define(eq=False)
    class Call:
        group: str = "task"
        weight: float = 2.0
        order: Any = (3, 1)

    limiter = Limiter(None, name="model", admission=Line())
    async with limiter.lease(item=Call()):
        (group,) = limiter.statistics().groups
        assert (group.group, group.weight, group.used) == ("task", 2.0, 1)


async def test_an_item_is_in_use_once() -> None:
    limiter = Limiter(None, name="model", admission=Line())
    item = object()
    async with limiter.lease(item=item):
        with pytest.raises(LeaseMisuse, match="an item wants or has one place at a time"):
            async with limiter.lease(item=item):
                pass
    assert (limiter.used, limiter.waiting) == (0, 0)
    async with limiter.lease(item=item):
        pass


async def test_the_policy_is_asked_after_everything_that_may_let_somebody_in() -> None:
    asked: list[str] = []

    @define
    class Asked(Line):
        step: str = ""

        def poll(self, now: float, room: int | None) -> list[object]:
            asked.append(f"{self.step}, room {room}")
            return super().poll(now, room)

    policy = Asked()
    limiter = Limiter(1, name="model", admission=policy)

    async def cancelled() -> None:
        with anyio.move_on_after(1):
            async with limiter.lease(item="b"):
                pass

    policy.step = "come"
    async with limiter.lease(item="a") as lease:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancelled)
            await settle()
            policy.step = "withdraw"
        policy.step = "resize"
        limiter.resize(3)
        policy.step = "requeue"
        await lease.requeue(lambda now: policy.back("a"))
        policy.step = "release"
    limiter.pause()
    policy.step = "resume"
    limiter.resume()
    assert asked == [
        "come, room 1",
        "come, room 0",
        "withdraw, room 0",
        "resize, room 2",
        "requeue, room 3",
        "release, room 3",
        "resume, room 3",
    ]
