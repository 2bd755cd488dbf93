"""Models by the role they play: named by the environment, the task, the call; used by tasks, solvers and scorers."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from proctor import Task, eval_async, task
from proctor.cli.app import main
from proctor.dataset import Sample
from proctor.errors import UsageError
from proctor.evaluation import api
from proctor.log import list_eval_logs, read_eval_log
from proctor.model import GenerateConfig, get_model, model_roles
from proctor.solver import TaskState, solver
from proctor.testing import run_virtual


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("PROCTOR_", "INSPECT_")):
            monkeypatch.delenv(name)


@solver
def grading() -> Any:
    async def solve(state: TaskState, generate: Any) -> TaskState:
        state = await generate(state)
        graded = await get_model(role="grader").generate("good?")
        state.metadata["graded by"] = graded.model
        state.metadata["roles"] = sorted(model_roles())
        return state

    return solve


def one(**options: Any) -> Task:
    return Task([Sample("x")], solver=grading(), name="graded", **options)


async def test_a_role_is_played_by_the_model_that_the_call_names(evaluate) -> None:
    [log] = await evaluate(one(), "mock/m", model_roles={"grader": "mock/strict"})
    [sample] = log.samples
    assert sorted(sample.model_usage) == ["mock/m", "mock/strict"]
    assert list(sample.role_usage) == ["grader"]
    assert log.stats.role_usage["grader"] == sample.model_usage["mock/strict"]
    assert log.eval.model_roles["grader"].model == "mock/strict"


async def test_without_the_role_it_is_the_evaluated_model(evaluate) -> None:
    [log] = await evaluate(one(), "mock/m")
    assert list(log.samples[0].model_usage) == ["mock/m"]
    assert log.eval.model_roles is None


async def test_the_call_goes_before_the_task_and_that_before_the_environment(
    evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def grader(task: Task, **options: Any) -> str:
        [log] = await evaluate(task, "mock/m", **options)
        return next(iter(set(log.samples[0].model_usage) - {"mock/m"}))

    monkeypatch.setenv("INSPECT_EVAL_MODEL_ROLE", "grader=mock/environment critic=mock/critic")
    assert await grader(one()) == "mock/environment"
    of_task = one(model_roles={"grader": get_model("mock/task")})
    assert await grader(of_task) == "mock/task"
    assert await grader(of_task, model_roles={"grader": "mock/call"}) == "mock/call"
    [log] = await evaluate(of_task, "mock/m", model_roles={"judge": "mock/judge"})
    assert log.samples[0].metadata["roles"] == ["critic", "grader", "judge"]


async def test_a_role_may_be_a_mapping_or_several_models(evaluate) -> None:
    given = {
        "grader": {"model": "mock/cold", "temperature": 0, "model_args": {"latency": 0.5}},
        "panel": ["mock/a", {"model": "mock/b", "top_p": 0.5}],
    }
    [log] = await evaluate(one(), "mock/m", model_roles=given)
    logged = log.eval.model_roles
    assert (logged["grader"].model, logged["grader"].config.temperature) == ("mock/cold", 0)
    assert logged["grader"].args == {"latency": 0.5}
    assert [each.model for each in logged["panel"]] == ["mock/a", "mock/b"]
    assert log.samples[0].total_time == pytest.approx(0.5)


async def test_the_options_of_the_evaluation_are_not_the_roles(evaluate) -> None:
    seen: list[GenerateConfig] = []

    def answer(_input: Any, _tools: Any, _choice: Any, config: GenerateConfig) -> str:
        seen.append(config)
        return "ok"

    grader = get_model("mock/grader", custom_outputs=answer)
    await evaluate(one(), "mock/m", model_roles={"grader": grader}, temperature=0.7, max_connections=3)
    assert seen == [GenerateConfig()]


async def test_a_task_function_may_ask_for_the_role_when_it_is_made(evaluate) -> None:
    found: list[str] = []

    @task
    def asking() -> Task:
        found.append(str(get_model(role="grader")))
        return one()

    await evaluate(asking, ["mock/m", "mock/n"], model_roles={"grader": "mock/strict"})
    assert found == ["mock/strict", "mock/strict"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"grader": "nobody/m"}, "nobody"),
        ({"grader": "strict"}, "provider/model"),
        ({"grader": 3}, "grader needs a model's name"),
        ({"grader": {"temperature": 0}}, "grader needs a model's name"),
        ({"grader": {"model": "mock/m", "temprature": 0}}, "temprature"),
        ({"grader": []}, "list of models for grader is empty"),
        (["grader"], "model_roles must be a mapping"),
    ],
)
async def test_a_role_that_cannot_be_made_is_refused(evaluate, tmp_path: Path, given: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        await evaluate(one(), "mock/m", model_roles=given)
    assert "(from eval() argument)" in str(caught.value)
    assert not list(tmp_path.glob("logs/*"))


def test_roles_from_the_command_line(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "run", lambda fn, call, signals, backend=backend: run_virtual(backend, fn, call, ()))
    (tmp_path / "t.py").write_text(
        "from proctor import Task, task\nfrom proctor.dataset import Sample\n@task\ndef t():\n"
        "    return Task([Sample('x')])\n"
    )
    roles = ["--model-role", "grader={model: mock/strict, temperature: 0}", "--model-role", "panel=mock/a,mock/b"]
    base = ["eval", "t.py", "--model", "mock/m", "--display", "none", "--async-backend", backend.partition("-")[0]]
    assert main([*base, *roles]) == 0
    [info] = list_eval_logs("logs")
    logged = read_eval_log(info.name).eval.model_roles
    assert (logged["grader"].model, logged["grader"].config.temperature) == ("mock/strict", 0)
    assert [each.model for each in logged["panel"]] == ["mock/a", "mock/b"]


async def test_two_evaluations_at_once_have_roles_of_their_own(tmp_path: Path) -> None:
    import anyio

    found: dict[str, Any] = {}

    async def one_with(name: str) -> None:
        [log] = await eval_async(
            one(), "mock/m", model_roles={"grader": f"mock/{name}"}, display="none", log_dir=str(tmp_path)
        )
        found[name] = read_eval_log(log.location).samples[0].model_usage

    async with anyio.create_task_group() as nursery:
        nursery.start_soon(one_with, "a")
        nursery.start_soon(one_with, "b")
    assert {name: sorted(usage) for name, usage in found.items()} == {
        "a": ["mock/a", "mock/m"], "b": ["mock/b", "mock/m"],
    }  # fmt: skip
