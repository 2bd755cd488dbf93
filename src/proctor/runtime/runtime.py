"""The runtime: what evaluations in one loop share, and the only source of chance and ids.

`open_runtime` works inside any running loop. It holds the root supervisor with one supervisor below it for each kind of
shared actor, and finds or starts the one actor that owns a resource (`Runtime.obtain`). Several runtimes in one loop do
not see each other: a context variable says which one code belongs to. Nothing outlives the block.

Ids and chance begin at one seed but are separate streams, so that asking for an id more does not change when a retry
happens.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from random import Random, SystemRandom
from typing import Any, Final, Literal, Protocol, TypeVar, TypeVarTuple

import anyio
from attrs import define, evolve, field

from proctor.actors import ChildSpec, Ledger, Limiter, Ref, Supervisor, holding_nothing, open_supervisor
from proctor.errors import NotFoundError, OptionError
from proctor.runtime.backend import loop_clock
from proctor.runtime.clock import SYSTEM_CLOCK, Clock, current_clock
from proctor.runtime.current import runtime_variable
from proctor.runtime.heldloop import loop_watched
from proctor.runtime.limits import SharedLimit
from proctor.runtime.ranks import SAMPLE
from proctor.runtime.settings import Settings, real_number, whole_number
from proctor.runtime.threads import EngineThreads, UserThreads

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

logger: Final = logging.getLogger(__name__)

Kind = Literal["processes", "sandboxes", "scopes", "models"]
KINDS: Final[tuple[Kind, ...]] = ("processes", "sandboxes", "scopes", "models")

ALPHABET: Final = "23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
"""57 letters and digits without those that look alike, as Inspect's ids have (the alphabet of shortuuid)."""
ID_LENGTH: Final = 22
"""57 to the 22nd is just above 2 to the 128th: as many ids as there are UUIDs."""
_PAIRS: Final = tuple(a + b for a in ALPHABET for b in ALPHABET)


SHARED: Final = ("max_total_samples", "max_subprocesses", "max_sandboxes")
"""Limits of the runtime itself."""
RATES: Final = ("requests_per_minute", "tokens_per_minute")
LIVE: Final = ("max_samples", "max_tasks", "max_connections", "adaptive_connections", *RATES, "max_dataset_memory")
"""Limits of what runs in it, which can be changed meanwhile."""


class LimitOwner(Protocol):
    """Something that runs and has limits that can be changed meanwhile."""

    def set_limit(self, option: str, value: float | None, *, task: str | None, model: str | None) -> int:
        """Set those that fit, and return how many there were."""
        ...


