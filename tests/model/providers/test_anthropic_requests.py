"""Requests of Anthropic's protocol: what is asked, by the vendor's types and as the vendor's package would ask it."""

from __future__ import annotations

import base64
import json
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
    GenerateConfig,
    ModelUsage,
    ResponseSchema,
    get_model,
)
from proctor.model.messages import ChatMessage
from proctor.model.providers.anthropic import AnthropicAPI
from proctor.model.providers.claude_models import claude
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.toolcall import ToolCall, ToolCallError, ToolFunction, ToolInfo
from proctor.testing.vendor_types import anthropic_problems, differences

anthropic = pytest.importorskip("anthropic")
httpx2 = pytest.importorskip("httpx2")

PNG = "data:image/png;base64," + base64.b64encode(b"png").decode()
HELLO: list[ChatMessage] = [ChatMessageUser(content="hello")]
BASH = ToolInfo(
    name="bash",
    description="Run a command",
    parameters=ToolParams(
        properties={"cmd": JSONSchema(type="string"), "n": JSONSchema(anyOf=[JSONSchema(type="integer")])},
        required=["cmd"],
    ),
)
ANSWER = {
    "id": "m", "type": "message", "role": "assistant", "model": "served", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "hi"}], "usage": {"input_tokens": 1, "output_tokens": 1},
}  # fmt: skip
LONG: list[ChatMessage] = [
    ChatMessageSystem(content="Be brief."),
    ChatMessageUser(content=[ContentText(text="look"), ContentImage(image=PNG)]),
    ChatMessageAssistant(
        content=[
            ContentReasoning(reasoning="sig", summary="hm", redacted=True, internal={"anthropic": "thinking"}),
            ContentReasoning(reasoning="data", redacted=True, internal={"anthropic": "redacted_thinking"}),
            ContentText(text="I look."),
        ],
        tool_calls=[ToolCall("c1", "bash", {"cmd": "ls"}), ToolCall("c2", "bash", {"cmd": "pwd"})],
    ),
    ChatMessageTool(content="a.txt", tool_call_id="c1", function="bash"),
    ChatMessageTool(content="", tool_call_id="c2", function="bash", error=ToolCallError("timeout", "too slow")),
    ChatMessageUser(content="go on"),
    ChatMessageSystem(content="Hurry."),
]


async def ask(vendor: SimpleNamespace, model: str = "claude-sonnet-4-5", **more: Any) -> SimpleNamespace:
    arguments = more.pop("arguments", {})
    given = {"input": HELLO, **more}
    input = given.pop("input")
    asked, output, call = await vendor.ask(
        lambda: AnthropicAPI(model, "http://vendor.test", "sk-canary", **{"streaming": False, **arguments}),
        vendor.Reply(ANSWER),
        input,
        **given,
    )
    if isinstance(output, Exception):
        raise output
    return SimpleNamespace(body=asked[0].body, headers=asked[0].headers, line=asked[0].line, output=output, call=call)


MODELS = ["claude-3-haiku-20240307", "claude-3-7-sonnet-latest", "claude-opus-4-5", "claude-opus-4-8", "claude-new"]
ITEM = JSONSchema(type="object", properties={"z": JSONSchema(type="string")})
CONFIGS = {
    "plain": GenerateConfig(),
    "effort": GenerateConfig(reasoning_effort="high", effort="low"),
    "no thinking": GenerateConfig(reasoning_effort="none", effort="max"),
    "options": GenerateConfig(max_tokens=7, stop_seqs=["a", "b"], parallel_tool_calls=False, cache_prompt=False),
    "schema": GenerateConfig(
        response_schema=ResponseSchema(
            name="answer",
            json_schema=JSONSchema(
                type="object",
                properties={"x": JSONSchema(type="integer", minimum=1), "y": JSONSchema(type="array", items=ITEM)},
            ),
        )
    ),
}
CHOICES = ["auto", "any", "none", ToolFunction("bash")]


