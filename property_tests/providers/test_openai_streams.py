"""However a streamed completion or response is cut, into deltas and into bytes, its output is that of the whole one."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.model.event_stream import EventParser
from proctor.model.providers import mistral, openai_chat_answer, openai_chat_stream, openai_responses_answer

EXAMPLES = max(100, settings.default.max_examples)

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
arguments = st.dictionaries(texts, st.none() | st.integers(-5, 5) | texts, max_size=2).map(json.dumps) | texts
calls = st.lists(st.tuples(st.sampled_from(["bash", "add"]), arguments), max_size=3)
reasons = st.sampled_from(["stop", "length", "content_filter"])
USAGE = {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}


def pieces(data: st.DataObject, text: str) -> list[str]:
    """A text in pieces of any size."""
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=4)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def sent(data: st.DataObject, events: list[Any], *, named: bool = False) -> list[bytes]:
    """Events as bytes in chunks of any size, with comments and either end of line."""
    end = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    escape = data.draw(st.booleans())
    out = []
    for event in events:
        out.append(f": keep-alive{end}" if data.draw(st.booleans()) else "")
        out.append(f"event: {event['type']}{end}" if named else "")
        text = event if isinstance(event, str) else json.dumps(event, ensure_ascii=escape)
        out.append(f"data: {text}{end}{end}")
    body = "".join(out).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=8)))
    return [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]


def read(reader: Any, chunks: list[bytes]) -> dict[str, Any]:
    parser = EventParser()
    last = False
    for chunk in chunks:
        for event in parser.feed(chunk):
            last = reader.take(event)
    assert last, "the last event was not taken for it"
    return reader.answer()  # type: ignore[no-any-return]


def wire_call(identity: str, name: str, text: str) -> dict[str, Any]:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": text}}


def chat_deltas(data: st.DataObject, message: dict[str, Any], *, counted: bool) -> list[dict[str, Any]]:
    """A message in the deltas of a stream; `counted`: tool calls say which they are."""
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    for name in ("reasoning_content", "content", "refusal"):
        deltas += [{name: piece} for piece in pieces(data, message.get(name) or "")]
    for index, call in enumerate(message.get("tool_calls") or ()):
        place = {"index": index} if counted else {}
        first, *rest = pieces(data, call["function"]["arguments"])
        name = call["function"]["name"]
        deltas.append({"tool_calls": [{**place, "id": call["id"], "function": {"name": name, "arguments": first}}]})
        deltas += [{"tool_calls": [{**place, "function": {"arguments": piece}}]} for piece in rest]
    return deltas


@settings(max_examples=EXAMPLES)
@given(
    content=texts, reasoning=texts, refusal=texts, asked=calls, reason=reasons, counted=st.booleans(), data=st.data()
)
def test_a_completion_is_the_same_however_its_stream_is_split(
    content: str, reasoning: str, refusal: str, asked: Any, reason: str, counted: bool, data: st.DataObject
) -> None:
    made = [wire_call(f"c{i}", *call) for i, call in enumerate(asked)]
    message: dict[str, Any] = {"content": content, "reasoning_content": reasoning, "refusal": refusal or None}
    if made:
        message["tool_calls"] = made
    head = {"id": "c", "model": "m"}
    whole = {**head, "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": USAGE}
    chunks: list[Any] = [
        {**head, "choices": [{"index": 0, "delta": delta}]} for delta in chat_deltas(data, message, counted=counted)
    ]
    chunks.append({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    chunks += [{**head, "choices": [], "usage": USAGE}, "[DONE]"]
    streamed = read(openai_chat_stream.ChatStream(), sent(data, chunks))
    read_from = openai_chat_answer.output_from_wire
    assert read_from(streamed, [], model="m") == read_from(whole, [], model="m")


@settings(max_examples=EXAMPLES)
@given(answers=st.lists(texts, min_size=2, max_size=3), data=st.data())
def test_choices_of_a_stream_do_not_mix(answers: list[str], data: st.DataObject) -> None:
    parts = [(index, piece) for index, text in enumerate(answers) for piece in pieces(data, text)]
    order = data.draw(st.permutations(range(len(answers))))
    parts.sort(key=lambda part: order[part[0]])
    chunks: list[Any] = [{"choices": [{"index": index, "delta": {"content": piece}}]} for index, piece in parts]
    chunks += [{"choices": [{"index": i, "delta": {}, "finish_reason": "stop"}]} for i in order]
    streamed = read(openai_chat_stream.ChatStream(), sent(data, [*chunks, "[DONE]"]))
    output = openai_chat_answer.output_from_wire(streamed, [], model="m")
    assert [choice.message.text for choice in output.choices] == answers


thoughts = st.lists(st.tuples(st.sampled_from(["thinking", "text"]), texts.filter(bool)), max_size=4)


@settings(max_examples=EXAMPLES)
@given(parts=thoughts, data=st.data())
def test_chunks_of_mistral_are_the_same_however_they_are_split(parts: Any, data: st.DataObject) -> None:
    def chunk(kind: str, text: str) -> dict[str, Any]:
        inner = {"type": "text", "text": text}
        return inner if kind == "text" else {"type": "thinking", "thinking": [inner]}

    whole = [chunk(kind, text) for kind, text in parts]
    cut = [chunk(kind, piece) for kind, text in parts for piece in pieces(data, text) if piece]
    deltas: list[Any] = [{"choices": [{"index": 0, "delta": {"content": [each]}}]} for each in cut]
    deltas.append({"choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}]})
    streamed = read(openai_chat_stream.ChatStream(), sent(data, [*deltas, "[DONE]"]))
    found = streamed["choices"][0]["message"]["content"] or []
    assert mistral.chunks_from_wire(found) == mistral.chunks_from_wire(whole)


@settings(max_examples=EXAMPLES)
@given(
    content=texts, asked=calls, status=st.sampled_from(["completed", "incomplete"]), late=st.booleans(), data=st.data()
)
def test_a_response_is_the_same_however_its_stream_is_split(
    content: str, asked: Any, status: str, late: bool, data: st.DataObject
) -> None:
    items: list[dict[str, Any]] = [
        {"type": "message", "id": "m1", "content": [{"type": "output_text", "text": content, "annotations": []}]}
    ]
    items += [
        {"type": "function_call", "call_id": f"c{i}", "name": name, "arguments": text}
        for i, (name, text) in enumerate(asked)
    ]
    whole = {"id": "r", "model": "m", "status": status, "output": items}
    events: list[Any] = [{"type": "response.created", "response": {**whole, "status": "in_progress", "output": []}}]
    events += [{"type": "response.output_text.delta", "delta": piece} for piece in pieces(data, content)]
    events += [{"type": "response.output_item.done", "item": item} for item in items]
    events.append({"type": f"response.{status}", "response": {**whole, "output": [] if late else items}})
    streamed = read(openai_responses_answer.ResponsesStream(), sent(data, events, named=data.draw(st.booleans())))
    read_from = openai_responses_answer.output_from_wire
    assert read_from(streamed, [], model="m") == read_from(whole, [], model="m")
