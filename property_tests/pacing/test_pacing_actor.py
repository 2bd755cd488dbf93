"""A model actor under random cancellation: whatever ends a call, wherever it is, leaves nothing behind."""

from __future__ import annotations

from random import Random
from typing import Any

import anyio
import pytest
from attrs import evolve, frozen
from hypothesis import given
from hypothesis import strategies as st

from proctor.errors import ModelError
from proctor.model import GenerateConfig
from proctor.model.actor import ModelShare, shares
from proctor.model.pacing import Dimension, Signal
from proctor.runtime import SampleContext, open_runtime
from proctor.testing import BACKENDS, FakeModel, run_virtual
from proctor.testing.provider import ProviderTraits, Quota, RetryAfter, SimulatedProvider

SECONDS = st.sampled_from([0.0, 0.001, 0.05, 0.3, 0.9, 1.0, 2.5, 7.0, 30.0])


@frozen
class PlannedCall:
    """A call: when it begins, how long until it is cancelled (None: never), whose it is."""

    begins: float
    cancelled: float | None
    group: int


calls = st.lists(
    st.builds(PlannedCall, SECONDS, st.one_of(st.none(), SECONDS, SECONDS), st.integers(0, 2)), min_size=1, max_size=25
)
quotas = st.lists(
    st.sampled_from(
        [
            Quota(dimension=Dimension.REQUESTS, per_minute=120, burst=2),
            Quota(dimension=Dimension.TOKENS, per_minute=2000, burst=5),
            Quota(dimension=Dimension.REQUESTS, per_minute=30, fixed=True),
        ]
    ),
    max_size=2,
    unique_by=lambda quota: quota.dimension,
)
providers = st.builds(
    ProviderTraits,
    quotas=quotas.map(tuple),
    concurrency=st.sampled_from([None, None, 1, 3]),
    faults=st.sampled_from([0.0, 0.3]),
    hangs=st.sampled_from([0.0, 0.1]),
    hang=st.just(20.0),
    retry_after=st.sampled_from([RetryAfter.ABSENT, RetryAfter.WHOLE, RetryAfter.FRACTION, 89.0, -5.0]),
    headers=st.booleans(),
    at_completion=st.booleans(),
    names_dimension=st.booleans(),
)
configs = st.sampled_from(
    [
        {},
        {"max_connections": 3},
        {"adaptive_connections": "1-5"},
        {"max_retries": 1},
        {"attempt_timeout": 1, "max_retries": 2},
        {"timeout": 5},
    ]
)


def at_rest(share: ModelShare) -> None:
    admission, seen = share.admission, share.admission.pacer.statistics(anyio.current_time())
    assert (share.limiter.used, share.limiter.waiting) == (0, 0)
    assert (seen.in_flight, seen.queued, seen.delayed) == (0, 0, 0)
    assert seen.outstanding == pytest.approx(0, abs=1e-6)
    assert not seen.groups
    assert (admission._waiting, admission._out, admission.expected) == (0, set(), {})
    assert not admission.pacer._tickets
    assert share.limiter._items == {}
    assert not share._asked


async def play(planned: list[PlannedCall], fake: FakeModel, config: dict[str, Any]) -> None:
    model, answered = fake.model(GenerateConfig(**config)), 0
    async with open_runtime() as runtime:

        async def call(number: int, plan: PlannedCall) -> None:
            nonlocal answered
            await anyio.sleep(plan.begins)
            deadline = anyio.current_time() + (float("inf") if plan.cancelled is None else plan.cancelled)
            with anyio.CancelScope(deadline=deadline), SampleContext(group=plan.group, admission=number):
                try:
                    output = await model.generate(f"call {number}")
                except ModelError:
                    assert config, "without a limit of attempts a call goes on until it is answered"
                else:
                    assert output.completion == f"call {number}"
                    answered += 1
                return
            assert plan.cancelled is not None

        async with anyio.create_task_group() as group:
            for number, plan in enumerate(planned):
                group.start_soon(call, number, plan)
        assert fake.in_flight == 0
        for share in shares(runtime):
            at_rest(share)
        fake.provider = None
        await model.generate("one more")  # nobody keeps the others from it
        for share in shares(runtime):
            at_rest(share)


crowds = st.lists(
    st.builds(
        PlannedCall,
        st.sampled_from([0.0, 0.5, 1.0]),
        st.one_of(st.none(), st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])),
        st.integers(0, 2),
    ),
    min_size=2,
    max_size=12,
)


@pytest.mark.parametrize("backend", BACKENDS)
@given(planned=crowds, room=st.integers(1, 2), latency=st.sampled_from([0.5, 1.0]))
def test_a_call_that_is_cancelled_in_the_moment_of_its_grant_leaves_nothing(
    backend: str, planned: list[PlannedCall], room: int, latency: float
) -> None:
    """All times are multiples of half a second, so that grants and cancellations meet."""
    fake = FakeModel(answer=lambda call: call.text, latency=latency, max_connections=room)
    run_virtual(backend, play, planned, fake, {})


@pytest.mark.parametrize("backend", BACKENDS)
@given(planned=calls, traits=providers, config=configs, adaptive=st.booleans(), signal=st.sampled_from(Signal))
def test_a_call_that_is_cancelled_anywhere_leaves_nothing(
    backend: str,
    planned: list[PlannedCall],
    traits: ProviderTraits,
    config: dict[str, Any],
    adaptive: bool,
    signal: Signal,
) -> None:
    provider = SimulatedProvider(evolve(traits, per_token=0.001), Random(1))
    fake = FakeModel(
        provider=provider, answer=lambda call: call.text, adaptive=adaptive, signal=signal, max_connections=4
    )
    run_virtual(backend, play, planned, fake, config)
