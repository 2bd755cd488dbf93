"""The tools that work in a sandbox, in real ones, on both backends, with a scripted model."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor import Task, eval_async
from proctor.dataset import Sample
from proctor.log import EvalSample, read_eval_log
from proctor.model import ChatMessageTool, ModelOutput, get_model
from proctor.sandbox.owned import read_notes
from proctor.solver import generate, use_tools
from proctor.tool import Tool, ToolDef, bash, bash_session, python, sessions, text_editor

NO_JAIL = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bwrap is not installed (apt-get install bubblewrap)"
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.parametrize("sandbox", ["local", pytest.param("bubblewrap", marks=NO_JAIL)]),
]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is left behind: no sandbox, and with it no shell."""
    monkeypatch.setenv("PROCTOR_STATE_DIR", str(tmp_path / "state"))
    yield
    assert read_notes() == []


async def sample_of(folder: Path, sandbox: str, tools: list[Tool], *calls: tuple[str, dict[str, Any]]) -> EvalSample:
    outputs = [ModelOutput.for_tool_call("mock", name, arguments) for name, arguments in calls]
    task = Task([Sample(id=1, input="x", target="y")], solver=[use_tools(tools), generate()], sandbox=sandbox)
    model = get_model("mock/tools", custom_outputs=[*outputs, "done"], memoize=False)
    [log] = await eval_async(task, model, log_dir=str(folder), display="none")
    samples = read_eval_log(log.location).samples
    assert samples is not None
    assert samples[0].error is None, samples[0].error
    return samples[0]


async def answers(folder: Path, sandbox: str, tool: Tool, *calls: dict[str, Any]) -> list[tuple[str, str | None]]:
    """The content and the kind of error of each answer."""
    name = ToolDef(tool).name
    sample = await sample_of(folder, sandbox, [tool], *((name, arguments) for arguments in calls))
    return [
        (message.text, None if message.error is None else message.error.type)
        for message in sample.messages
        if isinstance(message, ChatMessageTool)
    ]


async def test_bash(tmp_path: Path, sandbox: str) -> None:
    found = await answers(
        tmp_path,
        sandbox,
        bash(timeout=2),
        {"command": "echo out; echo err >&2; echo text > kept; exit 3"},
        {"command": "cat kept"},
        {"command": "echo begun; sleep 60"},
        {"command": "head -c 40000 /dev/zero | tr '\\0' x"},
    )
    assert found[:2] == [("err\n\nout\n", None), ("text\n", None)]
    assert found[2] == ("begun\n", "timeout")
    assert "The output of bash was 40,000 bytes long" in found[3][0]


async def test_python(tmp_path: Path, sandbox: str) -> None:
    found = await answers(tmp_path, sandbox, python(), {"code": "print(6 * 7)"}, {"code": "1 / 0"})
    assert found[0] == ("42\n", None)
    assert "ZeroDivisionError" in found[1][0]


async def test_text_editor(tmp_path: Path, sandbox: str) -> None:
    found = await answers(
        tmp_path,
        sandbox,
        text_editor(),
        {"command": "create", "path": "src/a.py", "file_text": "x = 1\ny = 2\n"},
        {"command": "str_replace", "path": "src/a.py", "old_str": "x = 1", "new_str": "x = 3"},
        {"command": "view", "path": "src/a.py"},
        {"command": "undo_edit", "path": "src/a.py"},
        {"command": "view", "path": "."},
        {"command": "view", "path": "src/b.py"},
    )
    assert found[2] == ("     1\tx = 3\n     2\ty = 2\n     3\t", None)
    assert "     1\tx = 1" in found[3][0]
    assert found[4][0].split("\n")[1:] == ["./src", "./src/a.py"]
    assert found[5][1] == "file_not_found"


def typed(text: str) -> dict[str, Any]:
    return {"action": "type_submit", "input": text}


async def test_a_shell_lasts_between_calls_and_can_be_interrupted(tmp_path: Path, sandbox: str) -> None:
    found = await answers(
        tmp_path,
        sandbox,
        bash_session(wait_for_output=20),
        typed("export PS1='$ '; mkdir here; cd here; x=5"),
        typed("echo $x $(basename $PWD)"),
        typed("echo waiting; sleep 1000"),
        {"action": "interrupt"},
        typed("cat\näöü"),
        {"action": "type", "input": "\u0004"},
        typed("echo still here; exit 7"),
        {"action": "read"},
        typed("echo nobody hears"),
        {"action": "restart"},
        typed("echo x is $x."),
    )
    # Where the output of one call ends and that of the next begins depends on pauses, so it is looked at as a whole.
    whole = "".join(text for text, _ in found)
    places = [
        whole.find(text)
        for text in ("5 here\n$ ", "waiting\n", "\n$ äöü\n", "still here\n", "[The shell has ended.", "x is .\n")
    ]
    assert places == sorted(places), whole
    assert places[0] >= 0, whole
    assert "[The shell has ended." in found[7][0]
    assert found[8][1] == "unknown"
    assert found[9][0] == "The shell was restarted."


async def test_a_shell_without_a_terminal_can_be_interrupted_too(
    tmp_path: Path, sandbox: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sandbox == "bubblewrap":
        pytest.skip("there a second command does not see the shell; and what makes a terminal is there")
    before, _, after = sessions.SHELL.partition("if command -v script")
    monkeypatch.setattr(sessions, "SHELL", before + after.partition("\nfi\n")[2])
    found = await answers(
        tmp_path,
        sandbox,
        bash_session(wait_for_output=20),
        typed("echo waiting; sleep 1000"),
        {"action": "interrupt"},
        typed("echo goes on"),
    )
    whole = "".join(text for text, _ in found)
    assert -1 < whole.find("waiting\n") < whole.find("goes on\n"), whole


async def test_instances_have_shells_of_their_own_in_the_same_sandbox(tmp_path: Path, sandbox: str) -> None:
    one = bash_session(instance="one", wait_for_output=20)
    two = ToolDef(bash_session(instance="two", wait_for_output=20), name="other").as_tool()
    sample = await sample_of(
        tmp_path,
        sandbox,
        [one, two],
        ("bash_session", typed("x=1; echo file > shared")),
        ("other", typed("echo [$x]; cat shared")),
        ("bash_session", typed("echo [$x]")),
    )
    texts = [message.text for message in sample.messages if isinstance(message, ChatMessageTool)]
    assert "[]\nfile\n" in texts[1]
    assert "[1]\n" in texts[2]
    events = [event for event in sample.events if event.event == "sandbox"]
    assert len(events) == 2  # a shell is one command each, however much is typed
