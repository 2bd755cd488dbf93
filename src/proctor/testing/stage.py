"""Play a plan: real tasks with real limiters, and a record of what became of each client."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import anyio
from attrs import define, field, frozen

from proctor.actors import Ledger, Limiter, Rank, lease_all
from proctor.actors.ledger import Event
from proctor.errors import DeadlockError, LeaseRevoked, LimiterClosed, RankError
from proctor.testing.jitter import Jitter, yield_point
from proctor.testing.monitor import InvariantViolation, Monitor
from proctor.testing.plan import Admin, Body, Client, Outcome, Plan, Status
from proctor.testing.virtual import run_virtual
from proctor.testing.watch import at_idle


class Boom(Exception):
    """The failure of a client's body."""


@frozen
class Played:
    """A plan that has been played.

    Attributes:
        outcomes: one a client. events: the ledger. duration: virtual seconds.
        violations: invariants that were broken.
    """

    plan: Plan
    backend: str
    outcomes: tuple[Outcome, ...]
    events: tuple[Event, ...]
    duration: float
    violations: tuple[InvariantViolation, ...]


@define(eq=False)
class Stage:
    """The limiters of a plan while it is played."""

    plan: Plan
    backend: str
    ledger: Ledger = field(factory=Ledger)
    limiters: list[Limiter] = field(init=False)
    inside: Counter[str] = field(init=False, factory=Counter)
    outcomes: dict[int, Outcome] = field(init=False, factory=dict)
    bodies: dict[int, list[Body]] = field(init=False, factory=dict)
    violations: list[InvariantViolation] = field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self.limiters = [
            Limiter(
                limit,
                name=f"limiter {n}",
                rank=Rank(f"rank {n}", n) if self.plan.ranked else None,
                ledger=self.ledger,
            )
            for n, limit in enumerate(self.plan.limits)
        ]

    async def play(self) -> None:
        """Run all clients and operations to their end."""
        async with anyio.create_task_group() as admin, anyio.create_task_group() as clients:
            for step in self.plan.admin:
                admin.start_soon(self._operate, step)
            if self.plan.mend:
                admin.start_soon(self._mend)
            for number, client in enumerate(self.plan.clients):
                clients.start_soon(self._client, number, client)

    # -- operations

    async def _operate(self, step: Admin) -> None:
        await anyio.sleep(step.at)
        limiter = self.limiters[step.limiter]
        match step.action:
            case "resize":
                limiter.resize(step.value)
            case "pause":
                limiter.pause()
            case "resume":
                limiter.resume()
            case "close" if not limiter.closed:
                limiter.close(Boom("closed by the plan"))
            case "revoke":
                limiter.revoke("by the plan", where=lambda lease: step.value in {-1, lease.group})
            case _:
                pass  # closed already

    async def _mend(self) -> None:
        await anyio.sleep(self.plan.horizon)
        for limiter in self.limiters:
            limiter.resume()
            if limiter.limit is not None and limiter.limit < 1:
                limiter.resize(1)

    # -- clients

    async def _client(self, number: int, client: Client) -> None:
        await anyio.sleep(client.delay)
        started = anyio.current_time()
        status: Status
        if client.native and client.timeout is not None and self.backend != "trio":
            status, detail = await _cancelled_natively(lambda: self._attempt(number, client, None), client.timeout)
        else:
            deadline = float("inf") if client.timeout is None else started + client.timeout
            status, detail = "timeout", ""
            with anyio.CancelScope(deadline=deadline) as scope:
                status, detail = await self._attempt(number, client, scope)
        ended = anyio.current_time()
        if status == "timeout" and client.timeout is not None and ended != started + client.timeout:
            self._violated(17, f"client {number} timed out at {ended}, due at {started + client.timeout}")
        self.outcomes[number] = Outcome(status, ended, tuple(self.bodies.get(number, ())), detail)

    async def _attempt(self, number: int, client: Client, scope: anyio.CancelScope | None) -> tuple[Status, str]:
        try:
            return await self._enter(number, client), ""
        except Boom:
            return "failed", ""
        except LeaseRevoked as error:
            if scope is not None and scope.cancel_called:
                self._violated(18, f"client {number} saw a revocation though it was cancelled from outside")
            return "revoked", str(error)
        except LimiterClosed as error:
            return "closed", str(error)
        except RankError as error:
            if self.plan.in_order:
                self._violated(19, f"client {number} takes its leases in order, yet {error}")
            return "rank", str(error)
        except DeadlockError as error:
            if self.plan.in_order:
                self._violated(21, f"client {number} takes its leases in order, yet {error}")
            return "deadlock", str(error)

    async def _enter(self, number: int, client: Client) -> Status:
        await yield_point("client begins")
        if client.tries:
            limiter, others = self.limiters[client.chain[0]], client.chain[1:]
            waiting = limiter.waiting
            lease = limiter.try_lease(**self._wants(client))
            if lease is None:
                return "no room"
            if waiting:
                self._violated(8, f"client {number} got a lease without waiting while {waiting} waited")
            with lease, self._inside(client.chain[:1]):
                await self._nest(number, client, others, lease)
        elif client.joint:
            wanted = [self.limiters[n].lease(**self._wants(client)) for n in client.chain]
            async with lease_all(wanted):
                with self._inside(client.chain):
                    await self._body(number, client, None)
        else:
            await self._nest(number, client, client.chain, None)
        return "done"

    async def _nest(self, number: int, client: Client, chain: tuple[int, ...], innermost: Any) -> None:
        if not chain:
            await self._body(number, client, innermost)
            return
        if innermost is not None:
            await anyio.sleep(client.step)
        async with self.limiters[chain[0]].lease(**self._wants(client)) as lease:
            with self._inside(chain[:1]):
                await self._nest(number, client, chain[1:], lease)

    async def _body(self, number: int, client: Client, lease: Any) -> None:
        first = client.hold // 2 if client.requeues and lease is not None else client.hold
        await self._work(number, first)
        if client.requeues and lease is not None:
            with self._outside(lease.limiter.name):
                await lease.requeue()
            await self._work(number, client.hold - first)
        if client.fails:
            raise Boom

    async def _work(self, number: int, seconds: int) -> None:
        began = anyio.current_time()
        try:
            await yield_point("body")
            await anyio.sleep(seconds)
        finally:
            self.bodies.setdefault(number, []).append(Body(began, anyio.current_time()))

    def _wants(self, client: Client) -> dict[str, Any]:
        weight = self.plan.weights[client.group]
        return {"group": client.group, "weight": weight, "order": client.order, "revocable": client.revocable}

    @contextmanager
    def _inside(self, chain: tuple[int, ...]) -> Iterator[None]:
        names = [self.limiters[n].name for n in chain]
        self.inside.update(names)
        try:
            yield
        finally:
            self.inside.subtract(names)

    @contextmanager
    def _outside(self, name: str) -> Iterator[None]:
        self.inside[name] -= 1
        try:
            yield
        finally:
            self.inside[name] += 1

    def _violated(self, number: int, text: str) -> None:
        self.violations.append(InvariantViolation(number, text))


