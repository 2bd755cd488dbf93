"""Hypothesis strategies for plans of actors and supervisors.

Needs Hypothesis, which is imported here only.
"""

from __future__ import annotations

from typing import Final

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from proctor.testing.strategies import LATEST, times
from proctor.testing.supervision_plan import Ends, Holder, Job, Part, Sender, SupervisionPlan, Trouble

ENDS: Final[tuple[Ends, ...]] = ("value", "value", "value", "fault", "error")


def rarely(one_in: int = 4) -> SearchStrategy[bool]:
    """True one time in so many."""
    return st.integers(1, one_in).map(lambda drawn: drawn == one_in)


@st.composite
def jobs(draw: st.DrawFn, *, bound: int, resists: bool = False, errors: bool = True) -> Job:
    """A message; its handler obeys cancellation within the bound unless it may resist."""
    told = draw(rarely())
    ends: Ends = draw(st.sampled_from(ENDS)) if errors else "value"
    # The error of a told handler is a bug of the actor, which ends everything: rare enough for the rest to be seen.
    ends = "value" if told and ends == "error" and draw(st.booleans()) else ends
    timeout = None if told else draw(st.none() | times())
    return Job(
        gap=draw(times(3)),
        hold=draw(times(6)),
        ends=ends,
        cleanup=draw(times(bound + 4 if resists else bound - 1)),
        told=told,
        key=draw(st.none() | st.integers(0, 1)) if told else None,
        timeout=timeout,
        native=timeout is not None and draw(st.booleans()),
        detached=not told and draw(rarely()),
        discards=draw(st.booleans()),
    )


@st.composite
def parts(draw: st.DrawFn, *, restarts: bool = True) -> Part:
    """An actor."""
    return Part(
        restart=draw(st.sampled_from(["permanent", "permanent", "transient", "temporary"])),
        leases=draw(st.sampled_from(["drain", "adopt", "revoke"])),
        handlers=draw(st.sampled_from([1, 1, 2, None])),
        mailbox=draw(st.integers(1, 3)),
        bound=draw(st.integers(1, 4)),
        opens_in=draw(times(2)),
        closes_in=draw(st.sampled_from([0, 0, 0, 1])),
        fails_to_open=draw(st.sampled_from([frozenset[int](), frozenset[int](), frozenset({2}), frozenset({2, 3})]))
        if restarts
        else frozenset(),
        fails_to_close=draw(rarely(8)),
    )


@st.composite
def supervision_plans(
    draw: st.DrawFn,
    *,
    most_actors: int = 3,
    most_senders: int = 4,
    most_troubles: int = 4,
    resists: bool = False,
    bugs: bool = True,
    cut: bool = False,
) -> SupervisionPlan:
    """A supervisor with its actors, clients and troubles.

    Args:
        resists: handlers may take longer than the bound to end.
        bugs: there may be programming errors.
        cut: a task of the run is cancelled natively, on asyncio.
    """
    actors = tuple(draw(st.lists(parts(), min_size=1, max_size=most_actors)))
    which = st.integers(0, len(actors) - 1)
    senders = []
    for _ in range(draw(st.integers(0, most_senders))):
        actor = draw(which)
        messages = draw(st.lists(jobs(bound=actors[actor].bound, resists=resists, errors=bugs), max_size=4))
        senders.append(Sender(actor, draw(times()), tuple(messages)))
    kinds = ["fault", "fault", "oserror", "done", "stop", *(["bug"] if bugs else [])]
    troubles = st.builds(Trouble, times(), st.sampled_from(kinds), which)
    return SupervisionPlan(
        actors=actors,
        senders=tuple(senders),
        holders=tuple(draw(st.lists(st.builds(Holder, which, times(), times(6)), max_size=4))),
        troubles=tuple(draw(st.lists(troubles, max_size=most_troubles))),
        strategy=draw(st.sampled_from(["one_for_one", "rest_for_one", "one_for_all"])),
        exhausted=draw(st.sampled_from(["escalate", "abandon"])),
        restarts=draw(st.integers(0, 4)),
        window=draw(st.integers(1, 12)),
        initial=draw(times(2)),
        maximum=draw(st.integers(1, 6)),
        jitter=draw(st.sampled_from([0.0, 0.0, 0.5])),
        stable_after=draw(times()),
        grace=draw(times(4)),
        seed=draw(st.integers(0, 3)),
        cancelled_at=draw(rarely(5).flatmap(lambda yes: times(2 * LATEST) if yes else st.none())),
        until=draw(st.integers(0, 24)),
        cut=draw(st.tuples(times(), st.integers(0, 12), st.integers(0, 30))) if cut else None,
    )
