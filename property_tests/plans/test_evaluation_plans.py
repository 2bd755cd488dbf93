"""Invariants 30, 32, 33, 36 and 40 on whole evaluations: random samples, limits, faults and cancellations.

Everything is the real thing but time, the model's answers and the files: logs are kept in memory, so that an example
takes milliseconds. The last property plays the same plans on real log files.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import anyio
import attrs
import pytest
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor import Epochs, Task, eval_async, open_runtime
from proctor.dataset import MemoryDataset, Sample
from proctor.log import EvalLog, EvalSample, read_eval_log
from proctor.runtime import Settings
from proctor.scorer import includes
from proctor.solver import TaskState, solver
from proctor.testing import FakeCall, FakeModel, Fault, FaultPlan, MemoryLogs, run_virtual, simulate
from proctor.util import LimitExceededError, turn_limit

EXAMPLES = max(30, settings.default.max_examples // 5)
"""Each plays a whole evaluation, some two."""
FEW = max(10, settings.default.max_examples // 20)

Kind = Literal["right", "wrong", "fails", "fails once", "too slow", "stray", "limited", "limited block"]


@frozen
class SamplePlan:
    kind: Kind
    before: int
    latency: int


@frozen
class EvalPlan:
    samples: tuple[SamplePlan, ...]
    max_samples: int
    max_connections: int
    epochs: int
    fail_on_error: bool | float
    retries: int
    cleanup: int | None
    commit: float = 0.0
    buffer: int = 64


KINDS: tuple[Kind, ...] = (
    "right", "right", "wrong", "fails", "fails once", "too slow", "stray", "limited", "limited block",
)  # fmt: skip
sample_plans = st.builds(SamplePlan, st.sampled_from(KINDS), st.integers(0, 3), st.integers(0, 3))
plans = st.builds(
    EvalPlan,
    samples=st.lists(sample_plans, min_size=1, max_size=7).map(tuple),
    max_samples=st.integers(1, 4),
    max_connections=st.integers(1, 3),
    epochs=st.integers(1, 2),
    fail_on_error=st.sampled_from([True, False, 0.3, 2]),
    retries=st.integers(0, 1),
    cleanup=st.one_of(st.none(), st.integers(0, 2)),
    commit=st.sampled_from([0.0, 0.1, 1.0]),
    buffer=st.sampled_from([1, 2, 64]),
)

BUDGET = 5
"""Seconds that an ending may take."""
TIME_LIMIT = 60
"""Seconds; more than any sample takes that is not meant to hit it, its waits included."""
TOKENS = 1000
"""A limited sample's calls use as many."""


