"""What a dataset's sample is recognised by: the same from the object, from its record, and from the record's JSON."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.dataset import Sample
from proctor.log.digests import content_digest, record_digest, sample_digest, thin_digest, thin_sample_digest
from proctor.log.encode import decode, encode
from proctor.log.events import SampleInitEvent
from proctor.log.records import EvalSample
from proctor.log.sample_json import encode_record
from proctor.log.summaries import summarize
from proctor.model import ChatMessageSystem, ChatMessageUser, ContentImage, ContentText


def record(sample: Sample) -> EvalSample:
    return EvalSample(
        id=sample.id or 1,
        epoch=1,
        input=sample.input,
        choices=sample.choices,
        target=sample.target,
        metadata=sample.metadata or {},
        events=[SampleInitEvent(sample=sample, state=None)],
    )


ODD = [
    Sample("plain", id=1),
    Sample("ü 😀 \ud800", target=["a", "b"], id="odd/id"),
    Sample(
        "x", choices=["a", "b"], target="A", id=2, metadata={"deep": {"list": [1, None, 2.5, {"z": "ü"}]}, "n": None}
    ),
    Sample([ChatMessageSystem(content="s"), ChatMessageUser(content="u")], id=3),
    Sample([ChatMessageUser(content=[ContentText(text="t"), ContentImage(image="data:image/png;base64,AA==")])], id=4),
    Sample("x", id=5, sandbox=("docker", "compose.yaml"), files={"a": "b"}, setup="echo"),
    Sample("x", id=6, sandbox=("docker", {"image": "y", "n": [1]})),
    Sample("x", id=7, metadata={"huge": 2**80, "nan": math.nan, "inf": -math.inf}),
    Sample("x" * 1_200_000, id=8, target="y" * 2_000_000, metadata={"text": "z" * 1_100_000}),
    Sample("x", id=9, metadata={"when": datetime(2030, 1, 1, tzinfo=UTC), "set": {1}, 5: "number as key"}),
    Sample("x", id=10, description="what it is"),
]


@pytest.mark.parametrize("sample", ODD, ids=lambda sample: str(sample.id))
def test_the_digest_is_the_same_from_the_record_and_from_its_json(sample: Sample) -> None:
    made = record(sample)
    encoded = encode_record(made)
    assert encoded.digest == record_digest(made) == sample_digest(sample)
    assert content_digest(decode(b"".join(encoded.parts))) == encoded.digest


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
samples = st.builds(
    Sample,
    input=st.text(max_size=20),
    choices=st.none() | st.lists(st.text(max_size=5), min_size=1, max_size=3),
    target=st.text(max_size=5) | st.lists(st.text(max_size=5), max_size=2),
    id=st.integers() | st.text(min_size=1, max_size=5),
    metadata=st.none() | st.dictionaries(st.text(max_size=5), json_values, max_size=3),
)


@given(sample=samples)
def test_any_sample_is_known_again_after_a_crash(sample: Sample) -> None:
    encoded = encode_record(record(sample))
    assert content_digest(decode(b"".join(encoded.parts))) == sample_digest(sample) == encoded.digest


@given(one=samples, other=samples)
def test_samples_that_differ_have_different_digests(one: Sample, other: Sample) -> None:
    one.metadata = other.metadata = None  # where NaN and nothing are one
    assert (sample_digest(one) == sample_digest(other)) == (encode(one) == encode(other))


@pytest.mark.parametrize("sample", ODD, ids=lambda sample: str(sample.id))
def test_a_summary_tells_the_thin_digest(sample: Sample) -> None:
    summary: Any = decode(encode(summarize(record(sample))))
    assert thin_digest(summary["input"], summary.get("choices"), summary["target"]) == thin_sample_digest(sample)


def test_without_its_first_event_a_record_has_none() -> None:
    made = record(ODD[0])
    made.events = []
    assert record_digest(made) is None
    assert content_digest(decode(encode(made))) is None
