"""Whatever a transcript holds is read back from its record, and from its journal up to the byte where that was cut."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from proctor.log import sample_json
from proctor.log.attached import read_sample
from proctor.log.encode import decode, to_builtins
from proctor.log.events import Event, InfoEvent, JsonChange, ModelEvent, StoreEvent, ToolEvent
from proctor.log.records import EvalSample
from proctor.log.running import SampleJournal, read_journal
from proctor.log.sample_json import encode_record
from proctor.log.transcript import Transcript
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessageAssistant, ChatMessageUser, ContentImage, ContentText
from proctor.model.output import ChatCompletionChoice, ModelCall, ModelOutput

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
SHORT = "short"
LONG = "a long text, " * 20
texts = st.sampled_from([SHORT, LONG, "x" * 100, "y" * 101, "z" * 101, "attachment://no-key", "é😀" * 80, ""])
images = st.sampled_from(
    ["data:image/png;base64,AAAA", "data:image/png;base64," + "B" * 300, "https://a.example/x.png"]
)
values = st.recursive(
    texts | st.integers(-3, 3) | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
contents = texts | st.tuples(texts, images).map(lambda both: [ContentText(text=both[0]), ContentImage(image=both[1])])
messages = st.tuples(st.sampled_from([None, "1", "2"]), contents).map(
    lambda said: ChatMessageUser(id=said[0], content=said[1])  # pyright: ignore[reportArgumentType]
)


@attrs.define
class Program:
    """A sample that grows step by step, with what was meant by each event when it was added.

    Attributes:
        said: the conversation. meant: the events as JSON, lists of their own in them.
    """

    transcript: Transcript = attrs.field(factory=lambda: Transcript(now=lambda: NOON, share_from=1))
    said: list[Any] = attrs.field(factory=list)
    meant: list[Any] = attrs.field(factory=list)

    def add(self, event: Event) -> None:
        plain = copy.deepcopy(event)
        self.transcript.add(event)
        plain.uuid, plain.timestamp = event.uuid, event.timestamp
        plain.working_start, plain.span_id = event.working_start, event.span_id
        self.meant.append(to_builtins(plain))

    def sample(self) -> EvalSample:
        events = self.transcript.events
        return EvalSample(id=1, epoch=1, input="i", target="t", messages=list(self.said), events=events)


Step = Callable[[Program], None]


def say(message: Any) -> Step:
    return lambda program: program.said.append(copy.deepcopy(message))


def call(kept: list[bool], text: str, *, raw: bool, copied: bool) -> Step:
    """A model call with some of what was said, whose answer is said too."""

    def step(program: Program) -> None:
        given = [m for n, m in enumerate(program.said) if n >= len(kept) or kept[n]]
        given = copy.deepcopy(given) if copied else given
        answer = ChatMessageAssistant(content=text)
        request = {"messages": [to_builtins(each) for each in given], "stream": False}
        program.add(
            ModelEvent(
                model="m", input=given, tools=[], tool_choice="none", config=GenerateConfig(),
                output=ModelOutput(model="m", choices=[ChatCompletionChoice(message=answer, stop_reason="stop")]),
            )
        )  # fmt: skip
        if raw:
            event: Any = program.transcript.events[-1]
            event.call = ModelCall(request=copy.deepcopy(request), response={"text": text})
            program.transcript.updated(event)
            plain = attrs.evolve(event, input=[], call=ModelCall(request=request, response={"text": text}))
            program.meant[-1] = {**to_builtins(plain), "input": program.meant[-1]["input"]}
        program.said.append(answer)

    return step


steps = st.one_of(
    messages.map(say),
    st.builds(call, st.lists(st.booleans(), max_size=3), texts, raw=st.booleans(), copied=st.booleans()),
    st.builds(call, st.just([]), texts, raw=st.booleans(), copied=st.just(False)),
    st.tuples(texts, values).map(
        lambda x: lambda p: p.add(ToolEvent(id="c", function="f", arguments={"a": x[1]}, result=x[0]))
    ),
    values.map(lambda value: lambda p: p.add(InfoEvent(data=value))),
    values.map(lambda value: lambda p: p.add(StoreEvent(changes=[JsonChange(op="add", path="/a", value=value)]))),
)
programs = st.lists(steps, max_size=12)


def read_back(data: bytes) -> EvalSample:
    return read_sample(decode(data), "full")


@given(program=programs, in_pieces=st.booleans())
def test_a_record_gives_back_every_event(program: list[Step], *, in_pieces: bool) -> None:
    made = Program()
    for step in program:
        step(made)
    many, long = sample_json.MANY, sample_json.LONG
    try:
        if in_pieces:
            sample_json.MANY, sample_json.LONG = 0, 40  # type: ignore[misc]
        data = b"".join(encode_record(made.sample()).parts)
    finally:
        sample_json.MANY, sample_json.LONG = many, long  # type: ignore[misc]
    again = read_back(data)
    assert [to_builtins(event) for event in again.events] == made.meant
    assert to_builtins(again.messages) == to_builtins(made.said)
    twice = read_back(b"".join(encode_record(again).parts))
    assert [to_builtins(event) for event in twice.events] == made.meant
    unresolved = read_sample(decode(data))
    thrice = read_back(b"".join(encode_record(unresolved).parts))
    assert [to_builtins(event) for event in thrice.events] == made.meant


@given(programs, st.data())
def test_a_journal_gives_back_every_event_before_the_cut(program: list[Step], data: st.DataObject) -> None:
    made = Program()
    ends: list[tuple[int, int]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.events")
        journal = SampleJournal(path)
        for step in program:
            step(made)
            if data.draw(st.booleans()):
                journal.append(made.sample(), list(made.transcript.events))
                ends.append((path.stat().st_size if path.exists() else 0, journal.seen))
        written = path.read_bytes() if path.exists() else b""
    size = data.draw(st.integers(0, 100_000)) % (len(written) + 1)
    found = read_journal(written[:size])
    whole = max((seen for end, seen in ends if 0 < end <= size), default=0)
    events = [] if found is None else [to_builtins(event) for event in found.events]
    assert events == made.meant[:whole]


@given(programs, st.sampled_from([0, 1, 2]))
def test_an_event_that_ends_later_is_there_once(program: list[Step], place: int) -> None:
    made = Program()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "x.events")
        journal = SampleJournal(path)
        open_: Any = ToolEvent(id="open", function="f", arguments={}, pending=True)
        for number, step in enumerate(program):
            if number == place:
                made.add(open_)
            step(made)
            journal.append(made.sample(), list(made.transcript.events))
        if place < len(program):
            open_.result, where = LONG, made.transcript.events.index(open_)
            made.transcript.updated(open_)
            made.meant[where] = to_builtins(open_)
            journal.append(made.sample(), list(made.transcript.events))
        found = read_journal(path.read_bytes()) if path.exists() else None
    assert ([] if found is None else [to_builtins(event) for event in found.events]) == made.meant