def play(plan: Plan, backend: str, *, seed: int = 0) -> Played:
    """Play a plan in virtual time under a Monitor.

    Args:
        seed: for `run_virtual`.

    Raises:
        VirtualDeadlock: the plan never ends.
    """
    stage = Stage(plan, backend)
    monitor = Monitor(stage.limiters, inside=stage.inside.__getitem__)

    async def main() -> float:
        stage.ledger.subscribe(monitor.listen)
        with at_idle(monitor.settled):
            await stage.play()
        monitor.ended()
        return anyio.current_time()

    def played(duration: float) -> Played:
        outcomes = tuple(stage.outcomes.get(n, Outcome("unfinished", duration)) for n in range(len(plan.clients)))
        violations = (*monitor.violations, *stage.violations)
        return Played(plan, backend, outcomes, tuple(monitor.events), duration, violations)

    try:
        with nullcontext() if plan.jitter is None else Jitter(plan.jitter).installed():
            return played(run_virtual(backend, main, seed=seed))
    except BaseException:
        check(played(-1.0))  # a broken promise says more than the hang or the error that followed from it
        raise


def check(played: Played) -> Played:
    """Return what was played, or raise the first violation with the plan, the outcomes and the ledger as notes."""
    if not played.violations:
        return played
    first = played.violations[0]
    first.add_note(f"{played.backend}: {played.plan}")
    for other in played.violations[1:5]:
        first.add_note(f"also {other}")
    for number, outcome in enumerate(played.outcomes):
        first.add_note(f"  client {number}: {outcome}")
    for event in played.events[-40:]:
        first.add_note(f"  {event}")
    raise first


async def _cancelled_natively(attempt: Callable[[], Any], timeout: float) -> tuple[Status, str]:
    """Run a client in a task of asyncio's own and cancel that after `timeout`, once, as asyncio does."""
    import asyncio

    task: asyncio.Task[tuple[Status, str]] = asyncio.ensure_future(attempt())
    timer = asyncio.get_running_loop().call_later(timeout, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return "timeout", ""
    finally:
        timer.cancel()
