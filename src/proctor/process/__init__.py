"""Child processes: `subprocess()` for users, `run_process` and `open_process` for sandboxes, and their pool.

Processes are POSIX ones: sessions and process groups are what makes their end certain.
"""

from __future__ import annotations

from proctor.process.live import LiveProcess, open_process
from proctor.process.pool import SubprocessPool, hurry_children, kill_children, leaving_no_children
from proctor.process.result import ExecResult
from proctor.process.subprocess import run_process, subprocess

__all__ = [
    "ExecResult",
    "LiveProcess",
    "SubprocessPool",
    "hurry_children",
    "kill_children",
    "leaving_no_children",
    "open_process",
    "run_process",
    "subprocess",
]
