"""One Monitor checks all safety invariants of limiters in the same random plans."""

from __future__ import annotations

from hypothesis import given

from proctor.testing.plan import Plan
from proctor.testing.stage import check, play
from proctor.testing.strategies import plans


@given(plan=plans())
def test_no_invariant_is_broken_in_any_plan(backend: str, plan: Plan) -> None:
    check(play(plan, backend))
