"""The invariants of actors and supervisors, checked on what was seen of a played plan.

==  ==========================================================================================
3   at the end no lease is held, nobody waits, no request is pending
14  `ask` returns only after its handler has ended, unless detached
15  at most one reply; an undelivered value is discarded exactly once
16  no handler runs past its caller's deadline plus the bound
25  a restart keeps the count of leases; a drained state stays open until its leases are left
26  never more than n restarts in a window; the next escalates with all causes
27  backoff within its bounds, growing with failures in a row, reset after stability
28  strategies restart whom they are named for, in order; stop is in reverse order
29  programming errors are never restarted
37  order per sender; the mailbox's bound is kept; what was accepted is handled or superseded
39  the leaves of what is raised are the failures that nobody handled, each once, no cancellation
==  ==========================================================================================
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from proctor.actors.bounded import leaves
from proctor.actors.events import ActorEvent, RequestEvent, SupervisorEvent
from proctor.actors.ledger import Event, LimiterEvent
from proctor.errors import Fault, SupervisorExhausted
from proctor.testing.monitor import InvariantViolation
from proctor.testing.supervision import Bug, Message, Seen

TOLERANCE: Final = 1e-9
Check = Callable[[Seen], Iterator[str]]


def nothing_is_left(seen: Seen) -> Iterator[str]:
    """3."""
    for address, count in seen.pending.items():
        if count:
            yield f"{address} has {count} requests at the end"
    for number, inside in seen.inside.items():
        if any(inside.values()):
            yield f"holders inside limiter {number} at the end: {inside}"


def asks_return_after_their_handlers(seen: Seen) -> Iterator[str]:
    """14. Plans whose handlers resist are allowed to return once the bound is over."""
    for asked in seen.asked:
        job = asked.message.job
        bound = seen.plan.actors[asked.actor].bound
        if asked.running and not (job.detached and asked.outcome == "cancelled") and job.cleanup < bound:
            yield f"an ask returned ({asked.outcome}) at {asked.ended} while its handler ran: {job}"


def replies_come_once(seen: Seen) -> Iterator[str]:
    """15."""
    taken = Counter(id(asked.message) for asked in seen.asked if asked.outcome == "value")
    runs = Counter(id(handled.message) for handled in seen.handled)
    for handled in seen.handled:
        key, job = id(handled.message), handled.message.job
        if runs[key] > 1:
            yield f"{job} was handled {runs[key]} times"
        discarded = seen.discarded[key]
        if discarded and handled.value is None:
            yield f"{job} gave no value, yet one was discarded"
        if handled.value is not None and not job.told:
            if taken[key] + discarded > 1:
                yield f"{job}: its value was taken {taken[key]} and discarded {discarded} times"
            if job.discards and taken[key] + discarded == 0:
                yield f"{job}: its value was neither taken nor discarded"
    values = {id(handled.value) for handled in seen.handled}
    for asked in seen.asked:
        if asked.outcome == "value" and id(asked.value) not in values:
            yield f"{asked.message.job} was answered with {asked.value!r}, which no handler made"


def handlers_heed_deadlines(seen: Seen) -> Iterator[str]:
    """16; nor is its caller held longer, whatever the handler does."""
    for asked in seen.asked:
        job, bound = asked.message.job, seen.plan.actors[asked.actor].bound
        # A discard hook of these plans takes no time.
        if job.timeout is not None and asked.ended > asked.began + job.timeout + bound + TOLERANCE:
            yield f"{job} held its caller until {asked.ended}, due {asked.began + job.timeout} and the bound of {bound}"
    begun = {id(asked.message): asked.began for asked in seen.asked}
    for handled in seen.handled:
        job, bound = handled.message.job, seen.plan.actors[handled.actor].bound
        if job.told or job.detached or job.timeout is None or job.cleanup > bound:
            continue
        latest = begun[id(handled.message)] + job.timeout + bound
        if handled.ended is not None and handled.ended > latest + TOLERANCE:
            yield f"the handler of {job} ended at {handled.ended}, its caller's deadline and bound at {latest}"


def drained_states_stay_open(seen: Seen) -> Iterator[str]:
    """25, and no lease is granted while its actor is not open. The count itself is the Monitor's."""
    is_open: set[str] = set()
    for event in seen.events:
        if isinstance(event, ActorEvent) and event.kind == "opened":
            is_open.add(event.name)
        elif isinstance(event, ActorEvent) and event.kind in {"finished", "gone"}:
            is_open.discard(event.name)
        elif isinstance(event, SupervisorEvent) and event.kind in {"restarting", "exhausted", "escalated"}:
            is_open.discard(event.child)
        elif isinstance(event, LimiterEvent) and event.kind == "granted":
            owner = f"root/{event.name.removeprefix('limiter ')}"
            if owner not in is_open:
                yield f"{event.name} granted a lease at {event.time} while {owner} was not open"
    for left in seen.left_at_close:
        actor = int(left.rsplit(" ", 1)[1].split(".")[0])
        if seen.plan.actors[actor].leases == "drain":
            yield f"{left} was still inside when that incarnation was closed"


