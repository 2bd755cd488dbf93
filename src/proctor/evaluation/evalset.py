"""`eval_set` and `eval_set_async`: tasks on models in one folder, tried again until all are done.

A loop above the runs, in one runtime, so that what pacing has learned stays. Each attempt goes on in the logs of the
one before; the first goes on in what the folder holds, whatever ended the process that wrote it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import anyio
from attrs import define, evolve, field, frozen

from proctor.errors import ModelGivenUp, OptionError
from proctor.evaluation.again import OldLog, open_old, resumed
from proctor.evaluation.budget import Budget
from proctor.evaluation.call import EvalCall
from proctor.evaluation.plan import PlannedRun
from proctor.evaluation.run import RunActor, with_samples
from proctor.evaluation.setlogs import SetLogs, is_complete, peek, refuse_in_use
from proctor.log.records import EvalLog
from proctor.runtime import Runtime

ATTEMPTS: Final = 10
WAIT: Final = 30.0
"""Seconds between the first two attempts, doubling."""
LONGEST_WAIT: Final = 3600.0


@frozen(kw_only=True)
class SetOptions:
    """How a set is tried again.

    Attributes:
        attempts: in all. wait: seconds before the second, doubling. connections: the rate by which an explicit
            max_connections shrinks with each attempt.
        cleanup: remove logs that others took the place of. allow_dirty: the folder may hold other logs.
        eval_set_id: default what the folder's logs say, else a new one.
    """

    attempts: int = ATTEMPTS
    wait: float = WAIT
    connections: float = 1.0
    cleanup: bool = False
    allow_dirty: bool = False
    eval_set_id: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.attempts < 1:
            raise OptionError(f"retry_attempts must be at least 1, not {self.attempts!r}")
        if self.wait < 0:
            raise OptionError(f"retry_wait must be at least 0 seconds, not {self.wait!r}")
        if not 0 < self.connections <= 1:
            raise OptionError(f"retry_connections must be above 0 and at most 1, not {self.connections!r}")

    def pause(self, attempt: int) -> float:
        """Seconds to wait after an attempt, counted from 1."""
        return min(LONGEST_WAIT, self.wait * 2.0 ** min(attempt - 1, 40))


@define(eq=False)
class EvalSet:
    """One call of `eval_set` while it runs.

    Attributes:
        actor: the attempt that runs now.
    """

    call: EvalCall
    options: SetOptions
    runtime: Runtime
    plan: list[PlannedRun]
    actor: RunActor | None = field(default=None, init=False)
    _logs: dict[int, EvalLog] = field(factory=dict, init=False)
    _old: dict[int, OldLog] = field(factory=dict, init=False)
    _found: SetLogs = field(factory=SetLogs, init=False)
    _budget: Budget = field(init=False)
    _began: float = field(init=False)
    _stopped: str | None = field(default=None, init=False)
    _pause: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)

    def __attrs_post_init__(self) -> None:
        self._budget, self._began = Budget.of(self.call.said), anyio.current_time()

    async def run(self) -> tuple[bool, list[EvalLog]]:
        """Run until all is done, or nothing more can be."""
        waiting = await self._look()
        for attempt in range(1, self.options.attempts + 1):
            if not waiting or self._stopped is not None:
                break
            actor = self.actor = self._attempt(waiting, attempt)
            if self._stopped is not None:
                break
            for run, log in zip(waiting, await actor.run(), strict=True):
                self._logs[run.index] = log
            unfinished = [run for run in waiting if self._logs[run.index].status != "success"]
            given_up = [actor.given_up(place) for place, run in enumerate(waiting) if run in unfinished]
            for run in waiting:
                await self._keep(run)
            waiting = unfinished
            if not waiting or actor.drained or all(given_up) or attempt == self.options.attempts:
                break
            if not await self._waited(attempt):
                break
            self._forgive()
        return not waiting and self._stopped is None, self._listed()

    def stop(self, reason: str) -> None:
        """The user wants it to end: in order, and without another attempt."""
        self._stopped = self._stopped or reason
        self._pause.cancel()
        if self.actor is not None:
            self.actor.cancel(reason)

    def hurry(self) -> None:
        """Cut short what the ending still waits for."""
        if self.actor is not None:
            self.actor.hurry()

    async def _look(self) -> list[PlannedRun]:
        """Look into the folder: what is done, what is gone on in; the runs that are left."""
        folder = self.plan[0].options.log_dir
        self._found = await self.runtime.to_thread(SetLogs.find, folder, self.plan)
        if not self.options.allow_dirty:
            self._found.refuse_unrelated(folder)
        id = self.options.eval_set_id or self._found.eval_set_id or self.runtime.new_id()
        self.plan = [evolve(run, eval_set_id=id) for run in self.plan]
        left: list[PlannedRun] = []
        for run in self.plan:
            path = self._found.own.get(run.index)
            if path is not None:
                old = await self.runtime.to_thread(peek, path)
                if old is not None and await self._done(run, old):
                    await self._keep(run)
                    continue
                await self.runtime.to_thread(refuse_in_use, path)
                self._old[run.index] = await self.runtime.to_thread(open_old, path)
            left.append(run)
        return left

    async def _done(self, run: PlannedRun, old: OldLog) -> bool:
        resume = resumed(run, old).resume
        if old.header.status != "success" or old.header.invalidated or resume is None:
            return False
        if not await is_complete(run, resume, self.runtime):
            return False
        self._logs[run.index] = old.header
        return True

    def _attempt(self, waiting: Sequence[PlannedRun], attempt: int) -> RunActor:
        plan = [self._again(run, attempt) for run in waiting]
        return self.call.actor(
            self.runtime,
            [evolve(run, index=place) for place, run in enumerate(plan)],
            budget=self._budget,
            since=self._began,
        )

    def _again(self, run: PlannedRun, attempt: int) -> PlannedRun:
        old = self._old.get(run.index)
        note = self._found.notes.pop(run.index, None)
        again = evolve(run, notes=() if note is None else (note,)) if old is None else resumed(run, old)
        if attempt > 1 and old is not None:
            again = evolve(again, notes=(f"attempt {attempt} of {self.options.attempts}", *again.notes))
        limit = run.model.config.max_connections
        if limit is None or self.options.connections == 1.0:
            return again
        smaller = max(1, math.floor(limit * self.options.connections ** (attempt - 1)))
        return evolve(again, model=run.model.with_config(run.model.config.merge({"max_connections": smaller})))

    async def _keep(self, run: PlannedRun) -> None:
        """Remember where a run's log is, to go on in it; or clean up what it took the place of."""
        log = self._logs[run.index]
        if not log.location:
            return
        if log.status != "success":
            self._old[run.index] = await self.runtime.to_thread(open_old, log.location)
        elif self.options.cleanup:
            await self.runtime.to_thread(self._found.clean, run.index, log.location)

    async def _waited(self, attempt: int) -> bool:
        """Wait before the next attempt; False when there is none because of that."""
        seconds = self.options.pause(attempt)
        if self._budget.max_run_time is not None:
            left = self._began + self._budget.max_run_time - anyio.current_time()
            if left <= seconds:
                return False
        if self._stopped is None:
            with anyio.CancelScope() as self._pause:
                await anyio.sleep(seconds)
        return self._stopped is None

    def _forgive(self) -> None:
        """Models that were given up are tried again, with one request."""
        for ref in self.runtime.actors("models"):
            if not ref.alive:
                continue
            share = ref.state.share
            try:
                share.check()
            except ModelGivenUp:
                share.forgive()

    def _listed(self) -> list[EvalLog]:
        return with_samples([self._logs[run.index] for run in self.plan if run.index in self._logs])
