"""Clients of a simulated provider: samples that make calls, paced by a `Pacer`.

Virtual time on a plain heap of events, no event loop and no tasks, so that thousands of samples take seconds. The
client does what the model actor and the retry loop do: it enqueues, polls after every event and at every wake-up,
reports each outcome exactly once, and lets samples pass the gate.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Any, Final

from attrs import define, field, frozen

from proctor.model.pacing import Call, Gate, Pacer, Usage
from proctor.testing.provider import Answer, Request, SimulatedProvider, Status

GOLDEN: Final = 0.6180339887498949  # luck of one attempt after the other, as even as it gets


@frozen(kw_only=True)
class Step:
    """One call of a sample, and how long its tools take afterwards (seconds).

    Attributes:
        counted: what the client takes for the input's tokens. slowness, luck: see `Request`.
    """

    input_tokens: int
    output_tokens: int
    counted: int
    max_output_tokens: int | None = None
    slowness: float = 0.0
    luck: float = 1.0
    tools: float = 0.0


@frozen(kw_only=True)
class TaskPlan:
    """The samples of one task, each a sequence of calls.

    Attributes:
        begins: when its feed begins. set_up: seconds from a sample's start to its first call, lowest and highest.
    """

    samples: Sequence[Sequence[Step]]
    group: Hashable = "task"
    weight: float = 1.0
    begins: float = 0.0
    set_up: tuple[float, float] = (0.0, 0.0)


@define(eq=False)
class Running:
    """A sample that has passed the gate."""

    plan: TaskPlan
    steps: Sequence[Step]
    admission: int
    entrant: Any
    made: int = 0
    attempt: int = 0
    sent_at: float = 0.0
    first_sent_at: float = 0.0


@define(eq=False)
class Outcome:
    """What came of a simulation; times in seconds.

    Attributes:
        makespan: until the last answer. successes, refusals (429), faults: answers.
        sends: by group, when each call that succeeded was sent. steady: when the clients of all groups had begun.
        most_samples: samples that ran at a time. attempts: every send, with its group.
    """

    makespan: float = 0.0
    successes: int = 0
    refusals: int = 0
    faults: int = 0
    events: int = 0
    most_samples: int = 0
    sends: dict[Hashable, list[float]] = field(factory=lambda: defaultdict(list))
    refused_at: list[float] = field(factory=list)
    finished: bool = False

    @property
    def refusals_per_1000(self) -> float:
        """429s for each thousand calls that succeeded."""
        return 1000.0 * self.refusals / max(1, self.successes)

    def jain(self, start: float) -> float:
        """Jain's index of the groups' calls, from `start` until the first group has no more; 1 is equal shares."""
        end = min(times[-1] for times in self.sends.values())
        counts = [sum(start <= at <= end for at in times) for times in self.sends.values()]
        return sum(counts) ** 2 / (len(counts) * sum(count * count for count in counts)) if any(counts) else 0.0


class Stuck(RuntimeError):
    """Nothing will happen any more and not every sample has ended."""


@define(eq=False)
class PacingSimulation:
    """Plays task plans against a provider. Use it once.

    Args:
        horizon: seconds after which it gives up.
        observe: called with time, kind and call for every enqueue, send and outcome.
    """

    plans: Sequence[TaskPlan]
    provider: SimulatedProvider
    pacer: Pacer
    rng: Random
    horizon: float = 1e6
    observe: Callable[[float, str, Call], object] | None = None
    outcome: Outcome = field(factory=Outcome, init=False)
    now: float = field(default=0.0, init=False)
    _gate: Gate = field(init=False)
    _events: list[tuple[float, int, Callable[[Any], None], Any]] = field(factory=list, init=False)
    _numbers: Any = field(factory=itertools.count, init=False)
    _feeds: list[Any] = field(factory=list, init=False)
    _samples: dict[Call, Running] = field(factory=dict, init=False)
    _wake: float = field(default=math.inf, init=False)
    _running: int = field(default=0, init=False)
    _left: int = field(default=0, init=False)
    _admissions: int = field(default=0, init=False)
    _dirty: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self._gate = Gate(self.pacer.wants_sample)

    def run(self) -> Outcome:
        """Play it to the end.

        Raises:
            Stuck: calls wait and nothing wakes them.
        """
        self._left = sum(len(plan.samples) for plan in self.plans)
        for plan in self.plans:
            self._at(plan.begins, self._begin, plan)
        events, outcome = self._events, self.outcome
        while events and self._left:
            now = events[0][0]
            if now > self.horizon:
                return outcome
            self.now = now
            while events and events[0][0] <= now:
                _, _, act, what = heappop(events)
                outcome.events += 1
                act(what)
            if self._dirty:
                self._dirty = False
                self._pump()
        if self._left:
            raise Stuck(f"{self._left} samples left at {self.now:.3f} s, and nothing to wait for")
        outcome.finished = True
        return outcome

    def _at(self, when: float, act: Callable[[Any], None], what: Any) -> None:
        heappush(self._events, (when, next(self._numbers), act, what))

    # -- samples

    def _begin(self, plan: TaskPlan) -> None:
        self._line_up((plan, iter(plan.samples)))
        self._dirty = True

    def _line_up(self, feed: tuple[TaskPlan, Any]) -> None:
        plan, samples = feed
        steps = next(samples, None)
        if steps is not None:
            entrant = self._gate.ask(plan.group, weight=plan.weight)
            entrant.note = (feed, steps)

    def _pump(self) -> None:
        now = self.now
        while True:
            for call in self.pacer.poll(now):
                self._send(call)
            passed = self._gate.poll(now)
            if not passed:
                break
            for entrant in passed:
                self._start(entrant)
        wakeup = self.pacer.next_wakeup(now)
        if wakeup is not None and (wakeup < self._wake or self._wake <= now):
            self._wake = max(wakeup, now)
            self._at(self._wake, self._woken, None)

    def _woken(self, _: None) -> None:
        self._dirty = True
        if self._wake <= self.now:
            self._wake = math.inf

    def _start(self, entrant: Any) -> None:
        feed, steps = entrant.note
        plan = feed[0]
        self._admissions += 1
        self._running += 1
        self.outcome.most_samples = max(self.outcome.most_samples, self._running)
        sample = Running(plan, steps, self._admissions, entrant)
        low, high = plan.set_up
        if high > 0.0:
            self._at(self.now + self.rng.uniform(low, high), self._call, sample)
        else:
            self._call(sample)
        self._line_up(feed)

    def _call(self, sample: Running) -> None:
        step = sample.steps[sample.made]
        call = Call(
            sample.plan.group,
            (sample.made, sample.admission),
            sample.plan.weight,
            step.counted,
            step.max_output_tokens,
        )
        if sample.made == 0:
            self._gate.queued(sample.entrant, self.now)
        sample.made += 1
        sample.attempt = 0
        self._samples[call] = sample
        if self.observe is not None:
            self.observe(self.now, "enqueue", call)
        self.pacer.enqueue(call, self.now)
        self._dirty = True

    # -- requests

    def _send(self, call: Call) -> None:
        sample = self._samples[call]
        step = sample.steps[sample.made - 1]
        if self.observe is not None:
            self.observe(self.now, "send", call)
        self._gate.sent(self.now)
        sample.sent_at = self.now
        self._at(self.now + self.provider.travel(), self._arrive, (call, request_of(step, sample.attempt)))

    def _arrive(self, what: tuple[Call, Request]) -> None:
        call, request = what
        answer = self.provider.arrive(request, self.now)
        if answer.duration:
            self._at(self.now + answer.duration, self._leave, (call, answer))
        else:
            self._leave((call, answer))

    def _leave(self, what: tuple[Call, Answer]) -> None:
        self.provider.leave(what[1], self.now)
        self._at(self.now + self.provider.travel(), self._answered, what)

    def _answered(self, what: tuple[Call, Answer]) -> None:
        call, answer = what
        sample, outcome = self._samples[call], self.outcome
        self._dirty = True
        if self.observe is not None:
            self.observe(self.now, answer.status.name.lower(), call)
        if answer.status is Status.OK:
            used = Usage(answer.request.input_tokens, answer.request.output_tokens)
            self.pacer.on_success(call, self.now, usage=used, quota=answer.quota)
            self._succeeded(call, sample)
        elif answer.status is Status.LIMITED:
            outcome.refusals += 1
            outcome.refused_at.append(self.now)
            self.pacer.on_rate_limited(
                call, self.now, retry_after=answer.retry_after, quota=answer.quota, dimension=answer.dimension
            )
        else:
            outcome.faults += 1
            sample.attempt += 1
            self.pacer.on_failure(call, self.now, transient=True, quota=answer.quota)

    def _succeeded(self, call: Call, sample: Running) -> None:
        outcome = self.outcome
        del self._samples[call]
        outcome.successes += 1
        outcome.makespan = self.now
        outcome.sends[sample.plan.group].append(sample.sent_at)
        if sample.made < len(sample.steps):
            tools = sample.steps[sample.made - 1].tools
            if tools:
                self._at(self.now + tools, self._call, sample)
            else:
                self._call(sample)
            return
        self._gate.ended(sample.entrant)
        self._running -= 1
        self._left -= 1


def request_of(step: Step, attempt: int) -> Request:
    """The request of one attempt of a call."""
    return Request(
        input_tokens=step.input_tokens,
        output_tokens=step.output_tokens,
        max_output_tokens=step.max_output_tokens,
        slowness=step.slowness,
        luck=(step.luck + attempt * GOLDEN) % 1.0 if attempt else step.luck,
    )
