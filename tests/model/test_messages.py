"""Messages, contents, outputs and configurations as values."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import attrs
import pytest

from proctor.errors import OptionError
from proctor.model import (
    AdaptiveConcurrency,
    CachePolicy,
    ChatCompletionChoice,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentAudio,
    ContentData,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    ContentToolUse,
    ContentVideo,
    DocumentCitation,
    GenerateConfig,
    Logprob,
    Logprobs,
    ModelCall,
    ModelFallback,
    ModelOutput,
    ModelRequestId,
    ModelUsage,
    ResponseSchema,
    StopDetails,
    UrlCitation,
)
from proctor.model.config import public_config
from proctor.model.messages import ChatMessage, DocumentRange
from proctor.model.portable import converter, plain
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolCallContent, ToolCallError, ToolCallView, ToolInfo


def test_the_text_of_a_message_is_its_content_or_the_text_parts_of_it() -> None:
    assert ChatMessageUser(content="hi").text == "hi"
    mixed = ChatMessageUser(content=[ContentText(text="a"), ContentImage(image="u"), ContentText(text="b")])
    assert mixed.text == "a\nb"
    mixed.text = "c"
    assert mixed.content == [ContentText(text="c"), ContentImage(image="u")]
    image = ChatMessageUser(content=[ContentImage(image="u")])
    image.text = "d"
    assert image.content == [ContentImage(image="u"), ContentText(text="d")]
    assert ChatMessageSystem(content="x").content_list == [ContentText(text="x")]


def test_messages_are_made_by_keyword_only() -> None:
    with pytest.raises(TypeError):
        ChatMessageUser("hi")  # type: ignore[misc]


def test_a_document_finds_its_name_and_type() -> None:
    assert (ContentDocument(document="a/b.pdf").filename, ContentDocument(document="a/b.pdf").mime_type) == (
        "b.pdf",
        "application/pdf",
    )
    data = ContentDocument(document="data:text/plain;base64,aGk=")
    assert (data.filename, data.mime_type) == ("document.plain", "text/plain")
    assert ContentDocument(document="x.unknown-kind").mime_type == "application/octet-stream"
    assert ContentDocument(document="x", filename="n", mime_type="t").filename == "n"


def test_redacted_reasoning_shows_its_summary_only() -> None:
    assert ContentReasoning(reasoning="r").text == "<think>r</think>"
    assert ContentReasoning(reasoning="secret", summary="s", redacted=True).text == "<think>s</think>"


EVERYTHING: list[ChatMessage] = [
    ChatMessageSystem(id="1", content="be brief"),
    ChatMessageUser(
        content=[
            ContentText(
                text="t",
                citations=[
                    UrlCitation(url="u", cited_text=(1, 2)),
                    DocumentCitation(title="d", range=DocumentRange(type="page", start_index=1, end_index=2)),
                ],
            ),
            ContentImage(image="i", detail="low"),
            ContentDocument(document="d.txt"),
        ],
        metadata={"a": [1, None]},
    ),
    ChatMessageAssistant(
        content=[ContentReasoning(reasoning="r", internal={"x": 1}), ContentText(text="a")],
        tool_calls=[ToolCall("c", "f", {"x": 1}, view=ToolCallContent(format="text", content="v"))],
        model="m",
    ),
    ChatMessageTool(content="r", tool_call_id="c", function="f", error=ToolCallError("timeout", "late")),
]


@pytest.mark.parametrize("message", EVERYTHING, ids=lambda message: message.role)
def test_a_message_survives_being_dumped_and_read_back(message: ChatMessage) -> None:
    again = type(message).model_validate(json.loads(message.model_dump_json()))
    if isinstance(again.content, list):  # JSON has no tuples, a sequence of citations comes back as one
        again = converter().structure(plain(again), type(message))
    assert plain(again) == plain(message)
    assert type(message).model_validate(message) is message
    lean = message.model_dump(exclude_none=True)
    assert "source" not in lean
    assert plain(type(message).model_validate(lean)) == plain(message)


def test_messages_are_told_apart_by_role_and_contents_by_type() -> None:
    rows = [plain(message) for message in EVERYTHING]
    again = converter().structure(rows, list[ChatMessage])
    assert [type(message) for message in again] == [type(message) for message in EVERYTHING]
    with pytest.raises(Exception, match=r"role is 'robot'|structuring"):
        converter().structure({"role": "robot", "content": ""}, ChatMessage)


def test_a_copy_is_a_new_object_with_what_was_replaced() -> None:
    message = ChatMessageUser(content=[ContentText(text="a")])
    copy = message.model_copy(update={"id": "2"})
    assert (copy.id, message.id) == ("2", None)
    assert copy.content is message.content
    assert message.model_copy(deep=True).content is not message.content
    assert message.model_dump(include={"role"}) == {"role": "user"}
    assert set(message.model_dump(exclude={"content"})) == {"id", "source", "metadata", "role", "tool_call_id"}


def test_an_output_gives_its_first_choice() -> None:
    output = ModelOutput.from_content("m", "text", stop_reason="max_tokens", error="e")
    assert (output.completion, output.stop_reason, output.message.text, output.error) == (
        "text",
        "max_tokens",
        "text",
        "e",
    )
    assert output.message.source == "generate"
    assert not output.empty
    empty = ModelOutput(error="refused")
    assert empty.empty
    with pytest.raises(IndexError, match="refused"):
        _ = empty.message
    assert ModelOutput(completion="other", choices=output.choices).completion == "other"
    assert ChatCompletionChoice(message=output.message, stop_reason="length").stop_reason == "max_tokens"  # type: ignore[arg-type]
    assert ModelOutput.from_message(ChatMessageUser(content="u")).message.role == "assistant"


def test_scripted_tool_calls_have_ids_of_their_own() -> None:
    one, two = (ModelOutput.for_tool_call("m", "bash", {"cmd": "ls"}) for _ in range(2))
    assert one.stop_reason == "tool_calls"
    calls = [output.message.tool_calls for output in (one, two)]
    assert calls[0] is not None
    assert calls[1] is not None
    assert calls[0][0].arguments == {"cmd": "ls"}
    assert calls[0][0].id != calls[1][0].id


def test_usage_adds_up_and_what_nobody_reports_stays_unreported() -> None:
    total = ModelUsage(input_tokens=1, output_tokens=2, total_tokens=3, reasoning_tokens=1) + ModelUsage(
        input_tokens=10, total_tokens=10, input_tokens_cache_read=4
    )
    assert total == ModelUsage(
        input_tokens=11, output_tokens=2, total_tokens=13, reasoning_tokens=1, input_tokens_cache_read=4
    )


def test_the_later_configuration_wins_where_it_says_something() -> None:
    base = GenerateConfig(temperature=0.5, max_tokens=10, stop_seqs=["a"])
    merged = base.merge(GenerateConfig(temperature=0.0)).merge({"max_tokens": 20})
    assert (merged.temperature, merged.max_tokens, merged.stop_seqs) == (0.0, 20, ["a"])
    assert (base.temperature, base.max_tokens) == (0.5, 10)
    assert GenerateConfig(max_retries=3).merge(GenerateConfig(max_retries=0)).max_retries == 0


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("max_connections", 0),
        ("max_connections", 2.5),
        ("max_connections", True),
        ("max_connections", "4"),
        ("max_retries", -1),
        ("timeout", 0),
        ("attempt_timeout", -1),
        ("attempt_timeout", 0.5),
        ("max_tokens", 0),
        ("temperature", "hot"),
        ("temperature", float("nan")),
        ("adaptive_connections", 0),
        ("adaptive_connections", "x-y"),
        ("adaptive_connections", "9-3"),
        ("adaptive_connections", 1.5),
        ("prompt_logprobs", 21),
        ("reasoning_effort", "huge"),
        ("stop_seqs", "stop"),
        ("logprobs", 1),
        ("extra_headers", ["a"]),
    ],
)
def test_a_wrong_value_is_refused_by_name_when_it_is_made_set_or_merged(option: str, value: Any) -> None:
    with pytest.raises(OptionError, match=option):
        GenerateConfig(**{option: value})
    with pytest.raises(OptionError, match=option):
        GenerateConfig().merge({option: value})
    config = GenerateConfig()
    with pytest.raises(OptionError, match=option):
        setattr(config, option, value)


def test_an_unknown_option_is_refused_with_a_hint() -> None:
    with pytest.raises(OptionError, match=r"unknown generation option: temprature.*extra_body"):
        GenerateConfig.from_options({"temprature": 1})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("4-10", (4, 10, 10)),
        ("4-50", (4, 20, 50)),
        ("30-50", (30, 30, 50)),
        ("2-3-4", (2, 3, 4)),
    ],
)
def test_adaptive_bounds_may_be_written_short(given: str, expected: tuple[int, int, int]) -> None:
    bounds = GenerateConfig(adaptive_connections=given).adaptive_connections  # type: ignore[arg-type]
    assert isinstance(bounds, AdaptiveConcurrency)
    assert (bounds.min, bounds.start, bounds.max) == expected


def test_adaptive_bounds_are_pulled_within_what_is_given() -> None:
    few = AdaptiveConcurrency(max=8)
    assert (few.min, few.start, few.max) == (8, 8, 8)
    assert AdaptiveConcurrency() == AdaptiveConcurrency(min=10, start=20, max=100)
    with pytest.raises(OptionError, match="start=40"):
        AdaptiveConcurrency(start=40, max=30)


def test_old_ways_to_say_reasoning_history_are_read() -> None:
    assert GenerateConfig(reasoning_history=True).reasoning_history == "all"  # type: ignore[arg-type]
    assert GenerateConfig(reasoning_history=False).reasoning_history == "none"  # type: ignore[arg-type]


def test_headers_that_may_carry_a_key_are_not_shown() -> None:
    config = GenerateConfig(extra_headers={"X-Api-Key": "canary", "authorization": "canary", "X-Team": "blue"})
    shown = public_config(config).extra_headers
    assert shown == {"X-Api-Key": "[key]", "authorization": "[key]", "X-Team": "blue"}
    assert config.extra_headers is not None
    assert config.extra_headers["X-Api-Key"] == "canary"


def test_a_configuration_survives_being_dumped_and_read_back() -> None:
    config = GenerateConfig(
        temperature=0.1,
        adaptive_connections="2-3-4",  # type: ignore[arg-type]
        response_schema=ResponseSchema(name="s", json_schema=JSONSchema(type="object", properties={"a": JSONSchema()})),
        cache=CachePolicy(expiry="1D"),
    )
    dumped = config.model_dump(exclude_none=True)
    assert set(dumped) == {"temperature", "adaptive_connections", "response_schema", "cache"}
    assert GenerateConfig.model_validate(json.loads(config.model_dump_json())) == config
    for value in (True, 5, "image"):
        with pytest.raises(Exception, match=r"cache|structuring"):
            GenerateConfig.model_validate({"cache": "yes", "batch": value})


def test_an_output_survives_being_dumped_and_read_back() -> None:
    output = ModelOutput.for_tool_call("m", "f", {"a": {"b": [1, None]}})
    output.usage = ModelUsage(input_tokens=1)
    assert ModelOutput.model_validate(json.loads(output.model_dump_json())) == output
    schema = JSONSchema(
        type=["string", "null"], additionalProperties=False, minimum=1.5, anyOf=[JSONSchema(type="null")]
    )
    assert JSONSchema.model_validate(schema.model_dump()) == schema


@pytest.mark.shared
def test_fields_are_those_of_the_log_format_in_its_order(shared: Path) -> None:
    reference = (shared / "formats" / "eval-log.md").read_text(encoding="utf-8")
    for ours in VALUES:
        line = re.search(rf"^- `{ours.__name__}`(?: \(dataclass\))? -- (.*)$", reference, re.MULTILINE)
        assert line is not None, ours
        names = re.findall(r"(?:^|; )\**([A-Za-z_]+)\**: `", line.group(1))
        assert [field.name for field in attrs.fields(ours)] == names, ours


VALUES: list[type] = [
    GenerateConfig,
    ModelUsage,
    ModelOutput,
    ModelFallback,
    ModelCall,
    ModelRequestId,
    ChatCompletionChoice,
    StopDetails,
    Logprobs,
    Logprob,
    ChatMessageSystem,
    ChatMessageUser,
    ChatMessageAssistant,
    ChatMessageTool,
    ContentText,
    ContentReasoning,
    ContentImage,
    ContentAudio,
    ContentVideo,
    ContentDocument,
    ContentData,
    ContentToolUse,
    ToolInfo,
    ToolParams,
    ToolCallContent,
    ToolCallView,
    ToolCall,
    ToolCallError,
]
