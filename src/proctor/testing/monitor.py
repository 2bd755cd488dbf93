"""A Monitor reads the kernel's ledger and says which of its promises were broken.

It keeps a model of each limiter that is as plain as can be (sets of waiting and holding items) and compares: every
event with the model, and the model with the invariants, at the event, whenever nothing is runnable, and at the end.
It reads only the ledger, so that it works on any program that uses the kernel, in virtual time or not; given the
limiters themselves, it compares their own counts too.

The numbers are those of the invariants that the property tests are named for:

==  =====================================================================================
1   used <= limit at every grant; above it only after a shrink, and then never growing
2   the limiter's count is the number of leases held (and of the bodies inside, when told)
3   at the end nothing is used and nobody waits
4   never room, a waiter and no pause at once when nothing is runnable
5   each waiter ends once: granted, withdrawn or refused
6   order is kept within a group
7   groups that wait all the time are served in proportion to their weights
8   nobody overtakes a waiter
9   a group that was idle has no credit saved up
11  growing admits in the same instant
13  what was granted and cancelled before it woke is back in the same instant
22  a joint lease is held in all its parts or in none
23  a joint lease waits only while one of its limiters has no room for it
24  a waiter is passed a bounded number of times; what is reserved for a joint one is kept
==  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, Final

from attrs import define, evolve, field

from proctor.actors.ledger import Event, LimiterEvent
from proctor.testing.limiter_model import LimiterModel, Rivalry, Waiting

if TYPE_CHECKING:
    from proctor.actors.limiter import Limiter

TOLERANCE: Final = 1e-9
SLACK: Final = 2
"""Grants by which the bound of 24 is wider than stride scheduling needs: one for a group's debt, one for rounding."""


class InvariantViolation(AssertionError):
    """The kernel broke a promise.

    Attributes:
        number: of the invariant.
    """

    def __init__(self, number: int, text: str) -> None:
        super().__init__(f"invariant {number}: {text}")
        self.number = number


