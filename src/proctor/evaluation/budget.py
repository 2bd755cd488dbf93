"""What a whole call of `eval` may use: tokens, dollars, seconds, over all its tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from attrs import define, field

from proctor.evaluation.plan import PlannedRun
from proctor.evaluation.said import Said
from proctor.model import Model, ModelUsage
from proctor.model.cost import Prices, price_of, unpriced

BUDGETS: Final = ("max_total_tokens", "max_total_cost", "max_run_time")


@define(eq=False, kw_only=True)
class Budget:
    """What may be used and what has been, samples that still run included; None is no bound.

    Attributes:
        max_total_tokens, max_total_cost, max_run_time: tokens, dollars, seconds.
        tokens, cost: used so far.
    """

    max_total_tokens: int | None = None
    max_total_cost: float | None = None
    max_run_time: float | None = None
    tokens: int = field(default=0, init=False)
    cost: float = field(default=0.0, init=False)

    @classmethod
    def of(cls, said: Said) -> Budget:
        """The budgets that a call was given."""
        return cls(**{name: said.get(name) for name in BUDGETS})

    def spend(self, usage: ModelUsage) -> str | None:
        """Account for a model call; what to say when that used a budget up, None while none is."""
        self.tokens += usage.total_tokens
        self.cost += usage.total_cost or 0.0
        if self.max_total_tokens is not None and self.tokens >= self.max_total_tokens:
            return _used_up("max_total_tokens", f"{self.max_total_tokens:,} tokens")
        if self.max_total_cost is not None and self.cost >= self.max_total_cost:
            return _used_up("max_total_cost", f"${self.max_total_cost:,.2f}")
        return None

    def overtime(self) -> str:
        """What to say when `max_run_time` is over."""
        return _used_up("max_run_time", f"{self.max_run_time:g} s")


def check_prices(plan: Sequence[PlannedRun], prices: Prices, budget: Budget) -> str:
    """See that what a limit on cost needs is known before anything runs.

    Returns:
        The option that needs prices, "" when none does.

    Raises:
        UsageError: a model that will be called has no price.
    """
    needed = "max_total_cost" if budget.max_total_cost is not None else ""
    for run in plan:
        by = needed or ("cost_limit" if run.options.cost_limit is not None else "")
        if not by:
            continue
        for model in (run.model, *_played(run)):
            if price_of(str(model), prices) is None and not model.api.reports_cost:
                raise unpriced(str(model), by)
    return needed


def _played(run: PlannedRun) -> list[Model]:
    found: list[Model] = []
    for playing in run.roles.values():
        found += [playing] if isinstance(playing, Model) else playing
    return found


def _used_up(option: str, amount: str) -> str:
    return f"the budget of {amount} ({option}) is used up: no further sample was started"
