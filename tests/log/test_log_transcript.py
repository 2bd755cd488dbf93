"""Events of a sample in order, in the spans they happened in."""

from __future__ import annotations

import anyio
import pytest

from proctor.log.events import Event, InfoEvent, SpanBeginEvent, SpanEndEvent
from proctor.log.records import Score
from proctor.log.transcript import Transcript, current_span_id, init_transcript, span, transcript


async def test_spans_nest_and_events_carry_the_innermost() -> None:
    with init_transcript(Transcript()) as made:
        async with span("solvers"):
            transcript().info(1)
            async with span("generate", type="solver", id="mine"):
                transcript().info(2, source="me")
            transcript().info(3)
        transcript().info(4)
    begun = {event.name: event for event in made.events if isinstance(event, SpanBeginEvent)}
    assert begun["solvers"].type == "solvers"
    assert begun["generate"].parent_id == begun["solvers"].id
    assert begun["generate"].span_id == begun["generate"].id == "mine"
    told = {event.data: event.span_id for event in made.events if isinstance(event, InfoEvent)}
    assert told == {1: begun["solvers"].id, 2: "mine", 3: begun["solvers"].id, 4: None}
    kinds = [event.event for event in made.events]
    assert kinds == ["span_begin", "info", "span_begin", "info", "span_end", "info", "span_end", "info"]
    assert [event.id for event in made.events if isinstance(event, SpanEndEvent)] == ["mine", begun["solvers"].id]


async def test_child_tasks_write_to_the_same_transcript_in_their_own_spans() -> None:
    async def child(number: int) -> None:
        async with span(f"child {number}"):
            await anyio.sleep(1)
            transcript().info(number)

    with init_transcript(Transcript()) as made:
        async with span("parent"), anyio.create_task_group() as group:
            for number in range(3):
                group.start_soon(child, number)
    begun = {event.name: event for event in made.events if isinstance(event, SpanBeginEvent)}
    for event in made.events:
        if isinstance(event, InfoEvent):
            assert event.span_id == begun[f"child {event.data}"].id
            assert begun[f"child {event.data}"].parent_id == begun["parent"].id


async def test_a_span_ends_when_its_block_fails() -> None:
    with init_transcript(Transcript()) as made:
        with pytest.raises(ZeroDivisionError):
            async with span("x"):
                raise ZeroDivisionError
        assert current_span_id() is None
    assert [event.event for event in made.events] == ["span_begin", "span_end"]


async def test_a_sample_has_a_transcript_of_its_own() -> None:
    with init_transcript(Transcript()) as outer:
        async with span("outer"):
            with init_transcript(Transcript()) as inner:
                transcript().info(1)
                assert current_span_id() is None
            transcript().info(2)
    assert [event.event for event in inner.events] == ["info"]
    assert [event.event for event in outer.events] == ["span_begin", "info", "span_end"]


def test_events_are_stamped_where_they_do_not_say() -> None:
    made = Transcript(new_id=iter("ab").__next__, working=lambda: 1.5)
    made.add(InfoEvent(data=1))
    made.add(InfoEvent(data=2, uuid="x", working_start=0.5))
    assert [(event.uuid, event.working_start) for event in made.events] == [("a", 1.5), ("x", 0.5)]
    assert all(event.timestamp is not None for event in made.events)


def test_outside_of_a_sample_nothing_is_kept() -> None:
    transcript().info("lost")
    assert transcript().events == []


def test_listeners_hear_of_new_and_of_changed_events() -> None:
    made, heard = Transcript(), list[tuple[str, bool | None]]()

    def listen(event: Event) -> None:
        heard.append((event.event, event.pending))

    made.listeners.append(listen)
    event = InfoEvent(data=1, pending=True)
    made.add(event)
    made.updated(event)
    assert heard == [("info", True), ("info", None)]


def test_a_score_holds_only_what_every_reader_takes() -> None:
    for value in ("C", 1, 0.5, True, [1, "a"], {"a": 1, "b": None}):
        assert Score(value=value).value == value
    assert Score(value=(1, 2)).value == [1, 2]
    for wrong in (None, object(), [None], [[1]], {"a": [1]}, {1: 2}, b"x"):
        with pytest.raises(TypeError, match=r"Score.unscored\(\)"):
            Score(value=wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="answer is text or None, not 4"):
        Score(value=1, answer=4)  # type: ignore[arg-type]
    made = Score(value=1)
    with pytest.raises(TypeError, match="explanation is text or None"):
        made.explanation = ["x"]  # type: ignore[assignment]


class Scalar:
    def tolist(self) -> float:
        return 0.25

    item = tolist


class Array:
    def tolist(self) -> list[float]:
        return [0.25]


def test_numbers_of_array_libraries_become_plain_ones() -> None:
    assert Score(value=Scalar()).value == 0.25  # type: ignore[arg-type]
    assert Score(value=Array()).value == [0.25]  # type: ignore[arg-type]
    assert Score(value={"a": Scalar()}).value == {"a": 0.25}  # type: ignore[dict-item]


def test_a_score_reads_as_what_it_is() -> None:
    assert (Score(value=1).as_float(), Score(value="2").as_int(), Score(value=0).as_bool()) == (1.0, 2, False)
    assert Score(value=[1]).as_list() == [1]
    assert Score(value={"a": 1}).as_dict() == {"a": 1}
    for call in (Score(value=[1]).as_str, Score(value=1).as_list, Score(value=1).as_dict):
        with pytest.raises(ValueError, match="the value of this score is not"):
            call()
