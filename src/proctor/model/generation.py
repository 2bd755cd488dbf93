"""One call of `Model.generate`: from the messages to the output, with what the log and the sample are told of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import anyio
from attrs import define

from proctor.actors import Ref
from proctor.errors import LimitExceededError, ModelError, UsageError
from proctor.log.events import ModelEvent
from proctor.log.transcript import transcript
from proctor.model.actor import ModelState, connection
from proctor.model.config import GenerateConfig, asked_limit, public_config
from proctor.model.cost import check_priced, price_of
from proctor.model.failures import Kind, classify, scrub
from proctor.model.messages import ChatMessage, ChatMessageSystem, ChatMessageUser
from proctor.model.output import ModelCall, ModelOutput
from proctor.model.retry import NoMarks, Retries, RetryPolicy
from proctor.model.source import Source
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime import Runtime, SampleContext, current_sample
from proctor.runtime.blocks import check_call, record_call
from proctor.runtime.clock import utc_now

_log_calls: Final[ContextVar[bool]] = ContextVar("proctor_log_model_api", default=False)


@contextmanager
def log_model_api(wanted: bool) -> Iterator[None]:
    """Whether the raw request and response of successful calls go into the log (those of failed ones always do)."""
    token = _log_calls.set(wanted)
    try:
        yield
    finally:
        _log_calls.reset(token)


@define(eq=False)
class Generation:
    """One call.

    Attributes:
        role: what the model is called as. call: the raw call of the last attempt, where the provider gives one.
    """

    source: Source
    role: str | None
    runtime: Runtime
    ref: Ref[ModelState]
    messages: list[ChatMessage]
    tools: list[ToolInfo]
    tool_choice: ToolChoice
    config: GenerateConfig
    call: ModelCall | None = None

    async def run(self) -> ModelOutput:
        check_priced(self.source.name, reported=self.source.described.reports_cost)
        check_call()
        sample = current_sample()
        order = None
        if sample is not None:
            order = sample.order()
            sample.calls += 1
        source = self.source
        await self.ref.started()
        share = self.ref.state.share
        retries = Retries(
            model=self.source.name,
            policy=RetryPolicy.of(self.config),
            attempt=self._attempt,
            lease=connection(share, sample, order, composite=source.described.composite),
            judge=self._judge,
            health=share,
            chance=self.runtime.random,
            marks=NoMarks() if sample is None else sample.working,
        )
        began = anyio.current_time()
        event = self._event()
        into = transcript()
        into.add(event)
        try:
            with share.asked(asked_limit(self.config, share.default)):
                output = await retries.run()
        except BaseException as error:
            scrub(error, self.source.described.secrets())
            if isinstance(error, LimitExceededError):
                error.output = None  # what a provider was answered by another model is no answer of this call
            self._close(event, retries, error)
            into.updated(event)
            raise
        now = anyio.current_time()
        output.time = now - began
        event.working_time = now - retries.sent_at
        for choice in output.choices:
            choice.message.id = choice.message.id or self.runtime.new_id()
        event.output = output
        self._close(event, retries, None)
        self._spent(output, sample)
        into.updated(event)
        record_call(output.usage, output)
        return output

    def _spent(self, output: ModelOutput, sample: SampleContext | None) -> None:
        usage = output.usage
        if usage is None:
            return
        if usage.total_cost is None and (price := price_of(self.source.name)) is not None:
            usage.total_cost = price.of(usage)
        if sample is not None:
            sample.record_usage(self.source.name, self.role, usage)

    async def _attempt(self) -> ModelOutput:
        await self.ref.started()
        check_call()  # another branch may have met a limit while this call waited
        api = self.ref.state.client(self.source)
        result = await api.generate(self.messages, self.tools, self.tool_choice, self.config)
        output, self.call = result if isinstance(result, tuple) else (result, None)
        if isinstance(output, Exception):
            raise output
        if not isinstance(output, ModelOutput):
            raise ModelError(f"{self.source.name}: the provider returned {type(output).__name__}, not a ModelOutput")
        return output

    def _judge(self, error: Exception) -> Kind:
        return classify(error, self.source.described)

    def _event(self) -> ModelEvent:
        return ModelEvent(
            model=self.source.name,
            role=self.role,
            input=list(self.messages),
            tools=self.tools,
            tool_choice=self.tool_choice,
            config=public_config(self.config),
            output=ModelOutput(model=self.source.model_name),
            pending=True,
        )

    def _close(self, event: ModelEvent, retries: Retries[Any], error: BaseException | None) -> None:
        event.completed = utc_now()
        event.retries = retries.failed if error is None else max(0, retries.failed - 1)
        if error is not None:
            event.error = (str(error) or type(error).__name__) if isinstance(error, Exception) else "cancelled"
        if self.call is not None and (error is not None or _log_calls.get()):
            event.call = self.call


def input_messages(input: str | list[ChatMessage], config: GenerateConfig, runtime: Runtime) -> list[ChatMessage]:
    messages: list[ChatMessage]
    if isinstance(input, str):
        messages = [ChatMessageUser(id=runtime.new_id(), content=input, source="input")]
    else:
        messages = list(input)
    if config.system_message:
        messages.insert(0, ChatMessageSystem(id=runtime.new_id(), content=config.system_message))
    if not messages:
        raise UsageError("a model needs at least one message as its input")
    return messages


def offered_tools(tools: Sequence[Any], choice: ToolChoice | None) -> list[ToolInfo]:
    if choice == "none":
        return []
    offered = []
    for tool in tools:
        if not isinstance(tool, ToolInfo):
            raise UsageError(f"tools must be ToolInfo (name, description, parameters), not {tool!r}")
        offered.append(tool)
    return offered


def chosen(choice: ToolChoice | None, tools: list[ToolInfo]) -> ToolChoice:
    if not tools:
        return "none"
    return "auto" if choice is None else choice
