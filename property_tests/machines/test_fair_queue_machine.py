"""The fair queue against a naive model: the least served group first, in it by order and arrival (6, 7, 9, 24)."""

from __future__ import annotations

from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.actors import FairQueue, Ticket
from proctor.errors import OptionError

# Strides of these are exact in binary, so that the model's sums are the queue's.
WEIGHTS = (0.5, 1.0, 2.0, 4.0)
ORDERS = st.sampled_from([None, 0, 1, (1, 2), (1,), (0, 5)])


@define
class Naive:
    """Stride scheduling as plain as can be: lists, and a search at every grant."""

    waiting: list[Ticket] = field(factory=list)
    passed: dict[object, float] = field(factory=dict)
    virtual: float = 0.0

    @property
    def groups(self) -> set[object]:
        return {each.share.group for each in self.waiting}

    def enqueue(self, ticket: Ticket) -> None:
        group, groups = ticket.share.group, self.groups
        if group not in groups:
            start = self.virtual
            if groups:
                least = min(self.passed[each] for each in groups)
                self.virtual = max(self.virtual, least)
                start = min(self.virtual, least + 1 / ticket.share.weight)
            self.passed[group] = max(self.passed.get(group, 0.0), start)
        self.waiting.append(ticket)

    def remove(self, ticket: Ticket) -> None:
        self.waiting.remove(ticket)
        if not self.waiting:
            self.passed.clear()
            self.virtual = 0.0

    def check_next(self, ticket: Ticket) -> None:
        """`ticket` may be served now: of a least served group (any of them), and its first."""
        assert self.passed[ticket.share.group] == min(self.passed[group] for group in self.groups)
        own = [each for each in self.waiting if each.share is ticket.share]
        assert ticket is min(own, key=lambda each: (each.order, each.arrival))

    def serve(self, ticket: Ticket) -> None:
        self.check_next(ticket)
        group = ticket.share.group
        self.virtual += 1 / sum({each.share.group: each.share.weight for each in self.waiting}.values())
        self.passed[group] += 1 / ticket.share.weight
        self.remove(ticket)


class FairQueueMachine(RuleBasedStateMachine):
    @initialize(weights=st.lists(st.sampled_from(WEIGHTS), min_size=1, max_size=4))
    def open(self, weights: list[float]) -> None:
        self.queue = FairQueue()
        self.naive = Naive()
        self.weights = weights
        self.inside: list[Ticket] = []

    @rule(group=st.integers(0, 3), order=ORDERS, count=st.integers(1, 3))
    def enqueue(self, group: int, order: tuple[int, ...] | int | None, count: int) -> None:
        group %= len(self.weights)
        for _ in range(count):
            ticket = self.queue.item(group, self.weights[group], order)
            self.queue.enqueue(ticket, 0.0)
            self.naive.enqueue(ticket)

    @rule(room=st.sampled_from([0, 1, 1, 1, 2, 5, None]))
    def poll(self, room: int | None) -> None:
        expected = len(self.naive.waiting) if room is None else min(room, len(self.naive.waiting))
        served = self.queue.poll(0.0, room)
        assert len(served) == expected
        for ticket in served:
            self.naive.serve(ticket)
        self.inside.extend(served)

    @precondition(lambda self: self.naive.waiting)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.naive.waiting))
        self.queue.withdraw(ticket, 0.0)
        self.naive.remove(ticket)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.inside))
        self.inside.remove(ticket)
        self.queue.release(ticket, 0.0)

    @precondition(lambda self: self.inside)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(self.inside))
        self.inside.remove(ticket)
        self.queue.requeue(ticket, 0.0)
        self.naive.enqueue(ticket)

    @precondition(lambda self: self.naive.waiting)
    @rule()
    def serve_and_abandon(self) -> None:
        """A grant that is refunded at once has cost its group nothing."""
        (ticket,) = self.queue.poll(0.0, 1)
        others = len(self.naive.waiting) > 1
        self.naive.serve(ticket)
        self.queue.abandon(ticket, 0.0)
        if others:
            self.naive.passed[ticket.share.group] -= 1 / ticket.share.weight

    @rule(group=st.integers(0, 3), weight=st.sampled_from(WEIGHTS))
    def ask_with_another_weight(self, group: int, weight: float) -> None:
        group %= len(self.weights)
        members = [each for each in [*self.naive.waiting, *self.inside] if each.share.group == group]
        if members and weight != self.weights[group]:
            try:
                self.queue.join(group, weight)
            except OptionError:
                return
            raise AssertionError("two weights for one group")

    @invariant()
    def next_is_the_models_next(self) -> None:
        if not hasattr(self, "queue"):
            return
        assert self.queue.waiting == len(self.naive.waiting)
        head = self.queue.head()
        assert (head is None) is (not self.naive.waiting)
        if head is not None:
            self.naive.check_next(head)
        members: dict[object, int] = {}
        for ticket in [*self.naive.waiting, *self.inside]:
            members[ticket.share.group] = members.get(ticket.share.group, 0) + 1
        assert {share.group: share.members for share in self.queue.shares()} == members


TestFairQueueMachine = FairQueueMachine.TestCase


def test_groups_that_come_and_go_leave_nothing_behind() -> None:
    queue = FairQueue()
    keeper = queue.item("keeper")
    queue.enqueue(keeper, 0.0)
    queue.enqueue(queue.item("keeper"), 0.0)
    for n in range(10_000):
        ticket = queue.item(n, 1.0, n)
        queue.enqueue(ticket, 0.0)
        if n % 2:
            queue.withdraw(ticket, 0.0)
            continue
        while ticket not in (served := queue.poll(0.0, 1)):
            queue.release(served[0], 0.0)
            queue.enqueue(queue.item("keeper"), 0.0)
        queue.release(ticket, 0.0)
    assert len(queue._shares) < 200
    assert len(queue._active) < 600


def test_withdrawn_orders_leave_nothing_behind() -> None:
    queue = FairQueue()
    queue.enqueue(queue.item(order=-1), 0.0)
    for n in range(10_000):
        ticket = queue.item(order=n)
        queue.enqueue(ticket, 0.0)
        queue.withdraw(ticket, 0.0)
    (share,) = queue.shares()
    assert len(share._buckets) < 20
    assert len(share._orders) < 20


def test_new_groups_that_come_again_and_again_starve_nobody() -> None:
    queue = FairQueue()
    old = [queue.item("old") for _ in range(3)]
    for ticket in old:
        queue.enqueue(ticket, 0.0)
    grants = 0
    for n in range(1000):
        queue.enqueue(queue.item(f"new {n}"), 0.0)
        (served,) = queue.poll(0.0, 1)
        grants += 1
        if served is old[-1]:
            break
    assert grants < 10
