"""`eval` and `eval_async`: the doors to the engine."""

from __future__ import annotations

import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from attrs import field, frozen

from proctor import registry
from proctor.errors import LogError, OptionError
from proctor.evaluation.plan import EvalOptions, Tasks, make_plan, resolve_models
from proctor.evaluation.run import RunActor
from proctor.evaluation.task import Epochs
from proctor.log.records import EvalLog
from proctor.model import GenerateConfig, Model
from proctor.runtime import Runtime, current_runtime, open_runtime, run
from proctor.runtime.interrupt import open_interrupts
from proctor.runtime.settings import Settings, environ, load_dotenv
from proctor.solver import Solver

Models = str | Model | Sequence[str | Model] | None


def eval(
    tasks: Tasks = None,
    model: Models = None,
    model_base_url: str | None = None,
    model_args: Mapping[str, Any] | None = None,
    task_args: Mapping[str, Any] | None = None,
    solver: Solver | list[Solver] | None = None,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    display: str | None = None,
    log_dir: str | None = None,
    limit: int | tuple[int, int] | None = None,
    sample_id: str | int | list[str | int] | None = None,
    sample_shuffle: bool | int | None = None,
    epochs: int | Epochs | None = None,
    fail_on_error: bool | float | None = None,
    continue_on_fail: bool | None = None,
    retry_on_error: int | None = None,
    score_on_error: bool | None = None,
    message_limit: int | None = None,
    token_limit: int | None = None,
    time_limit: float | None = None,
    working_limit: float | None = None,
    max_samples: int | None = None,
    max_tasks: int | None = None,
    log_samples: bool | None = None,
    log_buffer: int | None = None,
    score: bool = True,
    *,
    async_backend: str | None = None,
    signals: Sequence[int] = (signal.SIGINT,),
    **config: Any,
) -> list[EvalLog]:
    """Run tasks on models and wait for the results, in a loop of its own.

    In the main thread Ctrl-C ends the evaluation in order: samples are recorded as cancelled, the logs finished, and
    `KeyboardInterrupt` is raised. Inside a running loop (a notebook) it works too; there
    `await eval_async(...)` is the better way.

    Args:
        tasks: Task objects, `@task` functions, a file, ``file.py@name``, a folder, or a list; default: every task below
            the working folder.
        model: ``provider/name``, a comma list, a list, `Model` objects; default PROCTOR_EVAL_MODEL, then
            INSPECT_EVAL_MODEL, then the task's own.
        model_base_url, model_args: for the models named: where they are served, arguments of their provider.
        task_args: arguments of task functions.
        solver: in place of the tasks' own.
        tags, metadata: kept in the log.
        display: plain, rich, log or none; default rich on a terminal, else plain.
        log_dir: a folder, made when missing; default PROCTOR_LOG_DIR, INSPECT_LOG_DIR, ``./logs``.
        limit: the first n samples of each task, or (start, stop) from 0.
        sample_id: ids or patterns of those to run. sample_shuffle: True, or a seed.
        epochs: how often each sample runs: a number, or `Epochs` with reducers.
        fail_on_error, continue_on_fail, score_on_error: as for `Task`.
        retry_on_error: how often a failed sample is run again from its start.
        message_limit, token_limit: messages and tokens of a sample. time_limit, working_limit: its seconds, with
            and without waits.
        max_samples: samples at once of a task; default one more than the model's connections.
        max_tasks: tasks at once; default 1, and the number of models when there are several.
        log_samples: False leaves the events out of the samples' records.
        log_buffer: records that may wait for the log's writer before samples wait for it; default 64.
        score: False scores nothing.
        async_backend: asyncio or trio; default PROCTOR_ASYNC_BACKEND, INSPECT_ASYNC_BACKEND, asyncio.
        signals: those that end it in order; default SIGINT.
        config: any field of `GenerateConfig` (temperature, max_tokens, max_connections, max_retries, timeout, …).

    Returns:
        One log for each run, models outermost, in plan order. A run that failed is a log with status "error".

    Raises:
        UsageError: a mistake in the call; nothing was run.
        KeyboardInterrupt: it was interrupted; the logs are written.
    """
    call = EvalCall(
        tasks,
        model,
        _given(
            model_base_url=model_base_url,
            model_args=model_args,
            task_args=task_args,
            solver=solver,
            tags=tags,
            metadata=metadata,
            display=display,
            log_dir=log_dir,
            limit=limit,
            sample_id=sample_id,
            sample_shuffle=sample_shuffle,
            epochs=epochs,
            fail_on_error=fail_on_error,
            continue_on_fail=continue_on_fail,
            retry_on_error=retry_on_error,
            score_on_error=score_on_error,
            message_limit=message_limit,
            token_limit=token_limit,
            time_limit=time_limit,
            working_limit=working_limit,
            max_samples=max_samples,
            max_tasks=max_tasks,
            log_samples=log_samples,
            log_buffer=log_buffer,
            score=score,
        ),
        config,
    )
    return run(_interruptible, call, tuple(signals), backend=async_backend)


