"""What a `Pacer` is measured against: a dispatcher that knows the provider's buckets and what every call will cost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import heappop, heappush

from attrs import define, field

from proctor.testing.pacing_simulation import Step, TaskPlan, request_of
from proctor.testing.provider import Answer, SimulatedProvider, Status


def ideal_makespan(plans: Sequence[TaskPlan], provider: SimulatedProvider) -> float:
    """Seconds that a dispatcher needs which knows everything, from the same start.

    It sends each call the moment it would be admitted, first those of the samples that have made fewest calls; all
    samples are there from the beginning, requests arrive in no time, and answers take as long as for everybody.
    """
    return _Ideal(provider).play(plans)


@define(eq=False, order=False)
class _Pending:
    """A call that waits: of which sample, which of its calls, which attempt."""

    made: int
    admission: int
    steps: Sequence[Step]
    attempt: int = 0


@define(eq=False)
class _Ideal:
    provider: SimulatedProvider
    last: float = 0.0
    _waiting: list[tuple[int, int, int, _Pending]] = field(factory=list, init=False)
    _events: list[tuple[float, int, Callable[[float], None]]] = field(factory=list, init=False)
    _numbers: Iterator[int] = field(factory=itertools.count, init=False)

    def play(self, plans: Sequence[TaskPlan]) -> float:
        admissions = itertools.count()
        for plan in plans:
            for steps in plan.samples:
                self._at(plan.begins, partial(self._wait, _Pending(0, next(admissions), steps)))
        retry = math.inf
        while self._events or self._waiting:
            now = min(retry, self._events[0][0] if self._events else math.inf)
            while self._events and self._events[0][0] <= now:
                heappop(self._events)[2](now)
            retry = self._send(now)
        return self.last

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heappush(self._events, (when, next(self._numbers), act))

    def _wait(self, call: _Pending, _: float) -> None:
        heappush(self._waiting, (call.made, call.admission, next(self._numbers), call))

    def _send(self, now: float) -> float:
        """Send what is admitted; when to try again, infinity for after the next event."""
        there_and_back = 2 * self.provider.traits.travel + self.provider.traits.jitter
        while self._waiting:
            call = self._waiting[0][3]
            request = request_of(call.steps[call.made], call.attempt)
            wait = self.provider.wait(request, now)
            if wait > 0.0:
                return now + wait
            heappop(self._waiting)
            answer = self.provider.arrive(request, now)
            self._at(now + answer.duration + there_and_back, partial(self._answered, call, answer))
        return math.inf

    def _answered(self, call: _Pending, answer: Answer, now: float) -> None:
        self.provider.leave(answer, now)
        if answer.status is not Status.OK:
            self._wait(_Pending(call.made, call.admission, call.steps, call.attempt + 1), now)
            return
        self.last = now
        if call.made + 1 < len(call.steps):
            following = _Pending(call.made + 1, call.admission, call.steps)
            self._at(now + call.steps[call.made].tools, partial(self._wait, following))
