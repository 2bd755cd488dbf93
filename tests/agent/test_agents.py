"""Agents: `react`, agents as solvers and tools, handoffs, runs by hand."""

from __future__ import annotations

from typing import Any

import pytest

from proctor import Task, open_runtime
from proctor.agent import (
    Agent,
    AgentAttempts,
    AgentPrompt,
    AgentState,
    AgentSubmit,
    agent,
    agent_with,
    as_solver,
    as_tool,
    handoff,
    is_agent,
    react,
    remove_tools,
    run,
)
from proctor.dataset import Sample
from proctor.errors import UsageError
from proctor.log.records import EvalSample
from proctor.model import ChatMessage, ChatMessageAssistant, ChatMessageUser, ModelOutput, get_model
from proctor.model.toolcall import ToolCall
from proctor.scorer import includes
from proctor.solver import generate
from proctor.testing import simulate
from proctor.tool import Tool, ToolDef, tool
from proctor.util import message_limit, token_limit, turn_limit


@tool
def add() -> Tool:
    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: The first.
            y: The second.
        """
        return x + y

    return execute


def calling(function: str, content: str = "", **arguments: Any) -> ModelOutput:
    call = ToolCall(f"call-{function}-{arguments}", function, arguments)
    return ModelOutput.from_message(ChatMessageAssistant(content=content, tool_calls=[call]), "tool_calls")


async def played(solver: Any, outputs: Any, **options: Any) -> EvalSample:
    task = Task([Sample(id=1, input="1+2", target="3")], solver=solver, scorer=includes())
    [log] = await simulate(task, get_model("mock/x", custom_outputs=outputs, memoize=False), **options)
    assert log.samples is not None
    return log.samples[0]


def said(messages: list[ChatMessage]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages if message.role != "system"]


# -- react ------------------------------------------------------------------------------------------------------------


async def test_react_calls_tools_until_it_submits_an_answer() -> None:
    outputs = [calling("add", x=1, y=2), "so it is three", calling("submit", "done:", answer="3")]
    sample = await played(react(prompt="Be quick.", tools=[add()]), outputs)
    assert sample.error is None, sample.error
    assert said(sample.messages) == [
        ("user", "1+2"),
        ("assistant", ""),
        ("tool", "3"),
        ("assistant", "so it is three"),
        ("user", sample.messages[5].text),
        ("assistant", "done:\n\n3"),
    ]
    assert "`submit()`" in sample.messages[5].text
    assert sample.messages[0].text.startswith("Be quick.\n\nYou are an assistant")
    assert "with the tool submit()." in sample.messages[0].text
    last = sample.messages[-1]
    assert isinstance(last, ChatMessageAssistant)
    assert last.tool_calls is None
    assert sample.output.completion == "done:\n\n3"
    assert sample.scores is not None
    assert sample.scores["includes"].value == "C"
    spans = [(event.type, event.name) for event in sample.events if event.event == "span_begin"]
    assert ("solver", "react") in spans
    assert ("agent", "react") in spans


async def test_the_submit_tool_can_be_another() -> None:
    submit = AgentSubmit(name="report", description="Report it.", answer_only=True, keep_in_messages=True)
    heard: list[str] = []

    def answer(input: list[ChatMessage], tools: Any, *_: Any) -> ModelOutput:
        heard.extend(f"{info.name}: {info.description}" for info in tools)
        return calling("report", "text", answer="3")

    sample = await played(react(submit=submit, prompt=AgentPrompt(assistant_prompt="Use {submit}.")), answer)
    assert heard == ["report: Report it."]
    assert sample.output.completion == "3"
    assert [message.role for message in sample.messages] == ["system", "user", "assistant", "tool"]
    assert sample.messages[0].text == "Use report."


async def test_a_wrong_answer_may_be_given_anew() -> None:
    outputs = [calling("submit", answer="4"), calling("submit", answer="3"), "never asked"]
    sample = await played(react(attempts=AgentAttempts(3, "Wrong.")), outputs)
    assert sample.error is None, sample.error
    assert ("user", "Wrong.") in said(sample.messages)
    assert sample.output.completion == "3"
    scores = [event for event in sample.events if event.event == "score"]
    assert [(event.intermediate, event.score.value) for event in scores] == [(True, "I"), (True, "C"), (False, "C")]


async def test_without_a_submit_tool_it_ends_when_no_tool_is_called() -> None:
    sample = await played(react(tools=[add()], submit=False), [calling("add", x=1, y=2), "3"])
    assert [role for role, _ in said(sample.messages)] == ["user", "assistant", "tool", "assistant"]
    with pytest.raises(UsageError, match="no on_continue text"):
        react(submit=False, on_continue="go on")


async def test_what_it_is_told_to_go_on_with() -> None:
    sample = await played(react(on_continue="Use {submit}!"), ["hm", calling("submit", answer="3")])
    assert ("user", "Use submit!") in said(sample.messages)
    turns: list[int] = []

    async def twice(state: AgentState) -> bool | str:
        turns.append(len(state.messages))
        return "more" if len(turns) < 2 else False

    ended = await played(react(on_continue=twice), ["one", "two", "three"])
    assert [text for role, text in said(ended.messages) if role == "user"] == ["1+2", "more"]
    assert len(turns) == 2


async def test_it_ends_with_its_sample() -> None:
    sample = await played(react(tools=[add()]), lambda *_: calling("add", x=1, y=2), turn_limit=3)
    assert sample.limit is not None
    assert (sample.limit.type, sample.turn_count, sample.error) == ("turn", 3, None)


async def test_refusals_and_conversations_that_do_not_fit() -> None:
    def refused(*_: Any) -> ModelOutput:
        return ModelOutput.from_content("m", "no", stop_reason="content_filter")

    sample = await played(react(), refused)
    assert sample.turn_count == 3
    again = await played(react(retry_refusals=1), [refused(), calling("submit", answer="3")])
    assert [role for role, _ in said(again.messages)] == ["user", "assistant"]
    long = ModelOutput.from_content("m", "too long", stop_reason="model_length")
    ended = await played(react(), [long])
    assert [event.data for event in ended.events if event.event == "info"] == [
        "The agent has ended: the conversation does not fit the model."
    ]
    outputs = [*(calling("add", x=n, y=0) for n in range(5)), long, calling("submit", answer="3")]
    trimmed = await played(react(tools=[add()], truncation="auto"), outputs)
    assert trimmed.error is None
    assert len([message for message in trimmed.messages if message.role == "tool"]) == 3


# -- agents of one's own ----------------------------------------------------------------------------------------------


@agent(description="Adds up.")
def adder(places: int = 0) -> Agent:
    async def execute(state: AgentState, exact: bool = True) -> AgentState:
        """Add up.

        Args:
            exact: Whether to be exact.
        """
        state.output = await get_model().generate(state.messages)
        state.messages.append(state.output.message)
        state.messages.append(ChatMessageUser(content=f"exact: {exact}"))
        return state

    return execute


async def test_an_agent_is_a_solver() -> None:
    sample = await played([adder(), as_solver(adder(), exact=False)], ["3", "4"])
    assert sample.error is None, sample.error
    assert said(sample.messages) == [
        ("user", "1+2"),
        ("assistant", "3"),
        ("user", "exact: True"),
        ("assistant", "4"),
        ("user", "exact: False"),
    ]
    assert sample.output.completion == "4"


async def test_an_agent_as_a_tool_is_given_a_text_and_gives_its_answer() -> None:
    definition = ToolDef(as_tool(adder()))
    assert definition.info.model_dump(exclude_none=True) == {
        "name": "adder",
        "description": "Adds up.",
        "parameters": {
            "type": "object",
            "properties": {
                "input": {"type": "string", "description": "The input of the agent, as a message."},
                "exact": {"type": "boolean", "description": "Whether to be exact.", "default": True},
            },
            "required": ["input"],
            "additionalProperties": False,
        },
    }
    assert list(ToolDef(as_tool(adder(), exact=False)).parameters.properties) == ["input"]
    outputs = [calling("adder", input="add", exact=False), "it is 3", calling("submit", answer="3")]
    sample = await played(react(tools=[as_tool(adder())]), outputs)
    assert sample.error is None, sample.error
    assert ("tool", "it is 3") in said(sample.messages)


async def test_limits_of_an_agent_as_a_tool_hold_for_each_call() -> None:
    outputs = [
        calling("adder", input="one"),
        "3",
        calling("adder", input="two"),
        "4",
        calling("submit", answer="3"),
    ]
    sample = await played(react(tools=[as_tool(adder(), limits=[turn_limit(1)])]), outputs)
    assert [text for role, text in said(sample.messages) if role == "tool"] == ["3", "4"]
    outputs = [calling("adder", input="one"), "a long answer", calling("submit", answer="3")]
    limited = await played(react(tools=[as_tool(adder(), limits=[token_limit(1)])]), outputs)
    errors = [message.error for message in limited.messages if message.role == "tool"]
    assert [error and error.type for error in errors] == ["limit"]


async def test_a_handoff_adds_the_agents_messages_to_the_conversation() -> None:
    tool = handoff(adder())
    assert ToolDef(tool).name == "transfer_to_adder"
    outputs = [calling("transfer_to_adder", exact=False), "it is 3", calling("submit", answer="3")]
    sample = await played(react(tools=[tool]), outputs)
    assert sample.error is None, sample.error
    assert said(sample.messages)[2:5] == [
        ("tool", "Successfully transferred to adder."),
        ("assistant", "[adder] it is 3"),
        ("user", "exact: False"),
    ]
    event: Any = next(event for event in sample.events if event.event == "tool")
    assert event.agent == "adder"
    assert "transfer_to_<agent>" in sample.messages[0].text


async def test_a_limited_handoff_lets_the_conversation_go_on() -> None:
    tool = handoff(adder(), limits=[token_limit(1)], input_filter=remove_tools)
    outputs = [calling("transfer_to_adder"), "a long answer", calling("submit", answer="3")]
    sample = await played(react(tools=[tool]), outputs)
    assert sample.error is None, sample.error
    assert any("The agent adder was stopped: token limit" in text for _, text in said(sample.messages))


async def test_a_run_by_hand_copies_its_input() -> None:
    async with open_runtime():
        model = get_model("mock/x", custom_outputs=lambda *_: "3", memoize=False)
        with_model = react(model=model, submit=False, prompt=None)
        given: list[ChatMessage] = [ChatMessageUser(content="1+2")]
        state = await run(with_model, given)
        assert said(state.messages) == [("user", "1+2"), ("assistant", "3")]
        assert len(given) == 1
        state, met = await run(with_model, "1+2", limits=[message_limit(1)])
        assert met is not None
        assert met.type == "message"
        state, met = await run(with_model, state, limits=[turn_limit(5)])
        assert met is None


async def test_names_and_descriptions_of_agents() -> None:
    assert is_agent(adder())
    assert not is_agent(generate())
    named = agent_with(react(submit=False), name="web surfer", description="Surfs.")
    assert ToolDef(handoff(named)).name == "transfer_to_web_surfer"
    assert ToolDef(as_tool(react(name="coder", description="Codes."))).description == "Codes."
    with pytest.raises(UsageError, match="is no agent"):
        as_tool(generate())  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has no description"):
        as_tool(react())

    @agent
    def needy() -> Agent:
        async def execute(state: AgentState, task: str) -> AgentState:
            return state

        return execute

    with pytest.raises(UsageError, match="the agent needy needs 'task'"):
        as_solver(needy())
