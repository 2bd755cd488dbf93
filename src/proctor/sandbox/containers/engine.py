"""One container engine: its command line, the limits on how often it is called at once, and what its errors mean.

The engine is an actor's state. Its calls go by a limiter of their own, because a hundred calls of an engine's command
line at once saturate the host or hang the engine, however few containers live. Calls that end or remove something go
by another one, so that they never wait behind those that start something. And it removes what nobody waits for any
more: the containers of a sample that was cancelled while they were being made.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import Any, Final

import anyio
from attrs import define, field

from proctor.actors import ActorContext, ChildSpec, Limiter, holding_nothing
from proctor.actors.scope import current as lease_scope
from proctor.errors import ActorGone, LimiterClosed, ProcessTimeout, SandboxUnavailableError, UsageError
from proctor.process import ExecResult, run_process
from proctor.process.group import MARK
from proctor.process.place import Place
from proctor.runtime import Runtime, current_runtime
from proctor.runtime.cpus import cpus
from proctor.runtime.ranks import ENGINE
from proctor.runtime.settings import environ, whole_number
from proctor.sandbox.containers.arguments import EngineName
from proctor.sandbox.pool import cleanup_limiter

logger: Final = logging.getLogger(__name__)

CALL: Final = 120.0  # seconds that a call may take which has nothing to build, to load or to wait for
REMOVAL: Final = 30.0  # seconds that a removal may take (behaviour.md, section 8)
HURRY: Final = 4.0  # seconds for removals that are left when a runtime closes
WAIT: Final = 1.5  # seconds that one who was cancelled waits for a removal; a pool allows 2 s in all
LATE: Final = 1.0  # seconds in which a call that was given up may still have an effect
CALLS: Final = 4  # calls at once for each processor
GRACE: Final = 1.0  # seconds between SIGTERM and SIGKILL for a call that is given up
VARIABLES: Final[Mapping[EngineName, tuple[str, ...]]] = MappingProxyType(
    {
        "docker": ("PROCTOR_DOCKER_CLI_CONCURRENCY", "INSPECT_DOCKER_CLI_CONCURRENCY"),
        "podman": ("PROCTOR_PODMAN_CLI_CONCURRENCY",),
    }
)
"""What sets the number of calls at once."""


@define(eq=False)
class Engine:
    """A container engine, as this runtime uses it. Got by `engine`.

    Attributes:
        name: docker or podman, which is also the program.
        limiter: of its calls. reserve: of those that end or remove. None: there is no runtime, and no limit.
        lacks_init: it was seen to have no init process for containers.
    """

    name: EngineName
    limiter: Limiter | None = None
    reserve: Limiter | None = None
    lacks_init: bool = field(default=False, init=False)
    _unwanted: dict[str, anyio.Event] = field(factory=dict, init=False)
    _removing: set[str] = field(factory=set, init=False)
    _woken: anyio.Event = field(factory=anyio.Event, init=False)
    _remove: Callable[[Engine, str], Any] | None = field(default=None, init=False)

    def words(self, *args: str) -> list[str]:
        """The command of a call.

        Raises:
            UsageError: the engine is not installed.
        """
        program = shutil.which(self.name)
        if program is None:
            raise UsageError(
                f"sandbox {self.name!r} needs {self.name}, which is not installed here (no {self.name!r} on the search "
                f"path): install it, or use another sandbox, for example sandbox='bubblewrap'"
            )
        # What an engine starts (monitors of containers) is no child process of the run and must not be taken for one.
        return ["env", "-u", MARK, program, *args]

    async def call(
        self,
        *args: str,
        input: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: float | None = CALL,
        ending: bool = False,
    ) -> ExecResult[bytes]:
        """Call the engine and wait for its answer, whatever it is.

        Args:
            ending: it ends or removes something.

        Raises:
            UsageError: the engine is not installed.
            SandboxUnavailableError: it does not answer in time.
        """
        words = self.words(*args)
        try:
            if not ending:
                async with Place(self.limiter):
                    return await run_process(words, input=input, env=env, cwd=cwd, timeout=timeout, grace=GRACE)
            with outside_sample():
                async with Place(cleanup_limiter() or self.reserve):
                    return await run_process(words, input=input, env=env, cwd=cwd, timeout=timeout, grace=GRACE)
        except ProcessTimeout as error:
            raise SandboxUnavailableError(
                f"{self.name} {args[0]} did not answer within {timeout:g} s: the engine hangs or the machine is "
                f"overloaded; fewer containers at once (max_sandboxes) may help{_last(error.stderr)}"
            ) from None

    async def ask(self, *args: str, **given: Any) -> str:
        """Call the engine for something that it must be able to do; its answer as text.

        Raises:
            UsageError: it cannot, for a reason that the user can mend. SandboxUnavailableError: it cannot.
        """
        result = await self.call(*args, **given)
        if not result.success:
            raise explain(self.name, args, result.returncode, result.stderr or result.stdout)
        return result.stdout.decode("utf-8", "replace").strip()

    async def inspect(self, *names: str, kind: str = "container", ending: bool = False) -> list[dict[str, Any]]:
        """What the engine knows of containers, networks or images; those that are not there are left out."""
        result = await self.call(kind, "inspect", *names, ending=ending)
        try:
            found = json.loads(result.stdout or b"[]")
        except ValueError:
            found = []
        if not found and not result.success and not is_missing(result.stderr):
            raise explain(self.name, (kind, "inspect"), result.returncode, result.stderr)
        return [each for each in found if isinstance(each, dict)]

    # -- what nobody waits for any more

    async def discard(self, project: str) -> bool:
        """Remove the containers of a project, and wait a moment for that: it goes on without the caller.

        Returns:
            False when there is no runtime to do it in.
        """
        if self._remove is None:
            return False
        done = self._unwanted.setdefault(project, anyio.Event())
        self._woken.set()
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + WAIT):
            await done.wait()
        return True

    async def look_after(self) -> None:
        """Remove what is discarded, for as long as the runtime is open."""
        async with anyio.create_task_group() as nursery:
            while True:
                await self._woken.wait()
                self._woken = anyio.Event()
                for project in [each for each in self._unwanted if each not in self._removing]:
                    self._removing.add(project)
                    nursery.start_soon(self._remove_one, project, REMOVAL)

    async def close(self) -> None:
        """Remove what is still to be removed, in bounded time."""
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + HURRY):
            async with anyio.create_task_group() as nursery:
                for project in tuple(self._unwanted):
                    nursery.start_soon(self._remove_one, project, HURRY)
        for project in self._unwanted:
            logger.warning(
                "the containers of %s were left behind; remove them with: proctor sandbox cleanup %s %s",
                project, self.name, project,
            )  # fmt: skip

    async def _remove_one(self, project: str, seconds: float) -> None:
        """Remove it, and look again a moment later: what was asked of the engine's service may still come about."""
        assert self._remove is not None
        done = self._unwanted[project]
        try:
            with anyio.fail_after(seconds):
                await self._remove(self, project)
                done.set()
                await anyio.sleep(LATE)
                await self._remove(self, project)
        except Exception as error:
            logger.warning(
                "the containers of %s were left behind (%s); remove them with: proctor sandbox cleanup %s %s",
                project, error or type(error).__name__, self.name, project,
            )  # fmt: skip
        self._removing.discard(project)
        self._unwanted.pop(project, None)
        done.set()


