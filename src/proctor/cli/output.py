"""Writing to standard output and standard error, whatever their encoding cannot say escaped."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from proctor.display.text import printable


def show(text: str) -> None:
    """A line of output. It is written as it is: what is not ours must have gone through `printable`.

    Raises:
        BrokenPipeError: whoever read it is gone.
    """
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding) + "\n")


def show_bytes(data: bytes) -> None:
    """Output in UTF-8, whatever the terminal's encoding is.

    Raises:
        BrokenPipeError: whoever read it is gone.
    """
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(data.decode("utf-8") + "\n")
    else:
        binary.write(data + b"\n")


def say(message: str) -> None:
    """A message on standard error, made printable; nothing happens where nobody can read it."""
    encoding = getattr(sys.stderr, "encoding", None) or "utf-8"
    text = printable(message, lines=True).encode(encoding, "backslashreplace").decode(encoding)
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"proctor: {text}\n")
        sys.stderr.flush()


def forget_output() -> None:
    """Point standard output at nothing: its reader is gone, and Python would complain when it flushes at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
