"""`bash` and `python`: run the model's commands and programs in the sample's sandbox, each in a process of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proctor.model.toolcall import ToolCall, ToolCallContent, ToolCallView
from proctor.sandbox import sandbox as environment_of
from proctor.tool.definition import Tool, ToolCallViewer, ToolDef, tool

if TYPE_CHECKING:
    from proctor.process import ExecResult

BACKGROUND: Final = """\
Run a bash command and get its output.

{limit}Something that takes long (a build, a download, a server) is better started in the background, with its output \
in a file, and looked after in later calls:

    nohup make > /tmp/make.log 2>&1 & echo "started as $!"
    ps -p 4711; tail -n 50 /tmp/make.log

Each call has a shell of its own: variables and the working directory are not kept, processes and files are. $! is \
known only in the call that started the process."""


def code_viewer(language: str, parameter: str, title: str | None = None) -> ToolCallViewer:
    """Shows a call as a block of code.

    Args:
        language: of the code. parameter: the argument that holds it. title: default the language.
    """

    def viewer(call: ToolCall) -> ToolCallView:
        code = str(call.arguments.get(parameter) or call.function).strip()
        content = ToolCallContent(title=title or language, format="markdown", content=f"```{language}\n{code}\n```\n")
        return ToolCallView(call=content)

    return viewer


@tool(viewer=code_viewer("bash", "command"), parallel=True)
def bash(
    timeout: int | None = None, user: str | None = None, sandbox: str | None = None, background: bool = False
) -> Tool:
    """A tool that runs bash commands in the sandbox. Several calls of one message run at once.

    Args:
        timeout: seconds a command may take.
        user: who runs it. sandbox: the name of one of several environments.
        background: tell the model how to start long commands in the background; how the tool works is the same.
    """

    async def execute(command: str) -> str:
        """Run a bash command and get its output.

        Args:
            command: The command.
        """
        result = await environment_of(sandbox).exec(["bash", "--login", "-c", command], timeout=timeout, user=user)
        return output_of(result)

    if not background:
        return execute
    limit = "" if timeout is None else f"A command that takes longer than {timeout} seconds is stopped. "
    return ToolDef(execute, name="bash", description=BACKGROUND.format(limit=limit)).as_tool()


@tool(viewer=code_viewer("python", "code"), parallel=True)
def python(timeout: int | None = None, user: str | None = None, sandbox: str | None = None) -> Tool:
    """A tool that runs Python programs in the sandbox. Several calls of one message run at once.

    Args:
        timeout: seconds a program may take.
        user: who runs it. sandbox: the name of one of several environments.
    """

    async def execute(code: str) -> str:
        """Run a Python program and get what it prints.

        Each call is a program of its own: variables and imports of earlier calls are gone, and nothing can be typed
        in. Only what is printed is shown; the value of an expression is not, so use print().

        Args:
            code: The program.
        """
        result = await environment_of(sandbox).exec(
            ["bash", "--login", "-c", "python3 -"], input=code, timeout=timeout, user=user
        )
        return output_of(result)

    return execute


def output_of(result: ExecResult[str]) -> str:
    """What a command wrote, as the model is shown it: errors first."""
    return f"{result.stderr}\n{result.stdout}" if result.stderr else result.stdout
