"""Files of a sandbox read and written by commands inside it, where a path means what it means to its programs.

A link that untrusted code has made leads nowhere but to what that code could reach itself.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Final, Protocol

from proctor.errors import ProctorError
from proctor.process import ExecResult
from proctor.sandbox.limits import read_file_limit, too_large

IS_FOLDER: Final = 81
MISSING: Final = 82
FORBIDDEN: Final = 83
TOO_LARGE: Final = 84
NOT_MADE: Final = 85

READ: Final = f"""
[ -d "$1" ] && exit {IS_FOLDER}
[ -e "$1" ] || [ -L "$1" ] || exit {MISSING}
[ -e "$1" ] || exit {MISSING}
[ -r "$1" ] || exit {FORBIDDEN}
exec head -c "$2" -- "$1"
"""
WRITE: Final = f"""
[ -d "$1" ] && exit {IS_FOLDER}
case "$1" in */*) mkdir -p -- "${{1%/*}}/" || exit {NOT_MADE};; esac
[ -e "$1" ] && [ ! -w "$1" ] && exit {FORBIDDEN}
cat > "$1" || exit {FORBIDDEN}
"""


class RunInside(Protocol):
    """Runs a command in a sandbox."""

    async def __call__(
        self, cmd: list[str], input: str | bytes | None = None, *, output_limit: int | None = None
    ) -> ExecResult[bytes]: ...


async def read_inside(run: RunInside, file: str) -> bytes:
    """The contents of a file; see `SandboxEnvironment.read_file`."""
    limit = read_file_limit()
    # One byte more than may be read: that it came says that there is more.
    result = await run(["sh", "-c", READ, "sh", file, str(limit + 1)], output_limit=limit + 1)
    if not result.success:
        raise _error(result, file)
    if len(result.stdout) > limit:
        raise too_large(limit)
    return result.stdout


async def write_inside(run: RunInside, file: str, data: bytes) -> None:
    """Write a file; see `SandboxEnvironment.write_file`."""
    result = await run(["sh", "-c", WRITE, "sh", file], data)
    if not result.success:
        raise _error(result, file)


def _error(result: ExecResult[bytes], file: str) -> Exception:
    said = result.stderr.decode(errors="replace").strip()
    number = {
        IS_FOLDER: errno.EISDIR,
        MISSING: errno.ENOENT,
        FORBIDDEN: errno.EACCES,
        NOT_MADE: errno.EACCES,
    }.get(result.returncode)
    if number is None:
        return ProctorError(f"{file}: exit code {result.returncode} in the sandbox: {said}")
    if number == errno.EACCES and "not a directory" in said.lower():
        number = errno.ENOTDIR
    return _os_error(number, file, said)


def _os_error(number: int, file: str, said: str) -> OSError:
    error: Any = OSError(number, os.strerror(number), file)
    if said:
        error.add_note(said)
    return error  # type: ignore[no-any-return]
