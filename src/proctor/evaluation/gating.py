"""The sample gate of one task: a sample starts when the models it will call have room for its first call.

Where pacing adapts the connections of the evaluated model, nobody can say beforehand how many samples should run at
once; its `Gate` says when another one would find the model idle. Another model is watched too once at least half of the
samples that have ended called it: while it has no room, a new sample would only wait for it.

Rejected: to count a sample as expected at each of its models. Which of them it calls first is not known, and a sample
that passed one gate and waits at the next one would keep the first from everybody else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Any, Final

import anyio
from attrs import define, field

from proctor.actors import Ref
from proctor.evaluation.effective import gated
from proctor.evaluation.plan import PlannedRun
from proctor.model.actor import ModelShare, ModelState, shares
from proctor.model.pacing import Entrant
from proctor.runtime import Runtime, current_sample
from proctor.runtime.clock import utc_now

STEEP: Final = 1.2  # growth above which a larger window is still its slow start


@define(eq=False)
class TaskPace:
    """What one task has to do with the pacing of its models: its samples pass the gate, its log has the history.

    Args:
        share: of the evaluated model. group: the task. open: the gate is not asked.
    """

    runtime: Runtime
    share: ModelShare
    group: str
    open: bool
    began: float = field(factory=anyio.current_time, init=False)
    _models: set[str] = field(factory=set, init=False)
    _ended: int = field(default=0, init=False)
    _called: Counter[str] = field(factory=Counter, init=False)
    _watched: set[str] = field(factory=set, init=False)
    _others: list[ModelShare] = field(factory=list, init=False)

    @classmethod
    def of(cls, runtime: Runtime, plan: PlannedRun, model: Ref[ModelState], group: str) -> TaskPace:
        """That of a run. Samples inside a sample are let through: they are what that one waits for."""
        return cls(runtime, model.state.share, group, current_sample() is not None or not gated(plan))

    def gated(self, slot: Any, sample: int) -> Any:
        """The slot of a sample, which also passes the gate where that is asked.

        Args:
            sample: its admission number.
        """
        return slot if self.open else Gated(self, slot, sample)

    def ended(self, models: Iterable[str]) -> None:
        """A sample that called these models has ended."""
        called = list(models)
        self._models.update(called)
        if self.open:
            return
        self._ended += 1
        self._called.update(called)
        watched = {name for name, count in self._called.items() if 2 * count >= self._ended} - {self.share.name}
        if watched != self._watched:
            self._watch(watched)

    def close(self) -> None:
        """No sample of the task starts any more."""
        self._watch(set())

    def look(self) -> None:
        """Another model may have room now."""
        if self.share.admission.gate.waiting:
            self.share.admission.let_samples_pass()

    def others_have_room(self, now: float) -> bool:
        """Whether each of the other models could take another call at once."""
        return all(other.admission.wants_sample(now) for other in self._others)

    def retries(self) -> int:
        """Attempts of the task's calls that failed and were followed by another."""
        return sum(share.retries[self.group] for share in shares(self.runtime))

    def history(self) -> list[dict[str, Any]]:
        """The changes of the number of calls that may be in flight while the task ran, as a log keeps them."""
        return limit_history(self.share, self.began)

    def decisions(self) -> list[dict[str, Any]]:
        """What pacing decided meanwhile for all models that the task called: rates, windows, pauses and probes."""
        names = {self.share.name, *self._models}
        return [each for share in shares(self.runtime) if share.name in names for each in decided(share, self.began)]

    def _watch(self, names: set[str]) -> None:
        for other in self._others:
            other.watchers.pop(self.look, None)
        self._watched = names
        self._others = [share for share in shares(self.runtime) if share.name in names]
        for other in self._others:
            other.watchers[self.look] = None


def limit_history(share: ModelShare, since: float) -> list[dict[str, Any]]:
    """The changes of a model's window since then; of many the latest.

    Inspect has four words for a reason: its readers refuse a log with a fifth.
    """
    offset = utc_now().timestamp() - anyio.current_time()
    found: list[dict[str, Any]] = []
    size: int | None = None
    for decision in share.admission.pacer.history():
        if decision.kind not in {"window", "config"}:
            continue
        before, size = size, int(decision.value)
        if before is None or before == size or decision.time < since:
            continue
        reason = (
            "manual"
            if decision.kind == "config"
            else "rate_limit"
            if size < before
            else "slow_start"
            if size > STEEP * before
            else "steady_state_up"
        )
        found.append(
            {
                "timestamp": decision.time + offset,
                "model": share.name,
                "old_limit": before,
                "new_limit": size,
                "reason": reason,
            }
        )
    return found


def decided(share: ModelShare, since: float) -> Iterator[dict[str, Any]]:
    """The decisions of a model's pacer since then, as a log keeps them (times are seconds since 1970)."""
    offset = utc_now().timestamp() - anyio.current_time()
    for decision in share.admission.pacer.history():
        if decision.time >= since:
            found = {
                "timestamp": decision.time + offset,
                "model": share.name,
                "kind": decision.kind,
                "value": decision.value,
                "reason": decision.reason,
            }
            if decision.dimension is not None:
                found["dimension"] = decision.dimension.value
            yield found


@define(eq=False)
class Gated:
    """A slot and the gate, passed in this order and left in the other (``async with``)."""

    gate: TaskPace
    slot: Any
    sample: int
    _entrant: Entrant | None = field(default=None, init=False)

    async def __aenter__(self) -> None:
        await self.slot.__aenter__()
        try:
            await self._pass()
        except BaseException as error:
            self._leave()
            await self.slot.__aexit__(type(error), error, error.__traceback__)
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Any:
        self._leave()
        return await self.slot.__aexit__(kind, error, traceback)

    async def _pass(self) -> None:
        share, gate = self.gate.share, self.gate
        event = anyio.Event()
        entrant = share.admission.gate.ask(gate.group, note=event, open_too=gate.others_have_room)
        self._entrant = entrant
        share.admission.expected[self.sample] = entrant
        share.limiter.poll()  # lets it pass, or sets the timer for it
        await event.wait()

    def _leave(self) -> None:
        entrant, self._entrant = self._entrant, None
        if entrant is None:
            return
        admission = self.gate.share.admission
        admission.expected.pop(self.sample, None)
        if entrant.passed_at is None:
            admission.gate.withdraw(entrant)
        else:
            admission.gate.ended(entrant)
        self.gate.share.limiter.poll()
