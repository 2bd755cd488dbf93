"""Tools in an evaluation: the loop of `generate`, its ways to end, limits on it, and what the log keeps."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import anyio
import pytest

from proctor import Task, open_runtime
from proctor.dataset import Sample
from proctor.errors import UsageError
from proctor.log.records import EvalSample
from proctor.model import (
    ChatMessage,
    ChatMessageAssistant,
    ContentText,
    GenerateConfig,
    ModelOutput,
    get_model,
)
from proctor.model.toolcall import ToolCall, ToolCallContent, ToolCallView, ToolChoice, ToolFunction, ToolInfo
from proctor.runtime import current_sample
from proctor.solver import Generate, Solver, TaskState, generate, solver, use_tools
from proctor.testing import simulate
from proctor.testing.fake_sandbox import FakeSandbox
from proctor.tool import Tool, ToolDef, ToolError, tool
from proctor.util import sandbox, token_limit


@tool
def add() -> Tool:
    async def execute(x: int, y: int) -> int:
        """Add two numbers.

        Args:
            x: The first.
            y: The second.
        """
        if x < 0:
            raise ToolError("only what is not negative")
        return x + y

    return execute


@tool(parallel=True)
def wait() -> Tool:
    async def execute(seconds: float) -> str:
        """Wait.

        Args:
            seconds: How long.
        """
        await anyio.sleep(seconds)
        return f"waited {seconds:g}"

    return execute


def calling(*calls: dict[str, Any], function: str = "add") -> ModelOutput:
    asked = [ToolCall(f"c{n}", function, arguments) for n, arguments in enumerate(calls)]
    return ModelOutput.from_message(ChatMessageAssistant(content="", tool_calls=asked), "tool_calls")


async def played(outputs: Any, *solvers: Solver, **options: Any) -> EvalSample:
    """The one sample of an evaluation with a scripted model."""
    task = Task([Sample(id=1, input="1+2", target="3")], solver=[*solvers])
    config = options.pop("config", GenerateConfig())
    [log] = await simulate(task, get_model("mock/x", custom_outputs=outputs, memoize=False, config=config), **options)
    assert log.samples is not None
    return log.samples[0]


def said(sample: EvalSample) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in sample.messages]


async def test_tools_are_run_until_the_model_asks_for_none() -> None:
    outputs = [calling({"x": 1, "y": 2}), calling({"x": -1, "y": 2}, {"x": 3, "y": 4}), "it is 3"]
    sample = await played(outputs, use_tools(add()), generate())
    assert sample.error is None
    assert said(sample) == [
        ("user", "1+2"),
        ("assistant", ""),
        ("tool", "3"),
        ("assistant", ""),
        ("tool", ""),
        ("tool", "7"),
        ("assistant", "it is 3"),
    ]
    failed: Any = sample.messages[4]
    assert (failed.error.type, failed.error.message) == ("unknown", "only what is not negative")
    assert sample.output.completion == "it is 3"


async def test_a_script_of_tool_calls_drives_the_loop() -> None:
    outputs = [ModelOutput.for_tool_call("mock", "add", {"x": 1, "y": 2}), "three"]
    sample = await played(outputs, use_tools([add(), wait()]), generate())
    assert [role for role, _ in said(sample)] == ["user", "assistant", "tool", "assistant"]


@pytest.mark.parametrize(("way", "roles"), [("single", ["user", "assistant", "tool"]), ("none", ["user", "assistant"])])
async def test_other_ways_to_call_tools(way: Any, roles: list[str]) -> None:
    sample = await played([calling({"x": 1, "y": 2})], use_tools(add()), generate(tool_calls=way))
    assert [role for role, _ in said(sample)] == roles
    assert sample.error is None


async def test_a_way_that_there_is_not_is_refused() -> None:
    sample = await played(["x"], generate(tool_calls="twice"))  # type: ignore[arg-type]
    assert sample.error is not None
    assert "tool_calls must be one of loop, single, none, not 'twice'" in sample.error.message


async def test_a_tool_that_completes_the_state_ends_the_loop() -> None:
    @solver
    def prepared() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            async def finish() -> str:
                """Finish."""
                state.completed = True
                return "finished"

            state.tools = [ToolDef(finish)]
            return await generate(state)

        return solve

    sample = await played([calling({}, function="finish")], prepared())
    assert said(sample)[-1] == ("tool", "finished")


async def test_what_the_model_is_offered() -> None:
    asked: list[tuple[list[str], ToolChoice]] = []

    def answer(
        input: list[ChatMessage], tools: list[ToolInfo], choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | str:
        asked.append(([info.name for info in tools], choice))
        return calling({"seconds": 1}, function="wait") if len(asked) == 2 else "done"

    await played(
        answer,
        generate(),
        use_tools(add(), [wait()], tool_choice=ToolFunction("wait")),
        generate(),
        use_tools(tool_choice="none"),
        generate(),
        use_tools(ToolDef(add(), name="plus"), tool_choice=None, append=True),
        use_tools(tool_choice="any"),
        generate(),
        use_tools(wait()),
        generate(),
    )
    assert asked == [
        ([], "none"),
        (["wait"], ToolFunction("wait")),
        (["add", "wait"], "auto"),  # once forced, it is not forced again
        ([], "none"),
        (["add", "wait", "plus"], "any"),
        (["wait"], "auto"),
    ]


async def test_a_choice_of_a_tool_that_is_not_offered_is_refused() -> None:
    sample = await played(["x"], use_tools(add(), tool_choice=ToolFunction("sub")), generate())
    assert sample.error is not None
    assert "tool_choice names the tool 'sub', which is not offered; offered: add" in sample.error.message


async def test_parallel_calls_take_the_time_of_the_longest() -> None:
    outputs = [calling({"seconds": 3}, {"seconds": 1}, {"seconds": 2}, function="wait"), "done"]
    sample = await played(outputs, use_tools(wait()), generate())
    assert [text for role, text in said(sample) if role == "tool"] == ["waited 3", "waited 1", "waited 2"]
    assert sample.total_time == pytest.approx(3)
    assert sample.working_time == pytest.approx(3)


async def test_turn_and_message_and_token_limits_end_the_loop() -> None:
    def for_ever(*_: Any) -> ModelOutput:
        return calling({"x": 1, "y": 2})

    turns = await played(for_ever, use_tools(add()), generate(), turn_limit=3)
    assert (turns.limit and turns.limit.type, turns.turn_count, turns.error) == ("turn", 3, None)
    assert [role for role, _ in said(turns)] == ["user", *["assistant", "tool"] * 3]
    messages = await played(for_ever, use_tools(add()), generate(), message_limit=4)
    assert (messages.limit and messages.limit.type, len(messages.messages)) == ("message", 4)
    tokens = await played(for_ever, use_tools(add()), generate(), token_limit=5)
    assert tokens.limit is not None
    assert tokens.limit.type == "token"
    seconds = await played([calling({"seconds": 60}, function="wait")], use_tools(wait()), generate(), time_limit=10)
    assert (seconds.limit and seconds.limit.type, seconds.total_time) == ("time", pytest.approx(10))


async def test_a_limit_inside_a_tool_is_told_to_the_model_and_the_samples_own_is_not() -> None:
    @tool
    def ask() -> Tool:
        async def execute() -> str:
            """Ask another model."""
            with token_limit(1):
                return (await get_model("mock/grader").generate("a question of many tokens")).completion

        return execute

    outputs = [calling({}, function="ask"), "done"]
    inner = await played(outputs, use_tools(ask()), generate())
    assert inner.limit is None
    assert inner.error is None
    told: Any = inner.messages[2]
    assert told.error.type == "limit"
    outer = await played(outputs, use_tools(ask()), generate(), token_limit=3)
    assert outer.limit is not None
    assert outer.limit.type == "token"


async def test_an_error_of_a_tool_that_is_a_bug_is_the_samples_error() -> None:
    async def broken() -> str:
        """Break."""
        raise KeyError("bug")

    sample = await played([calling({}, function="broken")], use_tools(ToolDef(broken)), generate())
    assert sample.error is not None
    assert "KeyError" in sample.error.message
    assert said(sample)[-1][0] == "assistant"


@pytest.mark.parametrize("where", ["model", "eval", "call"])
async def test_the_size_of_results_can_be_configured(where: str) -> None:
    @tool
    def tell() -> Tool:
        async def execute() -> str:
            """Tell a lot."""
            return "x" * 1000

        return execute

    sample = await played(
        [calling({}, function="tell"), "done"],
        use_tools(tell()),
        generate(**({"max_tool_output": 10} if where == "call" else {})),
        config=GenerateConfig(max_tool_output=10 if where == "model" else None),
        **({"max_tool_output": 10} if where == "eval" else {}),
    )
    assert "The output of tell was 1,000 bytes long" in sample.messages[2].text
    event: Any = next(event for event in sample.events if event.event == "tool")
    assert event.truncated == (1000, 10)


async def test_the_transcript_of_a_tool_that_calls_a_model() -> None:
    @tool
    def ask() -> Tool:
        async def execute() -> str:
            """Ask another model."""
            return (await get_model("mock/other").generate("what?")).completion

        return execute

    sample = await played([calling({}, function="ask"), "done"], use_tools(ask()), generate())
    kinds = [(event.event, getattr(event, "name", getattr(event, "model", ""))) for event in sample.events]
    start = kinds.index(("model", "mock/x"))
    assert kinds[start : start + 6] == [
        ("model", "mock/x"),
        ("span_begin", "ask"),
        ("tool", ""),
        ("model", "mock/other"),
        ("span_end", ""),
        ("model", "mock/x"),
    ]
    tool_event: Any = sample.events[start + 2]
    inner: Any = sample.events[start + 3]
    assert tool_event.span_id == inner.span_id
    assert tool_event.message_id == sample.messages[2].id


async def test_a_tool_may_call_the_model_that_called_it() -> None:
    """While a tool runs no connection is held, so that one is enough for both."""

    @tool
    def ask() -> Tool:
        async def execute() -> str:
            """Ask the same model."""
            return (await get_model().generate("what?")).completion

        return execute

    outputs = [calling({}, {}, function="ask"), "inner", "inner", "done"]
    sample = await played(outputs, use_tools(ask()), generate(), config=GenerateConfig(max_connections=1))
    assert sample.error is None
    assert [text for role, text in said(sample) if role == "tool"] == ["inner", "inner"]


async def test_a_viewer_shows_calls_in_the_models_message_and_in_the_event() -> None:
    def viewer(call: ToolCall) -> ToolCallView:
        return ToolCallView(call=ToolCallContent(format="markdown", content=f"**{json.dumps(call.arguments)}**"))

    shown = ToolDef(add(), viewer=viewer).as_tool()
    sample = await played([calling({"x": 1, "y": 2}), "3"], use_tools(shown), generate())
    message: Any = sample.messages[1]
    event: Any = next(event for event in sample.events if event.event == "tool")
    assert message.tool_calls[0].view == event.view
    assert event.view.content == '**{"x": 1, "y": 2}**'


async def test_what_of_results_the_model_is_played_back() -> None:
    heard: list[list[str]] = []

    def answer(input: list[ChatMessage], *_: Any) -> ModelOutput | str:
        heard.append([message.text for message in input if message.role == "tool"])
        return calling({"x": len(heard), "y": 0}) if len(heard) < 4 else "done"

    def only_the_last(index: int, total: int, content: Any) -> Any:
        return content if index == total - 1 else [ContentText(text="(left out)")]

    forgetful = ToolDef(add(), model_input=only_the_last).as_tool()
    sample = await played(answer, use_tools(forgetful), generate())
    assert heard == [[], ["1"], ["(left out)", "2"], ["(left out)", "(left out)", "3"]]
    assert [text for role, text in said(sample) if role == "tool"] == ["1", "2", "3"]


async def test_generate_loop_of_a_model() -> None:
    model = get_model("mock/x", custom_outputs=[calling({"x": 1, "y": 2}), "three"], memoize=False)
    async with open_runtime():
        added, output = await model.generate_loop("1+2", [add()])
        assert [message.role for message in added] == ["assistant", "tool", "assistant"]
        assert output.completion == "three"
        with pytest.raises(UsageError, match=r"add makes a tool: call it"):
            await model.generate("1+2", [add])  # type: ignore[list-item]


@pytest.mark.parametrize("way", ["done", "error", "limit"])
async def test_what_a_tool_keeps_is_ended_with_the_sample_while_its_sandbox_is_there(
    way: str, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeSandbox(removal=1)
    told: list[str] = []

    async def close(name: str) -> None:
        await sandbox().exec(["close", name])
        told.append(name)
        if name == "second":
            raise RuntimeError("stuck")

    async def keep(name: str) -> str:
        """Keep something.

        Args:
            name: What.
        """
        sample = current_sample()
        assert sample is not None
        sample.at_end.append(partial(close, name))
        if name == "second" and way == "error":
            raise KeyError("bug")
        return "kept"

    outputs = [calling({"name": "first"}, {"name": "second"}, function="keep"), "done"]
    task = Task([Sample(id=1, input="x")], solver=[use_tools(ToolDef(keep)), generate()], sandbox=fake.spec)
    model = get_model("mock/x", custom_outputs=outputs, memoize=False)
    [log] = await simulate(task, model, turn_limit=1 if way == "limit" else None)
    assert log.samples is not None
    assert told == ["second", "first"]
    assert [command.cmd for command in fake.commands] == [("close", "second"), ("close", "first")]
    assert (log.samples[0].error is not None) == (way == "error")
    assert (fake.removed, len(fake.live)) == (1, 0)
    assert "could not be ended" in caplog.text