@define(eq=False)
class Played:
    """One evaluation of a plan: what started when, what it left."""

    plan: EvalPlan
    faults: FaultPlan = field(factory=FaultPlan)
    started: dict[tuple[Any, int], float] = field(factory=dict)
    log: EvalLog | None = None
    began_at: float = 0.0
    ended_at: float = 0.0
    model: FakeModel = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.model = FakeModel(name="planned", answer=self._answer, latency=self._latency, faults=self.faults)

    async def play(self, cancel_at: float | None = None, **options: Any) -> None:
        logs = MemoryLogs(commit=self.plan.commit, buffer=self.plan.buffer, encoded=True, faults=self.faults)
        self.began_at = anyio.current_time()
        with anyio.move_on_after(cancel_at):
            await simulate(
                self.task(), self.model.model(), logs=logs, faults=self.faults, **{**self.options(), **options}
            )
        self.ended_at = anyio.current_time()
        assert len(logs.logs) <= 1
        self.log = logs.logs[0].read() if logs.logs else None

    async def play_on_files(self, folder: str, cancel_at: float | None = None) -> None:
        with anyio.move_on_after(cancel_at):
            await eval_async(self.task(), self.model.model(), display="none", log_dir=folder, **self.options())
        files = list(Path(folder).glob("*.eval"))
        assert len(files) <= 1
        if files:
            self.log = read_eval_log(str(files[0]))
        assert not list(Path(folder).glob("*.wal"))

    def task(self) -> Task:
        return Task(
            MemoryDataset([Sample(f"{n}", target="right") for n in range(len(self.plan.samples))]),
            solver=self._solver(),
            cleanup=self._cleanup if self.plan.cleanup is not None else None,
            scorer=includes(),
        )

    def options(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "max_samples": plan.max_samples,
            "max_connections": plan.max_connections,
            "epochs": Epochs(plan.epochs),
            "time_limit": TIME_LIMIT,
            "token_limit": 2 * TOKENS,
            "fail_on_error": plan.fail_on_error,
            "retry_on_error": plan.retries,
        }

    def _of(self, call: FakeCall) -> SamplePlan:
        return self.plan.samples[int(call.input[0].text)]

    def _answer(self, call: FakeCall) -> Any:
        from proctor.model import ModelOutput, ModelUsage

        plan = self._of(call)
        output = ModelOutput.from_content("planned", "wrong" if plan.kind == "wrong" else "right")
        used = TOKENS if plan.kind == "limited" else 1
        output.usage = ModelUsage(output_tokens=used, total_tokens=used)
        return output

    def _latency(self, call: FakeCall) -> float:
        return self._of(call).latency

    async def _cleanup(self, state: TaskState) -> None:
        await anyio.sleep(self.plan.cleanup or 0)

    def _solver(self) -> Any:
        tries: Counter[tuple[Any, int]] = Counter()

        @solver
        def planned():
            async def solve(state: TaskState, generate: Any) -> TaskState:
                key = (state.sample_id, state.epoch)
                tries[key] += 1
                if tries[key] == 1:
                    self.started[key] = anyio.current_time()
                plan = self.plan.samples[int(state.input_text)]
                await anyio.sleep(plan.before)
                state = await generate(state)
                if plan.kind == "fails" or (plan.kind == "fails once" and tries[key] == 1):
                    raise ValueError(plan.kind)
                if plan.kind == "too slow":
                    await anyio.sleep_forever()
                if plan.kind == "stray":
                    await _leave_one_behind(state, generate)
                if plan.kind == "limited":
                    for _ in range(9):
                        state = await generate(state)
                if plan.kind == "limited block":
                    with pytest.raises(LimitExceededError), turn_limit(1):
                        for _ in range(9):
                            state = await generate(state)
                return state

            return solve

        return planned()


async def _leave_one_behind(state: TaskState, generate: Any) -> None:
    """One of two calls fails at once and the other one is cancelled in the middle of its own."""
    from proctor.solver.collect import collect

    async def fails() -> None:
        raise KeyError("sibling")

    async def calls() -> None:
        await generate(state)

    with pytest.raises(KeyError):
        await collect(fails(), calls())


def outcome(sample: EvalSample) -> tuple[Any, ...]:
    """What became of a sample, without times and ids."""
    error = None if sample.error is None else sample.error.message
    scores = None if sample.scores is None else {name: score.value for name, score in sample.scores.items()}
    limit = None if sample.limit is None else sample.limit.type
    retries = [retry.message for retry in sample.error_retries or ()]
    return (sample.id, sample.epoch, error, str(scores), limit, retries, sample.turn_count, len(sample.messages))


def played(backend: str, plan: EvalPlan, cancel_at: float | None = None, **options: Any) -> Played:
    play = Played(plan)
    run_virtual(backend, lambda: play.play(cancel_at, **options))
    return play


def is_cancelled(sample: EvalSample) -> bool:
    return sample.error is not None and sample.error.message.startswith("CancelledError(")


def check_one_record_each(play: Played) -> None:
    if play.log is None:
        assert not play.started
        return
    recorded = [(sample.id, sample.epoch) for sample in play.log.samples or ()]
    # A sample may be cancelled after it got its place and before its first solver has begun.
    assert len(set(recorded)) == len(recorded)
    assert set(play.started) <= set(recorded)
    assert all(is_cancelled(s) for s in play.log.samples or () if (s.id, s.epoch) not in play.started)
    assert play.log.status != "started"
    if play.log.status == "success":
        assert len(recorded) == len(play.plan.samples) * play.plan.epochs
        assert not any(is_cancelled(s) for s in play.log.samples or ())


@settings(max_examples=EXAMPLES)
@given(plan=plans, cancel_at=st.one_of(st.none(), st.integers(0, 12)))
def test_32_every_sample_that_started_has_exactly_one_record(
    backend: str, plan: EvalPlan, cancel_at: float | None
) -> None:
    check_one_record_each(played(backend, plan, cancel_at))


