"""`eval_retry` and `eval_retry_async`: go on in logs, in the same files."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, frozen

from proctor.errors import UsageError
from proctor.evaluation.again import OldLog, open_old, planned_again, remove
from proctor.evaluation.api import Models
from proctor.evaluation.call import EvalCall, interruptible
from proctor.evaluation.plan import PlannedRun, TaskSource
from proctor.evaluation.sandboxing import check_sandboxes
from proctor.evaluation.task import Epochs
from proctor.log.listing import EvalLogInfo
from proctor.log.places import S3Place, place_of
from proctor.log.records import EvalLog
from proctor.log.threads import in_thread
from proctor.runtime import run
from proctor.solver import Solver

Log = str | Path | EvalLogInfo | EvalLog | S3Place
NOT_GIVEN_ON = frozenset({"tasks", "task", "config", "signals", "log_cleanup"})
"""Arguments of `eval_retry` that are none of `eval`."""


@frozen(kw_only=True)
class RetryCall(EvalCall):
    """One call of `eval_retry`.

    Attributes:
        logs: that are gone on in. given, config: what the call says in place of what they say.
        task: in place of the one that they name.
    """

    logs: Sequence[OldLog]
    given: Mapping[str, Any]
    config: Mapping[str, Any]
    task: TaskSource | Sequence[TaskSource] | None = None

    @classmethod
    def of_logs(cls, arguments: Mapping[str, Any]) -> RetryCall:
        """The call with these arguments of `eval_retry`. It blocks: logs are read, mended, copied.

        Raises:
            UsageError: a log cannot be gone on in, or an option is refused.
        """
        given = {name: value for name, value in arguments.items() if name not in NOT_GIVEN_ON}
        config = arguments.get("config") or {}
        call = EvalCall.of({**given, "config": config})
        named = arguments["tasks"]
        listed: list[Log] = list(named) if isinstance(named, (list, tuple)) else [named]
        if not listed:
            raise UsageError("no log was given: name the logs to go on in")
        log_dir = call.said.call.get("log_dir")
        logs = [open_old(each, None if log_dir is None else log_dir.value) for each in listed]
        doubled = next((log.path for n, log in enumerate(logs) if log.path in [each.path for each in logs[:n]]), None)
        if doubled is not None:
            raise UsageError(f"{doubled} is named twice; name each log once")
        return cls(tasks=None, said=call.said, logs=logs, given=given, config=config, task=arguments.get("task"))

    def plan(self) -> list[PlannedRun]:
        """The runs of the logs, in the order in which they were named."""
        task: Any = self.task
        tasks: list[Any] = list(task) if isinstance(task, (list, tuple)) else [task] * len(self.logs)
        if len(tasks) != len(self.logs):
            raise UsageError(
                f"task has {len(tasks)} tasks for {len(self.logs)} logs; give one for each, in their order"
            )
        pairs = zip(self.logs, tasks, strict=True)
        runs = [planned_again(log, self.given, self.config, each) for log, each in pairs]
        check_sandboxes(runs)
        return [evolve(each, index=number) for number, each in enumerate(runs)]

    def cleaned(self, logs: list[EvalLog]) -> list[EvalLog]:
        """Remove the logs that others took the place of, where those are a success."""
        for old, new in zip(self.logs, logs, strict=True):
            superseded = {old.path, *([] if old.in_use else [old.source])} - {place_of(new.location or ".")}
            for path in superseded if new.status == "success" and new.location else ():
                remove(path)
        return logs


def eval_retry(
    tasks: Log | Sequence[Log],
    log_dir: str | None = None,
    max_samples: int | None = None,
    max_tasks: int | None = None,
    max_subprocesses: int | None = None,
    max_sandboxes: int | None = None,
    display: str | None = None,
    fail_on_error: bool | float | None = None,
    continue_on_fail: bool | None = None,
    retry_on_error: int | None = None,
    score_on_error: bool | None = None,
    log_samples: bool | None = None,
    log_images: bool | None = None,
    log_level_transcript: str | None = None,
    log_buffer: int | None = None,
    score: bool | None = None,
    *,
    task: TaskSource | Sequence[TaskSource] | None = None,
    model: Models = None,
    model_base_url: str | None = None,
    model_args: Mapping[str, Any] | None = None,
    model_roles: Mapping[str, Any] | None = None,
    solver: Solver | list[Solver] | None = None,
    epochs: int | Epochs | None = None,
    log_cleanup: bool = False,
    model_cost_config: Any = None,
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
    """Go on in logs of evaluations that did not end well, in the same files.

    What is done in a log is reused without a request: samples that ended in order, or at a limit that is still the
    same, and that the dataset has unchanged. What is missing, failed or was cancelled runs. Results and metrics are
    those of all together. Task, model, base URL and every option are taken from the log unless given here. When the
    solvers, their arguments, the configuration, the scorers or the arguments of the task are others now, nothing is
    reused and a new log is begun beside the old one; it is said why.

    A log that another program wrote (``inspect_ai``), that another process is writing, or that cannot be written where
    it is, is copied first; the original stays.

    Args:
        tasks: the logs: paths, `EvalLog` objects, what `list_eval_logs` gives, or a list of them.
        log_dir: where a new log or a copy goes; default beside the old one.
        max_samples, max_tasks, max_subprocesses, max_sandboxes, display, fail_on_error, continue_on_fail,
            retry_on_error, score_on_error, log_samples, log_images, log_level_transcript, log_buffer, score: as for
            `eval`, in place of what the log says.
        task: in place of the one that the log names, or one for each log; needed where that was made without `@task`.
        model: the same model, where it cannot be made from its name. model_base_url, model_args, model_roles, solver,
            epochs: in place of what the log says.
        log_cleanup: remove a log that another one took the place of, once that is a success.
        model_cost_config, max_total_samples, max_total_tokens, max_total_cost, max_run_time, requests_per_minute,
            tokens_per_minute, runtime_seed: as for `eval`; no log says them.
        async_backend: asyncio or trio; default PROCTOR_ASYNC_BACKEND, INSPECT_ASYNC_BACKEND, asyncio.
        signals: those that end it in order; default SIGINT.
        config: fields of `GenerateConfig` in place of what the log says.

    Returns:
        One log for each, in the order given.

    Raises:
        UsageError: a log cannot be gone on in, or its task or model is not found; nothing was run.
        KeyboardInterrupt: it was interrupted; the logs are written.
    """
    arguments = locals()
    backend = EvalCall.of({"async_backend": async_backend}).said.get("async_backend")
    return run(_retried, arguments, tuple(signals), backend=backend)


async def _retried(arguments: Mapping[str, Any], signals: tuple[int, ...]) -> list[EvalLog]:
    call = await in_thread(RetryCall.of_logs, arguments)
    logs = await interruptible(call, signals)
    return await in_thread(call.cleaned, logs) if arguments["log_cleanup"] else logs


async def eval_retry_async(
    tasks: Log | Sequence[Log],
    log_dir: str | None = None,
    max_samples: int | None = None,
    max_tasks: int | None = None,
    max_subprocesses: int | None = None,
    max_sandboxes: int | None = None,
    display: str | None = None,
    fail_on_error: bool | float | None = None,
    continue_on_fail: bool | None = None,
    retry_on_error: int | None = None,
    score_on_error: bool | None = None,
    log_samples: bool | None = None,
    log_images: bool | None = None,
    log_level_transcript: str | None = None,
    log_buffer: int | None = None,
    score: bool | None = None,
    *,
    task: TaskSource | Sequence[TaskSource] | None = None,
    model: Models = None,
    model_base_url: str | None = None,
    model_args: Mapping[str, Any] | None = None,
    model_roles: Mapping[str, Any] | None = None,
    solver: Solver | list[Solver] | None = None,
    epochs: int | Epochs | None = None,
    log_cleanup: bool = False,
    model_cost_config: Any = None,
    max_total_samples: int | None = None,
    max_total_tokens: int | None = None,
    max_total_cost: float | None = None,
    max_run_time: float | None = None,
    requests_per_minute: float | None = None,
    tokens_per_minute: float | None = None,
    runtime_seed: int | None = None,
    **config: Any,
) -> list[EvalLog]:
    """`eval_retry` in the running loop, asyncio's or trio's; it joins the current runtime.

    What is done in a log is reused without a request: samples that ended in order, or at a limit that is still the
    same, and that the dataset has unchanged. What is missing, failed or was cancelled runs. Results and metrics are
    those of all together. Task, model, base URL and every option are taken from the log unless given here. When the
    solvers, their arguments, the configuration, the scorers or the arguments of the task are others now, nothing is
    reused and a new log is begun beside the old one; it is said why.

    A log that another program wrote (``inspect_ai``), that another process is writing, or that cannot be written where
    it is, is copied first; the original stays.

    Args:
        tasks: the logs: paths, `EvalLog` objects, what `list_eval_logs` gives, or a list of them.
        log_dir: where a new log or a copy goes; default beside the old one.
        max_samples, max_tasks, max_subprocesses, max_sandboxes, display, fail_on_error, continue_on_fail,
            retry_on_error, score_on_error, log_samples, log_images, log_level_transcript, log_buffer, score: as for
            `eval`, in place of what the log says.
        task: in place of the one that the log names, or one for each log; needed where that was made without `@task`.
        model: the same model, where it cannot be made from its name. model_base_url, model_args, model_roles, solver,
            epochs: in place of what the log says.
        log_cleanup: remove a log that another one took the place of, once that is a success.
        model_cost_config, max_total_samples, max_total_tokens, max_total_cost, max_run_time, requests_per_minute,
            tokens_per_minute, runtime_seed: as for `eval`; no log says them.
        config: fields of `GenerateConfig` in place of what the log says.

    Returns:
        One log for each, in the order given.

    Raises:
        UsageError: a log cannot be gone on in, or its task or model is not found; nothing was run.
    """
    call = await in_thread(RetryCall.of_logs, locals())
    async with call.opened() as actor:
        logs = await actor.run()
    return await in_thread(call.cleaned, logs) if log_cleanup else logs


__all__ = ["eval_retry", "eval_retry_async"]
