"""Every limit holds at the model's side, from whichever place it was set: Python, command line, environment."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define

from proctor import Task, eval_async, open_runtime
from proctor.cli.app import main
from proctor.dataset import Sample
from proctor.errors import OptionError
from proctor.evaluation import api
from proctor.evaluation.report import plan_report
from proctor.model import ModelAPI, ModelOutput, modelapi
from proctor.runtime import Settings
from proctor.solver import TaskState, solver
from proctor.testing import run_virtual


@define
class Server:
    """What the model's side sees."""

    running: int = 0
    peak: int = 0
    calls: int = 0


SERVER = Server()


@modelapi("counted")
class CountedAPI(ModelAPI):
    """Answers after a second and counts who waits meanwhile; ten connections unless told otherwise."""

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> ModelOutput:
        SERVER.running += 1
        SERVER.calls += 1
        SERVER.peak = max(SERVER.peak, SERVER.running)
        try:
            await anyio.sleep(1)
        finally:
            SERVER.running -= 1
        return ModelOutput.from_content(self.model_name, "ok")


TASKS = """
from proctor import Task, task
from proctor.dataset import Sample

def made():
    return Task([Sample("x") for _ in range(30)])

@task
def one():
    return made()

@task
def two():
    return made()

@task
def three():
    return made()
"""

WAYS = ("eval_async()", "eval()", "command line", "environment", "Inspect's environment")
Way = Callable[..., Server]


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith(("PROCTOR_", "INSPECT_")):
            monkeypatch.delenv(name)
    SERVER.running = SERVER.peak = SERVER.calls = 0


