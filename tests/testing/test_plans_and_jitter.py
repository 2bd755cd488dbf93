"""Plans are data; playing one tells what became of each client; jitter adds turns and goes away again."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given, settings

import proctor.actors.lease as lease_module
from proctor.testing import run_virtual
from proctor.testing.jitter import Jitter, yield_point
from proctor.testing.monitor import InvariantViolation
from proctor.testing.plan import Admin, Body, Client, Outcome, Plan
from proctor.testing.stage import Played, check, play
from proctor.testing.strategies import plans


@settings(max_examples=20, deadline=None, database=None)
@given(plan=plans())
def test_a_plan_prints_as_an_expression_that_makes_it_again(plan: Plan) -> None:
    assert eval(repr(plan)) == plan


def test_what_becomes_of_each_client(backend: str) -> None:
    plan = Plan(
        limits=(1,),
        clients=(
            Client(hold=4),
            Client(delay=1, hold=1, timeout=2),
            Client(delay=1, hold=2, order=1),
            Client(delay=1, tries=True),
            Client(delay=7, hold=9, revocable=True),
            Client(delay=20, fails=True),
            Client(delay=22, hold=5),
            Client(delay=23),
        ),
        admin=(Admin(8, "revoke", value=-1), Admin(24, "close")),
        mend=False,
    )
    played = check(play(plan, backend))
    assert played.outcomes[0] == Outcome("done", 4, (Body(0, 4),))
    assert played.outcomes[1] == Outcome("timeout", 3)
    assert played.outcomes[2] == Outcome("done", 6, (Body(4, 6),))
    assert played.outcomes[3] == Outcome("no room", 1)
    assert played.outcomes[4].status == "revoked"
    assert played.outcomes[4].bodies == (Body(7, 8),)
    assert played.outcomes[5].status == "failed"
    assert played.outcomes[6] == Outcome("done", 27, (Body(22, 27),))
    assert played.outcomes[7].status == "closed"
    assert played.duration == 27


def test_check_raises_with_the_plan_in_the_notes() -> None:
    played = Played(Plan(), "trio", (), (), 0.0, (InvariantViolation(4, "lost"),))
    with pytest.raises(InvariantViolation, match="invariant 4: lost") as caught:
        check(played)
    assert "trio: Plan()" in caught.value.__notes__


def test_jitter_yields_at_its_points_and_is_gone_afterwards(backend: str) -> None:
    plain = lease_module.checkpoint

    async def turns_taken() -> int:
        turns, done = 0, False

        async def count() -> None:
            nonlocal turns
            while not done:
                turns += 1
                await anyio.sleep(0)

        async with anyio.create_task_group() as tg:
            tg.start_soon(count)
            for _ in range(20):
                await yield_point("here")
            done = True
        return turns

    calm = run_virtual(backend, turns_taken)
    with Jitter(1).installed():
        assert lease_module.checkpoint is not plain
        jittery = run_virtual(backend, turns_taken)
        again = run_virtual(backend, turns_taken)
    assert calm <= 2
    assert jittery > 15
    assert again > 15
    assert lease_module.checkpoint is plain
