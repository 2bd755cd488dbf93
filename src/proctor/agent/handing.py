"""`handoff`: a tool with which a model hands the conversation over to an agent; filters for what each sees of it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from attrs import define, field, frozen

from proctor.agent.agent import SPAN, Agent, AgentState, agent_name
from proctor.agent.using import STATE, agent_info, fresh
from proctor.errors import LimitExceededError
from proctor.log.transcript import span
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentReasoning,
    ContentText,
    ContentToolUse,
)
from proctor.model.output import ModelOutput
from proctor.model.toolcall import ToolCall
from proctor.runtime import new_id
from proctor.runtime.applied import apply_limits
from proctor.runtime.blocks import Limit
from proctor.tool.definition import Tool, ToolDef
from proctor.tool.signature import Parameter, parameters_of

MessageFilter: TypeAlias = Callable[[list[ChatMessage]], Awaitable[list[ChatMessage]]]


async def content_only(messages: list[ChatMessage]) -> list[ChatMessage]:
    """The contents alone, which any model can read: no system messages and no reasoning, tool calls as text."""
    kept: list[ChatMessage] = []
    for message in messages:
        if isinstance(message, ChatMessageTool):
            kept.append(ChatMessageUser(id=message.id, content=message.content))
        elif isinstance(message, ChatMessageAssistant):
            content: list[Content] = [_as_text(part) for part in message.content_list if _shows(part)]
            calls = "\n".join(_call_text(call) for call in message.tool_calls or ())
            if calls:
                content.append(ContentText(text=calls))
            kept.append(message.model_copy(update={"content": content, "tool_calls": None}))
        elif not isinstance(message, ChatMessageSystem):
            kept.append(message)
    return kept


async def remove_tools(messages: list[ChatMessage]) -> list[ChatMessage]:
    """The conversation without tool calls and their results."""
    return [
        message.model_copy(update={"tool_calls": None}) if isinstance(message, ChatMessageAssistant) else message
        for message in messages
        if not isinstance(message, ChatMessageTool)
    ]


async def last_message(messages: list[ChatMessage]) -> list[ChatMessage]:
    """The last message alone."""
    return messages[-1:]


def _shows(part: Content) -> bool:
    return not isinstance(part, ContentReasoning) and not (isinstance(part, ContentText) and not part.text)


def _as_text(part: Content) -> Content:
    if isinstance(part, ContentToolUse):
        return ContentText(text=f"{part.name}({part.arguments})\n{part.error or part.result}")
    return part.model_copy(update={"internal": None})


def _call_text(call: ToolCall) -> str:
    arguments = ", ".join(f"{name}={json.dumps(value, default=str)}" for name, value in call.arguments.items())
    return f"{call.function}({arguments})"


@frozen
class HandedOver:
    """What became of a conversation that was handed over: see `execute_tools`."""

    result: str
    messages: list[ChatMessage]
    output: ModelOutput | None
    agent: str


@define(eq=False)
class AgentTool:
    """The function of a `handoff` tool. It is not called as others are: `execute_tools` hands the conversation over."""

    agent: Agent
    input_filter: MessageFilter | None
    output_filter: MessageFilter | None
    limits: Sequence[Limit]
    given: dict[str, Any]
    parameters: list[Parameter] = field(factory=list)

    async def __call__(self, **arguments: Any) -> str:
        raise RuntimeError("a handoff tool is run by execute_tools only")

    async def hand_over(self, call: ToolCall, conversation: Sequence[ChatMessage]) -> HandedOver:
        """Let the agent go on with a conversation whose last message has the call."""
        name = agent_name(self.agent)
        result = f"Successfully transferred to {name}."
        messages = await self._seen(call, conversation, result)
        known = {id(message) for message in messages}
        state, met = AgentState(messages=list(messages)), None
        limits = [fresh(limit) for limit in self.limits]
        try:
            with apply_limits(limits):
                async with span(name, type=SPAN):
                    state = await self.agent(state, **self._arguments(call))
        except LimitExceededError as error:
            if not any(error.source is limit for limit in limits):
                raise
            met = error
        added = [message for message in state.messages if id(message) not in known]
        made = [_signed(message, name) for message in added if not isinstance(message, ChatMessageSystem)]
        if self.output_filter is not None:
            made = await self.output_filter(made)
        if met is not None:
            made.append(ChatMessageUser(id=new_id(), content=f"The agent {name} was stopped: {met}"))
        elif not made or isinstance(made[-1], ChatMessageAssistant):
            made.append(ChatMessageUser(id=new_id(), content=f"The agent {name} has ended its work."))
        return HandedOver(result, made, None if state.output.empty else state.output, name)

    async def _seen(self, call: ToolCall, conversation: Sequence[ChatMessage], result: str) -> list[ChatMessage]:
        """The conversation as the agent sees it: of the last message's calls only this one, and that it is answered."""
        messages = list(conversation)
        if messages and isinstance(messages[-1], ChatMessageAssistant):
            messages[-1] = messages[-1].model_copy(update={"tool_calls": [call]})
        answered = ChatMessageTool(id=new_id(), content=result, tool_call_id=call.id, function=call.function)
        messages.append(answered)
        if self.input_filter is not None:
            messages = await self.input_filter(messages)
            if not any(message is answered for message in messages):
                messages.append(ChatMessageUser(id=new_id(), content=result))
        return [message for message in messages if not isinstance(message, ChatMessageSystem)]

    def _arguments(self, call: ToolCall) -> dict[str, Any]:
        found = {
            each.name: each.convert(call.arguments[each.name])
            for each in self.parameters
            if each.name in call.arguments
        }
        return {**found, **self.given}


def _signed(message: ChatMessage, name: str) -> ChatMessage:
    """A model's message with the agent's name before its text."""
    if not isinstance(message, ChatMessageAssistant):
        return message
    if isinstance(message.content, str):
        return message.model_copy(update={"content": f"[{name}] {message.content}"})
    content = list(message.content)
    for place, part in enumerate(content):
        if isinstance(part, ContentText):
            content[place] = part.model_copy(update={"text": f"[{name}] {part.text}"}) if part.text else part
            break
    return message.model_copy(update={"content": content})


def handoff(
    agent: Agent,
    description: str | None = None,
    input_filter: MessageFilter | None = None,
    output_filter: MessageFilter | None = content_only,
    tool_name: str | None = None,
    limits: Sequence[Limit] = (),
    **agent_kwargs: Any,
) -> Tool:
    """A tool that hands the conversation over to an agent, whose messages are added to it.

    Args:
        description: default the agent's.
        input_filter: what of the conversation the agent sees. output_filter: what of the agent's messages is added.
        tool_name: default ``transfer_to_`` and the agent's name.
        limits: on each handoff; where one is met, the conversation goes on without the agent.
        agent_kwargs: arguments of the agent, which the model is not asked for.

    Raises:
        UsageError: it is no agent, or has no description.
    """
    info = agent_info(agent, description, agent_kwargs)
    own = [each for each in parameters_of(info.name, agent) if each.name != STATE and each.name not in agent_kwargs]
    function = AgentTool(agent, input_filter, output_filter, limits, agent_kwargs, own)
    definition = ToolDef(function, tool_name or f"transfer_to_{info.name}", info.description, info.parameters)
    return definition.as_tool()
