"""Commands under the subprocess pool, on random plans: limits, timeouts, cancellations, restarts, stubborn processes.

The pool, its actor and its limiter are the real ones; the processes are played in virtual time. The invariants are
those of the list in the design for limiters (1, 2, 3, 25) and for what a run leaves (31), told for child processes.
"""

from __future__ import annotations

import math
import signal
from collections import Counter
from typing import Any

import anyio
import pytest
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor import Task
from proctor.dataset import Sample
from proctor.errors import Fault, LeaseRevoked, ProcessTimeout
from proctor.process import hurry_children
from proctor.process.attend import DRAIN, GRACE
from proctor.process.pool import KEY
from proctor.runtime import Runtime, Settings, open_runtime
from proctor.solver import TaskState, solver
from proctor.testing import (
    Awaits,
    FakeModel,
    FakeProcess,
    FakeProcessCall,
    FaultPlan,
    MemoryLogs,
    Monitor,
    Play,
    at_idle,
    run_virtual,
    settle,
    simulate,
)
from proctor.testing.fake_process import Played
from proctor.util import subprocess

EXAMPLES = max(40, settings.default.max_examples // 2)
FEW = max(15, settings.default.max_examples // 10)
LAST = 1.0
"""Seconds beyond timeout and grace by which a command is back (behaviour.md, section 4)."""
NEVER = 1000
TINY = 1e-6


@frozen
class CommandPlan:
    delay: int
    play: Play
    timeout: int | None
    cancel_at: int | None


@frozen
class PoolPlan:
    limit: int
    commands: tuple[CommandPlan, ...]
    resizes: tuple[tuple[int, int], ...] = ()
    restart_at: int | None = None
    hurry_at: int | None = None


seconds = st.integers(0, 6)
plays = st.builds(
    Play,
    seconds=st.one_of(seconds, st.just(NEVER)),
    stdout=st.sampled_from(["", "out"]),
    stubborn=st.booleans(),
    lost=st.sampled_from([False, False, False, True]),
    child=st.sampled_from([0, 0, 0, 3, NEVER]),
    escaped=st.sampled_from([0, 0, 0, 3, NEVER]),
)
commands = st.builds(
    CommandPlan,
    delay=st.integers(0, 4),
    play=plays,
    timeout=st.one_of(st.none(), seconds),
    cancel_at=st.one_of(st.none(), st.integers(0, 9)),
).map(lambda each: each if ends(each) else CommandPlan(each.delay, each.play, 5, each.cancel_at))
pools = st.builds(PoolPlan, limit=st.integers(1, 3), commands=st.lists(commands, min_size=1, max_size=6).map(tuple))
changing = st.builds(
    PoolPlan,
    limit=st.integers(1, 3),
    commands=st.lists(commands, min_size=1, max_size=6).map(tuple),
    resizes=st.lists(st.tuples(st.integers(0, 8), st.integers(1, 4)), max_size=2).map(tuple),
    restart_at=st.one_of(st.none(), st.integers(0, 6)),
    hurry_at=st.one_of(st.none(), st.integers(0, 6)),
)


def ends(command: CommandPlan) -> bool:
    """Whether something ends it."""
    forever = command.play.seconds == NEVER or command.play.lost
    return not forever or command.timeout is not None or command.cancel_at is not None


@define(eq=False)
class Story:
    """What became of one command.

    Attributes:
        played: its process, None when it never began. back: when its caller had it. outcome: how.
        left_alive: something in its group lived then.
    """

    plan: CommandPlan
    called: float = math.nan
    began: float = math.nan
    cancelled: float = math.inf
    back: float = math.nan
    outcome: str = ""
    played: Played | None = None
    left_alive: bool = False


@define(eq=False)
class Pool:
    """A plan that is played."""

    plan: PoolPlan
    stories: list[Story] = field(init=False)
    fake: FakeProcess = field(init=False)
    monitor: Monitor = field(init=False)
    restarted: float = math.nan
    hurried: float = math.inf

    def __attrs_post_init__(self) -> None:
        self.stories = [Story(each) for each in self.plan.commands]
        self.fake = FakeProcess(answer=self._answer)

    async def play(self) -> None:
        with self.fake.installed(), anyio.fail_after(3 * NEVER):
            async with open_runtime(Settings(seed=0, max_subprocesses=self.plan.limit)) as runtime:
                await subprocess("first")
                [ref] = runtime.actors("processes")
                self.monitor = Monitor([ref.limiter], raises=True)
                runtime.ledger.subscribe(self.monitor.listen)
                with at_idle(self._look(runtime)):
                    async with anyio.create_task_group() as group:
                        for number, story in enumerate(self.stories):
                            group.start_soon(self._run, number, story)
                        group.start_soon(self._operate, runtime)
                await ref.started()
                assert (ref.limiter.used, ref.limiter.waiting, ref.state.live) == (0, 0, [])
                before = anyio.current_time()
                await subprocess("last")  # a place is free at once
                assert anyio.current_time() == before
        assert all(each.closed for each in self.fake.plays)
        assert self.fake.alive == 0

    def _answer(self, call: FakeProcessCall) -> Play:
        return self.stories[int(call.args[1])].plan.play if call.args[0] == "command" else Play()

    def _look(self, runtime: Runtime) -> Any:
        ref: Any = runtime.find("processes", KEY)
        allowed = [self.plan.limit]

        def look() -> None:
            limit = runtime.shared["max_subprocesses"].value or 0
            running = sum(not each.closed for each in self.fake.plays)
            # A shrunk limit holds once those above it have left.
            allowed[0] = max(limit, min(allowed[0], running))
            assert running <= allowed[0]
            assert ref.limiter.used <= allowed[0]

        return look

    async def _run(self, number: int, story: Story) -> None:
        plan = story.plan
        await anyio.sleep(plan.delay)
        story.called = anyio.current_time()
        with anyio.CancelScope() as scope:
            if plan.cancel_at is not None:
                scope.deadline = story.cancelled = story.called + plan.cancel_at
            try:
                result = await subprocess(["command", str(number)], timeout=plan.timeout)
                assert result.stdout == plan.play.stdout
                story.outcome = f"ended {result.returncode}"
            except ProcessTimeout as error:
                story.outcome = "timeout" if error.stdout == plan.play.stdout else "timeout without its output"
            except LeaseRevoked:
                story.outcome = "revoked"
            finally:
                story.back = anyio.current_time()
                story.played = next((each for each in self.fake.plays if each.name == f"command {number}"), None)
                if story.played is not None:
                    story.began = self.fake.times[self.fake.plays.index(story.played)]
                    lost = plan.play.lost
                    story.left_alive = story.played.alive or (story.played.group_alive() and not lost)
        if scope.cancelled_caught:
            story.outcome = "cancelled"

    async def _operate(self, runtime: Runtime) -> None:
        operations = [(at, "resize", limit) for at, limit in self.plan.resizes]
        operations += [(self.plan.restart_at, "restart", 0)] if self.plan.restart_at is not None else []
        operations += [(self.plan.hurry_at, "hurry", 0)] if self.plan.hurry_at is not None else []
        for at, what, limit in sorted(operations):
            await anyio.sleep_until(at)
            if what == "resize":
                runtime.set_limit("max_subprocesses", limit)
            elif what == "hurry":
                self.hurried = anyio.current_time()
                hurry_children(runtime)
            else:
                await self._restart(runtime)

    async def _restart(self, runtime: Runtime) -> None:
        ref: Any = runtime.find("processes", KEY)
        before = [each for each in self.fake.plays if not each.closed]
        self.restarted = anyio.current_time()
        ref.state.fail(Fault("planted"))
        await settle()
        assert not any(each.alive for each in before)


def played(plan: PoolPlan, backend: str) -> Pool:
    pool = Pool(plan)
    run_virtual(backend, pool.play)
    return pool


@given(plan=pools)
@settings(max_examples=EXAMPLES)
def test_1_no_more_run_than_the_limit_and_every_place_comes_back(backend: str, plan: PoolPlan) -> None:
    played(plan, backend)


@given(plan=changing)
@settings(max_examples=EXAMPLES)
def test_25_over_resizes_restarts_and_interrupts_too(backend: str, plan: PoolPlan) -> None:
    for story in played(plan, backend).stories:
        assert story.outcome


@given(plan=pools)
@settings(max_examples=EXAMPLES)
def test_16_a_command_is_back_in_bounded_time_counted_from_its_start(backend: str, plan: PoolPlan) -> None:
    for story in played(plan, backend).stories:
        if story.played is None:
            assert story.outcome == "cancelled"
            assert story.back == pytest.approx(story.cancelled)
            continue
        play, timeout = story.plan.play, story.plan.timeout
        ends = math.inf if play.lost else story.began + play.seconds
        told = min(story.cancelled, math.inf if timeout is None else story.began + timeout)
        # With what is left in the pipes; what comes while they are drained ends the group.
        assert story.back <= max(min(ends + DRAIN, told + GRACE + LAST), min(ends, told)) + GRACE + LAST + TINY
        if ends < told - TINY and story.cancelled > ends + DRAIN:
            assert story.outcome == "ended 0"
            assert story.back <= ends + DRAIN + TINY
        elif told < ends:
            assert story.outcome in {"timeout", "cancelled"}
            assert told <= story.back <= told + GRACE + LAST


@given(plan=pools)
@settings(max_examples=EXAMPLES)
def test_31_what_did_not_end_by_itself_is_told_first_and_then_killed(backend: str, plan: PoolPlan) -> None:
    for story in played(plan, backend).stories:
        if story.played is None or story.outcome.startswith("ended"):
            continue
        signals = story.played.signals
        assert signals[0][1] == signal.SIGTERM
        kills = [at for at, number in signals if number == signal.SIGKILL]
        stubborn = story.plan.play.stubborn or story.plan.play.lost
        if stubborn and story.began + max(story.plan.play.seconds, story.plan.play.child) > signals[0][0] + GRACE:
            assert kills
        assert all(at >= signals[0][0] + GRACE - TINY for at in kills)


@given(plan=pools)
@settings(max_examples=EXAMPLES)
def test_31_nothing_in_the_group_lives_when_its_caller_has_left(backend: str, plan: PoolPlan) -> None:
    for story in played(plan, backend).stories:
        assert story.outcome.startswith("ended") or not story.left_alive


@given(play=plays, timeout=st.one_of(st.none(), st.integers(0, 3)), waits=st.booleans())
@settings(max_examples=FEW)
def test_31_whatever_await_it_is_cancelled_at(backend: str, play: Play, timeout: int | None, waits: bool) -> None:
    async def cancelled_at(at: int) -> bool:
        """Whether there was such an await."""
        fake = FakeProcess(answer=lambda call: play if call.text == "command" else Play(seconds=1))
        with fake.installed():
            async with (
                open_runtime(Settings(seed=0, max_subprocesses=1)) as runtime,
                anyio.create_task_group() as group,
            ):
                await subprocess("first")
                [ref] = runtime.actors("processes")
                if waits:
                    group.start_soon(subprocess, "holder")
                    await settle()
                with anyio.CancelScope() as scope:
                    awaits = Awaits(at, scope)
                    scope.deadline = anyio.current_time() + 20
                    try:
                        await awaits.drive(subprocess("command", timeout=timeout))
                    except ProcessTimeout:
                        assert timeout is not None
                mine = [each for each in fake.plays if each.name == "command"]
                if scope.cancelled_caught:
                    assert not any(each.alive for each in mine)
                assert all(each.closed for each in mine)
                await subprocess("next")
                assert (ref.limiter.used, ref.limiter.waiting) == (0, 0)
        return awaits.count >= at

    at = 1
    while run_virtual(backend, cancelled_at, at) and at < 40:
        at += 1
    assert at > 2


@given(
    each=st.lists(plays, min_size=1, max_size=4),
    limit=st.integers(1, 3),
    cancel_at=st.one_of(st.none(), st.integers(1, 40)),
)
@settings(max_examples=FEW)
def test_32_whole_evaluations_that_run_commands(
    backend: str, each: list[Play], limit: int, cancel_at: int | None
) -> None:
    started: Counter[Any] = Counter()
    fake = FakeProcess(answer=lambda call: each[int(call.args[1])])

    @solver
    def running() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            started[state.sample_id] += 1
            for _ in range(2):
                await subprocess(["command", state.input_text], timeout=5)
            return state

        return solve

    async def main() -> None:
        logs = MemoryLogs()
        task = Task([Sample(str(n)) for n in range(len(each))], solver=running())
        more: dict[str, Any] = {"max_subprocesses": limit, "fail_on_error": False}
        with fake.installed():
            await simulate(task, FakeModel().model(), logs=logs, faults=FaultPlan(cancel_at=cancel_at), **more)
        assert Counter(sample.id for log in logs.logs for sample in log.read().samples) == started
        assert fake.alive == 0
        assert fake.peak <= limit
        assert all(played.closed for played in fake.plays)

    run_virtual(backend, main)
