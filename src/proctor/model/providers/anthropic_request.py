"""The body and the headers of a request of Anthropic's Messages protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from proctor.errors import UsageError
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage, ContentText
from proctor.model.portable import plain
from proctor.model.providers.anthropic_content import (
    NO_CONTENT,
    THINKING,
    Block,
    called_tools,
    message_to_wire,
    split_system,
    text_blocks,
    tool_to_wire,
    without_orphans,
)
from proctor.model.providers.claude_models import Claude, claude
from proctor.model.schema import JSONSchema
from proctor.model.toolcall import ToolChoice, ToolFunction, ToolInfo

Ttl: TypeAlias = Literal["5m", "1h"]

VERSION: Final = "2026-10-21"  # what the vendor's own package sends
SAMPLING: Final = ("temperature", "top_p", "top_k")  # refused since VERSION, by every model
MAX_BREAKPOINTS: Final = 4
STREAM_FROM: Final = 8192  # tokens of an answer from which the vendor asks to stream
FALLBACK_BETA: Final = "server-side-fallback-2026-06-01"
BINDING_BETA: Final = "thinking-binding-controls-2026-08-01"
INTERLEAVED_BETA: Final = "interleaved-thinking-2025-05-14"
LONG_OUTPUT_BETA: Final = "output-128k-2025-02-19"
EFFORT_BETA: Final = "effort-2025-11-24"
UNCACHEABLE: Final = THINKING | {"fallback"}
UNSUPPORTED: Final = ("pattern", "minLength", "maxLength", "minimum", "maximum", "examples")  # of a response schema


@frozen(kw_only=True)
class Options:
    """What requests of one client have in common.

    Attributes:
        model: as the server calls it. version: of the protocol. betas: asked for with every request.
        cache_ttl: how long the prompt cache keeps what is written; None is the vendor's default.
        streaming: None leaves it to the request.
    """

    model: str
    version: str = VERSION
    betas: tuple[str, ...] = ()
    cache_ttl: Ttl | None = None
    streaming: bool | None = None

    @property
    def claude(self) -> Claude:
        """What is known of the model."""
        return claude(self.model)

    def streams(self, config: GenerateConfig, max_tokens: int) -> bool:
        """Whether an answer is streamed: asked for, or long enough for a connection to be cut while nothing comes."""
        if self.streaming is not None:
            return self.streaming
        return max_tokens >= STREAM_FROM or self.claude.is_thinking(config)


async def request_body(
    options: Options,
    input: Sequence[ChatMessage],
    tools: Sequence[ToolInfo],
    tool_choice: ToolChoice,
    config: GenerateConfig,
) -> Block:
    """The body of a request.

    Raises:
        UsageError: the configuration asks for what the model refuses. ModelError: a content it cannot have.
    """
    model = options.claude
    max_tokens = config.max_tokens or model.max_tokens(config)
    body: Block = {"model": options.model, "max_tokens": max_tokens}
    await _add_conversation(body, options, input, tools, config)
    if tools:
        choice = _tool_choice(tool_choice, model, config)
        if choice is not None:
            body["tool_choice"] = choice
    elif body.get("tools"):
        body["tool_choice"] = {"type": "none"}
    _add_thinking(body, model, config)
    if config.stop_seqs is not None:
        body["stop_sequences"] = config.stop_seqs
    if options.version < VERSION:
        body.update({name: value for name in SAMPLING if (value := getattr(config, name)) is not None})
    if config.response_schema is not None:
        schema = closed_schema(config.response_schema.json_schema)
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": schema}
    if config.fallback_models:
        body["fallbacks"] = [{"model": name} for name in config.fallback_models]
    if options.streams(config, max_tokens):
        body["stream"] = True
    body.update(config.extra_body or {})
    return body


def request_headers(options: Options, body: Mapping[str, Any], config: GenerateConfig) -> dict[str, str]:
    """The headers of a request beside the key: the protocol's version and what is asked for beyond it."""
    given = {name.lower(): value for name, value in (config.extra_headers or {}).items()}
    asked = [beta.strip() for beta in given.pop("anthropic-beta", "").split(",") if beta.strip()]
    betas = dict.fromkeys([*options.betas, *asked])
    model, thinking = options.claude, body.get("thinking") or {}
    if thinking.get("type") == "enabled":
        betas[LONG_OUTPUT_BETA if model.version == (3, 7) else INTERLEAVED_BETA] = None
    if model.version < (4, 6) and (body.get("output_config") or {}).get("effort"):
        betas[EFFORT_BETA] = None
    if "fallbacks" in body:
        betas[FALLBACK_BETA] = None
    if model.binds_thinking:
        betas[BINDING_BETA] = None
    headers = {"anthropic-version": options.version, **given}
    if betas:
        headers["anthropic-beta"] = ",".join(betas)
    return headers


