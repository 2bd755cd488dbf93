"""What scorers are: the protocol and the `@scorer` decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from proctor import registry
from proctor.errors import UsageError
from proctor.log.records import Score
from proctor.scorer.measure import Metric
from proctor.scorer.target import Target

if TYPE_CHECKING:
    from proctor.solver.state import TaskState

P = ParamSpec("P")
A = TypeVar("A", bound=Callable[..., Any])

Metrics: TypeAlias = Sequence[Metric | Mapping[str, Sequence[Metric]]] | Mapping[str, Sequence[Metric]]


@runtime_checkable
class Scorer(Protocol):
    """Judges what a sample came to.

    It returns None when it has nothing to say of a sample; an exception is an error of the sample, never a score.
    """

    async def __call__(self, state: TaskState, target: Target) -> Score | None: ...


def scorer(
    metrics: Metrics, name: str | None = None, **metadata: Any
) -> Callable[[Callable[P, Scorer]], Callable[P, Scorer]]:
    """Register a function that returns a scorer, or a class whose instances are scorers.

    Args:
        metrics: what is computed from its scores: a list of metrics; or, for scores that are dicts, a dict from key
            (or pattern, as in ``{"*": [mean()]}``) to the metrics of that key; or a list with such dicts in it.
        name: default the function's own.
        metadata: kept with the scorer in the log.
    """
    if callable(metrics):
        raise UsageError(f"@scorer takes its metrics: @scorer(metrics=[accuracy()]) above {_name(metrics)}")
    check_metrics(metrics)
    kept = {"metrics": metrics, **metadata}

    def decorate(factory: Callable[P, Scorer]) -> Callable[P, Scorer]:
        known_as = name or _name(factory)

        def finish(made: Scorer) -> Scorer:
            return checked_async(made, "scorer", known_as, "state, target")

        return registry.registered("scorer", factory, name=known_as, metadata=kept, finish=finish)

    return decorate


def check_metrics(metrics: Metrics) -> None:
    """See that metrics are metrics and not the functions that make them.

    Raises:
        UsageError: one is a function that makes metrics, or no metric at all.
    """
    for item in metrics.values() if isinstance(metrics, Mapping) else metrics:
        if isinstance(item, (Mapping, Sequence)):
            check_metrics(item)
        elif inspect.isfunction(item) and hasattr(item, "__wrapped__") and registry.info_of(item) is not None:
            raise UsageError(f"the metric {item.__name__} was given as a function: call it, as in {item.__name__}()")
        elif not callable(item):
            raise UsageError(f"a metric must be callable with a list of scores, not {item!r}")


def scorer_metrics(scorer: Scorer) -> Metrics:
    """The metrics a scorer was declared with; none for one that no `@scorer` made."""
    info = registry.info_of(scorer)
    return cast("Metrics", info.metadata.get("metrics", ())) if info is not None else ()


def scorer_name(scorer: Scorer) -> str:
    """The registered name of a scorer, or that of its function or class."""
    info = registry.info_of(scorer)
    return info.name if info is not None else _name(scorer)


def scorer_names(scorers: Iterable[Scorer]) -> list[str]:
    """The names of several scorers, each once: a second ``match`` is ``match1``."""
    names: list[str] = []
    for scorer in scorers:
        base = name = scorer_name(scorer)
        count = 0
        while name in names:
            count += 1
            name = f"{base}{count}"
        names.append(name)
    return names


def checked_async(made: A, kind: str, name: str, parameters: str) -> A:
    """`made` itself, if awaiting what it returns makes sense.

    Raises:
        TypeError: it is no async function and no object with an async `__call__`.
    """
    if is_async_callable(made):
        return made
    what = "a plain function" if inspect.isfunction(made) else type(made).__name__
    raise TypeError(
        f"the {kind} {name!r} returned {what}: it must return an `async def` function of ({parameters}), or be a class "
        "with an `async def __call__`"
    )


def is_async_callable(value: Any) -> bool:
    """Whether calling `value` gives an awaitable, as far as its definition tells."""
    call = value if inspect.isroutine(value) else getattr(type(value), "__call__", None)  # noqa: B004  # its definition is wanted
    return inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(call)


def _name(value: Any) -> str:
    return str(getattr(value, "__name__", type(value).__name__))
