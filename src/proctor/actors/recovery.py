"""What a supervisor does about a failure: who comes back, in which order, after which delay, and when no more.

A failure that is a declared fault is answered by a restart while the intensity allows it; one more exhausts the
supervisor (or, where that is chosen, the child alone). Anything else is a programming error: trying again would only
hide it.

With `one_for_one` each failed child comes back on its own. With the other strategies a supervisor has one recovery at
a time, made of rounds: end the children that are affected, the last started first; wait out the backoff; open them
again in order. A child that fails meanwhile joins, and if that changes who is affected the round begins again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Literal

import anyio
from attrs import define, field

from proctor.actors.backoff import Restart
from proctor.actors.bounded import is_declared
from proctor.errors import Fault, SupervisorExhausted

if TYPE_CHECKING:
    from proctor.actors.children import ActorChild, Child
    from proctor.actors.incarnation import Incarnation
    from proctor.actors.supervisor import Supervisor

logger = logging.getLogger(__name__)

Strategy = Literal["one_for_one", "rest_for_one", "one_for_all"]


@define(eq=False)
class Recovery:
    """The answers of one supervisor, and the restarts that are going on."""

    supervisor: Supervisor
    _rounds: dict[int, Rounds] = field(factory=dict, init=False)

    # -- answers

    def answer(self, child: ActorChild | None, life: Incarnation[Any], error: BaseException, *, first: bool) -> None:
        """A child failed: restart it, give it up, or escalate."""
        if not is_declared(error, self.supervisor.faults):
            self._doom(child, error)
        elif child is None or child.retired or not first:
            if child is not None and child.restart is not None:
                child.restart.causes.append(error)
            _warn(life.shell.address, error)
        elif child.shell.spec.restart == "temporary":
            logger.warning("%s is gone: %s: %s", child.address, type(error).__name__, error)
            self.retire(child, error)
        else:
            self._restart(child, life, error)

    def answer_late(self, child: Child, error: BaseException) -> None:
        """A child failed while it was stopped, and nobody waits to be told."""
        if is_declared(error, self.supervisor.faults):
            _warn(child.address, error)
        else:
            self.supervisor.escalate(error, child.address)

    def answer_end(self, child: ActorChild, life: Incarnation[Any]) -> None:
        """A child ended by its own word."""
        if child.shell.spec.restart == "permanent":
            self._restart(child, life, Fault(f"{child.address} ended by its own word, though it is permanent"))
        else:
            self.retire(child, None)

    def retire(self, child: ActorChild, cause: BaseException | None) -> None:
        """A child is gone, the others go on."""
        child.retired = True
        self.dismiss(child, cause)
        self.supervisor.forget(child)

    def _restart(self, child: ActorChild, life: Incarnation[Any], error: BaseException) -> None:
        now = anyio.current_time()
        restart = child.record.admit(error, now)
        if restart is None:
            self._exhaust(child, error, now)
            return
        if now - life.opened_at >= self.supervisor.stable_after:
            child.attempts = 0
        delay = self.supervisor.backoff.delay(child.attempts, self.supervisor.chance)
        restart.due = now + delay
        self.supervisor.note("restarting", child.address, delay=delay, attempt=child.attempts, detail=error)
        logger.warning("%s failed, next try in %.3g s: %s: %s", child.address, delay, type(error).__name__, error)
        child.attempts += 1
        child.restart = restart
        self._add(child, restart)

    def _exhaust(self, child: ActorChild, error: BaseException, now: float) -> None:
        supervisor, intensity = self.supervisor, child.record.intensity
        causes = [*child.record.causes(now), error]
        whose = supervisor.address if supervisor.exhausted == "escalate" else child.address
        text = f"{whose}: more than {intensity.restarts} restarts within {intensity.window:g} s"
        group = SupervisorExhausted(text, [cause for cause in causes if isinstance(cause, Exception)])
        supervisor.note("exhausted", child.address, detail=group)
        if supervisor.exhausted == "abandon":
            logger.error("%s is given up: %s", child.address, text)
            self.retire(child, group)
        else:
            self._doom(child, group)

    def _doom(self, child: ActorChild | None, error: BaseException) -> None:
        """`error` goes up. The child it came from is gone at once, so that nobody waits for it."""
        if child is not None:
            self.dismiss(child, error)
        self.supervisor.escalate(error, child.address if child is not None else "")

    def dismiss(self, child: ActorChild, cause: BaseException | None) -> None:
        """Nobody is to wait for a child that does not come back."""
        self.drop(child)
        child.shell.refuse(cause)
        child.shell.close_limiter()

    # -- restarts

    def _add(self, child: Child, restart: Restart) -> None:
        """`child` failed and is to come back."""
        key = child.order if self.supervisor.strategy == "one_for_one" else 0
        rounds = self._rounds.get(key)
        if rounds is not None:
            rounds.broken[child] = restart
            return
        rounds = Rounds(self, key)
        rounds.broken[child] = restart
        self._rounds[key] = rounds
        self.supervisor.spawn(rounds.run, name=f"{self.supervisor.address}: recovery")

    def drop(self, child: Child) -> None:
        """`child` is not to come back after all."""
        for rounds in list(self._rounds.values()):
            restart = rounds.broken.pop(child, None)
            if restart is not None:
                child.record.withdraw(restart)
                if self.supervisor.strategy == "one_for_one":
                    self._cancel(rounds)

    def cancel(self) -> None:
        """End all recoveries; nothing comes back."""
        for rounds in list(self._rounds.values()):
            for child, restart in rounds.broken.items():
                child.record.withdraw(restart)
            self._cancel(rounds)

    def _cancel(self, rounds: Rounds) -> None:
        rounds.scope.cancel()
        self.ended(rounds)

    def ended(self, rounds: Rounds) -> None:
        """A recovery is over, or will be at once: what fails from now on needs another."""
        if self._rounds.get(rounds.key) is rounds:
            del self._rounds[rounds.key]

    def affected(self, broken: dict[Child, Restart]) -> list[Child]:
        """The children that end and come back because of `broken`, in the order of their starting."""
        if self.supervisor.strategy == "one_for_one" or not broken:
            return list(broken)
        living = [child for child in self.supervisor.living() if not child.starting or child in broken]
        if self.supervisor.strategy == "one_for_all":
            return living
        first = min(child.order for child in broken)
        return [child for child in living if child.order >= first]


def _warn(address: str, error: BaseException) -> None:
    """Of a declared fault that changes nothing any more."""
    logger.warning("%s failed while it ended: %s: %s", address, type(error).__name__, error)


@define(eq=False)
class Rounds:
    """One recovery.

    Attributes:
        broken: the children that failed, and how they are to come back.
        owed: the children that were ended for it and have not been opened again.
    """

    recovery: Recovery
    key: int
    broken: dict[Child, Restart] = field(factory=dict, init=False)
    owed: set[Child] = field(factory=set, init=False)
    scope: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)

    async def run(self) -> None:
        """Run rounds until everybody is back."""
        try:
            with self.scope:
                while self.broken or self.owed:
                    await self._round()
        finally:
            self.recovery.ended(self)

    async def _round(self) -> None:
        affected = self._affected()
        self.owed = set(affected)
        cause = next((restart.causes[0] for restart in self.broken.values()), None)
        for child in reversed(affected):
            await child.retreat(anyio.current_time() + self.recovery.supervisor.grace, cause)
        await anyio.sleep_until(self._due())
        # A failure that came meanwhile may concern others, or have a later end of its backoff: then once more.
        if self._affected() == affected and self._due() <= anyio.current_time():
            await self._revive(affected)

    def _due(self) -> float:
        return max((restart.due for restart in self.broken.values()), default=0.0)

    async def _revive(self, children: list[Child]) -> None:
        restarts, self.broken = self.broken, {}
        for child, restart in restarts.items():
            restart.at = anyio.current_time()
            self.recovery.supervisor.note("restarted", child.address)
        for child in children:
            self.owed.discard(child)
            await child.revive()
            if self.broken:
                return

    def _affected(self) -> list[Child]:
        """Who is to end and to come back, in the order of starting."""
        children = {*self.recovery.affected(self.broken), *self.owed}
        return sorted((each for each in children if not each.stopping and not each.retired), key=_order)


def _order(child: Child) -> int:
    return child.order