@settings(max_examples=EXAMPLES)
@given(plan=plans, k=st.integers(1, 150))
def test_32_whatever_await_it_is_cancelled_at(backend: str, plan: EvalPlan, k: int) -> None:
    play = Played(plan, FaultPlan(cancel_at=k))
    run_virtual(backend, play.play)
    check_one_record_each(play)


planned_faults = st.lists(
    st.builds(
        Fault,
        st.sampled_from(["setup", "solver", "model", "scorer", "cleanup"]),
        st.integers(1, 7),
        st.sampled_from([None, 1, 2]),
        st.sampled_from([None, 1]),
    ),
    max_size=6,
).map(tuple)


@settings(max_examples=EXAMPLES)
@given(plan=plans, faults=planned_faults, k=st.one_of(st.none(), st.integers(1, 150)))
def test_32_wherever_samples_fail(backend: str, plan: EvalPlan, faults: tuple[Fault, ...], k: int | None) -> None:
    play = Played(plan, FaultPlan(faults, cancel_at=k))
    run_virtual(backend, play.play)
    if play.log is not None:
        recorded = [(sample.id, sample.epoch) for sample in play.log.samples or ()]
        assert len(set(recorded)) == len(recorded)
        assert set(play.started) <= set(recorded)


@settings(max_examples=EXAMPLES)
@given(plan=plans, cancel_at=st.integers(0, 12))
def test_30_after_a_cancellation_nothing_starts_and_all_ends_within_the_budget(
    backend: str, plan: EvalPlan, cancel_at: float
) -> None:
    play = played(backend, plan, cancel_at)
    assert play.ended_at <= cancel_at + BUDGET
    assert all(at <= cancel_at for at in play.started.values())


@settings(max_examples=EXAMPLES)
@given(plan=plans, drain_at=st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0]))
def test_30_after_a_drain_nothing_starts_and_what_runs_is_finished(
    backend: str, plan: EvalPlan, drain_at: float
) -> None:
    plan = attrs.evolve(plan, fail_on_error=False)
    play = played(backend, plan, max_run_time=drain_at)
    assert play.log is not None
    assert all(at <= drain_at for at in play.started.values())
    assert not any(is_cancelled(sample) for sample in play.log.samples or ())
    check_one_record_each(play)
    left_out = len(play.log.samples or ()) < len(plan.samples) * plan.epochs
    assert play.log.status == ("cancelled" if left_out else "success")
    assert (play.log.error is not None and "max_run_time" in play.log.error.message) == left_out
    alone = {outcome(s)[:2]: outcome(s) for s in played("asyncio", plan).log.samples or ()}  # type: ignore[union-attr]
    assert all(outcome(sample) == alone[sample.id, sample.epoch] for sample in play.log.samples or ())


@settings(max_examples=EXAMPLES)
@given(plan=plans, limits=st.tuples(st.integers(1, 4), st.integers(1, 3)))
def test_33_outcomes_do_not_depend_on_limits_timing_or_backend(
    backend: str, plan: EvalPlan, limits: tuple[int, int]
) -> None:
    calm = attrs.evolve(plan, fail_on_error=False, max_samples=1, max_connections=1)
    other = attrs.evolve(
        calm,
        max_samples=limits[0],
        max_connections=limits[1],
        commit=1.0 - plan.commit,
        samples=tuple(attrs.evolve(s, before=s.before + 1, latency=3 - s.latency) for s in plan.samples),
    )
    first, second = played("asyncio", calm), played(backend, other)
    assert first.log is not None
    assert second.log is not None
    assert [outcome(s) for s in first.log.samples or ()] == [outcome(s) for s in second.log.samples or ()]
    assert report(first.log) == report(second.log)


def report(log: EvalLog) -> str:
    """The results, as text: a metric of nothing is NaN, which equals nothing."""
    usage = {name: attrs.asdict(used) for name, used in sorted(log.stats.model_usage.items())}
    return repr((log.status, log.results, log.reductions, usage))


