"""Bedrock: requests by botocore's validator, signatures and answers against botocore and boto3, on the same bytes."""

from __future__ import annotations

import base64
import binascii
import json
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from proctor.errors import ModelError, ModelGivenUp, RateLimitError, TransientModelError, UsageError
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
    ModelOutput,
    ResponseSchema,
    get_model,
)
from proctor.model.messages import ChatMessage
from proctor.model.providers import bedrock_signing
from proctor.model.providers.bedrock import BedrockAPI
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolCallError, ToolFunction, ToolInfo
from proctor.testing import run_virtual
from proctor.testing.vendor_types import bedrock_problems, converse_operation, with_blobs

botocore = pytest.importorskip("botocore")
from botocore.parsers import create_parser  # noqa: E402

PNG = "data:image/png;base64," + base64.b64encode(b"png").decode()
BLOB = base64.b64encode(b"\x00\xffblob").decode()
TEXT = "Grüße, 世界! 🎈 “ok”"
MODEL = "anthropic.claude-sonnet-4-5-20250929-v1:0"
HELLO: list[ChatMessage] = [ChatMessageUser(content="hello")]
BASH = ToolInfo(
    name="bash",
    description="Run a command",
    parameters=ToolParams(properties={"cmd": JSONSchema(type="string"), "n": JSONSchema(type="integer")}),
)
LONG: list[ChatMessage] = [
    ChatMessageSystem(content="Be brief."),
    ChatMessageUser(content=[ContentText(text="look"), ContentImage(image=PNG)]),
    ChatMessageAssistant(
        content=[
            ContentReasoning(reasoning="I think", signature="sig"),
            ContentReasoning(reasoning="", redacted=True, internal={"bedrock_redacted_content": BLOB}),
            ContentText(text="done"),
        ],
        tool_calls=[ToolCall("c1", "bash", {"cmd": "ls"}), ToolCall("c|2", "bash", {})],
    ),
    ChatMessageTool(content=[ContentText(text="a.png"), ContentImage(image=PNG)], tool_call_id="c1", function="bash"),
    ChatMessageTool(content="", tool_call_id="c|2", function="bash", error=ToolCallError("timeout", "too slow")),
    ChatMessageUser(content="go on"),
]
USAGE = {
    "inputTokens": 12, "outputTokens": 9, "totalTokens": 33, "cacheReadInputTokens": 7, "cacheWriteInputTokens": 5,
}  # fmt: skip


def message(content: list[dict[str, Any]], stop: str = "end_turn", **more: Any) -> dict[str, Any]:
    whole = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": stop}
    return {**whole, "usage": USAGE, "metrics": {"latencyMs": 12}, **more}


GUARDRAIL = {
    "guardrail": {
        "inputAssessment": {
            "g1": {
                "contentPolicy": {"filters": [{"type": "HATE", "confidence": "HIGH", "action": "BLOCKED"}]},
                "topicPolicy": {"topics": [{"name": "bombs", "type": "DENY", "action": "BLOCKED"}]},
            }
        }
    }
}
SHAPES: dict[str, dict[str, Any]] = {
    "text": message([{"text": TEXT}]),
    "length": message([{"text": "cut of"}], "max_tokens"),
    "stop sequence": message([{"text": "a"}], "stop_sequence"),
    "context": message([{"text": "a"}], "model_context_window_exceeded"),
    "filtered": message([{"text": "no"}], "content_filtered"),
    "guardrail": message([{"text": "no"}], "guardrail_intervened", trace=GUARDRAIL),
    "malformed": message([{"text": "?"}], "malformed_tool_use"),
    "nothing": message([]),
    "tool call": message(
        [{"text": "I run."}, {"toolUse": {"toolUseId": "t1", "name": "bash", "input": {"cmd": "ls Übung"}}}], "tool_use"
    ),
    "parallel tool calls": message(
        [
            {"toolUse": {"toolUseId": "t1", "name": "bash", "input": {"cmd": "ls"}}},
            {"toolUse": {"toolUseId": "t2", "name": "bash", "input": {}}},
            {"toolUse": {"toolUseId": "t3", "name": "other", "input": {"deep": {"list": [1, None]}}}},
        ],
        "tool_use",
    ),
    "reasoning": message(
        [{"reasoningContent": {"reasoningText": {"text": f"hm {TEXT}", "signature": "c2ln"}}}, {"text": "so"}]
    ),
    "redacted reasoning": message([{"reasoningContent": {"redactedContent": BLOB}}, {"text": "so"}]),
}


