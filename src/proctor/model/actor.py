"""The model actor: who owns the clients of one model on one account, and how many calls may be in flight.

There is one for each provider, base URL, account and model in a runtime (`Runtime.obtain`). Its shell's limiter
counts the connections; its incarnation owns the clients; a call runs in the caller's own task under a lease. What all
calls must know (that the model is given up, that its server has answered) outlives a restart with the limiter.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final

import anyio
from attrs import define, field

from proctor.actors import ChildSpec, Limiter, Ref
from proctor.errors import ModelGivenUp
from proctor.model.api import ModelAPI
from proctor.model.retry import Entered
from proctor.runtime import Runtime, SampleContext
from proctor.runtime.ranks import CONNECTION

if TYPE_CHECKING:
    from proctor.model.source import Source

CLOSE_BOUND: Final = 5.0  # seconds that closing a client may take


@define(eq=False, kw_only=True)
class ModelShare:
    """What outlives an incarnation: the limiter, the limits asked for, and what is known of the server.

    Attributes:
        name: shown. limiter: connections. default: the limit when nobody asks for one.
        reached: the server has answered something. retries: attempts that failed and were followed by another.
        next_attempt: when the last announced retry comes (`anyio.current_time`).
    """

    name: str
    limiter: Limiter
    default: int
    reached: bool = field(default=False, init=False)
    retries: int = field(default=0, init=False)
    next_attempt: float = field(default=0.0, init=False)
    _given_up: ModelGivenUp | None = field(default=None, init=False)
    _asked: Counter[int] = field(factory=Counter, init=False)
    _set: int | None = field(default=None, init=False)

    def check(self) -> None:
        """Raise `ModelGivenUp` when the model is given up: an error of its own for each caller."""
        if self._given_up is not None:
            raise ModelGivenUp(str(self._given_up), status=self._given_up.status)

    def give_up(self, error: ModelGivenUp) -> None:
        """Give the model up; the first reason stays."""
        self._given_up = self._given_up or error

    def forgive(self) -> None:
        """Try the model again."""
        self._given_up = None

    def retrying(self, wait: float) -> None:
        """Count a retry."""
        self.retries += 1
        self.next_attempt = anyio.current_time() + wait

    @contextmanager
    def asked(self, limit: int | None) -> Iterator[None]:
        """Hold the connections to `limit` for the block; of several asked for at a time the smallest counts."""
        if limit is None:
            yield
            return
        self._asked[limit] += 1
        self._fit()
        try:
            yield
        finally:
            self._asked[limit] -= 1
            if not self._asked[limit]:
                del self._asked[limit]
            self._fit()

    def set_limit(self, option: str, value: int | None, *, task: str | None, model: str | None) -> int:
        """A number set while it runs (`Runtime.set_limit`) goes before what is asked for; None takes it back."""
        if option != "max_connections" or task is not None or model not in {None, self.name}:
            return 0
        self._set = value
        self._fit()
        return 1

    def _fit(self) -> None:
        limit = self._set or min(self._asked, default=self.default)
        if limit != self.limiter.limit:
            self.limiter.resize(limit)


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


def model_spec(source: Source, runtime: Runtime) -> Callable[[], ChildSpec[ModelState]]:
    """How to start the actor of a model in a runtime."""

    def spec() -> ChildSpec[ModelState]:
        default = source.default_limit
        limiter = Limiter(default, name=source.name, rank=CONNECTION, ledger=runtime.ledger)
        share = ModelShare(name=source.name, limiter=limiter, default=default)

        @asynccontextmanager
        async def open_model(_: Any) -> AsyncIterator[ModelState]:
            state = ModelState(share)
            with runtime.owning_limits(share):
                try:
                    yield state
                finally:
                    await state.aclose()

        return ChildSpec(_address(source), open_model, limiter=limiter, restart="permanent", leases="drain")

    return spec


def _address(source: Source) -> str:
    """The actor's name among its siblings: addresses have no slashes in their parts, and accounts are not shown."""
    digest = hashlib.blake2b(repr(source.actor_key).encode(), digest_size=4).hexdigest()
    return f"{source.name.replace('/', ':')} {digest}"


async def model_actor(runtime: Runtime, source: Source) -> Ref[ModelState]:
    """The actor of a model, started at its first use in a runtime."""
    key = source.actor_key
    return runtime.find("models", key) or await runtime.obtain("models", key, model_spec(source, runtime))


def connection(
    share: ModelShare, sample: SampleContext | None, order: tuple[int, ...] | None, *, composite: bool
) -> Callable[[], Entered]:
    """Makes the lease of one connection, the same for every attempt of a call.

    Args:
        order: the call's place within its group. composite: the provider calls other models, and takes none.
    """
    if composite:
        return nullcontext
    group = None if sample is None else sample.group
    weight = 1.0 if sample is None else sample.weight
    return lambda: share.limiter.lease(group=group, weight=weight, order=order)
