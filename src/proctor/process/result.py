"""What a command left behind: its result, its output as far as it was kept, and that as text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from attrs import define, field

T = TypeVar("T", str, bytes)

READ: Final = 65_536
"""Bytes read at once: what a pipe holds on Linux (pipe(7))."""
LONGEST_CHARACTER: Final = 4  # bytes in UTF-8


@define
class ExecResult(Generic[T]):
    """How a command ended.

    Attributes:
        success: it ended with exit code 0.
        returncode: its exit code; below 0 the number of the signal that ended it.
        stdout, stderr: what it wrote; empty when its output was not captured.
        truncated: by stream (``stdout``, ``stderr``) the bytes it wrote in all, for those of which only the end was
            kept.
    """

    success: bool
    returncode: int
    stdout: T
    stderr: T
    truncated: Mapping[str, int] = field(factory=dict)


@define(eq=False)
class Tail:
    """The end of a stream of bytes.

    Attributes:
        limit: bytes that are kept; None keeps all. total: bytes that came.
    """

    limit: int | None = None
    total: int = field(default=0, init=False)
    _kept: bytearray = field(factory=bytearray, init=False)

    def add(self, data: bytes) -> None:
        """Take what was read."""
        self.total += len(data)
        if self.limit is not None and len(data) >= self.limit:
            self._kept[:] = data[len(data) - self.limit :]
            return
        self._kept += data
        if self.limit is not None and len(self._kept) > self.limit:
            del self._kept[: len(self._kept) - self.limit]

    @property
    def cut(self) -> bool:
        """Whether its beginning was thrown away."""
        return self.total > len(self._kept)

    def value(self) -> bytes:
        """What is kept."""
        return bytes(self._kept)


def decode(data: bytes, *, cut: bool = False) -> str:
    """UTF-8 with replacement characters for what is none.

    Args:
        cut: the beginning is missing, so that a character may have been cut in two; its rest is left out.
    """
    begin = 0
    if cut:
        while begin < min(len(data), LONGEST_CHARACTER - 1) and data[begin] & 0xC0 == 0x80:
            begin += 1
    return data[begin:].decode("utf-8", "replace")


def as_text(result: ExecResult[bytes]) -> ExecResult[str]:
    """The same result with its output as text."""
    cut = result.truncated
    return ExecResult(
        result.success,
        result.returncode,
        decode(result.stdout, cut="stdout" in cut),
        decode(result.stderr, cut="stderr" in cut),
        cut,
    )
