"""Joint leases beside single ones, nested too: all or nothing, no lost place, no deadlock (4, 20, 22, 23, 24).

Tasks are played: each holds a stack of leases and waits for at most one more, single or joint. With ranks they ask
upwards only, and then everything must drain. Without, they nest in any order and may make rings of their own; what must
not happen is that they wait for each other only because a place is kept for a joint waiter.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import define, field
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.actors import JointLease, Lease, Limiter, Rank, lease_all, ranks
from proctor.actors.lease import GRANTED, HELD, WAITING


@define(eq=False)
class Task:
    held: list[Lease] = field(factory=list)
    wants: tuple[Lease, ...] = ()
    joint: JointLease | None = None

    @property
    def waits(self) -> bool:
        return bool(self.wants) and self.wants[0].state is WAITING

    @property
    def granted(self) -> bool:
        return bool(self.wants) and self.wants[0].state is GRANTED


def free(limiter: Limiter) -> float:
    if limiter.stopped:
        return 0
    return float("inf") if limiter.limit is None else limiter.limit - limiter.used


class JointMachine(RuleBasedStateMachine):
    ranked: ClassVar[bool] = True

    @initialize(limits=st.lists(st.integers(1, 2), min_size=2, max_size=3), same=st.booleans())
    def open(self, limits: list[int], same: bool) -> None:
        self.limiters = [
            Limiter(limit, name="abc"[n], rank=Rank(f"R{n}", n) if self.ranked else None)
            for n, limit in enumerate(limits)
        ]
        self.tasks: list[Task] = []

    # -- what tasks do

    def allowed(self, task: Task) -> list[Limiter]:
        held = {lease.limiter.name for lease in task.held}
        if not self.ranked:
            return [limiter for limiter in self.limiters if limiter.name not in held]
        return [limiter for limiter in self.limiters if limiter.name > max(held, default="")]

    def ask(self, task: Task, limiters: list[Limiter]) -> None:
        ranks.held.set(task.held[-1] if task.held else None)
        leases = tuple(limiter.lease() for limiter in limiters)
        task.wants = leases
        if len(leases) == 1:
            (lease,), (limiter,) = leases, limiters
            lease.prepare()
            if not limiter.at_once(lease):
                limiter.enqueue(lease)
        else:
            task.joint = lease_all(leases)
            task.joint._prepare()
            if not task.joint._at_once():
                task.joint._enqueue()
        ranks.held.set(None)

    def wake(self, task: Task) -> None:
        outer = task.held[-1] if task.held else None
        ladder = task.joint.ladder if task.joint is not None else task.wants
        for lease in ladder:
            ranks.held.set(outer)
            lease.begin(outer)
            task.held.append(lease)
            outer = lease
        ranks.held.set(None)
        task.wants, task.joint = (), None

    def leave(self, task: Task) -> None:
        lease = task.held.pop()
        ranks.held.set(lease)
        assert lease.leave() is None
        ranks.held.set(None)
        if not task.held:
            self.tasks.remove(task)

    @rule(data=st.data(), joint=st.booleans())
    def come(self, data: st.DataObject, joint: bool) -> None:
        if len(self.tasks) < 8:
            task = Task()
            self.tasks.append(task)
            limiters = data.draw(st.permutations(self.limiters))
            self.ask(task, limiters[: data.draw(st.integers(2, len(limiters))) if joint else 1])

    @precondition(lambda self: any(task.held and not task.wants for task in self.tasks))
    @rule(data=st.data(), joint=st.booleans())
    def nest(self, data: st.DataObject, joint: bool) -> None:
        task = data.draw(st.sampled_from([task for task in self.tasks if task.held and not task.wants]))
        limiters = self.allowed(task)
        if len(limiters) >= 1 + joint:
            self.ask(task, data.draw(st.permutations(limiters))[: 1 + joint])

    @precondition(lambda self: any(task.granted for task in self.tasks))
    @rule(data=st.data())
    def wakes(self, data: st.DataObject) -> None:
        self.wake(data.draw(st.sampled_from([task for task in self.tasks if task.granted])))

    @precondition(lambda self: any(task.held and not task.wants for task in self.tasks))
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        self.leave(data.draw(st.sampled_from([task for task in self.tasks if task.held and not task.wants])))

    @precondition(lambda self: any(task.wants for task in self.tasks))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from([task for task in self.tasks if task.wants]))
        error = KeyboardInterrupt()
        if task.joint is not None:
            task.joint._give_up(error)
        else:
            task.wants[0].limiter.give_up(task.wants[0], error)
        task.wants, task.joint = (), None
        if not task.held:
            self.tasks.remove(task)

    # -- what operators do

    @rule(data=st.data(), limit=st.sampled_from([0, 1, 1, 2, 3]))
    def resize(self, data: st.DataObject, limit: int) -> None:
        data.draw(st.sampled_from(self.limiters)).resize(limit)

    @rule(data=st.data(), pause=st.booleans())
    def pause(self, data: st.DataObject, pause: bool) -> None:
        limiter = data.draw(st.sampled_from(self.limiters))
        limiter.pause() if pause else limiter.resume()

    # -- what always holds

    @invariant()
    def all_or_nothing(self) -> None:
        for task in getattr(self, "tasks", []):
            assert len({lease.state for lease in task.wants}) <= 1
            assert all(lease.state is HELD for lease in task.held)

    @invariant()
    def counts_agree(self) -> None:
        for limiter in getattr(self, "limiters", []):
            inside = [each for task in self.tasks for each in (*task.held, *task.wants) if each.limiter is limiter]
            assert limiter.used == sum(lease.state is not WAITING for lease in inside)
            assert limiter.waiting == sum(lease.state is WAITING for lease in inside)
            assert len(limiter._reserved) <= sum(lease.joint is not None for lease in limiter.waiters())
            if not limiter.waiting:
                assert limiter._queue is not None
                assert limiter._queue.waiting == limiter._unparked == 0

    @invariant()
    def nobody_waits_before_a_free_place_that_is_not_kept(self) -> None:
        for task in getattr(self, "tasks", []):
            if not task.waits:
                continue
            if task.joint is None:
                (lease,) = task.wants
                kept = [each for each in lease.limiter._reserved if each.keeps(lease.limiter)]
                assert free(lease.limiter) <= len(kept)
                for joint in kept if self.ranked else ():
                    below = [part.limiter for part in joint.parts if part.limiter.name < lease.limiter.name]
                    assert all(free(limiter) > 0 for limiter in below), "kept above what is waited for"
            else:
                assert any(free(lease.limiter) <= lease.limiter.waiting - 1 for lease in task.wants)

    def teardown(self) -> None:
        """Operators stop, tasks leave: all drains, but for rings that the tasks made themselves."""
        for limiter in getattr(self, "limiters", []):
            limiter.resize(max(1, limiter.limit or 1))
            limiter.resume()
        for _ in range(100):
            self.nobody_waits_before_a_free_place_that_is_not_kept()
            for task in [task for task in getattr(self, "tasks", []) if not task.waits]:
                self.wake(task) if task.granted else self.leave(task)
        stuck = getattr(self, "tasks", [])
        assert not stuck or (not self.ranked and self.ring())

    def ring(self) -> set[Task]:
        """The tasks that wait for each other whatever is kept for whom."""
        ring = set(self.tasks)
        while True:
            holders = {
                limiter.name: [t for t in self.tasks if any(h.limiter is limiter for h in t.held)]
                for limiter in self.limiters
            }
            lost = {
                task
                for task in ring
                if any(free(lease.limiter) <= 0 and set(holders[lease.limiter.name]) <= ring for lease in task.wants)
            }
            if lost == ring:
                return ring
            ring = lost


class UnrankedJointMachine(JointMachine):
    ranked = False


TestJointMachine = JointMachine.TestCase
TestUnrankedJointMachine = UnrankedJointMachine.TestCase
