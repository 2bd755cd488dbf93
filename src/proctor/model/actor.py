"""The model actor: who owns the clients of one model on one account, and when a call of it may be sent.

There is one for each provider, base URL, account and model in a runtime (`Runtime.obtain`). Its shell's limiter has a
`Pacer` for its admission policy, which counts the connections and keeps to the quotas; its incarnation owns the
clients; a call runs in the caller's own task under a lease. What all calls must know (that the model is given up, that
its server has answered, what pacing has learned) outlives a restart with the limiter.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
from attrs import define, evolve, field

from proctor.actors import ActorContext, ChildSpec, Limiter, Ref
from proctor.actors.lease import WAITING
from proctor.errors import ActorGone, ModelGivenUp
from proctor.model.admission import PacerAdmission, Timer
from proctor.model.api import ModelAPI
from proctor.model.connections import Connections, ceiling_of, provided, signal_of, smallest
from proctor.model.pacing import Pacer, PacingConfig
from proctor.model.pacing.window import START
from proctor.model.quota import UNDECLARED, PacingOptions, together
from proctor.runtime import Runtime
from proctor.runtime.backend import loop_clock
from proctor.runtime.cpus import cpus
from proctor.runtime.descriptors import descriptors
from proctor.runtime.ranks import CONNECTION
from proctor.runtime.runtime import RATES

if TYPE_CHECKING:
    from proctor.model.source import Source

T = TypeVar("T")

OTHER_FILES: Final = 128  # descriptors that are no connection of a model
SETTABLE: Final = ("max_connections", "adaptive_connections", *RATES)
CLOSE_BOUND: Final = 5.0  # seconds that closing a client may take


@define(eq=False, kw_only=True)
class ModelShare:
    """What outlives an incarnation: the limiter, what is asked for, and what is known of the server.

    Attributes:
        name: shown. limiter: connections. api: a client to ask for what its class says. now: the loop's clock.
        retries: attempts that failed and were followed by another, by group.
        next_attempt: when the next one comes (`anyio.current_time`), as far as that was known at the last failure.
        watchers: called after each poll, beside the gate: other gates that this model's room is a matter of.
    """

    name: str
    limiter: Limiter
    admission: PacerAdmission
    api: ModelAPI
    timer: Timer
    now: Callable[[], float] = field(factory=loop_clock)
    retries: Counter[Hashable] = field(factory=Counter, init=False)
    next_attempt: float = field(default=0.0, init=False)
    watchers: dict[Callable[[], object], None] = field(factory=dict, init=False)
    _given_up: ModelGivenUp | None = field(default=None, init=False)
    _asked: Counter[Connections] = field(factory=Counter, init=False)
    _declared: Counter[PacingOptions] = field(factory=Counter, init=False)
    _set: dict[str, float] = field(factory=dict, init=False)
    _config: PacingConfig = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._config = self._wanted()
        self.limiter.on_wakeup = self._polled

    # -- what is known of the server (`Health`)

    @property
    def reached(self) -> bool:
        """The server has answered something."""
        return self.admission.reached

    @reached.setter
    def reached(self, reached: bool) -> None:
        self.admission.reached = reached

    def check(self) -> None:
        """Raise `ModelGivenUp` when the model is given up: an error of its own for each caller."""
        if self._given_up is not None:
            raise self._refusal()

    def give_up(self, error: ModelGivenUp) -> None:
        """Give the model up; the first reason stays. Those who wait hear of it at once, nothing more is sent."""
        self._given_up = self._given_up or error
        for lease in list(self.limiter.waiters()):
            if lease.state is WAITING:
                self.limiter.refuse(lease, self._refusal())

    def forgive(self) -> None:
        """Try the model again, with one request."""
        self._given_up = None
        self.admission.begin_anew()

    def retrying(self, wait: float, group: Hashable = None) -> None:
        """Count a retry."""
        self.retries[group] += 1
        self.next_attempt = self.now() + wait

    def _refusal(self) -> ModelGivenUp:
        assert self._given_up is not None
        return ModelGivenUp(str(self._given_up), status=self._given_up.status)

    # -- what is asked for

    @contextmanager
    def asked(self, connections: Connections | None, declared: PacingOptions = UNDECLARED) -> Iterator[None]:
        """Hold the model to this for the block; of several asked for at a time the smallest counts."""
        if connections is None and declared == UNDECLARED:
            yield
            return
        self._ask(connections, declared, 1)
        try:
            yield
        finally:
            self._ask(connections, declared, -1)

    def _ask(self, connections: Connections | None, declared: PacingOptions, change: int) -> None:
        news = connections is not None and _count(self._asked, connections, change)
        if declared != UNDECLARED:
            news = _count(self._declared, declared, change) or news
        if news:
            self._fit()

    def set_limit(self, option: str, value: float | None, *, task: str | None, model: str | None) -> int:
        """A number set while it runs (`Runtime.set_limit`) goes before what is asked for; None takes it back."""
        if option not in SETTABLE or task is not None or model not in {None, self.name}:
            return 0
        if option == "adaptive_connections" and self._connections().fixed is not None:
            return 0
        if value is None:
            self._set.pop(option, None)
        else:
            self._set[option] = value
        self._fit()
        return 1

    def _fit(self) -> None:
        config = self._wanted()
        if config != self._config:
            self._config = config
            self.admission.pacer.configure(config, anyio.current_time())
            self.limiter.poll()

    def _wanted(self) -> PacingConfig:
        rates = {name: self._set[name] for name in RATES if name in self._set}
        return pacing_config(self.api, self._connections(), evolve(together(self._declared), **rates))

    def _connections(self) -> Connections:
        number, most = self._set.get("max_connections"), self._set.get("adaptive_connections")
        if number is not None:
            return Connections(int(number))
        asked = smallest(self._asked) if self._asked else provided(self.api)
        return asked if most is None or asked.fixed is not None else evolve(asked, most=int(most))

    # -- after each poll

    def _polled(self, wakeup: float | None) -> None:
        if wakeup is not None:
            self.timer.wake(wakeup)
        if self.admission.gate.waiting:
            self.admission.let_samples_pass()
        if self.watchers:
            for tell in list(self.watchers):
                tell()


def _count(counter: Counter[T], what: T, change: int) -> bool:
    """Count one more or one less; whether it is the first of its kind, or was the last."""
    counter[what] += change
    count = counter[what]
    if not count:
        del counter[what]
    return count == (1 if change > 0 else 0)


def pacing_config(api: ModelAPI, connections: Connections, quota: PacingOptions = UNDECLARED) -> PacingConfig:
    """How a model is paced.

    Args:
        quota: what holds of those that are declared.
    """
    signal = api.signal or signal_of(api.base_url)
    return PacingConfig(
        max_connections=connections.fixed,
        adaptive=None if connections.fixed is not None else connections.adaptive(min(ceiling_of(signal), room())),
        requests_per_minute=quota.requests_per_minute,
        tokens_per_minute=quota.tokens_per_minute,
        signal=signal,
        reserves_max_tokens=api.reserves_max_tokens,
    )


def room() -> int:
    """The most connections that one model may come to: half of the descriptors, so that others have some too."""
    return max(START, (descriptors().soft - OTHER_FILES) // 2)


@define(eq=False)
class ModelState:
    """An incarnation of the actor: its clients, one for each set of model arguments in use."""

    share: ModelShare
    _clients: dict[Hashable, ModelAPI] = field(factory=dict, init=False)

    def client(self, source: Source) -> ModelAPI:
        """The client for a source. It is open for as long as the lease under which it was asked for is held."""
        api = self._clients.get(source.key)
        if api is None:
            api = self._clients[source.key] = source.make()
        return api

    async def aclose(self) -> None:
        """Close the clients, each in bounded time."""
        clients, self._clients = list(self._clients.values()), {}
        for api in clients:
            with anyio.CancelScope(shield=True, deadline=anyio.current_time() + CLOSE_BOUND):
                await api.aclose()


def model_share(source: Source, runtime: Runtime) -> ModelShare:
    """What the actor of a model begins with."""
    api = source.described
    config = pacing_config(api, provided(api))
    pacer = Pacer(config, now=anyio.current_time(), rng=runtime.own_random())
    admission = PacerAdmission(pacer, one_first=api.adapts, cpus=cpus())
    limiter = Limiter(None, name=source.name, rank=CONNECTION, ledger=runtime.ledger, admission=admission)
    return ModelShare(name=source.name, limiter=limiter, admission=admission, api=api, timer=Timer(limiter))


def model_spec(source: Source, runtime: Runtime) -> Callable[[], ChildSpec[ModelState]]:
    """How to start the actor of a model in a runtime."""

    def spec() -> ChildSpec[ModelState]:
        share = model_share(source, runtime)

        @asynccontextmanager
        async def open_model(context: ActorContext[Any]) -> AsyncIterator[ModelState]:
            state = ModelState(share)
            context.start_soon(share.timer.run, name="timer of pacing")
            with runtime.owning_limits(share):
                try:
                    yield state
                finally:
                    await state.aclose()

        return ChildSpec(_address(source), open_model, limiter=share.limiter, restart="permanent", leases="drain")

    return spec


def _address(source: Source) -> str:
    """The actor's name among its siblings: addresses have no slashes in their parts, and accounts are not shown."""
    digest = hashlib.blake2b(repr(source.actor_key).encode(), digest_size=4).hexdigest()
    return f"{source.name.replace('/', ':')} {digest}"


async def model_actor(runtime: Runtime, source: Source) -> Ref[ModelState]:
    """The actor of a model, started at its first use in a runtime."""
    key = source.actor_key
    return runtime.find("models", key) or await runtime.obtain("models", key, model_spec(source, runtime))


def shares(runtime: Runtime) -> list[ModelShare]:
    """What is known of each model that was called in a runtime, while its actor lives."""
    found = []
    for ref in runtime.actors("models"):
        with suppress(ActorGone):
            found.append(ref.state.share)
    return found
