"""What exists of a run at a time, and what its report may depend on."""

from __future__ import annotations

import gc
import random
from pathlib import Path
from typing import Any

import attrs
import pytest

from proctor import Epochs, Task
from proctor.cli.app import main
from proctor.dataset import Sample
from proctor.evaluation.samplerun import SampleRun
from proctor.log import EvalLog
from proctor.scorer import Score, includes, mean, scorer, stderr
from proctor.solver import TaskState, generate, solver
from proctor.testing import FakeModel, FakeSandbox, run_virtual, simulate


async def test_a_sample_and_its_state_exist_only_while_it_runs() -> None:
    """Five hundred samples five times, twenty at once; some of them look at what there is."""
    running, counts = 20, []

    @solver
    def looking() -> Any:
        seen = 0

        async def solve(state: TaskState, generate: Any) -> TaskState:
            nonlocal seen
            seen += 1
            if seen % 250 == 50:
                gc.collect()
                alive = [type(each) for each in gc.get_objects() if type(each) in {TaskState, SampleRun}]
                counts.append((alive.count(TaskState), alive.count(SampleRun)))
            return await generate(state)

        return solve

    task = Task([Sample("x") for _ in range(500)], solver=looking(), epochs=5)
    fake = FakeModel(latency=1.0, max_connections=running)
    [log] = await simulate(task, fake.model(), max_samples=running)
    assert log.status == "success"
    assert fake.calls == 2500
    assert len(counts) == 10
    assert all(states <= running and runs <= running + 2 for states, runs in counts), counts


@scorer(metrics=[mean(), stderr()])
def drawn() -> Any:
    async def score(state: TaskState, target: Any) -> Score:
        return Score(value=len(state.input_text) % 7 + state.epoch / 3)

    return score


def report(backend: str, seed: int) -> tuple[str, str]:
    """Everything that a run found, and the order in which its samples ended."""
    chance = random.Random(seed)  # a schedule, no secret
    ended: list[Any] = []

    async def tidy(state: TaskState) -> None:
        ended.append((state.sample_id, state.epoch))

    async def play() -> EvalLog:
        host = FakeSandbox(start=lambda: chance.random(), removal=lambda: chance.random())
        fake = FakeModel(answer="yes", latency=lambda call: chance.expovariate(1.0), max_connections=9)
        data = [Sample("y" * n, target="yes" if n % 3 else "no") for n in range(30)]
        task = Task(data, solver=generate(), scorer=[includes(), drawn()], sandbox=host.spec, cleanup=tidy)
        limits = {"max_samples": chance.randint(2, 12), "max_sandboxes": chance.randint(2, 12)}
        [log] = await simulate(task, fake.model(), epochs=Epochs(3, "median"), **limits)  # type: ignore[arg-type]
        return log

    log = run_virtual(backend, play)
    found = [(s.id, s.epoch, attrs.asdict(score)) for s in log.samples or () for score in (s.scores or {}).values()]
    usage = [(name, attrs.asdict(used)) for name, used in log.stats.model_usage.items()]
    return repr((log.status, log.results, log.reductions, usage, found)), repr(ended)


def test_random_latencies_and_limits_give_one_report(backend: str) -> None:
    reports, orders = zip(*(report(backend, seed) for seed in range(20)), strict=True)
    assert len(set(reports)) == 1
    assert len(set(orders)) > 10, "they did end in different orders"
    assert report("asyncio", 0)[0] == reports[0]


@pytest.mark.parametrize("value", ["raise KeyError('rubric')", "return Score(value=float('nan'))"])
def test_a_scorer_that_fails_is_exit_code_1_and_one_that_says_nan_is_its_own_word(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "failing.py").write_text(
        "from proctor import Task, task\n"
        "from proctor.dataset import Sample\n"
        "from proctor.scorer import Score, mean, scorer\n"
        "@scorer(metrics=[mean()])\n"
        "def broken():\n"
        "    async def score(state, target):\n"
        f"        {value}\n"
        "    return score\n"
        "@task\n"
        "def failing():\n"
        "    return Task([Sample('x', target='x')], scorer=broken())\n"
    )
    monkeypatch.chdir(tmp_path)
    code = main(["eval", "failing.py", "--model", "mock/m", "--display", "plain"])
    said = capsys.readouterr()
    assert code == (1 if "raise" in value else 0)
    assert ("KeyError" in said.out + said.err) == ("raise" in value)
