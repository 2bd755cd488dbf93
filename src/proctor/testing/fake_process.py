"""`FakeProcess`: commands that a script plays, under the real subprocess pool.

What is real: the pool, its actor, its limiter, leases, timeouts, grace, signals in their order, working time. What is
played: the processes, in whatever time the test has. Chance is drawn for each command from its own text, so that it
does not depend on who runs when.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Final

import anyio
from anyio.lowlevel import checkpoint
from attrs import define, field, frozen

from proctor.process.child import Command
from proctor.process.group import KILL, TERMINATE
from proctor.process.pool import launcher
from proctor.process.result import Tail
from proctor.testing.faults import FaultPlan

FIRST_PID: Final = 1 << 30  # above what any system gives a process (Linux: 1 << 22), so that no signal finds one


@frozen
class FakeProcessCall:
    """One command as the script sees it.

    Attributes:
        text: program and arguments. attempt: how often this very command was run before, from 1.
        chance: of its own.
    """

    args: tuple[str, ...]
    text: str
    input: bytes | None
    attempt: int
    chance: Random


@frozen
class Play:
    """What a process does.

    Attributes:
        seconds: it takes. stdout, stderr: what it writes at once. returncode: how it ends by itself.
        stubborn: it ignores SIGTERM. lost: its end is never seen, not even after SIGKILL.
        child: seconds, from the start, that a child of it lives on in its group and holds its output.
        escaped: the same for one that has left the group.
    """

    seconds: float = 0.0
    stdout: str = ""
    stderr: str = ""
    returncode: int = 0
    stubborn: bool = False
    lost: bool = False
    child: float = 0.0
    escaped: float = 0.0


Answer = Play | Exception
Script = Answer | Callable[[FakeProcessCall], Answer]


@define(eq=False, kw_only=True)
class FakeProcess:
    """A scripted way to run commands; ``with fake.installed():`` makes `subprocess` use it.

    Args:
        answer: what each command does, or a function of it; an exception is raised in place of a start.
        faults: raises what is planned under ``process``.

    Attributes:
        calls: commands started so far. peak: alive at once, as a process table would show it.
        times: when each was started. texts: what they were.
        plays: those that were started, in order.
    """

    answer: Script = Play()
    faults: FaultPlan = field(factory=FaultPlan)
    peak: int = field(default=0, init=False)
    times: list[float] = field(factory=list, init=False)
    texts: list[str] = field(factory=list, init=False)
    plays: list[Played] = field(factory=list, init=False)
    _alive: list[Played] = field(factory=list, init=False)
    _attempts: Counter[str] = field(factory=Counter, init=False)

    @property
    def calls(self) -> int:
        """Commands started so far."""
        return len(self.plays)

    @property
    def alive(self) -> int:
        """Processes alive now."""
        self._alive = [each for each in self._alive if each.alive]
        return len(self._alive)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Play every command that is started in the block, and in tasks started in it."""
        token = launcher.set(self.launch)
        try:
            yield
        finally:
            launcher.reset(token)

    def launch(self, command: Command) -> Played:
        """Start a command."""
        text = " ".join(command.args)
        self._attempts[text] += 1
        attempt = self._attempts[text]
        self.faults.hit("process")
        call = FakeProcessCall(tuple(command.args), text, command.input, attempt, Random(f"{attempt} {text}"))
        said = self.answer(call) if callable(self.answer) else self.answer
        if isinstance(said, Exception):
            raise said
        played = Played(text, FIRST_PID + self.calls, said, Tail(command.limit), Tail(command.limit))
        self.plays.append(played)
        self._alive.append(played)
        self.times.append(anyio.current_time())
        self.texts.append(text)
        self.peak = max(self.peak, self.alive)
        return played


@define(eq=False)
class Played:
    """A process that is played.

    Attributes:
        signals: those it got, with their times.
        closed: its caller has let go of it.
    """

    name: str
    pid: int
    play: Play
    stdout: Tail
    stderr: Tail
    signals: list[tuple[float, int]] = field(factory=list, init=False)
    closed: bool = field(default=False, init=False)
    returncode: int | None = field(default=None, init=False)
    _code: int = field(init=False)
    _ends: float = field(init=False)
    _child_ends: float = field(init=False)
    _escaped_ends: float = field(init=False)
    _written: bool = field(default=False, init=False)
    _changed: anyio.Event = field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        now = anyio.current_time()
        self._code = self.play.returncode
        self._ends = now + self.play.seconds
        self._child_ends = now + self.play.child if self.play.child else -math.inf
        self._escaped_ends = now + self.play.escaped if self.play.escaped else -math.inf

    @property
    def alive(self) -> bool:
        """Whether the process itself lives."""
        return anyio.current_time() < self._ends

    @property
    def reading(self) -> bool:
        """Whether somebody may still write."""
        return anyio.current_time() < max(self._ends, self._child_ends, self._escaped_ends)

    async def activity(self) -> None:
        """Wait until something happens."""
        now = anyio.current_time()
        if not self._written:
            await checkpoint()
            return
        ends = [self._ends] if self.returncode is None and not self.play.lost else []
        after = [each for each in (*ends, self._child_ends, self._escaped_ends) if each > now or each in ends]
        with anyio.CancelScope(deadline=min(after, default=math.inf)):
            await self._changed.wait()
        self._changed = anyio.Event()

    def pump(self) -> None:
        """Let happen what is due."""
        if not self._written:
            self._written = True
            self.stdout.add(self.play.stdout.encode())
            self.stderr.add(self.play.stderr.encode())
        self.poll()

    def poll(self) -> int | None:
        """Reap it."""
        if self.returncode is None and not self.alive and not self.play.lost:
            self.returncode = self._code
        return self.returncode

    def signal(self, number: int) -> bool:
        """Send a signal to its group."""
        if not self.group_alive():
            return False
        now = anyio.current_time()
        if number:
            self.signals.append((now, number))
        if number == KILL or (number == TERMINATE and not self.play.stubborn):
            if self.alive:
                self._ends, self._code = now, -number
            self._child_ends = min(self._child_ends, now)
            self._changed.set()
        return True

    def group_alive(self) -> bool:
        """Whether its group has a member."""
        return self.returncode is None or anyio.current_time() < self._child_ends

    def close(self) -> None:
        """Let go of it."""
        self.closed = True
