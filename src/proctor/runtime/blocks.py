"""Limits on a block of code: tokens, cost, turns, messages, time and working time.

``with token_limit(10_000):`` holds for what happens inside it, in child tasks too. A sample's own limits are the same
objects, opened around its solvers.

The open limits form a chain in a context variable, each with the one around it. *Counted* limits (tokens, cost, turns,
messages) are asked before a model call is sent, since a call that can only exceed a limit that is reached is a waste,
and told of its usage afterwards; the error comes out of the call, with the answer in it. *Timed* limits (time, working
time) are a cancel scope around the block: the error comes out of the ``with`` statement, and only when that scope
caught the cancellation, so that whatever cancels from further out wins.

When several counted limits are met at once, the outermost raises: code that catches the errors of its own limit and
tries again would otherwise try for ever. The messages of a conversation are no sum, so of message limits only the
innermost counts: a sub-agent has a conversation of its own.

Rejected: one context variable for each kind (six of each to set, and no order between them); polling the working time
(late by the interval, and a timer for every sample).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ClassVar, Final, Self

import anyio
from attrs import define, field

from proctor.errors import LimitExceededError, OptionError, UsageError
from proctor.runtime.sample_limits import WorkingTime, current_sample
from proctor.runtime.tokens import Metering, Usage, metering

_innermost: Final[ContextVar[Limit | None]] = ContextVar("proctor_limits", default=None)


@define(eq=False)
class Limit:
    """A limit on a block, made by `token_limit` and the like; opened once, with a ``with`` statement.

    Attributes:
        kind: token, cost, turn, message, time or working.
    """

    kind: ClassVar[str]

    _allowed: float | None
    _around: Limit | None = field(default=None, init=False)
    _opened: bool = field(default=False, init=False)
    _closed: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        check_allowed(self.kind, self._allowed)

    @property
    def limit(self) -> float | None:
        """What is allowed, None for any amount."""
        return self._allowed

    @property
    def usage(self) -> float:
        """What has been used since the block was entered; after its end, what it used."""
        raise NotImplementedError

    @property
    def remaining(self) -> float | None:
        """What is left, None when there is no limit."""
        return None if self.limit is None else self.limit - self.usage

    def __enter__(self) -> Self:
        if self._opened:
            raise UsageError(f"a {self.kind} limit holds for one block; make another with {self.kind}_limit(…)")
        self._opened, self._around = True, _innermost.get()
        _innermost.set(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._closed = True
        if _innermost.get() is self:  # else it is left in another task than it was entered in
            _innermost.set(self._around)
        return None

    def __deepcopy__(self, memo: Any) -> Self:
        # A forked state has the limits of its sample, not limits of its own.
        return self

    def _error(self, value: float, allowed: float, *, verb: str = "exceeded") -> LimitExceededError:
        text = f"{self.kind} limit of {_shown(allowed)} {verb}: {_shown(value)} used"
        return LimitExceededError(self.kind, value=value, limit=allowed, message=text, source=self)


@define(eq=False)
class CountedLimit(Limit):
    """A limit on what model calls use. What is allowed may be changed while the block runs."""

    @property
    def limit(self) -> float | None:
        """What is allowed, None for any amount. Setting it checks nothing."""
        return self._allowed

    @limit.setter
    def limit(self, allowed: float | None) -> None:
        check_allowed(self.kind, allowed)
        self._allowed = allowed

    def count(self, usage: Usage | None) -> None:
        """Account for a call that has ended; None where the provider did not say what it used."""

    def met(self, *, another: bool) -> LimitExceededError | None:
        """The error if more was used than is allowed, or, before `another` call, as much."""
        used, allowed = self.usage, self.limit
        if allowed is None or used < allowed or (used == allowed and not another):
            return None
        return self._error(used, allowed, verb="reached" if used == allowed else "exceeded")


@define(eq=False)
class TokenBlock(CountedLimit):
    """Tokens; `type` says which."""

    kind = "token"
    type: str = "all"
    _used: int = field(default=0, init=False)
    _metering: Metering = field(init=False)

    def __attrs_post_init__(self) -> None:
        check_allowed(self.kind, self._allowed)
        self._metering = metering(self.type)

    @property
    def usage(self) -> float:
        """Tokens used, of those that count."""
        return self._used

    def count(self, usage: Usage | None) -> None:
        """Add the tokens of a call."""
        if usage is not None:
            self._used += self._metering(usage)


@define(eq=False)
class CostBlock(CountedLimit):
    """Dollars."""

    kind = "cost"
    _used: float = field(default=0.0, init=False)

    @property
    def usage(self) -> float:
        """Dollars spent."""
        return self._used

    def count(self, usage: Usage | None) -> None:
        """Add the cost of a call."""
        if usage is not None and usage.total_cost is not None:
            self._used += usage.total_cost


@define(eq=False)
class TurnBlock(CountedLimit):
    """Model calls that were answered."""

    kind = "turn"
    _used: int = field(default=0, init=False)

    @property
    def usage(self) -> float:
        """Answers so far."""
        return self._used

    def count(self, usage: Usage | None) -> None:
        """Add a turn."""
        self._used += 1


@define(eq=False)
class MessageBlock(CountedLimit):
    """Messages of a conversation, all of them, not only those added in the block."""

    kind = "message"
    _used: int = field(default=0, init=False)

    @property
    def usage(self) -> float:
        """Messages of the conversation that was last looked at."""
        return self._used

    def check(self, messages: int, *, another: bool) -> None:
        """Raise if a conversation has more messages than are allowed, or, where `another` must follow, as many."""
        self._used = messages
        if (error := self.met(another=another)) is not None:
            raise error


@define(eq=False)
class TimeBlock(Limit):
    """Seconds since the block was entered."""

    kind = "time"
    _began: float | None = field(default=None, init=False)
    _ended: float | None = field(default=None, init=False)
    _scope: anyio.CancelScope | None = field(default=None, init=False)

    @property
    def usage(self) -> float:
        """Seconds so far."""
        if self._began is None:
            return 0.0
        return (anyio.current_time() if self._ended is None else self._ended) - self._began

    def __enter__(self) -> Self:
        Limit.__enter__(self)
        self._began = self._now()
        if self._allowed is not None:
            self._scope = anyio.CancelScope()
            self._scope.__enter__()
            self._watch(self._scope, self._allowed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._ended = self._now()
        Limit.__exit__(self, kind, error, traceback)
        if self._scope is None or self._allowed is None:
            return None
        suppressed = self._scope.__exit__(kind, error, traceback)
        if self._scope.cancelled_caught and suppressed:
            raise self._error(self.usage, self._allowed) from None
        return suppressed

    def _now(self) -> float:
        return anyio.current_time()

    def _watch(self, scope: anyio.CancelScope, allowed: float) -> None:
        scope.deadline = anyio.current_time() + allowed


@define(eq=False)
class WorkingBlock(TimeBlock):
    """Seconds of work since the block was entered: without waits that no other branch of the sample worked through.

    Outside of a sample all time is work.
    """

    kind = "working"
    _clock: WorkingTime | None = field(default=None, init=False)
    _unwatch: Any = field(default=None, init=False)

    @property
    def usage(self) -> float:
        """Seconds of work so far."""
        if self._began is None:
            return 0.0
        return (self._now() if self._ended is None else self._ended) - self._began

    def __enter__(self) -> Self:
        sample = current_sample()
        self._clock = None if sample is None else sample.working
        TimeBlock.__enter__(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        if self._unwatch is not None:
            self._unwatch()
        return TimeBlock.__exit__(self, kind, error, traceback)

    def _now(self) -> float:
        return anyio.current_time() if self._clock is None else self._clock.working()

    def _watch(self, scope: anyio.CancelScope, allowed: float) -> None:
        clock = self._clock
        if clock is None:
            TimeBlock._watch(self, scope, allowed)
            return

        def move() -> None:
            scope.deadline = anyio.current_time() + allowed - self.usage if clock.running else math.inf

        self._unwatch = clock.observe(move)
        move()


def check_messages(messages: int, *, another: bool = False) -> None:
    """Hold a conversation to the message limit around this code.

    Args:
        another: one more message must follow.

    Raises:
        LimitExceededError: it has too many messages.
    """
    for limit in _chain():
        if isinstance(limit, MessageBlock):
            limit.check(messages, another=another)
            return


def check_call() -> None:
    """Before a model call is sent.

    Raises:
        LimitExceededError: a limit of tokens, cost or turns is reached.
    """
    if (error := _first_met(another=True)) is not None:
        raise error


def check_used() -> None:
    """After a limit was changed.

    Raises:
        LimitExceededError: more was used than a limit of tokens, cost or turns allows.
    """
    if (error := _first_met(another=False)) is not None:
        raise error


def record_call(usage: Usage | None, output: object = None) -> None:
    """Account for a model call that was answered, in every open limit.

    Args:
        output: the answer, which the error brings along.

    Raises:
        LimitExceededError: a limit of tokens or cost is exceeded.
    """
    for limit in _chain():
        if isinstance(limit, CountedLimit):
            limit.count(usage)
    if (error := _first_met(another=False)) is not None:
        error.output = output
        raise error


def cost_is_limited() -> bool:
    """Whether a limit of cost is open around this code."""
    return any(isinstance(limit, CostBlock) and limit.limit is not None for limit in _chain())


def holds_here(limit: object) -> bool:
    """Whether a limit is open around this code; False once its block has ended, and for what is no limit."""
    return any(each is limit for each in _chain())


def check_allowed(kind: str, allowed: Any) -> None:
    """Refuse what is no limit.

    Raises:
        OptionError: it is neither None nor a number of at least 0.
    """
    if allowed is None:
        return
    if isinstance(allowed, bool) or not isinstance(allowed, int | float) or not 0 <= allowed < math.inf:
        raise OptionError(f"{kind} limit: it must be None or a number of at least 0, not {allowed!r}")


def _chain() -> Iterator[Limit]:
    """The open limits around this code, innermost first."""
    limit = _innermost.get()
    while limit is not None:
        if not limit._closed:  # a stray task still has those around it that have ended meanwhile
            yield limit
        limit = limit._around


def _first_met(*, another: bool) -> LimitExceededError | None:
    """The error of the outermost counted limit that is met; messages are no sum over calls."""
    error: LimitExceededError | None = None
    for limit in _chain():
        if isinstance(limit, CountedLimit) and not isinstance(limit, MessageBlock):
            error = limit.met(another=another) or error
    return error


def _shown(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:,.4g}" if number < 1000 else f"{number:,.0f}"
