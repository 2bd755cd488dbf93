"""A run of `eval` from the command line: signals, messages, and the exit code that says how it ended."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from attrs import define

from proctor.cli.app import FAILURE, INTERRUPTED, SUCCESS
from proctor.cli.output import say, show

TERMINATED: Final = 143
COMMAND_LINE: Final = "command line"
LEVELS: Final = {"trace": logging.DEBUG + 3, "http": logging.DEBUG + 5}
"""Levels that Inspect adds to those of `logging`."""


def evaluate(tasks: list[str], options: dict[str, Any], *, log_level: str | None = None) -> int:
    """Evaluate and return the exit code: 0 when every task is a success.

    Args:
        options: arguments of `eval`.

    Raises:
        UsageError: the run could not start.
        KeyboardInterrupt: it was interrupted; the logs are written.
    """
    from proctor.evaluation import api

    return evaluated(lambda: api.eval(tasks or None, **_from_command_line(options)), options, log_level=log_level)


def evaluated(run: Callable[[], Sequence[Any]], options: dict[str, Any], *, log_level: str | None = None) -> int:
    """Call what evaluates and return the exit code: 0 when every log is a success.

    Args:
        run: gives the logs. options: what the flags say.

    Raises:
        KeyboardInterrupt: it was interrupted; the logs are written.
    """
    from proctor.runtime.options import OPTIONS, said_in_environment

    with messages_to_stderr(log_level or "warning"):
        logs = run()
    failed = [log for log in logs if log.status != "success"]
    display = options.get("display")
    if display is None:
        said = said_in_environment(option for option in OPTIONS if option.parameter == "display")
        display = said["display"].value if said else None
    if display == "none":
        for log in failed:
            say(_failure(log))
    return FAILURE if failed else SUCCESS


def show_plan(tasks: list[str], options: dict[str, Any], *, as_json: bool) -> int:
    """Show what would be run and return the exit code: 1 for a plan that cannot fit.

    Args:
        options: arguments of `eval`.

    Raises:
        UsageError: there is a mistake in the call.
    """
    from proctor.cli.planned import lines
    from proctor.evaluation.report import plan_report

    found = plan_report(tasks or None, **_from_command_line(options))
    if as_json:
        import json

        show(json.dumps(found.as_dict(), indent=2))
    else:
        for line in lines(found):
            show(line)
    return SUCCESS if found.fits else FAILURE


def _from_command_line(options: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `eval` that say where they came from."""
    from proctor.runtime.settings import Resolved

    return {name: Resolved(value, COMMAND_LINE) for name, value in options.items()}


@define
class Ending:
    """How a run was asked to end."""

    terminated: bool = False

    def exit_code(self) -> int:
        """The exit code of a run that was interrupted."""
        say("terminated" if self.terminated else "interrupted")
        return TERMINATED if self.terminated else INTERRUPTED


@contextmanager
def terminable() -> Iterator[Ending]:
    """Make SIGTERM end a run as a Ctrl-C does, and remember which of them it was.

    `eval` handles Ctrl-C in whatever phase it is; raising that signal from the other keeps one way to end.
    """
    ending = Ending()
    if threading.current_thread() is not threading.main_thread():
        yield ending
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        ending.terminated = True
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield ending
    finally:
        signal.signal(signal.SIGTERM, before or signal.SIG_DFL)


@contextmanager
def messages_to_stderr(level: str) -> Iterator[None]:
    """Show messages of `logging` on standard error, escaped; where the task's own code set that up, leave it so."""
    root = logging.getLogger()
    handler = None if root.handlers else _Messages()
    before = root.level
    if handler is not None:
        root.addHandler(handler)
        root.setLevel(LEVELS.get(level) or level.upper())
    try:
        yield
    finally:
        if handler is not None:
            root.removeHandler(handler)
            root.setLevel(before)


class _Messages(logging.Handler):
    """Writes to standard error as it is at the time, which a live display may have taken over."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(f"{record.levelname.lower()}: {self.format(record)}")
        except Exception:
            self.handleError(record)


def _failure(log: Any) -> str:
    reason = f": {log.error.message}" if log.error is not None else ""
    return f"{log.eval.task} ({log.eval.model}) ended with status {log.status}{reason}; log: {log.location}"


__all__: Sequence[str] = ["Ending", "evaluate", "evaluated", "messages_to_stderr", "show_plan", "terminable"]
