"""How `react` is told what to do: prompts, attempts and the tool with which an answer is submitted."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from proctor.agent.agent import AgentState
from proctor.scorer.measure import ValueToFloat, value_to_float
from proctor.tool.definition import Tool, ToolDef

if TYPE_CHECKING:
    from proctor.log.scores import Score

HANDOFF_PROMPT: Final = """\
You work together with other agents. A tool named transfer_to_<agent> hands the conversation over to that agent; it \
comes back to you by itself. Do not speak of these transfers in the conversation."""

ASSISTANT_PROMPT: Final = """\
You are an assistant that works towards the best answer it can give, with the tools it has. You see what a tool gives \
back right after you called it. Before you call tools, say in short which and why. Calls that do not depend on each \
other belong into one message."""

SUBMIT_PROMPT: Final = "When the task is done and you have an answer, report it with the tool {submit}()."

CONTINUE_PROMPT: Final = """\
Go on with the next step as you think best. If the task is done, report your final answer with the tool `{submit}()`."""

CONTINUE_PROMPT_NO_SUBMIT: Final = "Go on with the next step as you think best."


class AgentPrompt(NamedTuple):
    """The system message of an agent, in parts; a part that is None is left out.

    Attributes:
        instructions: of this agent. handoff_prompt: used when it can hand over to other agents.
        assistant_prompt: how to work with tools. submit_prompt: how to report an answer; not used when the assistant
            prompt itself has the place ``{submit}``.
    """

    instructions: str | None = None
    handoff_prompt: str | None = HANDOFF_PROMPT
    assistant_prompt: str | None = ASSISTANT_PROMPT
    submit_prompt: str | None = SUBMIT_PROMPT


AgentContinue: TypeAlias = Callable[[AgentState], Awaitable["bool | str | AgentState"]]
"""Asked after each turn whether to go on: True, False, a user's message to go on with, or a state to go on from."""


class AgentAttempts(NamedTuple):
    """Several attempts at an answer, judged by the first scorer of the task.

    Attributes:
        attempts: at most. incorrect_message: what the agent is told, or an async function that says it.
        score_value: the number of a score's value; 1 is right.
    """

    attempts: int = 1
    incorrect_message: str | Callable[[AgentState, list[Score]], Awaitable[str]] = (
        "Your answer is not right. Go on, and try to find the right one."
    )
    score_value: ValueToFloat = value_to_float()


class AgentSubmit(NamedTuple):
    """The tool with which an agent submits its answer.

    Attributes:
        name, description: default ``submit`` and a short text. tool: another one, which returns the answer.
        answer_only: the completion is the answer alone, not the text around the call and the answer.
        answer_delimiter: between that text and the answer.
        keep_in_messages: leave the call and its result in the conversation.
    """

    name: str | None = None
    description: str | None = None
    tool: Tool | ToolDef | None = None
    answer_only: bool = False
    answer_delimiter: str = "\n\n"
    keep_in_messages: bool = False
