"""`chain` runs solvers one after another; `fork` runs several on copies of a state."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, Union, overload

from proctor.errors import UsageError
from proctor.log.transcript import span
from proctor.solver.collect import collect
from proctor.solver.solving import Generate, Solver, run_solver, solver, solver_name, task_generate
from proctor.solver.state import TaskState, replace_state
from proctor.solver.store import use_store

Solvers: TypeAlias = Union[Solver, "Iterable[Solvers]"]


class Chain(Sequence[Solver]):
    """Solvers run in order; itself a solver. A state that is completed ends it.

    Args:
        solvers: the steps.
    """

    def __init__(self, solvers: Sequence[Solver]) -> None:
        self._solvers = list(solvers)

    @overload
    def __getitem__(self, index: int) -> Solver: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Solver]: ...
    def __getitem__(self, index: int | slice) -> Solver | Sequence[Solver]:
        return self._solvers[index]

    def __len__(self) -> int:
        return len(self._solvers)

    async def __call__(self, state: TaskState, generate: Generate) -> TaskState:
        for step in self._solvers:
            state = await run_solver(step, state, generate)
            if state.completed:
                break
        return state


@solver
def chain(*solvers: Solvers) -> Solver:
    """Solvers run in order. One that sets `state.completed` is the last to run.

    Args:
        solvers: solvers and lists of solvers; a chain among them becomes its steps.
    """
    return Chain(_steps(solvers))


def _steps(solvers: Solvers) -> list[Solver]:
    if isinstance(solvers, Chain):
        return list(solvers)
    if callable(solvers):
        return [solvers]
    if isinstance(solvers, (str, bytes)) or not isinstance(solvers, Iterable):
        raise TypeError(f"a chain is made of solvers and lists of solvers, not of {solvers!r}")
    return [step for each in solvers for step in _steps(each)]


@overload
async def fork(state: TaskState, solvers: Solver) -> TaskState: ...
@overload
async def fork(state: TaskState, solvers: list[Solver]) -> list[TaskState]: ...
async def fork(state: TaskState, solvers: Any) -> TaskState | list[TaskState]:
    """Run solvers at once, each on a copy of the state with a store of its own.

    Args:
        state: it stays as it is.
        solvers: one, or a list.

    Returns:
        The state of the one, or of each in order.

    Raises:
        UsageError: called outside of a sample.
        Exception: what the first solver that failed raised; the others are cancelled.
    """
    generate = task_generate()
    if generate is None:
        raise UsageError("fork() was called outside of a sample: only a solver or scorer that a task runs can fork")
    if not isinstance(solvers, list):
        return await _fork(state, solvers, generate)
    return await collect(*(_fork(state, each, generate) for each in solvers))


async def _fork(state: TaskState, solver: Solver, generate: Generate) -> TaskState:
    branch = copy.deepcopy(state)
    name = "chain" if isinstance(solver, Chain) else solver_name(solver)
    before = state
    async with span(name, type="fork"):
        with use_store(branch.store):
            replace_state(branch)
            try:
                return await run_solver(solver, branch, generate)
            finally:
                # In a task of its own this changes nothing; a single fork runs in its caller's task.
                replace_state(before)
