"""Any conversation that is one makes a request that the vendor's own types take, and that says all that it said.

Protocols: Anthropic's Messages, Gemini's generateContent, Bedrock's Converse.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections import Counter
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proctor.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ResponseSchema,
)
from proctor.model.messages import ChatMessage
from proctor.model.providers import anthropic_request, bedrock_content, google_content
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolCallError, ToolFunction, ToolInfo
from proctor.testing.vendor_types import anthropic_problems, bedrock_problems, google_problems

for package in ("anthropic", "google.genai", "botocore"):
    pytest.importorskip(package)

EXAMPLES = max(60, settings.default.max_examples)

PNG = "data:image/png;base64," + base64.b64encode(b"png").decode()
PDF = "data:application/pdf;base64," + base64.b64encode(b"%PDF").decode()
NOTE = "data:text/plain;base64," + base64.b64encode("Grüße".encode()).decode()

names = st.sampled_from(["bash", "edit", "look_up"])
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
scalars = st.none() | st.booleans() | st.integers(-5, 5) | texts
arguments = st.dictionaries(st.sampled_from(["cmd", "n"]), scalars | st.lists(scalars, max_size=2), max_size=2)
signatures = st.binary(min_size=1, max_size=6).map(lambda raw: base64.b64encode(raw).decode())

reasoning = st.one_of(
    st.builds(ContentReasoning, reasoning=texts),
    st.builds(ContentReasoning, reasoning=texts, signature=signatures),
    st.builds(ContentReasoning, reasoning=signatures, summary=texts, redacted=st.just(True)),
    st.builds(
        ContentReasoning, reasoning=signatures, summary=texts, redacted=st.just(True),
        internal=st.sampled_from([{"anthropic": "thinking"}, {"google": "signature"}, {"other": 1}]),
    ),
    st.builds(
        ContentReasoning, reasoning=signatures, redacted=st.just(True),
        internal=st.sampled_from([{"anthropic": "redacted_thinking"}, None]),
    ),
    st.builds(
        ContentReasoning, reasoning=st.just(""), redacted=st.just(True),
        internal=signatures.map(lambda one: {"bedrock_redacted_content": one}),
    ),
)  # fmt: skip
plain_parts = st.builds(ContentText, text=texts)
user_parts = st.one_of(
    plain_parts,
    st.just(ContentImage(image=PNG)),
    st.sampled_from([PDF, NOTE, PNG]).map(lambda one: ContentDocument(document=one)),
)
SCHEMA = ResponseSchema(name="a", json_schema=JSONSchema(type="object", properties={"x": JSONSchema(type="integer")}))
TOOLS = [
    ToolInfo(name=name, description="d", parameters=ToolParams(properties={"cmd": JSONSchema(type="string")}))
    for name in ("bash", "edit", "look_up")
]
configs = st.builds(
    GenerateConfig,
    max_tokens=st.none() | st.integers(1, 100),
    stop_seqs=st.none() | st.lists(texts.filter(bool), max_size=2),
    reasoning_effort=st.none() | st.sampled_from(["none", "minimal", "low", "medium", "high", "xhigh", "max"]),
    effort=st.none() | st.sampled_from(["low", "high", "max"]),
    cache_prompt=st.none() | st.booleans(),
    parallel_tool_calls=st.none() | st.booleans(),
    temperature=st.none() | st.sampled_from([0.0, 0.5]),
    top_k=st.none() | st.integers(1, 9),
    response_schema=st.none() | st.just(SCHEMA),
)
choices = st.sampled_from(["auto", "any", "none", ToolFunction("bash")])


@st.composite
def conversations(draw: st.DrawFn) -> list[ChatMessage]:
    """Messages in an order that a conversation has: each call is answered before the next turn."""
    messages: list[ChatMessage] = draw(st.lists(st.builds(ChatMessageSystem, content=texts), max_size=2))
    count = 0
    for kind in draw(st.lists(st.sampled_from(["user", "answer", "calls", "system"]), min_size=1, max_size=6)):
        if kind == "user":
            messages.append(ChatMessageUser(content=draw(texts | st.lists(user_parts, max_size=3))))
        elif kind == "system":
            messages.append(ChatMessageSystem(content=draw(texts)))
        else:
            content = draw(texts | st.lists(plain_parts | reasoning, max_size=4))
            model = draw(st.sampled_from([None, "claude-x", "gpt"]))
            asked = draw(st.lists(st.tuples(names, arguments), min_size=1, max_size=3)) if kind == "calls" else []
            calls = [ToolCall(f"call_{count + i}", name, given) for i, (name, given) in enumerate(asked)]
            count += len(calls)
            messages.append(ChatMessageAssistant(content=content, tool_calls=calls or None, model=model))
            for call in calls:
                error = draw(st.none() | st.just(ToolCallError("timeout", "too slow")))
                result = draw(texts | st.lists(plain_parts | st.just(ContentImage(image=PNG)), max_size=2))
                messages.append(
                    ChatMessageTool(content=result, tool_call_id=call.id, function=call.function, error=error)
                )
    return messages


def now(work: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    """The result of an async function that waits for nothing: no file is named in these messages."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")


