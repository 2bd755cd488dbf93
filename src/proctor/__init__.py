"""proctor: parallel evaluations of language models, on structured concurrency.

The names users import; nothing else. Each is imported at first use, so that ``import proctor`` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Named by their modules: mypy takes `task` of the package for the module of that name.
    from proctor.evaluation.api import eval, eval_async
    from proctor.evaluation.load import list_tasks
    from proctor.evaluation.rescore import score, score_async
    from proctor.evaluation.retry import eval_retry, eval_retry_async
    from proctor.evaluation.setapi import eval_set, eval_set_async
    from proctor.evaluation.task import Epochs, Task, task, task_with
    from proctor.runtime import Runtime, open_runtime

_PLACES = {
    "Epochs": "proctor.evaluation",
    "Runtime": "proctor.runtime",
    "Task": "proctor.evaluation",
    "eval": "proctor.evaluation",
    "eval_async": "proctor.evaluation",
    "eval_retry": "proctor.evaluation.retry",
    "eval_retry_async": "proctor.evaluation.retry",
    "eval_set": "proctor.evaluation.setapi",
    "eval_set_async": "proctor.evaluation.setapi",
    "list_tasks": "proctor.evaluation",
    "open_runtime": "proctor.runtime",
    "score": "proctor.evaluation.rescore",
    "score_async": "proctor.evaluation.rescore",
    "task": "proctor.evaluation",
    "task_with": "proctor.evaluation",
}


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])


__all__ = [
    "Epochs", "Runtime", "Task", "eval", "eval_async", "eval_retry", "eval_retry_async", "eval_set", "eval_set_async",
    "list_tasks", "open_runtime", "score", "score_async", "task", "task_with",
]  # fmt: skip
