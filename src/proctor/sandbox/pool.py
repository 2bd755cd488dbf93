"""The pool of one provider's environments: who makes and removes them, and how many may live.

There is one pool for each type of sandbox in a runtime. Its limiter counts the samples that have environments (rank
SANDBOX; `max_sandboxes`, by default the provider's number, changed while it runs). Making and removing happen in the
actor, by `ask`, since what they make outlives whoever asked for it:

* A *ticket* stands for the environments of one sample. It is made before them and enters the estate in the very step in
  which the provider hands them over, so there is no instant in which they exist and nobody knows of them. Whoever asked
  and was cancelled asks for the removal of the same ticket, whether anything came of it or not.
* The estate outlives a restart of the actor. The next incarnation asks each environment whether it is still there;
  the samples of those that are not are told (`SandboxUnavailableError`).
* Starts are bounded apart from what lives, at `cpus` at a time: a hundred containers that start at once saturate the
  host. Removals have their own limiter, so that a full pool can drain while starts wait, and child processes of theirs
  do not queue behind the user's (`cleanup_limiter`).

Rejected: environments made in the sample's own task. A cancellation between the provider's return and the assignment
would leave them without an owner, and a pool that restarts could not tell what lives.
"""

from __future__ import annotations

import logging
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Final

import anyio
from attrs import define, field, frozen

from proctor.actors import ActorContext, ChildSpec, Limiter, Ref
from proctor.errors import ActorGone, Fault, SandboxUnavailableError, UsageError
from proctor.runtime import Runtime, current_sample
from proctor.runtime.cpus import cpus
from proctor.runtime.ranks import ENGINE, SANDBOX, START
from proctor.sandbox.environment import SandboxEnvironment

logger: Final = logging.getLogger(__name__)

CLEANUP: Final = 30.0  # seconds that a removal may take where nobody waits for it (behaviour.md, 8)
STILL_THERE: Final = 5.0  # seconds that an environment has to say, after a restart, that it is still there
BOUND: Final = 2.0  # seconds that a provider's method may take to end once it was cancelled
STARTS: Final = 2  # tries at a start: what fails twice may itself be what the actor dies of
LEAST_REMOVALS: Final = 16  # an ending has 4 s for all of them

cleanup_variable: Final[ContextVar[Limiter | None]] = ContextVar("proctor_sandbox_cleanup", default=None)


def cleanup_limiter() -> Limiter | None:
    """Inside a removal: the limiter that its child processes go by, so that they wait for no others. Else None."""
    return cleanup_variable.get()


@define(eq=False, kw_only=True)
class Ticket:
    """The environments of one sample, whether they exist yet or not.

    Attributes:
        id: unique. label: what they are for, in words.
        provider, task_name, config, metadata: what they are made with.
        environments: by name; None before they were made and after they were removed.
        over: nobody wants them any more; what is made all the same is removed at once.
        lost: why they are no longer there, when that is known.
        scope: what is cancelled when they are lost.
    """

    id: str
    label: str
    provider: type[SandboxEnvironment]
    task_name: str
    config: Any = None
    metadata: Mapping[str, Any] = field(factory=dict)
    environments: dict[str, SandboxEnvironment] | None = field(default=None, init=False)
    over: bool = field(default=False, init=False)
    lost: SandboxUnavailableError | None = field(default=None, init=False)
    scope: anyio.CancelScope | None = field(default=None, init=False)

    def lose(self, reason: str) -> None:
        """They are gone: whoever works with them is interrupted."""
        self.lost = self.lost or SandboxUnavailableError(reason)
        if self.scope is not None:
            self.scope.cancel()


@frozen
class Create:
    """Make the environments of a ticket."""

    ticket: Ticket


@frozen
class Destroy:
    """Remove the environments of a ticket; nothing when there are none.

    Attributes:
        interrupted: their sample ended by an error or was cancelled.
    """

    ticket: Ticket
    interrupted: bool


@define(eq=False, kw_only=True)
class Estate:
    """What outlives an incarnation of a pool.

    Attributes:
        name: the provider's. limiter: the samples that have environments.
        starts: those that are being made. removals: those that are being removed.
        reserve: child processes of removals.
        live: tickets with environments. made, removed: how many so far.
    """

    name: str
    limiter: Limiter
    starts: Limiter
    removals: Limiter
    reserve: Limiter
    live: dict[str, Ticket] = field(factory=dict, init=False)
    made: int = field(default=0, init=False)
    removed: int = field(default=0, init=False)

    @classmethod
    def of(cls, name: str, runtime: Runtime) -> Estate:
        """The estate of a new pool."""
        at_once, ledger = cpus(), runtime.ledger
        removals = max(LEAST_REMOVALS, 4 * at_once)
        return cls(
            name=name,
            limiter=Limiter(None, name=f"sandboxes {name}", rank=SANDBOX, ledger=ledger),
            starts=Limiter(at_once, name=f"sandbox starts {name}", rank=START, ledger=ledger),
            removals=Limiter(removals, name=f"sandbox removals {name}", rank=START, ledger=ledger),
            reserve=Limiter(removals, name=f"sandbox cleanups {name}", rank=ENGINE, ledger=ledger),
        )

    def received(self, ticket: Ticket, environments: Mapping[str, SandboxEnvironment]) -> None:
        """A provider handed environments over."""
        ticket.environments = dict(environments)
        self.live[ticket.id] = ticket
        self.made += 1

    def released(self, ticket: Ticket) -> None:
        """The environments of a ticket are no more ours: removed, or given up and named."""
        if self.live.pop(ticket.id, None) is not None:
            self.removed += 1
        ticket.environments = None