@contextmanager
def outside_sample() -> Iterator[None]:
    """Run a block as code that belongs to no sample: it may take places although the sample has ended."""
    token = lease_scope.set(None)
    try:
        with holding_nothing():
            yield
    finally:
        lease_scope.reset(token)


async def engine(name: EngineName, *, remove: Callable[[Engine, str], Any] | None = None) -> Engine:
    """The engine of the current runtime; outside of one, an engine without limits.

    Args:
        remove: what removes a project that was discarded.
    """
    runtime = current_runtime()
    if runtime is None:
        return Engine(name)
    ref = await runtime.obtain("sandboxes", f"engine {name}", lambda: _spec(runtime, name, remove))
    try:
        found: Engine = ref.state
    except (ActorGone, LimiterClosed):  # the runtime is closing
        return Engine(name)
    return found


def calls_at_once(name: EngineName) -> int:
    """Calls of the engine's command line at once: 4 for each processor unless the environment says otherwise.

    Raises:
        OptionError: the environment's value is refused.
    """
    for variable in VARIABLES[name]:
        if (value := environ(variable)) is not None:
            return whole_number(value, option=variable, source="environment")
    return CALLS * cpus()


def _spec(runtime: Runtime, name: EngineName, remove: Callable[[Engine, str], Any] | None) -> ChildSpec[Engine]:
    limiter = Limiter(calls_at_once(name), name=f"calls of {name}", rank=ENGINE, ledger=runtime.ledger)
    reserve = Limiter(max(4, 2 * cpus()), name=f"endings by {name}", rank=ENGINE, ledger=runtime.ledger)
    state = Engine(name, limiter, reserve)
    state._remove = remove

    @asynccontextmanager
    async def opened(context: ActorContext[Engine]) -> AsyncIterator[Engine]:
        context.start_soon(state.look_after)
        try:
            yield state
        finally:
            await state.close()

    return ChildSpec(f"engine {name}", opened, limiter=limiter, leases="adopt", bound=HURRY + GRACE + 1)


