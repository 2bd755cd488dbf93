"""What is told of an exception: one line, and the shortest traceback that helps."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import anyio

from proctor.errors import ProctorError, with_notes
from proctor.log.records import EvalError
from proctor.runtime.backend import foreign_call_hint

OURS: Final = str(Path(__file__).resolve().parents[1])
"""The package's own folder: its frames above user code say nothing to the user."""
SHOWN_FRAMES: Final = 3  # lines of user code that a person is shown of a traceback, the innermost ones


def is_cancellation(error: BaseException) -> bool:
    """Whether an exception, or every leaf of a group, is the backend's cancellation."""
    cancelled = anyio.get_cancelled_exc_class()
    return all(isinstance(leaf, cancelled) for leaf in leaves(error))


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions of a group, nested ones too; the exception itself when it is none."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def one_line(error: BaseException) -> str:
    """The type and text of an exception, a group of one shown as its leaf."""
    found = list(leaves(error))
    first = found[0]
    # Our own errors are written to be read by themselves; of others the type says as much as the text.
    text = str(first) if isinstance(first, ProctorError) else f"{type(first).__name__}({str(first)!r})"
    return text if len(found) == 1 else f"{text} and {len(found) - 1} more"


def told(error: BaseException) -> str:
    """What a person is shown of an exception: its type and text, the lines of user code that led to it, its notes."""
    found = list(leaves(error))
    first = found[0]
    ours = isinstance(first, ProctorError)
    text = str(first) if ours else f"{type(first).__name__}: {first}".rstrip(": ")
    if len(found) > 1:
        text += f" (and {len(found) - 1} more errors at once)"
    frames = [] if ours else [frame for frame in traceback.extract_tb(first.__traceback__) if _of_user(frame.filename)]
    lines = [
        f"  {os.path.relpath(frame.filename)}, line {frame.lineno}, in {frame.name}: {frame.line or ''}".rstrip(": ")
        for frame in frames[-SHOWN_FRAMES:]
    ]
    return "\n".join([text, *lines, *getattr(first, "__notes__", ())])


def _of_user(file: str) -> bool:
    return not file.startswith((OURS, sysconfig.get_path("stdlib"), "<")) and "site-packages" not in file


def stopped(reason: str) -> EvalError:
    """Why a run ended before all its samples had run, as a log holds it."""
    return EvalError(message=reason, traceback=f"{reason}\n", traceback_ansi=f"{reason}\n")


def describe(error: BaseException) -> EvalError:
    """An exception as a log holds it, its notes included, without the engine's own frames above the user's."""
    found = list(leaves(error))
    shown = found[0] if len(found) == 1 else error
    if (hint := foreign_call_hint(shown)) is not None:
        with_notes(shown, hint)
    text = "".join(traceback.format_exception(type(shown), shown, _from_user(shown.__traceback__)))
    return EvalError(message=one_line(error), traceback=text, traceback_ansi=text)


def _from_user(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is not ours; the whole of it when all are."""
    at = trace
    while at is not None and at.tb_frame.f_code.co_filename.startswith(OURS):
        at = at.tb_next
    return at or trace