async def eval_async(
    tasks: Tasks = None,
    model: Models = None,
    model_base_url: str | None = None,
    model_args: Mapping[str, Any] | None = None,
    task_args: Mapping[str, Any] | None = None,
    solver: Solver | list[Solver] | None = None,
    tags: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    display: str | None = None,
    log_dir: str | None = None,
    limit: int | tuple[int, int] | None = None,
    sample_id: str | int | list[str | int] | None = None,
    sample_shuffle: bool | int | None = None,
    epochs: int | Epochs | None = None,
    fail_on_error: bool | float | None = None,
    continue_on_fail: bool | None = None,
    retry_on_error: int | None = None,
    score_on_error: bool | None = None,
    message_limit: int | None = None,
    token_limit: int | None = None,
    time_limit: float | None = None,
    working_limit: float | None = None,
    max_samples: int | None = None,
    max_tasks: int | None = None,
    log_samples: bool | None = None,
    log_buffer: int | None = None,
    score: bool = True,
    **config: Any,
) -> list[EvalLog]:
    """Run tasks on models in the running loop, asyncio's or trio's.

    It joins the current runtime and so shares its models and limits with other evaluations there; outside of one it
    opens its own. No signal is handled; cancelling it ends the evaluation in order.

    Args:
        tasks: Task objects, `@task` functions, a file, ``file.py@name``, a folder, or a list; default: every task below
            the working folder.
        model: ``provider/name``, a comma list, a list, `Model` objects; default PROCTOR_EVAL_MODEL, then
            INSPECT_EVAL_MODEL, then the task's own.
        model_base_url, model_args: for the models named: where they are served, arguments of their provider.
        task_args: arguments of task functions.
        solver: in place of the tasks' own.
        tags, metadata: kept in the log.
        display: plain, rich, log or none; default rich on a terminal, else plain.
        log_dir: a folder, made when missing; default PROCTOR_LOG_DIR, INSPECT_LOG_DIR, ``./logs``.
        limit: the first n samples of each task, or (start, stop) from 0.
        sample_id: ids or patterns of those to run. sample_shuffle: True, or a seed.
        epochs: how often each sample runs: a number, or `Epochs` with reducers.
        fail_on_error, continue_on_fail, score_on_error: as for `Task`.
        retry_on_error: how often a failed sample is run again from its start.
        message_limit, token_limit: messages and tokens of a sample. time_limit, working_limit: its seconds, with
            and without waits.
        max_samples: samples at once of a task; default one more than the model's connections.
        max_tasks: tasks at once; default 1, and the number of models when there are several.
        log_samples: False leaves the events out of the samples' records.
        log_buffer: records that may wait for the log's writer before samples wait for it; default 64.
        score: False scores nothing.
        config: any field of `GenerateConfig` (temperature, max_tokens, max_connections, max_retries, timeout, …).

    Returns:
        One log for each run, models outermost, in plan order. A run that failed is a log with status "error".

    Raises:
        UsageError: a mistake in the call; nothing was run.
    """
    call = EvalCall(
        tasks,
        model,
        _given(
            model_base_url=model_base_url,
            model_args=model_args,
            task_args=task_args,
            solver=solver,
            tags=tags,
            metadata=metadata,
            display=display,
            log_dir=log_dir,
            limit=limit,
            sample_id=sample_id,
            sample_shuffle=sample_shuffle,
            epochs=epochs,
            fail_on_error=fail_on_error,
            continue_on_fail=continue_on_fail,
            retry_on_error=retry_on_error,
            score_on_error=score_on_error,
            message_limit=message_limit,
            token_limit=token_limit,
            time_limit=time_limit,
            working_limit=working_limit,
            max_samples=max_samples,
            max_tasks=max_tasks,
            log_samples=log_samples,
            log_buffer=log_buffer,
            score=score,
        ),
        config,
    )
    async with call.opened() as actor:
        return await actor.run()