def restarts_are_few(seen: Seen) -> Iterator[str]:
    """26."""
    plan, groups = seen.plan, defaultdict[str, list[float]](list)
    for event in _supervisor(seen, "restarted"):
        groups[event.child if plan.exhausted == "abandon" else ""].append(event.time)
    for child, times in groups.items():
        for first, last in zip(times, times[plan.restarts :], strict=False):
            if last - first < plan.window - TOLERANCE:
                yield f"{plan.restarts + 1} restarts of {child or 'the supervisor'} from {first} to {last}"
    yield from _exhaustions_are_due(seen)


def _exhaustions_are_due(seen: Seen) -> Iterator[str]:
    """Exhausted with all causes, and not before the restarts of the window are used up."""
    plan = seen.plan
    waiting: dict[str, int] = defaultdict(int)
    begun: dict[str, list[float]] = defaultdict(list)
    for event in seen.events:
        if isinstance(event, ActorEvent) and event.kind == "gone":
            waiting.pop(event.name, None)
        if not isinstance(event, SupervisorEvent):
            continue
        if event.kind == "restarting":
            waiting[event.child] += 1
        elif event.kind == "restarted":
            waiting[event.child] -= 1
            begun[event.child].append(event.time)
        elif event.kind == "exhausted":
            whose = [event.child] if plan.exhausted == "abandon" else list({*waiting, *begun})
            recent = [time for child in whose for time in begun[child] if time > event.time - plan.window]
            count = len(recent) + sum(waiting[child] for child in whose)
            if count < plan.restarts:
                yield f"{event.child} exhausted at {event.time} after {count} restarts of {plan.restarts}"
            assert isinstance(event.detail, SupervisorExhausted)
            if len(event.detail.exceptions) < plan.restarts + 1:
                yield f"exhausted by {len(event.detail.exceptions)} causes: {event.detail!r}"


def backoff_is_kept(seen: Seen) -> Iterator[str]:
    """27."""
    plan = seen.plan
    attempts, opened = Counter[str](), dict[str, float]()
    due: dict[str, float] = {}
    for event in seen.events:
        if isinstance(event, ActorEvent) and event.kind == "opened":
            opened[event.name] = event.time
            if event.time < due.pop(event.name, 0.0) - TOLERANCE:
                yield f"{event.name} was opened at {event.time}, before its backoff was over"
        elif isinstance(event, SupervisorEvent) and event.kind == "restarting":
            child = event.child
            # Its last incarnation counts as stable by how long it was open; one that never opened does not.
            if child in opened and event.time - opened.pop(child) >= plan.stable_after:
                attempts[child] = 0
            ceiling = min(plan.maximum, plan.initial * 2 ** attempts[child])
            if not ceiling * (1 - plan.jitter) - TOLERANCE <= event.delay <= ceiling + TOLERANCE:
                yield f"{child}: a delay of {event.delay} after {attempts[child]} failures in a row"
            if event.attempt != attempts[child]:
                yield f"{child}: attempt {event.attempt}, expected {attempts[child]}"
            attempts[child] += 1
            due[child] = event.time + event.delay


