"""``mock/<anything>``: a model without a network, for tests. ``mockllm`` is the same under Inspect's name."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

import anyio
import anyio.lowlevel
from attrs import evolve

from proctor.errors import UsageError
from proctor.model.api import ModelAPI
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput, ModelUsage
from proctor.model.toolcall import ToolChoice, ToolInfo

Scripted = ModelOutput | str | Exception
Answer = Callable[[list[ChatMessage], list[ToolInfo], ToolChoice, GenerateConfig], Scripted | Awaitable[Scripted]]

DEFAULT_OUTPUT: Final = "Default output from mock"
CHARACTERS_A_TOKEN: Final = 4


class MockAPI(ModelAPI):
    """A scripted model.

    Args:
        custom_outputs: the outputs one after another (an exception is raised), or a function of (input, tools,
            tool_choice, config), async or not; texts stand for outputs. Default the same text for ever.
        latency: seconds that an answer takes.
        model_args: accepted and ignored, so that a task's arguments for another provider can stay.
    """

    adaptive = False

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        custom_outputs: Iterable[Scripted] | Answer | Scripted | None = None,
        latency: float | str = 0.0,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, (), config)
        self.model_args = model_args
        self.latency = _seconds(latency)
        self._answer: Answer | None = None
        self._outputs: Iterator[Scripted] | None = None
        if custom_outputs is None:
            return
        if isinstance(custom_outputs, str | ModelOutput | Exception):
            custom_outputs = [custom_outputs]
        if callable(custom_outputs):
            self._answer = custom_outputs
        elif isinstance(custom_outputs, Iterable):
            self._outputs = iter(custom_outputs)
        else:
            raise UsageError(f"custom_outputs must be outputs or a function that makes them, not {custom_outputs!r}")

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        """The next scripted output, after the latency."""
        if self.latency:
            await anyio.sleep(self.latency)
        else:
            await anyio.lowlevel.checkpoint()
        scripted = await self._next(input, tools, tool_choice, config)
        if isinstance(scripted, Exception):
            raise scripted
        output = (
            _copy(scripted) if isinstance(scripted, ModelOutput) else ModelOutput.from_content(self._shown, scripted)
        )
        if output.usage is None:
            output.usage = _usage(input, output)
        request = {"model": self.model_name, "messages": [{"role": m.role, "content": m.text} for m in input]}
        return output, ModelCall(request=request, response={"content": output.completion})

    async def _next(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> Scripted:
        if self._answer is not None:
            answer = self._answer(input, tools, tool_choice, config)
            scripted = await answer if inspect.isawaitable(answer) else answer
        elif self._outputs is not None:
            try:
                scripted = next(self._outputs)
            except StopIteration:
                raise UsageError("custom_outputs ran out of outputs: the model was called more often") from None
        else:
            return f"{DEFAULT_OUTPUT}llm/model" if self.provider == "mockllm" else DEFAULT_OUTPUT
        if not isinstance(scripted, ModelOutput | str | Exception):
            raise UsageError(f"custom_outputs gave {scripted!r}; a ModelOutput or a text is needed")
        return scripted

    @property
    def _shown(self) -> str:
        return self.provider or "mock"


def _seconds(value: float | str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise UsageError(f"latency must be a number of seconds, at least 0, not {value!r}")
    return seconds


def _copy(output: ModelOutput) -> ModelOutput:
    """An output of its own for each call: one script may be played many times, and outputs are changed by calls."""
    choices = [evolve(choice, message=evolve(choice.message)) for choice in output.choices]
    return evolve(output, choices=choices)


def _usage(input: list[ChatMessage], output: ModelOutput) -> ModelUsage:
    given = -(-sum(len(message.text) for message in input) // CHARACTERS_A_TOKEN)
    made = -(-len(output.completion) // CHARACTERS_A_TOKEN)
    return ModelUsage(input_tokens=given, output_tokens=made, total_tokens=given + made)