# -- what an engine's errors mean

MISSING: Final = re.compile(r"no such (container|object|network|volume|image)|no container with|not found|not known")
GONE: Final = re.compile(
    r"no such container|no container with name|is not running|container state improper|is paused|"
    r"cannot exec in a stopped|container .* has been removed|only create exec sessions on running"
)
DAEMON: Final = re.compile(
    r"cannot connect to the docker daemon|is the docker daemon running|cannot connect to podman|"
    r"unable to connect to podman|error during connect|docker desktop is (not running|manually paused)"
)
SOCKET: Final = re.compile(r"permission denied while trying to connect to the docker daemon")
COMPOSE: Final = re.compile(
    r"'compose' is not a docker command|unknown command: docker compose|unknown (shorthand )?flag"
)
NETWORKS: Final = re.compile(
    r"non-overlapping ipv4 address pool|address pools have been fully subnetted|could not find free subnet|"
    r"no free (subnet|network)|exhausted"
)
DESCRIPTORS: Final = re.compile(r"too many open files|cannot allocate memory|resource temporarily unavailable|inotify")
DISK: Final = re.compile(r"no space left on device|disk quota exceeded")
IMAGE: Final = re.compile(
    r"no such image|image not known|manifest (unknown|for .* not found)|pull access denied|repository does not exist|"
    r"short-name .* did not resolve|initializing source|unable to find image|image .*not found"
)
NO_SHELL: Final = re.compile(r"""exec: "?/bin/sh"?: .*(no such file|not found)""")


def is_missing(stderr: bytes) -> bool:
    """Whether an engine says that something is not there."""
    return MISSING.search(stderr.decode("utf-8", "replace").lower()) is not None


def is_gone(stderr: bytes) -> bool:
    """Whether an engine says that a container is not there or does not run."""
    return GONE.search(stderr.decode("utf-8", "replace").lower()) is not None


def explain(name: EngineName, args: Sequence[str], code: int, stderr: bytes, *, advise: bool = True) -> Exception:
    """The error for a call that failed: what it means, and what to do about it where that is known.

    Args:
        advise: False: say only what the engine said.
    """
    said = _said(stderr)
    low = said.lower()
    for pattern, advice in _advice(name) if advise else []:
        if pattern.search(low):
            return UsageError(f"{advice} ({name} {_call(args)}: {said})")
    return SandboxUnavailableError(f"{name} {_call(args)} failed with code {code}: {said or 'it said nothing'}")


def _advice(name: EngineName) -> list[tuple[re.Pattern[str], str]]:
    start = "systemctl start docker" if name == "docker" else "podman machine start, or unset CONTAINER_HOST"
    networks = (
        f"{name} has no free network left, and each sample with a network of its own takes one: remove old ones "
        f"(proctor sandbox cleanup {name}), lower max_sandboxes, or give the engine more address pools"
    )
    host = f"{name} ran out of descriptors, processes or memory: lower max_sandboxes, or raise the limits of the host"
    return [
        (SOCKET, "this user may not use docker: add it to the group 'docker' (and log in again), or use podman"),
        (DAEMON, f"{name} is installed, but its service does not run: start it ({start})"),
        (COMPOSE, "compose files need the plugin 'docker compose' of version 2: install docker-compose-plugin"),
        (NETWORKS, networks),
        (DISK, f"the disk is full: {name} has no room for images and containers"),
        (DESCRIPTORS, host),
        (IMAGE, "there is no such image here, and it could not be pulled: check its name, or build or load it first"),
        (NO_SHELL, "the image has no /bin/sh, which commands in a sandbox are run with: use another image"),
    ]


def _call(args: Sequence[str]) -> str:
    return " ".join([each for each in args[:4] if not each.startswith("-")][:2]) or args[0]


def _said(stderr: bytes) -> str:
    """What an engine said, without its log lines, on one line."""
    lines = stderr.decode("utf-8", "replace").strip().splitlines()
    kept = [line for line in lines if not re.match(r'time="[^"]*" level=(warning|info|debug)', line)] or lines
    return " ".join(" ".join(kept).split())[-600:]


def _last(stderr: Any) -> str:
    said = _said(stderr if isinstance(stderr, bytes) else str(stderr or "").encode())
    return f" (it said: {said})" if said else ""


__all__ = ["Engine", "calls_at_once", "engine", "explain", "is_gone", "is_missing", "outside_sample"]