def events_of(whole: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    out: list[tuple[str, dict[str, Any]]] = [("messageStart", {"role": "assistant"})]
    for index, block in enumerate(whole["output"]["message"]["content"]):
        at = {"contentBlockIndex": index}
        if (use := block.get("toolUse")) is not None:
            started = {"toolUseId": use["toolUseId"], "name": use["name"]}
            out.append(("contentBlockStart", {"start": {"toolUse": started}, **at}))
            text = json.dumps(use["input"], ensure_ascii=False) if use["input"] else ""
            deltas = [{"toolUse": {"input": text[i : i + 3]}} for i in range(0, len(text), 3)]
        elif "text" in block:
            deltas = [{"text": block["text"][i : i + 3]} for i in range(0, len(block["text"]), 3)]
        elif "reasoningText" in block["reasoningContent"]:
            said = block["reasoningContent"]["reasoningText"]
            deltas = [{"reasoningContent": {"text": said["text"][i : i + 3]}} for i in range(0, len(said["text"]), 3)]
            deltas.append({"reasoningContent": {"signature": said["signature"]}})
        else:
            raw = base64.b64decode(block["reasoningContent"]["redactedContent"])
            parts = [base64.b64encode(raw[i : i + 2]).decode() for i in range(0, len(raw), 2)]
            deltas = [{"reasoningContent": {"redactedContent": part}} for part in parts]
        out += [("contentBlockDelta", {"delta": delta, **at}) for delta in deltas]
        out.append(("contentBlockStop", at))
    out.append(("messageStop", {"stopReason": whole["stopReason"]}))
    rest = {name: whole[name] for name in ("usage", "metrics", "trace") if name in whole}
    return [*out, ("metadata", rest)]


def frame(payload: bytes, **headers: str) -> bytes:
    """One message of the event stream format: lengths, their checksum, headers, payload, the checksum of all."""
    coded = b""
    for name, value in headers.items():
        name_bytes, value_bytes = f":{name.replace('_', '-')}".encode(), value.encode()
        coded += bytes([len(name_bytes)]) + name_bytes + b"\x07" + struct.pack(">H", len(value_bytes)) + value_bytes
    prelude = struct.pack(">II", 16 + len(coded) + len(payload), len(coded))
    data = prelude + struct.pack(">I", binascii.crc32(prelude)) + coded + payload
    return data + struct.pack(">I", binascii.crc32(data))


def event_stream(events: list[tuple[str, dict[str, Any]]]) -> bytes:
    frames = [
        frame(json.dumps(data, ensure_ascii=False).encode(), message_type="event", event_type=kind,
              content_type="application/json")
        for kind, data in events
    ]  # fmt: skip
    return b"".join(frames)


def exception(kind: str, words: str) -> bytes:
    return frame(json.dumps({"message": words}).encode(), message_type="exception", exception_type=kind)


STREAM = "application/vnd.amazon.eventstream"


def api(model: str = MODEL, **more: Any) -> BedrockAPI:
    given = {"region_name": "eu-west-1", "aws_access_key_id": "AKID", "aws_secret_access_key": "secret-canary", **more}
    return BedrockAPI(model, "http://vendor.test", **given)


async def ask(vendor: SimpleNamespace, model: str = MODEL, **more: Any) -> SimpleNamespace:
    arguments = more.pop("arguments", {})
    given = {"input": HELLO, **more}
    input = given.pop("input")
    asked, output, call = await vendor.ask(
        lambda: api(model, **arguments), vendor.Reply(SHAPES["text"]), input, **given
    )
    if isinstance(output, Exception):
        raise output
    return SimpleNamespace(body=asked[0].body, headers=asked[0].headers, line=asked[0].line, output=output, call=call)


# -- requests ---------------------------------------------------------------------------------------------------------

MODELS = [
    "anthropic.claude-3-haiku-20240307-v1:0", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "anthropic.claude-opus-4-7-20260101-v1:0", "amazon.nova-pro-v1:0", "amazon.nova-2-lite-v1:0",
    "meta.llama3-70b-instruct-v1:0", "openai.gpt-oss-120b-1:0",
]  # fmt: skip
CONFIGS = {
    "plain": GenerateConfig(),
    "effort": GenerateConfig(reasoning_effort="high", effort="max"),
    "budget": GenerateConfig(reasoning_tokens=2048),
    "options": GenerateConfig(max_tokens=7, stop_seqs=["a"], temperature=0.5, top_p=0.25, top_k=3, cache_prompt=False),
    "schema": GenerateConfig(
        response_schema=ResponseSchema(
            name="a", json_schema=JSONSchema(type="object", properties={"x": JSONSchema(type="integer", minimum=1)})
        )
    ),
    "guardrail": GenerateConfig(
        extra_body={"guardrailConfig": {"guardrailIdentifier": "g1", "guardrailVersion": "1", "trace": "enabled"}}
    ),
}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("model", MODELS)
async def test_botocore_finds_nothing_wrong_with_a_request_and_sends_the_same(
    vendor: SimpleNamespace, model: str, config: str
) -> None:
    found = await ask(vendor, model, input=LONG, tools=[BASH], config=CONFIGS[config])
    assert bedrock_problems(found.body, model) == []
    assert found.line.split(" ")[1] == f"/model/{quote(model, safe='')}/converse"


def test_unknown_keys_and_wrong_types_are_found() -> None:
    body: dict[str, Any] = {"messages": [{"role": "user", "content": [{"text": "x"}]}]}
    assert bedrock_problems(body) == []
    assert bedrock_problems({**body, "nonsense": 1})
    assert bedrock_problems({**body, "inferenceConfig": {"maxTokens": "7"}})


@pytest.mark.parametrize("choice", ["auto", "any", "none", ToolFunction("bash")], ids=str)
async def test_tool_choices(vendor: SimpleNamespace, choice: Any) -> None:
    found = await ask(vendor, tools=[BASH], tool_choice=choice)
    named = isinstance(choice, ToolFunction)
    expected = {"tool": {"name": "bash"}} if named else {"any": {}} if choice == "any" else {"auto": {}}
    assert found.body["toolConfig"]["toolChoice"] == expected


async def test_the_conversation(vendor: SimpleNamespace) -> None:
    found = await ask(vendor, input=LONG, tools=[BASH], config=GenerateConfig(cache_prompt=False))
    first, second, third = found.body["messages"]
    assert first["content"][1]["image"] == {"format": "png", "source": {"bytes": PNG.partition(",")[2]}}
    assert second["content"][:2] == [
        {"reasoningContent": {"reasoningText": {"text": "I think", "signature": "sig"}}},
        {"reasoningContent": {"redactedContent": BLOB}},
    ]
    assert [block["toolUse"]["toolUseId"] for block in second["content"][3:]] == ["c1", "c_2"]
    results = [block["toolResult"] for block in third["content"]]
    assert [result["status"] for result in results] == ["success", "error"]
    assert results[1]["content"] == [{"text": "too slow"}, {"text": "go on"}]  # a turn with results has nothing else


async def test_cache_points_follow_system_tools_and_the_last_messages(vendor: SimpleNamespace) -> None:
    def points(body: dict[str, Any]) -> int:
        return json.dumps(body).count("cachePoint")

    assert points((await ask(vendor, input=LONG, tools=[BASH])).body) == 3
    assert points((await ask(vendor, tools=[BASH])).body) == 1
    assert points((await ask(vendor, "amazon.nova-pro-v1:0", tools=[BASH])).body) == 0
    assert points((await ask(vendor, "meta.llama3-70b-instruct-v1:0", input=LONG, tools=[BASH])).body) == 0
    assert points((await ask(vendor, input=LONG, config=GenerateConfig(cache_prompt=False))).body) == 0


async def test_options_of_the_models_own(vendor: SimpleNamespace, caplog: pytest.LogCaptureFixture) -> None:
    sampling = GenerateConfig(temperature=0.5, top_k=3)
    found = await ask(vendor, config=sampling)
    assert found.body["additionalModelRequestFields"] == {"top_k": 3}
    assert found.body["inferenceConfig"] == {"maxTokens": 2048, "temperature": 0.5}
    newer = await ask(vendor, "anthropic.claude-opus-4-7-v1:0", config=sampling)
    assert "temperature" not in newer.body["inferenceConfig"]
    assert "temperature is not sent" in caplog.text
    nova = await ask(vendor, "amazon.nova-2-lite-v1:0", config=GenerateConfig(reasoning_effort="high", top_k=3))
    assert nova.body["additionalModelRequestFields"] == {
        "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}, "inferenceConfig": {"topK": 3},
    }  # fmt: skip
    assert "inferenceConfig" not in nova.body  # Nova refuses a bound at this effort


async def test_documents(vendor: SimpleNamespace, tmp_path: Path) -> None:
    file = tmp_path / "my_report (v2).final.pdf"
    file.write_bytes(b"%PDF")
    found = await ask(vendor, input=[ChatMessageUser(content=[ContentDocument(document=str(file))])])
    [block] = found.body["messages"][0]["content"]
    assert block["document"]["name"] == "my report (v2) final"
    assert block["document"]["format"] == "pdf"
    assert bedrock_problems(found.body) == []
    with pytest.raises(UsageError, match="image/tiff"):
        await ask(vendor, input=[ChatMessageUser(content=[ContentImage(image="data:image/tiff;base64,AAAA")])])


# -- answers ----------------------------------------------------------------------------------------------------------


def theirs(whole: bytes) -> dict[str, Any]:
    """What botocore's parser makes of a response."""
    parsed = create_parser("rest-json").parse(
        {"status_code": 200, "headers": {}, "body": whole}, converse_operation().output_shape
    )
    parsed.pop("ResponseMetadata")
    return parsed


def their_events(data: bytes) -> list[dict[str, Any]]:
    """What botocore's event stream makes of bytes; it raises what an exception among them says."""
    from botocore.eventstream import EventStream

    shape = converse_operation(streamed=True).output_shape.members["stream"]
    raw = SimpleNamespace(stream=lambda: iter([data]), close=lambda: None)
    return list(EventStream(raw, shape, create_parser("rest-json")._event_stream_parser, "ConverseStream"))


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("shape", SHAPES)
async def test_every_shape_is_read_as_botocore_reads_it(vendor: SimpleNamespace, shape: str, streamed: bool) -> None:
    whole = SHAPES[shape]
    coded = json.dumps(whole, ensure_ascii=False).encode()
    body = event_stream(events_of(whole)) if streamed else coded
    reply = vendor.Reply(body, kind=STREAM if streamed else "application/json")
    asked, output, call = await vendor.ask(lambda: api(streaming=streamed), reply, HELLO, [BASH])
    assert isinstance(output, ModelOutput), output
    assert asked[0].line.split(" ")[1].endswith("/converse-stream" if streamed else "/converse")
    assert with_blobs(call.response, converse_operation().output_shape) == theirs(coded)
    if streamed:
        shapes = converse_operation(streamed=True).output_shape.members["stream"].members
        expected = [{kind: with_blobs(data, shapes[kind])} for kind, data in events_of(whole)]
        assert their_events(body) == expected


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_becomes_the_output_that_inspect_makes_of_it(
    vendor: SimpleNamespace, shape: str, streamed: bool
) -> None:
    pytest.importorskip("inspect_ai")
    from inspect_ai.model._providers.bedrock import ConverseResponse, model_output_from_response

    whole = SHAPES[shape]
    body = event_stream(events_of(whole)) if streamed else json.dumps(whole).encode()
    reply = vendor.Reply(body, kind=STREAM if streamed else "application/json")

    async def attempt() -> Any:
        return (await vendor.ask(lambda: api(streaming=streamed), reply, HELLO))[1]

    output = run_virtual("asyncio", attempt)  # what is read does not depend on it
    made = model_output_from_response(MODEL, ConverseResponse(**theirs(json.dumps(whole).encode())), [])
    expected = json.loads(made.model_dump_json(exclude_none=True))
    assert comparable(output.model_dump(exclude_none=True)) == comparable(expected)


def comparable(output: dict[str, Any]) -> dict[str, Any]:
    choice = output["choices"][0]
    kept = ("type", "text", "reasoning", "redacted", "internal")
    parts = [{name: part[name] for name in kept if part.get(name) is not None} for part in choice["message"]["content"]]
    calls = [(c["id"], c["function"], c["arguments"]) for c in choice["message"].get("tool_calls") or ()]
    details = {name: one for name, one in (choice.get("stop_details") or {}).items() if name != "explanation"}
    return {
        "parts": parts,
        "calls": calls,
        "usage": output["usage"],
        "stop": choice["stop_reason"],
        "details": details,
    }


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50])
async def test_any_split_of_the_stream_gives_the_same_answer(vendor: SimpleNamespace, size: int) -> None:
    body = event_stream(events_of(SHAPES["reasoning"]))
    chunks = [body[i : i + size] for i in range(0, len(body), size)]
    _, output, call = await vendor.ask(lambda: api(streaming=True), vendor.Reply(kind=STREAM, chunks=chunks), HELLO)
    assert output.message.content[0].reasoning == f"hm {TEXT}"
    assert output.message.content[0].signature == "c2ln"
    assert call.response["usage"] == USAGE


