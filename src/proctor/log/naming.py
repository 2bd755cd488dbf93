"""The names of logs: what a new one is called, and what a name says."""

from __future__ import annotations

import re
from typing import Final

PATTERN: Final = "{task}_{id}"
LONGEST: Final = 200
"""Characters of the part of a name that follows the date; most file systems allow 255 bytes in all."""

_UNSAFE: Final = re.compile(r"[_/:+\\\0]")
_NAME: Final = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}")


def log_file_name(created: str, task: str, task_id: str, *, model: str = "", extension: str = "eval") -> str:
    """The name of a new log: date, task and task id, such as ``2030-01-01T12-00-00-00-00_gsm8k_4Nq….eval``.

    Args:
        created: ISO 8601. task, task_id: of the evaluation.
        model: for a pattern that names it: ``PROCTOR_EVAL_LOG_FILE_PATTERN`` (then ``INSPECT_…``) is what stands
            between the date and the extension; default ``{task}_{id}``.
    """
    from proctor.runtime.settings import environ

    pattern = environ("PROCTOR_EVAL_LOG_FILE_PATTERN") or environ("INSPECT_EVAL_LOG_FILE_PATTERN") or PATTERN
    parts = {"task": clean(task), "id": clean(task_id), "model": clean(model)}
    name = re.sub(r"\{(task|id|model)\}", lambda match: parts[match[1]], pattern)
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - len(parts['id']) - 1]}_{parts['id']}"
    return f"{clean(created)}_{name}.{extension}"


def clean(part: str) -> str:
    """A part of a name without the characters that separate parts or that files cannot have."""
    return _UNSAFE.sub("-", part)


def parse_name(name: str) -> tuple[str, str, str | None] | None:
    """What the name of a log says.

    Args:
        name: without its folder.

    Returns:
        Task, task id, and what follows the id (such as ``-scored``) if anything; None for names of another form.
    """
    parts = name.rpartition(".")[0].split("_")
    if len(parts) < 3 or not _NAME.match(parts[0]):
        return None
    id, dash, suffix = parts[-1].partition("-")
    return parts[1], id, dash + suffix or None
