"""`react`: an agent that calls tools until it submits an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, cast

from attrs import define, field

from proctor.agent.agent import Agent, AgentState, agent, agent_with
from proctor.agent.prompts import (
    CONTINUE_PROMPT,
    CONTINUE_PROMPT_NO_SUBMIT,
    AgentAttempts,
    AgentContinue,
    AgentPrompt,
    AgentSubmit,
)
from proctor.errors import UsageError
from proctor.log.transcript import transcript
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    ContentText,
)
from proctor.model.model import Model, get_model
from proctor.model.trim import trim_messages
from proctor.runtime import new_id
from proctor.scorer.intermediate import score
from proctor.tool.definition import Tool, ToolDef, ToolSource, tool
from proctor.tool.execution import execute_tools

REFUSALS = 3  # answers in a row that a content filter stopped, after which the agent ends, as in Inspect

MessageFilter = Callable[[list[ChatMessage]], Awaitable[list[ChatMessage]]]


@agent
def react(
    *,
    name: str | None = None,
    description: str | None = None,
    prompt: str | AgentPrompt | None = AgentPrompt(),  # noqa: B008  # a value, and the default that users know
    tools: Sequence[Tool | ToolDef | ToolSource] | None = None,
    model: str | Model | Agent | None = None,
    attempts: int | AgentAttempts = 1,
    submit: AgentSubmit | bool | None = None,
    on_continue: str | AgentContinue | None = None,
    retry_refusals: int | None = None,
    truncation: Literal["auto", "disabled"] | MessageFilter = "disabled",
) -> Agent:
    """An agent that reasons and calls tools in turns, until it submits an answer.

    Args:
        name, description: for other agents that may call this one.
        prompt: instructions, or the parts of the system message; None for no system message.
        tools: that it has besides the one to submit with.
        model: default the evaluated model; an agent with a parameter ``tools`` in place of a model.
        attempts: answers it may give; with more than one the task's first scorer judges each.
        submit: the tool to submit with; False: the agent ends when its model calls no tool.
        on_continue: what a model is told that called no tool, or an async function asked after every turn.
        retry_refusals: how often a refused answer is asked for again.
        truncation: what to do when the conversation no longer fits the model: end, shorten it with `trim_messages`
            (``auto``), or with a function of your own.

    Raises:
        UsageError: a text for `on_continue` without a tool to submit with.
    """
    if submit is False and isinstance(on_continue, str):
        raise UsageError(
            "react: without a tool to submit with, an agent ends when no tool is called: no on_continue text"
        )
    chosen = None if submit is False else submit if isinstance(submit, AgentSubmit) else AgentSubmit()
    submitting = None if chosen is None else _submit_tool(chosen)
    offered = [*(tools or []), *([submitting] if submitting is not None else [])]

    async def execute(state: AgentState) -> AgentState:
        if (system := _system_message(prompt, offered, submitting)) is not None:
            state.messages.insert(0, system)
        loop = _Loop(
            state=state,
            tools=offered,
            model=model,
            attempts=AgentAttempts(attempts) if isinstance(attempts, int) else attempts,
            submit=chosen,
            submit_name=None if submitting is None else submitting.name,
            on_continue=on_continue,
            refusals=retry_refusals or 0,
            shorten=trim_messages if truncation == "auto" else None if truncation == "disabled" else truncation,
        )
        return await loop.run()

    return agent_with(cast("Agent", execute), name=name, description=description) if name or description else execute


def _submit_tool(submit: AgentSubmit) -> ToolDef:
    made = ToolDef(_default_submit() if submit.tool is None else _as_tool(submit.tool), submit.name, submit.description)
    if made.max_output is None:
        made.max_output = 0  # the answer is scored: a notice in the place of its middle would be
    return made


def _as_tool(given: Tool | ToolDef) -> Tool:
    return given.as_tool() if isinstance(given, ToolDef) else given


@tool(name="submit")
def _default_submit() -> Tool:
    async def execute(answer: str) -> str:
        """Submit the final answer.

        Args:
            answer: The answer.
        """
        return answer

    return execute


def _system_message(
    prompt: str | AgentPrompt | None, tools: Sequence[Any], submit: ToolDef | None
) -> ChatMessageSystem | None:
    if not prompt:
        return None
    parts = AgentPrompt(prompt) if isinstance(prompt, str) else prompt
    lines = [parts.instructions]
    if any(_hands_over(each) for each in tools):
        lines.append(parts.handoff_prompt)
    if (text := parts.assistant_prompt) is not None:
        if submit is not None and "{submit}" not in text and parts.submit_prompt:
            text = f"{text}\n{parts.submit_prompt}"
        lines.append(text.replace("{submit}", "submit" if submit is None else submit.name))
    return ChatMessageSystem(id=new_id(), content="\n\n".join(line for line in lines if line))


def _hands_over(given: Any) -> bool:
    definition = given if isinstance(given, ToolDef) else getattr(given, "__proctor_tool__", None)
    return hasattr(getattr(definition, "tool", None), "hand_over")


@define(eq=False)
class _Loop:
    """The turns of one agent."""

    state: AgentState
    tools: list[Any]
    model: str | Model | Agent | None
    attempts: AgentAttempts
    submit: AgentSubmit | None
    submit_name: str | None
    on_continue: str | AgentContinue | None
    refusals: int
    shorten: MessageFilter | None
    tried: int = field(default=0, init=False)
    refused: int = field(default=0, init=False)

    async def run(self) -> AgentState:
        while await self._turn():
            pass
        if self.submit is not None and not self.submit.keep_in_messages:
            self.state.messages = _without_calls(self.state.messages, self.submit_name)
        return self.state

    async def _turn(self) -> bool:
        """One answer of the model and the tools it asks for; whether there is another turn."""
        await self._generate()
        reason = None if self.state.output.empty else self.state.output.stop_reason
        if reason == "model_length":
            return await self._shortened()
        self.refused = self.refused + 1 if reason == "content_filter" else 0
        if self.refused >= REFUSALS:
            return False
        called = False
        if not self.state.output.empty and self.state.output.message.tool_calls:
            called = True
            made, output = await execute_tools(self.state.messages, self.tools)
            self.state.messages.extend(made)
            self.state.output = output or self.state.output
            if (answer := self._answer(made)) is not None and not await self._try_again(answer):
                return False
        return await self._goes_on(called)

    async def _generate(self) -> None:
        model = self.model
        if callable(model) and not isinstance(model, Model):
            self.state = await model(self.state, self.tools)
            return
        asked = get_model(model)
        output = await asked.generate(self.state.messages, self.tools)
        for _ in range(self.refusals):
            if output.stop_reason != "content_filter":
                break
            output = await asked.generate(self.state.messages, self.tools)
        self.state.output = output
        self.state.messages.append(output.message)

    async def _shortened(self) -> bool:
        """The conversation does not fit the model: shorten it, if that is wanted and helps."""
        before = list(self.state.messages[:-1])
        if self.shorten is not None:
            after = await self.shorten(before)
            if len(after) < len(before):
                transcript().info("The conversation did not fit the model any more and was shortened.")
                self.state.messages = after
                return True
        transcript().info("The agent has ended: the conversation does not fit the model.")
        return False

    def _answer(self, made: Sequence[ChatMessage]) -> str | None:
        for message in made:
            if isinstance(message, ChatMessageTool) and message.function == self.submit_name and message.error is None:
                return message.text
        return None

    async def _try_again(self, answer: str) -> bool:
        """Take an answer; whether it was wrong and may be given anew."""
        submit, output = self.submit, self.state.output
        assert submit is not None
        said = f"{output.completion}{submit.answer_delimiter}{answer}".strip()
        output.completion = answer if submit.answer_only else said
        if not submit.keep_in_messages and output.choices:
            message = output.choices[0].message
            if isinstance(message.content, str):
                message.content = f"{message.content}{submit.answer_delimiter}{answer}".strip()
            else:
                message.content.append(ContentText(text=answer))
        self.tried += 1
        if self.tried >= self.attempts.attempts:
            return False
        scores = await score(self.state)
        if not scores or self.attempts.score_value(scores[0].value) == 1.0:
            return False
        told = self.attempts.incorrect_message
        text = told if isinstance(told, str) else await told(self.state, scores)
        self.state.messages.append(ChatMessageUser(id=new_id(), content=text))
        return True

    async def _goes_on(self, called: bool) -> bool:
        usual = CONTINUE_PROMPT if self.submit is not None else CONTINUE_PROMPT_NO_SUBMIT
        if not callable(self.on_continue):
            if called:
                return True
            if self.submit is None:
                return False
            self._tell(self.on_continue or usual)
            return True
        said = await self.on_continue(self.state)
        if isinstance(said, AgentState):
            self.state.messages, self.state.output = said.messages, said.output
        elif isinstance(said, str):
            self._tell(said)
        elif said and not called:
            self._tell(usual)
        return bool(said)

    def _tell(self, text: str) -> None:
        content = text.replace("{submit}", self.submit_name or "submit")
        self.state.messages.append(ChatMessageUser(id=new_id(), content=content))


def _without_calls(messages: Sequence[ChatMessage], name: str | None) -> list[ChatMessage]:
    """A conversation without the calls of a tool and their results: agents above have a tool of that name too."""
    kept: list[ChatMessage] = []
    for message in messages:
        if isinstance(message, ChatMessageTool) and message.function == name:
            continue
        calls = message.tool_calls if isinstance(message, ChatMessageAssistant) else None
        if calls and any(call.function == name for call in calls):
            left = [call for call in calls if call.function != name]
            kept.append(message.model_copy(update={"tool_calls": left or None}))
        else:
            kept.append(message)
    return kept
