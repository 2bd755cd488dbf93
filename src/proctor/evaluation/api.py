"""`eval` and `eval_async`: the doors to the engine."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from proctor.dataset.sample import SandboxEnvironmentType
from proctor.evaluation.call import EvalCall, interruptible
from proctor.evaluation.plan import Tasks
from proctor.evaluation.task import Epochs
from proctor.log.records import EvalLog
from proctor.model import Model, ModelCost
from proctor.runtime import run
from proctor.runtime.tokens import TokenLimit
from proctor.solver import Solver

Models = str | Model | Sequence[str | Model] | None


def eval(
    tasks: Tasks = None,
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
    log_dir: str | None = None,
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
) -> list[EvalLog]:
    """Run tasks on models and wait for the results, in a loop of its own.

    In the main thread Ctrl-C ends the evaluation in order: samples are recorded as cancelled, the logs finished, and
    `KeyboardInterrupt` is raised. Inside a running loop (a notebook) it works too; there
    `await eval_async(...)` is the better way. Every option that is not given is looked for in the environment
    (``PROCTOR_EVAL_MAX_TASKS``, then ``INSPECT_EVAL_MAX_TASKS``); what a model's config or a task says goes before
    that.

    Args:
        tasks: Task objects, `@task` functions, a file, ``file.py@name``, a folder, or a list; default: every task below
            the working folder.
        model: ``provider/name``, a comma list, a list, `Model` objects; default the task's own, then
            PROCTOR_EVAL_MODEL, then INSPECT_EVAL_MODEL.
        model_base_url, model_args: for the models named: where they are served, arguments of their provider.
        model_roles: other models by the role they play, as ``{"grader": "provider/name"}``: names, `Model` objects,
            mappings (``{"model": "provider/name", "temperature": 0}``) or lists of these.
        task_args: arguments of task functions.
        sandbox: in place of the tasks' own: a type, a type and its configuration, or ``type:config``.
        sandbox_cleanup: False keeps sandboxes when their samples are over, to be looked at.
        solver: in place of the tasks' own.
        tags, metadata: kept in the log.
        display: plain, rich, log or none; default rich on a terminal, else plain.
        log_dir: a folder, made when missing; default ``./logs``.
        log_format: ``json`` exports each log when it ends, in place of the ``.eval`` that is written while it runs.
        limit: the first n samples of each task, or (start, stop) from 0.
        sample_id: ids or patterns of those to run. sample_shuffle: True, or a seed.
        epochs: how often each sample runs: a number, or `Epochs` with reducers.
        fail_on_error, continue_on_fail, score_on_error: as for `Task`.
        retry_on_error: how often a failed sample is run again from its start.
        message_limit, token_limit, turn_limit: messages, tokens and answers of models of a sample. time_limit,
            working_limit: its seconds, with and without waits. cost_limit: its dollars. As for `Task`.
        max_samples: samples at once of a task; default one more than the model's connections.
        max_tasks: tasks at once; default 1, and the number of models when there are several.
        max_subprocesses: child processes at once in the runtime; default the processors.
        max_sandboxes: live sandboxes of a kind at once in the runtime; default the kind's own number.
        max_dataset_memory: MB of a task's dataset that are held, the rest is paged to disk; default all of it.
        log_samples: False leaves the events out of the samples' records.
        log_images: False leaves the data of images, sound and film out of the log; default it is kept.
        log_level_transcript: the least level of messages of `logging` that are events of the sample that logs them, by
            name; default info, of what the loggers' own levels let through.
        log_buffer: records that may wait for the log's writer before samples wait for it; default 64.
        score: False scores nothing; default True.
        model_cost_config: prices by model, `ModelCost` each (dollars per million tokens), or a JSON file of them.
        max_total_samples: samples at once of all tasks in the runtime; default no limit.
        max_total_tokens, max_total_cost, max_run_time: tokens, dollars and seconds for all of this call. When one is
            used up no further sample starts; those that run are finished and scored, and the status is "cancelled".
        requests_per_minute, tokens_per_minute: quotas of each model; default learned, 0: there is none.
        runtime_seed: where proctor's own chance and ids begin; default drawn from the system.
        async_backend: asyncio or trio; default PROCTOR_ASYNC_BACKEND, INSPECT_ASYNC_BACKEND, asyncio.
        signals: those that end it in order; default SIGINT.
        config: any field of `GenerateConfig` (temperature, max_tokens, max_connections, max_retries, timeout, …). A
            list of values (``temperature=[0, 0.5]``) is a run with each.

    Returns:
        One log for each run, models outermost, in plan order. A run that failed is a log with status "error". Its
        samples are read from the file when they are first looked at.

    Raises:
        UsageError: a mistake in the call; nothing was run.
        KeyboardInterrupt: it was interrupted; the logs are written.
    """
    call = EvalCall.of(locals())
    return run(interruptible, call, tuple(signals), backend=call.said.get("async_backend"))


async def eval_async(
    tasks: Tasks = None,
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
    log_dir: str | None = None,
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
    *,
    max_total_samples: int | None = None,
    max_total_tokens: int | None = None,
    max_total_cost: float | None = None,
    max_run_time: float | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    runtime_seed: int | None = None,
    **config: Any,
) -> list[EvalLog]:
    """Run tasks on models in the running loop, asyncio's or trio's.

    It joins the current runtime and so shares its models and limits with other evaluations there; outside of one it
    opens its own. No signal is handled; cancelling it ends the evaluation in order. Every option that is not given is
    looked for in the environment (``PROCTOR_EVAL_MAX_TASKS``, then ``INSPECT_EVAL_MAX_TASKS``); what a model's config
    or a task says goes before that.

    Args:
        tasks: Task objects, `@task` functions, a file, ``file.py@name``, a folder, or a list; default: every task below
            the working folder.
        model: ``provider/name``, a comma list, a list, `Model` objects; default the task's own, then
            PROCTOR_EVAL_MODEL, then INSPECT_EVAL_MODEL.
        model_base_url, model_args: for the models named: where they are served, arguments of their provider.
        model_roles: other models by the role they play, as ``{"grader": "provider/name"}``: names, `Model` objects,
            mappings (``{"model": "provider/name", "temperature": 0}``) or lists of these.
        task_args: arguments of task functions.
        sandbox: in place of the tasks' own: a type, a type and its configuration, or ``type:config``.
        sandbox_cleanup: False keeps sandboxes when their samples are over, to be looked at.
        solver: in place of the tasks' own.
        tags, metadata: kept in the log.
        display: plain, rich, log or none; default rich on a terminal, else plain.
        log_dir: a folder, made when missing; default ``./logs``.
        log_format: ``json`` exports each log when it ends, in place of the ``.eval`` that is written while it runs.
        limit: the first n samples of each task, or (start, stop) from 0.
        sample_id: ids or patterns of those to run. sample_shuffle: True, or a seed.
        epochs: how often each sample runs: a number, or `Epochs` with reducers.
        fail_on_error, continue_on_fail, score_on_error: as for `Task`.
        retry_on_error: how often a failed sample is run again from its start.
        message_limit, token_limit, turn_limit: messages, tokens and answers of models of a sample. time_limit,
            working_limit: its seconds, with and without waits. cost_limit: its dollars. As for `Task`.
        max_samples: samples at once of a task; default one more than the model's connections.
        max_tasks: tasks at once; default 1, and the number of models when there are several.
        max_subprocesses: child processes at once in the runtime; default the processors.
        max_sandboxes: live sandboxes of a kind at once in the runtime; default the kind's own number.
        max_dataset_memory: MB of a task's dataset that are held, the rest is paged to disk; default all of it.
        log_samples: False leaves the events out of the samples' records.
        log_images: False leaves the data of images, sound and film out of the log; default it is kept.
        log_level_transcript: the least level of messages of `logging` that are events of the sample that logs them, by
            name; default info, of what the loggers' own levels let through.
        log_buffer: records that may wait for the log's writer before samples wait for it; default 64.
        score: False scores nothing; default True.
        model_cost_config: prices by model, `ModelCost` each (dollars per million tokens), or a JSON file of them.
        max_total_samples: samples at once of all tasks in the runtime; default no limit.
        max_total_tokens, max_total_cost, max_run_time: tokens, dollars and seconds for all of this call. When one is
            used up no further sample starts; those that run are finished and scored, and the status is "cancelled".
        requests_per_minute, tokens_per_minute: quotas of each model; default learned, 0: there is none.
        runtime_seed: where chance and ids of its own runtime begin; default drawn from the system.
        config: any field of `GenerateConfig` (temperature, max_tokens, max_connections, max_retries, timeout, …). A
            list of values (``temperature=[0, 0.5]``) is a run with each.

    Returns:
        One log for each run, models outermost, in plan order. A run that failed is a log with status "error". Its
        samples are read from the file when they are first looked at.

    Raises:
        UsageError: a mistake in the call; nothing was run.
    """
    call = EvalCall.of(locals())
    async with call.opened() as actor:
        return await actor.run()


__all__ = ["eval", "eval_async"]
