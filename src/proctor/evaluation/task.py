"""What an evaluation is made of: `Task`, the `@task` decorator, `Epochs`."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, ParamSpec, overload

import attrs
from attrs import define, field

from proctor import registry
from proctor.dataset import Dataset, MemoryDataset, Sample
from proctor.dataset.iterable import IterableDataset
from proctor.dataset.sample import SandboxEnvironmentType, as_sandbox
from proctor.errors import OptionError, UsageError
from proctor.log.spec import SandboxEnvironmentSpec
from proctor.model import GenerateConfig, Model
from proctor.runtime.tokens import TokenLimit, parse_token_limit
from proctor.scorer import Scorer, ScoreReducer, ScoreReducers
from proctor.scorer.reducers import as_reducers, check_reducers
from proctor.scorer.scoring import Metrics, check_metrics
from proctor.solver import Generate, Solver, TaskState, chain, generate

P = ParamSpec("P")
FILE_ATTRIBUTE: Final = "__proctor_task_file__"


@define(init=False)
class Epochs:
    """How often each sample is run, and how its scores become one.

    Args:
        epochs: at least 1.
        reducer: a reducer, its name (mean, median, mode, max, at_least_2, pass_at_3 …) or a list; default mean.
    """

    epochs: int
    reducer: list[ScoreReducer] | None

    def __init__(self, epochs: int, reducer: ScoreReducers | None = None) -> None:
        self.epochs = whole("epochs", epochs, 1)
        self.reducer = as_reducers(reducer)
        check_reducers(self.reducer or (), self.epochs)


@define(init=False, eq=False)
class Task:
    """A dataset, the solvers that work on each sample, and the scorers that judge what comes out.

    A Task is a description: running it changes nothing on it, so one object may be run many times.

    Args:
        dataset: a dataset, a list of samples, or any iterable or asynchronous iterable of them, which is read sample
            by sample while they run; None is one empty sample.
        setup: solvers that always run first, also when the solver is replaced.
        solver: a solver or a list of them, run in order; default `generate()`.
        cleanup: awaited with the state when a sample is over, whatever its end.
        scorer: a scorer or a list of them; None scores nothing.
        metrics: used in place of those the scorers were declared with.
        model: the model to use when the call names none.
        config: options of generation for the evaluated model.
        model_roles: other models by the role they play (``grader``): names, `Model` objects or lists of them.
        sandbox: where the tools of its samples run: a type (``bubblewrap``), or a type and its configuration.
        epochs: a number or `Epochs`.
        fail_on_error: True (default): the first error of a sample ends the task; False: none does; a share below 1
            or a count of samples: more errors than that do.
        continue_on_fail: judge `fail_on_error` only when all samples have run.
        score_on_error: score what there is of a sample that failed.
        message_limit, token_limit, turn_limit: messages, tokens and answers of models of a sample; a `TokenLimit` or
            a text such as ``output:100k`` says which tokens count. time_limit: its seconds. working_limit: the same
            without waits. cost_limit: its dollars; the models' prices must be known (`model_cost_config`).
        name, display_name, version, metadata, tags: for the log.

    Raises:
        OptionError: a value is out of range.
        UsageError: an unknown argument, or a value of the wrong kind.
    """

    dataset: Dataset
    setup: Solver | None
    solver: Solver
    steps: list[Solver]
    cleanup: Callable[[TaskState], Awaitable[None]] | None
    scorer: list[Scorer]
    metrics: Metrics | None
    model: Model | str | None
    config: GenerateConfig
    model_roles: Mapping[str, Any] | None
    sandbox: SandboxEnvironmentSpec | None
    epochs: Epochs | None
    fail_on_error: bool | float | None
    continue_on_fail: bool | None
    score_on_error: bool | None
    message_limit: int | None
    token_limit: int | TokenLimit | None
    turn_limit: int | None
    time_limit: float | None
    working_limit: float | None
    cost_limit: float | None
    name: str
    display_name: str | None
    version: int | str
    metadata: dict[str, Any] | None
    tags: list[str] | None
    description: str | None
    info: registry.RegistryInfo | None = field(default=None)
    file: str | None = field(default=None)

    def __init__(
        self,
        dataset: Dataset | Iterable[Sample] | AsyncIterable[Sample] | None = None,
        setup: Solver | Sequence[Solver] | None = None,
        solver: Solver | Sequence[Solver] | None = None,
        cleanup: Callable[[TaskState], Awaitable[None]] | None = None,
        scorer: Scorer | Sequence[Scorer] | None = None,
        metrics: Metrics | None = None,
        model: str | Model | None = None,
        config: GenerateConfig | None = None,
        model_roles: Mapping[str, Any] | None = None,
        sandbox: SandboxEnvironmentType | None = None,
        epochs: int | Epochs | None = None,
        fail_on_error: bool | float | None = None,
        continue_on_fail: bool | None = None,
        score_on_error: bool | None = None,
        message_limit: int | None = None,
        token_limit: int | str | TokenLimit | None = None,
        turn_limit: int | None = None,
        time_limit: float | None = None,
        working_limit: float | None = None,
        cost_limit: float | None = None,
        display_name: str | None = None,
        name: str | None = None,
        version: int | str = 0,
        metadata: dict[str, Any] | None = None,
        tags: list[str] | None = None,
        *,
        description: str | None = None,
    ) -> None:
        self.dataset = _dataset(dataset)
        self.setup = None if setup is None else _one(_listed(setup))
        self.steps = _listed(solver) if solver is not None else [generate()]
        self.solver = _one(self.steps)
        self.cleanup = cleanup
        self.scorer = [] if scorer is None else _scorers(scorer)
        if metrics is not None:
            check_metrics(metrics)
        self.metrics = metrics
        self.model = model
        self.config, self.model_roles = config or GenerateConfig(), model_roles
        self.sandbox = _sandbox(sandbox)
        self.epochs = Epochs(epochs) if isinstance(epochs, int) and not isinstance(epochs, bool) else _epochs(epochs)
        self.fail_on_error = checked_fail_on_error(fail_on_error)
        self.continue_on_fail, self.score_on_error = continue_on_fail, score_on_error
        self.message_limit = positive("message_limit", message_limit)
        self.token_limit = tokens("token_limit", token_limit)
        self.turn_limit = positive("turn_limit", turn_limit)
        self.time_limit = positive("time_limit", time_limit)
        self.working_limit = positive("working_limit", working_limit)
        self.cost_limit = positive("cost_limit", cost_limit)
        self.name = name or "task"
        self.display_name, self.version, self.metadata, self.tags = display_name, version, metadata, tags
        self.description = description
        self.info = self.file = None

    def __setattr__(self, key: str, value: Any) -> None:
        # A registered task's factory tags what it makes; slots have no room for that attribute.
        object.__setattr__(self, "info" if key == registry.ATTRIBUTE else key, value)


def task_with(task: Task, **changes: Any) -> Task:
    """A copy of `task` with some arguments of `Task` replaced; the original is left as it is.

    Raises:
        UsageError: an argument that Task does not have.
    """
    given = inspect.signature(Task.__init__).parameters
    for key in changes:
        if key not in given:
            raise UsageError(f"task_with: Task has no argument {key!r}; it has {', '.join(list(given)[1:])}")
    kept = {key: getattr(task, key) for key in given if key != "self" and key not in changes}
    kept["solver"] = changes.pop("solver", task.steps)
    copy = Task(**kept, **changes)
    copy.info, copy.file = task.info, task.file
    return copy


@overload
def task(factory: Callable[P, Task], /) -> Callable[P, Task]: ...
@overload
def task(*, name: str | None = None, **attribs: Any) -> Callable[[Callable[P, Task]], Callable[P, Task]]: ...
def task(factory: Any = None, /, *, name: str | None = None, **attribs: Any) -> Any:
    """Register a function that returns a `Task`.

    Args:
        name: default the function's name.
        attribs: kept with the task, shown by `proctor list tasks`.
    """

    def decorate(factory: Callable[P, Task]) -> Callable[P, Task]:
        known_as = name or factory.__name__
        file = inspect.getsourcefile(factory)

        def finish(made: Task) -> Task:
            if not isinstance(made, Task):
                raise UsageError(f"@task {known_as} returned {type(made).__name__}; it must return a Task")
            # A factory may hand out one module-level Task again and again: what it makes is its own object.
            copy = task_copy(made)
            if made.name == "task":
                copy.name = known_as
            copy.file = file
            return copy

        made = registry.registered("task", factory, name=known_as, metadata=attribs, finish=finish)
        setattr(made, FILE_ATTRIBUTE, file)
        return made

    return decorate if factory is None else decorate(factory)


def task_copy(task: Task) -> Task:
    """A shallow copy."""
    copy = object.__new__(Task)
    for attribute in attrs.fields(Task):
        object.__setattr__(copy, attribute.name, getattr(task, attribute.name))
    return copy


def at_least(option: str, value: Any, least: int) -> Any:
    """`value` if it is a number of at least `least`.

    Raises:
        OptionError: it is not; the text names the option.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise OptionError(f"{option} must be a number, not {value!r}")
    if value < least:
        raise OptionError(f"{option} must be at least {least}, not {value!r}")
    return value


