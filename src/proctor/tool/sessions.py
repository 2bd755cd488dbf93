"""`bash_session`: a shell that lasts as long as its sample, at a terminal in the sandbox.

The shell is a process of the sandbox that is kept open (`SandboxEnvironment.open_process`) from the first call of the
tool to the end of the sample. Calls may come from different tasks, so the block that `open_process` gives may be left
in another task than it was entered in: a provider must not hold a cancel scope, a nursery or a lease across it.

The terminal is made inside the sandbox, by ``script`` or by Python, whichever is there. It does not echo: what a model
typed it knows already. Where neither is there the shell has no terminal: its commands are interrupted by a signal that
a second command sends, and control characters mean nothing.
"""

from __future__ import annotations

import codecs
import re
from contextlib import AsyncExitStack, suppress
from typing import Final, Literal

import anyio
from attrs import define, field

from proctor.errors import OptionError, ToolError, ToolParsingError, UsageError
from proctor.runtime import current_sample
from proctor.sandbox import SandboxEnvironment
from proctor.sandbox import sandbox as environment_of
from proctor.sandbox.environment import SandboxProcess
from proctor.tool.definition import Tool, tool

Action = Literal["type", "type_submit", "restart", "read", "interrupt"]

WAIT: Final = 30.0  # seconds for the first output, as in Inspect
LEAVING: Final = 0.5  # seconds in which a shell should end by itself
IDLE: Final = 0.5  # seconds without output after which what came is given, as in Inspect
ROOM: Final = 180.0  # seconds that a call may take beyond its wait for output, as in Inspect
MOST: Final = 10 * 2**20  # bytes of output that one call gives, the last ones
LONGEST_LINE: Final = 4095  # bytes of a line that a terminal takes (Linux: N_TTY_BUF_SIZE)
READY: Final = b"\x1e"
"""Printed with the first prompt, so that no call begins before the shell has."""
STARTING: Final = 5.0  # seconds to wait for that: start-up files of the user may replace what prints it

SHELL: Final = r"""
export TERM=dumb PAGER=cat GIT_PAGER=cat
shell='stty -echo -onlcr 2>/dev/null; if command -v bash >/dev/null 2>&1
then export PROMPT_COMMAND="printf \"\\036\"; unset PROMPT_COMMAND"; exec bash --noediting -i
else printf "\036"; exec sh -i; fi'
if command -v script >/dev/null 2>&1 && script -qfc true /dev/null </dev/null >/dev/null 2>&1
then exec script -qfc "$shell" /dev/null
elif command -v python3 >/dev/null 2>&1
then exec python3 -c 'import pty, sys; sys.exit(pty.spawn(["sh", "-c", sys.argv[1]]) >> 8)' "$shell"
fi
printf "\035%s\035" $$
exec sh -c "$shell" 2>&1
"""
NUMBER: Final = re.compile(rb"\x1d(\d+)\x1d")
"""Printed by a shell without a terminal: its process number."""

INTERRUPT: Final = r"""
below() {
  for stat in /proc/[0-9]*/stat; do
    line=$(cat "$stat" 2>/dev/null) || continue
    set -- "$1" "${line%% *}" ${line##*) }
    if [ "$4" = "$1" ]; then kill -INT "$2" 2>/dev/null; (below "$2"); fi
  done
}
kill -INT "$0"
below "$0"
sleep 0.2 2>/dev/null || sleep 1
below "$0"
"""
"""Sends SIGINT to a shell and all that runs below it, without any program but a shell and ``cat``."""
UNSEEN: Final = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1e")


@define(eq=False)
class ShellSession:
    """One shell. Made by `open_shell`.

    Attributes:
        user: who it runs as. over: it has ended, and all its output was read.
    """

    environment: SandboxEnvironment
    user: str | None
    over: bool = field(default=False, init=False)
    _process: SandboxProcess | None = field(default=None, init=False)
    _number: str | None = field(default=None, init=False)
    _stack: AsyncExitStack = field(factory=AsyncExitStack, init=False)
    _decoder: codecs.IncrementalDecoder = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    async def start(self) -> None:
        """Start it, and wait until it is at its terminal (a few seconds at most)."""
        try:
            opened = self.environment.open_process(["sh", "-c", SHELL], user=self.user)
            self._process = await self._stack.enter_async_context(opened)
        except NotImplementedError as error:
            raise UsageError(f"bash_session needs a sandbox that keeps processes open: {error}") from None
        self.over = False
        self._decoder.reset()
        seen = b""
        with anyio.move_on_after(STARTING):
            while READY not in seen and not self.over:
                seen += await self._receive()
        number = NUMBER.search(seen)
        self._number = None if number is None else number[1].decode()
        await self.read(IDLE)  # the prompt, which the model need not see twice

    async def close(self) -> None:
        """End it and all that runs in it. A shell ignores SIGTERM, so it is asked in its own way first."""
        with anyio.move_on_after(LEAVING), suppress(ToolError):
            if self._number is None:
                await self.send("\x03")
                await self._receive()  # the new prompt; an end of file typed before it would be lost
                await self.send("\x04")
            while not self.over and self._number is None:
                await self._receive()
        self._process = None
        await self._stack.aclose()

    async def send(self, text: str) -> None:
        """Type a text.

        Raises:
            ToolError: the shell has ended.
        """
        if self._process is None or self.over:
            raise ToolError("The shell has ended. Use the action restart for a new one.")
        try:
            await self._process.stdin.send(text.encode("utf-8", "replace"))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            self.over = True
            raise ToolError("The shell has ended. Use the action restart for a new one.") from None

    async def interrupt(self) -> None:
        """Stop the command that runs, as Ctrl+C does."""
        if self._number is None:
            await self.send("\x03")
        else:
            await self.environment.exec(["sh", "-c", INTERRUPT, self._number], user=self.user, timeout=int(WAIT))

    async def read(self, wait: float) -> str:
        """What it wrote since the last time: up to a pause in it, and for `wait` seconds at most."""
        if self._process is None or self.over:
            return ""
        data, limit = bytearray(), anyio.current_time() + wait
        while not self.over:
            pause = limit if not data else min(limit, anyio.current_time() + IDLE)
            with anyio.CancelScope(deadline=pause) as waiting:
                data += await self._receive()
            if waiting.cancelled_caught:
                break
            del data[:-MOST]
        return UNSEEN.sub("", self._decoder.decode(bytes(data), self.over)).replace("\r\n", "\n")

    async def _receive(self) -> bytes:
        try:
            return b"" if self._process is None else await self._process.stdout.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self.over = True
            return b""


