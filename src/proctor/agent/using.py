"""Agents as something else: run by hand, as a solver of a task, as a tool of a model."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from typing import Any, Final, overload

from attrs import evolve

from proctor import registry
from proctor.agent.agent import SPAN, Agent, AgentState, agent_description, agent_name
from proctor.errors import LimitExceededError, UsageError
from proctor.log.transcript import span
from proctor.model.messages import ChatMessage, ChatMessageAssistant, ChatMessageUser
from proctor.model.schema import JSONSchema
from proctor.model.toolcall import ToolInfo
from proctor.runtime.applied import apply_limits
from proctor.runtime.blocks import Limit
from proctor.solver.solving import Generate, Solver
from proctor.solver.state import TaskState
from proctor.tool.definition import Tool, ToolDef, ToolResult
from proctor.tool.outcome import CONTENTS
from proctor.tool.signature import parameters_of

STATE: Final = "state"


@overload
async def run(
    agent: Agent,
    input: str | list[ChatMessage] | AgentState,
    limits: None = None,
    *,
    name: str | None = None,
    span_id: str | None = None,
    **agent_kwargs: Any,
) -> AgentState: ...
@overload
async def run(
    agent: Agent,
    input: str | list[ChatMessage] | AgentState,
    limits: list[Limit],
    *,
    name: str | None = None,
    span_id: str | None = None,
    **agent_kwargs: Any,
) -> tuple[AgentState, LimitExceededError | None]: ...
async def run(
    agent: Agent,
    input: str | list[ChatMessage] | AgentState,
    limits: list[Limit] | None = None,
    *,
    name: str | None = None,
    span_id: str | None = None,
    **agent_kwargs: Any,
) -> AgentState | tuple[AgentState, LimitExceededError | None]:
    """Run an agent on a copy of a conversation.

    Args:
        input: a user's text, messages, or a state.
        limits: on this run; where one is met, the state as it is then and the error are returned.
        name, span_id: of its span in the transcript.
        agent_kwargs: arguments of the agent besides the state.

    Returns:
        The agent's state; where limits are given, with the error of the one that was met, or None.
    """
    if isinstance(input, str):
        messages: list[ChatMessage] = [ChatMessageUser(content=input, source="input")]
    else:
        given = input.messages if isinstance(input, AgentState) else input
        messages = [message.model_copy(update={"source": "input"}) for message in given]
    state = AgentState(messages=messages)
    with apply_limits(limits or [], catch_errors=True) as scope:
        async with span(name or agent_name(agent), type=SPAN, id=span_id):
            state = await agent(state, **agent_kwargs)
    return state if limits is None else (state, scope.limit_error)


def as_solver(agent: Agent, limits: Sequence[Limit] = (), **agent_kwargs: Any) -> Solver:
    """An agent as a solver. `Task(solver=...)` takes agents as they are.

    Args:
        limits: on the agent; where one is met, the sample ends and is scored.
        agent_kwargs: arguments of the agent besides the state.

    Raises:
        UsageError: it is no agent, or needs an argument that is not given.
    """
    name = agent_name(agent)
    for parameter in _own_parameters(agent):
        if parameter.default is parameter.empty and parameter.name not in agent_kwargs:
            raise UsageError(
                f"the agent {name} needs {parameter.name!r}: as_solver(agent, {parameter.name}=…), since a solver has "
                "only the state"
            )

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        agent_state = AgentState(messages=state.messages)
        try:
            with apply_limits([fresh(limit) for limit in limits]):
                async with span(name, type=SPAN):
                    agent_state = await agent(agent_state, **agent_kwargs)
        finally:
            # What it had come to is logged and scored, whatever ended it.
            state.messages = agent_state.messages
            if not agent_state.output.empty or agent_state.output.completion:
                state.output = agent_state.output
        return state

    info = registry.info_of(agent)
    assert info is not None
    registry.tag(solve, evolve(info, kind="solver", name=name))
    return solve


def as_tool(
    agent: Agent,
    description: str | None = None,
    limits: Sequence[Limit] = (),
    max_output: int | None = 0,
    **agent_kwargs: Any,
) -> Tool:
    """An agent as a tool: it is given a text, and its last answer is the result.

    Args:
        description: default the agent's.
        limits: on each call; where one is met, the model is told so.
        max_output: bytes of the answer before its middle is cut out; 0 for never, None for `max_tool_output`.
        agent_kwargs: arguments of the agent, which the model is not asked for.

    Raises:
        UsageError: it is no agent, or has no description.
    """
    info = agent_info(agent, description, agent_kwargs)
    text = JSONSchema(type="string", description="The input of the agent, as a message.")
    info.parameters.properties = {"input": text, **info.parameters.properties}
    info.parameters.required = ["input", *info.parameters.required]

    async def execute(input: str, **kwargs: Any) -> ToolResult:
        state = AgentState(messages=[ChatMessageUser(content=input, source="input")])
        with apply_limits([fresh(limit) for limit in limits]):
            async with span(agent_name(agent), type=SPAN):
                state = await agent(state, **{**agent_kwargs, **kwargs})
        if not state.output.empty:
            return _result(state.output.message)
        last = state.messages[-1] if state.messages else None
        return _result(last) if isinstance(last, ChatMessageAssistant) else ""

    definition = ToolDef(execute, info.name, info.description, info.parameters, max_output=max_output)
    own = [each for each in parameters_of(info.name, agent) if each.name != STATE and each.name not in agent_kwargs]
    definition.bind([*(each for each in definition.bound() if not each.rest), *own])
    return definition.as_tool()


def _result(message: ChatMessage) -> ToolResult:
    if isinstance(message.content, str):
        return message.content
    return [part for part in message.content if isinstance(part, CONTENTS)] or message.text


def agent_info(agent: Agent, description: str | None, given: dict[str, Any]) -> ToolInfo:
    """How a model that may call an agent is told of it; its state and what is `given` are left out.

    Raises:
        UsageError: it is no agent, or there is no description of it or of one of its parameters.
    """
    name = agent_name(agent)
    definition = ToolDef(agent, re.sub(r"[^A-Za-z0-9_-]", "_", name), description or agent_description(agent))
    for parameter in [STATE, *given]:
        definition.parameters.properties.pop(parameter, None)
        if parameter in definition.parameters.required:
            definition.parameters.required.remove(parameter)
    definition.check()
    return definition.info


def fresh(limit: Limit) -> Limit:
    """Another limit like it: one holds for a single block, and an agent may be called several times."""
    made = type(limit)(limit.limit)
    if (kind := getattr(limit, "type", None)) is not None:
        made = type(limit)(limit.limit, kind)  # type: ignore[call-arg]
    return made


def _own_parameters(agent: Agent) -> list[inspect.Parameter]:
    unnamed = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    every = list(inspect.signature(agent).parameters.values())
    return [parameter for parameter in every[1:] if parameter.kind not in unnamed]
