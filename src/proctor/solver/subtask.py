"""`subtask`: a function whose calls the log shows by themselves, with a store of their own."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar, overload

from proctor.log.encode import decode, encode
from proctor.log.events import SubtaskEvent
from proctor.log.transcript import span, transcript
from proctor.runtime.clock import utc_now
from proctor.solver.store import Store, use_store

P = ParamSpec("P")
R = TypeVar("R")
Function = Callable[P, Awaitable[R]]


@overload
def subtask(
    name: str, store: Store | None = None, type: str | None = None, input: dict[str, Any] | None = None
) -> Callable[[Function[P, R]], Function[P, R]]: ...
@overload
def subtask(
    name: Function[P, R], store: Store | None = None, type: str | None = None, input: dict[str, Any] | None = None
) -> Function[P, R]: ...
def subtask(name: Any, store: Store | None = None, type: str | None = None, input: dict[str, Any] | None = None) -> Any:
    """Make calls of an async function show in the log as subtasks, each with a store of its own.

    Args:
        name: as in ``@subtask("name")``; a bare ``@subtask`` takes the function's own.
        store: what `store()` gives inside; default a new one for each call.
        type: shown with the name. input: logged in place of the arguments.

    Raises:
        TypeError: it is no async function.
    """

    def decorate(function: Function[P, R]) -> Function[P, R]:
        known_as = name if isinstance(name, str) else str(getattr(function, "__name__", "subtask"))
        if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  # it is asked what kind of function that is
        ):
            raise TypeError(f"@subtask: {known_as} must be an async function (`async def`)")

        @wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> R:
            into = transcript()
            said = input if input is not None else inspect.signature(function).bind(*args, **kwargs).arguments
            event = SubtaskEvent(name=known_as, type=type, input=decode(encode(dict(said))), pending=True)
            with use_store(store or Store()):
                async with span(known_as, type="subtask"):
                    began = into.working()
                    into.add(event)
                    try:
                        result = await function(*args, **kwargs)
                        event.result = decode(encode(result))
                        return result
                    finally:
                        event.completed = utc_now()
                        event.working_time = into.working() - began
                        into.updated(event)

        return run

    return decorate if isinstance(name, str) else decorate(name)
