"""Play a plan of actors and supervisors: real actors, callers and failures, and a record of what was seen.

What is seen is written down by the plan's own code (handlers, callers, context managers), independently of the kernel's
ledger; `proctor.testing.supervision_checks` compares both with the invariants.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
from attrs import define, field

from proctor.actors import ActorContext, Backoff, ChildSpec, Event, Intensity, Ledger, Limiter, Ref, open_supervisor
from proctor.actors.supervisor import Supervisor
from proctor.errors import ActorGone, Fault, LeaseRevoked, MailboxFull
from proctor.testing.monitor import InvariantViolation, Monitor
from proctor.testing.supervision_plan import Holder, Job, Part, Sender, SupervisionPlan, Trouble
from proctor.testing.virtual import run_virtual
from proctor.testing.watch import at_idle

LIMIT = 2
"""Places of each actor's limiter."""


class Bug(Exception):
    """A programming error that the plan plants."""


@define(eq=False)
class Message:
    """A job on its way."""

    job: Job
    sender: int
    number: int
    coalesce_key: int | None = None


@define(eq=False)
class Handled:
    """One run of a handler."""

    message: Message
    actor: int
    incarnation: int
    began: float
    ended: float | None = None
    value: object = None


@define(eq=False)
class Asked:
    """What a caller saw. `running` is whether its handler was still at work when `ask` ended."""

    message: Message
    actor: int
    began: float
    ended: float
    outcome: str
    running: bool
    value: object = None
    error: BaseException | None = None


@define(eq=False)
class Seen:
    """All that was seen of one played plan."""

    plan: SupervisionPlan
    backend: str
    handled: list[Handled] = field(factory=list)
    asked: list[Asked] = field(factory=list)
    told: list[tuple[Message, int]] = field(factory=list)
    refused: list[tuple[Message, int, int]] = field(factory=list)
    discarded: Counter[int] = field(factory=Counter)
    lives: list[tuple[float, str, int, int]] = field(factory=list)
    planted: list[tuple[BaseException, int]] = field(factory=list)
    inside: dict[int, Counter[int]] = field(factory=dict)
    stop_errors: list[BaseException] = field(factory=list)
    left_at_close: list[str] = field(factory=list)
    events: list[Event] = field(factory=list)
    left: int = 0
    raised: BaseException | None = None
    pending: dict[str, int] = field(factory=dict)
    duration: float = 0.0
    violations: list[InvariantViolation] = field(factory=list)

    def plant(self, error: BaseException, actor: int) -> BaseException:
        """Write down an error that is about to be raised."""
        self.planted.append((error, actor))
        return error


@define(eq=False)
class Played:
    """The state of an actor of the plan."""

    seen: Seen
    actor: int
    context: ActorContext[Any]

    async def handle(self, message: Message) -> object:
        job = message.job
        record = Handled(message, self.actor, self.context.incarnation, anyio.current_time())
        self.seen.handled.append(record)
        try:
            await anyio.sleep(job.hold)
            if job.ends == "value":
                record.value = f"value {len(self.seen.handled)}"
                return record.value
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await anyio.sleep(job.cleanup)
            raise
        finally:
            record.ended = anyio.current_time()
        name = f"{job.ends} of {message.sender}.{message.number}"
        raise self.seen.plant(Fault(name) if job.ends == "fault" else Bug(name), self.actor)

    def adopts(self, lease: Any) -> bool:
        """Everything but the leases of holders whose number is odd."""
        return isinstance(lease.group, int) and lease.group % 2 == 0


