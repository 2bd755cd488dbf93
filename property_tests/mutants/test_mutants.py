"""Plant a small fault into the kernel, and see the property that is named for it find the fault, on every backend.

A property that no fault can break proves nothing. Each fault replaces one method of the kernel for the length of a
test. The properties are those of the neighbouring folders, loaded from their files and run with fewer, unshrunk
examples.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import Phase, settings

from proctor.actors import (
    actor,
    admission,
    backoff,
    incarnation,
    joint,
    lease,
    mailbox,
    places,
    ranks,
    recovery,
    request,
    shell,
    supervisor,
    waitgraph,
)
from proctor.actors.limiter import Limiter
from proctor.errors import DeadlockError
from proctor.testing.monitor import InvariantViolation
from proctor.testing.supervision_checks import check_supervision

HERE = Path(__file__).resolve().parent

Plant = Callable[[pytest.MonkeyPatch], None]


@attrs.frozen
class Mutant:
    """A fault.

    Attributes:
        invariants: the numbers of those it breaks. caught_by: the property, as ``file::test``.
        seen_by_monitor: the property is found broken by the Monitor, with one of these numbers.
    """

    name: str
    invariants: tuple[int, ...]
    caught_by: str
    plant: Plant
    seen_by_monitor: bool = False


MUTANTS: list[Mutant] = []


def mutant(name: str, invariants: tuple[int, ...], caught_by: str, *, seen_by_monitor: bool = False) -> Any:
    def add(plant: Plant) -> Plant:
        MUTANTS.append(Mutant(name, invariants, caught_by, plant, seen_by_monitor))
        return plant

    return add


SAFETY = "plans/test_plan_safety.py::test_no_invariant_is_broken_in_any_plan"
SUPERVISION = "plans/test_supervision_plans.py::test_no_invariant_of_supervision_is_broken_in_any_plan"
LATE = "plans/test_plan_fairness.py::test_a_group_that_comes_late_has_no_credit_for_having_been_idle"
CROWD = "plans/test_plan_fairness.py::test_order_and_shares_are_kept_in_a_crowd"


@mutant(
    "leak on cancel",
    (13,),
    "plans/test_plan_cancellation.py::test_a_grant_that_meets_a_cancellation_is_back_in_the_same_instant",
)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = places.Places.give_up

    def give_up(self: Any, of: Any, error: BaseException) -> None:
        if of.state is lease.WAITING:
            plain(self, of, error)

    patch.setattr(places.Places, "give_up", give_up)


@mutant("a withdrawn waiter stays in line", (5, 12), SAFETY)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(admission.FairQueue, "withdraw", lambda self, item, now: self.leave(item.share))


@mutant(
    "wake one only",
    (4, 11),
    "plans/test_plan_fairness.py::test_growing_admits_as_many_as_there_is_new_room_for_at_once",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def serve(self: Any, queue: Any) -> None:
        head = queue.head() if self._room() else None
        if head is not None:
            queue.take(head)
            self._grant(head)

    patch.setattr(places.Places, "_serve", serve)


@mutant("last in, first out", (6,), CROWD, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = admission.Share.first

    def first(self: Any) -> Any:
        return next(reversed(self._buckets[plain(self).key]))

    patch.setattr(admission.Share, "first", first)


@mutant("no pump on resize", (4, 11, 23), SAFETY, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(places.Places, "_changed_room", lambda self: None)


@mutant("no pump on release", (4,), SAFETY)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = places.Places.poll

    def poll(self: Any) -> None:
        if self._limit is None or self._limit > len(self._holders) + 1:
            plain(self)

    patch.setattr(places.Places, "poll", poll)


@mutant("hoarded credit", (9,), LATE, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    def refresh(self: Any, share: Any) -> None:
        if share.epoch != self._epoch:
            share.epoch, share.passed = self._epoch, 0.0

    patch.setattr(admission.FairQueue, "_refresh", refresh)


@mutant("service that is not charged", (7, 9, 24), CROWD, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = admission.FairQueue._admit_group

    def admit(self: Any, group: Any, weight: float) -> Any:
        share = plain(self, group, weight)
        share.stride = 0.0
        return share

    patch.setattr(admission.FairQueue, "_admit_group", admit)


@mutant("weights upside down", (7, 9), CROWD, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = admission.FairQueue._admit_group

    def admit(self: Any, group: Any, weight: float) -> Any:
        share = plain(self, group, weight)
        share.stride = weight
        return share

    patch.setattr(admission.FairQueue, "_admit_group", admit)


@mutant("one place too many", (1,), SAFETY, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    def room(self: Any) -> bool:
        return self._limit is None or len(self._holders) <= self._limit

    patch.setattr(places.Places, "_room", room)


@mutant("a pause that is ignored", (1,), SAFETY, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = places.Places.poll

    def poll(self: Any) -> None:
        kept, self._pauses = self._pauses, set()
        try:
            plain(self)
        finally:
            self._pauses = kept

    patch.setattr(places.Places, "poll", poll)


@mutant(
    "barging past the line",
    (8,),
    "plans/test_plan_fairness.py::test_try_lease_fails_while_anybody_waits",
    seen_by_monitor=True,
)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = places.Places.open_to_all

    def open_to_all(self: Any) -> bool:
        kept, self._waiting = self._waiting, type(self._waiting)()
        try:
            return plain(self)
        finally:
            self._waiting = kept

    patch.setattr(places.Places, "open_to_all", open_to_all)


@mutant("half a joint lease", (22,), SAFETY, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    def serve(self: Any) -> None:
        for part in self.parts:
            if part.state is lease.WAITING and part.limiter.has_place_for(self):
                part.limiter.grant_reserved(part)
        if all(part.state is not lease.WAITING for part in self.parts) and self.event is not None:
            self.event.set()

    patch.setattr(joint.JointLease, "serve", serve)


@mutant("nothing is kept for a joint waiter", (24,), "plans/test_plan_fairness.py::test_a_joint_waiter_does_not_starve")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(joint.JointLease, "keeps", lambda self, limiter: False)


@mutant(
    "places are kept without regard to ranks",
    (20,),
    "plans/test_plan_ranks.py::test_chains_and_joint_leases_over_the_same_limiters_never_deadlock",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(joint.JointLease, "keeps", lambda self, limiter: True)


@mutant(
    "a revocation beats the outer cancellation",
    (18,),
    "plans/test_plan_cancellation.py::test_an_outer_cancellation_beats_a_revocation",
)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = lease.Lease._leave_revocable

    def leave(self: Any, *exc: Any) -> bool:
        try:
            return plain(self, *exc)
        finally:
            if self.taken_back is not None:
                raise self.taken_back from None

    patch.setattr(lease.Lease, "_leave_revocable", leave)


@mutant("the rank check is off", (19,), "plans/test_plan_ranks.py::test_out_of_rank_is_refused_before_it_queues")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ranks, "check", lambda outer, wanted: None)


@mutant(
    "the rank check comes after queueing",
    (19,),
    "plans/test_plan_ranks.py::test_out_of_rank_is_refused_before_it_queues",
)
def _(patch: pytest.MonkeyPatch) -> None:
    plain_check, plain_arrive = ranks.check, places.Places._arrive
    patch.setattr(ranks, "check", lambda outer, wanted: None)

    def arrive(self: Any, of: Any) -> None:
        plain_arrive(self, of)
        self._record("queued", of)
        if (outer := ranks.innermost()) is not None:
            plain_check(outer, of)

    patch.setattr(places.Places, "_arrive", arrive)


@mutant(
    "waiting for oneself is not seen",
    (21,),
    "plans/test_plan_ranks.py::test_waiting_for_ones_own_places_is_refused_at_once",
)
def _(patch: pytest.MonkeyPatch) -> None:
    for module in (lease, joint):
        patch.setattr(module, "check_self", lambda wanted, own: None)


@mutant(
    "rings are not looked for",
    (21,),
    "plans/test_plan_ranks.py::test_a_ring_is_found_a_second_after_it_closed_and_named",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(waitgraph, "check_ring", lambda wait: None)


@mutant("every long wait is accused", (21,), "plans/test_plan_ranks.py::test_plans_that_respect_ranks_never_deadlock")
def _(patch: pytest.MonkeyPatch) -> None:
    def accuse(wait: Any) -> None:
        raise DeadlockError("you have waited for long")

    patch.setattr(waitgraph, "check_ring", accuse)


@mutant(
    "closing forgets who waits",
    (5,),
    "plans/test_plan_fairness.py::test_closing_refuses_who_waits_and_who_comes_and_lets_holders_end",
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Limiter, "refuse", lambda self, of, error: None)
    patch.setattr(joint.JointLease, "refuse", lambda self, of, error: None)


@mutant(
    "shrinking sends holders away",
    (10,),
    "metamorphic/test_metamorphic_limiters.py::test_shrinking_changes_no_holders_outcome",
)
def _(patch: pytest.MonkeyPatch) -> None:
    import anyio

    entered: dict[Any, anyio.CancelScope] = {}
    begin, leave = lease.Lease.begin, lease.Lease.leave

    def scoped_begin(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = begin(self, *args, **kwargs)
        entered[self] = anyio.CancelScope()
        entered[self].__enter__()
        return result

    def scoped_leave(self: Any) -> Any:
        entered.pop(self).__exit__(None, None, None)
        return leave(self)

    def resize(self: Any, limit: int | None) -> None:
        plain_resize(self, limit)
        if limit is not None:
            for holder in list(self.holders())[limit:]:
                entered[holder].cancel()

    plain_resize = Limiter.resize
    patch.setattr(lease.Lease, "begin", scoped_begin)
    patch.setattr(lease.Lease, "leave", scoped_leave)
    patch.setattr(Limiter, "resize", resize)


# -- actors and supervisors


@mutant("a value is discarded again", (15,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    def claim(self: Any) -> bool:
        return self.discard is not None

    plain = request.Request.finish

    def finish(self: Any, outcome: Any) -> Any:
        due = plain(self, outcome)
        if self.left and self.discard is not None and isinstance(outcome, request.Value):
            self.discard(outcome.value)
        return due

    patch.setattr(request.Request, "_claim_discard", claim)
    patch.setattr(request.Request, "finish", finish)


@mutant("a value that nobody took is forgotten", (15,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(request.Request, "_claim_discard", lambda self: False)


@mutant("a cancelled ask does not wait for its handler", (14,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    async def at_once(end: Any, seconds: float) -> bool:
        return True

    patch.setattr(actor, "wait_bounded", at_once)


@mutant(
    "a shield without bound",
    (16,),
    "plans/test_plan_requests.py::test_an_ask_is_back_within_its_deadline_and_the_bound",
)
def _(patch: pytest.MonkeyPatch) -> None:
    async def without_bound(end: Any, seconds: float) -> bool:
        import anyio

        with anyio.CancelScope(shield=True):
            await end.wait()
        return True

    patch.setattr(actor, "wait_bounded", without_bound)
    patch.setattr(incarnation.Incarnation, "overdue", lambda self, of: None)


@mutant("restarts without end", (26,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    def admit(self: Any, cause: BaseException, now: float) -> Any:
        return backoff.Restart([cause], due=now)

    patch.setattr(backoff.RestartRecord, "admit", admit)


@mutant("a backoff out of its bounds", (27,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(backoff.Backoff, "delay", lambda self, attempt, chance: 2 * self.ceiling(attempt) + 1)


@mutant("programming errors are restarted", (29,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(recovery, "is_declared", lambda error, faults: True)


@mutant("siblings are left as they are", (28,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    def affected(self: Any, broken: Any) -> Any:
        kept = self.supervisor.strategy
        self.supervisor.strategy = "one_for_all" if kept == "one_for_one" else "one_for_one"
        try:
            return plain(self, broken)
        finally:
            self.supervisor.strategy = kept

    plain = recovery.Recovery.affected
    patch.setattr(recovery.Recovery, "affected", affected)


@mutant("stopping in the order of starting", (28,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    plain = supervisor.Supervisor.stop_children

    async def stop_children(self: Any, deadline: float) -> None:
        self._children.reverse()
        await plain(self, deadline)

    patch.setattr(supervisor.Supervisor, "stop_children", stop_children)


@mutant("drained leases are not waited for", (25,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    def leases_left(self: Any) -> Any:
        import anyio

        left = anyio.Event()
        left.set()
        return left

    patch.setattr(shell.Shell, "leases_left", leases_left)


@mutant(
    "the last message first",
    (37,),
    "plans/test_plan_requests.py::test_tells_are_handled_in_the_order_of_their_sender",
)
def _(patch: pytest.MonkeyPatch) -> None:
    def take(self: Any) -> Any:
        return self._remove(next(reversed(self._entries))) if self._entries else None

    patch.setattr(mailbox.Mailbox, "take", take)


@mutant("a failure is lost", (39,), SUPERVISION, seen_by_monitor=True)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(supervisor, "verdict", lambda address, causes, raised: raised)


def property_named(address: str, *invariants: int) -> Any:
    """A property test of a neighbouring folder, to be run with a few unshrunk examples that are always the same.

    One that checks many invariants at once checks only those that are given.
    """
    file, _, name = address.partition("::")
    path = HERE.parent / file
    spec = importlib.util.spec_from_file_location(f"{path.stem}_with_a_mutant", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if hasattr(module, "check_supervision"):
        module.check_supervision = lambda seen: check_supervision(seen, *invariants)
    test: Any = getattr(module, name)
    test._hypothesis_internal_use_settings = settings(  # a test may not be decorated with settings twice
        max_examples=300, phases=[Phase.generate], derandomize=True, database=None, deadline=None
    )
    return test


@pytest.mark.parametrize("planted", MUTANTS, ids=lambda each: each.name.replace(" ", "-"))
def test_a_planted_fault_is_found(backend: str, monkeypatch: pytest.MonkeyPatch, planted: Mutant) -> None:
    test = property_named(planted.caught_by, *planted.invariants)
    planted.plant(monkeypatch)
    with pytest.raises(BaseException) as caught:
        test(backend=backend)
    for leaf in leaves(caught.value):  # a fault that does not fit the kernel any more proves nothing
        assert not isinstance(leaf, KeyboardInterrupt | SystemExit | AttributeError | TypeError | NameError), leaf
    if planted.seen_by_monitor:
        numbers = {number for error in leaves(caught.value) for number in numbers_of(error)}
        assert numbers & set(planted.invariants), caught.value


def numbers_of(error: BaseException) -> list[int]:
    """The invariants that a violation names, those found besides among them."""
    if not isinstance(error, InvariantViolation):
        return []
    besides = re.findall(r"^(?:also )?invariant (\d+):", "\n".join(getattr(error, "__notes__", [])), re.MULTILINE)
    return [error.number, *map(int, besides)]


def leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in leaves(each)]
    return [error]


def test_there_are_at_least_ten_mutants_for_different_invariants() -> None:
    assert len(MUTANTS) >= 10
    assert len({number for each in MUTANTS for number in each.invariants}) >= 10
