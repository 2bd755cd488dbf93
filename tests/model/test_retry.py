"""The retry loop in virtual time: how often, how long, and what is held meanwhile."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from attrs import define, field

from proctor.errors import (
    LimiterClosed,
    ModelError,
    ModelGivenUp,
    RateLimitError,
    TransientModelError,
)
from proctor.model.failures import Kind, Unreachable, classify
from proctor.model.providers.mock import MockAPI
from proctor.model.retry import Retries, RetryPolicy, Unpaced, pause
from proctor.runtime import WorkingTime

API = MockAPI("x")


@define
class Health:
    reached: bool = True
    given_up: ModelGivenUp | None = None
    waits: list[float] = field(factory=list)

    def check(self) -> None:
        if self.given_up is not None:
            raise ModelGivenUp(str(self.given_up))

    def give_up(self, error: ModelGivenUp) -> None:
        self.given_up = error

    def retrying(self, wait: float) -> None:
        self.waits.append(wait)


@define
class Script:
    """Attempts that end as listed, one after another; counts attempts and connections held."""

    ends: list[Any]
    takes: float = 1.0
    attempts: int = 0
    held: int = 0
    sent: list[float] = field(factory=list)
    queue: float = 0.0

    async def attempt(self) -> str:
        assert self.held == 1
        self.attempts += 1
        self.sent.append(anyio.current_time())
        await anyio.sleep(self.takes)
        end = self.ends[min(self.attempts, len(self.ends)) - 1]
        if isinstance(end, Exception):
            raise end
        return str(end)

    @asynccontextmanager
    async def lease(self) -> AsyncIterator[None]:
        await anyio.sleep(self.queue)
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1


def retries(script: Script, health: Health | None = None, marks: Any = None, **policy: Any) -> Retries[str]:
    options = {} if marks is None else {"marks": marks}
    health = health or Health()
    return Retries(
        model="some/model",
        policy=RetryPolicy(**policy),
        attempt=script.attempt,
        turn=Unpaced(script.lease, health, random.Random(1)),
        judge=lambda error: classify(error, API),
        health=health,
        **options,
    )


@pytest.mark.parametrize("allowed", [0, 1, 2, 5])
@pytest.mark.parametrize(
    "error", [RateLimitError("slow down", status=429), TransientModelError("oops", status=503), TimeoutError("x")]
)
async def test_max_retries_n_makes_n_plus_1_attempts_and_then_raises_the_providers_error(
    allowed: int, error: Exception
) -> None:
    script = Script([error])
    with pytest.raises(type(error)) as caught:
        await retries(script, max_retries=allowed).run()
    assert script.attempts == allowed + 1
    assert caught.value is error
    made = "1 attempt was" if allowed == 0 else f"{allowed + 1} attempts were"
    assert f"{made} made (max_retries={allowed})" in error.__notes__
    del error.__notes__


async def test_without_a_number_it_goes_on_until_it_succeeds() -> None:
    script = Script([TransientModelError("oops")] * 300 + ["done"])
    call = retries(script)
    assert await call.run() == "done"
    assert call.failed == 300


@pytest.mark.parametrize("error", [ModelError("bad request", status=400), ValueError("mine"), KeyError("x")])
async def test_a_final_failure_is_raised_as_it_is_after_one_attempt(error: Exception) -> None:
    script = Script([error])
    with pytest.raises(type(error)) as caught:
        await retries(script).run()
    assert caught.value is error
    assert script.attempts == 1


@pytest.mark.parametrize("status", [401, 403])
async def test_a_refused_key_gives_the_model_up_for_all_its_calls(status: int) -> None:
    class Refused(Exception):
        status_code = status

    health = Health()
    for error in (ModelGivenUp("no", status=status), Refused("no")):
        health.given_up = None
        with pytest.raises(ModelGivenUp, match="no"):
            await retries(Script([error]), health).run()
        later = Script(["fine"])
        with pytest.raises(ModelGivenUp, match="no"):
            await retries(later, health).run()
        assert later.attempts == 0


async def test_a_call_that_waits_for_its_next_attempt_learns_that_the_model_is_given_up() -> None:
    health = Health()
    script = Script([RateLimitError("slow", retry_after=60)])
    async with anyio.create_task_group() as group:

        async def give_up() -> None:
            await anyio.sleep(1.5)
            health.give_up(ModelGivenUp("gone"))

        group.start_soon(give_up)
        with pytest.raises(ModelGivenUp, match="gone"):
            await retries(script, health).run()
    assert script.attempts == 1


@pytest.mark.parametrize("allowed", [None, 0, 1, 7])
async def test_a_server_that_was_never_reached_is_given_up_after_three_attempts(allowed: int | None) -> None:
    health = Health(reached=False)
    script = Script([Unreachable("refused")], takes=0)
    with pytest.raises(ModelGivenUp, match="refused") as caught:
        await retries(script, health, max_retries=allowed).run()
    assert script.attempts == (3 if allowed is None else min(3, allowed + 1))
    assert isinstance(caught.value.__cause__, Unreachable)
    assert anyio.current_time() <= 2
    assert health.given_up is not None


async def test_a_server_that_has_answered_before_is_waited_for() -> None:
    script = Script([TransientModelError("busy", status=503)] + [Unreachable("refused")] * 8 + ["back"])
    health = Health(reached=False)
    assert await retries(script, health).run() == "back"
    assert health.given_up is None
    assert max(health.waits) > 8


async def test_an_attempt_is_limited_from_the_moment_it_is_sent_and_not_in_the_queue() -> None:
    script = Script(["late", "late"], takes=5, queue=100)
    with pytest.raises(TransientModelError, match="within 4 s"):
        await retries(script, attempt_timeout=4, max_retries=1).run()
    assert script.attempts == 2
    assert script.held == 0
    assert await retries(Script(["in time"], takes=5, queue=100), attempt_timeout=6).run() == "in time"


async def test_the_last_request_of_a_dead_connection_ends_after_ten_minutes_by_default() -> None:
    script = Script(["never"], takes=10**9)
    with pytest.raises(TransientModelError):
        await retries(script, max_retries=0).run()
    assert anyio.current_time() == 600


async def test_the_limit_of_the_whole_call_interrupts_attempts_and_waits() -> None:
    with pytest.raises(ModelError, match=r"within 3 s \(timeout\), in its first attempt"):
        await retries(Script(["late"], takes=10, queue=50), timeout=3).run()
    assert anyio.current_time() == 53
    script = Script([RateLimitError("slow", retry_after=1000)])
    with pytest.raises(ModelError, match="after 5 failed attempts") as caught:
        await retries(script, timeout=40).run()
    assert anyio.current_time() == 93
    assert isinstance(caught.value.__cause__, RateLimitError)
    assert script.held == 0


async def test_a_wait_holds_no_connection_and_heeds_what_the_provider_asks() -> None:
    script = Script([RateLimitError("slow", retry_after=1.5), RateLimitError("slow", retry_after=1.5), "done"])
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            await anyio.sleep(1.2)
            assert script.held == 0

        group.start_soon(watch)
        assert await retries(script).run() == "done"
    assert script.sent == [0, 2.5, 5.0]


async def test_waits_count_as_waiting_and_attempts_as_work() -> None:
    clock = WorkingTime()
    script = Script([RateLimitError("slow", retry_after=1.5), "done"], takes=3, queue=10)
    await retries(script, marks=clock).run()
    assert clock.elapsed() == 10 + 3 + 1.5 + 10 + 3
    assert clock.working() == 6


async def test_a_cancelled_call_holds_nothing_wherever_it_was() -> None:
    for at in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5):
        script = Script([RateLimitError("slow", retry_after=1), "done"], takes=1, queue=1)
        with anyio.move_on_after(at) as scope:
            await retries(script).run()
        assert scope.cancelled_caught is (at < 5)
        assert script.held == 0


async def test_an_error_of_the_lease_itself_is_not_retried() -> None:
    @asynccontextmanager
    async def closed() -> AsyncIterator[None]:
        await anyio.lowlevel.checkpoint()
        raise LimiterClosed("closed")
        yield

    call = retries(Script(["x"]))
    call.turn = Unpaced(closed, Health(), random.Random(1))
    with pytest.raises(LimiterClosed):
        await call.run()
    assert call.failed == 0


async def test_a_group_of_one_failure_is_that_failure() -> None:
    script = Script([ExceptionGroup("", [ExceptionGroup("", [TransientModelError("oops")])]), "done"])
    assert await retries(script).run() == "done"


def longest(kind: Kind, streak: int, asked: float | None = None) -> float:
    return max(pause(kind, streak, asked, random.Random(seed)) for seed in range(200))


def shortest(kind: Kind, streak: int, asked: float | None = None) -> float:
    return min(pause(kind, streak, asked, random.Random(seed)) for seed in range(200))


def test_pauses_grow_and_stay_within_their_bounds() -> None:
    assert longest(Kind.RATE_LIMIT, 1) <= 0.05
    assert 0.4 <= shortest(Kind.RATE_LIMIT, 2) <= longest(Kind.RATE_LIMIT, 2) <= 0.5
    assert longest(Kind.RATE_LIMIT, 10**6) <= 8
    assert 0.25 <= shortest(Kind.TRANSIENT, 1) < longest(Kind.TRANSIENT, 1) <= 0.75
    assert longest(Kind.TRANSIENT, 10**6) <= 45
    assert len({pause(Kind.TRANSIENT, 3, None, random.Random(seed)) for seed in range(50)}) == 50
    assert pause(Kind.TRANSIENT, 3, None, random.Random(5)) == pause(Kind.TRANSIENT, 3, None, random.Random(5))


@pytest.mark.parametrize("asked", [1e-3, 0.2, 1.9, 89, 1e9])
def test_what_a_provider_asks_for_bounds_the_pause_from_above_and_alone_never_stops_a_call(asked: float) -> None:
    for kind in (Kind.RATE_LIMIT, Kind.TRANSIENT):
        for streak in range(1, 12):
            wait = pause(kind, streak, asked, random.Random(streak))
            assert wait == min(asked, 2.0 * 2 ** (streak - 1))
