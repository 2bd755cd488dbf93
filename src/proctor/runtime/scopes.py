"""``concurrency()``: a named limit that user code puts around a block.

In a runtime a scope is an actor like every other scarce thing, one for each key, shared by all tasks and samples, so it
shows in the display and can be resized while running. Outside a runtime it is limited within the running loop; that
table is a `RunVar`, kept by anyio for as long as the loop lives, not by this module.

Two calls that name one key but different numbers are a mistake in the caller's code: which of them held would depend on
who came first. So the second one is refused, naming both places.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from types import CodeType, TracebackType
from typing import Final, Protocol

from anyio.lowlevel import RunVar
from attrs import define, field

from proctor.actors import ChildSpec, Lease, Ledger, Limiter
from proctor.errors import NotFoundError
from proctor.runtime.ranks import SCOPE
from proctor.runtime.runtime import current_runtime
from proctor.runtime.sample_limits import current_sample
from proctor.runtime.settings import whole_number


class Bounds(Protocol):
    """The bounds of an adaptive limit (`AdaptiveConcurrency`)."""

    @property
    def max(self) -> int: ...


@define(eq=False)
class Scope:
    """A named limit; what ``async with concurrency(...) as scope`` gives.

    Attributes:
        name: what is shown. key: what tells it from others.
        declared: the number the code gave; place: where the code gave it first.
        visible: whether the display shows it.
        limiter: who counts; its limit differs from `declared` after `resize_concurrency`.
    """

    name: str
    key: str
    declared: int
    place: str
    visible: bool
    limiter: Limiter

    @property
    def concurrency(self) -> int:
        """How many may be inside at once, as it is now."""
        return self.limiter.limit if self.limiter.limit is not None else self.declared

    @property
    def value(self) -> int:
        """How many more could enter now."""
        return max(0, self.concurrency - self.limiter.used)


_loop_scopes: Final[RunVar[dict[str, Scope]]] = RunVar("proctor_scopes")


def concurrency(
    name: str,
    concurrency: int,
    key: str | None = None,
    visible: bool = True,
    adaptive: Bounds | None = None,
    resizable: bool = False,
) -> AbstractAsyncContextManager[Scope]:
    """``async with concurrency("service", 10):`` lets at most 10 tasks into the block at once.

    The limit holds for the whole runtime, over all tasks and samples; between tasks places are shared fairly. Outside
    a runtime it holds for the running loop. A block may be entered inside another one's; a task that would wait for a
    place it holds itself gets `DeadlockError`.

    Args:
        name: what the display shows, and the key when none is given.
        concurrency: how many at once, at least 1.
        key: tells scopes apart when the name is not enough (several accounts of one service).
        visible: show it in the display.
        adaptive: bounds of an adaptive limit; its maximum is the number, instead of `concurrency`.
        resizable: accepted for ported code; every scope can be resized (`resize_concurrency`).

    Raises:
        ValueError: another place uses the key with another number.
        OptionError: the number is below 1 or no whole number.
    """
    number = whole_number(
        adaptive.max if adaptive is not None else concurrency, option=f"concurrency({name!r}, …): the number"
    )
    frame = sys._getframe(1)
    return _Block(
        name=name,
        key=key or name,
        number=number,
        visible=visible,
        place=f"{frame.f_code.co_filename}:{frame.f_lineno}",
        code=frame.f_code,
        instruction=frame.f_lasti,
    )


def resize_concurrency(name: str, concurrency: int) -> None:
    """Change how many may be in a `concurrency()` block at once, also while it is in use.

    Growing lets waiting tasks in at once; shrinking disturbs nobody inside.

    Args:
        name: the scope's key (its name, if it was given none).
        concurrency: the new number, at least 1.

    Raises:
        NotFoundError: no scope of that key has been entered in this runtime (outside one: in this loop).
    """
    number = whole_number(concurrency, option=f"resize_concurrency({name!r}, …): the number")
    limiter = _find(name)
    if limiter is None:
        raise NotFoundError(f"no concurrency() scope with the key {name!r} has been entered here")
    limiter.resize(number)


def _find(key: str) -> Limiter | None:
    runtime = current_runtime()
    if runtime is not None:
        ref = runtime.find("scopes", key)
        return ref.limiter if ref is not None else None
    scope = _loop_scopes.get({}).get(key)
    return scope.limiter if scope is not None else None


@define(eq=False, kw_only=True)
class _Block(AbstractAsyncContextManager[Scope]):
    name: str
    key: str
    number: int
    visible: bool
    place: str
    code: CodeType
    instruction: int
    _lease: Lease | None = field(default=None, init=False)

    async def __aenter__(self) -> Scope:
        scope = await self._scope()
        if scope.declared != self.number:
            raise ValueError(
                f"concurrency({self.name!r}, {self.number}) at {self.place}: the key {self.key!r} already has the "
                f"number {scope.declared}, given at {scope.place}; use one number, or another key"
            )
        sample = current_sample()
        mark: AbstractContextManager[None] = nullcontext()
        if sample is None:
            lease = scope.limiter.lease()
        else:
            lease = scope.limiter.lease(group=sample.group, weight=sample.weight, order=sample.order())
            mark = sample.working.waiting()
        lease.code, lease.instruction = self.code, self.instruction  # messages name the user's line, not this one
        with mark:
            await lease.__aenter__()
        self._lease = lease
        return scope

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._lease is not None
        await self._lease.__aexit__(kind, error, traceback)

    async def _scope(self) -> Scope:
        runtime = current_runtime()
        if runtime is not None:
            ref = runtime.find("scopes", self.key)
            if ref is None:
                ref = await runtime.obtain("scopes", self.key, self._spec, shown=self.visible)
            state: Scope = ref.state
            return state
        scopes = _loop_scopes.get(None)
        if scopes is None:
            scopes = {}
            _loop_scopes.set(scopes)
        if self.key not in scopes:
            scopes[self.key] = self._make()
        return scopes[self.key]

    def _make(self) -> Scope:
        runtime = current_runtime()
        ledger = runtime.ledger if runtime is not None else Ledger()
        limiter = Limiter(self.number, name=f"concurrency {self.name}", rank=SCOPE, ledger=ledger)
        return Scope(self.name, self.key, self.number, self.place, self.visible, limiter)

    def _spec(self) -> ChildSpec[Scope]:
        scope = self._make()

        @asynccontextmanager
        async def hold(context: object) -> AsyncIterator[Scope]:
            yield scope

        return ChildSpec(f"concurrency {self.name}", hold, limiter=scope.limiter, leases="adopt")