def whole(option: str, value: Any, least: int) -> int:
    """`value` if it is a whole number of at least `least`.

    Raises:
        OptionError: it is not; the text names the option.
    """
    if not isinstance(at_least(option, value, least), int):
        raise OptionError(f"{option} must be a whole number, not {value!r}")
    return int(value)


def positive(option: str, value: Any) -> Any:
    """None, or a number above 0.

    Raises:
        OptionError: it is neither.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise OptionError(f"{option} must be a number above 0, not {value!r}")
    return value


def tokens(option: str, value: Any) -> int | TokenLimit | None:
    """A limit on tokens: None, a number above 0, or what says which tokens count, as `TokenLimit` or as text.

    Raises:
        OptionError: it is none of these.
    """
    if isinstance(value, str):
        value = parse_token_limit(value)
    if isinstance(value, TokenLimit):
        positive(option, value.tokens)
        return value.tokens if value.type == "all" else value
    return None if value is None else whole(option, positive(option, value), 1)


def checked_fail_on_error(value: Any) -> bool | float | None:
    """None, a bool, or a number of at least 0.

    Raises:
        OptionError: it is neither.
    """
    if value is None or isinstance(value, bool):
        return value
    return float(at_least("fail_on_error", value, 0))


def _epochs(value: Any) -> Epochs | None:
    if value is None or isinstance(value, Epochs):
        return value
    raise OptionError(f"epochs must be a number or Epochs(...), not {value!r}")


def _sandbox(value: Any) -> SandboxEnvironmentSpec | None:
    try:
        return as_sandbox(value)
    except TypeError as error:
        raise UsageError(f"Task({error})") from None


def _dataset(value: Dataset | Iterable[Sample] | AsyncIterable[Sample] | None) -> Dataset:
    if value is None:
        return MemoryDataset([Sample(input="")])
    if isinstance(value, Dataset):
        return value
    if isinstance(value, (str, bytes)) or not isinstance(value, (Iterable, AsyncIterable)):
        raise UsageError(f"Task(dataset=…) takes a dataset or an iterable of Sample, not {value!r}")
    if not isinstance(value, Collection):
        return IterableDataset(value)
    samples = list(value)
    for number, sample in enumerate(samples, 1):
        if not isinstance(sample, Sample):
            raise UsageError(
                f"Task(dataset=…): item {number} is a {type(sample).__name__}, not a Sample: write "
                "Sample(input=…, target=…)"
            )
    return MemoryDataset(samples)


def _listed(value: Solver | Sequence[Solver]) -> list[Solver]:
    steps: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
    for step in steps:
        if not callable(step):
            raise UsageError(f"a solver must be callable as solver(state, generate), not {step!r}")
        if registry.info_of(step) is not None and inspect.isfunction(step) and _is_factory(step):
            raise UsageError(f"solver {step.__name__} was given as a function: call it, as in solver={step.__name__}()")
    return steps


def _is_factory(step: Any) -> bool:
    return hasattr(step, "__wrapped__") and not inspect.iscoroutinefunction(step)


def _one(steps: list[Solver]) -> Solver:
    return steps[0] if len(steps) == 1 else chain(*steps)


def _scorers(value: Scorer | Sequence[Scorer]) -> list[Scorer]:
    scorers: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
    for scorer in scorers:
        if not callable(scorer):
            raise UsageError(f"a scorer must be callable as scorer(state, target), not {scorer!r}")
        if inspect.isfunction(scorer) and _is_factory(scorer) and registry.info_of(scorer) is not None:
            raise UsageError(
                f"scorer {scorer.__name__} was given as a function: call it, as in scorer={scorer.__name__}()"
            )
    return scorers


__all__ = ["Epochs", "Generate", "Metrics", "Task", "task", "task_with"]
