"""Between the limiter and the pacer: connections that are asked for, calls that never began, the first answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import httpx
import pytest

from proctor.errors import ModelGivenUp, RateLimitError, TransientModelError
from proctor.model import GenerateConfig, ModelAPI, get_model
from proctor.model import actor as actor_module
from proctor.model.actor import ModelShare, shares
from proctor.model.admission import FIRST_ANSWER, PacerAdmission
from proctor.model.connections import Connections, asked, provided, signal_of, smallest
from proctor.model.exchange import Exchange, exchange, responded, showed
from proctor.model.pacing import Dimension, QuotaReading, Signal
from proctor.model.providers.mock import MockAPI
from proctor.model.quota import PacingOptions, together
from proctor.runtime import Runtime, open_runtime
from proctor.runtime.descriptors import Descriptors
from proctor.testing import FakeModel


class Hosted(ModelAPI):
    """A provider that says nothing of connections."""

    async def generate(self, input: Any, tools: Any, tool_choice: Any, config: Any) -> Any:
        raise NotImplementedError


class Fixed(Hosted):
    """One that has a number of its own."""

    def max_connections(self) -> int:
        return 6


def share_of(runtime: Runtime) -> ModelShare:
    [share] = shares(runtime)
    return share


# -- what is asked for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "hosted", "fixed"),
    [
        ({}, None, None),
        ({"adaptive_connections": True}, None, None),
        ({"adaptive_connections": False}, Connections(10), Connections(6)),
        ({"max_connections": 3}, Connections(3), Connections(3)),
        ({"max_connections": 3, "adaptive_connections": True}, Connections(3), Connections(3)),
        ({"adaptive_connections": 50}, Connections(None, 10, 20, 50), Connections(6)),
        ({"adaptive_connections": 4}, Connections(None, 4, 4, 4), Connections(4)),
        ({"adaptive_connections": "2-30"}, Connections(None, 2, 20, 30), Connections(6)),
        ({"adaptive_connections": "1-5-9"}, Connections(None, 1, 5, 9), Connections(6)),
    ],
)  # fmt: skip
def test_what_a_configuration_asks_for(
    config: dict[str, Any], hosted: Connections | None, fixed: Connections | None
) -> None:
    given = GenerateConfig(**config)
    assert asked(given, Hosted("m")) == hosted
    assert asked(given, Fixed("m")) == fixed
    assert (provided(Hosted("m")), provided(Fixed("m"))) == (Connections(), Connections(6))
    assert provided(MockAPI("m")) == Connections(10)


def test_of_several_the_smallest_counts() -> None:
    bounds = [Connections(None, 5, 20, 60), Connections(None, 10, 10, 90), Connections()]
    assert smallest(bounds) == Connections(None, 5, 10, 60)
    assert smallest([*bounds, Connections(70), Connections(80)]) == Connections(60)
    assert smallest([Connections(), Connections(7)]) == Connections(7)


def test_bounds_give_way_to_a_ceiling_below_them() -> None:
    held = Connections(None, 10, 20, 100).adaptive(4)
    assert (held.min, held.start, held.max) == (4, 4, 4)
    held = Connections().adaptive(4000)
    assert (held.min, held.start, held.max) == (1, 20, 4000)


def test_of_quotas_the_smallest_counts_and_none_is_the_largest() -> None:
    def rates(*several: float | None) -> float | None:
        return together([PacingOptions(requests_per_minute=each) for each in several]).requests_per_minute

    assert rates() is None
    assert rates(None, 600.0, 60.0) == 60
    assert rates(0.0, 600.0) == 600
    assert rates(0.0, None) == 0


@pytest.mark.parametrize(
    ("url", "signal"),
    [
        (None, Signal.QUOTA),
        ("https://api.vendor.com/v1", Signal.QUOTA),
        ("https://8.8.8.8/v1", Signal.QUOTA),
        ("http://127.0.0.1:8000/v1", Signal.UNKNOWN),
        ("http://[::1]:8000/v1", Signal.UNKNOWN),
        ("http://10.1.2.3/v1", Signal.UNKNOWN),
        ("http://localhost:8000", Signal.UNKNOWN),
        ("http://gpu-box:8000", Signal.UNKNOWN),
        ("http://gpu.lan:8000", Signal.UNKNOWN),
    ],
)
def test_an_address_tells_a_hosted_api_from_a_server_of_ones_own(url: str | None, signal: Signal) -> None:
    assert signal_of(url) is signal


@pytest.mark.parametrize(("soft", "most"), [(1 << 20, 4000), (1024, 448), (100, 20)])
async def test_pacing_leaves_descriptors_for_others(monkeypatch: pytest.MonkeyPatch, soft: int, most: int) -> None:
    monkeypatch.setattr(actor_module, "descriptors", lambda: Descriptors(soft, soft))
    async with open_runtime() as runtime:
        fake = FakeModel(adaptive=True)
        async with fake.model().held(runtime, ceiling=3000):
            bounds = share_of(runtime)._config.adaptive
            assert bounds is not None
            assert bounds.max == min(3000, most)


async def test_what_is_asked_for_is_taken_back_when_nobody_asks_any_more() -> None:
    fake = FakeModel(adaptive=True, latency=1.0)
    declared = PacingOptions(requests_per_minute=60)
    async with open_runtime() as runtime:
        async with fake.model(GenerateConfig(max_connections=3)).held(runtime, declared):
            share = share_of(runtime)
            async with fake.model(GenerateConfig(max_connections=5)).held(runtime, declared):
                assert share._config.max_connections == 3
                assert share._config.requests_per_minute == 60
                assert share.limiter.limit == 3
            assert share._config.requests_per_minute == 60
        assert share._config.max_connections is None
        assert share._config.requests_per_minute is None
        assert share.limiter.limit == 20


# -- calls ------------------------------------------------------------------------------------------------------------


async def test_a_call_that_is_cancelled_in_the_step_in_which_it_is_granted_counts_for_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeModel(latency=1.0, max_connections=1)
    async with open_runtime() as runtime, anyio.create_task_group() as group:
        model = fake.model()
        second = anyio.CancelScope()

        async def call() -> None:
            with second:
                await model.generate("second")

        group.start_soon(model.generate, "first")
        await anyio.sleep(0.5)
        group.start_soon(call)
        await anyio.sleep(0.1)
        share = share_of(runtime)
        plain = PacerAdmission.poll

        def poll(self: PacerAdmission, now: float, room: int | None) -> Any:
            granted = plain(self, now, room)
            if granted:
                second.cancel()
            return granted

        monkeypatch.setattr(PacerAdmission, "poll", poll)
        await anyio.sleep(1.0)
        assert second.cancelled_caught
        assert fake.calls == 1
        seen = share.admission.pacer.statistics(anyio.current_time())
        assert (seen.in_flight, seen.queued, share.admission._out) == (0, 0, set())


async def test_calls_that_wait_hear_at_once_that_the_model_is_given_up() -> None:
    fake = FakeModel(answer=ModelGivenUp("gone", status=401), latency=1.0, adaptive=True)
    ended: list[float] = []

    async def call() -> None:
        with pytest.raises(ModelGivenUp, match="gone"):
            await fake.model().generate("x")
        ended.append(anyio.current_time())

    async with open_runtime() as runtime:
        async with anyio.create_task_group() as group:
            for _ in range(50):
                group.start_soon(call)
        assert ended == [1.0] * 50
        assert fake.calls == 1
        share = share_of(runtime)
        share.forgive()
        fake.answer = "fine"
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(fake.model().generate, "x")
            await anyio.sleep(0.9)
            assert fake.in_flight == 1, "one request tries it again"
        assert fake.calls == 6


async def test_a_first_call_that_is_cancelled_is_followed_by_another() -> None:
    fake = FakeModel(latency=100.0, adaptive=True)
    async with open_runtime(), anyio.create_task_group() as group:
        model = fake.model()

        async def call(patience: float) -> None:
            with anyio.move_on_after(patience):
                await model.generate("x")

        group.start_soon(call, 1.0)
        await anyio.sleep(0.1)
        group.start_soon(call, 30.0)
        group.start_soon(call, 30.0)
        await anyio.sleep(0.8)
        assert len(fake.times) == 1
        await anyio.sleep(0.2)
        assert len(fake.times) == 2, "the first was cancelled"
        await anyio.sleep(FIRST_ANSWER)
        assert len(fake.times) == 3


async def test_a_call_that_failed_holds_nothing_while_it_waits_and_the_retries_are_counted_by_group() -> None:
    def answer(call: Any) -> Any:
        return TransientModelError("oops", status=503) if call.attempt < 3 else "fine"

    fake = FakeModel(answer=answer, max_connections=1)
    async with open_runtime() as runtime:
        async with anyio.create_task_group() as group:
            group.start_soon(fake.model().generate, "x")
            await anyio.sleep(0.1)
            share = share_of(runtime)
            assert (share.limiter.used, share.limiter.waiting) == (0, 1)
            assert share.next_attempt > anyio.current_time()
            assert "1 to be tried again" in share.limiter.statistics().note
        assert share_of(runtime).retries == {None: 2}


async def test_a_refusal_that_names_concurrency_cuts_the_window() -> None:
    def answer(call: Any) -> Any:
        return RateLimitError("too many concurrent requests", status=429) if fake.in_flight > 5 else "fine"

    fake = FakeModel(answer=answer, latency=1.0, adaptive=True)
    async with open_runtime() as runtime, anyio.create_task_group() as group:
        for number in range(100):
            group.start_soon(fake.model().generate, f"{number}")
        await anyio.sleep(8)
        assert 3 <= share_of(runtime).admission.limit <= 8
        assert share_of(runtime).admission.pacer.statistics(anyio.current_time()).rates == ()


# -- what a response says ---------------------------------------------------------------------------------------------


@pytest.fixture
def noted() -> Iterator[Exchange]:
    made = Exchange()
    token = exchange.set(made)
    yield made
    exchange.reset(token)


QUOTA = {"X-RateLimit-Limit-Requests": "600", "x-ratelimit-remaining-requests": "599", "date": "x"}


@pytest.mark.parametrize("kind", [dict, httpx.Headers])
async def test_headers_reach_the_pacer_whatever_holds_them(noted: Exchange, kind: Any) -> None:
    api = Hosted("m")
    responded(200, kind({"content-type": "application/json"}))
    assert list(noted.readings(api)) == []
    responded(200, kind(QUOTA))
    assert list(noted.readings(api)) == [QuotaReading(Dimension.REQUESTS, 600, 599)]
    assert (noted.status, noted.first_byte) == (200, anyio.current_time())
    more = QuotaReading(Dimension.TOKENS, 10, 5)
    showed([more])
    assert list(noted.readings(api)) == [more, QuotaReading(Dimension.REQUESTS, 600, 599)]
    noted.clear()
    assert list(noted.readings(api)) == []
    assert noted.status is None


async def test_outside_of_a_call_what_a_response_says_is_nobodys() -> None:
    responded(200, QUOTA)
    showed([])
    assert exchange.get() is None


async def test_a_provider_may_read_its_headers_itself() -> None:
    reading = QuotaReading(Dimension.REQUESTS, 120, 100)

    class Own(Hosted):
        def quota_readings(self, headers: Any) -> Any:
            return [reading] if "x-own" in headers else []

    said = Exchange(headers={"x-own": "1", "ratelimit": "x"})
    assert list(said.readings(Own("m"))) == [reading]


def test_the_most_connections_of_a_model_are_those_of_its_bounds_or_its_kind() -> None:
    assert get_model("mock/m").max_connections() == 10
    assert FakeModel(adaptive=True).model().max_connections() == 4000
    assert FakeModel(adaptive=True, signal=Signal.LATENCY).model().max_connections() == 1000
    assert FakeModel(adaptive=True).model(GenerateConfig(adaptive_connections=50)).max_connections() == 50


async def test_pacing_goes_on_when_the_actor_is_restarted() -> None:
    """What was learned and declared stays, and the next incarnation keeps the time."""
    fake = FakeModel(answer="fine", latency=0.1, adaptive=True)
    async with open_runtime() as runtime:
        model = fake.model()
        async with model.held(runtime, PacingOptions(requests_per_minute=60)) as ref:
            share = ref.state.share
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(model.generate, "x")
                await anyio.sleep(3.05)
                life = ref._shell.current
                assert life is not None
                life.finish()
                await anyio.sleep(3)
                assert ref._shell.current is not life
                assert 4 < fake.calls < 9
            assert ref.state.share is share
        assert fake.calls == 10
        assert 8 < anyio.current_time() < 14
