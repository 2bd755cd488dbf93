"""What the ledger has told of a limiter so far: as plain a model as can be, for the Monitor to compare with."""

from __future__ import annotations

from collections.abc import Hashable

from attrs import define, field, frozen

from proctor.actors.ledger import LimiterEvent


@frozen
class Waiting:
    """A lease that waits, as its last event told."""

    event: LimiterEvent
    requeued: bool = field(default=False, kw_only=True)
    armed: bool = field(default=False, kw_only=True)
    served_before: dict[Hashable, int] = field(factory=dict)

    @property
    def key(self) -> tuple[tuple[int, ...], int, int]:
        """Its place in its group: by order; one that waits again goes before those that arrived after it."""
        order = self.event.order
        return (
            () if order is None else (order,) if isinstance(order, int) else order,
            not self.requeued,
            self.event.item,
        )


@define(eq=False)
class Rivalry:
    """Two groups that both have waited without a break; what each was served meanwhile, as (group, item)."""

    served: list[tuple[Hashable, int]] = field(factory=list)


@define(eq=False)
class LimiterModel:
    """What a limiter's events so far say about it."""

    name: str
    limit: int | None = None
    known: bool = False
    paused: bool = False
    closed: bool = False
    waiting: dict[int, Waiting] = field(factory=dict)
    holding: dict[int, LimiterEvent] = field(factory=dict)
    served: dict[Hashable, int] = field(factory=dict)
    rivalries: dict[tuple[Hashable, Hashable], Rivalry] = field(factory=dict)
    weights: dict[Hashable, float] = field(factory=dict)
    joint_debts: bool = False

    @property
    def room(self) -> float:
        """Free places; none while paused or closed."""
        if self.paused or self.closed:
            return 0
        return float("inf") if self.limit is None else max(0, self.limit - len(self.holding))

    def armed(self) -> list[int]:
        """Joint waiters that reserve a place here."""
        return [item for item, waiting in self.waiting.items() if waiting.armed]

    def single(self, group: Hashable) -> list[Waiting]:
        """The single waiters of a group."""
        return [w for w in self.waiting.values() if w.event.group == group and not w.event.joint]

    def groups(self) -> list[Hashable]:
        """The groups with single waiters: those are served in turn, joint ones when they can be."""
        return list(dict.fromkeys(w.event.group for w in self.waiting.values() if not w.event.joint))
