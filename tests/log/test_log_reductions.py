"""Reduced scores as JSON in parts: the same text as at once."""

from __future__ import annotations

import math
from typing import Any

import pytest

from proctor.log import reductions
from proctor.log.encode import encode
from proctor.log.records import EvalSampleReductions, EvalSampleScore
from proctor.log.reductions import encode_reductions


def scores(count: int) -> list[EvalSampleScore]:
    values: list[Any] = ["C", 0.5, math.nan, {"a": 1, "b": math.inf}, [True]]
    return [EvalSampleScore(value=values[n % 5], answer="ü\ud800" if n == 7 else None, sample_id=n) for n in range(count)]


@pytest.mark.parametrize("counts", [[], [0], [1], [9, 10, 11], [25, 0, 3]], ids=str)
def test_the_parts_make_the_whole(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "AT_ONCE", 5)
    made = [EvalSampleReductions(scorer=f"s{n}", reducer="mean" if n else None, samples=scores(n)) for n in counts]
    parts = list(encode_reductions(made))
    assert b"".join(parts) == encode(made)
    assert len(parts) == 1 + sum(1 + -(-count // 5) for count in counts)
