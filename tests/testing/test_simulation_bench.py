"""The simulated evaluation that is measured plays what it says it does, and comes to the same on every backend."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from proctor.testing import run_virtual

SAMPLES = 300


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "bench" / "simulation.py"
    spec = importlib.util.spec_from_file_location("bench_simulation", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["bench_simulation"] = module
    spec.loader.exec_module(module)
    return module


def test_faults_of_every_kind_strike_and_the_report_is_the_same(bench: ModuleType, backend: str) -> None:
    found = run_virtual(backend, bench.evaluate, SAMPLES, True)
    assert len(found.log.samples) == SAMPLES
    assert set(found.faults.raised) == {*bench.PLACES, *bench.MACHINE}
    assert any(sample.error is not None for sample in found.log.samples)
    assert bench.outcome(found.log) == bench.outcome(run_virtual("asyncio", bench.evaluate, SAMPLES, True).log)
