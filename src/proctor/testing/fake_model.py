"""`FakeModel`: a model that answers from a script, behind a real model actor.

What is real: the actor, its limiter, leases, retries, usage, limits. What is played: the provider, in whatever time the
test has. Latency, failures and quotas come from the script or from a `SimulatedProvider`; chance is drawn for each
request from its own text, so that it does not depend on who calls when.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import anyio
from attrs import define, evolve, field, frozen

from proctor.errors import RateLimitError, TransientModelError
from proctor.model import ChatMessage, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from proctor.model.api import ModelAPI, modelapi
from proctor.model.exchange import showed
from proctor.model.pacing import Dimension, Signal
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.testing.faults import FaultPlan
from proctor.testing.provider import Request, SimulatedProvider, Status

CHARACTERS_A_TOKEN = 4
NAMED = {
    Dimension.REQUESTS: "requests per minute",
    Dimension.TOKENS: "tokens per minute",
    Dimension.INPUT_TOKENS: "input tokens per minute",
    Dimension.OUTPUT_TOKENS: "output tokens per minute",
    Dimension.CONCURRENCY: "concurrency",
}


@frozen
class FakeCall:
    """One request as the model sees it.

    Attributes:
        text: of the last message. attempt: how often this very conversation was sent before, from 1.
        chance: of its own.
    """

    input: tuple[ChatMessage, ...]
    text: str
    attempt: int
    chance: Random


Answer = str | ModelOutput | Exception
Script = Answer | Callable[[FakeCall], Answer | Awaitable[Answer]]


@define(eq=False, kw_only=True)
class FakeModel:
    """A scripted model.

    Args:
        name: without the provider, which is ``fake``.
        answer: a text, an output, an exception that is raised, or a function of the call, async or not.
        latency: seconds that an answer takes, or a function of the call.
        usage: of every answer; default counted from the texts.
        provider: refuses, fails and answers late as it says; instead of `latency`.
        faults: raises what is planned under ``model``.
        max_connections: what a real provider's class says when nobody asks for a number.
        adaptive: pacing adapts the number instead. signal: what tells it that the provider is at its limit.

    Attributes:
        calls: made so far. in_flight, peak: at once, as the provider sees it. times: when each call came in.
    """

    name: str = "model"
    answer: Script = "fake answer"
    latency: float | Callable[[FakeCall], float] = 0.0
    usage: ModelUsage | None = None
    provider: SimulatedProvider | None = None
    faults: FaultPlan = field(factory=FaultPlan)
    max_connections: int = 10
    adaptive: bool = False
    signal: Signal = Signal.QUOTA
    calls: int = field(default=0, init=False)
    in_flight: int = field(default=0, init=False)
    peak: int = field(default=0, init=False)
    times: list[float] = field(factory=list, init=False)
    _sent: Counter[tuple[str, ...]] = field(factory=Counter, init=False)

    def model(self, config: GenerateConfig | None = None) -> Model:
        """The model, to be evaluated or called."""
        return get_model(f"fake/{self.name}", config=config, memoize=False, script=self)

    async def play(self, messages: list[ChatMessage]) -> ModelOutput:
        """One attempt at a call."""
        texts = tuple(message.text for message in messages)
        self._sent[texts] += 1
        attempt = self._sent[texts]
        call = FakeCall(tuple(messages), texts[-1], attempt, Random(f"{attempt} {texts}"))
        self.calls += 1
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        self.times.append(anyio.current_time())
        try:
            self.faults.hit("model")
            return await self._answer(call)
        finally:
            self.in_flight -= 1

    async def _answer(self, call: FakeCall) -> ModelOutput:
        if self.provider is None:
            await anyio.sleep(self.latency(call) if callable(self.latency) else self.latency)
            return await self._output(call)
        output = await self._output(call)
        await self._provided(self.provider, call, output)
        return output

    async def _output(self, call: FakeCall) -> ModelOutput:
        said: Any = self.answer(call) if callable(self.answer) else self.answer
        if inspect.isawaitable(said):
            said = await said
        if isinstance(said, Exception):
            raise said
        if isinstance(said, ModelOutput):
            choices = [evolve(choice, message=evolve(choice.message)) for choice in said.choices]
            output = evolve(said, choices=choices)
        else:
            output = ModelOutput.from_content(self.name, said)
        output.usage = evolve(output.usage or self.usage or _counted(call, output))
        return output

    async def _provided(self, provider: SimulatedProvider, call: FakeCall, output: ModelOutput) -> None:
        usage = output.usage or ModelUsage()
        request = Request(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            slowness=call.chance.gauss(0, 1),
            luck=call.chance.random(),
        )
        await anyio.sleep(provider.travel())
        answer = provider.arrive(request, anyio.current_time())
        try:
            await anyio.sleep(answer.duration)
        finally:
            provider.leave(answer, anyio.current_time())
        await anyio.sleep(provider.travel())
        showed(answer.quota)
        if answer.status is Status.LIMITED:
            named = "" if answer.dimension is None else f": {NAMED[answer.dimension]}"
            said = f"the fake provider is asked too often{named}"
            raise RateLimitError(said, status=429, retry_after=answer.retry_after)
        if answer.status is not Status.OK:
            raise TransientModelError("the fake provider fails", status=503)


def _counted(call: FakeCall, output: ModelOutput) -> ModelUsage:
    given = -(-sum(len(message.text) for message in call.input) // CHARACTERS_A_TOKEN)
    made = -(-len(output.completion) // CHARACTERS_A_TOKEN)
    return ModelUsage(input_tokens=given, output_tokens=made, total_tokens=given + made)


@modelapi("fake")
class FakeAPI(ModelAPI):
    """The provider ``fake``: it asks the script that it was made with."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        *,
        script: FakeModel,
    ) -> None:
        super().__init__(model_name, base_url, api_key, (), config)
        self.script = script
        self.adaptive, self.signal = script.adaptive, script.signal

    def max_connections(self) -> int:
        """As the script says."""
        return self.script.max_connections

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """One attempt."""
        return await self.script.play(input)
