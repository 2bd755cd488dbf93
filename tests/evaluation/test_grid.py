"""Models × tasks × values of the configuration: one run each, a bounded number at once, results in plan order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import Task, eval_async
from proctor.cli.app import main
from proctor.dataset import Sample
from proctor.errors import OptionError
from proctor.evaluation import api
from proctor.evaluation.report import plan_report
from proctor.log import list_eval_logs, read_eval_log
from proctor.model import GenerateConfig, get_model
from proctor.solver import TaskState, solver
from proctor.testing import run_virtual

TEMPERATURES = [0, 0.2, 0.4, 0.6, 0.8, 1.0]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PROCTOR_", "INSPECT_")):
            monkeypatch.delenv(name)


def one(**options: Any) -> Task:
    return Task([Sample("x") for _ in range(2)], name="sums", **options)


async def test_six_temperatures_on_two_models_are_twelve_runs_and_never_more_than_five(evaluate) -> None:
    live: dict[str, int] = {}
    peaks: list[int] = []
    starts: list[str] = []

    @solver
    def noting() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            model = str(state.model)
            if state.sample_id == 1:
                starts.append(model)
            live[model] = live.get(model, 0) + 1
            await anyio.sleep(1)
            state = await generate(state)
            peaks.append(sum(live.values()))
            live[model] -= 1
            return state

        return solve

    seen: set[float | None] = set()

    def answer(_input: Any, _tools: Any, _choice: Any, config: GenerateConfig) -> str:
        seen.add(config.temperature)
        return str(config.temperature)

    models = [get_model(f"mock/{name}", custom_outputs=answer) for name in ("a", "b")]
    logs = await evaluate(one(solver=noting()), models, temperature=TEMPERATURES, max_tasks=5, max_samples=1)
    assert max(peaks) == 5
    assert seen == set(TEMPERATURES)
    told = [(log.eval.model, log.eval.model_generate_config.temperature) for log in logs]
    assert told == [(f"mock/{name}", temperature) for name in ("a", "b") for temperature in TEMPERATURES]
    assert {log.status for log in logs} == {"success"}
    assert len({log.eval.run_id for log in logs}) == 1
    assert len({log.eval.task_id for log in logs}) == 12
    for log in logs:
        assert {sample.output.completion for sample in log.samples} == {str(log.eval.model_generate_config.temperature)}
    # Five places for two models: three of one and two of the other.
    assert sorted(starts[:5]) in (["mock/a"] * 3 + ["mock/b"] * 2, ["mock/a"] * 2 + ["mock/b"] * 3)


async def test_several_lists_multiply_and_the_last_varies_fastest(evaluate) -> None:
    logs = await evaluate(one(), "mock/m", temperature=[0, 1], top_p=[0.5, 0.9], max_tokens=5)
    configs = [log.eval.model_generate_config for log in logs]
    assert [(c.temperature, c.top_p, c.max_tokens) for c in configs] == [
        (0, 0.5, 5), (0, 0.9, 5), (1, 0.5, 5), (1, 0.9, 5),
    ]  # fmt: skip


async def test_a_field_that_is_a_list_is_varied_by_a_list_of_lists(evaluate) -> None:
    [log] = await evaluate(one(), "mock/m", stop_seqs=["a", "b"])
    assert log.eval.model_generate_config.stop_seqs == ["a", "b"]
    logs = await evaluate(one(), "mock/m", stop_seqs=[["a"], ["b", "c"]], extra_body=[{"a": 1}, {"b": 2}])
    configs = [log.eval.model_generate_config for log in logs]
    assert [(c.stop_seqs, c.extra_body) for c in configs] == [
        (["a"], {"a": 1}), (["a"], {"b": 2}), (["b", "c"], {"a": 1}), (["b", "c"], {"b": 2}),
    ]  # fmt: skip


async def test_a_list_of_one_is_its_value(evaluate) -> None:
    [log] = await evaluate(one(), "mock/m", temperature=[0.5])
    assert log.eval.model_generate_config.temperature == 0.5


async def test_a_run_that_fails_leaves_the_others_alone(evaluate) -> None:
    def answer(_input: Any, _tools: Any, _choice: Any, config: GenerateConfig) -> str:
        if config.temperature == 1:
            raise ValueError("too hot")
        return "ok"

    logs = await evaluate(one(), get_model("mock/m", custom_outputs=answer), temperature=[0, 1, 2], max_tasks=3)
    assert [log.status for log in logs] == ["success", "error", "success"]
    assert "too hot" in logs[1].error.message


def test_lists_from_the_command_line(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "run", lambda fn, call, signals, backend=backend: run_virtual(backend, fn, call, ()))
    (tmp_path / "t.py").write_text(
        "from proctor import Task, task\nfrom proctor.dataset import Sample\n"
        "@task\ndef sums():\n    return Task([Sample('x')])\n"
    )
    options = ["--temperature", "0,0.2,0.4", "--reasoning-effort", "low, high", "--display", "none"]
    options += ["--async-backend", backend.partition("-")[0]]
    assert main(["eval", "t.py", "--model", "mock/a,mock/b", "--system-message", "Be brief, please.", *options]) == 0
    logs = [read_eval_log(info.name, header_only=True) for info in list_eval_logs("logs")]
    configs = [log.eval.model_generate_config for log in logs]
    assert len(logs) == 12
    assert sorted({(c.temperature, c.reasoning_effort) for c in configs}) == [
        (t, effort) for t in (0, 0.2, 0.4) for effort in ("high", "low")
    ]
    assert {c.system_message for c in configs} == {"Be brief, please."}


def test_a_list_in_the_environment_holds_where_model_task_and_call_say_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PROCTOR_EVAL_TEMPERATURE", "0,0.5")
    assert len(plan_report(one(), model="mock/m").runs) == 2
    assert len(plan_report(one(), model="mock/m", temperature=1).runs) == 1
    assert len(plan_report(one(), model="mock/m", temperature=[1, 2, 3]).runs) == 3
    assert len(plan_report(one(config=GenerateConfig(temperature=0.1)), model="mock/m").runs) == 1
    own = get_model("mock/own", config=GenerateConfig(temperature=0.1))
    assert [run.varied for run in plan_report(one(), model=[own, "mock/m"]).runs] == [
        {}, {"temperature": 0}, {"temperature": 0.5},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": [0, 0]}, "temperature: 0 is in the list twice"),
        ({"temperature": []}, "temperature: the list of values is empty"),
        ({"temperature": [0, "hot"]}, "temperature: a number is needed"),
        ({"max_connections": [5, 0]}, "max_connections: must be at least 1"),
    ],
)
async def test_a_list_that_makes_no_sense_is_refused(evaluate, options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        await evaluate(one(), "mock/m", **options)
    assert "eval() argument" in str(caught.value)


async def test_runs_are_shown_by_what_the_plan_varies(tmp_path: Path) -> None:
    from proctor import registry

    shown: list[str] = []

    async def show(view: Any) -> None:
        shown.extend(task.name for task in view.tasks)

    registry.register("display", "noting", show)
    await eval_async(one(), "mock/m", temperature=[0, 0.5], display="noting", log_dir=str(tmp_path))
    assert shown == ["sums (temperature=0)", "sums (temperature=0.5)"]
