"""Messages of Python's `logging` in the transcript of the sample whose code logged them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from proctor.log.events import LoggerEvent, LoggingLevel, LoggingMessage
from proctor.log.transcript import transcript

LEVELS: Final[dict[str, int]] = {
    "debug": 10, "trace": 13, "http": 15, "sandbox": 17, "info": 20, "warning": 30, "error": 40, "critical": 50,
}  # fmt: skip
"""Levels by name: those of `logging`, and those that Inspect adds."""

DEFAULT: Final = "info"
CHATTY: Final = frozenset({"httpx", "httpcore", "urllib3", "botocore", "hpack"})
"""Loggers that have a message for each request; the log has an event for that."""

MARK: Final = "proctor_noted"


class TranscriptHandler(logging.Handler):
    """Puts records into the transcript of the sample around them; one that no other handler takes is shown as ever."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record; nothing that goes wrong here reaches who logged it."""
        try:
            self._note(record)
        except Exception:
            self.handleError(record)
        if _alone(record) and (last := logging.lastResort) is not None and record.levelno >= last.level:
            last.handle(record)

    def _note(self, record: logging.LogRecord) -> None:
        into = transcript()
        if not into.keep or hasattr(record, MARK):  # another run of this process has it
            return
        if record.levelno < logging.WARNING and record.name.partition(".")[0] in CHATTY:
            return
        setattr(record, MARK, True)
        message = LoggingMessage(
            name=record.name,
            level=level_name(record.levelno),
            message=record.getMessage(),
            created=record.created * 1000,
            filename=record.filename,
            module=record.module,
            lineno=record.lineno,
        )
        into.add(LoggerEvent(message=message))


def level_name(number: int) -> LoggingLevel:
    """The name of a level, or of the next below it that has one."""
    found: LoggingLevel = "debug"
    for name, least in LEVELS.items():
        if number >= least:
            found = name  # type: ignore[assignment]
    return found


def _alone(record: logging.LogRecord) -> bool:
    """Whether nobody else handles a record: then `logging` itself would have shown it."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        if not all(isinstance(handler, TranscriptHandler) for handler in logger.handlers):
            return False
        logger = logger.parent if logger.propagate else None
    return True


@contextmanager
def log_to_transcripts(level: str | None = None) -> Iterator[None]:
    """Put messages that are logged inside the block into the transcripts of the samples that log them.

    Args:
        level: the least, by name. It is asked of the root logger too, while handlers that are there take what they took
            before. Default ``info``, of what the levels of the loggers let through.
    """
    root, least = logging.getLogger(), LEVELS[level or DEFAULT]
    handler, before = TranscriptHandler(level=least), root.level
    lowered = level is not None and least < root.level
    others = list(root.handlers)

    def as_before(record: logging.LogRecord) -> bool:
        return record.levelno >= before or not _by_root(record)

    if lowered:
        for other in others:
            other.addFilter(as_before)
        root.setLevel(least)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        if lowered:
            root.setLevel(before)
            for other in others:
                other.removeFilter(as_before)


def _by_root(record: logging.LogRecord) -> bool:
    """Whether it is the root logger's level that let a record through."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None and not logger.level:
        logger = logger.parent
    return logger is None or logger is logging.getLogger()
