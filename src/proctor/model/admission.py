"""The admission policy of a model actor's limiter: a `Pacer`, and who else is told of what it does.

The limiter keeps leases, ranks and waiters; the pacer counts what is in flight and says who is next and when. The
limiter calls `poll` after each event and tells its owner the next wake-up; `Timer` is the one task that keeps it.

A model that has not answered yet is asked one thing at a time: a key that is refused, or a model that is unknown, costs
one request and not one for each sample that waits. A first answer that takes longer than `FIRST_ANSWER` is waited for
no longer: the others leave, since a refusal is quick and a slow answer is none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import anyio
from attrs import define, field

from proctor.actors import Limiter
from proctor.model.failures import Kind
from proctor.model.pacing import Call, Entrant, Gate, Pacer, QuotaReading, Usage
from proctor.model.pacing.headers import named_dimension
from proctor.model.retry import Failure

FIRST_ANSWER: Final = 3.0  # seconds for which the first request to a model stays the only one
TICK: Final = 0.001  # seconds between two polls by the timer, at least


@define(eq=False)
class PacerAdmission:
    """Who leaves next and when (`AdmissionPolicy`). The items are `Call`s.

    Attributes:
        one_first: one request at a time until the server has answered. reached: it has.
        cpus: processors there are. gate: lets samples start.
    """

    pacer: Pacer
    one_first: bool = False
    cpus: int = 1
    reached: bool = field(default=False, init=False)
    gate: Gate = field(init=False)
    expected: dict[int, Entrant] = field(factory=dict, init=False)
    """Samples that passed the gate and have called nothing yet, by their admission number."""
    _out: set[Call] = field(factory=set, init=False)  # granted, and not settled
    _waiting: int = field(default=0, init=False)
    _opens_at: float | None = field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.gate = Gate(self.wants_sample, self.cpus)

    # -- AdmissionPolicy

    def enqueue(self, item: Call, now: float) -> None:
        self.pacer.enqueue(item, now)
        self._waiting += 1

    def withdraw(self, item: Call, now: float) -> None:
        self.pacer.withdraw(item, now)
        self._waiting -= 1

    def abandon(self, item: Call, now: float) -> None:
        self._out.discard(item)
        self.pacer.abandon(item, now)

    def release(self, item: Call, now: float) -> None:
        if item in self._out:  # nobody said what came of it: it was cancelled
            self._out.discard(item)
            self.pacer.on_cancelled(item, now)

    def poll(self, now: float, room: int | None) -> Sequence[Call]:
        if not self._waiting or room == 0:
            return ()
        if self.one_first and not self.reached and not self._is_open(now):
            if self._out:
                return ()
            room = 1
        granted = self.pacer.poll(now, room)
        if granted:
            self._out.update(granted)
            self._waiting -= len(granted)
            if self._opens_at is None:
                self._opens_at = now + FIRST_ANSWER
            if self.gate.used:
                for _ in granted:
                    self.gate.sent(now)
        return granted

    def next_wakeup(self, now: float) -> float | None:
        if not self._waiting and not self.gate.waiting:
            return None
        if self.one_first and not self.reached and self._out and not self._is_open(now):
            return self._opens_at
        return self.pacer.next_wakeup(now)

    # -- what came of a call, told in its own task before it leaves

    def succeeded(self, call: Call, now: float, usage: Usage, quota: Sequence[QuotaReading]) -> None:
        """A call was answered."""
        self._out.discard(call)
        self.pacer.on_success(call, now, usage=usage, quota=quota)

    def failed(self, call: Call, now: float, failure: Failure, quota: Sequence[QuotaReading]) -> None:
        """An attempt failed, and the call waits to be sent again: `Lease.requeue` follows in the same step."""
        self._settle(call, now, failure, quota, again=True)
        self._waiting += 1

    def ended(self, call: Call, now: float, failure: Failure, quota: Sequence[QuotaReading]) -> None:
        """The last attempt failed."""
        self._settle(call, now, failure, quota, again=False)

    def _settle(self, call: Call, now: float, failure: Failure, quota: Sequence[QuotaReading], *, again: bool) -> None:
        self._out.discard(call)
        if failure.kind is Kind.RATE_LIMIT:
            dimension = named_dimension(str(failure.error))
            self.pacer.on_rate_limited(call, now, retry_after=failure.asked, quota=quota, dimension=dimension)
            if not again:
                self.pacer.withdraw(call, now)
            return
        self.pacer.on_failure(call, now, transient=again, retry_after=failure.asked, quota=quota)

    # -- samples

    def called(self, sample: int, now: float) -> None:
        """A sample queues a call."""
        entrant = self.expected.pop(sample, None)
        if entrant is not None:
            self.gate.queued(entrant, now)

    def let_samples_pass(self) -> None:
        """Wake those that may start."""
        for entrant in self.gate.poll(anyio.current_time()):
            entrant.note.set()

    def wants_sample(self, now: float) -> bool:
        """Whether another sample could send a call at once."""
        if self.one_first and not self.reached and self._out and not self._is_open(now):
            return False
        return self.pacer.wants_sample(now)

    # -- what is to be seen

    @property
    def limit(self) -> int:
        """Calls that may be in flight now."""
        return self.pacer.window

    def note(self, now: float) -> str:
        """The quotas, the pause and what else a person wants to know who watches, in a few words."""
        seen = self.pacer.statistics(now)
        said = [
            f"{rate.dimension.value} {_short(rate.per_minute)}/min"
            + (f" ({_short(max(0.0, rate.level))} left)" if rate.source == "headers" else f" {rate.source}")
            for rate in seen.rates
        ]
        if seen.pause > 0:
            said.append(f"paused {seen.pause:.0f}s")
        elif seen.probing:
            said.append("probing")
        if seen.delayed:
            at = self.pacer.next_wakeup(now)
            soon = "" if at is None else f", the next in {max(0.0, at - now):.0f}s"
            said.append(f"{seen.delayed} to be tried again{soon}")
        return ", ".join(said)

    def begin_anew(self) -> None:
        """The server counts as one that has never answered: one request goes first."""
        self.reached, self._opens_at = False, None

    def _is_open(self, now: float) -> bool:
        return self._opens_at is not None and now >= self._opens_at


def _short(number: float) -> str:
    """A number in at most five characters."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= size:
            return f"{number / (1e3 if unit == 'k' else size):.3g}{unit}"
    return f"{number:.0f}"


@define(eq=False)
class Timer:
    """Polls a limiter when its policy asks for it: one task, which survives a restart as its next wake-up does."""

    limiter: Limiter
    at: float = field(default=float("inf"), init=False)
    _scope: anyio.CancelScope | None = field(default=None, init=False)

    def wake(self, at: float) -> None:
        """Poll no later than at this time. An earlier wake-up stays; it is cheaper to poll once too often."""
        if at < self.at:
            self.at = at
            if self._scope is not None:
                self._scope.deadline = at

    async def run(self) -> None:
        """Keep the time until cancelled, or until another task does."""
        while True:
            with anyio.CancelScope(deadline=self.at) as scope:
                self._scope = scope
                await anyio.sleep_forever()
            if self._scope is not scope:
                return
            self.at = float("inf")
            self.limiter.poll()
            self.at = max(self.at, anyio.current_time() + TICK)
