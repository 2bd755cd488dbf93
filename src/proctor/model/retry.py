"""The one retry loop of a model call, run in the caller's own task.

Every attempt holds a connection; a wait between two attempts holds nothing. The place is given back before the wait
and asked for again as the same one, so a call that was told to wait is not overtaken by those that came after it, and
does not keep anybody from the connection meanwhile. Where that place is, and when the next attempt may be sent, is the
`Turn`'s: a paced model's pacer decides it for all its calls together; a call of a provider that takes no connection of
its own (`composite`) waits by itself.

Clocks: an attempt's time limit starts when it is sent. The limit for the whole call starts with its first attempt and
goes on through every later wait; time in the first queue counts for neither, since a long queue is no failure.

How long such a wait by itself is: what the provider asks for is an upper bound and never the only one, because one
absurd ``Retry-After`` must not stop a call for an hour.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio
from attrs import define, field, frozen

from proctor.errors import (
    KernelError,
    LimitExceededError,
    ModelError,
    ModelGivenUp,
    SampleEnded,
    TransientModelError,
    with_notes,
)
from proctor.model.config import GenerateConfig
from proctor.model.failures import Kind, wait_asked

T = TypeVar("T")

ATTEMPT_TIMEOUT: Final = 600  # seconds (behaviour.md, section 3)
UNREACHABLE_ATTEMPTS: Final = 3  # attempts on a server that has never answered, then the model is given up
UNREACHABLE_WAIT: Final = 0.5  # seconds between them, growing by as much
FIRST_PAUSE: Final = 0.05  # seconds after the first 429 that names no time
PAUSE: Final = 0.5  # seconds after the second, doubling
LONGEST_PAUSE: Final = 8.0
ASKED_PAUSE: Final = 2.0  # seconds that are granted to the first Retry-After, doubling
FAULT_PAUSE: Final = 0.5  # seconds after a transient failure, doubling
LONGEST_FAULT_PAUSE: Final = 30.0
STEEPEST: Final = 40  # doublings; what follows is longer than anything


@frozen(kw_only=True)
class RetryPolicy:
    """How often and how long a call is tried.

    Attributes:
        max_retries: attempts after the first, None without end.
        attempt_timeout: seconds for one attempt. timeout: seconds for all, None without end.
    """

    max_retries: int | None = None
    attempt_timeout: float = ATTEMPT_TIMEOUT
    timeout: float | None = None

    @classmethod
    def of(cls, config: GenerateConfig) -> RetryPolicy:
        """The policy that a configuration asks for."""
        return cls(
            max_retries=config.max_retries,
            attempt_timeout=config.attempt_timeout or ATTEMPT_TIMEOUT,
            timeout=config.timeout,
        )


class Health(Protocol):
    """What all calls of one model know of it."""

    @property
    def reached(self) -> bool:
        """The server has answered something at least once."""
        ...

    @reached.setter
    def reached(self, reached: bool, /) -> None: ...

    def check(self) -> None:
        """Raise `ModelGivenUp` when the model is given up."""

    def give_up(self, error: ModelGivenUp) -> None:
        """Give the model up for everybody."""

    def retrying(self, wait: float) -> None:
        """An attempt failed and the next one comes after `wait` seconds."""


class Marks(Protocol):
    """How a sample is told what its time is spent on (`WorkingTime`)."""

    def waiting(self) -> AbstractContextManager[Any]: ...

    def active(self) -> AbstractContextManager[Any]: ...


class NoMarks:
    """For calls outside any sample."""

    def waiting(self) -> AbstractContextManager[None]:
        return nullcontext()

    def active(self) -> AbstractContextManager[None]:
        return nullcontext()


class Entered(Protocol):
    """What ``async with`` takes; a lease, most of the time."""

    def __aenter__(self) -> Awaitable[Any]: ...

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> Awaitable[bool | None]: ...


@frozen
class Failure:
    """One attempt that failed.

    Attributes:
        kind: what to do about it. streak: how many of this kind there were in a row, from 1.
        asked: seconds that the provider asks to wait.
    """

    error: Exception
    kind: Kind
    streak: int = 1
    asked: float | None = None


class Turn(Protocol):
    """A call's place at its model: entered when it may be sent for the first time, left when it is over.

    Of each attempt it is told what came of it, once, before anything else is awaited.
    """

    def __aenter__(self) -> Awaitable[Any]: ...

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> Awaitable[bool | None]: ...

    def succeeded(self, result: Any) -> None:
        """The call was answered."""

    def failed(self, failure: Failure) -> None:
        """The last attempt failed."""

    def again(self, failure: Failure) -> Awaitable[None]:
        """An attempt failed: hold nothing until the next one may be sent."""
        ...


def pause(kind: Kind, streak: int, asked: float | None, chance: random.Random) -> float:
    """Seconds to wait before the next attempt.

    Args:
        kind: of the failure. streak: how many of this kind there were in a row, from 1.
        asked: what the provider asks for.
    """
    doublings = min(streak - 1, STEEPEST)
    if kind is Kind.UNREACHABLE:
        return UNREACHABLE_WAIT * streak
    if asked is not None:
        return min(asked, ASKED_PAUSE * 2.0**doublings)
    if kind is Kind.RATE_LIMIT:
        longest = FIRST_PAUSE if streak == 1 else min(LONGEST_PAUSE, PAUSE * 2.0 ** (doublings - 1))
        return longest * chance.uniform(0.8, 1.0)
    return min(LONGEST_FAULT_PAUSE, FAULT_PAUSE * 2.0**doublings) * chance.uniform(0.5, 1.5)


@define(eq=False)
class Unpaced:
    """The turn of a call that waits by itself (`Turn`).

    Args:
        lease: makes what each attempt holds.
    """

    lease: Callable[[], Entered]
    health: Health
    chance: random.Random
    _held: Entered | None = field(default=None, init=False)

    async def __aenter__(self) -> None:
        lease = self.lease()
        await lease.__aenter__()
        self._held = lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        held, self._held = self._held, None
        return None if held is None else await held.__aexit__(kind, error, traceback)

    def succeeded(self, result: Any) -> None:
        """Nobody wants to know."""

    def failed(self, failure: Failure) -> None:
        """Nobody wants to know."""

    async def again(self, failure: Failure) -> None:
        await self.__aexit__(None, None, None)
        wait = pause(failure.kind, failure.streak, failure.asked, self.chance)
        self.health.retrying(wait)
        await anyio.sleep(wait)
        await self.__aenter__()


@define(eq=False, kw_only=True)
class Retries(Generic[T]):
    """One call: its attempts so far and what came of them. Use it once.

    Attributes:
        model: named in texts.
        attempt: makes one attempt. turn: its place, used once.
        judge: what to do about an exception.
        failed: attempts that failed so far. sent_at: when the last one was sent (`anyio.current_time`).
    """

    model: str
    policy: RetryPolicy
    attempt: Callable[[], Awaitable[T]]
    turn: Turn
    judge: Callable[[Exception], Kind]
    health: Health
    marks: Marks = field(factory=NoMarks)
    failed: int = field(default=0, init=False)
    sent_at: float = field(default=0.0, init=False)
    _streak: tuple[Kind, int] = field(default=(Kind.FINAL, 0), init=False)
    _last: Exception | None = field(default=None, init=False)

    async def run(self) -> T:
        """Attempt until it succeeds, fails for good or may not be tried again.

        Raises:
            ModelGivenUp: the key was refused, the model is unknown or its server was never reached.
            ModelError: the call took longer than its time limit.
            Exception: the provider's own, noted with the attempts when they are used up.
        """
        if self.policy.timeout is None:  # the usual case saves a scope
            return await self._until_done(None)
        with anyio.CancelScope() as whole:
            return await self._until_done(whole)
        raise self._overdue()

    async def _until_done(self, whole: anyio.CancelScope | None) -> T:
        turn, marks = self.turn, self.marks
        async with _Queued(turn, marks):
            while True:
                try:
                    result = await self._send(whole)
                except Exception as error:
                    failure = self._after(_sole(error))
                else:
                    turn.succeeded(result)
                    return result
                with marks.waiting():
                    await turn.again(failure)

    async def _send(self, whole: anyio.CancelScope | None) -> T:
        """Make one attempt, the connection held."""
        self.health.check()
        self.sent_at = now = anyio.current_time()
        if whole is not None and self.failed == 0 and self.policy.timeout is not None:
            whole.deadline = now + self.policy.timeout
        limit = self.policy.attempt_timeout
        with self.marks.active(), anyio.CancelScope(deadline=now + limit):
            result = await self.attempt()
            self.health.reached = True
            return result
        raise TransientModelError(f"{self.model}: no answer within {limit:g} s (attempt_timeout)")

    def _after(self, error: Exception) -> Failure:
        """Account for a failed attempt: what to wait for, or the error raised where there is no other attempt."""
        if isinstance(error, KernelError | SampleEnded | LimitExceededError):
            raise error  # the lease's or a limit's: no attempt was made or it was taken back
        kind = self.judge(error)
        self.failed += 1
        self._last = error
        streak = self._streak[1] + 1 if self._streak[0] is kind else 1
        self._streak = (kind, streak)
        if getattr(error, "status", None) is not None:
            self.health.reached = True
        if kind is Kind.UNREACHABLE and self.health.reached:
            kind = Kind.TRANSIENT
        failure = Failure(error, kind, streak, wait_asked(error))
        raised = self._no_more(failure)
        if raised is not None:
            self.turn.failed(failure)
            raise raised
        return failure

    def _no_more(self, failure: Failure) -> Exception | None:
        """What to raise if there is no other attempt."""
        error, kind = failure.error, failure.kind
        if kind is Kind.GIVE_UP or (kind is Kind.UNREACHABLE and self._never_reached(failure.streak)):
            return self._give_up(error)
        if kind is Kind.FINAL:
            return error
        if self.policy.max_retries is not None and self.failed > self.policy.max_retries:
            with_notes(error, self._attempts())
            return error
        return None

    def _never_reached(self, streak: int) -> bool:
        limit = self.policy.max_retries
        used_up = limit is not None and self.failed > limit
        return not self.health.reached and (streak >= UNREACHABLE_ATTEMPTS or used_up)

    def _give_up(self, error: Exception) -> ModelGivenUp:
        if isinstance(error, ModelGivenUp):
            given_up = error
        else:
            given_up = ModelGivenUp(str(error) or repr(error), status=getattr(error, "status", None))
            given_up.__cause__ = error
        self.health.give_up(given_up)
        return given_up

    def _attempts(self) -> str:
        made = "1 attempt was" if self.failed == 1 else f"{self.failed} attempts were"
        return f"{made} made (max_retries={self.policy.max_retries})"

    def _overdue(self) -> ModelError:
        made = f"after {self.failed} failed attempts" if self.failed else "in its first attempt"
        error = ModelError(f"{self.model}: no answer within {self.policy.timeout:g} s (timeout), {made}")
        error.__cause__ = self._last
        return error


class _Queued:
    """A turn whose first wait is marked as waiting."""

    __slots__ = ("_marks", "_turn")

    def __init__(self, turn: Turn, marks: Marks) -> None:
        self._turn, self._marks = turn, marks

    async def __aenter__(self) -> None:
        with self._marks.waiting():
            await self._turn.__aenter__()

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Awaitable[bool | None]:
        return self._turn.__aexit__(kind, error, traceback)


def _sole(error: Exception) -> Exception:
    """The one leaf of a group of one; providers with a nursery of their own raise such groups."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
