"""Supervisors: they start actors, bring back those that failed, and end all of them in order.

A tree of supervisors lives in one nursery, the root's, opened by `open_supervisor`. Every task in it is shielded:
when the block around the root is cancelled, its body unwinds first, with all actors alive (a clean-up may ask them),
and only then are they stopped, the last started first, within the grace. So what a cancelled body still needs is
there, and what an actor needs, it finds too, since that was started before it. The shields are bounded: each stop has
deadlines, and what outlives them is named and given up.

Escalation is synchronous and goes to the root at once: the body is cancelled, and leaving the block raises a group
whose leaves are the causes. Cancellations are no causes, and an `ActorGone` that the body raised because of one of
them is the same failure seen a second time; neither is among the leaves.
"""

from __future__ import annotations

import contextvars
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, TypeVar, final, get_args

import anyio
from anyio.abc import TaskGroup
from attrs import define, field

from proctor.actors.actor import ChildSpec, Ref
from proctor.actors.backoff import Backoff, Chance, Intensity, RestartRecord
from proctor.actors.bounded import wait_bounded, without_cancellations
from proctor.actors.checks import check, check_name
from proctor.actors.children import ActorChild, BranchChild, Child, Children
from proctor.actors.events import SupervisorEvent
from proctor.actors.incarnation import Incarnation
from proctor.actors.ledger import Ledger
from proctor.actors.recovery import Recovery, Strategy
from proctor.actors.shell import Shell
from proctor.actors.verdict import grouped, verdict
from proctor.errors import ActorGone, Fault

S = TypeVar("S")
Exhausted = Literal["escalate", "abandon"]
STRATEGIES: Final = get_args(Strategy)
EXHAUSTED: Final = get_args(Exhausted)


