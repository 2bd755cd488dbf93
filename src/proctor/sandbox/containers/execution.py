"""A command in a container: started by the engine's ``exec``, its time limited, and dead inside when it is over.

The engine's ``exec`` is a program on this side; ending it leaves the command running on the other. So a command runs
under a wrapper that says when it began and how it ended (`proctor.sandbox.containers.shell`), and is ended by a second
``exec``. Its clock starts when it begins, not while the engine gets there; only until then it counts as a call of the
engine's, since what merely runs is no burden to it.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream
from attrs import define, field, frozen

from proctor.errors import ProcessTimeout, SandboxUnavailableError
from proctor.process import LiveProcess, open_process
from proctor.process.place import Place
from proctor.process.result import Tail
from proctor.sandbox.containers.engine import explain, is_gone, outside_sample
from proctor.sandbox.containers.shell import NO_FOLDER, Announcements, killer, marked, wrapped
from proctor.sandbox.containers.state import Container, raise_if_dead, unavailable

logger: Final = logging.getLogger(__name__)

START: Final = 60.0  # seconds that the engine may take to begin a command
BEGIN_YET: Final = 1.0  # seconds in which one whose caller has left may still begin
QUIET: Final = 1.0  # seconds without output after which that of an ended command is taken to be complete
LONGEST_DRAIN: Final = 3.0  # seconds in which what an ended command left behind may go on writing
KILL: Final = 6.0  # seconds for one attempt at ending a command inside; 2 s more than a loaded engine took at worst
AFTER_KILL: Final = 2.0  # seconds for the engine's exec to see that its command is dead
GRACE: Final = 1.0  # seconds between SIGTERM and SIGKILL for the engine's exec
MAY_NOT: Final = 126  # the shells' exit code for a command that may not be executed
UNKNOWN: Final = 255  # the code of an exec that does not end
EXHAUSTED: Final = re.compile(r"resource temporarily unavailable|cannot allocate memory|init-p|procready|procrun")
"""What runtimes say when the container's own limits let them start nothing in it (runc: its first process dies)."""


@frozen
class Outcome:
    """How a command ended.

    Attributes:
        code: its exit code. stdout, stderr: its output as far as it was kept.
        truncated: the streams that were cut, with the bytes written in all.
        refused: why it was not begun: ``folder`` (there is no such working folder), ``permission``; else empty.
    """

    code: int
    stdout: bytes
    stderr: bytes
    truncated: Mapping[str, int] = field(factory=dict)
    refused: str = ""


class TooMuch(Exception):
    """A command wrote more than its caller takes."""


