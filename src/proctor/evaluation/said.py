"""What was said of an evaluation, and where: by the environment, by the call; the rest is said by models and tasks.

Every value keeps its source from the place it was given to the run it holds for, so that a refusal can name it and
`proctor plan` can show it. Precedence, lowest first: built-in, provider, environment variable, the model's config, the
task, `eval()` argument or command line; the call's own config comes after all of them, in `Model.generate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import field, fields, frozen

from proctor import registry
from proctor.errors import OptionError
from proctor.evaluation.configs import checked_field
from proctor.evaluation.options import ARGUMENT, TASK_OPTIONS, EvalOptions, checked
from proctor.evaluation.task import Epochs, Task
from proctor.model import GenerateConfig
from proctor.runtime.options import OPTIONS, said_in_environment
from proctor.runtime.settings import Resolved, resolve

Values = Mapping[str, Resolved[Any]]
FIELDS: Final = frozenset(each.name for each in fields(GenerateConfig))


@frozen(kw_only=True)
class Said:
    """What the environment and the call say, every value checked.

    Attributes:
        environment, call: options by parameter of `eval`.
        environment_config, call_config: fields of `GenerateConfig`; where a run is wanted for each of several values,
            a list.
    """

    environment: Values = field(factory=dict)
    call: Values = field(factory=dict)
    environment_config: Values = field(factory=dict)
    call_config: Values = field(factory=dict)

    @classmethod
    def of(cls, arguments: Mapping[str, Any], config: Mapping[str, Any]) -> Said:
        """What the arguments of a call say, and the environment of this process.

        Args:
            arguments: parameters of `eval` by name; None is "not given". A `Resolved` brings its own source.
            config: its further keywords.

        Raises:
            OptionError: there is no such option, or a value is refused.
        """
        for name in config:
            if name not in FIELDS:
                raise OptionError(registry.unknown("option of eval", name, [*FIELDS, *arguments]))
        environment = said_in_environment(OPTIONS)
        return cls(
            environment={name: checked(name, said) for name, said in environment.items() if name not in FIELDS},
            call={name: checked(name, sourced(value)) for name, value in arguments.items() if is_given(value)},
            environment_config={
                name: checked_field(name, said) for name, said in environment.items() if name in FIELDS
            },
            call_config={name: checked_field(name, sourced(v)) for name, v in config.items() if is_given(v)},
        )

    def find(self, name: str, default: Any = None) -> Resolved[Any]:
        """An option that no task says: the call's value, else the environment's, else `default`."""
        return resolve(default, *_layers(self.environment, self.call, name=name))

    def get(self, name: str, default: Any = None) -> Any:
        """The value of `find`."""
        return self.find(name, default).value

    def options(self, task: Task) -> tuple[EvalOptions, dict[str, str]]:
        """The options that hold for a task, and the sources of those that are not built in."""
        found: dict[str, Resolved[Any]] = {}
        for attribute in fields(EvalOptions):
            name = attribute.name
            of_task: Values = {}
            if name in TASK_OPTIONS and (value := getattr(task, name)) is not None:
                of_task = {name: Resolved(value, "task")}
            found[name] = resolve(None, *_layers(self.environment, of_task, self.call, name=name))
        found["epochs"] = self._epochs(task)
        found["log_dir"] = self.find("log_dir", "logs")
        said = {name: resolved for name, resolved in found.items() if resolved.value is not None}
        return (
            EvalOptions(**{name: resolved.value for name, resolved in said.items()}),
            {name: resolved.source for name, resolved in said.items()},
        )

    def _epochs(self, task: Task) -> Resolved[Any]:
        """How often, and how the scores become one: two things, which different places may say."""
        reducer = self.find("epochs_reducer")
        of_task = None if task.epochs is None else Resolved(task.epochs, "task")
        count: Resolved[Any] = Resolved(None)
        for said in (self.environment.get("epochs"), of_task, self.call.get("epochs")):
            if said is not None:
                count = Resolved(said.value.epochs, said.source)
                reducer = Resolved(said.value.reducer, said.source) if said.value.reducer is not None else reducer
        if count.value is None and reducer.value is None:
            return count
        source = reducer.source if count.value is None else count.source
        return Resolved(Epochs(count.value or 1, reducer.value), source)


def is_given(value: Any) -> bool:
    """Whether an argument says something."""
    return (value.value if isinstance(value, Resolved) else value) is not None


def sourced(value: Any) -> Resolved[Any]:
    """An argument with its source; `eval` itself where it has none."""
    return value if isinstance(value, Resolved) else Resolved(value, ARGUMENT)


def _layers(*layers: Values, name: str) -> list[tuple[Any, str]]:
    return [(said.value, said.source) for layer in layers if (said := layer.get(name)) is not None]
