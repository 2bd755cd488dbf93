"""Invariant 41: killed at any event and resumed, any number of times, a run scores each sample once and loses nothing.

A kill leaves only what was durable in that instant: the run is cancelled there, and whatever its ending still wrote is
taken out of the log again.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import anyio
import attrs
from attrs import define, field, frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor import Epochs, Task, open_runtime
from proctor.actors import Ledger
from proctor.dataset import MemoryDataset, Sample
from proctor.log import EvalLog, EvalSample
from proctor.model import ModelOutput, ModelUsage
from proctor.runtime import Settings
from proctor.scorer import includes
from proctor.solver import TaskState, solver
from proctor.testing import FakeCall, FakeModel, MemoryLogs, run_virtual, simulate

EXAMPLES = max(30, settings.default.max_examples // 5)

Kind = Literal["right", "wrong", "long", "fails", "limited"]
KINDS: tuple[Kind, ...] = ("right", "right", "wrong", "long", "fails", "limited")
TOKENS = 1000


@frozen
class SamplePlan:
    kind: Kind
    latency: int


@frozen
class RunPlan:
    samples: tuple[SamplePlan, ...]
    epochs: int
    max_samples: int
    shuffle: int | None
    commit: float
    kills: tuple[int, ...]
    """Numbers of the kernel's events in each attempt at which it is killed."""


plans = st.builds(
    RunPlan,
    samples=st.lists(st.builds(SamplePlan, st.sampled_from(KINDS), st.integers(0, 3)), min_size=1, max_size=7).map(
        tuple
    ),
    epochs=st.integers(1, 2),
    max_samples=st.integers(1, 4),
    shuffle=st.one_of(st.none(), st.integers(0, 3)),
    commit=st.sampled_from([0.0, 0.1, 1.0]),
    kills=st.lists(st.integers(1, 120), min_size=1, max_size=4).map(tuple),
)


@define(eq=False)
class Played:
    """One run of a plan, with its attempts.

    Attributes:
        started: solvers begun in each attempt. kept: what was finished and durable before each attempt.
    """

    plan: RunPlan
    logs: MemoryLogs = field(init=False)
    started: list[Counter[tuple[Any, int]]] = field(factory=list)
    kept: list[set[tuple[Any, int]]] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.logs = MemoryLogs(commit=self.plan.commit, encoded=True)

    async def play(self, kills: tuple[int, ...] = ()) -> EvalLog:
        for kill in kills:
            await self._attempt(kill)
        found = await self._attempt(None)
        assert found is not None
        return found

    async def _attempt(self, kill: int | None) -> EvalLog | None:
        """Run or resume; None when it was killed."""
        last = self.logs.logs[-1] if self.logs.logs else None
        self.kept.append({(r.id, r.epoch) for r in last.last().values() if r.error is None} if last else set())
        self.started.append(Counter())
        opened, durable, ledger, events = len(self.logs.logs), None, Ledger(), 0
        scope = anyio.CancelScope()

        def listen(event: Any) -> None:
            nonlocal events, durable
            events += 1
            if events == kill:
                durable = len(self.logs.logs[-1].records) if len(self.logs.logs) > opened else -1
                scope.cancel()

        ledger.subscribe(listen)
        found: list[EvalLog] = []
        with scope:
            async with open_runtime(Settings(seed=0), ledger=ledger):
                found = await simulate(
                    self._task(), self._model(), logs=self.logs, resume=last is not None, **self._options()
                )
        if durable is None:
            return found[0]
        if durable >= 0:
            self.logs.logs[-1].kill(durable)
        else:  # nothing was open yet
            del self.logs.logs[opened:]
        return None

    def _task(self) -> Task:
        samples = [Sample(f"{n}", target="right", id=f"s{n}") for n in range(len(self.plan.samples))]
        return Task(MemoryDataset(samples), solver=self._solver(), scorer=includes())

    def _options(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "max_samples": plan.max_samples,
            "epochs": Epochs(plan.epochs, ["mean", "max"]),
            "token_limit": 2 * TOKENS,
            "fail_on_error": False,
            "sample_shuffle": plan.shuffle,
        }

    def _solver(self) -> Any:
        started = self.started[-1]

        @solver
        def planned():
            async def solve(state: TaskState, generate: Any) -> TaskState:
                started[state.sample_id, state.epoch] += 1
                kind = self.plan.samples[int(state.input_text)].kind
                state = await generate(state)
                if kind == "fails":
                    raise ValueError(kind)
                for _ in range(9 if kind == "limited" else 0):
                    state = await generate(state)
                return state

            return solve

        return planned()

    def _model(self) -> Any:
        def of(call: FakeCall) -> SamplePlan:
            return self.plan.samples[int(call.input[0].text)]

        def answer(call: FakeCall) -> ModelOutput:
            kind = of(call).kind
            text = "wrong" if kind == "wrong" else "right " * 400 if kind == "long" else "right"
            used = TOKENS if kind == "limited" else 1
            output = ModelOutput.from_content("planned", text)
            output.usage = ModelUsage(output_tokens=used, total_tokens=used)
            return output

        return FakeModel(name="planned", answer=answer, latency=lambda call: of(call).latency).model()


def outcome(sample: EvalSample) -> tuple[Any, ...]:
    """What became of a sample, without times and ids."""
    error = None if sample.error is None else sample.error.message
    scores = None if sample.scores is None else {name: score.value for name, score in sample.scores.items()}
    return (sample.id, sample.epoch, error, str(scores), None if sample.limit is None else sample.limit.type)


def report(log: EvalLog) -> str:
    usage = {name: attrs.asdict(used) for name, used in sorted(log.stats.model_usage.items())}
    ids = log.eval.dataset.sample_ids
    return repr((log.status, log.results, log.reductions, usage, ids, log.eval.config))


@settings(max_examples=EXAMPLES)
@given(plan=plans)
def test_41_killed_at_any_event_and_resumed_it_comes_to_the_same(backend: str, plan: RunPlan) -> None:
    whole, broken = Played(plan), Played(plan)
    expected = run_virtual(backend, whole.play)
    found = run_virtual(backend, broken.play, plan.kills)
    for kept, started in zip(broken.kept, broken.started, strict=True):
        assert not kept & set(started), "a finished sample ran again"
        assert all(count == 1 for count in started.values())
    for before, after in zip(broken.kept, broken.kept[1:], strict=False):
        assert before <= after, "a finished sample was lost"
    assert [outcome(s) for s in found.samples or ()] == [outcome(s) for s in expected.samples or ()]
    assert report(found) == report(expected)