def strategies_are_kept(seen: Seen) -> Iterator[str]:
    """28."""
    names = [f"root/{number}" for number in range(len(seen.plan.actors))]
    reach: dict[str, Callable[[int, int], bool]] = {
        "one_for_one": lambda failed, other: failed == other,
        "rest_for_one": lambda failed, other: failed <= other,
        "one_for_all": lambda failed, other: True,
    }
    touches = reach[seen.plan.strategy]
    failures, lives = Counter[int](), Counter[int]()
    last_open: dict[int, int] = {}
    for position, event in enumerate(seen.events):
        if isinstance(event, SupervisorEvent) and event.kind == "restarting":
            for other in range(len(names)):
                failures[other] += touches(names.index(event.child), other)
        elif isinstance(event, ActorEvent) and event.kind == "opened":
            number = names.index(event.name)
            lives[number] += 1
            if lives[number] > 1 + failures[number]:
                yield f"{event.name} was opened {lives[number]} times after {failures[number]} failures that touch it"
            last_open[number] = position
    yield from _suffixes_are_ordered(seen, touches)
    yield from _stops_are_reversed(seen)


def _suffixes_are_ordered(seen: Seen, touches: Callable[[int, int], bool]) -> Iterator[str]:
    """Whenever a child has come back, those that came back with it did so in order of starting."""
    if seen.plan.strategy == "one_for_one":
        return
    up: dict[int, int] = {}
    for event in seen.events:
        if not isinstance(event, ActorEvent) or not event.incarnation:
            continue
        number = int(event.name.rsplit("/", 1)[1])
        if event.kind == "opened":
            later = [other for other in up if other > number and touches(number, other)]
            if event.incarnation > 1 and later:
                yield f"actor {number} came back while {later}, started after it, were up"
            up[number] = event.incarnation
        elif event.kind in {"down", "given up"} and up.get(number) == event.incarnation:
            del up[number]


def _stops_are_reversed(seen: Seen) -> Iterator[str]:
    final = [
        event.child
        for event in seen.events[seen.left :]
        if isinstance(event, SupervisorEvent) and event.kind == "stopping"
    ]
    if final != sorted(final, reverse=True):
        yield f"stopped in the order {final}"


def bugs_are_not_restarted(seen: Seen) -> Iterator[str]:
    """29."""
    broken: set[str] = set()
    for event in seen.events:
        if not isinstance(event, ActorEvent):
            continue
        if event.kind == "failed" and _has_bug(event.detail):
            broken.add(event.name)
        elif event.kind == "opened" and event.name in broken:
            yield f"{event.name} was opened again after a bug"


def mailboxes_keep_order_and_bound(seen: Seen) -> Iterator[str]:
    """37."""
    last: dict[tuple[int, int], int] = {}
    for handled in seen.handled:
        message = handled.message
        if seen.plan.actors[handled.actor].handlers != 1:
            continue  # several that begin at one instant may take their first steps in any order
        if message.number < last.get((message.sender, handled.actor), -1):
            yield f"message {message.number} of sender {message.sender} was handled after a later one"
        last[message.sender, handled.actor] = message.number
    for message, actor, queued in seen.refused:
        if queued != seen.plan.actors[actor].mailbox:
            yield f"{message.job} was refused though only {queued} were queued"
    yield from _tells_are_handled(seen)


def _tells_are_handled(seen: Seen) -> Iterator[str]:
    handled = {id(each.message) for each in seen.handled}
    gone = {event.name for event in seen.events if isinstance(event, ActorEvent) and event.kind == "gone"}
    superseded = Counter(
        event.name for event in seen.events if isinstance(event, RequestEvent) and event.kind == "superseded"
    )
    lost: dict[int, list[Message]] = defaultdict(list)
    for message, actor in seen.told:
        if id(message) not in handled:
            lost[actor].append(message)
    for actor, messages in lost.items():
        unkeyed = [message for message in messages if message.coalesce_key is None]
        name = f"root/{actor}"
        if name not in gone:
            if unkeyed:
                yield f"{name} is there, yet it never handled {unkeyed[0].job}"
            if len(messages) > superseded[name]:
                yield f"{name} did not handle {len(messages)} tells, but only {superseded[name]} were superseded"