@final
@define(eq=False, kw_only=True)
class Supervisor:
    """See the module. Made by `open_supervisor` and `start_supervisor` only.

    Attributes:
        address: its name, below those of its parents.
        grace: seconds that running handlers have when it stops.
        ledger: where its events and those of its actors go.
    """

    address: str
    strategy: Strategy
    intensity: Intensity
    backoff: Backoff
    stable_after: float
    grace: float
    faults: tuple[type[Exception], ...]
    exhausted: Exhausted
    chance: Chance | None
    ledger: Ledger
    parent: Supervisor | None = None
    context: contextvars.Context = field(factory=contextvars.copy_context, init=False)
    recovery: Recovery = field(init=False)
    closing: bool = field(default=False, init=False)
    failing: bool = field(default=False, init=False)
    cast_off: bool = field(default=False, init=False)
    _body: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)
    _nursery: TaskGroup | None = field(default=None, init=False)
    _children: Children = field(factory=Children, init=False)
    _record: RestartRecord = field(init=False)
    _started: int = field(default=0, init=False)
    _stops: list[anyio.Event] = field(factory=list, init=False)
    _errors: list[BaseException] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        owner = f"supervisor {self.address!r}"
        check_name(owner, self.address.removeprefix(f"{self.parent.address}/" if self.parent is not None else ""))
        check(owner, "strategy", self.strategy, self.strategy in STRATEGIES, f"one of {', '.join(STRATEGIES)}")
        check(owner, "exhausted", self.exhausted, self.exhausted in EXHAUSTED, f"one of {', '.join(EXHAUSTED)}")
        check(owner, "grace", self.grace, self.grace >= 0, "at least 0 seconds")
        check(owner, "stable_after", self.stable_after, self.stable_after >= 0, "at least 0 seconds")
        self.recovery = Recovery(self)
        self._record = RestartRecord(self.intensity)

    def __repr__(self) -> str:
        return f"<Supervisor {self.address} {self.strategy}, {len(self.children)} children>"

    # -- for users

    @property
    def children(self) -> tuple[Ref[Any] | Supervisor, ...]:
        """The children that are not gone, in the order of their starting."""
        return tuple(child.reference for child in self.living())

    async def start(self, spec: ChildSpec[S]) -> Ref[S]:
        """Start an actor and return its reference once it is open.

        Raises:
            ValueError: a child of this name is there already.
            ActorGone: the supervisor is closing.
            Exception: whatever `spec.open` raised; then there is no such child.
        """
        self._refuse_start(spec.name)
        shell = Shell(spec, f"{self.address}/{spec.name}", self)
        child = ActorChild(self, self._next_order(), self._record_of_child(), shell)
        self._children.append(child)
        life = shell.incarnate()
        try:
            await life.opened.wait()
        except GeneratorExit:
            life.attended = False
            self._withdraw(child, life)
            raise
        except BaseException:
            self._withdraw(child, life)
            await wait_bounded(life.over, math.inf)
            if life.causes:
                self._raise_opening(shell, life)
            raise
        child.starting = False
        if not life.was_open:
            self._withdraw(child, life)
            self._raise_opening(shell, life)
        self.note("started", shell.address)
        return Ref(shell)

    async def start_supervisor(
        self,
        name: str,
        *,
        strategy: Strategy = "one_for_one",
        intensity: Intensity | None = None,
        backoff: Backoff | None = None,
        stable_after: float | None = None,
        grace: float | None = None,
        faults: tuple[type[Exception], ...] | None = None,
        exhausted: Exhausted | None = None,
    ) -> Supervisor:
        """Start a supervisor as a child of this one; what is not given is as here. Its escalation goes up.

        Raises:
            ValueError: a child of this name is there already.
            ActorGone: the supervisor is closing.
        """
        self._refuse_start(name)
        branch = Supervisor(
            address=f"{self.address}/{name}",
            strategy=strategy,
            intensity=intensity or self.intensity,
            backoff=backoff or self.backoff,
            stable_after=self.stable_after if stable_after is None else stable_after,
            grace=self.grace if grace is None else grace,
            faults=self.faults if faults is None else faults,
            exhausted=exhausted or self.exhausted,
            chance=self.chance,
            ledger=self.ledger,
            parent=self,
        )
        branch.context = self.context
        child = BranchChild(self, self._next_order(), self._record_of_child(), branch)
        child.starting = False
        self._children.append(child)
        self.note("started", branch.address)
        return branch

    async def stop(self, target: Ref[Any] | Supervisor) -> None:
        """Stop a child for good and return when it has ended. Stopping one that is gone does nothing.

        Its running requests may finish within the grace, then they are cancelled; queued ones get `ActorGone`.
        Cancelled, the caller leaves and the stop goes on.

        Raises:
            ValueError: it is no child of this supervisor.
            Exception: what the child raised while it ended; several as a group.
        """
        child = self._children.of(target)
        if child is None:
            parent = target.parent if isinstance(target, Supervisor) else target._shell.supervisor
            if parent is not self:
                raise ValueError(f"{target.address} is no child of {self.address}")
            return
        end = anyio.Event()
        self._stops.append(end)
        child.stoppers += 1
        self.spawn(self._stop, child, end, name=f"{child.address}: stop")
        try:
            await end.wait()
        except BaseException:
            child.stoppers -= 1
            self._keep_stop_errors(child)
            raise
        child.stoppers -= 1
        errors, child.stop_errors = child.stop_errors, []
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise BaseExceptionGroup(f"{child.address} failed while it was stopped", errors)

    @property
    def root(self) -> Supervisor:
        """The supervisor that was opened, not started."""
        return self if self.parent is None else self.parent.root

    # -- what children report

    def failed(self, shell: Shell[Any], life: Incarnation[Any], error: BaseException, *, first: bool) -> None:
        """An incarnation failed; `first` is its death, later ones come while it ends."""
        child = self._children.actor(shell)
        if child is not None and child.stopping and not self.closing:
            child.stop_errors.append(error)
            self._keep_stop_errors(child)
        elif self.closing or self.root.failing:
            self._keep(error)
            if child is not None:
                self.recovery.dismiss(child, error)
        else:
            self.recovery.answer(child, life, error, first=first)

    def _keep_stop_errors(self, child: Child) -> None:
        """See to the errors of a stop that nobody waits for."""
        if child.stoppers:
            return
        errors, child.stop_errors = child.stop_errors, []
        for error in errors:
            if self.closing or self.root.failing:
                self._keep(error)
            else:
                self.recovery.answer_late(child, error)

    def finished(self, shell: Shell[Any], life: Incarnation[Any]) -> None:
        """An incarnation ended by its own word."""
        child = self._children.actor(shell)
        if child is not None and life.was_open and not (child.stopping or child.retired or self.closing):
            self.recovery.answer_end(child, life)

    def ended(self, shell: Shell[Any]) -> None:
        """An incarnation has ended altogether."""
        child = self._children.actor(shell)
        if child is not None and child.retired:
            self.forget(child)

    def escalate(self, error: BaseException, child: str = "") -> None:
        """End the whole tree with `error`: its root's body is cancelled."""
        self.note("escalated", child, detail=error)
        self._keep(error)
        self.root.failing = True
        self.root._body.cancel()

    def _keep(self, error: BaseException) -> None:
        """For the group that the root raises; a supervisor that was stopped alone has its parent raise it."""
        if self.cast_off and self.parent is not None:
            self.parent._keep(error)
        else:
            self._errors.append(error)

    def forget(self, child: ActorChild) -> None:
        """Keep no book on a child that is gone, once nothing of it is left."""
        if not child.shell.lives and child in self._children:
            self._children.remove(child)

    # -- tasks and their end

    def spawn(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: str | None = None) -> None:
        """Run a task of the kernel in the root's nursery, shielded, with the context the supervisor was opened in."""
        nursery = self.root._nursery
        assert nursery is not None
        nursery.create_task(self._own(fn, args), name=name, context=self.context.copy())

    async def _own(self, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]) -> None:
        try:
            with anyio.CancelScope(shield=True):
                await fn(*args)
        except BaseException as error:
            own = without_cancellations(error) or Fault(f"{self.address}: a task of it was cancelled from outside")
            self.escalate(own)

    def living(self) -> list[Child]:
        """The children that are neither gone nor being stopped, in the order of their starting."""
        return self._children.living()

    async def close(self) -> None:
        """Stop everything, in a shield; a native cancellation meanwhile is raised once all has ended.

        In the task that opened it and not in one of its own: that one might be cancelled before its first step.
        """
        deadline = anyio.current_time() + self.grace
        interrupted: BaseException | None = None
        while True:
            try:
                with anyio.CancelScope(shield=True):
                    await self.stop_children(deadline)
                break
            except anyio.get_cancelled_exc_class() as error:
                interrupted = interrupted or error
        if interrupted is not None:
            raise interrupted

    async def stop_children(self, deadline: float) -> None:
        """Stop all children, the last started first."""
        self.closing = True
        self.recovery.cancel()
        for child in reversed(list(self._children)):
            await self._finish(child, deadline)
        for end in self._stops:
            end.set()
        self.note("closed")

    async def _stop(self, child: Child, end: anyio.Event) -> None:
        try:
            self.recovery.drop(child)
            await self._finish(child, anyio.current_time() + self.grace)
            if child in self._children:
                self._children.remove(child)
                child.stop_errors += child.cast_off()
                self._keep_stop_errors(child)
        finally:
            self._stops.remove(end)
            end.set()

    async def _finish(self, child: Child, deadline: float) -> None:
        if child.stopped:
            return
        self.note("stopping", child.address)
        await child.finish(deadline)
        if not child.stopped:
            child.stopped = True
            self.note("stopped", child.address)

    def causes(self) -> list[BaseException]:
        """What made it fail, and its child supervisors."""
        own = [left for error in self._errors if (left := without_cancellations(error)) is not None]
        branches = [
            (child.address, child.branch.causes()) for child in self._children if isinstance(child, BranchChild)
        ]
        return [*own, *(grouped(address, causes) for address, causes in branches if causes)]

    def note(self, kind: str, child: str = "", **values: Any) -> None:
        """Tell the ledger of a step of the supervisor."""
        if self.ledger:
            self.ledger.emit(SupervisorEvent(self.ledger.now(), kind, self.address, child=child, **values))

    # -- small things

    def _refuse_start(self, name: str) -> None:
        if self.closing:
            raise ActorGone(f"{self.address} is closing and starts nothing: it cannot start {name!r}")
        if self._children.has(f"{self.address}/{name}"):
            raise ValueError(
                f"{self.address} has a child {name!r} already: choose another name, or stop that one first"
            )

    def _raise_opening(self, shell: Shell[Any], life: Incarnation[Any]) -> None:
        if not life.causes:
            raise ActorGone(f"{shell.address} was stopped while it was opened")
        if len(life.causes) == 1:
            raise life.causes[0]
        raise BaseExceptionGroup(f"{shell.address} could not be opened", life.causes)

    def _withdraw(self, child: ActorChild, life: Incarnation[Any]) -> None:
        """A child that its starter will not get: as if it had never been."""
        child.stopping = True
        child.shell.refuse(life.cause)
        life.halt()
        child.shell.free_limiter()
        child.retired = True
        self.forget(child)

    def _next_order(self) -> int:
        self._started += 1
        return self._started

    def _record_of_child(self) -> RestartRecord:
        # One that is given up alone must not use up the restarts of others.
        return self._record if self.exhausted == "escalate" else RestartRecord(self.intensity)