async def open_shell(environment: SandboxEnvironment, user: str | None) -> ShellSession:
    """Start a shell that ends with the running sample."""
    sample = current_sample()
    if sample is None:
        raise UsageError("bash_session was called outside of a running sample")
    session = ShellSession(environment, user)
    sample.at_end.append(session.close)
    await session.start()
    return session


@tool
def bash_session(
    *,
    timeout: int | None = None,
    wait_for_output: int | None = None,
    user: str | None = None,
    instance: str | None = None,
) -> Tool:
    """A tool with one bash shell that is kept between calls, at a terminal in the sandbox.

    Args:
        timeout: accepted for ported code: a call ends by itself when its wait for output does.
        wait_for_output: seconds to wait for the first output, default 30.
        user: who the shell runs as.
        instance: tools with different instances have shells of their own.

    Raises:
        OptionError: `timeout` is shorter than the wait, or a time is none.
    """
    wait = WAIT if wait_for_output is None else float(wait_for_output)
    if wait <= 0:
        raise OptionError(f"bash_session: wait_for_output must be more than 0 seconds, not {wait_for_output}")
    if timeout is not None and timeout < wait + ROOM:
        raise OptionError(f"bash_session: timeout must be at least {wait + ROOM:g} seconds, not {timeout}")

    async def execute(action: Action, input: str | None = None) -> str:
        """Use a bash shell that stays open between calls.

        What a call returns is the output since the last one, up to a pause in it; more may come. Before a new command
        the shell must be at its prompt (the output ends in "$ " or "# "); while a command runs, what is typed is its
        input. A prompt of "> " means that a quote or a bracket is still open: close it, or interrupt.

        Control characters are typed as themselves, such as "\u0004" for Ctrl+D. For example:

            type_submit "make test"    runs a command; read gets the rest of its output
            type_submit "yes"          answers a question of the command
            interrupt                  stops the command

        Args:
            action: type (the input as it is), type_submit (the input and the return key), read (only wait for output),
                interrupt (Ctrl+C), restart (a new shell).
            input: What to type; only with type and type_submit.
        """
        typed = _typed(action, input)
        environment, sample = environment_of(), current_sample()
        if sample is None:
            raise UsageError("bash_session was called outside of a running sample")
        key = ("bash_session", instance, user)
        session: ShellSession | None = sample.kept.get(key)
        if action == "restart" and session is not None:
            await session.close()
            await session.start()
            return "The shell was restarted."
        if session is None:
            session = sample.kept[key] = await open_shell(environment, user)
        if action == "restart":
            return "The shell was started."
        if action == "interrupt":
            await session.interrupt()
        elif typed is not None:
            await session.send(typed)
        output = await session.read(wait)
        if session.over:
            return f"{output}\n[The shell has ended. Use the action restart for a new one.]".lstrip("\n")
        return output

    return execute


def _typed(action: Action, text: str | None) -> str | None:
    """What an action types.

    Raises:
        ToolParsingError: it has no input, or one that it should not have, or a line is too long for a terminal.
    """
    if action in {"restart", "read", "interrupt"} and text is not None:
        raise ToolParsingError(f"The action {action} takes no input.")
    if action == "type" and text is None:
        raise ToolParsingError("The action type needs an input.")
    if action in {"restart", "read", "interrupt"}:
        return None
    whole = (text or "") + ("\n" if action == "type_submit" else "")
    if any(len(line.encode("utf-8", "replace")) > LONGEST_LINE for line in whole.split("\n")):
        raise ToolParsingError(
            f"A terminal takes lines of at most {LONGEST_LINE:,} bytes; write longer ones to a file in parts."
        )
    return whole