def failures_are_raised_or_handled(seen: Seen) -> Iterator[str]:
    """39."""
    planted = {id(error): error for error, _ in seen.planted}
    raised = [] if seen.raised is None else list(leaves(seen.raised))
    counts = Counter(id(leaf) for leaf in raised)
    for leaf in raised:
        if id(leaf) not in planted and not _is_the_kernels(leaf):
            yield f"{leaf!r} was raised, but nobody had planted it"
        if counts[id(leaf)] > 1:
            yield f"{leaf!r} was raised {counts[id(leaf)]} times"
    handled = {id(asked.error) for asked in seen.asked} | {id(error) for error in seen.stop_errors}
    for leaf in raised:
        if id(leaf) in handled:
            yield f"{leaf!r} was raised though a caller had it"
    final = False
    for event in seen.events:
        if isinstance(event, SupervisorEvent) and event.kind == "escalated":
            final = True
        if isinstance(event, ActorEvent) and event.kind == "failed":
            for leaf in leaves(event.detail) if isinstance(event.detail, BaseException) else ():
                if (final or _has_bug(leaf)) and id(leaf) not in counts and id(leaf) not in handled:
                    yield f"{leaf!r} was lost"
    known = {id(leaf) for event in seen.events for leaf in _failed(event)} | handled | set(counts)
    for error, actor in seen.planted:
        if id(error) not in known:
            yield f"{error!r} of actor {actor} reached nobody"


def _failed(event: object) -> list[BaseException]:
    if isinstance(event, ActorEvent) and event.kind == "failed" and isinstance(event.detail, BaseException):
        return list(leaves(event.detail))
    return []


def _is_the_kernels(leaf: BaseException) -> bool:
    """Faults that the kernel itself makes: it ended by its own word, it resisted, it was cancelled natively."""
    known = ("by its own word", "resists", "from outside")
    return isinstance(leaf, Fault) and any(text in str(leaf) for text in known)


def _has_bug(error: object) -> bool:
    return isinstance(error, BaseException) and any(isinstance(leaf, Bug) for leaf in leaves(error))


def _supervisor(seen: Seen, kind: str) -> Iterator[SupervisorEvent]:
    return (event for event in seen.events if isinstance(event, SupervisorEvent) and event.kind == kind)


CHECKS: Final[dict[int, Check]] = {
    3: nothing_is_left,
    14: asks_return_after_their_handlers,
    15: replies_come_once,
    16: handlers_heed_deadlines,
    25: drained_states_stay_open,
    26: restarts_are_few,
    27: backoff_is_kept,
    28: strategies_are_kept,
    29: bugs_are_not_restarted,
    37: mailboxes_keep_order_and_bound,
    39: failures_are_raised_or_handled,
}


def check_supervision(seen: Seen, *numbers: int) -> Seen:
    """Return what was seen, or raise the first broken invariant with the plan and the last events as notes.

    Args:
        numbers: of the invariants to check, all unless given.
    """
    violations = [violation for violation in seen.violations if not numbers or violation.number in numbers]
    for number in numbers or CHECKS:
        if number in CHECKS:
            violations += [InvariantViolation(number, text) for text in CHECKS[number](seen)]
    if not violations:
        return seen
    first = violations[0]
    first.add_note(f"{seen.backend}: {seen.plan}")
    for other in violations[1:6]:
        first.add_note(f"also {other}")
    for event in seen.events[-60:]:
        first.add_note(f"  {_brief(event)}")
    raise first


def _brief(event: Event) -> str:
    numbers = [getattr(event, name, None) for name in ("item", "number", "incarnation")]
    what = next((number for number in numbers if number is not None), "")
    about = getattr(event, "child", getattr(event, "message", ""))
    return f"{event.time:g} {event.name} {event.kind} {what} {about} {getattr(event, 'detail', '') or ''}"
