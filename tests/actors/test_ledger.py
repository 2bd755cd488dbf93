"""The ledger: who listens hears every step in order; who does not costs nothing."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.actors import Event, Ledger, Limiter, LimiterEvent, lease_all
from proctor.errors import DeadlockError
from proctor.testing import settle


def heard(ledger: Ledger) -> list[LimiterEvent]:
    events: list[Any] = []
    ledger.subscribe(events.append)
    return events


def kinds(events: list[LimiterEvent]) -> list[str]:
    return [f"{event.kind} {event.item}" if event.item else event.kind for event in events]


async def test_each_step_of_a_lease_is_told_with_the_counts_after_it() -> None:
    ledger = Ledger()
    events = heard(ledger)
    limiter = Limiter(1, name="door", ledger=ledger)

    async def second() -> None:
        async with limiter.lease(group="g", weight=2.0, order=3):
            pass

    async with anyio.create_task_group() as tasks, limiter.lease():
        await anyio.sleep(1)
        tasks.start_soon(second)
        await anyio.sleep(1)
    assert kinds(events) == ["granted 1", "queued 2", "released 1", "granted 2", "released 2"]
    assert events[1] == LimiterEvent(1.0, "queued", "door", 2, "g", used=1, limit=1, waiting=1, weight=2.0, order=3)
    assert [(event.time, event.used, event.waiting) for event in events] == [
        (0, 1, 0),
        (1, 1, 1),
        (2, 0, 1),
        (2, 1, 0),
        (2, 0, 0),
    ]
    assert all(isinstance(event, Event) for event in events)


async def test_withdrawn_refused_abandoned_requeued_and_revoked_are_told() -> None:
    ledger = Ledger()
    events = heard(ledger)
    limiter = Limiter(1, name="door", ledger=ledger)

    async def waits(scope: anyio.CancelScope) -> None:
        with scope:
            async with limiter.lease():
                pass

    async with anyio.create_task_group() as tasks, limiter.lease(revocable=True) as lease:
        for _ in range(2):
            tasks.start_soon(waits, scope := anyio.CancelScope())
            await settle()
            if limiter.limit == 1:
                scope.cancel()
                await settle()
                limiter.pause("tea")
                limiter.resize(2)
        limiter.resume("tea")
        scope.cancel()
        await settle()
        await lease.requeue()
        assert limiter.revoke("enough") == 1
    limiter.close("over")
    assert kinds(events) == [
        "granted 1",
        "queued 2",
        "withdrawn 2",
        "paused",
        "resized",
        "queued 3",
        "resumed",
        "granted 3",
        "abandoned 3",
        "requeued 1",
        "granted 1",
        "revoked 1",
        "released 1",
        "closed",
    ]
    assert [event.detail for event in events if event.kind in {"paused", "resumed", "closed"}] == ["tea", "tea", "over"]


async def test_a_deadlock_is_told_as_a_refusal() -> None:
    ledger = Ledger()
    events = heard(ledger)
    a, b = Limiter(1, name="a", ledger=ledger), Limiter(1, name="b", ledger=ledger)

    async def take(first: Limiter, second: Limiter) -> None:
        try:
            async with first.lease():
                await anyio.sleep(1)
                async with second.lease():
                    pass
        except DeadlockError:
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take, a, b)
        tasks.start_soon(take, b, a)
    (refused,) = [event for event in events if event.kind == "refused"]
    assert isinstance(refused.detail, DeadlockError)


async def test_the_parts_of_a_joint_lease_name_each_other() -> None:
    ledger = Ledger()
    events = heard(ledger)
    a, b = Limiter(0, name="a", ledger=ledger), Limiter(1, name="b", ledger=ledger)

    async def both() -> None:
        async with lease_all([a.lease(), b.lease()]):
            pass

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(both)
        await settle()
        a.resize(1)
    assert {event.joint for event in events if event.kind == "granted"} == {(("a", 1), ("b", 1))}
    assert [event.kind for event in events if event.name == "a"] == [
        "queued",
        "resized",
        "armed",
        "granted",
        "released",
    ]


async def test_listeners_come_and_go_and_a_ledger_without_any_is_false() -> None:
    ledger = Ledger()
    assert not ledger
    first: list[Event] = []
    second: list[Event] = []
    leave = ledger.subscribe(first.append)
    ledger.subscribe(second.append)
    assert ledger
    limiter = Limiter(1, name="door", ledger=ledger)
    limiter.pause()
    leave()
    leave()
    limiter.resume()
    assert [event.kind for event in first] == ["paused"]
    assert [event.kind for event in second] == ["paused", "resumed"]


async def test_no_event_is_built_while_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    import proctor.actors.places

    monkeypatch.setattr(proctor.actors.places, "LimiterEvent", None)
    limiter = Limiter(1, name="door", ledger=Ledger())
    async with anyio.create_task_group() as tasks, limiter.lease(revocable=True):

        async def waits() -> None:
            async with limiter.lease():
                pass

        tasks.start_soon(waits)
        await settle()
        limiter.resize(0)
        limiter.resize(1)
    limiter.close()


def test_a_ledger_may_be_written_without_a_loop() -> None:
    ledger = Ledger()
    events = heard(ledger)
    limiter = Limiter(1, name="door", ledger=ledger)
    limiter.resize(2)
    assert [(event.time, event.kind, event.limit) for event in events] == [(0.0, "resized", 2)]
    timed = Ledger(clock=lambda: 7.5)
    events = heard(timed)
    Limiter(1, name="door", ledger=timed).pause()
    assert events[0].time == 7.5