def ignored(options: Options, tools: Sequence[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig) -> list[str]:
    """What a configuration asks for that the model does not take, a text each."""
    model = options.model
    found = [
        f"{model}: {name} is not sent: protocol version {options.version} refuses it (-M api_version=2023-06-01 "
        "brings it back for models that take it)"
        for name in SAMPLING
        if getattr(config, name) is not None and options.version >= VERSION
    ]
    if tools and _is_forced(tool_choice) and options.claude.refuses_forced_tools:
        found.append(f"{model}: it refuses a tool choice that forces a call and is asked to choose itself")
    return found


# -- the conversation -------------------------------------------------------------------------------------------------


async def _add_conversation(
    body: Block, options: Options, input: Sequence[ChatMessage], tools: Sequence[ToolInfo], config: GenerateConfig
) -> None:
    model = options.claude
    caching = config.cache_prompt is not False and model.caches
    messages = without_orphans(input)
    top, rest = split_system(messages, inline=model.inline_system)
    marked = _marked(messages)
    if marked:
        system = [block for message in top if message.text for block in text_blocks(message)]
    else:
        system = [{"type": "text", "text": message.text} for message in top if message.text]
    wire = joined([await message_to_wire(message) for message in rest])
    if not wire:
        wire = [{"role": "user", "content": [{"type": "text", "text": NO_CONTENT}]}]
    offered = [tool_to_wire(tool) for tool in tools] or called_tools(rest)
    if not caching:
        _unmark([*system, *(block for message in wire for block in message["content"])])
    elif marked:
        _mark_around(system, wire, offered, options.cache_ttl)
    else:
        _mark(system, wire, offered, options.cache_ttl)
        body["cache_control"] = cache_control(options.cache_ttl)
    body["messages"] = wire
    if system:
        body["system"] = system
    if offered:
        body["tools"] = offered


def joined(messages: list[Block]) -> list[Block]:
    """Messages with neighbours of one role made one: turns alternate, and results of parallel calls are one turn."""
    out: list[Block] = []
    for message in messages:
        if out and out[-1]["role"] == message["role"]:
            out[-1] = {"role": message["role"], "content": [*out[-1]["content"], *message["content"]]}
        else:
            out.append(message)
    return out


def cache_control(ttl: Ttl | None) -> Block:
    """A prompt cache breakpoint."""
    return {"type": "ephemeral"} if ttl is None else {"type": "ephemeral", "ttl": ttl}


def _marked(messages: Sequence[ChatMessage]) -> bool:
    return any(
        isinstance(part, ContentText) and part.cache_breakpoint
        for message in messages
        if isinstance(message.content, list)
        for part in message.content
    )


def _unmark(blocks: Sequence[Block]) -> None:
    for block in blocks:
        block.pop("cache_control", None)
        if isinstance(inner := block.get("content"), list):
            _unmark(inner)


def _mark(system: list[Block], messages: list[Block], tools: list[Block], ttl: Ttl | None) -> None:
    """Breakpoints after the tools, the system messages and the last block but one.

    The vendor itself puts one after the last block; that of the block before is for requests that differ in the last.
    """
    for blocks in (system, tools):
        if blocks:
            blocks[-1]["cache_control"] = cache_control(ttl)
    cacheable = [block for message in messages for block in message["content"] if block["type"] not in UNCACHEABLE]
    if len(cacheable) >= 2:
        cacheable[-2]["cache_control"] = cache_control(ttl)


def _mark_around(system: list[Block], messages: list[Block], tools: list[Block], ttl: Ttl | None) -> None:
    """The author's own breakpoints, and those after tools and system messages where there is room for them."""
    own = [block for message in messages for block in message["content"] if "cache_control" in block]
    of_system = [block for block in system if "cache_control" in block]
    for block in (*own, *of_system):
        block["cache_control"] = cache_control(ttl)
    room = MAX_BREAKPOINTS - len(own) - len(of_system)
    if room < 0:
        raise UsageError(
            f"{len(own) + len(of_system)} contents have a cache_breakpoint; Anthropic takes {MAX_BREAKPOINTS} at most"
        )
    for blocks in ([] if of_system else system, tools):
        if blocks and room:
            blocks[-1]["cache_control"] = cache_control(ttl)
            room -= 1


# -- options ----------------------------------------------------------------------------------------------------------


def _is_forced(choice: ToolChoice) -> bool:
    return choice == "any" or isinstance(choice, ToolFunction)


def _tool_choice(choice: ToolChoice, model: Claude, config: GenerateConfig) -> Block | None:
    if choice == "none":
        return {"type": "none"}
    forced = _is_forced(choice)
    if forced and model.refuses_forced_tools:
        choice = "auto"
    elif forced and model.budget(config) is not None and model.effort(config) is None:
        return None  # refused together with a thinking budget
    wire: Block = {"type": "tool", "name": choice.name} if isinstance(choice, ToolFunction) else {"type": choice}
    if config.parallel_tool_calls is not None:
        wire["disable_parallel_tool_use"] = not config.parallel_tool_calls
    return wire


def _add_thinking(body: Block, model: Claude, config: GenerateConfig) -> None:
    """Thinking and effort, as the model takes them."""
    if config.reasoning_tokens is not None and model.adaptive_only:
        raise UsageError(
            f"{model.name} takes no thinking budget (reasoning_tokens); say how hard to think with reasoning_effort"
        )
    output: Block = {}
    if config.effort is not None:
        output["effort"] = model.known_effort(config.effort)
    effort, budget = model.effort(config), model.budget(config)
    if effort is not None:
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
        output["effort"] = effort
    elif budget is not None:
        body["thinking"] = {"type": "enabled", "budget_tokens": budget, "display": "summarized"}
    elif config.reasoning_effort == "none" and model.off is not None:
        body["thinking"] = {"type": model.off}
        together = model.version < (5, 0) or (model.tier == "sonnet" and model.version < (5, 5))
        if output.get("effort") in {"xhigh", "max"} and not together:
            output["effort"] = "high"  # the two highest are refused without thinking
    if model.binds_thinking:
        thinking = body.setdefault("thinking", {"type": "adaptive"})
        if thinking["type"] == "adaptive":
            thinking["block_binding"] = {"prefix_mismatch_behavior": "drop_block"}
    if output:
        body["output_config"] = output


def closed_schema(schema: JSONSchema) -> dict[str, Any]:
    """A schema as structured outputs take it: no other properties than those named, no bounds, no examples."""
    wire = plain(schema, exclude_none=True)
    _close(wire)
    return dict(wire)


def _close(node: Any) -> None:
    if not isinstance(node, dict):
        return
    for name in UNSUPPORTED:
        node.pop(name, None)
    properties = node.get("properties")
    if node.get("type") == "object" or properties:
        node["additionalProperties"] = False
    for child in (*(properties or {}).values(), *node.get("anyOf", ()), node.get("items")):
        _close(child)
