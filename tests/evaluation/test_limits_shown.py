"""The status of a run shows used and maximum of every limiter, however many tasks run."""

from __future__ import annotations

from typing import Any

import anyio

from proctor import Task
from proctor.dataset import Sample
from proctor.display import plain
from proctor.display.status import LimiterStatus, run_status
from proctor.evaluation.call import EvalCall
from proctor.solver import TaskState, solver
from proctor.testing import FakeModel, FakeProcess, FakeSandbox, MemoryLogs, Play
from proctor.util import concurrency, sandbox, subprocess


@solver
def using_all() -> Any:
    """By its number a sample stays in its sandbox, in a command, in a scope, or in a call."""

    async def solve(state: TaskState, generate: Any) -> TaskState:
        number = int(state.input_text)
        if number % 4 == 0:
            await sandbox().exec(["wait"])
        if number % 4 == 1:
            await subprocess(["wait"])
        if number % 4 == 2:
            async with concurrency("search", 2):
                await anyio.sleep(100)
        return await generate(state)

    return solve


async def shown(tasks: int) -> tuple[list[LimiterStatus], str]:
    host, processes = FakeSandbox(command=100.0), FakeProcess(answer=Play(seconds=100.0))
    plan = [
        Task([Sample(str(n)) for n in range(16)], solver=using_all(), sandbox=host.spec, name=f"task {number}")
        for number in range(tasks)
    ]
    given = {
        "tasks": plan, "model": FakeModel(name="m", latency=100.0).model(), "display": "none", "max_tasks": tasks,
        "max_samples": 16, "max_sandboxes": 15, "max_subprocesses": 3, "max_connections": 2, "max_total_samples": 14,
    }  # fmt: skip
    call = EvalCall.of({**given, "config": {"max_connections": given.pop("max_connections")}})
    with processes.installed():
        async with call.opened(open_log=MemoryLogs().open) as actor, anyio.create_task_group() as nursery:
            nursery.start_soon(actor.run)
            await anyio.sleep(5)
            status = run_status(actor.view, anyio.current_time())
            nursery.cancel_scope.cancel()
    return list(status.limiters), plain.overall(status)


async def test_every_limiter_is_shown_with_its_use_and_its_maximum() -> None:
    limiters, said = await shown(1)
    found = {each.name: (each.used, each.limit) for each in limiters}
    assert found["samples in all"] == (14, 14)
    assert found["sandboxes fake"] == (14, 15)
    assert found["subprocesses"] == (3, 3)
    assert found["concurrency search"] == (2, 2)
    assert found["fake/m"] == (2, 2)
    for name, (used, limit) in found.items():
        assert f"{name} {used}/{limit}" in said


async def test_with_many_tasks_what_they_share_is_shown_before_their_own() -> None:
    limiters, said = await shown(20)
    assert len(limiters) > 20
    for name in ("tasks 20/20", "samples in all 14/14", "sandboxes fake 14/15", "subprocesses 3/3", "fake/m "):
        assert name in said, said
    assert "limits more" in said
