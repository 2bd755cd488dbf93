"""The line in front of a pacer: fair between groups, and within a group by progress.

Every group has a virtual time that grows with what its calls cost, by weight, and the group with the least is next. A
group that was idle joins again at the present virtual time, without credit. What a call costs is its share of the
resource of which it takes the largest share, in units of a mean call.

Not `FairQueue` of the kernel: there every place costs the same, and a call that is refused must be given back what it
was charged.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from enum import Enum
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final

from attrs import define, field

from proctor.model.pacing.values import Call

if TYPE_CHECKING:
    from proctor.model.pacing.buckets import Mirror

FIRST: Final = 0  # of calls that came back, before those that did not
NEW: Final = 1


class Place(Enum):
    """Where a call is."""

    QUEUED = "queued"
    DELAYED = "delayed"
    IN_FLIGHT = "in flight"
    GONE = "gone"


QUEUED: Final = Place.QUEUED
DELAYED: Final = Place.DELAYED
IN_FLIGHT: Final = Place.IN_FLIGHT
GONE: Final = Place.GONE


@define(eq=False, repr=False)
class Line:
    """The calls of one group.

    Attributes:
        passed: virtual time. waiting: calls in line. members: calls the pacer knows of. turn: its latest place among
            the groups, 0 for none.
        heap: of (came back or new, order, arrival, ticket); some may have been withdrawn.
    """

    group: Hashable
    weight: float
    passed: float = 0.0
    waiting: int = 0
    members: int = 0
    turn: int = 0
    heap: list[tuple[int, tuple[int, ...], int, Ticket]] = field(factory=list)


@define(eq=False, repr=False)
class Ticket:
    """What the pacer keeps of one call.

    Attributes:
        arrival: in order of arrival. first: 1 if it is the first call of its sample, else 0.
        place: where it is. version: counts its waits after failures; a delay of an earlier one is void.
        failures: transient ones so far. charge: virtual time it was charged at its last send.
        number, sent_at: of its last send. sent: calls sent by then, with it. cohort: see the window.
        output: tokens of output that are expected of it. costs: what was debited of mirrors, by dimension.
        marks: of the mirrors, after that. sums: all that was spent by then, by dimension.
    """

    call: Call
    line: Line
    arrival: int
    first: int = 0
    place: Place = QUEUED
    version: int = 0
    failures: int = 0
    charge: float = 0.0
    number: int = -1
    sent_at: float = 0.0
    cohort: int = -1
    output: float = 0.0
    costs: tuple[float, ...] = ()
    marks: dict[Mirror, float] = field(factory=dict)
    sums: list[float] = field(factory=list)
    sent: int = 0

    def __lt__(self, other: Ticket) -> bool:
        return self.arrival < other.arrival


@define(eq=False, repr=False)
class Lines:
    """All groups.

    Attributes:
        waiting: calls in line. firsts: of these, the first calls of their samples, which a new one would not overtake.
        virtual: virtual time of the latest service.
    """

    waiting: int = field(default=0, init=False)
    firsts: int = field(default=0, init=False)
    virtual: float = field(default=0.0, init=False)
    _lines: dict[Hashable, Line] = field(factory=dict, init=False)
    _active: list[tuple[float, int, Line]] = field(factory=list, init=False)
    _turn: int = field(default=0, init=False)
    _arrivals: int = field(default=0, init=False)

    def join(self, call: Call) -> Ticket:
        """A ticket for a call that is new here; not in line yet."""
        line = self._lines.get(call.group)
        if line is None:
            line = self._lines[call.group] = Line(call.group, call.weight, passed=self.virtual)
        line.weight = call.weight
        line.members += 1
        self._arrivals += 1
        return Ticket(call, line, self._arrivals, first=int(call.order[:1] in {(), (0,)}))

    def leave(self, ticket: Ticket) -> None:
        """A call is done with."""
        line = ticket.line
        ticket.place = GONE
        line.members -= 1
        if not line.members and line.passed <= self.virtual:
            self._lines.pop(line.group, None)

    def add(self, ticket: Ticket, *, back: bool = False) -> None:
        """Put a ticket in line: at its order, or before all that did not come back."""
        line = ticket.line
        ticket.place = QUEUED
        heappush(line.heap, (FIRST if back else NEW, ticket.call.order, ticket.arrival, ticket))
        line.waiting += 1
        self.waiting += 1
        self.firsts += ticket.first
        if line.waiting == 1:
            line.passed = max(line.passed, self.virtual)
            self._place(line)

    def withdraw(self, ticket: Ticket) -> None:
        """Take a ticket that is in line out of it."""
        line = ticket.line
        ticket.place = GONE
        line.waiting -= 1
        self.waiting -= 1
        self.firsts -= ticket.first
        if len(line.heap) > 2 * line.waiting + 16:
            line.heap = [entry for entry in line.heap if entry[3].place is QUEUED]
            heapify(line.heap)

    def head(self) -> Ticket | None:
        """Who is next."""
        active = self._active
        while active:
            passed, turn, line = active[0]
            if turn != line.turn or not line.waiting:
                heappop(active)
                continue
            if passed != line.passed:
                self._turn = line.turn = self._turn + 1
                heapreplace(active, (line.passed, line.turn, line))
                continue
            heap = line.heap
            while heap[0][3].place is not QUEUED:
                heappop(heap)
            return heap[0][3]
        return None

    def take(self, ticket: Ticket, cost: float) -> None:
        """The one that is next leaves, and its group is charged."""
        line = ticket.line
        heappop(line.heap)
        line.waiting -= 1
        self.waiting -= 1
        self.firsts -= ticket.first
        self.virtual = max(self.virtual, line.passed)
        ticket.charge = cost / line.weight
        line.passed += ticket.charge

    def refund(self, ticket: Ticket) -> None:
        """Give back what the last send of a ticket was charged."""
        line = ticket.line
        line.passed -= ticket.charge
        ticket.charge = 0.0
        if line.waiting:
            self._place(line)

    def counts(self) -> dict[Hashable, int]:
        """Calls in line by group."""
        return {line.group: line.waiting for line in self._lines.values() if line.waiting}

    def tickets(self) -> Iterator[Ticket]:
        """Those in line, in no order."""
        for line in self._lines.values():
            for entry in line.heap:
                if entry[3].place is QUEUED:
                    yield entry[3]

    def _place(self, line: Line) -> None:
        self._turn = line.turn = self._turn + 1
        heappush(self._active, (line.passed, line.turn, line))
        if len(self._active) > 4 * len(self._lines) + 64:
            self._active = [entry for entry in self._active if entry[1] == entry[2].turn and entry[2].waiting]
            heapify(self._active)
