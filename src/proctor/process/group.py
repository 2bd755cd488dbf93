"""Process groups: signals to all members, whether one lives, and who left its group.

Each child leads a session of its own, so its group holds whatever it starts, unless that leaves by ``setsid``. Such
processes are known by a variable in the environment they inherited (`MARK`). Rejected: to become the reaper of orphans
(``PR_SET_CHILD_SUBREAPER``), which would hand this process the orphans of every other library in it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from attrs import frozen

MARK: Final = "PROCTOR_PROCESS_OF"
"""The environment variable by which the processes of a run are known."""
TERMINATE: Final = signal.SIGTERM
KILL: Final = signal.SIGKILL
PROC: Final = Path("/proc")
DEAD: Final = frozenset("ZX")
"""States of a process that has ended (proc(5))."""


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a group. Returns whether there was anybody to send it to."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:  # some member runs as somebody else; those that may be signalled were
        return True
    return True


def group_alive(group: int) -> bool:
    """Whether a group has a member that has not ended. Its leader, once it is reaped, is none."""
    if not signal_group(group, 0):
        return False
    states = _states(group)
    return states is None or any(state not in DEAD for state in states)


def leaderless(group: int) -> bool:
    """Whether a group lives on although its leader is reaped.

    A group whose leader lives, where ours is known to be gone, is another one that was given the number again.
    """
    try:
        os.kill(group, 0)
    except ProcessLookupError:
        return signal_group(group, 0)
    except PermissionError:
        return False
    return False


def _states(group: int) -> list[str] | None:
    """The states of the members of a group; None where that cannot be known."""
    if not (PROC / "self/stat").exists():
        return None
    return [state for _, state, of in _processes() if of == group]


def _processes() -> Iterator[tuple[int, str, int]]:
    """Process, state and group of all that can be seen."""
    for entry in os.listdir(PROC):
        if entry.isdigit():
            try:
                # The name of the program, in brackets, may hold anything.
                fields = (PROC / entry / "stat").read_bytes().rpartition(b") ")[2].split(None, 3)
                yield int(entry), fields[0].decode(), int(fields[2])
            except (OSError, IndexError, ValueError):
                continue


@frozen
class Survivor:
    """A living process that a command of ours started.

    Attributes:
        pid, group: its number and its group's. command: how it is called.
    """

    pid: int
    group: int
    command: str


def survivors(mark: str) -> list[Survivor]:
    """The living processes whose environment holds this mark; none where that cannot be read."""
    if not (PROC / "self/environ").exists():
        return []
    wanted, found, own = f"{MARK}={mark}".encode(), [], os.getpid()
    for pid, state, group in _processes():
        if state in DEAD or pid == own:
            continue
        try:
            if wanted in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.append(Survivor(pid, group, _command(pid)))
        except OSError:
            continue
    return found


def _command(pid: int) -> str:
    try:
        words = (PROC / str(pid) / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        return b" ".join(words).decode("utf-8", "replace")[:200]
    except OSError:
        return "?"
