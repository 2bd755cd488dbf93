"""Lease scopes: leases that end when a piece of work ends, whoever took them.

Code that a task starts outside every nursery (an `asyncio.gather` whose sibling failed, a library's own tasks) outlives
the work it was started for, and with it the leases it holds or waits for. A scope is a context variable, which such
tasks inherit too: so they register with it, wherever they run, and at its end their leases are revoked and their waits
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import final

from attrs import define, field

from proctor.actors.lease import ENDED, WAITING, Lease
from proctor.errors import LeaseMisuse

current: ContextVar[LeaseScope | None] = ContextVar("proctor_lease_scope", default=None)


@final
@define(eq=False)
class LeaseScope:
    """A scope that leases taken below it belong to. Made by `lease_scope` only.

    Attributes:
        name: of the work, for messages. ended: whether it is over.
        stray: after the end, what was still held or waited for: a description of each lease.
    """

    name: str
    error: Callable[[str], Exception]
    outer: LeaseScope | None = field(default=None, init=False)
    ended: bool = field(default=False, init=False)
    stray: tuple[str, ...] = field(default=(), init=False)
    _members: dict[Lease | LeaseScope, None] = field(factory=dict, init=False)
    _token: Token[LeaseScope | None] | None = field(default=None, init=False)

    async def __aenter__(self) -> LeaseScope:
        if self._token is not None or self.ended:
            raise LeaseMisuse(f"{self.describe()} was entered before: a scope is entered once")
        self.outer = current.get()
        if self.outer is not None:
            self.outer.check(self)
            self.outer.add(self)
        self._token = current.set(self)
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        self.end()
        if token is None:
            raise LeaseMisuse(f"{self.describe()} is left, but not entered or left before")
        try:
            current.reset(token)
        except ValueError:
            raise LeaseMisuse(f"{self.describe()} is left in another task than entered it") from None

    def end(self) -> None:
        """End it now: leases held below it are revoked, waits refused, later attempts raise. Again: nothing."""
        if self.ended:
            return
        self.ended = True
        if self.outer is not None:
            self.outer.drop(self)
        stray: list[str] = []
        for member in list(self._members):
            if isinstance(member, LeaseScope):
                member.end()
                stray.extend(member.stray)
            elif member.state is not ENDED:  # as a part of a joint lease is that ended with another part
                stray.append(f"{member.describe()} is {member.state.value}")
                self._end_lease(member)
        self.stray = tuple(stray)

    def check(self, member: Lease | LeaseScope) -> None:
        """Raise the scope's error if it is over."""
        if self.ended:
            raise self.error(f"{self.name or 'the work'} has ended: {member.describe()} comes too late")

    def describe(self) -> str:
        """Its name, for messages."""
        return f"the lease scope {self.name!r}"

    def add(self, member: Lease | LeaseScope) -> None:
        """Register what is to end with this scope."""
        self._members[member] = None

    def drop(self, member: Lease | LeaseScope) -> None:
        """What ended by itself."""
        self._members.pop(member, None)

    def _end_lease(self, lease: Lease) -> None:
        error = self.error(f"{self.name or 'the work'} has ended: {lease.describe()} was {lease.state.value} still")
        if lease.state is WAITING:
            (lease.joint or lease.limiter).refuse(lease, error)
        else:
            lease.limiter.take_back(lease, error)


def lease_scope(*, ended: Callable[[str], Exception], name: str = "") -> LeaseScope:
    """A scope for ``async with``: leases taken below it, in child tasks too, are revocable and end with it.

    Args:
        ended: makes the error that leases and waits meet at and after the end, from a text.
        name: of the work that the scope is for, for those texts.
    """
    return LeaseScope(name, ended)


def current_scope() -> LeaseScope | None:
    """The innermost lease scope that the running code is below."""
    return current.get()


__all__ = ["LeaseScope", "current_scope", "lease_scope"]
