"""What a supervisor keeps of each child, and how it ends and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from attrs import define, field

from proctor.actors.actor import Ref
from proctor.actors.backoff import Restart, RestartRecord
from proctor.actors.shell import Shell
from proctor.errors import Fault

if TYPE_CHECKING:
    from proctor.actors.supervisor import Supervisor


@define(eq=False)
class Child:
    """One child of a supervisor: an actor, or another supervisor.

    Attributes:
        order: its place in the order of starting.
        starting: its first incarnation is not open yet.
        stopping: it is being stopped for good. stopped: that is done.
        retired: it is gone, but something of it may still be ending.
        record: the restarts that count against it.
        attempts: restarts in a row, since it was last stable.
        restart: the one it last failed into.
        stop_errors: what was raised while it was stopped. stoppers: how many wait to be told of that.
    """

    supervisor: Supervisor
    order: int
    record: RestartRecord
    starting: bool = field(default=True, init=False)
    stopping: bool = field(default=False, init=False)
    stopped: bool = field(default=False, init=False)
    retired: bool = field(default=False, init=False)
    attempts: int = field(default=0, init=False)
    restart: Restart | None = field(default=None, init=False)
    stoppers: int = field(default=0, init=False)
    stop_errors: list[BaseException] = field(factory=list, init=False)

    @property
    def address(self) -> str:
        """Its address."""
        raise NotImplementedError

    @property
    def reference(self) -> Ref[Any] | Supervisor:
        """What its users hold."""
        raise NotImplementedError

    async def retreat(self, deadline: float, cause: BaseException | None) -> None:
        """End what runs of it, for a restart."""
        raise NotImplementedError

    async def revive(self) -> None:
        """Open it again; a failure to do so is reported to the supervisor."""
        raise NotImplementedError

    async def finish(self, deadline: float) -> None:
        """Stop it for good."""
        raise NotImplementedError

    def cast_off(self) -> list[BaseException]:
        """It has been stopped alone. Returns errors that it still holds."""
        return []


@define(eq=False)
class ActorChild(Child):
    """A child that is an actor."""

    shell: Shell[Any]
    _deadline: float | None = field(default=None, init=False)

    @property
    def address(self) -> str:
        """Its address."""
        return self.shell.address

    @property
    def reference(self) -> Ref[Any]:
        """What its users hold."""
        return Ref(self.shell)

    async def retreat(self, deadline: float, cause: BaseException | None) -> None:
        """End its incarnation, if it has one that has not failed already."""
        if self.shell.current is not None and self.shell.spec.leases == "revoke":
            self.shell.revoke(cause or Fault(f"{self.address} is restarted"))
        for life in reversed(list(self.shell.lives)):
            await life.retreat(deadline, cause)

    async def revive(self) -> None:
        """Open the next incarnation; a `temporary` actor is gone instead."""
        if self.stopping or self.retired:
            return
        if self.shell.spec.restart == "temporary":
            ended = Fault(f"{self.address} is temporary and was ended for the restart of a sibling")
            self.supervisor.recovery.retire(self, ended)
            return
        life = self.shell.incarnate()
        try:
            await life.opened.wait()
        finally:
            life.attended = False
            for position, cause in enumerate(() if life.was_open else life.causes):
                self.shell.failed(life, cause, first=position == 0)

    async def finish(self, deadline: float) -> None:
        """Refuse what is queued, let handlers finish until `deadline`, close the context and the limiter."""
        self.stopping = True
        if self._deadline is None:
            grace = self.shell.spec.grace
            self._deadline = deadline if grace is None else anyio.current_time() + grace
        self.shell.refuse(None)
        await self.shell.stop_lives(self._deadline)
        self.shell.close_limiter()


@define(eq=False)
class BranchChild(Child):
    """A child that is a supervisor."""

    branch: Supervisor

    @property
    def address(self) -> str:
        """Its address."""
        return self.branch.address

    @property
    def reference(self) -> Supervisor:
        """What its users hold."""
        return self.branch

    async def retreat(self, deadline: float, cause: BaseException | None) -> None:
        """End all its children, the last started first."""
        self.branch.recovery.cancel()
        for child in reversed(self.branch.living()):
            await child.retreat(deadline, cause)

    async def revive(self) -> None:
        """Open all its children, in the order in which they were started."""
        for child in self.branch.living():
            await child.revive()

    async def finish(self, deadline: float) -> None:
        """Stop all its children, the last started first."""
        self.stopping = True
        await self.branch.stop_children(min(deadline, anyio.current_time() + self.branch.grace))

    def cast_off(self) -> list[BaseException]:
        """Errors from now on are its parent's. Returns those it has."""
        self.branch.cast_off = True
        return self.branch.causes()


class Children(list[Child]):
    """The children of a supervisor, in the order of their starting, with those that are gone but not over."""

    def living(self) -> list[Child]:
        """Those that are neither gone nor being stopped."""
        return [child for child in self if not child.retired and not child.stopping]

    def has(self, address: str) -> bool:
        """Whether one that is not gone has this address."""
        return any(child.address == address and not child.retired for child in self)

    def actor(self, shell: Shell[Any]) -> ActorChild | None:
        """The child that has this shell."""
        return next((child for child in self if isinstance(child, ActorChild) and child.shell is shell), None)

    def of(self, reference: Ref[Any] | Supervisor) -> Child | None:
        """The child that is held by this reference."""
        return next((child for child in self if child.reference == reference), None)
