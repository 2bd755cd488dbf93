"""The options of one call of `eval` as they hold for all its runs, and the check that each value must pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from proctor.errors import OptionError, UsageError
from proctor.evaluation.task import Epochs, at_least, checked_fail_on_error, positive, tokens, whole
from proctor.log.logger_events import LEVELS
from proctor.log.spec import SandboxEnvironmentSpec
from proctor.model.cost import read_prices
from proctor.model.quota import PacingOptions
from proctor.runtime.settings import BACKENDS, Resolved, one_of
from proctor.runtime.tokens import TokenLimit
from proctor.scorer.reducers import as_reducers
from proctor.solver import Solver

ARGUMENT: Final = "eval() argument"


@frozen
class EvalOptions:
    """The options of one run; None is "not given". Units as `eval` documents them."""

    limit: int | tuple[int, int] | None = None
    sample_id: str | int | list[str | int] | None = None
    sample_shuffle: bool | int | None = None
    epochs: Epochs | None = None
    fail_on_error: bool | float | None = None
    continue_on_fail: bool | None = None
    retry_on_error: int | None = None
    score_on_error: bool | None = None
    message_limit: int | None = None
    token_limit: int | TokenLimit | None = None
    turn_limit: int | None = None
    time_limit: float | None = None
    working_limit: float | None = None
    cost_limit: float | None = None
    max_samples: int | None = None
    max_tasks: int | None = None
    max_subprocesses: int | None = None
    max_sandboxes: int | None = None
    sandbox: SandboxEnvironmentSpec | None = None
    sandbox_cleanup: bool | None = None
    max_dataset_memory: int | None = None
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    log_dir: str = "logs"
    log_format: str = "eval"
    log_samples: bool = True
    log_images: bool | None = None
    log_level_transcript: str | None = None
    log_buffer: int | None = None
    score: bool = True
    solver: Solver | list[Solver] | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(factory=dict)

    @property
    def tokens(self) -> tuple[int | None, str | None]:
        """The token limit as logs hold it: a number, and which tokens count, None for all."""
        limit = self.token_limit
        return (limit.tokens, limit.type) if isinstance(limit, TokenLimit) else (limit, None)

    @property
    def pacing(self) -> PacingOptions:
        """The quotas that were declared."""
        return PacingOptions(requests_per_minute=self.requests_per_minute, tokens_per_minute=self.tokens_per_minute)


TASK_OPTIONS: Final = (
    "fail_on_error", "continue_on_fail", "score_on_error", "message_limit", "token_limit", "turn_limit",
    "time_limit", "working_limit", "cost_limit", "sandbox",
)  # fmt: skip
"""Options that a `Task` may say too; `epochs` besides, which has two parts."""


def checked(option: str, said: Resolved[Any]) -> Resolved[Any]:
    """`said` with its value as the engine takes it.

    Raises:
        OptionError: the value is refused; the text names the option and where the value came from.
    """
    check = CHECKS.get(option)
    if check is None:
        return said
    try:
        return Resolved(check(option, said.value), said.source)
    except UsageError as error:
        raise with_source(error, said.source) from None


def with_source(error: UsageError, source: str) -> UsageError:
    """The error with the place that the refused value came from."""
    text = str(error)
    return error if source in text else type(error)(f"{text} (from {source})")


def _at_least(least: int) -> Callable[[str, Any], int]:
    return lambda option, value: whole(option, value, least)


def _count(option: str, value: Any) -> int | None:
    return positive(option, value) and whole(option, value, 1)


def _rate(option: str, value: Any) -> float:
    if not math.isfinite(at_least(option, value, 0)):
        raise OptionError(f"{option} must be a finite number, not {value!r}")
    return float(value)


def _truth(option: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise OptionError(f"{option} must be True or False, not {value!r}")
    return value


def _epochs(option: str, value: Any) -> Epochs:
    return value if isinstance(value, Epochs) else Epochs(value)


def _limit(option: str, value: Any) -> int | tuple[int, int]:
    if isinstance(value, tuple):
        if len(value) != 2 or not all(isinstance(n, int) for n in value) or not 0 <= value[0] < value[1]:
            raise OptionError(f"{option} must be a count or a range (start, stop) with start below stop, not {value!r}")
        return value
    return whole(option, value, 1)


def _sample_id(option: str, value: Any) -> str | int | list[str | int]:
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    if not listed or not all(isinstance(each, (str, int)) and not isinstance(each, bool) for each in listed):
        raise OptionError(f"{option} must be an id, a pattern or a list of them, not {value!r}")
    return value if isinstance(value, (str, int)) else listed


def _shuffle(option: str, value: Any) -> bool | int:
    if not isinstance(value, int):
        raise OptionError(f"{option} must be True, False or a seed (a whole number), not {value!r}")
    return value


def _seed(option: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise OptionError(f"{option} must be a whole number, not {value!r}")
    return value


def _text(option: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise OptionError(f"{option} must be a text, not {value!r}")
    return value


def _folder(option: str, value: Any) -> str:
    # A Path is what many hold their folders in; logs are named by text.
    return _text(option, str(value) if hasattr(value, "__fspath__") else value)


def _sandbox(option: str, value: Any) -> SandboxEnvironmentSpec:
    from proctor.evaluation.sandboxing import read_sandbox  # which is above the plan, and that above this

    return read_sandbox(option, value)


def _texts(option: str, value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        raise OptionError(f"{option} must be a list of texts, not {value!r}")
    return tuple(value)


def _mapping(option: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise OptionError(f"{option} must be a mapping of names to values, not {value!r}")
    return value


CHECKS: Final[Mapping[str, Callable[[str, Any], Any]]] = {
    "limit": _limit,
    "sample_id": _sample_id,
    "sample_shuffle": _shuffle,
    "epochs": _epochs,
    "epochs_reducer": lambda _, value: as_reducers(value),
    "fail_on_error": lambda _, value: checked_fail_on_error(value),
    "continue_on_fail": _truth,
    "retry_on_error": _at_least(0),
    "score_on_error": _truth,
    "message_limit": _count,
    "token_limit": tokens,
    "turn_limit": _count,
    "time_limit": positive,
    "working_limit": positive,
    "cost_limit": positive,
    "max_total_tokens": _count,
    "max_total_cost": positive,
    "max_run_time": positive,
    "model_cost_config": lambda _, value: read_prices(value),
    "max_samples": _at_least(1),
    "max_tasks": _at_least(1),
    "max_total_samples": _at_least(1),
    "max_subprocesses": _at_least(1),
    "max_sandboxes": _at_least(1),
    "sandbox": _sandbox,
    "sandbox_cleanup": _truth,
    "max_dataset_memory": _at_least(1),
    "requests_per_minute": _rate,
    "tokens_per_minute": _rate,
    "runtime_seed": _seed,
    "async_backend": lambda option, value: one_of(*BACKENDS)(value, option=option),
    "log_samples": _truth,
    "log_images": _truth,
    "log_level_transcript": lambda option, value: one_of(*LEVELS)(value, option=option),
    "log_buffer": _at_least(1),
    "log_dir": _folder,
    "log_format": lambda option, value: one_of("eval", "json")(value, option=option),
    "display": _text,
    "score": _truth,
    "tags": _texts,
    "metadata": _mapping,
    "model_base_url": _text,
    "model_args": _mapping,
    "model_roles": _mapping,
    "task_args": _mapping,
}
