"""`simulate`: a whole evaluation without threads and files, in whatever time the test has.

The scheduler, the actors, the limiters and the records are the real ones; only the logs stay in memory, and what the
engine would do in a thread happens in the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple

from anyio.lowlevel import checkpoint
from attrs import define, evolve, frozen

from proctor import Task
from proctor.evaluation.call import EvalCall
from proctor.evaluation.plan import PlannedRun
from proctor.log.records import EvalLog
from proctor.model import Model
from proctor.runtime import Runtime, Settings, current_runtime, open_runtime
from proctor.runtime.threads import EngineThreads
from proctor.testing.faults import FaultPlan
from proctor.testing.memory_log import MemoryLog, MemoryLogs

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@define(eq=False)
class NoThreads(EngineThreads):
    """Runs the engine's blocking calls in the loop."""

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call `function`, after the checkpoint that a thread would be."""
        await checkpoint()
        return function(*args)


async def simulate(
    tasks: Task | Sequence[Task],
    model: Model | Sequence[Model],
    *,
    logs: MemoryLogs | None = None,
    faults: FaultPlan | None = None,
    resume: bool = False,
    **options: Any,
) -> list[EvalLog]:
    """Evaluate, in the current runtime or one of its own with a fixed seed.

    Args:
        logs: where the logs are kept; default new ones.
        faults: applied to the tasks and to logs made here, and installed; a `FakeModel` is given them by itself.
        resume: go on in the last of `logs`.
        options: those of `eval_async`.

    Returns:
        The logs with their samples, in plan order. When `faults` cancel the evaluation, those that were opened.
    """
    faults = faults or FaultPlan()
    kept = logs or MemoryLogs(faults=faults)
    listed = [faults.applied(task) for task in ([tasks] if isinstance(tasks, Task) else tasks)]
    call = EvalCall.of({"tasks": listed, "model": model, "display": "none", **_split(options)})
    if resume:
        call = _Resuming(tasks=call.tasks, said=call.said, log=kept.logs[-1])
    with faults.installed():
        runtime = current_runtime()
        if runtime is None:
            async with open_runtime(Settings(seed=0)) as runtime:
                return await _run(call, runtime, kept)
        return await _run(call, runtime, kept)
    return [log.read() for log in kept.logs]


@frozen(kw_only=True)
class _Resuming(EvalCall):
    """A call whose one run goes on in a log."""

    log: MemoryLog

    def plan(self) -> list[PlannedRun]:
        return [evolve(run, resume=self.log.resume()) for run in super().plan()]


async def _run(call: EvalCall, runtime: Runtime, logs: MemoryLogs) -> list[EvalLog]:
    threads, runtime.threads = runtime.threads, NoThreads(1)
    try:
        async with call.opened(open_log=logs.open) as actor:
            found = await actor.run()
    finally:
        runtime.threads = threads
    samples = {log.spec.eval_id: log.read().samples for log in logs.logs}
    return [evolve(log, samples=samples.get(log.eval.eval_id)) for log in found]


def _split(options: dict[str, Any]) -> dict[str, Any]:
    """Fields of `GenerateConfig` apart, as the parameters of `eval_async` have them."""
    from proctor.evaluation.said import FIELDS

    config = {name: value for name, value in options.items() if name in FIELDS}
    return {**{name: value for name, value in options.items() if name not in FIELDS}, "config": config}