@pytest.fixture
def run(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Way:
    """Evaluate a file of three tasks of thirty samples, with options given in one of the ways."""
    file = tmp_path / "tasks.py"
    file.write_text(TASKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(api, "run", lambda fn, call, signals, backend=backend: run_virtual(backend, fn, call, ()))

    def run(way: str, spec: str = "", **options: Any) -> Server:
        tasks, model = f"{file}{spec}", "counted/m"
        if way in {"eval_async()", "eval()"}:
            everywhere = {"display": "none", "log_dir": "logs", **options}
            if way == "eval()":
                api.eval(tasks, model, async_backend=backend, **everywhere)
            else:
                run_virtual(backend, lambda: eval_async(tasks, model, **everywhere))
        elif way == "command line":
            flags = [f"--{name.replace('_', '-')}={written(value)}" for name, value in options.items()]
            flags += ["--async-backend", backend.partition("-")[0], "--display", "none"]
            assert main(["eval", tasks, "--model", model, *flags]) == 0
        else:
            prefix = "PROCTOR_EVAL_" if way == "environment" else "INSPECT_EVAL_"
            for name, value in {**options, "model": model}.items():
                monkeypatch.setenv(prefix + name.upper(), written(value))
            run_virtual(backend, lambda: eval_async(tasks, display="none"))
        return SERVER

    return run


def written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("number", [1, 7, 20])
def test_max_connections(run: Way, way: str, number: int) -> None:
    server = run(way, "@one", max_connections=number)
    assert (server.peak, server.calls) == (number, 30)


@pytest.mark.parametrize("way", WAYS)
def test_adaptive_connections_off_is_the_providers_number(run: Way, way: str) -> None:
    assert run(way, "@one", adaptive_connections=False).peak == 10


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bounds", [4, "2-4", "1-2-4"])
def test_a_maximum_of_adaptive_connections_is_never_passed(run: Way, way: str, bounds: Any) -> None:
    server = run(way, "@one", adaptive_connections=bounds)
    assert 1 <= server.peak <= 4
    assert server.calls == 30


@pytest.mark.parametrize("way", WAYS)
def test_max_samples(run: Way, way: str) -> None:
    assert run(way, "@one", max_samples=3, max_connections=50).peak == 3


@pytest.mark.parametrize("way", WAYS)
def test_max_tasks(run: Way, way: str) -> None:
    server = run(way, max_tasks=2, max_samples=1, max_connections=50)
    assert (server.peak, server.calls) == (2, 90)


@pytest.mark.parametrize("way", WAYS)
def test_max_total_samples(run: Way, way: str) -> None:
    server = run(way, max_total_samples=5, max_tasks=3, max_samples=4, max_connections=50)
    assert (server.peak, server.calls) == (5, 90)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "option",
    [
        "max_connections", "max_samples", "max_tasks", "max_total_samples", "max_subprocesses", "max_sandboxes",
        "adaptive_connections",
    ],
)  # fmt: skip
def test_a_limit_below_one_is_refused_at_once_with_its_name_and_origin(
    run: Way, way: str, option: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    origin = {
        "environment": f"environment variable PROCTOR_EVAL_{option.upper()}",
        "Inspect's environment": f"environment variable INSPECT_EVAL_{option.upper()}",
    }.get(way, "eval() argument")
    if way == "command line":
        assert main(["eval", "tasks.py", f"--{option.replace('_', '-')}=0", "--model", "counted/m"]) == 2
        told, origin = capsys.readouterr().err, f"--{option.replace('_', '-')}"
        if option == "adaptive_connections":
            option, origin = "adaptive_connections", "command line"
    else:
        with pytest.raises(OptionError) as caught:
            run(way, "@one", **{option: 0})
        told = str(caught.value)
    assert option.replace("_", "-") in told.replace("_", "-")
    assert origin in told
    assert "at least 1" in told
    assert SERVER.calls == 0
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("max_samples", "3", "must be a number"), ("max_samples", True, "must be a number"),
        ("max_tasks", 1.5, "whole number"), ("max_subprocesses", "many", "max_subprocesses must be a number"),
        ("max_sandboxes", 2.5, "whole number"), ("max_total_samples", [1], "max_total_samples must be a number"),
        ("max_connections", "3", "max_connections"), ("max_connections", 2.5, "max_connections"),
        ("adaptive_connections", "4-", "adaptive_connections"), ("adaptive_connections", 1.5, "adaptive_connections"),
        ("requests_per_minute", -1, "at least 0"), ("tokens_per_minute", "90k", "must be a number"),
        ("requests_per_minute", float("inf"), "finite"), ("runtime_seed", 1.5, "whole number"),
        ("score", 1, "True or False"), ("tags", "a,b", "list of texts"), ("metadata", ["a"], "mapping"),
        ("sample_shuffle", "yes", "seed"), ("sample_id", [], "sample_id"), ("sample_id", 1.5, "sample_id"),
        ("async_backend", "curio", "asyncio, trio"), ("log_buffer", 0, "at least 1"), ("message_limit", 2.5, "whole"),
        ("max_conections", 3, "max_connections"), ("max_task", 3, "max_tasks"),
    ],
)  # fmt: skip
def test_a_wrong_type_or_name_is_refused_before_anything_runs(
    tmp_path: Path, option: str, value: Any, words: str
) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        api.eval(Task([Sample("x")]), "counted/m", log_dir=str(tmp_path / "logs"), display="none", **{option: value})
    assert SERVER.calls == 0
    if not words.startswith("max_conn") or option == "max_connections":
        assert "eval() argument" in str(caught.value) or option == "max_task"
    assert not (tmp_path / "logs").exists()


async def test_no_quota_is_the_only_zero_that_a_limit_takes(tmp_path: Path) -> None:
    task = Task([Sample("x")])
    logs = await eval_async(
        task, "counted/m", requests_per_minute=0, tokens_per_minute=0, display="none", log_dir=str(tmp_path)
    )
    assert [log.status for log in logs] == ["success"]


