"""From the start of a command to its end, which comes whatever the command does.

A command ends in one of two ways. It exits, and what is left in its pipes is read, for a moment only: somebody it left
behind may hold them open for long. Or it is to end (its time is over, its caller is cancelled): then its whole group
gets SIGTERM, after a grace SIGKILL, and after a last moment it is given up, reaped or not. Each wait has a deadline of
its own, and none depends on a pipe being closed or on a process being gone.
"""

from __future__ import annotations

import math
from typing import Final, Protocol

import anyio
from attrs import define, field

from proctor.process.group import KILL, TERMINATE
from proctor.process.result import Tail

GRACE: Final = 2.0  # seconds between the polite signal and the other (behaviour.md, section 4)
DRAIN: Final = 0.2  # seconds in which what an ended process has written is read
REAP: Final = 0.5  # seconds for a killed group to go; half of what behaviour.md allows beyond the grace
SHORTEST, LONGEST = 0.002, 0.05  # seconds between two looks at whether a group is gone


class Running(Protocol):
    """A command that runs: `Gathering`, or one that a test plays."""

    stdout: Tail
    stderr: Tail

    @property
    def name(self) -> str: ...
    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    @property
    def reading(self) -> bool: ...
    async def activity(self) -> None: ...
    def pump(self) -> None: ...
    def poll(self) -> int | None: ...
    def signal(self, number: int) -> bool: ...
    def group_alive(self) -> bool: ...
    def close(self) -> None: ...


@define(eq=False)
class Attendance:
    """One command and who waits for it.

    Attributes:
        running: the command. grace: seconds between SIGTERM and SIGKILL. hurried: there is no grace any more.
    """

    running: Running
    grace: float = GRACE
    hurried: bool = field(default=False, init=False)
    _patience: anyio.CancelScope | None = field(default=None, init=False)

    async def finished(self, timeout: float | None) -> bool:
        """Wait for its end and its last output.

        Returns:
            False when it still runs after `timeout` seconds.
        """
        running = self.running
        with anyio.move_on_after(timeout):
            while running.returncode is None:
                await running.activity()
                running.pump()
        if running.returncode is None:
            running.pump()  # it may have ended in time while other code held the loop
        if running.returncode is None:
            return False
        with anyio.move_on_after(DRAIN):
            while running.reading:
                await running.activity()
                running.pump()
        return True

    async def end(self) -> None:
        """End its group, within the grace and `REAP` seconds, whatever cancels the caller; no wait if it is gone."""
        running = self.running
        running.signal(TERMINATE)
        if not (self.hurried or await self._gone(self.grace, hurriable=True)):
            self.hurried = True
        if self.hurried:
            running.signal(KILL)
            await self._gone(REAP)
        running.pump()

    def hurry(self) -> None:
        """Kill its group now; nobody waits for a grace any more."""
        self.hurried = True
        self.running.signal(KILL)
        if self._patience is not None:
            self._patience.cancel()

    async def _gone(self, seconds: float, *, hurriable: bool = False) -> bool:
        """Whether the process is reaped and its group gone, within so many seconds."""
        running, pause = self.running, SHORTEST
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + seconds) as scope:
            self._patience = scope if hurriable else None
            while True:
                running.pump()
                if running.returncode is None:
                    await running.activity()
                    continue
                if not running.group_alive():
                    self._patience = None
                    return True
                with anyio.CancelScope(deadline=anyio.current_time() + pause):
                    await (running.activity() if running.reading else anyio.sleep(math.inf))
                pause = min(2 * pause, LONGEST)
        self._patience = None
        return False
