"""How much may come out of a sandbox at once.

The numbers are Inspect's: 10 MiB for each stream of a command, 100 MiB for a file. They are changed, in bytes, by
``PROCTOR_SANDBOX_MAX_EXEC_OUTPUT_SIZE`` and ``PROCTOR_SANDBOX_MAX_READ_FILE_SIZE``, then by ``INSPECT_SANDBOX_…``.
"""

from __future__ import annotations

from typing import Final

from proctor.errors import OutputLimitExceededError
from proctor.runtime.settings import environ, whole_number

EXEC_OUTPUT: Final = 10 * 1024 * 1024
READ_FILE: Final = 100 * 1024 * 1024
UNITS: Final = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


def exec_output_limit() -> int:
    """Bytes of each output stream of a command that are kept, its tail.

    Raises:
        OptionError: the environment holds a value that is refused.
    """
    return _limit("SANDBOX_MAX_EXEC_OUTPUT_SIZE", EXEC_OUTPUT)


def read_file_limit() -> int:
    """Bytes that a file may have to be read.

    Raises:
        OptionError: the environment holds a value that is refused.
    """
    return _limit("SANDBOX_MAX_READ_FILE_SIZE", READ_FILE)


def too_large(limit: int, kept: str | None = None) -> OutputLimitExceededError:
    """The error for more than `limit` bytes, with what was kept of them."""
    return OutputLimitExceededError(readable(limit), kept)


def readable(size: int) -> str:
    """Bytes in words: ``10 MiB``."""
    for unit, factor in UNITS:
        if size >= factor and size % factor == 0:
            return f"{size // factor} {unit}"
    return f"{size} bytes"


def _limit(name: str, default: int) -> int:
    for variable in (f"PROCTOR_{name}", f"INSPECT_{name}"):
        if (value := environ(variable)) is not None:
            return whole_number(value, option=variable, source="environment")
    return default