async def test_a_damaged_or_cut_stream_is_a_fault_that_may_pass(vendor: SimpleNamespace) -> None:
    body = event_stream(events_of(SHAPES["text"]))
    damaged = body[:60] + bytes([body[60] ^ 1]) + body[61:]
    early = event_stream(events_of(SHAPES["text"])[:-1])
    for data, cut in ((damaged, False), (early, False), (early[:-3], False), (early, True)):
        reply = vendor.Reply(kind=STREAM, chunks=[data], cut=cut)
        _, found, _ = await vendor.ask(lambda: api(streaming=True), reply, HELLO)
        assert isinstance(found, TransientModelError), found


async def test_arguments_that_are_no_json_are_told_to_the_model(vendor: SimpleNamespace) -> None:
    events = events_of(SHAPES["tool call"])
    events = [one for one in events if "toolUse" not in one[1].get("delta", {})]
    events.insert(-3, ("contentBlockDelta", {"delta": {"toolUse": {"input": '{"cmd'}}, "contentBlockIndex": 1}))
    reply = vendor.Reply(event_stream(events), kind=STREAM)
    _, output, _ = await vendor.ask(lambda: api(streaming=True), reply, HELLO, [BASH])
    [call] = output.message.tool_calls
    assert "could not be read" in call.parse_error


