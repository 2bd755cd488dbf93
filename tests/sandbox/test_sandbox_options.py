"""Sandboxes asked for from every side: a task, Python, the environment, the command line; and what a plan says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor import Task, eval, open_runtime
from proctor.dataset import Sample
from proctor.errors import OptionError, UsageError
from proctor.evaluation.report import plan_report
from proctor.log.spec import SandboxEnvironmentSpec
from proctor.runtime import Settings
from proctor.solver import TaskState, solver
from proctor.testing import FakeModel, FakeSandbox, simulate
from proctor.util import sandbox


@solver
def works() -> Any:
    async def solve(state: TaskState, generate: Any) -> TaskState:
        await sandbox().exec(["true"])
        return state

    return solve


def task(count: int = 1, **more: Any) -> Task:
    return Task([Sample(f"q{n}") for n in range(count)], solver=works(), **more)


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_STATE_DIR", str(tmp_path))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("docker", SandboxEnvironmentSpec("docker")),
        ("docker:compose.yaml", SandboxEnvironmentSpec("docker", "compose.yaml")),
        (("docker", "a:b.yaml"), SandboxEnvironmentSpec("docker", "a:b.yaml")),
        (SandboxEnvironmentSpec("x", {"y": 1}), SandboxEnvironmentSpec("x", {"y": 1})),
    ],
)
def test_a_sandbox_may_be_said_in_several_ways(given: Any, wanted: SandboxEnvironmentSpec) -> None:
    from proctor.evaluation.options import checked
    from proctor.runtime.settings import Resolved

    assert checked("sandbox", Resolved(given)).value == wanted


@pytest.mark.parametrize("given", [1, "", ("a", "b", "c"), ["docker"]])
async def test_what_is_no_sandbox_is_refused(given: Any) -> None:
    with pytest.raises(OptionError, match="sandbox must be a type of sandbox"):
        await simulate(task(), FakeModel().model(), sandbox=given)


def test_a_task_refuses_what_is_no_sandbox() -> None:
    with pytest.raises(UsageError, match="sandbox must be a type or a tuple"):
        task(sandbox=3)


async def test_the_number_of_sandboxes_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_EVAL_MAX_SANDBOXES", "2")
    fake = FakeSandbox(command=1.0)
    async with open_runtime(Settings.resolve(seed=0)):
        await simulate(task(6, sandbox=fake.spec), FakeModel().model(), max_samples=6)
    assert fake.peak == 2


async def test_a_provider_may_say_how_many_of_its_sandboxes_live(monkeypatch: pytest.MonkeyPatch) -> None:
    from proctor.testing.fake_sandbox import FakeSandboxEnvironment

    monkeypatch.setattr(FakeSandboxEnvironment, "default_concurrency", classmethod(lambda cls: 3))
    fake = FakeSandbox(command=1.0)
    await simulate(task(6, sandbox=fake.spec), FakeModel().model(), max_samples=6)
    assert fake.peak == 3


def test_the_environment_may_name_the_sandbox_and_keep_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from proctor.sandbox.owned import read_notes

    monkeypatch.setenv("INSPECT_EVAL_SANDBOX", "local")
    monkeypatch.setenv("PROCTOR_EVAL_SANDBOX_CLEANUP", "false")
    [log] = eval(task(), model="mock/m", display="none", log_dir=str(tmp_path / "logs"))
    assert log.status == "success", log.error
    assert log.eval.sandbox == SandboxEnvironmentSpec("local")
    [note] = read_notes("local")
    folder = Path(note.things["folder"])
    assert folder.is_dir()
    folder.rmdir()


def test_a_plan_says_how_many_sandboxes_live_and_what_they_do_not_allow() -> None:
    fake = FakeSandbox()
    report = plan_report(task(4, sandbox=fake.spec), model="mock/m", max_samples=8, max_sandboxes=2, max_connections=5)
    limits = {limit.name: limit for limit in report.runs[0].limits}
    assert limits["sandbox"].value == "fake"
    assert limits["sandbox"].source == "task"
    assert (limits["sandboxes at once"].value, limits["sandboxes at once"].source) == (2, "eval() argument")
    assert any("at most 2 sandboxes live at once" in text and "max_samples 8" in text for text in report.warnings)


def test_a_plan_without_sandboxes_says_nothing_of_them() -> None:
    report = plan_report(Task([Sample("x")]), model="mock/m", max_sandboxes=2)
    assert not [limit for limit in report.runs[0].limits if "sandbox" in limit.name]


async def test_the_record_has_what_the_sample_asked_for() -> None:
    fake = FakeSandbox()
    sample = Sample("q", id=1, files={"a": "text"}, setup="true", sandbox=("fake", fake))
    [log] = await simulate(Task([sample], solver=works()), FakeModel().model())
    record = log.samples[0]
    assert record.error is None, record.error
    assert (record.files, record.setup) == (["a"], "true")
    assert record.sandbox is not None
    assert record.sandbox.type == "fake"
