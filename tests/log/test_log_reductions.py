"""What of a large log is long at its end: the same text as that of a small one, made with less memory."""

from __future__ import annotations

import math
from typing import Any

import pytest

from proctor.log import header, reductions
from proctor.log.encode import encode
from proctor.log.header import encode_header
from proctor.log.records import EvalConfig, EvalDataset, EvalLog, EvalSampleReductions, EvalSampleScore, EvalSpec
from proctor.log.reductions import encode_reductions
from proctor.runtime.ondemand import OnDemand


def scores(count: int) -> list[EvalSampleScore]:
    values: list[Any] = ["C", 0.5, math.nan, {"a": 1, "b": math.inf}, [True]]
    return [
        EvalSampleScore(value=values[n % 5], answer="ü\ud800" if n == 7 else None, sample_id=n) for n in range(count)
    ]


@pytest.mark.parametrize("counts", [[], [0], [1], [9, 10, 11], [25, 0, 3]], ids=str)
def test_the_parts_make_the_whole(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "AT_ONCE", 5)
    made = [EvalSampleReductions(scorer=f"s{n}", reducer="mean" if n else None, samples=scores(n)) for n in counts]
    parts = list(encode_reductions(made))
    assert b"".join(parts) == encode(made)
    assert len(parts) == 1 + sum(1 + -(-count // 5) for count in counts)


def test_a_header_with_many_ids_is_checked_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = EvalDataset(samples=6, sample_ids=[1, 2, 3, "a", "b", "ü"])
    spec = EvalSpec(created="x", task="t", model="m", dataset=dataset, config=EvalConfig())
    for tags in (["fine"], 5):
        log = EvalLog(eval=spec, tags=tags)  # type: ignore[arg-type]
        monkeypatch.setattr(header, "MANY_IDS", 10)
        plain = encode_header(log)
        monkeypatch.setattr(header, "MANY_IDS", 5)
        assert encode_header(log) == plain
        dataset.sample_ids = OnDemand(6, [1, 2, 3, "a", "b", "ü"].__getitem__)  # type: ignore[assignment]
        assert encode_header(log) == plain
        assert (b"proctor_left_out" in plain) == (tags == 5)
