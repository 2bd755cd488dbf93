"""What a person sees of an error: one message with what was wrong, where and what to do. Never a traceback.

The traceback of an error that is nobody's mistake but ours goes to a file that the message names.
"""

from __future__ import annotations

import sysconfig
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import proctor
from proctor.cli.app import FAILURE, INTERRUPTED, USAGE
from proctor.cli.output import say
from proctor.errors import ProctorError, UsageError

PACKAGE: Final = str(Path(proctor.__file__).parent)


def report(error: BaseException, *, command: str = "proctor") -> int:
    """Say on standard error what is wrong and return the exit code.

    Args:
        command: whose help is named where the command line could not be parsed.
    """
    leaves = list(_leaves(error))
    if any(isinstance(leaf, KeyboardInterrupt) for leaf in leaves):
        say("interrupted")
        return INTERRUPTED
    if message := _of_parser(error, command):
        say(message)
        return USAGE
    if all(isinstance(leaf, ProctorError) for leaf in leaves):
        for text in dict.fromkeys(_with_notes(leaf) for leaf in leaves):
            say(text)
        return USAGE if all(isinstance(leaf, UsageError) for leaf in leaves) else FAILURE
    for leaf in leaves:
        say(f"{_class(leaf)}: {_with_notes(leaf)}".rstrip(": ") + _place(leaf))
    if not all(_in_users_code(leaf) for leaf in leaves):
        say(f"this was not expected and is likely a fault of proctor; {_kept(error)}")
    return FAILURE


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _of_parser(error: BaseException, command: str) -> str | None:
    """The message of an error of the command-line parser, whose classes are not public."""
    message: Any = getattr(error, "format_message", None)
    if message is None:
        return None
    command = getattr(getattr(error, "ctx", None), "command_path", None) or command
    text = str(message()).strip().rstrip(".")
    return f"{text[:1].lower()}{text[1:]}; see {command} --help"


def _with_notes(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def _class(error: BaseException) -> str:
    return type(error).__name__


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Where the error passed through proctor or users' code, outermost first."""
    return [frame for frame in traceback.extract_tb(error.__traceback__) if _matters(frame.filename)]


def _matters(file: str) -> bool:
    if file.startswith(PACKAGE):
        return True
    return not file.startswith((sysconfig.get_path("stdlib"), "<")) and "site-packages" not in file


def _in_users_code(error: BaseException) -> bool:
    """Whether the error arose in a task file or something it called, and not in proctor."""
    frames = _frames(error)
    if not frames or not frames[-1].filename.startswith(PACKAGE):
        return bool(frames)
    # What users' code called may refuse a value, as Python's own functions do.
    return isinstance(error, TypeError | ValueError) and _last_of_user(frames) is not None


def _last_of_user(frames: list[traceback.FrameSummary]) -> traceback.FrameSummary | None:
    return next((frame for frame in reversed(frames) if not frame.filename.startswith(PACKAGE)), None)


def _place(error: BaseException) -> str:
    """Users' innermost line, else ours."""
    frames = _frames(error)
    if not frames:
        return ""
    frame = _last_of_user(frames) if _in_users_code(error) else None
    frame = frame or frames[-1]
    line = f"\n    {frame.line}" if frame.line else ""
    return f"\n  at {frame.filename}, line {frame.lineno}, in {frame.name}{line}"


def _kept(error: BaseException) -> str:
    """Write the traceback to a file and say where it is."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="proctor-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.writelines(traceback.format_exception(error))
    except OSError as unwritable:
        return f"its traceback could not be written ({unwritable})"
    return f"the traceback is in {file.name}"
