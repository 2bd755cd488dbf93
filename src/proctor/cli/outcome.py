"""A run of `eval` from the command line: signals, messages, and the exit code that says how it ended."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final

from attrs import define

from proctor.cli.app import FAILURE, INTERRUPTED, SUCCESS
from proctor.cli.output import say

TERMINATED: Final = 143
LEVELS: Final = {"trace": logging.DEBUG + 3, "http": logging.DEBUG + 5}
"""Levels that Inspect adds to those of `logging`."""


def evaluate(tasks: list[str], options: dict[str, Any]) -> int:
    """Evaluate and return the exit code: 0 when every task is a success.

    Args:
        options: arguments of `eval`.

    Raises:
        UsageError: the run could not start.
        KeyboardInterrupt: it was interrupted; the logs are written.
    """
    from proctor.evaluation import api

    if roles := options.get("model_roles"):
        options["model_roles"] = {role: _models(role, given) for role, given in roles.items()}
    with messages_to_stderr(options.pop("log_level", None) or "warning"):
        logs = api.eval(tasks or None, **options)
    failed = [log for log in logs if log.status != "success"]
    if options.get("display") == "none":
        for log in failed:
            say(_failure(log))
    return FAILURE if failed else SUCCESS


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


def _models(role: str, given: Any) -> Any:
    """A model, or several, for a role: a name, or a mapping of a name and its options."""
    from proctor.errors import OptionError
    from proctor.model import GenerateConfig, get_model

    if isinstance(given, list):
        return [_models(role, each) for each in given]
    if not isinstance(given, Mapping):
        return str(given)
    options = dict(given)
    name = options.pop("model", None)
    arguments = options.pop("model_args", {})
    base_url = options.pop("base_url", None)
    if not isinstance(name, str) or not isinstance(arguments, Mapping):
        raise OptionError(f"--model-role {role}: a mapping needs a model, as in {{model: provider/model}}")
    config = GenerateConfig.from_options(options)
    # Each role has its own Model, so that what the roles use is told apart.
    return get_model(name, config=config, base_url=base_url, memoize=False, **arguments)


def _failure(log: Any) -> str:
    reason = f": {log.error.message}" if log.error is not None else ""
    return f"{log.eval.task} ({log.eval.model}) ended with status {log.status}{reason}; log: {log.location}"


__all__: Sequence[str] = ["Ending", "evaluate", "messages_to_stderr", "terminable"]
