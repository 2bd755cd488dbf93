"""The running sample: who it is to the limiters, what it has used, and its working time.

Working time is elapsed time without the waits (queueing, backoff) in which nothing else of the sample worked. Samples
branch: while one branch queues, another may be in a model call. Adding up the branches' waits would count such an
instant twice (and end below zero), so waits are *marks* in a tree. The sample is the root and counts as working. A mark
is entered inside the mark that surrounds it in the code, in child tasks too (a context variable carries it). A mark
with marks inside is working when one of those is; one without is what it says: `WorkingTime.waiting` or
`WorkingTime.active`. The sample's clock runs while its root is working. So a wait inside a tool call stops the clock
unless another branch is marked active, and a wait of one branch never counts against work of another. Code that is
not marked does not count as work while another branch waits: nobody can see it.

Rejected: a counter of waiters (blind to work in other branches); the sum of all waits (negative working time).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Hashable
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeVar, cast

from attrs import define, field

from proctor.runtime.backend import loop_clock
from proctor.runtime.current import sample_variable

logger: Final = logging.getLogger(__name__)


@define(eq=False)
class Mark:
    """A stretch of one branch that waits or works; a context manager, entered once.

    `inside` and `busy` count the open marks in it, and those of them that work.
    """

    clock: WorkingTime
    works: bool
    parent: Mark | None = None
    inside: int = 0
    busy: int = 0
    closed: bool = False
    token: Token[Mark | None] | None = None

    def __enter__(self) -> None:
        around = _mark.get()
        while around is not None and not around.attached:
            around = around.parent  # a stray task outlived the mark it was started in
        if around is None or around.clock is not self.clock:
            around = self.clock.root
        self.parent = around
        around.change(inside=1, busy=int(self.works))
        self.token = _mark.set(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.token is not None:
            _mark.reset(self.token)
        attached, working = self.attached, self.working
        self.closed = True
        self._tell_parent(attached=attached, working=working)

    @property
    def working(self) -> bool:
        """Whether it counts as work just now."""
        return self.busy > 0 if self.inside else self.works

    @property
    def attached(self) -> bool:
        """Whether the parent counts it: a closed mark stays for what stray tasks still have open inside it."""
        return not self.closed or self.inside > 0

    def change(self, *, inside: int, busy: int) -> None:
        """Adjust the counts of open and of working marks inside, and what follows from that further up."""
        attached, working = self.attached, self.working
        self.inside += inside
        self.busy += busy
        self._tell_parent(attached=attached, working=working)

    def _tell_parent(self, *, attached: bool, working: bool) -> None:
        if self.parent is None:
            if self.working != working:
                self.clock.turn()
            return
        inside = int(self.attached) - int(attached)
        busy = int(self.attached and self.working) - int(attached and working)
        if inside or busy:
            self.parent.change(inside=inside, busy=busy)


_mark: Final[ContextVar[Mark | None]] = ContextVar("proctor_mark", default=None)


@define(eq=False)
class WorkingTime:
    """The clock of one sample, started when it is made: 0 ≤ `working` ≤ `elapsed`, whatever overlaps."""

    root: Mark = field(init=False)
    _clock: Callable[[], float] = field(factory=loop_clock, init=False)
    _began: float = field(init=False)
    _ended: float | None = field(default=None, init=False)
    _since: float | None = field(init=False)
    _worked: float = field(default=0.0, init=False)
    _observers: list[Callable[[], object]] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self.root = Mark(self, works=True)
        self._since = self._began = self._clock()

    def waiting(self) -> Mark:
        """``with working_time.waiting():`` around queueing and backoff, in whichever task of the sample."""
        return Mark(self, works=False)

    def active(self) -> Mark:
        """``with working_time.active():`` around work that covers the waits of other branches, such as a model call."""
        return Mark(self, works=True)

    def elapsed(self) -> float:
        """Seconds since the sample began, or that it took."""
        return self._now() - self._began

    def working(self) -> float:
        """Seconds of work: `elapsed` without the waits that no work in another branch covered."""
        now = self._clock() if self._ended is None else self._ended
        worked = self._worked if self._since is None else self._worked + (now - self._since)
        return min(worked, now - self._began)  # the sum of the pieces may round above the whole

    def waited(self) -> float:
        """Seconds of waiting that counted: `elapsed` without `working`."""
        return self.elapsed() - self.working()

    @property
    def running(self) -> bool:
        """Whether the clock of working time runs just now."""
        return self._since is not None and self._ended is None

    def observe(self, changed: Callable[[], object]) -> Callable[[], None]:
        """Call `changed` whenever the clock starts or stops running; returns a function that ends this.

        A working limit keeps a deadline with it: now plus what is left while the clock runs, none while it stands.
        """
        self._observers.append(changed)
        return lambda: self._observers.remove(changed) if changed in self._observers else None

    def end(self) -> None:
        """Stop both clocks for good; marks that stray tasks still hold change nothing any more."""
        if self._ended is None:
            self._ended = self._clock()

    def turn(self) -> None:
        """The root changed between working and waiting; called by `Mark`."""
        if self._ended is not None:
            return
        now = self._clock()
        if self._since is None:
            self._since = now
        else:
            self._worked += now - self._since
            self._since = None
        for changed in tuple(self._observers):
            changed()

    def _now(self) -> float:
        return self._clock() if self._ended is None else self._ended


class Addable(Protocol):
    """Token usage of a model, as far as it matters here: two of them add up."""

    def __add__(self, other: Any, /) -> Any: ...


UsageT = TypeVar("UsageT", bound=Addable)


@define(eq=False, kw_only=True)
class SampleContext:
    """What limiters, models and logs ask of the running sample; one for each, found by `current_sample`.

    Attributes:
        group: what it shares fairly with others: its task's id.
        weight: the group's weight.
        admission: its number in the runtime, in order of admission.
        sandboxed: it holds a sandbox, so that finishing it frees more than a connection: it goes first.
        calls: model calls it has made so far.
        working: its clock.
        usage, role_usage: tokens used, by model name and by role.
        limits: its own, as `sample_limits` gives them.
        spent: told of the usage of each call: model, role, usage.
        sample_id, epoch: which sample it is; None where there is none of a data set.
        kept: what tools keep for it until it ends, such as sessions.
        at_end: called when its solvers and scorers have ended, the last one first, before its sandbox is removed.
    """

    group: Hashable = None
    weight: float = 1.0
    admission: int = 0
    sandboxed: bool = False
    calls: int = 0
    working: WorkingTime = field(factory=WorkingTime)
    usage: dict[str, Any] = field(factory=dict)
    role_usage: dict[str, Any] = field(factory=dict)
    limits: Any = None
    spent: Callable[[str, str | None, Any], object] | None = None
    sample_id: int | str | None = None
    epoch: int | None = None
    kept: dict[Hashable, Any] = field(factory=dict, repr=False)
    at_end: list[Callable[[], Awaitable[object]]] = field(factory=list, repr=False)
    _tokens: list[Token[SampleContext | None]] = field(factory=list, init=False, repr=False)

    def order(self) -> tuple[int, ...]:
        """Its place within its group (pacing.md): fewest calls made first, then first admitted."""
        return (0 if self.sandboxed else self.calls, self.admission)

    def record_usage(self, model: str, role: str | None, usage: Addable) -> None:
        """Add the usage of one model call.

        Args:
            model: the model's name; role: the role it was called in, if any.
        """
        self.usage[model] = _sum(self.usage.get(model), usage)
        if role is not None:
            self.role_usage[role] = _sum(self.role_usage.get(role), usage)
        if self.spent is not None:
            self.spent(model, role, usage)

    async def end(self) -> None:
        """Call what is in `at_end`; a failure of one is logged and keeps the others from nothing."""
        while self.at_end:
            try:
                await self.at_end.pop()()
            except Exception as error:
                logger.warning("something a tool kept for its sample could not be ended: %r", error)

    def __enter__(self) -> Self:
        """``with sample:`` makes it the current sample of this task and of those started below."""
        self._tokens.append(sample_variable.set(self))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        sample_variable.reset(self._tokens.pop())


def _sum(before: UsageT | None, usage: UsageT) -> UsageT:
    return usage if before is None else cast("UsageT", before + usage)


def current_sample() -> SampleContext | None:
    """The sample that this code runs in, None outside of one."""
    return sample_variable.get()
