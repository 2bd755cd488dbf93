"""Garbage is looked for less often while a loop of our own runs, and as before afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from proctor.runtime.backend import run
from proctor.runtime.collector import YOUNG, seldom_collected


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before, enabled = gc.get_threshold(), gc.isenabled()
    gc.set_threshold(700, 10, 10)
    gc.enable()
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.set_threshold(*before)
    if not enabled:
        gc.disable()


def test_a_run_is_searched_seldom_and_all_is_as_before_afterwards(backend: str) -> None:
    async def inside() -> tuple[int, int]:
        return gc.get_threshold()[0], gc.get_freeze_count()

    young, frozen = run(inside, backend=backend.partition("-")[0])
    assert young == YOUNG
    assert frozen > 0
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


def test_an_error_leaves_nothing_changed(backend: str) -> None:
    async def fails() -> None:
        raise LookupError("no")

    with pytest.raises(LookupError):
        run(fails, backend=backend.partition("-")[0])
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == 0


def test_what_the_program_set_itself_stays() -> None:
    gc.set_threshold(YOUNG + 1, 5, 5)
    with seldom_collected():
        assert gc.get_threshold() == (YOUNG + 1, 5, 5)
        assert gc.get_freeze_count() == 0
    gc.set_threshold(700, 10, 10)
    gc.disable()
    with seldom_collected():
        assert gc.get_threshold() == (700, 10, 10)
    gc.freeze()
    gc.enable()
    frozen = gc.get_freeze_count()
    with seldom_collected():
        assert gc.get_freeze_count() == frozen
    assert gc.get_freeze_count() == frozen


def test_cycles_made_in_the_block_are_still_found() -> None:
    class Node:
        other: Node

    with seldom_collected():
        node = Node()
        node.other = node
        gone = weakref.ref(node)
        del node
        for _ in range(3 * YOUNG):
            kept = [[] for _ in range(10)]  # new containers, which bring the search about
            if gone() is None:
                break
            kept.append(kept)
        assert gone() is None