@pytest.mark.parametrize("way", ["Python", "command line", "environment"])
def test_the_limits_of_the_runtime_reach_its_settings(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sandboxes and child processes are held to is the runtime's; the plan shows it as it will be."""
    numbers = {"max_subprocesses": 3, "max_sandboxes": 4, "max_total_samples": 5}
    source = {"Python": "eval() argument", "command line": "command line"}
    arguments: dict[str, Any] = dict(numbers) if way == "Python" else {}
    if way == "command line":
        from proctor.runtime.settings import Resolved

        arguments = {name: Resolved(value, "command line") for name, value in numbers.items()}
    elif way == "environment":
        for name, value in numbers.items():
            monkeypatch.setenv(f"PROCTOR_EVAL_{name.upper()}", str(value))
    found = plan_report(Task([Sample("x")]), model="counted/m", **arguments)
    limits = {limit.name: (limit.value, limit.source) for limit in found.limits}
    for name, value in numbers.items():
        assert limits[name] == (value, source.get(way, f"environment variable PROCTOR_EVAL_{name.upper()}"))


async def test_evaluations_in_one_runtime_share_its_samples(tmp_path: Path) -> None:
    async def one(count: int, **options: Any) -> None:
        await eval_async(
            Task([Sample("x") for _ in range(count)]), "counted/m", max_connections=50, display="none",
            log_dir=str(tmp_path), **options,
        )  # fmt: skip

    async with open_runtime(Settings(max_total_samples=6)) as runtime:
        async with anyio.create_task_group() as nursery:
            nursery.start_soon(one, 20)
            nursery.start_soon(one, 20)
        assert SERVER.peak == 6
        SERVER.peak = 0
        await one(20, max_total_samples=4)
        assert SERVER.peak == 4
        assert runtime.samples.limit == 6
        async with anyio.create_task_group() as nursery:
            for asked in (5, 3):
                nursery.start_soon(lambda asked=asked: one(10, max_total_samples=asked))
            await anyio.sleep(0.5)
            assert runtime.samples.limit == 3
        assert runtime.samples.limit == 6


async def test_places_of_the_runtime_are_shared_fairly_between_tasks(tmp_path: Path) -> None:
    running: dict[str, int] = {}
    seen: list[dict[str, int]] = []

    @solver
    def noting(name: str) -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            running[name] = running.get(name, 0) + 1
            await anyio.sleep(0.5)
            seen.append(dict(running))
            await anyio.sleep(0.5)
            running[name] -= 1
            return state

        return solve

    tasks = [Task([Sample("x") for _ in range(40)], solver=noting(name), name=name) for name in ("a", "b")]
    await eval_async(
        tasks, "counted/m", max_tasks=2, max_samples=20, max_total_samples=8, display="none", log_dir=str(tmp_path)
    )
    # The one whose log was open first had all the places of the first second; both have samples for the next six.
    steady = [each for each in seen if sum(each.values()) == 8][16:56]
    assert len(steady) == 40
    assert all(abs(each["a"] - each["b"]) <= 2 for each in steady)


async def test_an_evaluation_inside_a_sample_needs_no_second_place(tmp_path: Path) -> None:
    """With one place in all, the sample that holds it must not wait for itself."""

    @solver
    def evaluating() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            inner = Task([Sample("y") for _ in range(3)])
            [log] = await eval_async(inner, "counted/inner", display="none", log_dir=str(tmp_path))
            assert log.status == "success"
            return state

        return solve

    async with open_runtime(Settings(max_total_samples=1)):
        [log] = await eval_async(
            Task([Sample("x"), Sample("x")], solver=evaluating()), "counted/m", display="none", log_dir=str(tmp_path)
        )
    assert log.status == "success"
    assert SERVER.calls == 6


async def test_a_seed_is_chosen_when_a_runtime_is_opened(tmp_path: Path) -> None:
    async def ids(**options: Any) -> str:
        [log] = await eval_async(Task([Sample("x")]), "counted/m", display="none", log_dir=str(tmp_path), **options)
        return log.eval.run_id

    assert await ids(runtime_seed=7) == await ids(runtime_seed=7) != await ids(runtime_seed=8)
    assert await ids() != await ids()
    assert await ids(seed=7) != await ids(seed=7), "the seed of the model's sampling is another one"
    async with open_runtime(Settings(seed=7)):
        await ids(runtime_seed=7)
        with pytest.raises(OptionError, match="joins a runtime"):
            await ids(runtime_seed=8)