class Refused(Exception):
    """The engine refused to run a command as it was asked to, which is no failure of the container."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.stderr.decode("utf-8", "replace").strip())
        self.outcome = outcome


@define(eq=False, kw_only=True)
class Execution:
    """One command in a container. `run` is called once.

    Attributes:
        container: where. command: the program and its arguments.
        folder: absolute. env: variables of its own. user: whom it runs as, default the container's.
        input: what it reads. timeout: seconds from its beginning.
        limit: bytes of each stream that are kept, its tail. most: bytes of output that are too many at all.
    """

    container: Container
    command: Sequence[str]
    folder: str
    env: Mapping[str, str] | None = None
    user: str | None = None
    input: bytes | None = None
    timeout: float | None = None
    limit: int | None = None
    most: int | None = None
    said: Announcements = field(factory=lambda: Announcements(_token()), init=False)
    _stdout: Tail = field(init=False)
    _stderr: Tail = field(init=False)
    _over: anyio.Event = field(factory=anyio.Event, init=False)
    _heard: float = field(default=0.0, init=False)
    _open: int = field(default=2, init=False)
    _too_much: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._stdout, self._stderr = Tail(self.limit), Tail(self.limit)

    def words(self) -> list[str]:
        """The arguments of the engine's ``exec``."""
        return exec_arguments(
            self.container, wrapped(self.command, token=self.said.token, folder=self.folder),
            env=marked(self.env, self.said.token), user=self.user, interactive=self.input is not None,
        )  # fmt: skip

    async def run(self) -> Outcome:
        """Run it.

        Raises:
            ProcessTimeout: its time was over; it is dead inside. TooMuch: it wrote more than `most`.
            SandboxUnavailableError: the container is gone, or the engine could not run anything in it.
        """
        try:
            async with self.began() as live:
                try:
                    in_time = await self._communicate(live)
                except BaseException:
                    await end_inside(self.container, self.said, self.user)
                    raise
                if self._too_much:
                    raise TooMuch
                if not in_time:
                    raise self._timed_out()
                return await self._outcome(live)
        except Refused as refused:
            return refused.outcome

    @asynccontextmanager
    async def began(self) -> AsyncIterator[LiveProcess]:
        """The engine's ``exec`` for the block, begun by the wrapper. Whoever leaves the block ends what is inside.

        Raises:
            SandboxUnavailableError: the container is gone, or the engine could not run anything in it.
        """
        engine, live = self.container.engine, None
        async with AsyncExitStack() as stack:
            try:
                async with Place(engine.limiter):
                    live = await stack.enter_async_context(open_process(engine.words(*self.words()), grace=GRACE))
                    with anyio.move_on_after(START) as waiting:
                        await self._begin(live)
                if waiting.cancelled_caught and self.said.pid is None:
                    raise SandboxUnavailableError(
                        f"{engine.name} did not begin a command in {self.container.name} within {START:g} s"
                    )
                if self.said.pid is None:
                    await self._not_begun(live)
            except BaseException:
                if live is not None:
                    await self._end_unbegun(live)
                raise
            yield live

    @property
    def early(self) -> bytes:
        """What of the command's standard error came together with its beginning."""
        return self._stderr.value()

    # -- until it begins

    async def _begin(self, live: LiveProcess) -> None:
        with suppress(anyio.EndOfStream):
            while self.said.pid is None:
                self._take_stderr(await live.stderr.receive())

    async def _end_unbegun(self, live: LiveProcess) -> None:
        """It may begin yet: wait a moment for that, so that it can be ended, and end it in any case."""
        with anyio.CancelScope(shield=True):
            with anyio.move_on_after(BEGIN_YET):
                await self._begin(live)
            if self.said.pid is not None or live.returncode is None:
                await end_inside(self.container, self.said, self.user)

    async def _not_begun(self, live: LiveProcess) -> None:
        """The engine could not run the wrapper: raise what that means."""
        code = UNKNOWN
        with anyio.move_on_after(AFTER_KILL):
            code = await live.wait()
        stderr = self.said.rest()
        said = stderr.decode("utf-8", "replace").strip()
        low = said.lower()
        if is_gone(stderr):
            raise await unavailable(self.container, said)
        if "unable to find user" in low or "no matching entries in passwd" in low:
            raise Refused(Outcome(MAY_NOT, b"", f"{said}\n".encode()))
        await raise_if_dead(self.container)
        if EXHAUSTED.search(low):
            # What runs in it has used up its limits: a failure of the command, as it would be of a command in it.
            text = f"the container has no room for another process, by its limits of processes or memory: {said}\n"
            raise Refused(Outcome(MAY_NOT, b"", text.encode()))
        raise SandboxUnavailableError(str(explain(self.container.engine.name, ("exec",), code, stderr)))

    # -- while it runs

    async def _communicate(self, live: LiveProcess) -> bool:
        """Feed and read it until it has ended; False when its time is over first."""
        in_time = True
        async with anyio.create_task_group() as nursery:
            for task in (self._read_stdout, self._read_stderr, self._feed, self._wait):
                nursery.start_soon(task, live)
            with anyio.move_on_after(self.timeout) as clock:
                await self._over.wait()
            if clock.cancelled_caught and not self._over.is_set():
                in_time = False
            if self._too_much or not in_time:
                await end_inside(self.container, self.said, self.user)
            if not self._too_much:
                await self._drain()
            nursery.cancel_scope.cancel()
        return in_time

    async def _read_stdout(self, live: LiveProcess) -> None:
        async for data in _all(live.stdout):
            self._stdout.add(data)
            self._heard = anyio.current_time()
            if self.most is not None and self._stdout.total > self.most:
                self._too_much = True
                self._over.set()
        self._open -= 1

    async def _read_stderr(self, live: LiveProcess) -> None:
        if self.said.code is not None:
            self._over.set()
        async for data in _all(live.stderr):
            self._take_stderr(data)
            self._heard = anyio.current_time()
            if self.said.code is not None:
                self._over.set()
        self._open -= 1

    def _take_stderr(self, data: bytes) -> None:
        self._stderr.add(self.said.see(data))

    async def _feed(self, live: LiveProcess) -> None:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            if self.input:
                await live.stdin.send(self.input)
        live.stdin.close()

    async def _wait(self, live: LiveProcess) -> None:
        await live.wait()
        self._over.set()

    async def _drain(self) -> None:
        """Read until both streams are closed, or until whoever was left behind and holds them is quiet."""
        self._heard = started = anyio.current_time()
        while self._open:
            now = anyio.current_time()
            if now - self._heard >= QUIET or now - started >= LONGEST_DRAIN:
                return
            await anyio.sleep(0.005)

    # -- after it

    async def _outcome(self, live: LiveProcess) -> Outcome:
        code = self.said.code
        if code is None:
            # The wrapper is gone without a word: killed from inside, or together with its container.
            with anyio.move_on_after(AFTER_KILL):
                code = await live.wait()
            await raise_if_dead(self.container)
            if code is None or code < 0:
                raise await unavailable(self.container, "the engine's exec was ended from outside")
        stdout, stderr, truncated = self._kept()
        mark = f"{self.said.token}:".encode()
        refused = ""
        if code == MAY_NOT and stderr.startswith(mark):
            refused = "folder" if stderr.rstrip().endswith(NO_FOLDER.encode()) else "permission"
        return Outcome(code, stdout, stderr.replace(mark, b"sh:"), truncated, refused)

    def _kept(self) -> tuple[bytes, bytes, dict[str, int]]:
        self._stderr.add(self.said.rest())
        tails = {"stdout": self._stdout, "stderr": self._stderr}
        cut = {name: tail.total for name, tail in tails.items() if tail.cut}
        return self._stdout.value(), self._stderr.value(), cut

    def _timed_out(self) -> ProcessTimeout:
        stdout, stderr, truncated = self._kept()
        return ProcessTimeout(
            f"the command {' '.join(self.command)[:80]!r} ran for longer than {self.timeout:g} s and was ended",
            stdout=stdout,
            stderr=stderr,
            truncated=truncated,
        )


