"""Agents: functions that go on with a conversation until they are done, alone or together."""

from __future__ import annotations

from proctor.agent.agent import Agent, AgentState, agent, agent_with, is_agent
from proctor.agent.handing import MessageFilter, content_only, handoff, last_message, remove_tools
from proctor.agent.prompts import AgentAttempts, AgentContinue, AgentPrompt, AgentSubmit
from proctor.agent.react import react
from proctor.agent.using import as_solver, as_tool, run

__all__ = [
    "Agent",
    "AgentAttempts",
    "AgentContinue",
    "AgentPrompt",
    "AgentState",
    "AgentSubmit",
    "MessageFilter",
    "agent",
    "agent_with",
    "as_solver",
    "as_tool",
    "content_only",
    "handoff",
    "is_agent",
    "last_message",
    "react",
    "remove_tools",
    "run",
]