@asynccontextmanager
async def open_supervisor(
    name: str,
    *,
    strategy: Strategy = "one_for_one",
    intensity: Intensity | None = None,
    backoff: Backoff | None = None,
    stable_after: float = 60.0,
    grace: float = 5.0,
    random: Chance | None = None,
    ledger: Ledger | None = None,
    faults: tuple[type[Exception], ...] = (Fault, OSError),
    exhausted: Exhausted = "escalate",
) -> AsyncIterator[Supervisor]:
    """Open a supervisor; leaving the block stops all its children, the last started first.

    Args:
        name: the first part of its children's addresses.
        strategy: who ends and comes back with a child that failed: only it (`one_for_one`), those started after it too
            (`rest_for_one`), or all (`one_for_all`).
        intensity: how many restarts within which time; one more exhausts the supervisor. Default: 5 in 60 s.
        backoff: how long to wait before a restart.
        stable_after: seconds after which a child counts as stable and its backoff begins anew.
        grace: seconds that running handlers may go on when it stops, in all.
        random: where jitter comes from, a seeded `random.Random`; without it there is none.
        ledger: where events go.
        faults: the exceptions that are answered by a restart. Everything else is a programming error and escalates.
        exhausted: `escalate`: the supervisor fails; `abandon`: the child alone is gone and the others go on, and each
            child has the intensity for itself.

    Raises:
        SupervisorExhausted: the restarts are used up, a group of all causes.
        ExceptionGroup: other failures, all of them. What the body raised comes bare when it is alone, else in the
        group.
    """
    supervisor = Supervisor(
        address=name,
        strategy=strategy,
        intensity=intensity or Intensity(),
        backoff=backoff or Backoff(),
        stable_after=stable_after,
        grace=grace,
        faults=faults,
        exhausted=exhausted,
        chance=random,
        ledger=Ledger() if ledger is None else ledger,
    )
    raised: BaseException | None = None
    try:
        async with anyio.create_task_group() as supervisor._nursery:
            try:
                with supervisor._body:
                    yield supervisor
            except GeneratorExit:
                raise
            except BaseException as error:
                raised = error
            await supervisor.close()
            if raised is not None and without_cancellations(raised) is None:
                raise raised
    except GeneratorExit:
        raise
    except BaseException as error:
        # A cancellation that came last does not hide what the body raised.
        raised = error if raised is None or without_cancellations(raised) is None else raised
    else:
        if raised is not None and without_cancellations(raised) is None:
            # Nobody's cancellation but the nursery's own: a task in it was cancelled before its first step.
            supervisor.escalate(Fault(f"{name}: a task of it was cancelled from outside"))
    outcome = verdict(name, supervisor.causes(), raised)
    if outcome is not None:
        raise outcome
