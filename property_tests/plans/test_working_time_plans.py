"""Invariant 40: 0 ≤ working time ≤ elapsed for any overlap of waits and work, and what it is, by a naive count."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

import anyio
from attrs import define, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from proctor.runtime.sample_limits import WorkingTime
from proctor.testing import run_virtual


@frozen
class Sleep:
    seconds: int


@frozen
class Mark:
    works: bool
    steps: tuple[Step, ...]


@frozen
class Fork:
    """Branches that the sample waits for, or (`stray`) tasks that outlive the marks around them."""

    branches: tuple[tuple[Step, ...], ...]
    stray: bool


Step = Sleep | Mark | Fork


def programs() -> st.SearchStrategy[tuple[Step, ...]]:
    def extend(inner: st.SearchStrategy[Step]) -> st.SearchStrategy[Step]:
        steps = st.lists(inner, max_size=4).map(tuple)
        return st.one_of(
            st.builds(Mark, st.booleans(), steps),
            st.builds(Fork, st.lists(steps, min_size=1, max_size=3).map(tuple), st.booleans()),
        )

    return st.lists(st.recursive(st.builds(Sleep, st.integers(0, 4)), extend, max_leaves=12), max_size=4).map(tuple)


@define(eq=False)
class Node:
    """A mark as the naive count sees it."""

    works: bool
    parent: Node | None
    open: bool = True
    inside: list[Node] = field(factory=list)

    def counts(self) -> bool:
        return self.open or any(node.counts() for node in self.inside)

    def working(self) -> bool:
        inside = [node.working() for node in self.inside if node.counts()]
        return any(inside) if inside else self.works


around: Final[ContextVar[Node]] = ContextVar("around")


class Naive:
    """Asks the whole tree, at each step, whether the sample works."""

    def __init__(self) -> None:
        self.root = Node(works=True, parent=None)
        self.worked, self.since = 0.0, anyio.current_time()

    def settle(self) -> None:
        now = anyio.current_time()
        if self.root.working():
            self.worked += now - self.since
        self.since = now

    def enter(self, works: bool) -> Node:
        self.settle()
        parent: Node | None = around.get(self.root)
        while parent is not None and not parent.counts():
            parent = parent.parent
        node = Node(works, parent or self.root)
        (parent or self.root).inside.append(node)
        return node

    def leave(self, node: Node) -> None:
        self.settle()
        node.open = False


async def play(program: tuple[Step, ...]) -> None:
    clock, naive = WorkingTime(), Naive()

    async def perform(steps: tuple[Step, ...]) -> None:
        for step in steps:
            if isinstance(step, Sleep):
                await anyio.sleep(step.seconds)
            elif isinstance(step, Mark):
                node = naive.enter(step.works)
                token = around.set(node)
                with clock.active() if step.works else clock.waiting():
                    await perform(step.steps)
                    naive.leave(node)
                around.reset(token)
            elif step.stray:
                for branch in step.branches:
                    outer.start_soon(perform, branch)
            else:
                async with anyio.create_task_group() as group:
                    for branch in step.branches:
                        group.start_soon(perform, branch)
            assert 0 <= clock.working() <= clock.elapsed()

    async with anyio.create_task_group() as outer:
        outer.start_soon(perform, program)
    naive.settle()
    assert clock.working() == naive.worked
    assert clock.working() + clock.waited() == clock.elapsed()
    assert clock.running


@given(program=programs())
def test_working_time_is_what_a_naive_count_says(backend: str, program: tuple[Step, ...]) -> None:
    run_virtual(backend, play, program)
