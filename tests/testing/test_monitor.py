"""The Monitor, fed ledgers with faults that no real limiter would write."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor.actors import Ledger, Limiter, LimiterEvent
from proctor.testing.monitor import InvariantViolation, Monitor, normalised


def event(kind: str, item: int, used: int, waiting: int, **more: Any) -> LimiterEvent:
    values: dict[str, Any] = {"time": 0.0, "name": "a", "limit": 2, "group": 0} | more
    return LimiterEvent(values.pop("time"), kind, values.pop("name"), item=item, used=used, waiting=waiting, **values)


def numbers(*events: LimiterEvent, settle: bool = False, end: bool = False) -> set[int]:
    monitor = Monitor()
    for each in events:
        monitor.listen(each)
    if settle:
        monitor.settled()
    if end:
        monitor.ended()
    return {violation.number for violation in monitor.violations}


GRANTED = event("granted", 1, 1, 0)


@pytest.mark.parametrize(
    ("number", "events"),
    [
        (1, [event("granted", 1, 1, 0, limit=0)]),
        (1, [GRANTED, event("paused", 0, 1, 0), event("granted", 2, 2, 0)]),
        (2, [event("granted", 1, 2, 0)]),
        (2, [GRANTED, event("released", 1, 1, 0)]),
        (5, [event("queued", 1, 0, 2)]),
        (5, [event("queued", 1, 0, 1), event("withdrawn", 1, 0, 0), event("withdrawn", 1, 0, 0)]),
        (6, [event("queued", 1, 0, 1), event("queued", 2, 0, 2), event("granted", 2, 1, 1)]),
        (6, [event("queued", 1, 0, 1, order=2), event("queued", 2, 0, 2, order=1), event("granted", 1, 1, 1, order=2)]),
        (8, [event("queued", 1, 0, 1), event("granted", 2, 1, 1)]),
        (13, [GRANTED, event("abandoned", 1, 0, 0, time=1.0)]),
    ],
)
def test_a_fault_is_seen_at_its_event(number: int, events: list[LimiterEvent]) -> None:
    assert number in numbers(*events)


def test_a_lost_wake_up_is_seen_when_nothing_is_runnable() -> None:
    lost = [GRANTED, event("queued", 2, 1, 1)]
    assert numbers(*lost) == set()
    assert numbers(*lost, settle=True) == {4}
    assert numbers(*lost, event("paused", 0, 1, 1), settle=True) == set()
    assert numbers(*lost, end=True) >= {3, 4}


def test_unfair_service_is_seen() -> None:
    queued = [event("queued", n, 0, n, group=n % 2, weight=1.0) for n in range(1, 9)]
    fair = [event("granted", n, n, 8 - n, group=n % 2, limit=9) for n in range(1, 9)]
    assert numbers(*queued, *fair) == set()
    one_first = [2, 4, 6, 8, 1, 3, 5, 7]
    unfair = [event("granted", n, i, 8 - i, group=n % 2, limit=9) for i, n in enumerate(one_first, start=1)]
    assert numbers(*queued, *unfair) & {7, 9}


def test_half_a_joint_lease_is_seen() -> None:
    joint = (("a", 1), ("b", 1))
    first = event("granted", 1, 1, 0, joint=joint)
    second = event("granted", 1, 1, 0, name="b", joint=joint)
    assert numbers(first, second, settle=True) == set()
    assert numbers(first, settle=True) == {22}
    assert 22 in numbers(first, event("granted", 2, 2, 0), second)


def test_a_joint_lease_that_waits_for_nothing_is_seen() -> None:
    joint = (("a", 1), ("b", 1))
    unnumbered = (("a", 1), ("b", 0))  # the other part has not arrived yet
    queued = [event("queued", 1, 0, 1, joint=unnumbered), event("queued", 1, 0, 1, name="b", joint=joint)]
    assert numbers(*queued, settle=True) == {23}
    full = [event("granted", 7, 1, 0, name="b", limit=1)]
    waits = [event("queued", 1, 0, 1, joint=unnumbered), event("queued", 1, 1, 1, name="b", limit=1, joint=joint)]
    assert numbers(*full, *waits, settle=True) == set()


async def test_a_real_limiter_passes_and_its_own_counts_are_compared() -> None:
    ledger = Ledger()
    limiter = Limiter(1, name="a", ledger=ledger)
    inside = 0
    monitor = Monitor([limiter], inside=lambda name: inside, raises=True)
    ledger.subscribe(monitor.listen)

    async def client() -> None:
        nonlocal inside
        async with limiter.lease():
            inside += 1
            monitor.settled()
            await anyio.sleep(1)
            inside -= 1

    async with anyio.create_task_group() as tg:
        for _ in range(3):
            tg.start_soon(client)
    monitor.ended()
    inside = 1
    with pytest.raises(InvariantViolation, match="bodies inside"):
        monitor.settled()


def test_check_raises_the_first_with_the_last_events_as_notes() -> None:
    monitor = Monitor()
    monitor.check()
    monitor.listen(event("granted", 1, 1, 0, limit=0))
    with pytest.raises(InvariantViolation) as caught:
        monitor.check()
    assert caught.value.number == 1
    assert any("granted" in note for note in caught.value.__notes__)


def test_ledgers_are_compared_with_the_events_of_one_instant_in_any_order() -> None:
    one, two, later = event("granted", 1, 1, 0), event("granted", 2, 2, 0), event("released", 1, 1, 0, time=1.0)
    assert normalised([one, two, later]) == normalised([two, one, later])
    assert normalised([one, later]) != normalised([one, two, later])
