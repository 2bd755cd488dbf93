"""Cancellation at every moment: timeouts, revocations, native cancellation of asyncio tasks."""

from __future__ import annotations

import anyio
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from proctor.actors import Ledger, Limiter
from proctor.errors import LeaseRevoked
from proctor.testing import run_virtual
from proctor.testing.jitter import Jitter
from proctor.testing.monitor import Monitor
from proctor.testing.plan import Plan
from proctor.testing.stage import check, play
from proctor.testing.strategies import plans, scaled, times


@scaled(2)
@given(plan=plans(), timeouts=st.lists(times(), min_size=8, max_size=8))
def test_cancelling_asyncio_tasks_natively_anywhere_leaves_nothing_behind(
    backend: str, plan: Plan, timeouts: list[int]
) -> None:
    """Invariant 38 (and 3, 5): on trio the same cancellations come from scopes."""
    clients = [evolve(client, native=True, timeout=t) for client, t in zip(plan.clients, timeouts, strict=False)]
    check(play(evolve(plan, clients=tuple(clients)), backend))


@scaled(4)
@given(
    holders=st.lists(times(4), min_size=1, max_size=2),
    waiters=st.lists(st.tuples(times(4), times(6)), min_size=1, max_size=6),
    jitter=st.integers(0, 1000),
)
def test_a_grant_that_meets_a_cancellation_is_back_in_the_same_instant(
    backend: str, holders: list[int], waiters: list[tuple[int, int]], jitter: int
) -> None:
    """Invariant 13. With jitter between grant and wake-up many cancellations fall in between."""
    ledger = Ledger()
    bodies: list[tuple[float, float]] = []

    async def main() -> None:
        limiter = Limiter(len(holders), name="limiter", ledger=ledger)
        monitor = Monitor([limiter], raises=True)
        ledger.subscribe(monitor.listen)

        async def holder(hold: int) -> None:
            async with limiter.lease():
                await anyio.sleep(hold)

        async def waiter(delay: int, timeout: int) -> None:
            await anyio.sleep(delay)
            with anyio.move_on_after(timeout):
                async with limiter.lease():
                    began = anyio.current_time()
                    try:
                        await anyio.sleep(1)
                    finally:
                        bodies.append((began, anyio.current_time()))

        async with anyio.create_task_group() as tg:
            for hold in holders:
                tg.start_soon(holder, hold)
            await anyio.sleep(0)
            for delay, timeout in waiters:
                tg.start_soon(waiter, delay, timeout)
        monitor.ended()
        started = sum(event.kind == "granted" for event in monitor.events)
        abandoned = sum(event.kind == "abandoned" for event in monitor.events)
        assert len(bodies) == started - abandoned - len(holders)

    with Jitter(jitter, most=4).installed():
        run_virtual(backend, main)


@scaled(2)
@given(
    revoked=st.integers(1, 4),
    cancelled=st.integers(1, 4),
    outer_first=st.booleans(),
    hold=times(6),
    jitter=st.none() | st.integers(0, 99),
)
def test_an_outer_cancellation_beats_a_revocation(
    backend: str, revoked: int, cancelled: int, hold: int, jitter: int | None, *, outer_first: bool
) -> None:
    """Invariant 18, with both in one instant in either order."""

    async def main() -> None:
        limiter = Limiter(1, name="limiter")
        seen: list[str] = []
        with anyio.CancelScope() as outer:

            async def cancel() -> None:
                await anyio.sleep(cancelled)
                outer.cancel()

            async def revoke() -> None:
                await anyio.sleep(revoked)
                limiter.revoke("wanted back")

            async def both() -> None:
                await anyio.sleep(revoked)
                if outer_first:
                    outer.cancel()
                limiter.revoke("wanted back")
                outer.cancel()

            async def run() -> None:
                async with anyio.create_task_group() as tg:
                    if revoked == cancelled:
                        tg.start_soon(both)
                    else:
                        tg.start_soon(cancel)
                        tg.start_soon(revoke)
                    try:
                        async with limiter.lease(revocable=True):
                            await anyio.sleep(hold)
                            seen.append("done")
                    except LeaseRevoked:
                        seen.append("revoked")
                        assert not outer.cancel_called
                    tg.cancel_scope.cancel()

            await run()
        if hold < min(revoked, cancelled):
            assert seen == ["done"]
        elif revoked < min(cancelled, hold):
            assert seen == ["revoked"]
        elif cancelled < min(revoked, hold) or (cancelled == revoked < hold):
            assert seen == []
            assert outer.cancelled_caught
        assert (limiter.used, limiter.waiting) == (0, 0)

    if jitter is None:
        run_virtual(backend, main)
    else:
        with Jitter(jitter).installed():
            run_virtual(backend, main)
