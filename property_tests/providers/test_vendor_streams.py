"""However the bytes of a streamed answer are split, the answer is the one that they hold."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.model.event_stream import EventParser
from proctor.model.providers import anthropic_output, bedrock_output, google_output
from proctor.model.providers.anthropic import MessageReader
from proctor.model.providers.bedrock import ConverseReader
from proctor.model.providers.google import ResponseReader

pytest.importorskip("botocore")

EXAMPLES = max(100, settings.default.max_examples)

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
scalars = st.none() | st.booleans() | st.integers(-5, 5) | texts
inputs = st.dictionaries(texts, scalars | st.lists(scalars, max_size=2), max_size=2)
blobs = st.binary(min_size=1, max_size=6).map(lambda raw: base64.b64encode(raw).decode())
ids = st.integers(0, 9).map(lambda number: f"id_{number}")


def pieces(data: st.DataObject, text: str) -> list[str]:
    """A text in pieces of any size."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=4)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def split(data: st.DataObject, body: bytes) -> list[bytes]:
    """Bytes in chunks of any size, empty ones among them."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    return [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]


def sse(data: st.DataObject, events: list[dict[str, Any]], *, named: bool) -> bytes:
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    out = []
    for event in events:
        name = f"event: {event['type']}{end}" if named else ""
        body = json.dumps(event, ensure_ascii=data.draw(st.booleans()))
        out.append(f"{name}data: {body}{end}{end}")
    return "".join(out).encode()


def read(reader: Any, chunks: list[bytes]) -> dict[str, Any]:
    parser = EventParser()
    for chunk in chunks:
        for event in parser.feed(chunk):
            reader.take(event)
    return reader.answer()  # type: ignore[no-any-return]


# -- Anthropic --------------------------------------------------------------------------------------------------------

anthropic_blocks = st.one_of(
    texts.map(lambda text: {"type": "text", "text": text}),
    st.tuples(texts, blobs).map(lambda one: {"type": "thinking", "thinking": one[0], "signature": one[1]}),
    blobs.map(lambda one: {"type": "redacted_thinking", "data": one}),
    st.tuples(ids, inputs).map(lambda one: {"type": "tool_use", "id": one[0], "name": "bash", "input": one[1]}),
)


@settings(max_examples=EXAMPLES)
@given(blocks=st.lists(anthropic_blocks, max_size=4), data=st.data())
def test_a_message_is_the_same_however_its_stream_is_split(blocks: list[dict[str, Any]], data: st.DataObject) -> None:
    usage = {"input_tokens": 3, "output_tokens": 4}
    whole = {"type": "message", "id": "m", "model": "x", "content": blocks, "stop_reason": "end_turn", "usage": usage}
    started = {**whole, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": started}]
    for index, block in enumerate(blocks):
        empty: dict[str, Any] = {"text": "", "thinking": "", "signature": "", "input": {}}
        first = {name: empty.get(name, value) for name, value in block.items()}
        events += [{"type": "content_block_start", "index": index, "content_block": first}, {"type": "ping"}]
        deltas: list[dict[str, Any]] = []
        if "text" in block:
            deltas = [{"type": "text_delta", "text": one} for one in pieces(data, block["text"])]
        elif "thinking" in block:
            deltas = [{"type": "thinking_delta", "thinking": one} for one in pieces(data, block["thinking"])]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        elif "input" in block:
            text = json.dumps(block["input"]) if block["input"] else ""
            deltas = [{"type": "input_json_delta", "partial_json": one} for one in pieces(data, text)]
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    events += [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
        {"type": "message_stop"},
    ]
    body = sse(data, events, named=True)
    found = read(MessageReader(), split(data, body))
    assert found == whole
    output = anthropic_output.output_from_wire(found, [], model="x")
    assert output == anthropic_output.output_from_wire(whole, [], model="x")


# -- Google -----------------------------------------------------------------------------------------------------------

google_parts = st.one_of(
    texts.map(lambda text: {"text": text}),
    texts.map(lambda text: {"text": text, "thought": True}),
    st.tuples(texts, blobs).map(lambda one: {"text": one[0], "thoughtSignature": one[1]}),
    st.tuples(ids, inputs).map(lambda one: {"functionCall": {"id": one[0], "name": "bash", "args": one[1]}}),
    st.tuples(ids, blobs).map(
        lambda one: {"functionCall": {"id": one[0], "name": "bash", "args": {}}, "thoughtSignature": one[1]}
    ),
)


def distinct(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Parts without those that are more of the text before them: a server gives both as one."""
    kept: list[dict[str, Any]] = []
    for part in parts:
        before = kept[-1] if kept else {}
        same = "text" in before and "text" in part and before.get("thought") == part.get("thought")
        if not same or "thoughtSignature" in before:
            kept.append(part)
    return kept


