"""From what a call of `eval` was given to the runs it stands for: models × tasks × configurations, in that order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from attrs import field, frozen

from proctor import registry
from proctor.errors import MissingKeyError, UsageError
from proctor.evaluation.configs import config_layer, configurations
from proctor.evaluation.load import create_task, task_factories
from proctor.evaluation.options import EvalOptions
from proctor.evaluation.roles import Roles, made_roles
from proctor.evaluation.said import Said
from proctor.evaluation.task import Task
from proctor.model import Model, get_model
from proctor.model.keyless import keyless_model
from proctor.model.model import evaluated_model, roles
from proctor.runtime.settings import Resolved

if TYPE_CHECKING:
    from proctor.evaluation.resume import Resume

TaskSource = str | Path | Task | Callable[..., Task]
Tasks = TaskSource | Sequence[TaskSource] | None
LogFormat = Literal["eval", "json"]


@frozen(eq=False, kw_only=True)
class PlannedRun:
    """One task on one model with one configuration.

    Attributes:
        index: its place in the plan, from 0.
        model: the evaluated model, its config merged from environment, model, task and call.
        options: every option as it holds for this run.
        task_args, task_args_passed: of its factory, with and without defaults.
        roles: other models by the role they play.
        varied: the fields of the configuration that the plan varies, with this run's values.
        sources: where options and fields of the configuration came from that are not built in.
        eval_set_id: of the set it belongs to. resume: the log that it goes on in. notes: what to say when it begins.
    """

    index: int
    task: Task
    model: Model
    options: EvalOptions
    task_args: Mapping[str, Any] = field(factory=dict)
    task_args_passed: Mapping[str, Any] = field(factory=dict)
    roles: Roles = field(factory=dict)
    varied: Mapping[str, Any] = field(factory=dict)
    sources: Mapping[str, str] = field(factory=dict)
    eval_set_id: str | None = None
    resume: Resume | None = None
    notes: tuple[str, ...] = ()


def make_plan(tasks: Tasks, said: Said) -> list[PlannedRun]:
    """The runs of a call, models outermost, then tasks, then configurations.

    A task that names a model of its own runs on that one, unless the call names models.

    Raises:
        UsageError: no task, an unknown one, a bad argument; two runs that nothing tells apart.
    """
    sources, by_call = _sources(tasks), "model" in said.call
    models: Sequence[Model | None] = resolve_models(said) or [None]
    below, above = made_roles(said.environment.get("model_roles")), made_roles(said.call.get("model_roles"))
    runs: list[PlannedRun] = []
    for number, model in enumerate(models):
        with evaluated_model(model), roles({**below, **above}):
            loaded = [task for source in sources for task in _load(source, said.find("task_args"))]
        for task in loaded:
            own = task.model is not None and not by_call
            if own and number:
                continue  # it has its place among the runs of the first model
            chosen = model if model is not None and not own else _model_of_task(task)
            playing = {**below, **made_roles(Resolved(task.model_roles, "task")), **above}
            runs += _planned(len(runs), task, chosen, said, playing)
    _refuse_twins(runs)
    return runs


def resolve_models(said: Said) -> list[Model]:
    """The models that a call names (one, a comma list, a list), else those that the environment names.

    Raises:
        UsageError: an unknown provider, a name without one, the same model twice.
    """
    named = said.get("model")
    items: list[Any] = []
    listed: Any = named if isinstance(named, (list, tuple)) else [named] if named else []
    for item in listed:
        items += [part.strip() for part in item.split(",") if part.strip()] if isinstance(item, str) else [item]
    base_url, arguments = said.get("model_base_url"), said.get("model_args") or {}
    models: list[Model] = []
    for item in items:
        if isinstance(item, Model):
            models.append(item)
        elif isinstance(item, str):
            models.append(_named_model(item, base_url, arguments, alone=len(items) == 1))
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


def _named_model(name: str, base_url: str | None, arguments: Mapping[str, Any], *, alone: bool) -> Model:
    """A model by name; of several one whose key is missing ends by itself, the others go on."""
    try:
        return get_model(name, base_url=base_url, **arguments)
    except MissingKeyError as error:
        if alone:
            raise
        return keyless_model(name, error)


def _sources(tasks: Tasks) -> list[TaskSource]:
    if tasks is None:
        return ["."]
    listed: list[Any] = list(tasks) if isinstance(tasks, (list, tuple)) else [tasks]
    if not listed:
        raise UsageError("no task was given: name a file, a folder, a registered task, or pass Task objects")
    return listed


def _load(source: TaskSource, said: Resolved[Any]) -> Iterator[Task]:
    task_args: Mapping[str, Any] = said.value or {}
    if isinstance(source, Task):
        if task_args and not said.source.startswith("environment"):
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


def _planned(index: int, task: Task, model: Model, said: Said, playing: Roles) -> Iterator[PlannedRun]:
    options, sources = said.options(task)
    info = task.info
    layers = (
        said.environment_config,
        config_layer(model.config, "model's config"),
        config_layer(task.config, "task"),
        said.call_config,
    )
    for number, configured in enumerate(configurations(layers)):
        yield PlannedRun(
            index=index + number,
            task=task,
            model=model.with_config(configured.config),
            options=options,
            task_args=info.params if info else {},
            task_args_passed=info.passed if info else dict(said.get("task_args") or {}),
            roles=playing,
            varied=configured.varied,
            sources={**configured.sources, **sources},
        )


def _refuse_twins(runs: Sequence[PlannedRun]) -> None:
    seen: dict[tuple[Any, ...], str] = {}
    for run in runs:
        key = (run.task.name, str(run.model), repr(run.model.config), repr(sorted(run.task_args.items(), key=str)))
        place = run.task.file or "a Task object"
        if key in seen and run.task.info is not None:
            where = f"both in {place}" if seen[key] == place else f"in {seen[key]} and {place}"
            raise UsageError(
                f"two tasks are called {run.task.name!r} ({where}): their logs could not be told apart; name each "
                "once, and give one another name with @task(name=…)"
            )
        seen[key] = place


def task_label(task: Task) -> str:
    """The name under which a task is logged."""
    info = registry.info_of(task) or task.info
    return task.name if task.name != "task" or info is None else info.name


def run_label(run: PlannedRun) -> str:
    """The name under which a run is shown: its task's, with what the plan varies."""
    varied = varied_text(run.varied)
    return f"{task_label(run.task)} ({varied})" if varied else task_label(run.task)


def varied_text(varied: Mapping[str, Any]) -> str:
    """The values that a plan varies: ``temperature=0.5, top_p=0.9``."""
    return ", ".join(
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}" for name, value in varied.items()
    )


__all__ = [
    "EvalOptions", "LogFormat", "PlannedRun", "TaskSource", "Tasks", "make_plan", "resolve_models", "run_label",
    "task_label", "varied_text",
]  # fmt: skip