ERRORS = [
    (429, "ThrottlingException", "Too many requests", RateLimitError),
    (400, "ServiceQuotaExceededException", "more than your quota", RateLimitError),
    (429, "ModelNotReadyException", "starting", TransientModelError),
    (408, "ModelTimeoutException", "too slow", TransientModelError),
    (500, "InternalServerException", "oops", TransientModelError),
    (503, "ServiceUnavailableException", "later", TransientModelError),
    (403, "AccessDeniedException", "You don't have access to the model", ModelGivenUp),
    (403, "UnrecognizedClientException", "The security token included in the request is invalid.", ModelGivenUp),
    (403, "ExpiredTokenException", "The security token included in the request is expired", ModelGivenUp),
    (404, "ResourceNotFoundException", "Could not resolve the foundation model", ModelGivenUp),
    (400, "ValidationException", "The provided model identifier is invalid.", ModelGivenUp),
    (400, "ValidationException", "messages.0: wrong", ModelError),
    (424, "ModelErrorException", "the model failed", ModelError),
]


@pytest.mark.parametrize(("status", "code", "words", "expected"), ERRORS)
async def test_errors_are_what_they_say(
    vendor: SimpleNamespace, status: int, code: str, words: str, expected: type[Exception]
) -> None:
    headers = {"x-amzn-errortype": f"{code}:http://internal.amazon.com/coral/com.amazon.bedrock/"}
    reply = vendor.Reply({"message": words}, status=status, headers=headers)
    _, found, call = await vendor.ask(api, reply, HELLO)
    assert type(found) is expected, found
    assert words in str(found)
    assert call.error is True
    old = vendor.Reply({"__type": f"com.amazon#{code}", "Message": words}, status=status)
    _, found, _ = await vendor.ask(api, old, HELLO)
    assert type(found) is expected, found


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("throttlingException", RateLimitError),
        ("modelStreamErrorException", TransientModelError),
        ("internalServerException", TransientModelError),
        ("serviceUnavailableException", TransientModelError),
        ("validationException", ModelError),
    ],
)
async def test_exceptions_come_as_messages_of_a_stream(
    vendor: SimpleNamespace, kind: str, expected: type[Exception]
) -> None:
    from botocore.exceptions import EventStreamError

    body = event_stream(events_of(SHAPES["text"])[:3]) + exception(kind, "so it is")
    _, found, call = await vendor.ask(lambda: api(streaming=True), vendor.Reply(body, kind=STREAM), HELLO)
    assert type(found) is expected, found
    assert "so it is" in str(found)
    assert call.error is True
    with pytest.raises(EventStreamError, match="so it is"):
        their_events(body)


