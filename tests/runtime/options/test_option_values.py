"""Values on a command line are read as people mean them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.runtime.options import values

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", 1),
        ("-3", -3),
        ("+3", 3),
        ("1_000", 1000),
        ("0x1F", 31),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e5", 1e5),
        ("-.inf", -math.inf),
        ("true", True),
        ("Yes", True),
        ("OFF", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("words with spaces", "words with spaces"),
        ("a,b", ["a", "b"]),
        ("1, 2.5,x", [1, 2.5, "x"]),
        ("[1, two, [true]]", [1, "two", [True]]),
        ('{a: 1, "b": [null], c: http://host:80/path}', {"a": 1, "b": [None], "c": "http://host:80/path"}),
        ('{"model": "x/y"}', {"model": "x/y"}),
        ("{}", {}),
        ("[]", []),
        ("'12'", "12"),
        ("'it''s, so'", "it's, so"),
        ('"a\\n,b"', "a\n,b"),
    ],
)
def test_what_is_written_is_what_is_meant(text: str, expected: Any) -> None:
    assert values.value(text) == expected
    assert type(values.value(text)) is type(expected)


@pytest.mark.parametrize("text", ["010", "007", "1:30", "2024-01-01", "yEs", "1.2.3", "0b1", "e5", "1__0", "- 1"])
def test_what_yaml_would_turn_into_something_else_stays_text(text: str) -> None:
    assert values.value(text) == text


@pytest.mark.parametrize("text", ["[1, 2", "{a: 1", "{question}", '"open', "'open", "[1] tail", "{a}", "[" * 200])
def test_brackets_and_quotes_must_match(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        values.value(text)


@given(st.text(max_size=40))
def test_any_text_is_a_value_or_a_clear_refusal(text: str) -> None:
    try:
        values.value(text)
    except ValueError as error:
        refusal = str(error)
    else:
        return
    assert refusal


@given(st.lists(JSON, max_size=4) | st.dictionaries(st.text(max_size=5), JSON, max_size=4))
def test_json_means_what_it_means_in_json(found: Any) -> None:
    assert values.value(json.dumps(found)) == found
    assert values.value(json.dumps(found, ensure_ascii=False)) == found


@pytest.mark.parametrize("text", ["1", "-3", "1.5", "a", "true", "[1, two, x y]", "{a: 1, b: [x, 2.5]}", "'q'", '"q"'])
def test_what_both_understand_is_what_yaml_means(text: str) -> None:
    yaml = pytest.importorskip("yaml")
    assert values.value(text) == yaml.safe_load(text)


def test_pairs_take_dashes_for_underscores_and_keep_later_equal_signs() -> None:
    assert values.pairs(["max-turns=3", "query=a=b", "empty="]) == {"max_turns": 3, "query": "a=b", "empty": None}


@pytest.mark.parametrize("text", ["no-equals", "=value", "x=[1"])
def test_pairs_need_a_name_and_a_value_that_can_be_read(text: str) -> None:
    with pytest.raises(ValueError, match="name=value"):
        values.pairs([text])


@pytest.mark.parametrize(("text", "expected"), [("10", 10), ("11-20", (10, 20)), ("5-5", (4, 5)), (" 3 ", 3)])
def test_a_range_of_samples_is_counted_from_one(text: str, expected: Any) -> None:
    assert values.sample_range(text) == expected


@pytest.mark.parametrize("text", ["0", "0-3", "5-3", "-3", "a", "1-2-3", "", "1.5"])
def test_a_range_of_samples_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="11-20"):
        values.sample_range(text)


@pytest.mark.parametrize(("text", "expected"), [("5000", 5000), ("500k", 500_000), ("1M", 1_000_000), ("1.5k", 1500)])
def test_a_count_may_end_in_a_size(text: str, expected: int) -> None:
    assert values.count(text) == expected


@pytest.mark.parametrize("text", ["0", "-1", "k", "1.0001k", "5 000", "output:1m", ""])
def test_a_count_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="500k"):
        values.count(text)


def test_limits_in_seconds_stay_whole_where_they_are_written_so() -> None:
    assert (values.positive("60"), type(values.positive("60"))) == (60, int)
    assert values.positive("0.5") == 0.5
    for text in ("0", "-1", "nan", "inf", "x"):
        with pytest.raises(ValueError, match="above 0"):
            values.positive(text)


def test_token_biases() -> None:
    assert values.token_biases("42=10,43=-1.5") == {42: 10.0, 43: -1.5}
    for text in ("42", "x=1", "42=y"):
        with pytest.raises(ValueError, match="42=10"):
            values.token_biases(text)
