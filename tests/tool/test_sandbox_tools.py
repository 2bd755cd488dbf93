"""`bash`, `python`, `text_editor` and `think` on a played sandbox."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from proctor import Task
from proctor.dataset import Sample
from proctor.errors import OptionError, ToolParsingError
from proctor.model import ChatMessageAssistant, ChatMessageTool, ModelOutput, get_model
from proctor.model.toolcall import ToolCall
from proctor.process import ExecResult
from proctor.registry import lookup
from proctor.solver import generate, use_tools
from proctor.testing import simulate
from proctor.testing.fake_sandbox import FakeSandbox, FakeSandboxCommand
from proctor.tool import Tool, ToolDef, bash, bash_session, python, text_editor, think
from proctor.tool.sessions import _typed

LINES = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten"


async def played(fake: FakeSandbox, tool: Tool, *calls: dict[str, Any], at_once: bool = False) -> list[ChatMessageTool]:
    """What a tool answers to calls, one a message or all in one."""
    name = ToolDef(tool).name
    asked = [ToolCall(f"c{n}", name, arguments) for n, arguments in enumerate(calls)]
    groups = [asked] if at_once else [[call] for call in asked]
    outputs: list[Any] = [
        ModelOutput.from_message(ChatMessageAssistant(content="", tool_calls=group), "tool_calls") for group in groups
    ]
    task = Task([Sample(id=1, input="x", target="y")], solver=[use_tools(tool), generate()], sandbox=fake.spec)
    [log] = await simulate(task, get_model("mock/x", custom_outputs=[*outputs, "done"], memoize=False))
    assert log.samples is not None
    sample = log.samples[0]
    assert sample.error is None, sample.error
    return [message for message in sample.messages if isinstance(message, ChatMessageTool)]


async def test_bash_runs_a_command_with_its_login_shell() -> None:
    def answer(command: FakeSandboxCommand) -> ExecResult[str]:
        return ExecResult(False, 1, "out\n", "err")

    fake = FakeSandbox(answer=answer)
    [message] = await played(fake, bash(timeout=7), {"command": "ls -l"})
    assert message.content == "err\nout\n"
    [command] = fake.commands
    assert (command.cmd, command.timeout) == (("bash", "--login", "-c", "ls -l"), 7)


async def test_python_gives_its_program_on_standard_input() -> None:
    fake = FakeSandbox(answer="3\n")
    [message] = await played(fake, python(), {"code": "print(3)"})
    assert message.content == "3\n"
    assert fake.commands[0].input == b"print(3)"


async def test_commands_of_one_message_run_at_once() -> None:
    fake = FakeSandbox(command=5)
    began = anyio.current_time()
    await played(fake, bash(), {"command": "a"}, {"command": "b"}, {"command": "c"}, at_once=True)
    assert anyio.current_time() - began < 10
    assert {command.cmd[-1] for command in fake.commands} == {"a", "b", "c"}


async def test_a_command_that_takes_too_long_is_told_to_the_model() -> None:
    [message] = await played(FakeSandbox(command=50), bash(timeout=3), {"command": "sleep 50"})
    assert message.error is not None
    assert message.error.type == "timeout"


async def test_a_sandbox_that_is_gone_is_an_error_of_the_sample_even_when_the_model_was_told() -> None:
    fake = FakeSandbox()
    fake.answer = lambda command: fake.kill_all() or ""
    outputs = [ModelOutput.for_tool_call("m", "bash", {"command": "a"}), "done"]
    task = Task([Sample(id=1, input="x", target="y")], solver=[use_tools(bash()), generate()], sandbox=fake.spec)
    [log] = await simulate(task, get_model("mock/x", custom_outputs=outputs, memoize=False))
    assert log.samples is not None
    assert log.samples[0].error is not None
    assert "is gone" in log.samples[0].error.message


async def test_one_of_several_environments() -> None:
    fake = FakeSandbox(names=("default", "victim"))
    await played(fake, bash(sandbox="victim"), {"command": "a"})
    assert fake.commands[0].environment.name == "victim"


def test_what_a_model_is_told_of_background_commands() -> None:
    plain, told, limited = ToolDef(bash()), ToolDef(bash(background=True)), ToolDef(bash(timeout=9, background=True))
    assert plain.name == told.name == limited.name == "bash"
    assert "nohup" not in plain.description
    assert "nohup" in told.description
    assert "longer than 9 seconds is stopped" in limited.description
    assert plain.parallel
    assert told.parallel


def test_calls_are_shown_as_code() -> None:
    definition = ToolDef(bash())
    assert definition.viewer is not None
    view = definition.viewer(ToolCall("1", "bash", {"command": "ls\n"})).call
    assert view is not None
    assert (view.title, view.content) == ("bash", "```bash\nls\n```\n")


async def test_think_answers_nothing_and_shows_the_thought() -> None:
    tool = think(thought_description="What you think.")
    definition = ToolDef(tool)
    assert definition.parameters.properties["thought"].description == "What you think."
    assert definition.viewer is not None
    view = definition.viewer(ToolCall("1", "think", {"thought": "*hm*"})).call
    assert view is not None
    assert view.content == "*hm*"
    assert [message.content for message in await played(FakeSandbox(), tool, {"thought": "hm"})] == [""]


@pytest.mark.parametrize("name", ["bash", "python", "bash_session", "text_editor", "think"])
def test_built_in_tools_are_registered(name: str) -> None:
    assert ToolDef(lookup("tool", name)()).name == name


# -- the editor -------------------------------------------------------------------------------------------------------


async def edited(*calls: dict[str, Any], files: dict[str, str] | None = None, **kept: str) -> list[ChatMessageTool]:
    """What the editor answers, and check what the files hold at the end."""
    fake = FakeSandbox(answer="")
    held: dict[str, bytes] = {}

    @use_tools_after(fake, {"f": LINES} if files is None else files, held)
    def tool() -> Tool:
        return text_editor()

    messages = await played(fake, tool(), *calls)
    for name, text in kept.items():
        assert held[name].decode() == text
    return messages


def use_tools_after(fake: FakeSandbox, files: dict[str, str], held: dict[str, bytes]) -> Any:
    """A tool that finds files in its sandbox, whose files are `held` afterwards."""

    def decorate(make: Any) -> Any:
        def made() -> Tool:
            definition = ToolDef(make())
            function = definition.tool

            async def execute(**arguments: Any) -> Any:
                [environment] = fake.live
                if not held:
                    environment.files.update({name: text.encode() for name, text in files.items()})
                held["began"] = b""
                try:
                    return await function(**arguments)
                finally:
                    held.update(environment.files)

            definition.bound()
            definition.tool = execute
            return definition.as_tool()

        return made

    return decorate


def told(messages: list[ChatMessageTool]) -> list[str]:
    return [message.error.message if message.error is not None else message.text for message in messages]


async def test_a_file_is_shown_with_numbered_lines() -> None:
    whole, part, end = told(
        await edited(
            {"command": "view", "path": "f"},
            {"command": "view", "path": "f", "view_range": [2, 3]},
            {"command": "view", "path": "f", "view_range": [9, -1]},
        )
    )
    assert whole.split("\n")[0] == "     1\tone"
    assert len(whole.split("\n")) == 10
    assert part == "     2\ttwo\n     3\tthree"
    assert end == "     9\tnine\n    10\tten"


@pytest.mark.parametrize("given", [[0, 3], [3, 2], [11, 12], [1], [1, 2, 3]], ids=str)
async def test_a_range_that_the_file_has_not(given: list[int]) -> None:
    [message] = await edited({"command": "view", "path": "f", "view_range": given})
    assert message.error is not None
    assert message.error.type == "parsing"


async def test_files_are_created_and_not_replaced() -> None:
    created, again, undone, missing = await edited(
        {"command": "create", "path": "dir/new", "file_text": "text\n"},
        {"command": "create", "path": "f", "file_text": "other"},
        {"command": "undo_edit", "path": "dir/new"},
        {"command": "create", "path": "x"},
    )
    assert told([created, undone]) == ["The file dir/new was created.", "The file dir/new was removed again."]
    assert again.error is not None
    assert "already" in again.error.message
    assert missing.error is not None
    assert missing.error.message == "The command create needs file_text."


async def test_text_is_replaced_where_it_is_exactly_once() -> None:
    done, gone, none, twice = await edited(
        {"command": "str_replace", "path": "f", "old_str": "five", "new_str": "5\n5.5"},
        {"command": "str_replace", "path": "f", "old_str": "six\n"},
        {"command": "str_replace", "path": "f", "old_str": "eleven", "new_str": "11"},
        {"command": "str_replace", "path": "f", "old_str": "e", "new_str": "E"},
        f=LINES.replace("five", "5\n5.5").replace("six\n", ""),
    )
    assert done.text.split("\n")[1] == "     1\tone"
    assert done.text.split("\n")[-1] == "    10\tnine"
    assert gone.error is None
    assert none.error is not None
    assert "not in f" in none.error.message
    assert twice.error is not None
    assert "8 times, on lines 1, 3, 7, 8, 9, 10." in twice.error.message


async def test_text_is_inserted_after_a_line() -> None:
    first, last, wrong = await edited(
        {"command": "insert", "path": "f", "insert_line": 0, "insert_text": "zero"},
        {"command": "insert", "path": "f", "insert_line": 11, "new_str": "eleven\n"},
        {"command": "insert", "path": "f", "insert_line": 40, "insert_text": "x"},
        f=f"zero\n{LINES}\neleven\n",
    )
    assert (first.error, last.error) == (None, None)
    assert wrong.error is not None
    assert "from 0 to 13" in wrong.error.message


async def test_edits_are_undone_one_by_one() -> None:
    edits = [{"command": "str_replace", "path": "f", "old_str": f"{n}", "new_str": f"{n + 1}"} for n in range(12)]
    undos = [{"command": "undo_edit", "path": "f"}] * 11
    messages = await edited(*edits, *undos, files={"f": "0"}, f="2")
    assert [message.error for message in messages[:22]] == [None] * 22
    assert messages[22].error is not None
    assert "no edit of f that could be undone" in messages[22].error.message


async def test_a_file_that_is_not_there() -> None:
    for command in ({"command": "view"}, {"command": "str_replace", "old_str": "a"}, {"command": "undo_edit"}):
        [message] = await edited({**command, "path": "nowhere"})
        assert message.error is not None
        assert "nowhere" in message.error.message


# -- sessions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "text", "typed"),
    [
        ("type", "a", "a"),
        ("type_submit", "a", "a\n"),
        ("type_submit", None, "\n"),
        ("interrupt", None, None),
        ("read", None, None),
        ("restart", None, None),
    ],
)
def test_what_an_action_types(action: Any, text: str | None, typed: str | None) -> None:
    assert _typed(action, text) == typed


@pytest.mark.parametrize(
    ("action", "text", "says"),
    [("type", None, "needs an input"), ("read", "x", "takes no input"), ("type", "é" * 2048, "at most 4,095 bytes")],
)
def test_actions_that_do_not_fit(action: Any, text: str | None, says: str) -> None:
    with pytest.raises(ToolParsingError, match=says):
        _typed(action, text)


def test_times_of_a_session() -> None:
    with pytest.raises(OptionError, match="at least 210 seconds, not 60"):
        bash_session(timeout=60)
    with pytest.raises(OptionError, match="more than 0 seconds"):
        bash_session(wait_for_output=0)


async def test_a_sandbox_without_open_processes_has_no_sessions() -> None:
    outputs = [ModelOutput.for_tool_call("m", "bash_session", {"action": "read"}), "done"]
    task = Task(
        [Sample(id=1, input="x", target="y")],
        solver=[use_tools(bash_session()), generate()],
        sandbox=FakeSandbox().spec,
    )
    [log] = await simulate(task, get_model("mock/x", custom_outputs=outputs, memoize=False))
    assert log.samples is not None
    error = log.samples[0].error
    assert error is not None
    assert "bash_session needs a sandbox that keeps processes open: sandbox fake has no" in error.message
