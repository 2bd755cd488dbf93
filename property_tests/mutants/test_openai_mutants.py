"""Plant a small fault into a protocol of OpenAI's family, and see the property that is named for it find it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import Phase, settings

from proctor.model import event_stream
from proctor.model.event_stream import EventParser
from proctor.model.providers import mistral, openai_chat_answer, openai_chat_stream, openai_responses_answer
from proctor.model.providers.openai_chat_stream import ChatStream
from proctor.model.providers.openai_responses_answer import ResponsesStream

FILE = Path(__file__).resolve().parents[1] / "providers" / "test_openai_streams.py"
EXAMPLES = 200

COMPLETION = "test_a_completion_is_the_same_however_its_stream_is_split"
CHOICES = "test_choices_of_a_stream_do_not_mix"
CHUNKS = "test_chunks_of_mistral_are_the_same_however_they_are_split"
RESPONSE = "test_a_response_is_the_same_however_its_stream_is_split"

Plant = Callable[[pytest.MonkeyPatch], None]


@attrs.frozen
class Mutant:
    """A fault and the property that finds it."""

    name: str
    caught_by: str
    plant: Plant


MUTANTS: list[Mutant] = []


def mutant(name: str, caught_by: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(name, caught_by, plant))
        return plant

    return add


@mutant("a line that two chunks share is two lines", RESPONSE)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = EventParser.feed

    def feed(self: Any, chunk: bytes) -> Any:
        self._line.clear()
        return plain(self, chunk)

    patch.setattr(EventParser, "feed", feed)


@mutant("comments are data", RESPONSE)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = EventParser._take

    def take(self: Any, line: bytes, events: Any) -> None:
        plain(self, line.replace(b": keep", b"data: keep", 1) if line.startswith(b":") else line, events)

    patch.setattr(EventParser, "_take", take)


@mutant("an answer that ends has no last event", COMPLETION)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(event_stream, "DONE", b"[OVER]")


@mutant("the first delta of a text is lost", COMPLETION)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(openai_chat_stream, "TEXTS", ("refusal", "reasoning_content"))


@mutant("calls that are not counted are one", COMPLETION)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = openai_chat_stream._Choice._take_call
    patch.setattr(openai_chat_stream._Choice, "_take_call", lambda self, part: plain(self, {"index": 0, **part}))


@mutant("usage is forgotten", COMPLETION)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(openai_chat_stream, "LAST_COUNTS", ())


@mutant("every part is of the first choice", CHOICES)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = ChatStream.take

    def take(self: Any, event: Any) -> bool:
        data = event.data.replace(b'"index": 1', b'"index": 0')
        return plain(self, attrs.evolve(event, data=data))

    patch.setattr(ChatStream, "take", take)


@mutant("choices stay as they came", CHOICES)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(openai_chat_stream, "sorted", lambda items: list(items), raising=False)
    patch.setattr(openai_chat_answer, "sorted", lambda items, **_: list(items), raising=False)


@mutant("thoughts stay pieces", CHUNKS)
def _(patch: pytest.MonkeyPatch) -> None:
    def chunks(found: Any) -> Any:
        return [part for chunk in found for part in plain([chunk])]

    plain = mistral.chunks_from_wire
    patch.setattr(mistral, "chunks_from_wire", chunks)


@mutant("items that were done are forgotten", RESPONSE)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = ResponsesStream.take

    def take(self: Any, event: Any) -> bool:
        self._items.clear()
        return plain(self, event)

    patch.setattr(ResponsesStream, "take", take)


@mutant("an incomplete response is not the last event", RESPONSE)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(openai_responses_answer, "FINAL_EVENTS", frozenset({"response.completed"}))


def property_named(name: str) -> Any:
    """The property, freshly loaded."""
    spec = importlib.util.spec_from_file_location("openai_properties_with_a_mutant", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test: Any = getattr(module, name)
    test._hypothesis_internal_use_settings = settings(  # a test may not be decorated with settings twice
        max_examples=EXAMPLES, phases=[Phase.generate], derandomize=True, database=None, deadline=None
    )
    return test


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_fault_planted_into_openais_protocols_is_found(monkeypatch: pytest.MonkeyPatch, planted: Mutant) -> None:
    test = property_named(planted.caught_by)
    planted.plant(monkeypatch)
    with pytest.raises(BaseException) as caught:
        test()
    for leaf in leaves(caught.value):  # a fault that does not fit the code any more proves nothing
        assert not isinstance(leaf, KeyboardInterrupt | SystemExit | AttributeError | TypeError | NameError), leaf


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]
