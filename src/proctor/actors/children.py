"""What a supervisor keeps of each child, and how it ends and comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
from attrs import define, field

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
        stop_errors: what was raised while it was stopped.
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
    stop_errors: list[BaseException] = field(factory=list, init=False)

    @property
    def address(self) -> str:
        """Its address."""
        raise NotImplementedError

    async def retreat(self, deadline: float, cause: BaseException) -> None:
        """End what runs of it, for a restart."""
        raise NotImplementedError

    async def revive(self) -> None:
        """Open it again; a failure to do so is reported to the supervisor."""
        raise NotImplementedError

    async def finish(self, deadline: float) -> None:
        """Stop it for good."""
        raise NotImplementedError


@define(eq=False)
class ActorChild(Child):
    """A child that is an actor."""

    shell: Shell[Any]

    @property
    def address(self) -> str:
        """Its address."""
        return self.shell.address

    async def retreat(self, deadline: float, cause: BaseException) -> None:
        """End its incarnation, if it has one that has not failed already."""
        if self.shell.current is not None and self.shell.spec.leases == "revoke":
            self.shell.revoke(cause)
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
        if self.shell.spec.grace is not None:
            deadline = anyio.current_time() + self.shell.spec.grace
        self.shell.refuse(None)
        await self.shell.stop_lives(deadline)
        self.shell.close_limiter()


@define(eq=False)
class BranchChild(Child):
    """A child that is a supervisor."""

    branch: Supervisor

    @property
    def address(self) -> str:
        """Its address."""
        return self.branch.address

    async def retreat(self, deadline: float, cause: BaseException) -> None:
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