@settings(max_examples=EXAMPLES)
@given(parts=st.lists(google_parts, max_size=5), data=st.data())
def test_a_response_is_the_same_however_its_stream_is_split(parts: list[dict[str, Any]], data: st.DataObject) -> None:
    parts = distinct(parts)
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}
    end = {"finishReason": "STOP", "index": 0}
    content = {"content": {"role": "model", "parts": parts}} if parts else {}
    whole = {"candidates": [{**content, **end}], "usageMetadata": usage, "modelVersion": "g"}
    chunks: list[dict[str, Any]] = []
    for part in parts:
        plain = "text" in part and "thoughtSignature" not in part
        for piece in pieces(data, part["text"]) if plain else [None]:
            one = part if piece is None else {**part, "text": piece}
            chunks.append({"candidates": [{"content": {"role": "model", "parts": [one]}, "index": 0}]})
    chunks.append({"candidates": [end], "usageMetadata": usage, "modelVersion": "g"})
    found = read(ResponseReader(), split(data, sse(data, chunks, named=False)))
    assert found == whole
    outputs = [google_output.output_from_wire(one, model="g", new_id=lambda: "n") for one in (found, whole)]
    assert outputs[0] == outputs[1]


# -- Bedrock ----------------------------------------------------------------------------------------------------------

bedrock_blocks = st.one_of(
    texts.map(lambda text: {"text": text}),
    st.tuples(ids, inputs).map(lambda one: {"toolUse": {"toolUseId": one[0], "name": "bash", "input": one[1]}}),
    st.tuples(texts, blobs).map(
        lambda one: {"reasoningContent": {"reasoningText": {"text": one[0], "signature": one[1]}}}
    ),
    blobs.map(lambda one: {"reasoningContent": {"redactedContent": one}}),
)


def frame(kind: str, payload: dict[str, Any]) -> bytes:
    """One message of the event stream format."""
    coded = b""
    for name, value in ((":message-type", "event"), (":event-type", kind)):
        coded += bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
    body = json.dumps(payload, ensure_ascii=False).encode()
    prelude = struct.pack(">II", 16 + len(coded) + len(body), len(coded))
    whole = prelude + struct.pack(">I", binascii.crc32(prelude)) + coded + body
    return whole + struct.pack(">I", binascii.crc32(whole))


@settings(max_examples=EXAMPLES)
@given(blocks=st.lists(bedrock_blocks, max_size=4), data=st.data())
def test_converse_is_the_same_however_its_stream_is_split(blocks: list[dict[str, Any]], data: st.DataObject) -> None:
    usage = {"inputTokens": 3, "outputTokens": 4, "totalTokens": 7}
    whole = {
        "output": {"message": {"role": "assistant", "content": blocks}},
        "stopReason": "end_turn",
        "usage": usage,
        "metrics": {"latencyMs": 1},
    }
    events: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
    for index, block in enumerate(blocks):
        at = {"contentBlockIndex": index}
        deltas: list[dict[str, Any]]
        if "toolUse" in block:
            use = block["toolUse"]
            start = {"toolUse": {"toolUseId": use["toolUseId"], "name": use["name"]}}
            events.append(("contentBlockStart", {"start": start, **at}))
            text = json.dumps(use["input"]) if use["input"] else ""
            deltas = [{"toolUse": {"input": one}} for one in pieces(data, text)]
        elif "text" in block:
            deltas = [{"text": one} for one in pieces(data, block["text"])]
        elif "reasoningText" in block["reasoningContent"]:
            said = block["reasoningContent"]["reasoningText"]
            deltas = [{"reasoningContent": {"text": one}} for one in pieces(data, said["text"])]
            deltas.append({"reasoningContent": {"signature": said["signature"]}})
        else:
            deltas = [{"reasoningContent": block["reasoningContent"]}]
        events += [("contentBlockDelta", {"delta": delta, **at}) for delta in deltas]
        events.append(("contentBlockStop", at))
    events += [("messageStop", {"stopReason": "end_turn"}), ("metadata", {"usage": usage, "metrics": {"latencyMs": 1}})]
    reader = ConverseReader()
    body = b"".join(frame(*event) for event in events)
    ends = [reader.feed(chunk) for chunk in split(data, body) if chunk]
    assert ends[-1] is True
    assert reader.answer() == whole
    outputs = [bedrock_output.output_from_wire(one, [], model="b") for one in (reader.answer(), whole)]
    assert outputs[0] == outputs[1]
