"""The subprocess pool: owner of all child processes of a runtime, and of the limit on how many run at once.

A command runs in its caller's own task under a lease, so its deadlines and cancellations are the ordinary ones. What
must not depend on that task is the pool's: it knows each living child, kills them all when it closes or restarts,
reaps those that their callers had to give up, and says at the end what got away.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

import anyio
from anyio.lowlevel import RunVar
from attrs import define, evolve, field

from proctor.actors import ChildSpec, Limiter, Ref
from proctor.errors import ActorGone
from proctor.process.attend import GRACE, LONGEST, REAP, SHORTEST, Attendance, Running
from proctor.process.child import Command
from proctor.process.gathering import gather
from proctor.process.group import KILL, MARK, TERMINATE, Survivor, group_alive, leaderless, signal_group, survivors
from proctor.runtime.ranks import SUBPROCESS
from proctor.runtime.runtime import Runtime, current_runtime
from proctor.runtime.settings import cpus, environment
from proctor.runtime.threads import EngineThreads

logger: Final = logging.getLogger(__name__)

KEY: Final = "subprocesses"
LOOKING, SELDOM = 0.05, 5.0  # seconds between two looks at those that are not reaped: at first, and later
NAMED: Final = 5  # processes that a warning names
STARTING: Final = 4  # processes that are started at once; on a busy machine each waits for its turn to run
MANY: Final = 256  # groups, after which those that are gone are forgotten

Launcher = Callable[[Command], Running]
launcher: Final[ContextVar[Launcher]] = ContextVar("proctor_launcher", default=gather)
"""What starts a command; a test plays the processes instead."""

Looking = Callable[[str], Awaitable[list[Survivor]]]


@define(eq=False, kw_only=True)
class SubprocessPool:
    """The child processes of one runtime, or of one loop outside of any.

    Attributes:
        limiter: how many commands run at once. threads: where they are started; None in the loop's own.
        mark: the value by which their environment tells whose they are.
        started: commands so far. hurried: nothing has a grace any more.
    """

    limiter: Limiter
    look: Looking
    threads: EngineThreads | None = None
    mark: str = field(init=False)
    started: int = field(default=0, init=False)
    hurried: bool = field(default=False, init=False)
    _marked: bool = field(default=False, init=False)
    _failure: Exception | None = field(default=None, init=False)
    _live: dict[Attendance, None] = field(factory=dict, init=False)
    _unreaped: dict[Running, None] = field(factory=dict, init=False)
    _left: set[int] = field(factory=set, init=False)
    _given_up: anyio.Event = field(factory=anyio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.mark = f"{os.getpid()}-{id(self):x}"

    async def launch(self, command: Command, *, grace: float = GRACE) -> Attendance:
        """Start a command, whose caller must `leave` it.

        Raises:
            OSError: it cannot be started.
        """
        start = launcher.get()
        if start is not gather:
            return self.attend(start(command), grace=grace)
        return await self.spawn(lambda: gather(self.marked(command)), grace=grace)

    async def spawn(self, start: Callable[[], Running], *, grace: float) -> Attendance:
        """Start a process in a thread. A caller who is cancelled meanwhile leaves none behind."""
        if self.threads is None:
            return self.attend(start(), grace=grace)
        begun: list[Running] = []
        left = False

        def work() -> None:
            running = start()
            begun.append(running)
            if left:  # long ago: the thread was given up
                running.signal(KILL)
                self._unreaped[running] = None

        try:
            await self.threads.run(work)
        except BaseException:
            left = True
            for running in begun:
                await self._end(self.attend(running, grace=grace))
            raise
        return self.attend(begun[0], grace=grace)

    async def _end(self, attendance: Attendance) -> None:
        try:
            await attendance.end()
        finally:
            self.leave(attendance)

    def marked(self, command: Command) -> Command:
        """The command with this pool's mark in its environment."""
        self._marked = True
        env = environment() if command.env is None else dict(command.env)
        env[MARK] = self.mark
        return evolve(command, env=env)

    def attend(self, running: Running, *, grace: float) -> Attendance:
        """Be told of a process that was started."""
        self.started += 1
        attendance = Attendance(running, grace)
        self._live[attendance] = None
        return attendance

    def leave(self, attendance: Attendance) -> None:
        """The caller goes. A process that still runs is killed; one that cannot be reaped is looked after here."""
        running = attendance.running
        self._live.pop(attendance, None)
        if running.returncode is None and running.poll() is None:
            running.signal(KILL)
            self._unreaped[running] = None
            self._given_up.set()
        elif running.signal(0):
            if len(self._left) >= MANY:
                self._left = set(filter(leaderless, self._left))
            self._left.add(running.pid)
        running.close()

    @property
    def live(self) -> list[Running]:
        """What runs just now."""
        return [each.running for each in self._live]

    def hurry(self) -> None:
        """Kill everything that runs."""
        self.hurried = True
        for attendance in list(self._live):
            attendance.hurry()

    def kill(self) -> None:
        """Send SIGKILL to everything, and nothing more: callable from a signal handler."""
        for attendance in tuple(self._live):
            attendance.running.signal(KILL)
        for group in tuple(self._left):
            if leaderless(group):
                signal_group(group, KILL)

    def fail(self, failure: Exception) -> None:
        """Let the actor die of a failure: every child is killed, and the pool opened again."""
        self._failure = failure
        self._given_up.set()

    async def reap(self) -> None:
        """Reap what callers could not wait for; runs for as long as the pool is open."""
        while True:
            await self._given_up.wait()
            if (failure := self._failure) is not None:
                self._failure, self._given_up = None, anyio.Event()
                raise failure
            self._given_up, pause = anyio.Event(), LOOKING
            while self._reaped() and not self._given_up.is_set():
                with anyio.move_on_after(pause):
                    await self._given_up.wait()
                pause = min(2 * pause, SELDOM)

    def _reaped(self) -> dict[Running, None]:
        """Reap those given up that have ended meanwhile. Returns the others."""
        self._unreaped = {each: None for each in self._unreaped if each.poll() is None}
        return self._unreaped

    async def close(self, *, for_good: bool) -> None:
        """Kill and reap everything.

        Args:
            for_good: no restart follows: what commands left running in the background is ended too, and named what
                left its group.
        """
        for attendance in list(self._live):
            attendance.hurry()
        await self._emptied(REAP)
        if not for_good:
            return
        for running in [*self._unreaped, *(each.running for each in self._live)]:
            if running.poll() is None:
                logger.warning("%s (process %d) was killed and has not ended", running.name, running.pid)
        await self._end_left()
        if self._marked:
            await self._name_escaped()

    def close_threads(self) -> None:
        """Let the threads end in which commands were started."""
        if self.threads is not None:
            self.threads.close()

    async def _emptied(self, seconds: float) -> None:
        """Wait until those who attend to what was killed have left, and what they gave up is reaped."""
        deadline = anyio.current_time() + seconds
        while anyio.current_time() < deadline:
            if not self._reaped() and not self._live:
                return
            await anyio.sleep(0.005)

    async def _end_left(self) -> None:
        """End what commands that have ended left running in their groups."""
        deadline, pause = anyio.current_time() + GRACE, SHORTEST
        left = {group for group in self._left if leaderless(group)}
        for group in left:
            signal_group(group, TERMINATE)
        while left and not self.hurried and anyio.current_time() < deadline:
            await anyio.sleep(pause)
            pause = min(2 * pause, LONGEST)
            left = {group for group in left if leaderless(group) and group_alive(group)}
        for group in left:
            signal_group(group, KILL)

    async def _name_escaped(self) -> None:
        """Tell of processes that commands started and that left their group, so that no signal to it reaches them."""
        away = [each for each in await self.look(self.mark) if each.group not in self._left]
        if away:
            named = "; ".join(f"{each.pid} ({each.command})" for each in away[:NAMED])
            more = f" and {len(away) - NAMED} more" if len(away) > NAMED else ""
            logger.warning(
                "processes that commands of this run started have left their group and still run: %s%s", named, more
            )


