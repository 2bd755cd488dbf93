"""What is told of an exception: one line, and the shortest traceback that helps."""

from __future__ import annotations

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
