"""Memory of a large run, as a process of its own: rows that wait on disk must not be held, nor what was finished."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(7200)]

FULL = os.environ.get("PROCTOR_SIZE") == "full"
ROWS, BUDGET = (1_000_000, 64) if FULL else (50_000, 3)


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "bench" / "memory.py"
    spec = importlib.util.spec_from_file_location("bench_memory", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_run_over_many_rows_grows_by_little_more_than_its_budget(bench: ModuleType) -> None:
    grown, _ = bench.growth(ROWS, BUDGET, ids=True)
    assert grown < bench.goal(ROWS, BUDGET)