def _pool_spec(runtime: Runtime) -> Callable[[], ChildSpec[SubprocessPool]]:
    def spec() -> ChildSpec[SubprocessPool]:
        default = runtime.settings.subprocess_limit().value
        limiter = Limiter(default, name=KEY, rank=SUBPROCESS, ledger=runtime.ledger)
        pool = SubprocessPool(
            limiter=limiter, look=lambda mark: runtime.to_thread(survivors, mark), threads=EngineThreads(STARTING)
        )

        @asynccontextmanager
        async def open_pool(context: Any) -> AsyncIterator[SubprocessPool]:
            unfollow = runtime.shared["max_subprocesses"].follow(lambda limit: limiter.resize(limit or cpus()))
            context.start_soon(pool.reap)
            try:
                yield pool
            finally:
                unfollow()
                await pool.close(for_good=context.stopping)
                if context.stopping:
                    pool.close_threads()

        return ChildSpec(KEY, open_pool, limiter=limiter, restart="permanent", leases="revoke")

    return spec


async def pool_actor(runtime: Runtime) -> Ref[SubprocessPool]:
    """The pool of a runtime, started at its first use."""
    return runtime.find("processes", KEY) or await runtime.obtain("processes", KEY, _pool_spec(runtime))


async def opened(ref: Ref[SubprocessPool]) -> SubprocessPool:
    """The pool once it is open, which it is not for a moment while it is restarted.

    Raises:
        ActorGone: it will not be open again.
    """
    while True:
        try:
            return ref.state
        except ActorGone:
            await ref.started()


async def current_pool() -> SubprocessPool:
    """The pool of the current runtime, else of the running loop."""
    runtime = current_runtime()
    return loop_pool() if runtime is None else await opened(await pool_actor(runtime))


_loop_pool: Final[RunVar[SubprocessPool]] = RunVar("proctor_subprocesses")


async def _look_here(mark: str) -> list[Survivor]:
    return survivors(mark)


def loop_pool() -> SubprocessPool:
    """The pool of the running loop, for callers outside a runtime."""
    pool = _loop_pool.get(None)
    if pool is None:
        pool = SubprocessPool(limiter=Limiter(cpus(), name=KEY, rank=SUBPROCESS), look=_look_here)
        _loop_pool.set(pool)
    return pool


def hurry_children(runtime: Runtime) -> None:
    """Kill all child processes of a runtime: the second Ctrl-C. Their callers go on as soon as they are gone."""
    if (pool := _pool_of(runtime)) is not None:
        pool.hurry()


def kill_children(runtime: Runtime) -> None:
    """Send SIGKILL to all child processes of a runtime, and nothing more: the third Ctrl-C, in its signal handler."""
    if (pool := _pool_of(runtime)) is not None:
        pool.kill()


def _pool_of(runtime: Runtime) -> SubprocessPool | None:
    ref = runtime.find("processes", KEY)
    return ref.state if ref is not None and ref.statistics().incarnation is not None else None


def leaving_no_children(runtime: Runtime, exit_now: Callable[[int], object]) -> Callable[[int], object]:
    """What the third Ctrl-C does, `exit_now`, after all child processes of a runtime were sent SIGKILL."""

    def leave(number: int) -> None:
        kill_children(runtime)
        exit_now(number)

    return leave
