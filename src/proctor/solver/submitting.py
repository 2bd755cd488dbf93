"""`basic_agent`: a solver that calls tools until the model submits an answer; `proctor.agent.react` does more."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias

from attrs import field, frozen

from proctor.log.scores import Score
from proctor.log.transcript import transcript
from proctor.model.messages import ChatMessage, ChatMessageTool, ChatMessageUser
from proctor.runtime.applied import token_limit as limited_tokens
from proctor.runtime.tokens import TokenLimit
from proctor.scorer.intermediate import score
from proctor.scorer.measure import ValueToFloat, value_to_float
from proctor.solver.chaining import chain
from proctor.solver.prompting import system_message
from proctor.solver.solving import Generate, Solver, solver
from proctor.solver.state import TaskState
from proctor.solver.using_tools import use_tools
from proctor.tool.definition import Tool, ToolDef, ToolSource
from proctor.tool.execution import execute_tools

SYSTEM_MESSAGE: Final = """\
You are an assistant that works towards the right answer, with the functions it has. You see what a function gives \
back right after you called it. Before each call, say in short what you think and what you are going to call.

When the task is done and you have an answer, report it with the function {submit}()."""
CONTINUE_MESSAGE: Final = "Go on with the next step as you think best."
INCORRECT_MESSAGE: Final = "Your answer is not right. Go on, and try to find the right one."
SUBMIT_DESCRIPTION: Final = "Submit the final answer."
MESSAGES: Final = 50
"""The message limit where there is none of messages or tokens, as in Inspect: a model may never submit."""

Incorrect: TypeAlias = str | Callable[[TaskState, list[Score]], str | Awaitable[str]]


@solver
def basic_agent(
    *,
    init: Solver | list[Solver] | None = None,
    tools: Sequence[Tool | ToolDef | ToolSource] | Solver | None = None,
    cache: Any = False,
    max_attempts: int = 1,
    message_limit: int | None = None,
    token_limit: int | str | TokenLimit | None = None,
    max_tool_output: int | None = None,
    score_value: ValueToFloat | None = None,
    incorrect_message: Incorrect = INCORRECT_MESSAGE,
    continue_message: str = CONTINUE_MESSAGE,
    submit_name: str = "submit",
    submit_description: str = SUBMIT_DESCRIPTION,
    submit_append: bool = False,
) -> Solver:
    """Call tools until the model submits an answer.

    Args:
        init: solvers that run first; default a system message.
        tools: that the model has besides the one to submit with, or a solver that puts them into the state.
        cache: as of `Model.generate`.
        max_attempts: answers it may give; with more than one the task's first scorer judges each.
        message_limit: of the sample; where there is no limit of messages or tokens at all, 50.
        token_limit: of this agent. max_tool_output: bytes of a tool's output that are kept.
        score_value: the number of a score's value; 1 is right.
        incorrect_message: what the model is told after a wrong answer, or a function that says it.
        continue_message: what it is told when it calls no tool.
        submit_name, submit_description: of the tool to submit with.
        submit_append: put the answer after the completion instead of in its place.
    """
    loop = _Loop(
        cache=cache,
        attempts=max_attempts,
        messages=message_limit,
        tokens=token_limit,
        size=max_tool_output,
        to_float=score_value or value_to_float(),
        wrong=incorrect_message,
        on=continue_message,
        submit=submit_name,
        append=submit_append,
    )
    first = system_message(SYSTEM_MESSAGE, submit=submit_name) if init is None else init
    submit = ToolDef(_submit, submit_name, submit_description, max_output=0).as_tool()
    offered = tools if callable(tools) else use_tools(*(tools or ()), append=True)
    limited_tokens(token_limit)  # refused here rather than in the first sample
    return chain(first, offered, use_tools(submit, append=True), loop)


async def _submit(answer: str) -> str:
    """Submit the final answer.

    Args:
        answer: The answer.
    """
    return answer


@frozen(eq=False, kw_only=True)
class _Loop:
    """The turns of the agent."""

    cache: Any
    attempts: int
    messages: int | None
    tokens: int | str | TokenLimit | None
    size: int | None
    to_float: ValueToFloat
    wrong: Incorrect
    on: str
    submit: str
    append: bool
    __name__: str = field(default="basic_agent_loop", init=False)

    async def __call__(self, state: TaskState, generate: Generate) -> TaskState:
        state.message_limit = self.messages or state.message_limit
        if state.message_limit is None and self.tokens is None and state.token_limit is None:
            state.message_limit = MESSAGES
        tried = 0
        with limited_tokens(self.tokens):
            while not state.completed:
                state = await generate(state, tool_calls="none", cache=self.cache)
                if state.output.stop_reason == "model_length":
                    transcript().info("The agent has ended: the conversation does not fit the model.")
                    break
                if not state.output.message.tool_calls:
                    state.messages.append(ChatMessageUser(content=self.on))
                    continue
                made, _ = await execute_tools([state.output.message], state.tools, self.size)
                state.messages.extend(made)
                if (answer := self._answer(made)) is not None:
                    said = f"{state.output.completion}\n\n{answer}".strip()
                    state.output.completion = said if self.append else answer
                    tried += 1
                    if tried >= self.attempts or not await self._wrong(state):
                        break
        return state

    def _answer(self, made: Sequence[ChatMessage]) -> str | None:
        for message in made:
            if isinstance(message, ChatMessageTool) and message.function == self.submit and message.error is None:
                return message.text
        return None

    async def _wrong(self, state: TaskState) -> bool:
        """Whether the answer is wrong, which the model is told then."""
        scores = await score(state)
        if not scores or self.to_float(scores[0].value) == 1.0:
            return False
        told = self.wrong if isinstance(self.wrong, str) else self.wrong(state, scores)
        text = await told if inspect.isawaitable(told) else told
        state.messages.append(ChatMessageUser(content=str(text)))
        return True