@frozen
class EvalCall:
    """What one call was given."""

    tasks: Tasks
    model: Models
    given: Mapping[str, Any]
    config: Mapping[str, Any] = field(factory=dict)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[RunActor]:
        """The run of this call, in the current runtime or one of its own."""
        load_dotenv()
        config = _generate_config(self.config)
        options, given = self._options(), self.given
        display = _display(given.get("display"))
        async with _runtime() as runtime:
            models = resolve_models(
                self.model, base_url=given.get("model_base_url"), model_args=given.get("model_args") or {}
            )
            plan = make_plan(self.tasks, models, given.get("task_args") or {}, options, config)
            _prepare_log_dir(options.log_dir)
            yield RunActor(runtime=runtime, plan=plan, display=display)

    def _options(self) -> EvalOptions:
        names = EvalOptions.__attrs_attrs__
        chosen = {a.name: self.given[a.name] for a in names if self.given.get(a.name) is not None}
        epochs = chosen.get("epochs")
        if epochs is not None and not isinstance(epochs, Epochs):
            chosen["epochs"] = Epochs(epochs)
        chosen["tags"] = tuple(chosen.get("tags", ()))
        chosen.setdefault("log_dir", environ("PROCTOR_LOG_DIR") or environ("INSPECT_LOG_DIR") or "logs")
        return EvalOptions(**chosen).checked()


async def _interruptible(call: EvalCall, signals: tuple[int, ...]) -> list[EvalLog]:
    """Run the call; the first Ctrl-C ends it in order, the second at once, the third ends the process."""
    async with open_interrupts(signals) as interrupts, call.opened() as actor:
        async with anyio.create_task_group() as nursery:

            async def watch() -> None:
                await interrupts.wait_phase(1)
                actor.cancel("interrupted: finishing the logs (at most 5 s; Ctrl-C again to hurry)")
                await interrupts.wait_phase(2)
                actor.hurry()

            nursery.start_soon(watch)
            logs = await actor.run()
            nursery.cancel_scope.cancel()
        if interrupts.phase:
            raise KeyboardInterrupt
        return logs


@asynccontextmanager
async def _runtime(**given: Any) -> AsyncIterator[Runtime]:
    current = current_runtime()
    if current is not None:
        yield current
        return
    async with open_runtime(Settings.resolve(source="eval() argument", **given)) as opened:
        yield opened


def _given(**arguments: Any) -> dict[str, Any]:
    return arguments


def _generate_config(config: Mapping[str, Any]) -> GenerateConfig:
    try:
        return GenerateConfig(**config)
    except TypeError:
        known = {a.name for a in GenerateConfig.__attrs_attrs__}
        unknown = [key for key in config if key not in known]
        raise OptionError(
            registry.unknown("option of eval", unknown[0], [*known, *(a.name for a in EvalOptions.__attrs_attrs__)])
        ) from None


def _display(name: str | None) -> Any:
    chosen = name or environ("PROCTOR_DISPLAY") or environ("INSPECT_DISPLAY")
    if chosen is None:
        chosen = "rich" if sys.stdout.isatty() else "plain"
    return registry.lookup("display", chosen)


def _prepare_log_dir(folder: str) -> None:
    """Make the folder of the logs, so that one that cannot be written is told of before anything runs."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or str(error)
        raise LogError(f"log_dir {folder} cannot be made: {reason}; name another with --log-dir (log_dir=…)") from None


__all__ = ["eval", "eval_async"]