@define(eq=False)
class PoolState:
    """An incarnation of a pool."""

    estate: Estate

    async def handle(self, message: object) -> Exception | None:
        """Make or remove. What the provider raises is returned: it is no failure of the actor, whoever still waits."""
        try:
            if isinstance(message, Create):
                await self._create(message.ticket)
            elif isinstance(message, Destroy):
                await remove(self.estate, message.ticket, interrupted=message.interrupted)
            else:
                raise TypeError(f"a sandbox pool does not know {type(message).__name__}")
        except Fault:
            raise
        except Exception as error:
            return error
        return None

    async def _create(self, ticket: Ticket) -> None:
        if ticket.over or ticket.environments is not None:
            return
        made = await ticket.provider.sample_init(ticket.task_name, ticket.config, dict(ticket.metadata))
        if made:
            self.estate.received(ticket, made)  # with no await in between
        if ticket.over:
            # Whoever asked has gone, in spite of our bound; so nobody else removes them.
            await self._remove_unwanted(ticket)
        elif not made:
            raise UsageError(f"sandbox {self.estate.name}: sample_init returned no environment; it must return one")

    async def _remove_unwanted(self, ticket: Ticket) -> None:
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLEANUP):
            await remove(self.estate, ticket, interrupted=True)

    async def look_after(self) -> None:
        """After a restart: ask what lives whether it is still there, and tell the samples of what is not."""
        async with anyio.create_task_group() as nursery:
            for ticket in list(self.estate.live.values()):
                nursery.start_soon(self._look_at, ticket)

    async def _look_at(self, ticket: Ticket) -> None:
        there = False
        with anyio.move_on_after(STILL_THERE):
            try:
                answers = [await each.alive() for each in (ticket.environments or {}).values()]
                there = all(answers)
            except Exception:
                logger.debug("%s: asking after it failed", ticket.label, exc_info=True)
        if not there and ticket.id in self.estate.live:
            ticket.lose(f"the sandbox of {ticket.label} did not outlive a restart of its pool")

    async def close(self) -> None:
        """The pool is closed for good: remove whatever is still there, in bounded time."""
        for ticket in list(self.estate.live.values()):
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + BOUND):
                try:
                    await remove(self.estate, ticket, interrupted=True)
                except Exception as error:
                    logger.warning("the sandbox of %s was left behind: %s", ticket.label, error)


async def remove(estate: Estate, ticket: Ticket, *, interrupted: bool) -> None:
    """Remove the environments of a ticket; what is still being made is removed as soon as it is there."""
    ticket.over = True
    if (environments := ticket.environments) is None:
        return
    token = cleanup_variable.set(estate.reserve)
    try:
        await ticket.provider.sample_cleanup(ticket.task_name, ticket.config, dict(environments), interrupted)
    finally:
        cleanup_variable.reset(token)
    estate.released(ticket)


@define(eq=False)
class SandboxPool:
    """A pool as those who use it see it."""

    ref: Ref[PoolState]
    estate: Estate

    async def create(self, ticket: Ticket) -> None:
        """Make the environments of a ticket, in turn with other starts.

        Raises:
            Exception: what the provider raised.
        """
        sample = current_sample()
        lease = self.estate.starts.lease(group=None if sample is None else sample.group)
        with sample.working.waiting() if sample is not None else nullcontext():
            await lease.__aenter__()
        try:
            await self._ask(Create(ticket), tries=STARTS)
        finally:
            await lease.__aexit__(None, None, None)

    async def destroy(self, ticket: Ticket, *, interrupted: bool) -> None:
        """Remove the environments of a ticket, in turn with other removals; bounded by the caller.

        Raises:
            Exception: what the provider raised; the environments may still be there.
        """
        ticket.over = True
        if ticket.environments is None:
            return
        async with self.estate.removals.lease():
            try:
                await self._ask(Destroy(ticket, interrupted))
            except ActorGone:
                await remove(self.estate, ticket, interrupted=interrupted)

    async def _ask(self, message: Create | Destroy, *, tries: float = math.inf) -> None:
        """Ask, and ask again when the actor was restarted meanwhile: both messages may be repeated."""
        while True:
            try:
                raised = await self.ref.ask(message)
            except ActorGone:
                tries -= 1
                if not self.ref.alive or tries <= 0:
                    raise
                await self.ref.started()
            else:
                if raised is not None:
                    raise raised
                return


def pool_spec(name: str, provider: type[SandboxEnvironment], runtime: Runtime) -> Callable[[], ChildSpec[PoolState]]:
    """How to start a pool."""

    def spec() -> ChildSpec[PoolState]:
        estate, default = Estate.of(name, runtime), provider.default_concurrency()
        resize = estate.limiter.resize
        runtime.shared["max_sandboxes"].follow(lambda value: resize(default if value is None else value))

        @asynccontextmanager
        async def open_pool(context: ActorContext[PoolState]) -> AsyncIterator[PoolState]:
            state = PoolState(estate)
            if context.incarnation > 1:
                context.start_soon(state.look_after)
            try:
                yield state
            finally:
                if context.stopping:
                    await state.close()

        return ChildSpec(
            f"sandboxes {name}", open_pool, limiter=estate.limiter, leases="adopt", handlers=None, bound=BOUND
        )

    return spec


async def sandbox_pool(runtime: Runtime, name: str, provider: type[SandboxEnvironment]) -> SandboxPool:
    """The pool of a provider in a runtime, started at its first use.

    Raises:
        ActorGone: it has failed too often and is gone.
    """
    ref: Ref[PoolState] = await runtime.obtain("sandboxes", name, pool_spec(name, provider, runtime))
    await ref.started()
    return SandboxPool(ref, ref.state.estate)