def as_the_package_sends_it(body: dict[str, Any], headers: dict[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and headers that the vendor's package makes of the same parameters."""
    seen: list[Any] = []

    def respond(request: Any) -> Any:
        seen.append(request)
        return httpx2.Response(200, json=ANSWER)

    client = anthropic.Anthropic(
        api_key="sk-canary",
        base_url="http://vendor.test",
        http_client=httpx2.Client(transport=httpx2.MockTransport(respond)),
    )
    extra = {name: headers[name] for name in ("anthropic-beta",) if name in headers}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of models that are about to be switched off
        client.messages.create(**body, extra_headers=extra, timeout=5)
    return json.loads(seen[0].content), {name.lower(): value for name, value in seen[0].headers.items()}


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("model", MODELS)
async def test_a_request_has_the_vendors_types_and_is_what_its_package_sends(
    vendor: SimpleNamespace, model: str, config: str
) -> None:
    found = await ask(vendor, model, input=LONG, tools=[BASH], config=CONFIGS[config])
    assert anthropic_problems(found.body) == []
    sent, headers = as_the_package_sends_it(found.body, found.headers)
    assert differences(found.body, sent) == []
    for name in ("authorization", "anthropic-version", "content-type"):
        assert found.headers[name] == headers[name]
    assert found.line.split(" ")[1] == "/v1/messages"


def test_unknown_keys_and_wrong_types_are_found() -> None:
    body = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}
    assert anthropic_problems(body) == []
    assert anthropic_problems({**body, "temperature": 1})  # gone since the protocol's newest version
    assert anthropic_problems({**body, "max_tokens": "1"})
    body["messages"][0]["content"][0]["extra"] = 1  # type: ignore[index]
    assert anthropic_problems(body)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
async def test_tool_choices(vendor: SimpleNamespace, choice: Any) -> None:
    found = await ask(vendor, tools=[BASH], tool_choice=choice, config=GenerateConfig(parallel_tool_calls=False))
    expected = {
        "auto": {"type": "auto", "disable_parallel_tool_use": True},
        "any": {"type": "any", "disable_parallel_tool_use": True},
        "none": {"type": "none"},
    }.get(
        choice if isinstance(choice, str) else "", {"type": "tool", "name": "bash", "disable_parallel_tool_use": True}
    )
    assert found.body["tool_choice"] == expected
    assert anthropic_problems(found.body) == []
    thinking = await ask(
        vendor, "claude-sonnet-4-5", tools=[BASH], tool_choice=choice, config=GenerateConfig(reasoning_tokens=2048)
    )
    forced = choice not in ("auto", "none")  # which is refused together with a budget
    assert ("tool_choice" in thinking.body) is not forced


async def test_a_model_that_refuses_forced_tools_is_asked_to_choose(
    vendor: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    found = await ask(vendor, "claude-opus-5-5", tools=[BASH], tool_choice="any")
    assert found.body["tool_choice"] == {"type": "auto"}
    assert "asked to choose itself" in caplog.text
    assert anthropic_problems(found.body, beta=True) == []


async def test_results_of_parallel_calls_are_one_turn(vendor: SimpleNamespace) -> None:
    found = await ask(vendor, input=LONG, tools=[BASH], config=GenerateConfig(cache_prompt=False))
    roles = [message["role"] for message in found.body["messages"]]
    assert roles == ["user", "assistant", "user"]
    turn = found.body["messages"][2]["content"]
    assert [block["type"] for block in turn] == ["tool_result", "tool_result", "text", "text"]
    assert turn[1] == {"type": "tool_result", "tool_use_id": "c2", "content": "too slow", "is_error": True}
    assert "<system-reminder>" in turn[3]["text"]
    assert found.body["system"] == [{"type": "text", "text": "Be brief."}]


async def test_a_later_system_message_stays_where_it_is_for_models_that_take_it(vendor: SimpleNamespace) -> None:
    found = await ask(vendor, "claude-opus-4-8", input=LONG, tools=[BASH], config=GenerateConfig(cache_prompt=False))
    assert found.body["messages"][-1] == {"role": "system", "content": [{"type": "text", "text": "Hurry."}]}
    misplaced = [
        *HELLO,
        ChatMessageAssistant(content="hi"),
        ChatMessageSystem(content="S"),
        ChatMessageUser(content="x"),
    ]
    found = await ask(vendor, "claude-opus-4-8", input=misplaced, config=GenerateConfig(cache_prompt=False))
    assert [one["role"] for one in found.body["messages"]] == ["user", "assistant", "user"]
    assert found.body["system"] == [{"type": "text", "text": "S"}]


async def test_prompt_caching_marks_tools_system_and_the_last_block_but_one(vendor: SimpleNamespace) -> None:
    found = await ask(vendor, input=LONG, tools=[BASH], arguments={"cache_ttl": "1h"})
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert found.body["cache_control"] == mark
    assert found.body["tools"][-1]["cache_control"] == mark
    assert found.body["system"][-1]["cache_control"] == mark
    blocks = [block for message in found.body["messages"] for block in message["content"]]
    assert [i for i, block in enumerate(blocks) if "cache_control" in block] == [len(blocks) - 2]
    off = await ask(vendor, input=LONG, tools=[BASH], config=GenerateConfig(cache_prompt=False))
    old = await ask(vendor, "claude-3-sonnet-20240229", input=LONG, tools=[BASH])
    assert "cache_control" not in json.dumps(off.body) + json.dumps(old.body)


async def test_an_authors_own_cache_breakpoints_replace_the_others(vendor: SimpleNamespace) -> None:
    parts = [ContentText(text="stable", cache_breakpoint=True), ContentText(text="question")]
    found = await ask(
        vendor, input=[ChatMessageSystem(content="S"), ChatMessageUser(content=list(parts))], tools=[BASH]
    )
    blocks = found.body["messages"][0]["content"]
    assert ["cache_control" in block for block in blocks] == [True, False]
    assert "cache_control" not in found.body
    assert "cache_control" in found.body["system"][0]
    assert anthropic_problems(found.body) == []
    many = [ChatMessageUser(content=[ContentText(text=str(i), cache_breakpoint=True) for i in range(5)])]
    with pytest.raises(UsageError, match="takes 4 at most"):
        await ask(vendor, input=many)


THINKING = [
    ("claude-3-5-sonnet-20241022", {"reasoning_effort": "high"}, None, None, 4096),
    ("claude-3-7-sonnet-latest", {"reasoning_effort": "high"}, "enabled", None, 48_000),
    ("claude-sonnet-4-5", {"reasoning_tokens": 5000}, "enabled", None, 37_000),
    ("claude-opus-4-6", {"reasoning_effort": "xhigh"}, "adaptive", "high", 48_000),
    ("claude-opus-4-7", {"reasoning_effort": "xhigh"}, "adaptive", "xhigh", 64_000),
    ("claude-opus-4-7", {"reasoning_effort": "none"}, "disabled", None, 32_000),
    ("claude-sonnet-5-5", {"reasoning_effort": "none"}, "between_tools", None, 32_000),
    ("claude-fable-5", {"reasoning_effort": "none"}, None, None, 32_000),
    ("claude-opus-4-8", {}, None, None, 32_000),
]


@pytest.mark.parametrize(("model", "options", "kind", "effort", "tokens"), THINKING)
async def test_thinking_is_asked_for_as_the_model_takes_it(
    vendor: SimpleNamespace, model: str, options: dict[str, Any], kind: str | None, effort: str | None, tokens: int
) -> None:
    found = await ask(vendor, model, config=GenerateConfig(**options))
    assert (found.body.get("thinking") or {}).get("type") == kind
    assert (found.body.get("output_config") or {}).get("effort") == effort
    assert found.body["max_tokens"] == tokens
    assert anthropic_problems(found.body, beta="anthropic-beta" in found.headers) == []


async def test_a_budget_that_the_model_refuses_is_an_error_that_says_what_to_do(vendor: SimpleNamespace) -> None:
    with pytest.raises(UsageError, match="reasoning_effort"):
        await ask(vendor, "claude-opus-4-7", config=GenerateConfig(reasoning_tokens=1000))


def test_models_are_known_as_inspect_knows_them() -> None:
    pytest.importorskip("inspect_ai")
    from inspect_ai.model import GenerateConfig as TheirConfig
    from inspect_ai.model._providers.anthropic import AnthropicAPI as Theirs

    names = [
        "claude-3-opus-20240229",
        "claude-3-5-sonnet-20241022",
        "claude-3-7-sonnet-latest",
        "claude-opus-4-20250514",
        "claude-opus-4-1",
        "claude-sonnet-4-5-20250929",
        "claude-haiku-4-5",
        "claude-sonnet-4-6",
        "claude-opus-4-7",
        "claude-opus-4-8",
        "claude-opus-5",
        "claude-opus-5-5",
        "claude-sonnet-5",
        "claude-sonnet-5-5",
        "claude-haiku-5-5",
        "claude-fable-5",
        "claude-fable-5-1",
        "claude-mythos-5-1",
        "claude-mythos-preview",
        "claude-zebra-6",
    ]
    for name in names:
        inspect, ours = Theirs(name, api_key="k"), claude(name)
        assert ours.thinks == inspect.is_thinking_model(), name
        assert ours.adaptive == inspect.is_claude_frontier(), name
        assert ours.adaptive_only == inspect.is_claude_4_7_or_later(), name
        assert ours.inline_system == inspect.supports_mid_conversation_system(), name
        assert ours.refuses_forced_tools == (inspect.resolved_tool_choice("any") == "auto"), name
        for effort in (None, "none", "minimal", "low", "medium", "high", "xhigh", "max"):
            theirs, config = TheirConfig(reasoning_effort=effort), GenerateConfig(reasoning_effort=effort)
            assert ours.effort(config) == inspect.effort_from_reasoning_effort(theirs), (name, effort)
            assert ours.is_thinking(config) == inspect.is_using_thinking(theirs), (name, effort)
            assert ours.max_tokens(config) == inspect.max_tokens_for_config(theirs), (name, effort)


async def test_long_or_thinking_answers_are_streamed_and_others_are_not(vendor: SimpleNamespace) -> None:
    for arguments, config, streamed in (
        ({"streaming": "auto"}, GenerateConfig(max_tokens=100), False),
        ({"streaming": "auto"}, GenerateConfig(max_tokens=8192), True),
        ({"streaming": "auto"}, GenerateConfig(max_tokens=100, reasoning_tokens=50), True),
        ({"streaming": True}, GenerateConfig(max_tokens=100), True),
        ({"streaming": False}, GenerateConfig(), False),
    ):
        found = await ask(vendor, config=config, arguments=arguments)
        assert found.body.get("stream", False) is streamed


async def test_sampling_is_told_of_once_and_sent_to_the_older_protocol(
    vendor: SimpleNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    config = GenerateConfig(temperature=0.5, top_p=0.9, top_k=3)
    found = await ask(vendor, config=config)
    assert "temperature" not in found.body
    assert caplog.text.count("temperature is not sent") == 1
    old = await ask(vendor, config=config, arguments={"api_version": "2023-06-01"})
    assert (old.body["temperature"], old.body["top_p"], old.body["top_k"]) == (0.5, 0.9, 3)
    assert old.headers["anthropic-version"] == "2023-06-01"
    assert old.headers["x-api-key"] == "sk-canary"


async def test_headers_and_fields_of_ones_own(vendor: SimpleNamespace) -> None:
    config = GenerateConfig(
        extra_headers={"Anthropic-Beta": "one, two", "X-Mine": "3"},
        extra_body={"service_tier": "standard_only", "metadata": {"user_id": "u"}},
        fallback_models=["claude-b"],
    )
    found = await ask(vendor, config=config, arguments={"betas": "zero"})
    assert found.headers["anthropic-beta"].split(",")[:3] == ["zero", "one", "two"]
    assert found.headers["x-mine"] == "3"
    assert found.body["service_tier"] == "standard_only"
    assert found.body["fallbacks"] == [{"model": "claude-b"}]
    assert anthropic_problems(found.body, beta=True) == []


async def test_documents_and_images(vendor: SimpleNamespace, tmp_path: Path) -> None:
    text, pdf = tmp_path / "a.txt", tmp_path / "b.pdf"
    text.write_text("Grüße")
    pdf.write_bytes(b"%PDF")
    parts = [
        ContentDocument(document=str(text), citations=True),
        ContentDocument(document=str(pdf)),
        ContentDocument(document=PNG),
        ContentDocument(document="http://files.test/c.pdf"),
        ContentImage(image="https://files.test/d.png"),
    ]
    found = await ask(vendor, input=[ChatMessageUser(content=parts)], config=GenerateConfig(cache_prompt=False))
    blocks = found.body["messages"][0]["content"]
    assert blocks[0]["source"] == {"type": "text", "media_type": "text/plain", "data": "Grüße"}
    assert blocks[0]["citations"] == {"enabled": True}
    assert blocks[1]["source"] == {
        "type": "base64", "media_type": "application/pdf", "data": base64.b64encode(b"%PDF").decode(),
    }  # fmt: skip
    assert blocks[2]["source"]["content"][0]["type"] == "image"
    assert blocks[3]["source"] == {"type": "url", "url": "http://files.test/c.pdf"}
    assert blocks[4]["source"] == {"type": "url", "url": "https://files.test/d.png"}
    assert anthropic_problems(found.body) == []
    with pytest.raises(UsageError, match="image/tiff"):
        await ask(vendor, input=[ChatMessageUser(content=[ContentImage(image="data:image/tiff;base64,AAAA")])])
    with pytest.raises(ModelError, match="audio"):
        await ask(vendor, input=[ChatMessageUser(content=[ContentAudio(audio="data:,", format="wav")])])


async def test_a_conversation_with_calls_offers_tools_even_when_none_are_given(vendor: SimpleNamespace) -> None:
    found = await ask(vendor, input=LONG)
    assert [tool["name"] for tool in found.body["tools"]] == ["bash"]
    assert found.body["tool_choice"] == {"type": "none"}
    assert anthropic_problems(found.body) == []


async def test_results_without_their_call_become_text(vendor: SimpleNamespace) -> None:
    orphan = ChatMessageTool(content="out", tool_call_id="gone", function="bash")
    found = await ask(vendor, input=[orphan], config=GenerateConfig(cache_prompt=False))
    assert found.body["messages"] == [{"role": "user", "content": [{"type": "text", "text": "[result of bash]\nout"}]}]


async def test_reasoning_of_another_model_becomes_text(vendor: SimpleNamespace) -> None:
    foreign = [
        ChatMessageAssistant(content=[ContentReasoning(reasoning="why"), ContentText(text="so")], model="gpt"),
        ChatMessageAssistant(
            content=[ContentReasoning(reasoning="enc", summary="s", redacted=True), ContentText(text="so")], model="gpt"
        ),
        ChatMessageAssistant(
            content=[ContentReasoning(reasoning="sig", summary="s", redacted=True), ContentText(text="so")],
            model="claude-sonnet-4-5",
        ),
    ]
    found = await ask(vendor, input=[*HELLO, *foreign], config=GenerateConfig(cache_prompt=False))
    kinds = [block["type"] for block in found.body["messages"][1]["content"]]
    assert kinds == ["text", "text", "text", "text", "thinking", "text"]
    assert found.body["messages"][1]["content"][0]["text"] == "<think>why</think>"


async def test_the_log_has_request_and_answer_without_key_and_pictures(vendor: SimpleNamespace) -> None:
    big = "data:image/png;base64," + base64.b64encode(bytes(3000)).decode()
    found = await ask(vendor, input=[ChatMessageUser(content=[ContentImage(image=big)])])
    logged = json.dumps([found.call.request, found.call.response])
    assert "sk-canary" not in logged
    assert len(logged) < 2000
    assert found.call.response == ANSWER
    assert found.call.time is not None
    assert found.output.usage == ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)


def test_a_missing_key_and_wrong_arguments_are_one_line(
    vendor: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    del vendor
    with pytest.raises(UsageError, match=r"no API key\. Set ANTHROPIC_API_KEY") as caught:
        get_model("anthropic/claude-sonnet-4-5")
    assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="bedrock/MODEL"):
        get_model("anthropic/bedrock/claude-sonnet-4-5")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-canary")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "http://other.test/")
    assert get_model("anthropic/claude-sonnet-4-5").api.base_url == "http://other.test/"
    for arguments, words in (
        ({"cache_ttl": "2h"}, "cache_ttl"),
        ({"nonsense": 1}, "nonsense"),
        ({"streaming": 3}, "true"),
    ):
        with pytest.raises(UsageError, match=words):
            get_model("anthropic/claude-sonnet-4-5", **arguments)
