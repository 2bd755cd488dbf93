"""Going on in logs that Inspect wrote: they are copied first, and what they have is reused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from proctor import Task, eval_retry_async
from proctor.dataset import Sample
from proctor.log import read_eval_log
from proctor.scorer import includes
from proctor.solver import TaskState, solver

BY_INSPECT = """
import sys
from inspect_ai import Task, eval, task
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageUser, ModelOutput
from inspect_ai.scorer import includes
from inspect_ai.solver import solver

@solver
def stepping(hint="none"):
    async def solve(state, generate):
        if state.sample_id == "bad":
            raise ValueError("no")
        state.output = ModelOutput.from_content("mockllm/model", "Default")  # its mock model loads a tokenizer
        state.messages.append(state.output.message)
        return state
    return solve

@task
def old():
    data = [Sample("q" * 6000 + " one", id="long", target="Default"), Sample("two", id=2, target=["x", "Default"]),
            Sample([ChatMessageUser(content="three")], id="chat", target="x", metadata={"m": 1}),
            Sample("four", id="bad", target="x", choices=["a", "b"])]
    return Task(data, solver=stepping(), scorer=includes())

eval(old(), model="mockllm/model", log_dir=sys.argv[1], log_format=sys.argv[2], fail_on_error=False, epochs=2,
     display="none")
"""


@pytest.fixture(scope="module", params=["eval", "json"])
def by_inspect(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(f"inspect-{request.param}")
    (folder / "old.py").write_text(BY_INSPECT)
    logs = folder / "logs"
    subprocess.run(
        [sys.executable, "-W", "ignore", "old.py", str(logs), request.param],
        cwd=folder, check=True, capture_output=True, text=True,
    )  # fmt: skip
    [path] = logs.iterdir()
    return path


def task(ran: list[Any], **changed: str) -> Task:
    @solver
    def stepping(hint: str = "none") -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            ran.append((state.sample_id, state.epoch))
            return await generate(state)

        return solve

    from proctor.model import ChatMessageUser

    data = [
        Sample("q" * 6000 + " one", id="long", target="Default"),
        Sample(changed.get("two", "two"), id=2, target=["x", "Default"]),
        Sample([ChatMessageUser(content=changed.get("three", "three"))], id="chat", target="x", metadata={"m": 1}),
        Sample("four", id="bad", target="x", choices=["a", "b"]),
    ]
    return Task(data, solver=stepping(), scorer=includes(), name="old")


async def test_what_inspect_finished_is_reused(by_inspect: Path, tmp_path: Path) -> None:
    before, ran = by_inspect.read_bytes(), list[Any]()
    log_dir = str(tmp_path / "logs")
    [log] = await eval_retry_async(str(by_inspect), task=task(ran), log_dir=log_dir, display="none")
    assert sorted(ran, key=str) == [("bad", 1), ("bad", 2)]
    assert by_inspect.read_bytes() == before
    assert Path(log.location) == tmp_path / "logs" / f"{by_inspect.stem}-retry.eval"
    found = read_eval_log(log.location)
    assert found.status == "success"
    assert len(found.samples or ()) == 8
    assert found.results is not None
    assert found.results.scores[0].metrics["accuracy"].value == 0.5
    old = read_eval_log(by_inspect)
    kept = {(s.id, s.epoch): s for s in found.samples or ()}
    for sample in old.samples or ():
        if sample.error is None:
            assert kept[sample.id, sample.epoch] == sample
    ran.clear()
    [log] = await eval_retry_async(str(by_inspect), task=task(ran), log_dir=log_dir, display="none")
    assert ran == [], "the copy is gone on in, not made again"


async def test_what_changed_since_runs_again(by_inspect: Path, tmp_path: Path) -> None:
    ran = list[Any]()
    await eval_retry_async(
        str(by_inspect), task=task(ran, two="2", three="3"), log_dir=str(tmp_path / "logs"), display="none"
    )
    assert set(ran) == {(2, 1), (2, 2), ("bad", 1), ("bad", 2), ("chat", 1), ("chat", 2)}


def test_inspect_reads_the_copy_that_was_gone_on_in(by_inspect: Path, tmp_path: Path) -> None:
    from proctor import eval_retry

    [log] = eval_retry(str(by_inspect), task=task([]), log_dir=str(tmp_path / "logs"), display="none")
    read = (
        "import sys; from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries as summaries;"
        "log = read_eval_log(sys.argv[1]); print(log.status, len(log.samples), len(summaries(sys.argv[1])))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", read, log.location], capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["success", "8", "8"], done.stderr