def said(messages: list[ChatMessage]) -> Counter[str]:
    """Texts that must be somewhere in a request."""
    found: list[str] = []
    for message in messages:
        if isinstance(message, ChatMessageTool) and message.error is not None:
            found.append(message.error.message)
        else:
            found += [part.text for part in message.content_list if isinstance(part, ContentText) and part.text]
    return Counter(found)


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for one in inner for text in strings(one)]


def check_said(messages: list[ChatMessage], body: dict[str, Any]) -> None:
    """Every text is there as often as it was said."""
    sent = "\0".join(strings(body))
    for text, times in said(messages).items():
        assert sent.count(text) >= times, (text, body)


def check_calls(messages: list[ChatMessage], used: list[str], answered: list[str]) -> None:
    """All calls and all results are there, in their order, each once."""
    calls = [call.id for one in messages if isinstance(one, ChatMessageAssistant) for call in one.tool_calls or ()]
    assert used == calls
    assert answered == calls


def check_turns(roles: list[str]) -> None:
    assert all(a != b for a, b in itertools.pairwise(roles)), roles


@pytest.mark.parametrize(
    "model", ["claude-3-haiku-20240307", "claude-sonnet-4-5", "claude-opus-4-8", "claude-sonnet-5-5"]
)
@settings(max_examples=EXAMPLES // 2)
@given(messages=conversations(), config=configs, choice=choices, offered=st.booleans())
def test_messages_passes_the_vendors_types(
    model: str, messages: list[ChatMessage], config: GenerateConfig, choice: Any, offered: bool
) -> None:
    options = anthropic_request.Options(model=model)
    body = now(anthropic_request.request_body(options, messages, TOOLS if offered else [], choice, config))
    headers = anthropic_request.request_headers(options, body, config)
    assert anthropic_problems(body, beta="anthropic-beta" in headers) == []
    check_turns([one["role"] for one in body["messages"]])
    blocks = [block for one in body["messages"] for block in one["content"]]
    everything = [*blocks, *body.get("system", ()), *body.get("tools", ())]
    marks = sum("cache_control" in one for one in everything) + ("cache_control" in body)
    assert marks <= anthropic_request.MAX_BREAKPOINTS
    assert all(block["text"] for block in everything if block.get("type") == "text")
    last = [one["content"][-1]["type"] for one in body["messages"] if one["role"] == "assistant"]
    assert not {"thinking", "redacted_thinking"} & set(last)
    check_calls(
        messages,
        [block["id"] for block in blocks if block["type"] == "tool_use"],
        [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"],
    )
    check_said(messages, body)


@pytest.mark.parametrize("model", ["gemini-1.5-pro", "gemini-2.5-pro", "gemini-3-flash"])
@settings(max_examples=EXAMPLES // 2)
@given(messages=conversations(), config=configs, choice=choices, offered=st.booleans())
def test_generate_content_passes_the_vendors_types(
    model: str, messages: list[ChatMessage], config: GenerateConfig, choice: Any, offered: bool
) -> None:
    safety = google_content.safety_settings(None)
    tools = TOOLS if offered else []
    body = now(google_content.request_body(model, messages, tools, choice, config, safety))
    assert google_problems(body) == []
    assert all(one["parts"] for one in body["contents"])
    parts = [part for one in body["contents"] for part in one["parts"]]
    check_calls(
        messages,
        [part["functionCall"]["id"] for part in parts if "functionCall" in part],
        [part["functionResponse"]["id"] for part in parts if "functionResponse" in part],
    )
    check_said(messages, body)


@pytest.mark.parametrize(
    "model", ["anthropic.claude-sonnet-4-5-v1:0", "amazon.nova-2-lite-v1:0", "meta.llama3-70b-v1:0"]
)
@settings(max_examples=EXAMPLES // 2)
@given(messages=conversations(), config=configs, choice=choices, offered=st.booleans())
def test_converse_passes_botocores_validator(
    model: str, messages: list[ChatMessage], config: GenerateConfig, choice: Any, offered: bool
) -> None:
    body = now(bedrock_content.request_body(model, messages, TOOLS if offered else [], choice, config))
    assert bedrock_problems(body, model) == []
    check_turns([one["role"] for one in body["messages"]])
    assert json.dumps(body).count("cachePoint") <= 4
    blocks = [block for one in body["messages"] for block in one["content"]]
    check_calls(
        messages,
        [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block],
        [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block],
    )
    check_said(messages, body)
