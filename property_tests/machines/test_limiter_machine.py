"""The limiter against a naive model, step by step and without a loop (1, 2, 3, 4, 5, 6, 8, 11, 13, 20).

The steps are the kernel's own (`Places`): what a task does between them is played by the machine, which can therefore
cancel, revoke and resize between any two of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.actors import FairQueue, Lease, Ledger, Limiter, LimiterEvent
from proctor.actors.lease import ENDED, GRANTED, HELD, WAITING
from proctor.errors import LimiterClosed

WEIGHTS = (1.0, 0.5, 4.0)


@define
class Toy:
    """A pacer as policy: at most `window` in flight, at most `burst` a poll, and rejected ones go first again."""

    window: int = 2
    burst: int = 1
    line: list[object] = field(factory=list)
    flying: set[int] = field(factory=set)

    def enqueue(self, item: object, now: float) -> None:
        assert item not in self.line
        self.line.append(item)

    def withdraw(self, item: object, now: float) -> None:
        self.line.remove(item)

    def abandon(self, item: object, now: float) -> None:
        self.flying.remove(id(item))

    def release(self, item: object, now: float) -> None:
        self.flying.remove(id(item))

    def reject(self, item: object) -> None:
        self.flying.remove(id(item))
        self.line.insert(0, item)

    def poll(self, now: float, room: int | None) -> list[object]:
        free = min(self.window - len(self.flying), self.burst, len(self.line) if room is None else room)
        granted, self.line = self.line[: max(0, free)], self.line[max(0, free) :]
        self.flying.update(id(item) for item in granted)
        return granted

    def next_wakeup(self, now: float) -> float | None:
        return now + 1.0 if self.line and len(self.flying) < self.window else None


@define
class Play:
    """A limiter, the leases of tasks that are played, and what the ledger says of them.

    Attributes:
        waiting, granted, held: the leases by what the naive model holds them to be, in order of arrival.
    """

    limit: int | None
    toy: Toy | None = None
    now: float = 0.0
    paused: bool = False
    limiter: Limiter = field(init=False)
    waiting: list[Lease] = field(factory=list)
    granted: list[Lease] = field(factory=list)
    held: list[Lease] = field(factory=list)
    ended: int = 0
    by_number: dict[int, Lease] = field(factory=dict)
    endings: dict[int, int] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        ledger = Ledger(clock=lambda: self.now)
        ledger.subscribe(self._told)
        policy: Any = self.toy or FairQueue()
        self.limiter = Limiter(self.limit, name="door", admission=policy, ledger=ledger)

    @property
    def used(self) -> int:
        return len(self.granted) + len(self.held)

    @property
    def room(self) -> float:
        return float("inf") if self.limit is None else self.limit - self.used

    def _told(self, event: Any) -> None:
        assert isinstance(event, LimiterEvent)
        assert event.limit == self.limiter.limit
        if event.kind == "granted":
            self._granted(self.by_number[event.item])
        if event.kind in {"granted", "withdrawn", "refused"}:
            self.endings[event.item] = self.endings.get(event.item, 0) + 1
        if event.kind in {"queued", "requeued"}:
            self.endings[event.item] = 0

    def _granted(self, lease: Lease) -> None:
        """A grant as the model sees it: there is room, no pause, and nobody of the group goes first."""
        assert not self.paused
        assert self.room > 0
        if lease in self.waiting:
            rivals = [each for each in self.waiting if each.group == lease.group]
            if self.toy is None:
                assert lease is min(rivals, key=lambda each: (rank_of(each), each.number))
            self.waiting.remove(lease)
        self.granted.append(lease)

    # -- what tasks do

    def come(self, group: int, order: int | None) -> Lease:
        item = object() if self.toy is not None else None
        lease = self.limiter.lease(group=group, weight=WEIGHTS[group], order=order, item=item)
        self.by_number[self.limiter.statistics().arrived + 1] = lease
        nobody_waits = not self.waiting
        lease.prepare()
        if not self.limiter.at_once(lease):
            assert self.toy is not None or self.paused or self.room <= 0 or not nobody_waits
            self.waiting.append(lease)
            self.limiter.enqueue(lease)
        return lease

    def try_to_come(self, group: int) -> None:
        item = object() if self.toy is not None else None
        self.by_number[self.limiter.statistics().arrived + 1] = lease = self.limiter.lease(
            group=group, weight=WEIGHTS[group], item=item
        )
        free = not self.waiting and not self.paused and self.room > 0
        if self.toy is not None:
            free = free and len(self.toy.flying) < self.toy.window
            if self.waiting or self.paused:
                return
            self.waiting.append(lease)
            came = self.limiter.at_once(lease) or self.limiter._admitted_by_policy(lease)
            if not came:
                self.waiting.remove(lease)
        else:
            came = self.limiter.at_once(lease)
        assert came is free
        assert (lease.state is GRANTED) is came

    def wake(self, lease: Lease) -> None:
        self.granted.remove(lease)
        self.held.append(lease)
        lease.state = HELD

    def leave(self, lease: Lease) -> None:
        self.held.remove(lease)
        self.limiter.release(lease)
        assert lease.state is ENDED

    def cancel(self, lease: Lease) -> None:
        (self.granted if lease.state is GRANTED else self.waiting).remove(lease)
        self.limiter.give_up(lease, KeyboardInterrupt())
        assert lease.state is ENDED

    def requeue(self, lease: Lease) -> None:
        def settle(now: float) -> None:
            assert lease.state is HELD
            if self.toy is not None:
                self.toy.reject(lease.item)

        self.held.remove(lease)
        self.waiting.append(lease)
        self.limiter.requeue(lease, settle)

    def resize(self, limit: int | None) -> None:
        before, self.limit = self.limit, limit
        waiting, room, shrunk = len(self.waiting), self.room, before is not None and (limit or 99) < before
        self.limiter.resize(limit)
        if self.toy is None and not self.paused and not shrunk:
            assert len(self.waiting) == max(0, waiting - max(0, room)), "growing admits all it has room for at once"

    def pause(self, by: str) -> None:
        self.paused = True
        self.limiter.pause(by)

    def resume(self, by: str) -> None:
        self.paused = bool(self.limiter._pauses - {by})
        self.limiter.resume(by)

    # -- what always holds

    def check(self) -> None:
        limiter = self.limiter
        assert (limiter.used, limiter.waiting, limiter.limit) == (self.used, len(self.waiting), self.limit)
        assert set(limiter.holders()) == {*self.granted, *self.held}
        assert all(lease.state is WAITING for lease in self.waiting)
        assert all(count <= 1 for count in self.endings.values()), "a wait ends once"
        if self.toy is None:
            assert not (self.waiting and self.room > 0 and not self.paused), "room, a waiter and no pause"
        else:
            assert self.toy.flying == {id(lease.item) for lease in limiter.holders()}
            assert set(map(id, self.toy.line)) == {id(lease.item) for lease in self.waiting}
            assert len(limiter._items) == self.used + len(self.waiting)
        statistics = limiter.statistics()
        assert sum(group.used for group in statistics.groups) == self.used
        assert sum(group.waiting for group in statistics.groups) == len(self.waiting)

    def end(self) -> None:
        """Everybody leaves; what waited is served, and nothing is left."""
        for by in ("a", "b"):
            self.resume(by)
        if self.limit == 0:
            self.resize(1)
        while self.waiting or self.granted or self.held:
            self.check()
            for lease in list(self.granted):
                self.wake(lease)
            for lease in list(self.held):
                self.leave(lease)
            self.now += 1
            self.limiter.poll()
        self.check()
        assert (self.limiter.used, self.limiter.waiting) == (0, 0)


def rank_of(lease: Lease) -> tuple[int, ...]:
    order = lease.order
    return () if order is None else (order,) if isinstance(order, int) else order


class LimiterMachine(RuleBasedStateMachine):
    toy: Callable[[], Toy | None] = staticmethod(lambda: None)

    @initialize(limit=st.sampled_from([0, 1, 2, 3, None]))
    def open(self, limit: int | None) -> None:
        self.play = Play(limit, self.toy())

    @rule(group=st.integers(0, 2), order=st.sampled_from([None, None, 0, 1, 2]), count=st.integers(1, 3))
    def come(self, group: int, order: int | None, count: int) -> None:
        for _ in range(count):
            self.play.come(group, order)

    @rule(group=st.integers(0, 2))
    def try_to_come(self, group: int) -> None:
        self.play.try_to_come(group)

    @precondition(lambda self: self.play.granted)
    @rule(data=st.data())
    def wake(self, data: st.DataObject) -> None:
        self.play.wake(data.draw(st.sampled_from(self.play.granted)))

    @precondition(lambda self: self.play.held)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.play.leave(data.draw(st.sampled_from(self.play.held)))

    @precondition(lambda self: self.play.waiting or self.play.granted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        self.play.cancel(data.draw(st.sampled_from([*self.play.waiting, *self.play.granted])))

    @precondition(lambda self: self.play.held)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        self.play.requeue(data.draw(st.sampled_from(self.play.held)))

    @rule(limit=st.sampled_from([0, 1, 2, 3, 5, None]))
    def resize(self, limit: int | None) -> None:
        self.play.resize(limit)

    @rule(by=st.sampled_from("ab"))
    def pause(self, by: str) -> None:
        self.play.pause(by)

    @rule(by=st.sampled_from("ab"))
    def resume(self, by: str) -> None:
        self.play.resume(by)

    @rule(seconds=st.integers(1, 3))
    def time_passes(self, seconds: int) -> None:
        self.play.now += seconds
        self.play.limiter.poll()

    @precondition(lambda self: self.play.waiting)
    @rule()
    def close(self) -> None:
        """Whoever waits is refused once; holders stay. The play goes on with a new limiter."""
        play = self.play
        refused, used = list(play.waiting), play.used
        play.waiting.clear()
        play.limiter.close("the play is over")
        assert all(isinstance(lease.taken_back, LimiterClosed) for lease in refused)
        assert len({id(lease.taken_back) for lease in refused}) == len(refused)
        assert play.limiter.used == used
        play.check()
        for lease in list(play.granted):
            play.cancel(lease)
        for lease in list(play.held):
            play.leave(lease)
        play.check()
        self.play = Play(play.limit, self.toy())

    @invariant()
    def model_and_limiter_agree(self) -> None:
        if hasattr(self, "play"):
            self.play.check()

    def teardown(self) -> None:
        if hasattr(self, "play"):
            self.play.end()


class PacedLimiterMachine(LimiterMachine):
    toy = staticmethod(Toy)


TestLimiterMachine = LimiterMachine.TestCase
TestPacedLimiterMachine = PacedLimiterMachine.TestCase


def test_twenty_thousand_random_steps_lose_no_place() -> None:
    for policy in (lambda: None, Toy):
        chance = random.Random(20)
        play = Play(3, policy())
        for _ in range(20_000):
            random_step(play, chance)
            play.check()
        play.end()


def random_step(play: Play, chance: random.Random) -> None:
    moves: list[Callable[[], object]] = [
        lambda: play.resize(chance.choice([0, 1, 2, 3, 4, 5])),
        lambda: play.pause("a") if chance.random() < 0.3 else play.resume("a"),
        lambda: play.try_to_come(chance.randrange(3)),
    ]
    if len(play.waiting) < 30:
        moves += [lambda: play.come(chance.randrange(3), chance.choice([None, 0, 1]))] * 4
    if play.granted:
        moves += [lambda: play.wake(chance.choice(play.granted))] * 3
    if play.held:
        moves += [lambda: play.leave(chance.choice(play.held)), lambda: play.requeue(chance.choice(play.held))]
    if play.waiting or play.granted:
        moves += [lambda: play.cancel(chance.choice([*play.waiting, *play.granted]))]
    chance.choice(moves)()
    play.now += 1
    play.limiter.poll()
