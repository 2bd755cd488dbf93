"""Requests of Gemini's protocol: what is asked, by the vendor's types and as the vendor's package would ask it."""

from __future__ import annotations

import base64
import functools
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from proctor.errors import ModelError, UsageError
from proctor.model import (
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentAudio,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    ContentVideo,
    GenerateConfig,
    ResponseSchema,
    get_model,
)
from proctor.model.messages import ChatMessage, ContentData
from proctor.model.providers.google import GoogleAPI
from proctor.model.providers.google_content import gemini_version, safety_settings, thinking_config
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolCallError, ToolFunction, ToolInfo
from proctor.testing.vendor_types import differences, google_problems

genai = pytest.importorskip("google.genai")

PNG = "data:image/png;base64," + base64.b64encode(b"png").decode()
SIGNATURE = base64.b64encode(b"signed").decode()
HELLO: list[ChatMessage] = [ChatMessageUser(content="hello")]
BASH = ToolInfo(
    name="bash",
    description="Run a command",
    parameters=ToolParams(properties={"cmd": JSONSchema(type="string")}, required=["cmd"]),
)
NOW = ToolInfo(name="now", description="The time")
ANSWER = {
    "candidates": [{"content": {"role": "model", "parts": [{"text": "hi"}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
    "modelVersion": "served",
}
LONG: list[ChatMessage] = [
    ChatMessageSystem(content="Be brief."),
    ChatMessageUser(content=[ContentText(text="look"), ContentImage(image=PNG)]),
    ChatMessageAssistant(
        content=[
            ContentReasoning(reasoning="I think"),
            ContentReasoning(reasoning=SIGNATURE, redacted=True, internal={"gemini_function_call_id": "c1"}),
            ContentReasoning(reasoning="", redacted=True, internal={"gemini_function_call_id": "c2"}),
            ContentText(text="done"),
        ],
        tool_calls=[ToolCall("c1", "bash", {"cmd": "ls"}), ToolCall("c2", "now", {})],
    ),
    ChatMessageTool(content=[ContentText(text="a.png"), ContentImage(image=PNG)], tool_call_id="c1", function="bash"),
    ChatMessageTool(content="", tool_call_id="c2", function="now", error=ToolCallError("timeout", "too slow")),
    ChatMessageSystem(content="Hurry."),
    ChatMessageUser(content="go on"),
]


async def ask(vendor: SimpleNamespace, model: str = "gemini-2.5-pro", **more: Any) -> SimpleNamespace:
    arguments = more.pop("arguments", {})
    given = {"input": HELLO, **more}
    input = given.pop("input")
    asked, output, call = await vendor.ask(
        lambda: GoogleAPI(model, "http://vendor.test", "sk-canary", **arguments), vendor.Reply(ANSWER), input, **given
    )
    if isinstance(output, Exception):
        raise output
    return SimpleNamespace(body=asked[0].body, headers=asked[0].headers, line=asked[0].line, output=output, call=call)


MODELS = ["gemini-1.5-pro", "gemini-2.5-flash", "gemini-2.5-pro", "gemini-3-pro-preview", "gemini-flash-latest"]
CONFIGS = {
    "plain": GenerateConfig(),
    "effort": GenerateConfig(reasoning_effort="minimal"),
    "no thinking": GenerateConfig(reasoning_effort="none"),
    "budget": GenerateConfig(reasoning_tokens=512),
    "options": GenerateConfig(
        max_tokens=7, stop_seqs=["a"], temperature=0.5, top_p=0.25, top_k=3, seed=4, num_choices=2, logprobs=True,
        top_logprobs=3, presence_penalty=0.5, frequency_penalty=0.25,
    ),
    "schema": GenerateConfig(
        response_schema=ResponseSchema(
            name="a", json_schema=JSONSchema(type="object", properties={"x": JSONSchema(type="integer")})
        )
    ),
    "pictures": GenerateConfig(modalities=["image"]),
}  # fmt: skip


@functools.cache
def their_client() -> tuple[Any, list[httpx.Request]]:
    """The vendor's client, and what it sent: making one takes as long as all the rest of a test."""
    seen: list[httpx.Request] = []

    def respond(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200, json=ANSWER)

    options = genai.types.HttpOptions(
        base_url="http://vendor.test", httpx_client=httpx.Client(transport=httpx.MockTransport(respond))
    )
    return genai.Client(api_key="sk-canary", http_options=options), seen


def as_the_package_sends_it(model: str, body: dict[str, Any]) -> tuple[dict[str, Any], str, dict[str, str]]:
    """The body, URL and headers that the vendor's package makes of the same parameters."""
    types = genai.types
    client, seen = their_client()
    config = dict(body.get("generationConfig") or {})
    for name in ("systemInstruction", "tools", "toolConfig", "safetySettings"):
        if name in body:
            config[name] = body[name]
    client.models.generate_content(
        model=model,
        contents=[types.Content.model_validate_json(json.dumps(one)) for one in body["contents"]],
        config=types.GenerateContentConfig.model_validate_json(json.dumps(config)),
    )
    sent = seen[-1]
    return camel(json.loads(sent.content)), str(sent.url), {k.lower(): v for k, v in sent.headers.items()}


def camel(value: Any) -> Any:
    """A value with its keys as the protocol's pages have them: the package sends some with underscores, as it may."""
    if isinstance(value, dict):
        return {re.sub(r"_([a-z])", lambda found: found[1].upper(), k): camel(v) for k, v in value.items()}
    return [camel(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("model", MODELS)
async def test_a_request_has_the_vendors_types_and_is_what_its_package_sends(
    vendor: SimpleNamespace, model: str, config: str
) -> None:
    found = await ask(vendor, model, input=LONG, tools=[BASH, NOW], config=CONFIGS[config])
    assert google_problems(found.body) == []
    sent, url, headers = as_the_package_sends_it(model, found.body)
    sent["systemInstruction"].pop("role", None)
    assert differences({"generationConfig": {}, **found.body}, {"generationConfig": {}, **sent}) == []
    assert f"http://vendor.test{found.line.split(' ')[1]}" == url
    assert found.headers["x-goog-api-key"] == headers["x-goog-api-key"] == "sk-canary"


def test_unknown_keys_and_wrong_types_are_found() -> None:
    body: dict[str, Any] = {"contents": [{"role": "user", "parts": [{"text": "x"}]}]}
    assert google_problems(body) == []
    assert google_problems({**body, "generationConfig": {"max_tokens": 3}})
    assert google_problems({**body, "generationConfig": {"topK": "three"}})
    assert google_problems({**body, "nonsense": 1})


@pytest.mark.parametrize("choice", ["auto", "any", "none", ToolFunction("bash")], ids=str)
async def test_tool_choices(vendor: SimpleNamespace, choice: Any) -> None:
    found = await ask(vendor, tools=[BASH, NOW], tool_choice=choice)
    named = isinstance(choice, ToolFunction)
    expected = {"mode": "ANY", "allowedFunctionNames": ["bash"]} if named else {"mode": choice.upper()}
    assert found.body["toolConfig"] == {"functionCallingConfig": expected}
    declared = found.body["tools"][0]["functionDeclarations"]
    assert "parametersJsonSchema" not in declared[1]  # a tool without parameters declares none
    assert google_problems(found.body) == []


async def test_the_conversation_keeps_thoughts_signatures_and_the_places_of_calls(vendor: SimpleNamespace) -> None:
    found = await ask(vendor, input=LONG, tools=[BASH, NOW])
    contents = found.body["contents"]
    assert [one["role"] for one in contents] == ["user", "model", "user", "user"]
    assert contents[1]["parts"] == [
        {"text": "I think", "thought": True},
        {"functionCall": {"id": "c1", "name": "bash", "args": {"cmd": "ls"}}, "thoughtSignature": SIGNATURE},
        {"functionCall": {"id": "c2", "name": "now", "args": {}}},
        {"text": "done"},
    ]
    results = contents[2]["parts"]
    assert results[0]["functionResponse"] == {"id": "c1", "name": "bash", "response": {"output": "a.png"}}
    assert results[1] == {"inlineData": {"mimeType": "image/png", "data": base64.b64encode(b"png").decode()}}
    assert results[2]["functionResponse"]["response"] == {"error": "too slow"}
    assert found.body["systemInstruction"] == {"parts": [{"text": "Be brief."}, {"text": "Hurry."}]}
    old = await ask(vendor, "gemini-1.5-pro", input=LONG, tools=[BASH, NOW])
    assert old.body["contents"][1]["parts"][0] == {"text": "<think>I think</think>"}


async def test_signatures_of_other_vendors_are_not_sent(vendor: SimpleNamespace) -> None:
    foreign = ChatMessageAssistant(
        content=[
            ContentReasoning(reasoning=SIGNATURE, summary="s", redacted=True, internal={"anthropic": "thinking"}),
            ContentReasoning(reasoning="not base64!", redacted=True),
            ContentText(text="so"),
        ]
    )
    found = await ask(vendor, input=[*HELLO, foreign])
    assert found.body["contents"][1]["parts"] == [{"text": "so"}]


def test_thinking_is_asked_for_as_inspect_asks_for_it() -> None:
    pytest.importorskip("inspect_ai")
    from inspect_ai.model import GenerateConfig as TheirConfig
    from inspect_ai.model._providers.google import GoogleGenAIAPI as Theirs

    names = [
        "gemini-1.5-pro",
        "gemini-2.0-flash",
        "gemini-2.5-pro",
        "gemini-2.5-flash",
        "gemini-2.5-flash-lite",
        "gemini-3-pro-preview",
        "gemini-3-flash",
        "gemini-3.1-flash-lite",
        "gemini-3.5-flash",
        "gemini-3.7-flash",
        "gemini-4-argon",
        "gemini-flash-latest",
    ]
    for name in names:
        inspect = Theirs(name, None, "k")
        for options in [
            *({"reasoning_effort": one} for one in ("none", "minimal", "low", "medium", "high", "xhigh", "max")),
            {"reasoning_tokens": 0}, {"reasoning_tokens": 100}, {},
        ]:  # fmt: skip
            theirs = inspect.chat_thinking_config(TheirConfig(**options))
            expected = None if theirs is None else json.loads(theirs.model_dump_json(by_alias=True, exclude_none=True))
            assert thinking_config(name, GenerateConfig(**options)) == expected, (name, options)
    assert gemini_version("tunedModels/mine") == (99, 0)


def test_nothing_is_blocked_but_what_is_asked_for() -> None:
    found = {one["category"]: one["threshold"] for one in safety_settings({"harassment": "high", "HATE_SPEECH": "off"})}
    assert found["HARM_CATEGORY_HARASSMENT"] == "BLOCK_ONLY_HIGH"
    assert found["HARM_CATEGORY_HATE_SPEECH"] == "OFF"
    assert found["HARM_CATEGORY_SEXUALLY_EXPLICIT"] == "BLOCK_NONE"
    for wrong in ({"weather": "high"}, {"harassment": "sometimes"}, [1]):
        with pytest.raises(UsageError, match="safety_settings"):
            safety_settings(wrong)


async def test_media(vendor: SimpleNamespace, tmp_path: Path) -> None:
    pdf = tmp_path / "b.pdf"
    pdf.write_bytes(b"%PDF")
    parts = [
        ContentDocument(document=str(pdf)),
        ContentAudio(audio="data:audio/wav;base64,UklGRg==", format="wav"),
        ContentVideo(video="gs://bucket/v.mp4", format="mp4"),
        ContentImage(image="https://files.test/d.png"),
    ]
    found = await ask(vendor, input=[ChatMessageUser(content=parts)])
    assert found.body["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "application/pdf", "data": base64.b64encode(b"%PDF").decode()}},
        {"inlineData": {"mimeType": "audio/wav", "data": "UklGRg=="}},
        {"fileData": {"fileUri": "gs://bucket/v.mp4", "mimeType": "video/mp4"}},
        {"fileData": {"fileUri": "https://files.test/d.png"}},
    ]
    assert google_problems(found.body) == []
    with pytest.raises(ModelError, match="data"):
        await ask(vendor, input=[ChatMessageUser(content=[ContentData(data={})])])


async def test_the_log_has_request_and_answer_without_key_and_pictures(vendor: SimpleNamespace) -> None:
    big = "data:image/png;base64," + base64.b64encode(bytes(3000)).decode()
    found = await ask(vendor, input=[ChatMessageUser(content=[ContentImage(image=big)])])
    logged = json.dumps([found.call.request, found.call.response])
    assert "sk-canary" not in logged
    assert len(logged) < 3000
    assert found.call.response == ANSWER


def test_a_missing_key_and_wrong_arguments_are_one_line(
    vendor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    del vendor
    with pytest.raises(UsageError, match=r"no API key\. Set GOOGLE_API_KEY or GEMINI_API_KEY") as caught:
        get_model("google/gemini-2.5-pro")
    assert "\n" not in str(caught.value)
    monkeypatch.setenv("GEMINI_API_KEY", "sk-canary")
    assert get_model("google/gemini-2.5-pro").api.api_key == "sk-canary"
    with pytest.raises(UsageError, match="Vertex"):
        get_model("google/vertex/gemini-2.5-pro")
    with pytest.raises(UsageError, match="nonsense"):
        get_model("google/gemini-2.5-pro", nonsense=1)


async def test_a_tuned_model_and_another_version_of_the_protocol(vendor: SimpleNamespace) -> None:
    found = await ask(vendor, "tunedModels/mine", arguments={"api_version": "v1beta"})
    assert found.line.split(" ")[1] == "/v1beta/tunedModels/mine:generateContent"