async def test_an_input_that_is_too_long_is_an_output(vendor: SimpleNamespace) -> None:
    reply = vendor.Reply(
        {"message": "Input is too long for requested model."},
        status=400,
        headers={"x-amzn-errortype": "ValidationException"},
    )
    _, output, _ = await vendor.ask(api, reply, HELLO)
    assert output.stop_reason == "model_length"


async def test_the_log_has_request_and_answer_without_keys_and_pictures(vendor: SimpleNamespace) -> None:
    big = "data:image/png;base64," + base64.b64encode(bytes(3000)).decode()
    found = await ask(vendor, input=[ChatMessageUser(content=[ContentImage(image=big)])])
    logged = json.dumps([found.call.request, found.call.response])
    assert len(logged) < 2000
    assert "secret-canary" not in logged
    assert "AKID" not in logged
    assert "secret-canary" not in json.dumps(found.headers)


# -- credentials ------------------------------------------------------------------------------------------------------


async def test_a_bearer_token_needs_no_credentials(vendor: SimpleNamespace) -> None:
    asked, output, _ = await vendor.ask(
        lambda: BedrockAPI(MODEL, "http://vendor.test", "token-canary"), vendor.Reply(SHAPES["text"]), HELLO
    )
    assert isinstance(output, ModelOutput), output
    assert asked[0].headers["authorization"] == "Bearer token-canary"


