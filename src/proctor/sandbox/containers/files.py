"""Files of a container, read and written by a shell in it, so that they are what the container's user sees.

Not by the engine's ``cp``: that sees with the engine's rights, cannot say who may read what, and follows links of the
container's on the host's side.
"""

from __future__ import annotations

import errno
import os
from pathlib import PurePosixPath
from typing import Final

from proctor.errors import SandboxUnavailableError
from proctor.sandbox.containers.execution import Execution, Outcome, TooMuch
from proctor.sandbox.containers.shell import IS_FOLDER, IS_FORBIDDEN, IS_SPECIAL, NOT_MADE, READ, SHELL, WRITE
from proctor.sandbox.containers.state import Container
from proctor.sandbox.limits import read_file_limit, too_large

ENVIRONMENT: Final = {"LC_ALL": "C"}  # messages of its tools are read
TIMEOUT: Final = 600.0  # seconds for one file, as Inspect's
MESSAGES: Final = 20_000  # bytes of messages that are kept


async def read_container_file(container: Container, path: str, asked: str) -> bytes:
    """The bytes of a file.

    Args:
        path: absolute. asked: what the caller called it, for errors.

    Raises:
        OSError: one of its kinds for a file that is not there, may not be read or is none.
        OutputLimitExceededError: it is too large.
    """
    limit = read_file_limit()
    execution = _execution(container, READ, path, most=limit)
    try:
        outcome = await execution.run()
    except TooMuch:
        raise too_large(limit) from None
    if outcome.code != 0:
        raise _error(outcome, asked, "read")
    return outcome.stdout


async def write_container_file(container: Container, path: str, asked: str, contents: str | bytes) -> None:
    """Write a file, and the folders above it that are missing.

    Raises:
        OSError: one of its kinds.
    """
    data = contents.encode() if isinstance(contents, str) else contents
    parent = str(PurePosixPath(path).parent)
    outcome = await _execution(container, WRITE, path, parent, input=data).run()
    if outcome.code != 0:
        raise _error(outcome, asked, "written")


def _execution(
    container: Container, script: str, *args: str, input: bytes | None = None, most: int | None = None
) -> Execution:
    return Execution(
        container=container,
        command=[SHELL, "-c", script, "proctor-file", *args],
        folder="/",
        env=ENVIRONMENT,
        input=input,
        timeout=TIMEOUT,
        limit=MESSAGES if most is None else None,
        most=most,
    )


def _error(outcome: Outcome, asked: str, what: str) -> Exception:
    said = outcome.stderr.decode("utf-8", "replace").strip()
    low = said.lower()
    number = None
    if outcome.code == IS_FOLDER or "is a directory" in low:
        number = errno.EISDIR
    elif outcome.code == IS_FORBIDDEN or "permission denied" in low or "operation not permitted" in low:
        number = errno.EACCES
    elif "read-only file system" in low:
        number = errno.EROFS
    elif "no space left" in low:
        number = errno.ENOSPC
    elif outcome.code == IS_SPECIAL:
        return OSError(errno.EINVAL, "it is no regular file, so it cannot be read or written", asked)
    elif "not a directory" in low or "file exists" in low:
        number = errno.ENOENT if what == "read" else errno.ENOTDIR
    elif "no such file" in low or "nonexistent directory" in low:
        number = errno.ENOENT
    if number is not None:
        return OSError(number, os.strerror(number), asked)
    where = " (a folder above it cannot be made)" if outcome.code == NOT_MADE else ""
    if outcome.code == 127:
        return SandboxUnavailableError(f"{asked} cannot be {what}: the image lacks 'cat' or 'mkdir' ({said})")
    return OSError(errno.EIO, f"it cannot be {what}{where}: {said or f'code {outcome.code}'}", asked)
