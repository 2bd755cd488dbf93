"""Values to JSON and back: nothing of a None field, nothing lost of anything else."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.log.build import build
from proctor.log.checks import problem
from proctor.log.encode import decode, encode, to_builtins
from proctor.log.events import EVENT_KINDS, InfoEvent, JsonChange, ModelEvent, StoreEvent, ToolEvent
from proctor.log.records import EvalSample, SandboxEnvironmentSpec, Score
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessageUser, ContentText
from proctor.model.output import ModelOutput


def through(data: Any) -> Any:
    return decode(encode(InfoEvent(data=data)))["data"]


def test_fields_that_are_none_are_left_out_at_every_depth() -> None:
    event = ModelEvent(
        model="m", input=[ChatMessageUser(content=[ContentText(text="x")])], tools=[], tool_choice="auto",
        config=GenerateConfig(seed=1), output=ModelOutput(),
    )  # fmt: skip
    assert b"null" not in encode(event)
    assert decode(encode(event))["config"] == {"seed": 1}
    assert decode(encode(event))["input"][0] == {"content": [{"type": "text", "text": "x"}], "role": "user"}


def test_fields_that_readers_require_keep_their_null() -> None:
    assert decode(encode(InfoEvent(data=None))) == {"event": "info", "data": None}


def test_none_in_data_of_the_users_own_is_kept() -> None:
    assert through({"a": None, "b": [None, {"c": None}]}) == {"a": None, "b": [None, {"c": None}]}


def test_numbers_that_are_not_finite_are_not_turned_into_null() -> None:
    found = through({"a": math.nan, "b": [math.inf, -math.inf], "c": None, "d": "null"})
    assert math.isnan(found["a"])
    assert (found["b"], found["c"], found["d"]) == ([math.inf, -math.inf], None, "null")
    assert b'"value":NaN' in encode(Score(value=math.nan))
    assert b'"value":{"a":NaN,"b":null}' in encode(Score(value={"a": math.nan, "b": None}))


def test_integers_of_any_size_are_kept() -> None:
    assert through([2**63, -(2**63), 2**64, 2**70, 10**300]) == [2**63, -(2**63), 2**64, 2**70, 10**300]


def test_half_a_surrogate_pair_becomes_visible_text() -> None:
    assert through({"\ud800": "a\udc00b 😀 ü"}) == {r"\ud800": r"a\udc00b 😀 ü"}


class Colour(Enum):
    RED = "red"


class Model:
    def model_dump(self) -> dict[str, Any]:
        return {"x": math.nan, "y": 1}


class Number(float):
    pass


@attrs.define
class Own:
    x: int
    y: Any = None


def test_objects_of_users_are_written_as_well_as_can_be() -> None:
    assert through({1, 2}) in ([1, 2], [2, 1])
    assert through((1, "a")) == [1, "a"]
    assert through({2: "a", None: "b", True: "c", (1, 2): "d", 1.5: "e"}) == {
        "2": "a", "true": "c", "null": "b", "(1, 2)": "d", "1.5": "e",
    }  # fmt: skip
    assert through(datetime(2030, 1, 1, tzinfo=UTC)) == "2030-01-01T00:00:00Z"
    assert through([datetime(2030, 1, 1, tzinfo=UTC), date(2030, 1, 1), math.inf]) == [
        "2030-01-01T00:00:00Z", "2030-01-01", math.inf,
    ]  # fmt: skip
    assert through(Colour.RED) == "red"
    assert math.isnan(through(Model())["x"])
    assert math.isnan(through(Number("nan")))
    assert through([Number(1.5), Path("/x"), b"\xff"]) == [1.5, "/x", "/w=="]
    assert through(Own(x=1)) == {"x": 1}
    assert through([Own(x=1, y=math.inf)]) == [{"x": 1, "y": math.inf}]
    assert through(object()).startswith("<object object")


def test_what_contains_itself_is_cut() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "nested too deeply" in json.dumps(through(loop))
    deep: Any = "x"
    for _ in range(3000):
        deep = {"d": deep}
    assert "nested too deeply" in str(encode(InfoEvent(data=deep)))


def test_names_that_python_reserves_are_written_as_the_format_has_them() -> None:
    event = StoreEvent(changes=[JsonChange(op="move", path="/b", from_="/a")])
    assert decode(encode(event))["changes"] == [{"op": "move", "path": "/b", "from": "/a"}]
    assert build(decode(encode(event)), StoreEvent) == event


def test_a_configuration_of_a_sandbox_is_text_unless_it_is_a_compose_file() -> None:
    assert decode(encode(SandboxEnvironmentSpec("x", {"a": 1})))["config"] == '{"a":1}'
    assert decode(encode(SandboxEnvironmentSpec("docker", {"services": {}})))["config"] == {"services": {}}
    assert decode(encode(SandboxEnvironmentSpec("docker", "compose.yaml")))["config"] == "compose.yaml"
    assert decode(encode(SandboxEnvironmentSpec("local"))) == {"type": "local"}


def test_to_builtins_is_what_encode_writes() -> None:
    value = ToolEvent(id="1", function="f", arguments={"x": None, "y": {1: "a"}}, result=[ContentText(text="\ud800")])
    assert to_builtins(value) == decode(encode(value))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_any_json_value_comes_back(value: Any) -> None:
    assert through(value) == value


@given(st.lists(st.floats(), min_size=1), st.text())
def test_any_number_comes_back(numbers: list[float], text: str) -> None:
    found = through({"n": numbers, "t": text, "z": None})
    assert repr(found["n"]) == repr(numbers)


@pytest.mark.parametrize("kind", EVENT_KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_of_event_is_checked(kind: type) -> None:
    assert problem(b'{"event":"other"}', kind) is not None
    assert problem(b'{"event":"%s","timestamp":5}' % attrs.fields_dict(kind)["event"].default.encode(), kind)


def test_a_record_may_lack_all_but_four_fields() -> None:
    assert problem(b'{"id":1,"epoch":1,"input":"","target":""}', EvalSample) is None
    for name in ("id", "epoch", "input", "target"):
        record = {"id": 1, "epoch": 1, "input": "", "target": ""}
        del record[name]
        assert name in str(problem(json.dumps(record).encode(), EvalSample))
