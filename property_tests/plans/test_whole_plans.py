"""Invariants 1, 30, 32, 33, 36, 40 and 42 on samples that have it all: sandbox, commands, a scope, model calls, scorer.

Only what is outside of the engine is played: the model, the host of the sandboxes, the processes, the files. Each of
them counts on its own side what there is at once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from typing import Any, Literal
from unittest import mock

import anyio
import attrs
import pytest
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor import Epochs, Task
from proctor.dataset import Dataset, MemoryDataset, Sample
from proctor.dataset.streamed import Reading, StreamedDataset
from proctor.evaluation import feed
from proctor.log import EvalLog, EvalSample
from proctor.runtime import Settings, open_runtime
from proctor.scorer import Score, mean, scorer
from proctor.solver import TaskState, solver
from proctor.testing import (
    FakeCall,
    FakeModel,
    FakeProcess,
    FakeProcessCall,
    FakeSandbox,
    FakeSandboxCommand,
    Fault,
    FaultPlan,
    MemoryLogs,
    Play,
    run_virtual,
    simulate,
)
from proctor.util import concurrency, sandbox, subprocess

EXAMPLES = max(30, settings.default.max_examples // 6)
"""Each plays a whole evaluation, some two."""
FEW = max(15, settings.default.max_examples // 12)
BUDGET = 5
"""Seconds that an ending may take."""
LONG, COMMAND_LIMIT = 1000, 4
"""Seconds that a command takes which never ends by itself, and seconds that any command may run."""
SCOPE = 2
"""Samples that may be inside the scope at once."""

Kind = Literal["right", "wrong", "fails", "fails once", "too slow", "no sandbox"]
KINDS: tuple[Kind, ...] = ("right", "right", "wrong", "fails", "fails once", "too slow", "no sandbox")
Size = Literal["max_samples", "max_connections", "max_sandboxes", "max_subprocesses"]
SIZES: tuple[Size, ...] = ("max_samples", "max_connections", "max_sandboxes", "max_subprocesses")


@frozen
class SamplePlan:
    """A sample, with the seconds that its steps take."""

    kind: Kind
    before: int
    latency: int
    inside: int
    command: int
    scope: int


@frozen
class WholePlan:
    """An evaluation: its samples, its limits, the seconds that its sandboxes take to come and to go."""

    samples: tuple[SamplePlan, ...]
    max_samples: int
    max_total_samples: int | None
    max_connections: int
    max_sandboxes: int
    max_subprocesses: int
    start: int
    removal: int
    epochs: int
    fail_on_error: bool | float
    retries: int


few = st.integers(0, 3)
sample_plans = st.builds(SamplePlan, st.sampled_from(KINDS), few, few, few, few, few)
plans = st.builds(
    WholePlan,
    samples=st.lists(sample_plans, min_size=1, max_size=6).map(tuple),
    max_samples=st.integers(1, 4),
    max_total_samples=st.one_of(st.none(), st.integers(1, 4)),
    max_connections=st.integers(1, 3),
    max_sandboxes=st.integers(1, 3),
    max_subprocesses=st.integers(1, 3),
    start=st.integers(0, 2),
    removal=st.integers(0, 2),
    epochs=st.integers(1, 2),
    fail_on_error=st.sampled_from([True, False, 0.3, 2]),
    retries=st.integers(0, 1),
)
faults = st.lists(
    st.builds(
        Fault,
        st.sampled_from(["setup", "solver", "model", "process", "sandbox", "command", "scorer", "cleanup"]),
        st.integers(1, 6),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, 1]),
    ),
    max_size=6,
).map(tuple)


@define(eq=False)
class Played:
    """One evaluation of a plan, with what it ran on and what it left.

    Args:
        host, machine: shared with another one; default its own.
        paged: bytes of samples that may be held while the dataset is read row by row; None: they are a list.
    """

    plan: WholePlan
    faults: FaultPlan = field(factory=FaultPlan)
    paged: int | None = None
    host: FakeSandbox = field(init=False)
    machine: FakeProcess = field(init=False)
    model: FakeModel = field(init=False)
    started: dict[tuple[Any, int], float] = field(factory=dict, init=False)
    in_scope: int = field(default=0, init=False)
    peak_in_scope: int = field(default=0, init=False)
    ended_at: float = field(default=0.0, init=False)
    processes_left: int = field(default=0, init=False)
    log: EvalLog | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        plan, faults = self.plan, self.faults
        self.host = FakeSandbox(start=plan.start, removal=plan.removal, answer=self._inside, faults=faults)
        self.machine = FakeProcess(answer=self._command, faults=faults)
        self.model = FakeModel(name="whole", answer=self._answer, latency=self._latency, faults=faults)

    async def play(self, cancelled_after: float | None = None, **options: Any) -> None:
        """Evaluate it; the log is there afterwards, if one was opened."""
        kept = MemoryLogs(encoded=True, faults=self.faults)
        with ExitStack() as around, anyio.move_on_after(cancelled_after):
            around.enter_context(self.machine.installed())
            if self.paged is not None:
                around.enter_context(mock.patch.object(feed, "MB", 1))
                options["max_dataset_memory"] = self.paged
            await simulate(
                self.task(), self.model.model(), logs=kept, faults=self.faults, **{**self.options(), **options}
            )
        self.ended_at, self.processes_left = anyio.current_time(), self.machine.alive
        assert len(kept.logs) <= 1
        self.log = kept.logs[0].read() if kept.logs else None

    def task(self) -> Task:
        return Task(self.dataset(), solver=self._solver(), scorer=self._scorer(), sandbox=self.host.spec)

    def dataset(self) -> Dataset:
        made = [
            Sample(str(n), target="right", files={"given": f"file {n}"}, metadata={"place": n})
            for n in range(len(self.plan.samples))
        ]
        if self.paged is None:
            return MemoryDataset(made)
        return StreamedDataset(Reading(read=lambda: iter(made), source="rows"))

    def options(self) -> dict[str, Any]:
        plan = self.plan
        return {
            **{size: getattr(plan, size) for size in SIZES},
            "max_total_samples": plan.max_total_samples,
            "epochs": Epochs(plan.epochs),
            "fail_on_error": plan.fail_on_error,
            "retry_on_error": plan.retries,
        }

    @property
    def records(self) -> list[EvalSample]:
        return list(self.log.samples or ()) if self.log is not None else []

    def _of(self, text: str) -> SamplePlan:
        return self.plan.samples[int(text)]

    def _answer(self, call: FakeCall) -> str:
        return "wrong" if self._of(call.input[0].text).kind == "wrong" else "right"

    def _latency(self, call: FakeCall) -> float:
        return self._of(call.input[0].text).latency

    async def _inside(self, command: FakeSandboxCommand) -> str:
        await anyio.sleep(self._of(command.cmd[1]).inside)
        return command.environment.files["given"].decode()

    def _command(self, call: FakeProcessCall) -> Play:
        plan = self._of(call.args[1])
        return Play(seconds=LONG if plan.kind == "too slow" else plan.command, stdout=f"ran {call.args[1]}")

    def _solver(self) -> Any:
        tries: Counter[tuple[Any, int]] = Counter()

        @solver
        def whole() -> Any:
            async def solve(state: TaskState, generate: Any) -> TaskState:
                key = (state.sample_id, state.epoch)
                tries[key] += 1
                if tries[key] == 1:
                    self.started[key] = anyio.current_time()
                plan = self._of(state.input_text)
                await anyio.sleep(plan.before)
                said = []
                if plan.kind != "no sandbox":
                    said.append((await sandbox().exec(["work", state.input_text])).stdout)
                said.append((await subprocess(["work", state.input_text], timeout=COMMAND_LIMIT)).stdout)
                async with concurrency("service", SCOPE):
                    self.in_scope += 1
                    self.peak_in_scope = max(self.peak_in_scope, self.in_scope)
                    try:
                        await anyio.sleep(plan.scope)
                    finally:
                        self.in_scope -= 1
                state = await generate(state)
                if plan.kind == "fails" or (plan.kind == "fails once" and tries[key] == 1):
                    raise ValueError(plan.kind)
                if plan.kind != "no sandbox":
                    await sandbox().write_file("made", ", ".join(said))
                return state

            return solve

        return whole()

    def _scorer(self) -> Any:
        @scorer(metrics=[mean()])
        def whole() -> Any:
            async def score(state: TaskState, target: Any) -> Score:
                plan = self._of(state.input_text)
                read = "" if plan.kind == "no sandbox" else await sandbox().read_file("made")
                checked = await subprocess(["check", state.input_text], timeout=COMMAND_LIMIT)
                right = state.output.completion == target.text
                return Score(value=float(right), answer=f"{read}; {checked.stdout}; {state.metadata['place']}")

            return score

        return whole()


def played(backend: str, plan: WholePlan, cancelled_after: float | None = None, **more: Any) -> Played:
    play = Played(plan, **{name: more.pop(name) for name in ("faults", "paged") if name in more})
    run_virtual(backend, lambda: play.play(cancelled_after, **more))
    return play


def calm(plan: WholePlan, **changes: Any) -> WholePlan:
    """A plan in which no sample's end changes another's."""
    return attrs.evolve(plan, fail_on_error=False, **changes)


def outcome(sample: EvalSample) -> tuple[Any, ...]:
    """What became of a sample, without times and ids."""
    error = None if sample.error is None else sample.error.message
    scores = {name: (score.value, score.answer) for name, score in (sample.scores or {}).items()}
    retries = [retry.message for retry in sample.error_retries or ()]
    return (sample.id, sample.epoch, error, str(scores), retries, sample.turn_count, len(sample.messages))


def outcomes(play: Played) -> list[tuple[Any, ...]]:
    return [outcome(sample) for sample in play.records]


def report(log: EvalLog | None) -> str:
    """The results, as text: a metric of nothing is NaN, which equals nothing."""
    assert log is not None
    usage = {name: attrs.asdict(used) for name, used in sorted(log.stats.model_usage.items())}
    return repr((log.status, log.results, log.reductions, usage))


def check_one_record_each(play: Played) -> None:
    recorded = [(sample.id, sample.epoch) for sample in play.records]
    assert len(set(recorded)) == len(recorded)
    assert set(play.started) <= set(recorded)
    if play.log is not None:
        assert play.log.status != "started"
        if play.log.status == "success":
            assert len(recorded) == len(play.plan.samples) * play.plan.epochs
        elif play.log.status == "error":
            assert any(sample.error is not None for sample in play.records), play.log.error


def check_nothing_left(play: Played) -> None:
    assert not play.host.live
    assert play.processes_left == 0
    assert all(each.closed for each in play.machine.plays)
    assert (play.model.in_flight, play.in_scope) == (0, 0)


@settings(max_examples=EXAMPLES)
@given(plan=plans)
def test_1_no_limit_is_passed_and_nothing_is_left(backend: str, plan: WholePlan) -> None:
    play = played(backend, plan)
    check_one_record_each(play)
    check_nothing_left(play)
    most = plan.max_samples
    assert play.host.peak <= min(plan.max_sandboxes, most, plan.max_total_samples or most)
    assert play.machine.peak <= plan.max_subprocesses
    assert play.model.peak <= plan.max_connections
    assert play.peak_in_scope <= SCOPE


@settings(max_examples=EXAMPLES)
@given(plan=plans, planned=faults, k=st.one_of(st.none(), st.integers(1, 300)))
def test_32_one_record_each_wherever_samples_fail_and_at_whatever_await_all_is_cancelled(
    backend: str, plan: WholePlan, planned: tuple[Fault, ...], k: int | None
) -> None:
    play = played(backend, plan, faults=FaultPlan(planned, cancel_at=k))
    check_one_record_each(play)
    check_nothing_left(play)


@settings(max_examples=EXAMPLES)
@given(plan=plans, cancelled_after=st.integers(0, 20))
def test_30_after_a_cancellation_nothing_starts_and_all_is_gone_within_the_budget(
    backend: str, plan: WholePlan, cancelled_after: int
) -> None:
    play = played(backend, plan, cancelled_after)
    check_one_record_each(play)
    check_nothing_left(play)
    assert play.ended_at <= cancelled_after + BUDGET
    assert all(at <= cancelled_after for at in [*play.started.values(), *play.machine.times, *play.model.times])


@settings(max_examples=EXAMPLES)
@given(plan=plans, cancelled_after=st.integers(0, 15))
def test_33_a_cancellation_leaves_the_same_records_on_every_backend(
    backend: str, plan: WholePlan, cancelled_after: int
) -> None:
    """Between two instants at which something happens, and with room for all, so that nothing goes by who is first."""
    many = len(plan.samples) * plan.epochs
    samples = tuple(attrs.evolve(sample, scope=0) for sample in plan.samples)
    free = calm(plan, samples=samples, max_total_samples=None, start=0, **dict.fromkeys(SIZES, many))
    one, other = (played(name, free, cancelled_after + 0.5) for name in ("asyncio", backend))
    assert outcomes(one) == outcomes(other)
    assert (one.log is None) == (other.log is None)
    if one.log is not None and other.log is not None:
        assert one.log.status == other.log.status
        assert [s.total_time for s in one.records] == pytest.approx([s.total_time for s in other.records])


@settings(max_examples=EXAMPLES)
@given(plan=plans, drained_after=st.sampled_from([0.5, 1.0, 2.5, 5.0, 8.0, 12.0]))
def test_30_after_a_drain_what_runs_is_finished_as_if_nothing_had_been_said(
    backend: str, plan: WholePlan, drained_after: float
) -> None:
    play, whole = played(backend, calm(plan), max_run_time=drained_after), played("asyncio", calm(plan))
    check_one_record_each(play)
    check_nothing_left(play)
    alone = {record[:2]: record for record in outcomes(whole)}
    assert all(record == alone[record[:2]] for record in outcomes(play))
    assert play.log is not None
    assert play.log.status == ("success" if len(play.records) == len(alone) else "cancelled")


@settings(max_examples=EXAMPLES)
@given(plan=plans, other=plans)
def test_33_outcomes_do_not_depend_on_limits_timing_or_backend(backend: str, plan: WholePlan, other: WholePlan) -> None:
    alone = calm(plan, **dict.fromkeys(SIZES, 1))
    samples = tuple(attrs.evolve(s, before=3 - s.before, latency=s.command, command=s.latency) for s in plan.samples)
    crowd = calm(other, samples=samples, epochs=plan.epochs, retries=plan.retries)
    first, second = played("asyncio", alone), played(backend, crowd)
    assert outcomes(first) == outcomes(second)
    assert report(first.log) == report(second.log)


@settings(max_examples=FEW)
@given(first=plans, second=plans, later=st.integers(0, 6))
def test_36_two_evaluations_in_one_runtime_share_every_limit(
    backend: str, first: WholePlan, second: WholePlan, later: int
) -> None:
    """Both ask for the same numbers; together they stay below them, and each comes to what it comes to alone."""
    shared = {size: getattr(first, size) for size in SIZES}
    plans = [calm(first), calm(second, **shared, max_total_samples=first.max_total_samples)]
    together = [Played(plan) for plan in plans]
    second_play = together[1]
    second_play.host.live = together[0].host.live  # they count together, as one host would
    seen: list[int] = []

    async def one(play: Played, wait: int) -> None:
        await anyio.sleep(wait)
        await play.play()

    async def watch() -> None:
        while True:
            seen.append(sum(play.machine.alive for play in together))
            assert sum(play.model.in_flight for play in together) <= first.max_connections
            assert sum(play.in_scope for play in together) <= SCOPE
            await anyio.sleep(0.5)

    async def main() -> None:
        async with open_runtime(Settings(seed=0)), anyio.create_task_group() as around:
            around.start_soon(watch)
            async with anyio.create_task_group() as group:
                group.start_soon(one, together[0], 0)
                group.start_soon(one, together[1], later)
            around.cancel_scope.cancel()

    run_virtual(backend, main)
    assert max(seen) <= first.max_subprocesses
    assert max(play.host.peak for play in together) <= first.max_sandboxes
    for apart, play in zip([played("asyncio", plan) for plan in plans], together, strict=True):
        check_nothing_left(play)
        assert outcomes(apart) == outcomes(play)
        assert report(apart.log) == report(play.log)


@settings(max_examples=FEW)
@given(first=plans, second=plans)
def test_36_two_runtimes_in_one_loop_do_not_see_each_other(backend: str, first: WholePlan, second: WholePlan) -> None:
    alone = [played(backend, calm(plan)) for plan in (first, second)]
    beside = [Played(calm(plan)) for plan in (first, second)]

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for play in beside:
                group.start_soon(play.play)

    run_virtual(backend, main)
    for apart, play in zip(alone, beside, strict=True):
        check_nothing_left(play)
        assert apart.ended_at == play.ended_at
        peaks = [(each.host.peak, each.machine.peak, each.model.peak, each.peak_in_scope) for each in (apart, play)]
        assert peaks[0] == peaks[1]
        assert outcomes(apart) == outcomes(play)
        times = [[(s.total_time, s.working_time) for s in each.records] for each in (apart, play)]
        assert times[0] == times[1]


@settings(max_examples=EXAMPLES)
@given(plan=plans, cancelled_after=st.one_of(st.none(), st.integers(0, 20)))
def test_40_working_time_is_between_0_and_the_total_and_no_wait_for_a_place_counts(
    backend: str, plan: WholePlan, cancelled_after: int | None
) -> None:
    for sample in played(backend, plan, cancelled_after).records:
        assert sample.working_time is not None
        assert sample.total_time is not None
        assert 0 <= sample.working_time <= sample.total_time
    many = len(plan.samples) * plan.epochs
    crowd, free = (
        played(backend, calm(plan, max_samples=many, max_total_samples=None, **dict.fromkeys(SIZES[1:], size)))
        for size in (1, many)
    )
    times = [[sample.working_time for sample in play.records] for play in (crowd, free)]
    assert times[0] == pytest.approx(times[1])


@settings(max_examples=EXAMPLES)
@given(plan=plans, budget=st.sampled_from([1, 200, 100_000]))
def test_42_paged_samples_come_in_the_same_order_with_all_they_have(backend: str, plan: WholePlan, budget: int) -> None:
    one = calm(plan, max_samples=1)
    listed, paged = played(backend, one), played(backend, one, paged=budget)
    assert list(listed.started) == list(paged.started)
    assert outcomes(listed) == outcomes(paged)
    crowd = played(backend, calm(plan), paged=budget)
    assert outcomes(listed) == outcomes(crowd)
    assert report(listed.log) == report(crowd.log)
