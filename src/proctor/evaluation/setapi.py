"""`eval_set` and `eval_set_async`: the doors to evaluations that are tried again until they are done."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
from attrs import evolve

from proctor.dataset.sample import SandboxEnvironmentType
from proctor.evaluation.api import Models
from proctor.evaluation.call import EvalCall, prepare_log_dir, stopped_at_once_by
from proctor.evaluation.evalset import EvalSet, SetOptions
from proctor.evaluation.fit import make_room
from proctor.evaluation.plan import PlannedRun, Tasks
from proctor.evaluation.task import Epochs
from proctor.log.records import EvalLog
from proctor.model import ModelCost
from proctor.process import leaving_no_children
from proctor.runtime import run
from proctor.runtime.interrupt import open_interrupts
from proctor.runtime.tokens import TokenLimit
from proctor.solver import Solver

MOST_TASKS: Final = 10
"""Runs at once, unless there are more models."""
OWN: Final = {
    "retry_attempts": "attempts",
    "retry_wait": "wait",
    "retry_connections": "connections",
    "retry_cleanup": "cleanup",
    "log_dir_allow_dirty": "allow_dirty",
    "eval_set_id": "eval_set_id",
}
"""Arguments that say how a set is tried again, by what `SetOptions` calls them."""


def eval_set(
    tasks: Tasks = None,
    log_dir: str | None = None,
    retry_attempts: int | None = None,
    retry_wait: float | None = None,
    retry_connections: float | None = None,
    retry_cleanup: bool | None = None,
    retry_immediate: bool | None = None,
    model: Models = None,
    model_base_url: str | None = None,
    model_args: Mapping[str, Any] | None = None,
    model_roles: Mapping[str, Any] | None = None,
    task_args: Mapping[str, Any] | None = None,
    sandbox: SandboxEnvironmentType | None = None,
    sandbox_cleanup: bool | None = None,
    solver: Solver | list[Solver] | None = None,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    display: str | None = None,
    log_format: str | None = None,
    limit: int | tuple[int, int] | None = None,
    sample_id: str | int | list[str | int] | None = None,
    sample_shuffle: bool | int | None = None,
    epochs: int | Epochs | None = None,
    fail_on_error: bool | float | None = None,
    continue_on_fail: bool | None = None,
    retry_on_error: int | None = None,
    score_on_error: bool | None = None,
    message_limit: int | None = None,
    token_limit: int | str | TokenLimit | None = None,
    turn_limit: int | None = None,
    time_limit: float | None = None,
    working_limit: float | None = None,
    cost_limit: float | None = None,
    max_samples: int | None = None,
    max_tasks: int | None = None,
    max_subprocesses: int | None = None,
    max_sandboxes: int | None = None,
    max_dataset_memory: int | None = None,
    log_samples: bool | None = None,
    log_images: bool | None = None,
    log_level_transcript: str | None = None,
    log_buffer: int | None = None,
    score: bool | None = None,
    model_cost_config: str | Path | Mapping[str, ModelCost | Mapping[str, float]] | None = None,
    log_dir_allow_dirty: bool | None = None,
    eval_set_id: str | None = None,
    *,
    max_total_samples: int | None = None,
    max_total_tokens: int | None = None,
    max_total_cost: float | None = None,
    max_run_time: float | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    runtime_seed: int | None = None,
    async_backend: str | None = None,
    signals: Sequence[int] = (signal.SIGINT,),
    **config: Any,
) -> tuple[bool, list[EvalLog]]:
    """Evaluate tasks on models in one folder, again and again until all are done.

    One folder holds the logs of a set, one for each task and model. What its logs have is reused without a request
    (see `eval_retry`), whatever ended the process that wrote them; then what is left runs, and is tried again until
    all is done, in one runtime, so that what was learned of a model's quotas stays. It ends sooner when the user stops
    it, when a budget of the whole (``max_total_tokens``, ``max_total_cost``, ``max_run_time``, counted over all
    attempts) is used up, or when the models of all that is left are given up. A model that is given up is tried again
    with one request at the next attempt.

    Args:
        tasks: as for `eval`. log_dir: the set's own folder.
        retry_attempts: attempts in all; default 10.
        retry_wait: seconds before the second attempt, doubling with each, at most an hour; default 30.
        retry_connections: the rate by which an explicit ``max_connections`` shrinks with each attempt; default 1.0: it
            does not.
        retry_cleanup: remove logs that others took the place of, once those are a success; default they stay.
        retry_immediate: accepted for ported code.
        max_tasks: runs at once; default 10, or the number of models when that is more.
        log_dir_allow_dirty: the folder may hold logs of other tasks and models; default that is refused.
        eval_set_id: kept in the logs; default what the folder's logs say, else a new one.
        async_backend, signals: as for `eval`.
        config: this and every other argument as for `eval`.

    Returns:
        Whether all is done, and one log for each run, in plan order. Their samples are read from the files when they
        are first looked at.

    Raises:
        UsageError: a mistake in the call; nothing was run.
        KeyboardInterrupt: it was interrupted; the logs are written.
    """
    call, options = _read(locals())
    return run(_interruptible, call, options, tuple(signals), backend=call.said.get("async_backend"))


async def eval_set_async(
    tasks: Tasks = None,
    log_dir: str | None = None,
    retry_attempts: int | None = None,
    retry_wait: float | None = None,
    retry_connections: float | None = None,
    retry_cleanup: bool | None = None,
    retry_immediate: bool | None = None,
    model: Models = None,
    model_base_url: str | None = None,
    model_args: Mapping[str, Any] | None = None,
    model_roles: Mapping[str, Any] | None = None,
    task_args: Mapping[str, Any] | None = None,
    sandbox: SandboxEnvironmentType | None = None,
    sandbox_cleanup: bool | None = None,
    solver: Solver | list[Solver] | None = None,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    display: str | None = None,
    log_format: str | None = None,
    limit: int | tuple[int, int] | None = None,
    sample_id: str | int | list[str | int] | None = None,
    sample_shuffle: bool | int | None = None,
    epochs: int | Epochs | None = None,
    fail_on_error: bool | float | None = None,
    continue_on_fail: bool | None = None,
    retry_on_error: int | None = None,
    score_on_error: bool | None = None,
    message_limit: int | None = None,
    token_limit: int | str | TokenLimit | None = None,
    turn_limit: int | None = None,
    time_limit: float | None = None,
    working_limit: float | None = None,
    cost_limit: float | None = None,
    max_samples: int | None = None,
    max_tasks: int | None = None,
    max_subprocesses: int | None = None,
    max_sandboxes: int | None = None,
    max_dataset_memory: int | None = None,
    log_samples: bool | None = None,
    log_images: bool | None = None,
    log_level_transcript: str | None = None,
    log_buffer: int | None = None,
    score: bool | None = None,
    model_cost_config: str | Path | Mapping[str, ModelCost | Mapping[str, float]] | None = None,
    log_dir_allow_dirty: bool | None = None,
    eval_set_id: str | None = None,
    *,
    max_total_samples: int | None = None,
    max_total_tokens: int | None = None,
    max_total_cost: float | None = None,
    max_run_time: float | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    runtime_seed: int | None = None,
    **config: Any,
) -> tuple[bool, list[EvalLog]]:
    """`eval_set` in the running loop, asyncio's or trio's; it joins the current runtime.

    One folder holds the logs of a set, one for each task and model. What its logs have is reused without a request
    (see `eval_retry`), whatever ended the process that wrote them; then what is left runs, and is tried again until
    all is done, in one runtime, so that what was learned of a model's quotas stays. It ends sooner when the user stops
    it, when a budget of the whole (``max_total_tokens``, ``max_total_cost``, ``max_run_time``, counted over all
    attempts) is used up, or when the models of all that is left are given up. A model that is given up is tried again
    with one request at the next attempt.

    Args:
        tasks: as for `eval`. log_dir: the set's own folder.
        retry_attempts: attempts in all; default 10.
        retry_wait: seconds before the second attempt, doubling with each, at most an hour; default 30.
        retry_connections: the rate by which an explicit ``max_connections`` shrinks with each attempt; default 1.0: it
            does not.
        retry_cleanup: remove logs that others took the place of, once those are a success; default they stay.
        retry_immediate: accepted for ported code.
        max_tasks: runs at once; default 10, or the number of models when that is more.
        log_dir_allow_dirty: the folder may hold logs of other tasks and models; default that is refused.
        eval_set_id: kept in the logs; default what the folder's logs say, else a new one.
        config: this and every other argument as for `eval`.

    Returns:
        Whether all is done, and one log for each run, in plan order. Their samples are read from the files when they
        are first looked at.

    Raises:
        UsageError: a mistake in the call; nothing was run.
    """
    call, options = _read(locals())
    async with _opened(call, options, ()) as opened:
        return await opened.run()


def _read(arguments: Mapping[str, Any]) -> tuple[EvalCall, SetOptions]:
    own = {field: arguments[name] for name, field in OWN.items() if arguments[name] is not None}
    others = {name: value for name, value in arguments.items() if name not in {*OWN, "retry_immediate"}}
    return EvalCall.of(others), SetOptions(**own)


@asynccontextmanager
async def _opened(call: EvalCall, options: SetOptions, signals: Sequence[int]) -> AsyncIterator[EvalSet]:
    call.display()
    async with call.in_runtime() as runtime:
        with stopped_at_once_by(signals):
            plan = _with_tasks(call.plan())
        make_room(plan, runtime)
        await runtime.to_thread(prepare_log_dir, plan[0].options.log_dir)
        yield EvalSet(call, options, runtime, plan)


def _with_tasks(plan: list[PlannedRun]) -> list[PlannedRun]:
    most = max(MOST_TASKS, len({str(run.model) for run in plan}))
    return [evolve(run, options=evolve(run.options, max_tasks=run.options.max_tasks or most)) for run in plan]


async def _interruptible(call: EvalCall, options: SetOptions, signals: tuple[int, ...]) -> tuple[bool, list[EvalLog]]:
    result: tuple[bool, list[EvalLog]] = (False, [])
    async with open_interrupts(signals) as interrupts, _opened(call, options, signals) as opened:
        interrupts.exit_now = leaving_no_children(opened.runtime, interrupts.exit_now)
        async with anyio.create_task_group() as nursery:

            async def watch() -> None:
                await interrupts.wait_phase(1)
                opened.stop("interrupted: finishing the logs (at most 5 s; Ctrl-C again to hurry)")
                await interrupts.wait_phase(2)
                opened.hurry()

            nursery.start_soon(watch)
            result = await opened.run()
            nursery.cancel_scope.cancel()
        if interrupts.phase:
            raise KeyboardInterrupt
        return result


__all__ = ["eval_set", "eval_set_async"]
