"""Processes known by a variable in their environment: what a command started and its group no longer holds.

A command that leaves its group (``setsid``) outlives the end of that group. It inherits the environment, so what a
sandbox on this machine has started is found by a variable that holds the sandbox's id.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import anyio

from proctor.sandbox.folders import remove_folder
from proctor.sandbox.owned import remove_note
from proctor.sandbox.threads import in_thread

MARK: Final = "PROCTOR_SANDBOX"
PROC: Final = Path("/proc")
ROUNDS: Final = 40  # looks at most: what forks as it is killed is seen by the next one
PAUSE: Final = 0.01  # seconds between them


def marked(mark: str, variable: str = MARK) -> list[int]:
    """The living processes whose environment holds this mark; none where that cannot be read."""
    return list(_marked(f"{variable}={mark}".encode()))


def _marked(wanted: bytes) -> Iterator[int]:
    own = os.getpid()
    with suppress(OSError):
        for entry in os.listdir(PROC):
            if not entry.isdigit() or int(entry) == own:
                continue
            with suppress(OSError, IndexError):
                folder = PROC / entry
                if wanted not in (folder / "environ").read_bytes().split(b"\0"):
                    continue
                if (folder / "stat").read_bytes().rpartition(b") ")[2][:1] not in b"ZX":
                    yield int(entry)


async def kill_marked(mark: str, variable: str = MARK) -> list[int]:
    """Kill them, and what they start meanwhile, until none is left.

    Returns:
        Those that are still there.
    """
    for _ in range(ROUNDS):
        left = await in_thread(marked, mark, variable)
        if not left:
            return []
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        await anyio.sleep(PAUSE)
    return await in_thread(marked, mark, variable)


async def remove_marked(id: str, folder: Path) -> None:
    """Kill what runs in an environment of this machine, remove its folder and its note.

    Raises:
        OSError: something cannot be removed.
    """
    if left := await kill_marked(id):
        raise OSError(f"processes {', '.join(map(str, left))} of the sandbox cannot be killed")
    await remove_folder(folder)
    remove_note(id)