async def test_region_and_keys_come_from_a_profile(
    vendor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text("[profile work]\nregion = ap-south-1\n")
    (tmp_path / "credentials").write_text("[work]\naws_access_key_id = AKWORK\naws_secret_access_key = hidden\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    asked, output, _ = await vendor.ask(
        lambda: BedrockAPI(MODEL, "http://vendor.test", profile_name="work"), vendor.Reply(SHAPES["text"]), HELLO
    )
    assert isinstance(output, ModelOutput), output
    assert "Credential=AKWORK/" in asked[0].headers["authorization"]
    assert "/ap-south-1/bedrock/aws4_request" in asked[0].headers["authorization"]
    _, found, _ = await vendor.ask(lambda: BedrockAPI(MODEL, profile_name="nobody"), vendor.Reply(b""), HELLO)
    assert isinstance(found, ModelGivenUp)
    assert "nobody" in str(found)


async def test_missing_credentials_or_region_give_the_model_up_in_one_line(
    vendor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for arguments, words in (({"region_name": "eu-west-1"}, "no AWS credentials"), ({}, "no AWS region")):
        _, found, _ = await vendor.ask(lambda: BedrockAPI(MODEL, **arguments), vendor.Reply(b""), HELLO)  # noqa: B023
        assert isinstance(found, ModelGivenUp)
        assert words in str(found)
        assert "\n" not in str(found)


def test_a_missing_extra_is_named_with_its_command(vendor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    del vendor
    monkeypatch.setattr(bedrock_signing.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'proctor\[bedrock\]'"):
        get_model(f"bedrock/{MODEL}")


def test_the_base_url_is_that_of_the_region(vendor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    del vendor
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    assert get_model(f"bedrock/{MODEL}").api.base_url == "https://bedrock-runtime.eu-north-1.amazonaws.com"
    monkeypatch.setenv("BEDROCK_BASE_URL", "http://gateway.test")
    assert get_model(f"bedrock/{MODEL}-2").api.base_url == "http://gateway.test"
