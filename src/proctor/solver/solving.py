"""What solvers are: the protocol, the `@solver` decorator, `generate`, and how one is run."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any, Final, Literal, ParamSpec, Protocol, cast, overload, runtime_checkable

from proctor import registry
from proctor.errors import UsageError
from proctor.log.transcript import span, transcript
from proctor.scorer.scoring import checked_async
from proctor.solver.state import TaskState, replace_state
from proctor.solver.using import Using

P = ParamSpec("P")


@runtime_checkable
class Generate(Protocol):
    """Calls the evaluated model on a state's messages, appends its answer, and runs the tools it asks for.

    Args:
        state: it is changed and returned.
        tool_calls: `loop` until the model asks for no tool, `single` round, or `none`.
        config: fields of `GenerateConfig`, and `cache`.
    """

    async def __call__(
        self,
        state: TaskState,
        tool_calls: Literal["loop", "single", "none"] = "loop",
        **config: Any,
    ) -> TaskState: ...


@runtime_checkable
class Solver(Protocol):
    """A step towards the answer: it changes the state, or makes another, and returns it."""

    async def __call__(self, state: TaskState, generate: Generate) -> TaskState: ...


@overload
def solver(name: str) -> Callable[[Callable[P, Solver]], Callable[P, Solver]]: ...
@overload
def solver(name: Callable[P, Solver]) -> Callable[P, Solver]: ...
def solver(name: Any) -> Any:
    """Register a function that returns a solver, or a class whose instances are solvers.

    Args:
        name: as in ``@solver("name")`` or ``@solver(name="name")``; a bare ``@solver`` takes the function's own.
    """

    def decorate(factory: Callable[P, Solver]) -> Callable[P, Solver]:
        known_as = name if isinstance(name, str) else str(getattr(factory, "__name__", "solver"))

        def finish(made: Solver) -> Solver:
            return checked_async(made, "solver", known_as, "state, generate")

        return registry.registered("solver", factory, name=known_as, finish=finish)

    return decorate if isinstance(name, str) else decorate(name)


@solver
def generate(tool_calls: Literal["loop", "single", "none"] = "loop", **kwargs: Any) -> Solver:
    """Call the evaluated model on the conversation and append its answer.

    Args:
        tool_calls: `loop` until the model asks for no tool, `single` round, or `none`.
        kwargs: fields of `GenerateConfig`, and `cache`.
    """

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        return await generate(state, tool_calls=tool_calls, **kwargs)

    return solve


def solver_name(solver: Solver) -> str:
    """The registered name of a solver, or that of its function or class."""
    info = registry.info_of(solver)
    return info.name if info is not None else str(getattr(solver, "__name__", type(solver).__name__))


def check_state(returned: object, solver: Solver) -> TaskState:
    """What a solver returned, if it is a state.

    Raises:
        UsageError: it is not, most often because the solver has no `return state`.
    """
    if isinstance(returned, TaskState):
        return returned
    what = "nothing" if returned is None else repr(returned)
    if isinstance(returned, Coroutine):
        returned.close()
        what = "a coroutine: an await is missing, as in `return await generate(state)`"
    raise UsageError(f"the solver {solver_name(solver)} returned {what}; a solver must end with `return state`")


async def run_solver(solver: Solver, state: TaskState, generate: Generate) -> TaskState:
    """Run one solver on a state, in a span of its name (a chain opens one for each of its steps instead).

    Raises:
        UsageError: it returned no state.
        Exception: what the solver raised.
    """
    from proctor.solver.chaining import Chain
    from proctor.solver.changes import Noted, tell_changes

    if isinstance(solver, Chain):
        return await solver(state, generate)
    if (info := registry.info_of(solver)) is not None and info.kind == "agent":
        from proctor.agent.using import as_solver

        solver = as_solver(cast("Any", solver))
    async with span(solver_name(solver), type="solver"):
        into = transcript()
        before = Noted.of(state) if into.keep else None
        state = check_state(await solver(state, generate), solver)
        if before is not None:
            tell_changes(into, before, state)
    replace_state(state)
    return state


_generate: Final[ContextVar[Generate | None]] = ContextVar("proctor_generate", default=None)


def use_generate(generate: Generate) -> Using[Generate]:
    """``with use_generate(generate):`` makes it the one that `task_generate` finds, for solvers that fork a state."""
    return Using(_generate, generate)


def task_generate() -> Generate | None:
    """The `Generate` of the running sample, None outside of one."""
    return _generate.get()