@define(eq=False)
class Stage:
    """A plan while it is played."""

    seen: Seen
    ledger: Ledger = field(factory=Ledger)
    limiters: list[Limiter] = field(factory=list)
    refs: list[Ref[Played]] = field(factory=list)

    @property
    def plan(self) -> SupervisionPlan:
        """What is played."""
        return self.seen.plan

    async def play(self) -> None:
        """Play it to its end."""
        plan = self.plan
        for number in range(len(plan.actors)):
            self.limiters.append(Limiter(LIMIT, name=f"limiter {number}", ledger=self.ledger))
            self.seen.inside[number] = Counter()
        deadline = float("inf") if plan.cancelled_at is None else plan.cancelled_at
        try:
            with anyio.CancelScope(deadline=deadline):
                async with open_supervisor(
                    "root",
                    strategy=plan.strategy,
                    intensity=Intensity(restarts=plan.restarts, window=plan.window),
                    backoff=Backoff(initial=plan.initial, maximum=plan.maximum, jitter=plan.jitter),
                    stable_after=plan.stable_after,
                    grace=plan.grace,
                    random=random.Random(plan.seed),
                    ledger=self.ledger,
                    exhausted=plan.exhausted,
                ) as supervisor:
                    await self._block(supervisor)
        except BaseException as error:
            if not isinstance(error, Exception):
                raise
            self.seen.raised = error

    async def _block(self, supervisor: Supervisor) -> None:
        try:
            for number, part in enumerate(self.plan.actors):
                self.refs.append(await supervisor.start(self._spec(number, part)))
            async with anyio.create_task_group() as nursery:
                for number, sender in enumerate(self.plan.senders):
                    nursery.start_soon(self._send_all, number, sender)
                for number, holder in enumerate(self.plan.holders):
                    nursery.start_soon(self._hold, number, holder)
                for trouble in self.plan.troubles:
                    nursery.start_soon(self._make_trouble, supervisor, trouble)
                await anyio.sleep(self.plan.until)
        finally:
            self.seen.left = len(self.seen.events)

    def _spec(self, number: int, part: Part) -> ChildSpec[Played]:
        seen = self.seen

        @asynccontextmanager
        async def open_part(context: ActorContext[Any]) -> AsyncIterator[Played]:
            await anyio.sleep(part.opens_in)
            if context.incarnation in part.fails_to_open and context.incarnation > 1:
                raise seen.plant(OSError(f"opening {number}.{context.incarnation}"), number)
            seen.lives.append((anyio.current_time(), "open", number, context.incarnation))
            try:
                yield Played(seen, number, context)
            finally:
                try:
                    await anyio.sleep(part.closes_in)
                finally:
                    seen.lives.append((anyio.current_time(), "close", number, context.incarnation))
                    if not context.stopping:
                        inside = [n for n, life in self.holding(number) if life <= context.incarnation]
                        seen.left_at_close += [f"holder {n} at {number}.{context.incarnation}" for n in inside]
            if part.fails_to_close:
                raise seen.plant(OSError(f"closing {number}.{context.incarnation}"), number)

        return ChildSpec(
            f"{number}",
            open_part,
            limiter=self.limiters[number],
            restart=part.restart,
            leases=part.leases,
            mailbox=part.mailbox,
            handlers=part.handlers,
            bound=part.bound,
        )

    def holding(self, actor: int) -> list[tuple[int, int]]:
        """Holders inside a lease of an actor, with the incarnation in which they took it."""
        return [(holder, life) for holder, life in self.seen.inside[actor].items() if life]

    # -- tasks of the plan

    async def _send_all(self, number: int, sender: Sender) -> None:
        await anyio.sleep(sender.delay)
        ref = self.refs[sender.actor]
        for position, job in enumerate(sender.jobs):
            await anyio.sleep(job.gap)
            message = Message(job, number, position, job.key if job.told else None)
            if job.told:
                self._tell(ref, sender.actor, message)
            else:
                await self._ask(ref, sender.actor, message)

    def _tell(self, ref: Ref[Played], actor: int, message: Message) -> None:
        try:
            ref.tell(message)
            self.seen.told.append((message, actor))
        except MailboxFull:
            self.seen.refused.append((message, actor, ref._shell.mailbox.tells))
        except ActorGone:
            pass

    async def _ask(self, ref: Ref[Played], actor: int, message: Message) -> None:
        job, began = message.job, anyio.current_time()
        outcome, value = "cancelled", None
        failure: BaseException | None = None

        def discard(_: object) -> None:
            self.seen.discarded[id(message)] += 1

        async def ask() -> None:
            nonlocal outcome, value, failure
            try:
                value = await ref.ask(message, detach=job.detached, discard=discard if job.discards else None)
                outcome = "value"
            except ActorGone as error:
                outcome, failure = "gone", error
            except TimeoutError as error:
                outcome, failure = "timeout", error
            except (Bug, OSError) as error:
                outcome, failure = "raised", error
            finally:
                running = any(each.message is message and each.ended is None for each in self.seen.handled)
                ended = anyio.current_time()
                self.seen.asked.append(Asked(message, actor, began, ended, outcome, running, value, failure))

        if job.timeout is not None and job.native and self.seen.backend != "trio":
            await _cancelled_natively(ask, job.timeout)
        else:
            with anyio.CancelScope(deadline=float("inf") if job.timeout is None else began + job.timeout):
                await ask()

    async def _hold(self, number: int, holder: Holder) -> None:
        await anyio.sleep(holder.delay)
        try:
            async with self.limiters[holder.actor].lease(group=number, revocable=True):
                try:
                    self.seen.inside[holder.actor][number] = self.refs[holder.actor]._shell._incarnations
                    await anyio.sleep(holder.hold)
                finally:
                    self.seen.inside[holder.actor][number] = 0
        except (ActorGone, LeaseRevoked):
            pass

    async def _make_trouble(self, supervisor: Supervisor, trouble: Trouble) -> None:
        await anyio.sleep(trouble.at)
        ref, actor = self.refs[trouble.actor], trouble.actor
        if trouble.kind == "stop":
            try:
                await supervisor.stop(ref)
            except OSError as error:
                self.seen.stop_errors.append(error)
            except BaseExceptionGroup as group:
                self.seen.stop_errors.extend(group.exceptions)
            return
        try:
            context = ref.state.context
        except ActorGone:
            return
        if trouble.kind == "done":
            context.stop()
        else:
            context.start_soon(self._fail, trouble.kind, trouble.at, actor)

    async def _fail(self, kind: str, at: int, actor: int) -> None:
        makes: dict[str, Callable[[str], BaseException]] = {"fault": Fault, "oserror": OSError, "bug": Bug}
        raise self.seen.plant(makes[kind](f"{kind} at {at}"), actor)


