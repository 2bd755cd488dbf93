"""Plant a small fault into a protocol of a vendor, and see the property that is named for it find it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import Phase, settings

from proctor.model import event_stream
from proctor.model.providers import anthropic_content, anthropic_request, bedrock_content, google_content, google_output
from proctor.model.providers.anthropic_output import MessageAssembly
from proctor.model.providers.bedrock_output import ConverseAssembly

for package in ("anthropic", "google.genai", "botocore"):
    pytest.importorskip(package)

FOLDER = Path(__file__).resolve().parents[1] / "providers"
EXAMPLES = 100

MESSAGES = "test_vendor_requests.py::test_messages_passes_the_vendors_types", "claude-sonnet-4-5"
CONTENT = "test_vendor_requests.py::test_generate_content_passes_the_vendors_types", "gemini-2.5-pro"
CONVERSE = "test_vendor_requests.py::test_converse_passes_botocores_validator", "amazon.nova-2-lite-v1:0"
MESSAGE_STREAM = "test_vendor_streams.py::test_a_message_is_the_same_however_its_stream_is_split", None
CONTENT_STREAM = "test_vendor_streams.py::test_a_response_is_the_same_however_its_stream_is_split", None
CONVERSE_STREAM = "test_vendor_streams.py::test_converse_is_the_same_however_its_stream_is_split", None

Plant = Callable[[pytest.MonkeyPatch], None]


@attrs.frozen
class Mutant:
    """A fault, the property that finds it and the model that it is asked with."""

    name: str
    caught_by: tuple[str, str | None]
    plant: Plant


MUTANTS: list[Mutant] = []


def mutant(name: str, caught_by: tuple[str, str | None]) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(name, caught_by, plant))
        return plant

    return add


@mutant("a tool has a key that the vendor does not know", MESSAGES)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = anthropic_request.tool_to_wire
    patch.setattr(anthropic_request, "tool_to_wire", lambda tool: {**plain(tool), "parameters": {}})


@mutant("results of parallel calls are turns of their own", MESSAGES)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(anthropic_request, "joined", lambda messages: messages)


@mutant("thinking ends a turn", MESSAGES)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(anthropic_content, "THINKING", frozenset())


@mutant("every block has a cache breakpoint", MESSAGES)
def _(patch: pytest.MonkeyPatch) -> None:
    def mark(system: Any, messages: Any, tools: Any, ttl: Any) -> None:
        for message in messages:
            for block in message["content"]:
                block["cache_control"] = {"type": "ephemeral"}

    patch.setattr(anthropic_request, "_mark", mark)


@mutant("later system messages are forgotten", MESSAGES)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = anthropic_request.split_system

    def split(messages: Any, *, inline: bool) -> Any:
        top, rest = plain(messages, inline=inline)
        return top, [one for one in rest if "<system-reminder>" not in one.text]

    patch.setattr(anthropic_request, "split_system", split)


@mutant("calls after the first are lost", CONTENT)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = google_content._model_parts

    async def parts(message: Any, *, thinks: bool) -> Any:
        first = message.model_copy(update={"tool_calls": (message.tool_calls or [])[:1]})
        return await plain(first, thinks=thinks)

    patch.setattr(google_content, "_model_parts", parts)


@mutant("a tool has a key that Google does not know", CONTENT)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = google_content.tool_to_wire
    patch.setattr(google_content, "tool_to_wire", lambda tool: {**plain(tool), "input_schema": {}})


@mutant("what follows a result is a turn of its own", CONVERSE)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bedrock_content, "joined", lambda messages: messages)


@mutant("a schema is not within its json", CONVERSE)
def _(patch: pytest.MonkeyPatch) -> None:
    def wire(tool: Any) -> Any:
        return {"toolSpec": {"name": tool.name, "description": "d", "inputSchema": {"type": "object"}}}

    patch.setattr(bedrock_content, "tool_to_wire", wire)


@mutant("a delta of text replaces what was there", MESSAGE_STREAM)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = MessageAssembly._content_block_delta

    def take(self: Any, event: Any) -> None:
        if event["delta"]["type"] == "text_delta":
            self.message["content"][event["index"]]["text"] = ""
        plain(self, event)

    patch.setattr(MessageAssembly, "_content_block_delta", take)


@mutant("the input of a call is its last piece", MESSAGE_STREAM)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = MessageAssembly._content_block_delta

    def take(self: Any, event: Any) -> None:
        if event["delta"]["type"] == "input_json_delta":
            self._inputs.pop(event["index"], None)
        plain(self, event)

    patch.setattr(MessageAssembly, "_content_block_delta", take)


@mutant("a line ends with its chunk", MESSAGE_STREAM)
@mutant("a line ends with its chunk, for Google", CONTENT_STREAM)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = event_stream.EventParser.feed
    patch.setattr(event_stream.EventParser, "feed", lambda self, chunk: plain(self, chunk + b"\n"))


@mutant("thoughts are taken for text", CONTENT_STREAM)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = google_output.merged

    def merged(parts: Any) -> Any:
        return plain([{name: value for name, value in part.items() if name != "thought"} for part in parts])

    patch.setattr(google_output, "merged", merged)


@mutant("pieces of text stay pieces", CONTENT_STREAM)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(google_output, "merged", list)


@mutant("the first delta of a block is lost", CONVERSE_STREAM)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = ConverseAssembly.feed

    def feed(self: Any, kind: str, event: Any) -> None:
        if kind == "contentBlockDelta" and event["contentBlockIndex"] not in self._blocks:
            self._blocks[event["contentBlockIndex"]] = {}
            return
        plain(self, kind, event)

    patch.setattr(ConverseAssembly, "feed", feed)


def property_named(name: str) -> Any:
    """The property, freshly loaded."""
    file, _, test_name = name.partition("::")
    spec = importlib.util.spec_from_file_location("provider_properties_with_a_mutant", FOLDER / file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    test: Any = getattr(module, test_name)
    test._hypothesis_internal_use_settings = settings(  # a test may not be decorated with settings twice
        max_examples=EXAMPLES, phases=[Phase.generate], derandomize=True, database=None, deadline=None
    )
    return test


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, planted: Mutant) -> None:
    name, model = planted.caught_by
    test = property_named(name)
    planted.plant(monkeypatch)
    with pytest.raises(BaseException) as caught:
        test(**({} if model is None else {"model": model}))
    for leaf in leaves(caught.value):  # a fault that does not fit the code any more proves nothing
        assert not isinstance(leaf, KeyboardInterrupt | SystemExit | AttributeError | TypeError | NameError), leaf


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]