def make_id(source: Random) -> str:
    """An id of 22 characters from 128 bits of chance; it has no ``-`` and no ``_``, which part names of log files."""
    number = source.getrandbits(128)
    parts = []
    for _ in range(ID_LENGTH // 2):
        number, pair = divmod(number, len(_PAIRS))
        parts.append(_PAIRS[pair])
    return "".join(parts)


@define(eq=False)
class _Start:
    """An actor that is being started: those who wait for it, each with an event of its own (see facts on events)."""

    waiting: dict[anyio.Event, None] = field(factory=dict)
    error: Exception | None = None


@define(eq=False, kw_only=True)
class Runtime:
    """What the code in one `open_runtime` block shares. Made by `open_runtime` only.

    Attributes:
        settings: the limits, with where they came from.
        seed: where all chance and every id began; another runtime with it repeats them.
        random: chance for retries and the like.
        clock: the source of dates.
        ledger: the stream of kernel events, which costs nothing while nobody listens.
        supervisor: the root; processes, sandboxes, scopes, models: the supervisors below it.
        threads, user_threads: the two pools of threads.
        samples: the places of running samples over all tasks.
        shared: the limits that hold for all of it: ``max_total_samples``, ``max_subprocesses``, ``max_sandboxes``.
    """

    settings: Settings
    seed: int
    random: Random
    clock: Clock
    ledger: Ledger
    threads: EngineThreads
    user_threads: UserThreads
    supervisor: Supervisor = field(init=False)
    processes: Supervisor = field(init=False)
    sandboxes: Supervisor = field(init=False)
    scopes: Supervisor = field(init=False)
    models: Supervisor = field(init=False)
    samples: Limiter = field(init=False)
    shared: Mapping[str, SharedLimit] = field(init=False)
    _owners: list[LimitOwner] = field(factory=list, init=False)
    _ids: Random = field(alias="ids")
    _actors: dict[tuple[Kind, Hashable], Ref[Any] | _Start] = field(factory=dict, init=False)
    _hidden: set[tuple[Kind, Hashable]] = field(factory=set, init=False)
    _admissions: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self.shared = {name: SharedLimit(name, self.settings.resolved(name)) for name in SHARED}
        self.samples = Limiter(None, name="samples in all", rank=SAMPLE, ledger=self.ledger)
        self.shared["max_total_samples"].follow(self.samples.resize)

    def new_id(self) -> str:
        """A new id: 22 letters and digits, repeated by a runtime with the same seed."""
        return make_id(self._ids)

    def own_random(self) -> Random:
        """Chance for one actor alone, so that what happens at another does not change what happens at this one."""
        return Random(self.random.getrandbits(64))

    def next_admission(self) -> int:
        """The number of the next sample admitted, from 1."""
        self._admissions += 1
        return self._admissions

    async def to_thread(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call a function of the engine's in a thread; a cancelled caller waits for its end."""
        return await self.threads.run(function, *args)

    async def run_user(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call blocking user code in a daemon thread; a cancelled caller leaves at once."""
        return await self.user_threads.run(function, *args)

    def hurry(self, seconds: float) -> None:
        """Let nothing take longer than this when the runtime closes: what is left of an ending's budget."""
        for supervisor in (self.supervisor, *map(self._supervisor, KINDS)):
            supervisor.grace = min(supervisor.grace, seconds)
        self.threads.patience = min(self.threads.patience, seconds)

    async def obtain(
        self, kind: Kind, key: Hashable, spec: Callable[[], ChildSpec[Any]], *, shown: bool = True
    ) -> Ref[Any]:
        """The one actor of a kind for a key, started by the first who asks.

        Others who ask meanwhile wait for that start and share its outcome; if the one who started it is cancelled, one
        of them starts it anew. An actor that has died stays under its key (those who use it get `ActorGone`) until
        `forget`.

        Args:
            kind: which supervisor it lives under.
            key: what it owns: provider, base URL, account and model; a scope's key; a provider type.
            spec: makes its description, called only when it must be started.
            shown: list its limiter among `limiters`.

        Raises:
            Exception: what opening the actor raised.
        """
        while True:
            known = self._actors.get((kind, key))
            if known is None:
                if not shown:
                    self._hidden.add((kind, key))
                return await self._start(kind, key, spec)
            if not isinstance(known, _Start):
                return known
            event = anyio.Event()
            known.waiting[event] = None
            try:
                await event.wait()
            finally:
                known.waiting.pop(event, None)
            if known.error is not None:
                raise known.error

    def find(self, kind: Kind, key: Hashable) -> Ref[Any] | None:
        """The actor of a kind for a key, None when none has been started."""
        known = self._actors.get((kind, key))
        return None if isinstance(known, _Start) else known

    def actors(self, kind: Kind) -> list[Ref[Any]]:
        """The actors of a kind that were started here."""
        return [ref for (of, _), ref in self._actors.items() if of == kind and not isinstance(ref, _Start)]

    def limiters(self) -> list[Limiter]:
        """The limiters of all actors started here that are to be shown, then the one of user code's threads."""
        shown = [ref for key, ref in self._actors.items() if not isinstance(ref, _Start) and key not in self._hidden]
        limiters = [getattr(ref, "limiter", None) for ref in shown]
        own = [self.samples] if self.samples.limit is not None else []
        return own + [each for each in limiters if each is not None] + [self.user_threads.limiter]

    def set_limit(
        self,
        option: str,
        value: float | None,
        *,
        task: str | None = None,
        model: str | None = None,
        source: str = "set while it ran",
    ) -> int:
        """Change a limit of what runs here, now: growing admits at once, shrinking never disturbs a holder.

        Args:
            option: ``max_samples``, ``max_dataset_memory`` (MB, of tasks), ``max_tasks`` (of evaluations),
                ``max_connections``, ``requests_per_minute``, ``tokens_per_minute`` (of models),
                ``adaptive_connections`` (the most of models whose connections adapt), ``max_total_samples``,
                ``max_subprocesses`` or ``max_sandboxes``.
            value: at least 1, for rates at least 0, which is no quota; None takes back what was set, so that what was
                asked for holds again.
            task, model: only of tasks and models of these names; default all.
            source: what to call the place it was set from.

        Returns:
            How many limits were changed.

        Raises:
            OptionError: the value is refused, or the option is none of these.
            NotFoundError: nothing that runs here has this limit.
        """
        if option in RATES:
            value = None if value is None else real_number(value, option=option, source=source)
        else:
            value = number = None if value is None else whole_number(value, option=option, source=source)
            if option in self.shared:
                self.shared[option].set(number, source=source)
                return 1
        if option not in LIVE:
            raise OptionError(f"{option} cannot be changed while it runs; {', '.join([*LIVE, *SHARED])} can")
        changed = sum(owner.set_limit(option, value, task=task, model=model) for owner in tuple(self._owners))
        if not changed:
            of = "".join(f" {what} {name!r}" for what, name in (("task", task), ("model", model)) if name is not None)
            raise NotFoundError(f"{option} was not changed: nothing that runs here has it{' for' + of if of else ''}")
        return changed

    @contextmanager
    def owning_limits(self, owner: LimitOwner) -> Iterator[None]:
        """Ask `owner` too when a limit is set, for the block."""
        self._owners.append(owner)
        try:
            yield
        finally:
            self._owners.remove(owner)

    async def forget(self, kind: Kind, key: Hashable) -> None:
        """Stop the actor for a key, if there is one; the next `obtain` starts another."""
        known = self.find(kind, key)
        if known is not None:
            del self._actors[kind, key]
            await self._supervisor(kind).stop(known)

    async def _start(self, kind: Kind, key: Hashable, spec: Callable[[], ChildSpec[Any]]) -> Ref[Any]:
        start = self._actors[kind, key] = _Start()
        try:
            ref = await self._supervisor(kind).start(self._named(kind, spec()))
        except BaseException as error:
            del self._actors[kind, key]
            start.error = error if isinstance(error, Exception) else None
            raise
        else:
            self._actors[kind, key] = ref
            return ref
        finally:
            for event in start.waiting:
                event.set()

    def _named(self, kind: Kind, spec: ChildSpec[Any]) -> ChildSpec[Any]:
        """`spec` with a name that no other child has: two accounts of one model may well be called the same."""
        supervisor = self._supervisor(kind)
        taken = {child.address.removeprefix(f"{supervisor.address}/") for child in supervisor.children}
        names = itertools.chain([spec.name], (f"{spec.name} ({number})" for number in itertools.count(2)))
        return evolve(spec, name=next(name for name in names if name not in taken))

    def _supervisor(self, kind: Kind) -> Supervisor:
        supervisor: Supervisor = getattr(self, kind)
        return supervisor


@asynccontextmanager
async def open_runtime(
    settings: Settings | None = None, *, clock: Clock = SYSTEM_CLOCK, ledger: Ledger | None = None
) -> AsyncIterator[Runtime]:
    """Open a runtime in the running loop; leaving the block stops all that it started.

    Args:
        settings: default: the environment's, else built in.
        clock: where dates come from (a test's `LoopClock`).
        ledger: takes the kernel's events; default a new one.

    Raises:
        OptionError: the environment holds a value that is refused.
    """
    settings = settings or Settings.resolve()
    seed = settings.seed if settings.seed is not None else SystemRandom().getrandbits(64)
    chance = Random(seed)
    ids = Random(chance.getrandbits(128))
    ledger = ledger if ledger is not None else Ledger(clock=loop_clock())
    runtime = Runtime(
        settings=settings,
        seed=seed,
        random=chance,
        ids=ids,
        clock=clock,
        ledger=ledger,
        threads=EngineThreads(settings.max_engine_threads),
        user_threads=UserThreads(settings.max_user_threads, ledger=ledger),
    )
    with _surroundings(runtime), loop_watched():
        try:
            async with open_supervisor(
                "runtime", random=chance, ledger=ledger, grace=settings.shutdown_timeout
            ) as root:
                runtime.supervisor = root
                for kind in KINDS:
                    # An actor whose restarts are used up is gone alone; the others go on.
                    setattr(runtime, kind, await root.start_supervisor(kind, exhausted="abandon"))
                yield runtime
        finally:
            runtime.threads.close()
            for left in runtime.user_threads.close():
                logger.warning("user code still runs in a thread, which ends with the process: %s", left)


@contextmanager
def _surroundings(runtime: Runtime) -> Iterator[None]:
    """Make it the current runtime before its actors' context is taken, and let them inherit no lease."""
    with holding_nothing():
        tokens = runtime_variable.set(runtime), current_clock.set(runtime.clock)
        try:
            yield
        finally:
            runtime_variable.reset(tokens[0])
            current_clock.reset(tokens[1])


def current_runtime() -> Runtime | None:
    """The runtime that this code runs in, None outside of one."""
    return runtime_variable.get()


def new_id() -> str:
    """An id from the current runtime, else one from the system's chance."""
    runtime = current_runtime()
    return runtime.new_id() if runtime is not None else make_id(SystemRandom())