async def _cancelled_natively(ask: Callable[[], Awaitable[None]], timeout: float) -> None:
    """Run `ask` in a task of asyncio's own that is cancelled after `timeout`."""
    import asyncio

    task = asyncio.ensure_future(ask())
    timer = asyncio.get_running_loop().call_later(timeout, task.cancel)
    try:
        await asyncio.wait([task])
    finally:
        timer.cancel()
        if not task.done():
            task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([task])


async def _play_and_cut(stage: Stage, at: int, turns: int, victim: int) -> None:
    """Play, and cancel one task of the run natively; the task that opened the supervisor too."""
    import asyncio

    others = asyncio.all_tasks()
    playing = asyncio.ensure_future(stage.play())

    async def cut() -> None:
        await anyio.sleep(at)
        for _ in range(turns):
            await asyncio.sleep(0)
        tasks = asyncio.all_tasks() - others - {asyncio.current_task()}
        if tasks:
            sorted(tasks, key=lambda task: task.get_name())[victim % len(tasks)].cancel()

    cutting = asyncio.ensure_future(cut())
    await asyncio.wait([playing, cutting])
    if not playing.cancelled():
        playing.result()


def play_supervision(plan: SupervisionPlan, backend: str, *, seed: int = 0) -> Seen:
    """Play a plan in virtual time, under a Monitor for its limiters.

    Raises:
        VirtualDeadlock: the plan never ends.
    """
    seen = Seen(plan, backend)
    stage = Stage(seen)
    monitor = Monitor(stage.limiters)

    async def main() -> float:
        stage.ledger.subscribe(seen.events.append)
        stage.ledger.subscribe(monitor.listen)
        with at_idle(monitor.settled):
            if plan.cut is not None and backend != "trio":
                await _play_and_cut(stage, *plan.cut)
            else:
                await stage.play()
        monitor.ended()
        return anyio.current_time()

    seen.duration = run_virtual(backend, main, seed=seed)
    seen.pending = {ref.address: len(ref._shell.pending) + len(ref._shell.mailbox) for ref in stage.refs}
    seen.violations = list(monitor.violations)
    return seen
