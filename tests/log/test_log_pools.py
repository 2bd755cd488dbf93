"""What events share is written once, and read back where it was."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proctor.log import sample_json as sample_json_module
from proctor.log.build import build
from proctor.log.encode import decode, encode
from proctor.log.events import ModelEvent
from proctor.log.pools import expand, ranges
from proctor.log.records import EvalSample
from proctor.log.resolve import prepared, resolved_value
from proctor.log.sample_json import encode_record, encode_sample, swap_long
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessageAssistant, ChatMessageUser
from proctor.model.output import ModelCall, ModelOutput

Made = Callable[..., Any]


@given(st.lists(st.integers(0, 20)))
def test_ranges_and_expand_are_each_others_reverse(places: list[int]) -> None:
    assert expand(ranges(places), list(range(21))) == places


def test_ranges_join_what_follows_each_other() -> None:
    assert ranges([0, 1, 2, 5, 6, 5]) == [(0, 3), (5, 7), (5, 6)]
    assert ranges([]) == []


def conversation(turns: int, *, copied: bool = False, size: int = 1000) -> EvalSample:
    """A sample whose every model call repeats what was said before."""
    messages: list[Any] = [ChatMessageUser(content="?" * size, id="u")]
    events: list[Any] = []
    for turn in range(turns):
        said = [attrs.evolve(message) for message in messages] if copied else list(messages)
        request = {"messages": [{"role": m.role, "content": m.content} for m in messages], "n": turn}
        events.append(
            ModelEvent(
                model="m", input=said, tools=[], tool_choice="none", config=GenerateConfig(), output=ModelOutput(),
                call=ModelCall(request=request),
            )
        )  # fmt: skip
        messages.append(ChatMessageAssistant(content=f"{turn}" * size, id=f"a{turn}"))
    return EvalSample(id=1, epoch=1, input="?", target="", messages=messages, events=events)


@pytest.mark.parametrize("copied", [False, True])
def test_a_conversation_is_written_once_however_many_turns_repeat_it(*, copied: bool) -> None:
    data = encode_sample(conversation(30, copied=copied))
    assert len(data) < 3.5 * 31 * 1500, "messages, pool, raw requests"
    found = decode(data)
    assert len(found["events_data"]["messages"]) == 30
    assert len(found["events_data"]["calls"]) == 30
    assert found["events"][29]["input_refs"] == [[0, 30]]
    assert found["events"][29]["call"]["call_refs"] == [[0, 30]]


@pytest.mark.parametrize("copied", [False, True])
def test_pooled_events_are_read_back_as_they_were(*, copied: bool) -> None:
    made = conversation(5, copied=copied)
    again = build(prepared(decode(encode_sample(made)), "full"), EvalSample)
    assert [list(event.input) for event in again.events] == [list(event.input) for event in made.events]  # type: ignore[union-attr]
    assert [event.call for event in again.events] == [event.call for event in made.events]  # type: ignore[union-attr]
    assert encode_sample(again) == encode_sample(made)


def test_equal_messages_under_one_id_share_a_place_and_changed_ones_do_not() -> None:
    made = conversation(2, copied=True)
    made.events[1].input[0].content = "changed"  # type: ignore[union-attr]
    found = decode(encode_sample(made))
    said = resolved_value(found["events_data"]["messages"], found["attachments"])
    assert [message["content"][:7] for message in said] == ["???????", "changed", "0000000"]


def test_a_request_that_does_not_go_on_from_the_last_is_kept() -> None:
    made = conversation(3)
    made.events[2].call.request["messages"][0] = {"role": "system", "content": "new"}  # type: ignore[union-attr]
    again = build(prepared(decode(encode_sample(made)), "full"), EvalSample)
    assert [event.call for event in again.events] == [event.call for event in made.events]  # type: ignore[union-attr]


def test_the_sample_itself_is_left_as_it_was() -> None:
    made, same = conversation(3), conversation(3)
    encode_record(made)
    assert made == same


def test_a_sample_read_with_its_pools_is_written_with_them() -> None:
    record = decode(encode_sample(conversation(3)))
    assert decode(encode(build(record, EvalSample))) == record
    assert decode(encode_sample(build(record, EvalSample))) == record


def test_in_pieces_a_record_is_the_same(samples: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    for made in [*anyio.run(samples), conversation(5)]:
        whole = b"".join(encode_record(made).parts)
        monkeypatch.setattr(sample_json_module, "MANY", 0)
        monkeypatch.setattr(sample_json_module, "LONG", 50)
        record = encode_record(made)
        monkeypatch.undo()
        assert len(record.parts) > 5
        assert dumped(b"".join(record.parts)) == dumped(whole)


def dumped(data: bytes) -> str:
    return json.dumps(json.loads(data), sort_keys=True)


def test_no_slice_of_a_long_text_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_json_module, "LONG", 7)
    made = conversation(1, size=1)
    made.messages[0].content = 'one "two"\n\ud800 😀 three' * 9
    found = decode(b"".join(encode_record(made).parts))
    assert found["messages"][0]["content"] == 'one "two"\n\\ud800 😀 three' * 9
    value = {"a": ["short", {"b": "long long long"}]}
    assert swap_long(value, len) == {"a": ["short", {"b": 14}]}
    assert swap_long({"a": ["x"]}, len) == {"a": ["x"]}
