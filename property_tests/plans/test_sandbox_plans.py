"""Invariants 1, 3, 20, 25, 31 and 32 on the sandboxes of whole evaluations: random samples, limits, faults, endings.

The host is played and counts for itself what lives and what starts. Two tasks share it, so that places of samples, of
all samples and of sandboxes are asked for in every combination.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Literal

import anyio
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor import Task, open_runtime
from proctor.dataset import Sample
from proctor.errors import Fault as Broken
from proctor.errors import SandboxUnavailableError
from proctor.log import EvalLog
from proctor.runtime import Settings
from proctor.runtime.cpus import cpus
from proctor.scorer import includes
from proctor.solver import TaskState, solver
from proctor.testing import FakeModel, FakeSandbox, Fault, FaultPlan, MemoryLogs, run_virtual, simulate
from proctor.testing.fake_sandbox import FakeSandboxEnvironment
from proctor.util import sandbox

EXAMPLES = max(40, settings.default.max_examples // 4)
BUDGET = 5
"""Seconds that an ending may take."""

Kind = Literal["works", "fails", "dies", "swallows", "no sandbox"]


@frozen
class SamplePlan:
    kind: Kind
    before: int
    after: int


@frozen
class SandboxPlan:
    first: tuple[SamplePlan, ...]
    second: tuple[SamplePlan, ...]
    start: int
    command: int
    removal: int
    names: int
    max_samples: int
    max_total_samples: int | None
    max_sandboxes: int
    retries: int
    changes: tuple[tuple[int, int], ...] = ()
    faults: tuple[Fault, ...] = ()


KINDS: tuple[Kind, ...] = ("works", "works", "fails", "dies", "swallows", "no sandbox")
samples = st.lists(st.builds(SamplePlan, st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 2)), max_size=5)
faults = st.lists(
    st.builds(
        Fault,
        st.sampled_from(["sandbox", "command", "removal"]),
        st.integers(1, 10),
        st.none(),
        st.sampled_from([None, 1]),
        st.sampled_from([ValueError, OSError, Broken]),
    ),
    max_size=3,
).map(tuple)
plans = st.builds(
    SandboxPlan,
    first=samples.map(tuple).filter(bool),
    second=samples.map(tuple),
    start=st.integers(0, 3),
    command=st.integers(0, 3),
    removal=st.integers(0, 3),
    names=st.integers(1, 2),
    max_samples=st.integers(1, 4),
    max_total_samples=st.one_of(st.none(), st.integers(1, 3)),
    max_sandboxes=st.integers(1, 3),
    retries=st.integers(0, 1),
    changes=st.lists(st.tuples(st.integers(0, 10), st.integers(1, 4)), max_size=2).map(tuple),
    faults=faults,
)


@define(eq=False)
class Host(FakeSandbox):
    """Checks at each making that there are no more samples with environments than there may be."""

    allowed: list[int] = field(factory=list)
    inside: int = field(default=0, init=False)
    over: list[str] = field(factory=list, init=False)

    async def make(self) -> Any:
        self.inside += 1
        if self.inside > max(self.allowed):
            self.over.append(f"{self.inside} at once, allowed {self.allowed}")
        if self.starting + 1 > cpus():
            self.over.append(f"{self.starting + 1} start at once on {cpus()} processors")
        try:
            return await super().make()
        except BaseException:
            self.inside -= 1
            raise

    async def remove(self, environments: list[FakeSandboxEnvironment], *, interrupted: bool) -> None:
        try:
            await super().remove(environments, interrupted=interrupted)
        finally:
            self.inside -= 1  # a removal that fails is given up: its place comes back


@define(eq=False)
class Played:
    """One run of two tasks on a host."""

    plan: SandboxPlan
    cancel_at: int | None = None
    faults: FaultPlan = field(init=False)
    host: Host = field(init=False)
    logs: list[EvalLog] = field(factory=list, init=False)
    ended_at: float = field(default=0.0, init=False)
    failed_removals: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        plan = self.plan
        self.faults = FaultPlan(plan.faults, cancel_at=self.cancel_at)
        names = ("default", "other")[: plan.names]
        self.host = Host(
            names=names,
            start=plan.start,
            command=plan.command,
            removal=plan.removal,
            faults=self.faults,
            allowed=[plan.max_sandboxes, *(limit for _, limit in plan.changes)],
        )

    async def play(self, cancelled_after: int | None = None) -> None:
        plan, kept = self.plan, MemoryLogs(faults=self.faults)
        options = {
            "max_samples": plan.max_samples,
            "max_total_samples": plan.max_total_samples,
            "max_sandboxes": plan.max_sandboxes,
            "max_tasks": 2,
            "retry_on_error": plan.retries,
            "fail_on_error": False,
            "logs": kept,
            "faults": self.faults,
        }
        model = FakeModel(answer="yes", latency=1.0).model()
        with anyio.move_on_after(cancelled_after):
            async with open_runtime(Settings(seed=0)) as runtime, anyio.create_task_group() as nursery:
                nursery.start_soon(self._change, runtime)
                with nullcontext():
                    await simulate([self._task("a", plan.first), self._task("b", plan.second)], model, **options)
                nursery.cancel_scope.cancel()
        self.ended_at = anyio.current_time()
        self.logs = [log.read() for log in kept.logs]

    async def _change(self, runtime: Any) -> None:
        for at, limit in sorted(self.plan.changes):
            await anyio.sleep(max(0.0, at - anyio.current_time()))
            runtime.set_limit("max_sandboxes", limit)

    def _task(self, name: str, planned: tuple[SamplePlan, ...]) -> Task:
        first = 1 if name == "a" else 6
        found = [
            Sample(str(n), id=first + n, target="yes", sandbox=None if each.kind == "no sandbox" else self.host.spec)
            for n, each in enumerate(planned)
        ]
        return Task(found or [Sample("0", id=first)], solver=_planned(planned), scorer=includes(), name=name)


@solver
def _planned(planned: tuple[SamplePlan, ...]) -> Any:
    async def solve(state: TaskState, generate: Any) -> TaskState:
        if not planned:
            return state
        plan = planned[int(state.input_text)]
        await anyio.sleep(plan.before)
        if plan.kind != "no sandbox":
            await sandbox().exec(["one"])
        if plan.kind == "fails":
            raise ValueError("planned")
        if plan.kind in {"dies", "swallows"}:
            dying: Any = sandbox()
            dying.environment.dead = True
            try:
                await sandbox().exec(["two"])
            except SandboxUnavailableError:
                if plan.kind == "dies":
                    raise
        state = await generate(state)
        await anyio.sleep(plan.after)
        return state

    return solve


def played(backend: str, plan: SandboxPlan, cancelled_after: int | None = None, k: int | None = None) -> Played:
    play = Played(plan, k)
    run_virtual(backend, play.play, cancelled_after)
    return play


def check(play: Played) -> None:
    assert play.host.over == []
    # What a failing removal left behind is the only thing that may be left.
    kept_back = play.faults.raised["removal"] * play.plan.names
    assert len(play.host.live) <= kept_back, [each.name for each in play.host.live]
    for log in play.logs:
        recorded = [(sample.id, sample.epoch) for sample in log.samples or ()]
        assert len(set(recorded)) == len(recorded)


@settings(max_examples=EXAMPLES)
@given(plan=plans)
def test_sandboxes_never_pass_their_limits_and_none_is_left(backend: str, plan: SandboxPlan) -> None:
    play = played(backend, plan)
    check(play)
    for log, planned in zip(play.logs, (plan.first, plan.second), strict=True):
        found = {str(sample.id): sample for sample in log.samples or ()}
        assert len(found) == max(1, len(planned))
        first = 1 if log.eval.task == "a" else 6
        for n, each in enumerate(planned):
            if each.kind in {"fails", "dies", "swallows"}:
                assert found[str(first + n)].error is not None, each


@settings(max_examples=EXAMPLES)
@given(plan=plans, cancelled_after=st.integers(0, 12))
def test_cancelled_at_any_time_none_is_left_and_it_ends_within_the_budget(
    backend: str, plan: SandboxPlan, cancelled_after: int
) -> None:
    play = played(backend, plan, cancelled_after)
    check(play)
    assert play.ended_at <= cancelled_after + BUDGET


@settings(max_examples=EXAMPLES)
@given(plan=plans, k=st.integers(1, 120))
def test_cancelled_at_any_await_none_is_left(backend: str, plan: SandboxPlan, k: int) -> None:
    check(played(backend, plan, k=k))