@define(eq=False)
class Monitor:
    """Subscribe `listen` to a ledger; call `settled` when nothing is runnable and `ended` at the end.

    Args:
        limiters: compared with the model when nothing is runnable.
        inside: bodies inside a limiter's leases by its name, counted by the program itself.
        fair: the limiters use the fair queue; with a policy of its own 6, 7, 9, 24 say nothing.
        raises: raise the first violation from `listen` and `settled`; otherwise it is kept for `check`.

    Attributes:
        events: all that was heard. violations: all that was found.
    """

    limiters: Iterable[Limiter] = ()
    inside: Callable[[str], int] | None = field(default=None, kw_only=True)
    fair: bool = field(default=True, kw_only=True)
    raises: bool = field(default=False, kw_only=True)
    events: list[Event] = field(init=False, factory=list)
    violations: list[InvariantViolation] = field(init=False, factory=list)
    _models: dict[str, LimiterModel] = field(init=False, factory=dict)
    _partial: tuple[set[str], LimiterEvent] | None = field(init=False, default=None)

    def listen(self, event: Event) -> None:
        """Take one event of the ledger."""
        self.events.append(event)
        if not isinstance(event, LimiterEvent):
            return
        model = self._models.setdefault(event.name, LimiterModel(event.name))
        if not model.known:
            model.known, model.limit = True, event.limit
        self._check_joint_parts(event)
        step: Callable[[LimiterModel, LimiterEvent], None] | None = getattr(self, f"_on_{event.kind}", None)
        if step is not None:
            step(model, event)
        self._compare_counts(model, event)

    def settled(self) -> None:
        """Nothing is runnable: check what may be untrue only in passing."""
        if self._partial is not None:
            self._violated(22, f"a joint lease stays partly granted: {self._partial[1]}")
        for model in self._models.values():
            self._check_lost_wakeup(model)
        self._check_joint_waiters()
        for limiter in self.limiters:
            self._check_limiter(limiter)

    def ended(self) -> None:
        """Every client has ended."""
        self.settled()
        for model in self._models.values():
            if model.holding:
                self._violated(3, f"{model.name}: still held at the end: {sorted(model.holding)}")
            if model.waiting:
                self._violated(3, f"{model.name}: still waiting at the end: {sorted(model.waiting)}")

    def check(self) -> None:
        """Raise the first violation, with the others and the last events as notes."""
        if not self.violations:
            return
        first = self.violations[0]
        for other in self.violations[1:5]:
            first.add_note(str(other))
        for event in self.events[-30:]:
            first.add_note(f"  {event}")
        raise first

    # -- what each kind of event may do

    def _on_queued(self, model: LimiterModel, event: LimiterEvent) -> None:
        if event.item in model.waiting or event.item in model.holding:
            self._violated(5, f"{model.name}: item {event.item} queued though it waits or holds")
        self._enqueue(model, Waiting(event, served_before=dict(model.served)))
        if event.joint and all(item for _, item in event.joint):  # the last part: now all are numbered
            for name, item in event.joint:
                other = self._models[name]
                other.waiting[item] = evolve(
                    other.waiting[item], event=evolve(other.waiting[item].event, joint=event.joint)
                )

    def _on_requeued(self, model: LimiterModel, event: LimiterEvent) -> None:
        if model.holding.pop(event.item, None) is None:
            self._violated(5, f"{model.name}: item {event.item} requeued without holding a place")
        self._enqueue(model, Waiting(event, requeued=True, served_before=dict(model.served)))

    def _on_armed(self, model: LimiterModel, event: LimiterEvent) -> None:
        waiting = model.waiting.get(event.item)
        if waiting is None or not event.joint:
            self._violated(24, f"{model.name}: item {event.item} reserves a place but is no joint waiter")
            return
        model.waiting[event.item] = evolve(waiting, armed=True)

    def _on_granted(self, model: LimiterModel, event: LimiterEvent) -> None:
        if event.item in model.holding:
            self._violated(5, f"{model.name}: item {event.item} granted twice")
        if model.paused or model.closed:
            self._violated(1, f"{model.name}: granted while {'paused' if model.paused else 'closed'}: {event}")
        if event.limit is not None and event.used > event.limit:
            self._violated(1, f"{model.name}: {event.used} of {event.limit} used after a grant: {event}")
        waiting = model.waiting.pop(event.item, None)
        if self.fair:
            self._check_order(model, event, waiting)
            self._check_reserved(model, event, waiting)
        if waiting is None:
            if self.fair and (over := [w.event.item for w in model.waiting.values() if not w.event.joint]):
                self._violated(8, f"{model.name}: item {event.item} was let in past the waiters {over}")
        elif self.fair:
            self._serve(model, event, waiting)
        model.holding[event.item] = event
        model.served[event.group] = model.served.get(event.group, 0) + 1

    def _on_withdrawn(self, model: LimiterModel, event: LimiterEvent) -> None:
        if model.waiting.pop(event.item, None) is None:
            self._violated(5, f"{model.name}: item {event.item} {event.kind} though it did not wait")
        self._drop_rivalries(model)

    _on_refused = _on_withdrawn

    def _on_abandoned(self, model: LimiterModel, event: LimiterEvent) -> None:
        granted = model.holding.pop(event.item, None)
        if granted is None:
            self._violated(5, f"{model.name}: item {event.item} abandoned though it held nothing")
        elif granted.time != event.time:
            self._violated(13, f"{model.name}: granted at {granted.time}, given back only at {event.time}: {event}")
        model.served[event.group] = model.served.get(event.group, 0) - 1
        for rivalry in model.rivalries.values():
            if (event.group, event.item) in rivalry.served:
                rivalry.served.remove((event.group, event.item))

    def _on_released(self, model: LimiterModel, event: LimiterEvent) -> None:
        if model.holding.pop(event.item, None) is None:
            self._violated(2, f"{model.name}: item {event.item} released though it held nothing")

    def _on_resized(self, model: LimiterModel, event: LimiterEvent) -> None:
        model.limit = event.limit

    def _on_paused(self, model: LimiterModel, event: LimiterEvent) -> None:
        model.paused = True

    def _on_resumed(self, model: LimiterModel, event: LimiterEvent) -> None:
        model.paused = False

    def _on_closed(self, model: LimiterModel, event: LimiterEvent) -> None:
        model.closed = True

    # -- the checks

    def _compare_counts(self, model: LimiterModel, event: LimiterEvent) -> None:
        if event.used != len(model.holding):
            self._violated(2, f"{model.name}: {event.used} counted, {len(model.holding)} held: {event}")
        if event.waiting != len(model.waiting):
            self._violated(5, f"{model.name}: {event.waiting} counted, {len(model.waiting)} wait: {event}")

    def _check_order(self, model: LimiterModel, event: LimiterEvent, waiting: Waiting | None) -> None:
        if waiting is None or event.joint:
            return
        passed = [w.event.item for w in model.single(event.group) if w.key < waiting.key]
        if passed:
            self._violated(
                6, f"{model.name}: item {event.item} was served before {passed} of its group {event.group!r}"
            )

    def _check_reserved(self, model: LimiterModel, event: LimiterEvent, waiting: Waiting | None) -> None:
        """24: whoever reserves nothing leaves alone what is reserved for a joint lease that is first for it."""
        if event.limit is None or (waiting is not None and waiting.armed):
            return
        reserved = sum(self._binds(model, item) for item in model.armed())
        if event.used + reserved > event.limit:
            self._violated(24, f"{model.name}: item {event.item} took a place reserved for a joint lease: {event}")

    def _binds(self, model: LimiterModel, item: int) -> bool:
        """Whether a joint waiter holds a place back here: only if limiters of lower rank have one for it.

        To hold back is to hold while waiting, so it must follow the ranks as leases do.
        """
        levels = {each.name: each.rank.level for each in self.limiters if each.rank is not None}
        if model.name not in levels:
            return False
        return all(
            self._models[name].room > len([other for other in self._models[name].armed() if other != number])
            for name, number in model.waiting[item].event.joint
            if name != model.name and levels.get(name, 0) <= levels[model.name]
        )

    def _serve(self, model: LimiterModel, event: LimiterEvent, waiting: Waiting) -> None:
        """Account a grant to a waiter between its group and the others that wait."""
        if event.joint:  # charged to its group though it was not in the queue: 7 speaks of single waiters
            model.joint_debts = True
            model.rivalries.clear()
        for (one, other), rivalry in model.rivalries.items():
            if event.group in {one, other}:
                rivalry.served.append((event.group, event.item))
                self._check_rivalry(model, one, other, rivalry)
        self._drop_rivalries(model)
        if not waiting.event.joint:
            self._check_passed(model, event, waiting)

    def _check_rivalry(self, model: LimiterModel, one: Hashable, other: Hashable, rivalry: Rivalry) -> None:
        gain = {one: 1 / model.weights[one], other: -1 / model.weights[other]}
        total = low = high = 0.0
        for group, _ in rivalry.served:
            total += gain[group]
            low, high = min(low, total), max(high, total)
        bound = gain[one] - gain[other]
        if high - low > bound + TOLERANCE:
            number = 9 if total > 0 else 7  # `one` is the group that came later
            self._violated(number, f"{model.name}: {one!r} and {other!r} differ by {high - low:g}, bound {bound:g}")
            rivalry.served.clear()

    def _check_passed(self, model: LimiterModel, event: LimiterEvent, waiting: Waiting) -> None:
        """24: while it waited, others were served only in proportion to what its own group was."""
        if any(w.event.joint for w in model.waiting.values()):
            return

        def since(group: Hashable) -> int:
            return model.served.get(group, 0) - waiting.served_before.get(group, 0)

        own, weight = since(event.group), model.weights[event.group]
        for group, rival in model.weights.items():
            if group != event.group and since(group) > (own + 1) * rival / weight + SLACK:
                self._violated(24, f"{model.name}: item {event.item} was passed {since(group)} times by {group!r}")

    def _check_joint_parts(self, event: LimiterEvent) -> None:
        """22: the parts of a joint lease are granted in one step, with nothing else in between."""
        if self._partial is not None:
            missing, first = self._partial
            if event.kind != "granted" or event.name not in missing or len(event.joint) != len(first.joint):
                self._partial = None
                self._violated(22, f"{first} and then, before its other parts, {event}")
                return
            missing.discard(event.name)
            if not missing:
                self._partial = None
        elif event.kind == "granted" and len(event.joint) > 1:
            self._partial = {name for name, _ in event.joint} - {event.name}, event

    def _check_lost_wakeup(self, model: LimiterModel) -> None:
        reserved = len(model.armed())
        singles = [item for item, waiting in model.waiting.items() if not waiting.event.joint]
        if self.fair and singles and model.room > reserved:
            self._violated(4, f"{model.name}: room for {model.room:g}, {reserved} reserved, yet {singles} wait")

    def _check_joint_waiters(self) -> None:
        seen: set[tuple[tuple[str, int], ...]] = set()
        for model in list(self._models.values()):
            for waiting in list(model.waiting.values()):
                parts = waiting.event.joint
                if parts and parts not in seen:
                    seen.add(parts)
                    if all(self._could_take(name, item) for name, item in parts):
                        self._violated(23, f"the joint lease {parts} waits though all its limiters have room for it")

    def _could_take(self, name: str, item: int) -> bool:
        """Whether a limiter has room for a part of a joint lease that nobody else has reserved or waits for first."""
        model = self._models[name]
        ahead = [other for other in model.armed() if other != item]
        singles = [w for w in model.waiting.values() if not w.event.joint]
        return model.room > len(ahead) and not singles

    def _check_limiter(self, limiter: Limiter) -> None:
        model = self._models.get(limiter.name, LimiterModel(limiter.name))
        if limiter.used != len(model.holding) or limiter.waiting != len(model.waiting):
            self._violated(
                2,
                f"{limiter.name}: says {limiter.used} used and {limiter.waiting} waiting, "
                f"the ledger {len(model.holding)} and {len(model.waiting)}",
            )
        if self.inside is not None and limiter.used != self.inside(limiter.name):
            self._violated(2, f"{limiter.name}: {limiter.used} used, {self.inside(limiter.name)} bodies inside")

    # -- the model

    def _enqueue(self, model: LimiterModel, waiting: Waiting) -> None:
        event = waiting.event
        first_of_group = event.group not in model.groups()
        model.waiting[event.item] = waiting
        model.weights[event.group] = event.weight
        if self.fair and first_of_group and not event.joint and not model.joint_debts:
            for other in model.groups():
                if other != event.group:
                    model.rivalries[event.group, other] = Rivalry()

    def _drop_rivalries(self, model: LimiterModel) -> None:
        groups = set(model.groups())
        for pair in [pair for pair in model.rivalries if not groups.issuperset(pair)]:
            del model.rivalries[pair]

    def _violated(self, number: int, text: str) -> None:
        violation = InvariantViolation(number, text)
        self.violations.append(violation)
        if self.raises:
            raise violation


def normalised(events: Iterable[Event]) -> list[tuple[float, tuple[Any, ...]]]:
    """A ledger for comparison: the events of one instant as a sorted multiset, since their order is not fixed."""
    instants: dict[float, list[str]] = {}
    for event in events:
        detail = getattr(event, "detail", None)
        text = repr(event)
        if isinstance(detail, BaseException):  # without its text: asyncio's cancellations hold the address of a scope
            text = text.replace(repr(detail), type(detail).__name__)
        instants.setdefault(event.time, []).append(text)
    return [(time, tuple(sorted(texts))) for time, texts in sorted(instants.items())]
