"""From what a call of `eval` was given to the runs it stands for: tasks × models, every option resolved.

Precedence, lowest first: built-in, environment variable, the `Model`'s config, `Task`, the call's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import attrs
from attrs import field, frozen

from proctor import registry
from proctor.errors import OptionError, UsageError
from proctor.evaluation.load import create_task, task_factories
from proctor.evaluation.task import Epochs, Task, checked_fail_on_error, positive, whole
from proctor.model import GenerateConfig, Model, get_model
from proctor.model.model import evaluated_model
from proctor.runtime.settings import environ
from proctor.solver import Solver

TaskSource = str | Path | Task | Callable[..., Task]
Tasks = TaskSource | Sequence[TaskSource] | None
LogFormat = Literal["eval", "json"]


@frozen
class EvalOptions:
    """The options of one call that hold for all its tasks; None is "not given". Units as `eval` documents them."""

    limit: int | tuple[int, int] | None = None
    sample_id: str | int | list[str | int] | None = None
    sample_shuffle: bool | int | None = None
    epochs: Epochs | None = None
    fail_on_error: bool | float | None = None
    continue_on_fail: bool | None = None
    retry_on_error: int | None = None
    score_on_error: bool | None = None
    message_limit: int | None = None
    token_limit: int | None = None
    time_limit: float | None = None
    working_limit: float | None = None
    max_samples: int | None = None
    max_tasks: int | None = None
    log_dir: str = "logs"
    log_samples: bool = True
    log_buffer: int | None = None
    score: bool = True
    solver: Solver | list[Solver] | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(factory=dict)

    def checked(self) -> EvalOptions:
        """Itself, when every value is in its range.

        Raises:
            OptionError: one is not.
        """
        for option in ("max_samples", "max_tasks", "log_buffer"):
            value = getattr(self, option)
            if value is not None:
                whole(option, value, 1)
        if self.retry_on_error is not None:
            whole("retry_on_error", self.retry_on_error, 0)
        for option in ("message_limit", "token_limit", "time_limit", "working_limit"):
            positive(option, getattr(self, option))
        checked_fail_on_error(self.fail_on_error)
        _check_limit(self.limit)
        return self


@frozen(eq=False)
class PlannedRun:
    """One task on one model.

    Attributes:
        model: the evaluated model, its config merged from environment, model, task and call.
        task: the task, its own values replaced by the call's where it gave some.
        task_args, task_args_passed: of its factory, with and without defaults.
    """

    index: int
    task: Task
    model: Model
    options: EvalOptions
    task_args: Mapping[str, Any]
    task_args_passed: Mapping[str, Any]


def make_plan(
    tasks: Tasks, models: Sequence[Model], task_args: Mapping[str, Any], options: EvalOptions, config: GenerateConfig
) -> list[PlannedRun]:
    """The runs of a call, models outermost, in plan order.

    Raises:
        UsageError: no task, an unknown one, a bad argument; two runs that nothing tells apart.
    """
    sources = _sources(tasks)
    runs: list[PlannedRun] = []
    chosen_models: Sequence[Model | None] = models or [None]
    for model in chosen_models:
        with evaluated_model(model):
            loaded = [task for source in sources for task in _load(source, task_args)]
        for task in loaded:
            chosen = model or _model_of_task(task)
            runs.append(_planned(len(runs), task, chosen, task_args, options, config))
    _refuse_twins(runs)
    return runs


def resolve_models(
    model: str | Model | Sequence[str | Model] | None, *, base_url: str | None, model_args: Mapping[str, Any]
) -> list[Model]:
    """The models a call names: one, a comma list, a list; else those of PROCTOR_EVAL_MODEL or INSPECT_EVAL_MODEL.

    Raises:
        UsageError: an unknown provider, a name without one, the same model twice.
    """
    named = model or environ("PROCTOR_EVAL_MODEL") or environ("INSPECT_EVAL_MODEL")
    items: list[Any] = []
    listed: Any = named if isinstance(named, (list, tuple)) else [named] if named else []
    for item in listed:
        items += [part.strip() for part in item.split(",") if part.strip()] if isinstance(item, str) else [item]
    models: list[Model] = []
    for item in items:
        if isinstance(item, Model):
            models.append(item)
        elif isinstance(item, str):
            models.append(get_model(item, base_url=base_url, **model_args))
        else:
            raise UsageError(f"model must be a name (provider/model), a Model or a list of them, not {item!r}")
    seen: set[str] = set()
    for entry in models:
        # Two descriptions of one name with other settings are two models; one given twice is a slip.
        key = f"{entry} {entry.config} {entry.base_url}"
        if key in seen:
            raise UsageError(f"model {entry} is named twice; name each model once")
        seen.add(key)
    return models


def _sources(tasks: Tasks) -> list[TaskSource]:
    if tasks is None:
        return ["."]
    listed: list[Any] = list(tasks) if isinstance(tasks, (list, tuple)) else [tasks]
    if not listed:
        raise UsageError("no task was given: name a file, a folder, a registered task, or pass Task objects")
    return listed


def _load(source: TaskSource, task_args: Mapping[str, Any]) -> Iterator[Task]:
    if isinstance(source, Task):
        if task_args:
            raise UsageError(
                f"task_args {', '.join(task_args)} cannot reach a Task object that is already made; pass the task "
                "function or its file instead"
            )
        yield source
    elif isinstance(source, (str, Path)):
        for factory in task_factories(str(source)):
            yield create_task(factory, task_args)
    elif callable(source):
        yield create_task(source, task_args)
    else:
        raise UsageError(f"a task must be a Task, a @task function or a name, not {source!r}")


def _model_of_task(task: Task) -> Model:
    if task.model is None:
        raise UsageError(
            f"no model was given for task {task.name}: pass --model provider/name (model=…), set PROCTOR_EVAL_MODEL, "
            "or give the Task a model"
        )
    return task.model if isinstance(task.model, Model) else get_model(task.model)


def _planned(
    index: int, task: Task, model: Model, task_args: Mapping[str, Any], options: EvalOptions, config: GenerateConfig
) -> PlannedRun:
    def pick(name: str) -> Any:
        given = getattr(options, name)
        return getattr(task, name) if given is None else given

    merged = attrs.evolve(
        options,
        **{
            name: pick(name)
            for name in (
                "epochs", "fail_on_error", "continue_on_fail", "score_on_error", "message_limit", "token_limit",
                "time_limit", "working_limit",
            )
        },
    )  # fmt: skip
    info = task.info
    return PlannedRun(
        index=index,
        task=task,
        model=model.with_config(model.config.merge(task.config).merge(config)),
        options=merged,
        task_args=info.params if info else {},
        task_args_passed=info.passed if info else dict(task_args),
    )


def _refuse_twins(runs: Sequence[PlannedRun]) -> None:
    seen: dict[tuple[Any, ...], str] = {}
    for run in runs:
        key = (run.task.name, str(run.model), repr(run.model.config), repr(sorted(run.task_args.items(), key=str)))
        place = run.task.file or "a Task object"
        if key in seen and run.task.info is not None:
            raise UsageError(
                f"two tasks are called {run.task.name!r} (in {seen[key]} and {place}): their logs could not be told "
                "apart; give one another name with @task(name=…)"
            )
        seen[key] = place


def _check_limit(limit: Any) -> None:
    if limit is None:
        return
    if isinstance(limit, tuple):
        if len(limit) != 2 or not all(isinstance(n, int) for n in limit) or not 0 <= limit[0] < limit[1]:
            raise OptionError(f"limit must be a count or a range (start, stop) with start below stop, not {limit!r}")
        return
    whole("limit", limit, 1)


def task_label(task: Task) -> str:
    """The name under which a task is logged."""
    info = registry.info_of(task) or task.info
    return task.name if task.name != "task" or info is None else info.name