def exec_arguments(
    container: Container,
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    user: str | None = None,
    interactive: bool = False,
) -> list[str]:
    """The arguments of ``exec`` for a command in a container."""
    out = ["exec"]
    if interactive:
        out.append("--interactive")
    if user:
        out += ["--user", user]
    for name, value in (env or {}).items():
        out += ["--env", f"{name}={value}"]
    return [*out, container.id, *command]


async def end_inside(container: Container, said: Announcements, user: str | None) -> None:
    """End a command and all that it started, whatever cancels the caller.

    It is ended as its own user, then as root: one sees more of what it started, the other may do more. If neither can
    (no process may be started there any more), the container is killed, because "timed out" means dead.
    """
    runs_as = user or container.user
    users = [user] if runs_as in {"", "0", "root"} else [user, "0"]
    with anyio.CancelScope(shield=True), outside_sample():
        for each in users:
            words = exec_arguments(container, killer(said.pid, said.token), user=each)
            with anyio.move_on_after(KILL):
                result = await container.engine.call(*words, ending=True)
                if result.returncode == 0 or is_gone(result.stderr):
                    return
        with anyio.move_on_after(KILL):
            logger.warning("a command in %s could not be ended from inside; its container is killed", container.name)
            await container.engine.call("kill", container.id, ending=True)


async def _all(stream: ByteReceiveStream) -> AsyncIterator[bytes]:
    with suppress(anyio.EndOfStream, anyio.ClosedResourceError):
        while True:
            yield await stream.receive()


def _token() -> str:
    # It must not be guessed by the command, nor repeat in another run of the same seed: no id of the runtime's.
    return f"proctor-{os.urandom(9).hex()}"


__all__ = [
    "Execution",
    "Outcome",
    "Refused",
    "TooMuch",
    "end_inside",
    "exec_arguments",
]