@settings(max_examples=EXAMPLES)
@given(first=plans, second=plans, later=st.integers(0, 4))
def test_36_two_evaluations_in_one_runtime_share_one_limit(
    backend: str, first: EvalPlan, second: EvalPlan, later: int
) -> None:
    """One model in both: never more calls at once than the stricter asks for while it runs; outcomes as if alone."""
    calm = [attrs.evolve(plan, fail_on_error=False) for plan in (first, second)]
    alone = [played("asyncio", plan) for plan in calm]
    together = [Played(plan) for plan in calm]
    seen: list[tuple[int, int]] = []
    running: list[int] = []

    async def one(play: Played, wait: int) -> None:
        await anyio.sleep(wait)
        running.append(play.plan.max_connections)
        await play.play()
        running.remove(play.plan.max_connections)

    def in_flight(count: Callable[[], int]) -> None:
        for play in together:
            answer = play.model.answer
            assert callable(answer)

            def noting(call: FakeCall, answer: Any = answer) -> Any:
                seen.append((count(), min(running)))
                return answer(call)

            play.model.answer = noting

    async def main() -> None:
        in_flight(lambda: sum(play.model.in_flight for play in together))
        async with open_runtime(Settings(seed=0)), anyio.create_task_group() as group:
            group.start_soon(one, together[0], 0)
            group.start_soon(one, together[1], later)

    run_virtual(backend, main)
    strictest = min(plan.max_connections for plan in calm)
    assert all(count <= max(plan.max_connections for plan in calm) for count, _ in seen)
    assert all(count <= limit for count, limit in seen if later == 0 or limit > strictest)
    for apart, shared in zip(alone, together, strict=True):
        assert apart.log is not None
        assert shared.log is not None
        assert [outcome(s) for s in apart.log.samples or ()] == [outcome(s) for s in shared.log.samples or ()]
        assert report(apart.log) == report(shared.log)


@settings(max_examples=FEW)
@given(first=plans, second=plans)
def test_36_two_runtimes_in_one_loop_do_not_see_each_other(backend: str, first: EvalPlan, second: EvalPlan) -> None:
    calm = [attrs.evolve(plan, fail_on_error=False) for plan in (first, second)]
    alone = [played(backend, plan) for plan in calm]
    beside = [Played(plan) for plan in calm]

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for play in beside:
                group.start_soon(play.play)

    run_virtual(backend, main)
    for apart, play in zip(alone, beside, strict=True):
        assert apart.ended_at == play.ended_at
        assert apart.model.peak == play.model.peak
        assert apart.log is not None
        assert play.log is not None
        assert [outcome(s) for s in apart.log.samples or ()] == [outcome(s) for s in play.log.samples or ()]
        times = [[(s.total_time, s.working_time) for s in log.samples or ()] for log in (apart.log, play.log)]
        assert times[0] == times[1]


@settings(max_examples=EXAMPLES)
@given(plan=plans, cancel_at=st.one_of(st.none(), st.integers(0, 12)))
def test_40_the_working_time_of_every_record_is_between_0_and_its_total(
    backend: str, plan: EvalPlan, cancel_at: float | None
) -> None:
    play = played(backend, plan, cancel_at)
    for sample in (play.log.samples if play.log is not None else None) or ():
        assert sample.working_time is not None
        assert sample.total_time is not None
        assert 0 <= sample.working_time <= sample.total_time


@settings(max_examples=EXAMPLES)
@given(plan=plans)
def test_40_waiting_for_a_connection_is_no_work(backend: str, plan: EvalPlan) -> None:
    """A sample works for the same time, however many others it shares the connections with."""
    kinds: dict[Kind, Kind] = {"too slow": "right", "stray": "wrong"}
    samples = tuple(attrs.evolve(s, kind=kinds.get(s.kind, s.kind)) for s in plan.samples)
    calm = attrs.evolve(plan, fail_on_error=False, samples=samples)
    free = attrs.evolve(calm, max_connections=len(samples) * calm.epochs)
    times = []
    for each in (played(backend, calm), played(backend, free)):
        assert each.log is not None
        times.append([sample.working_time for sample in each.log.samples or ()])
    assert times[0] == pytest.approx(times[1])


@settings(max_examples=FEW)
@given(plan=plans, cancel_at=st.one_of(st.none(), st.integers(0, 12)))
def test_32_in_real_log_files(backend: str, plan: EvalPlan, cancel_at: float | None) -> None:
    play = Played(plan)
    with tempfile.TemporaryDirectory() as folder:
        run_virtual(backend, play.play_on_files, folder, cancel_at)
    check_one_record_each(play)
