"""One call of `Model.generate`: from the messages to the output, with what the log and the sample are told of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal

import anyio
from attrs import define, field

from proctor.actors import Ref
from proctor.errors import LimitExceededError, ModelError, UsageError
from proctor.log.events import ModelEvent
from proctor.log.transcript import transcript
from proctor.model.actor import ModelState
from proctor.model.config import GenerateConfig, public_config
from proctor.model.connections import asked as asked_connections
from proctor.model.cost import check_priced, price_of
from proctor.model.exchange import Exchange, exchange
from proctor.model.failures import Kind, classify, scrub
from proctor.model.messages import ChatMessage, ChatMessageSystem, ChatMessageTool, ChatMessageUser
from proctor.model.output import ModelCall, ModelOutput, ModelRequestId
from proctor.model.retry import NoMarks, Retries, RetryPolicy
from proctor.model.source import Source
from proctor.model.toolcall import ToolChoice, ToolFunction, ToolInfo
from proctor.model.turn import turn_of
from proctor.runtime import Runtime, SampleContext, current_sample
from proctor.runtime.blocks import check_call, record_call
from proctor.runtime.clock import utc_now
from proctor.tool.definition import ToolDef, ToolSource, check_names, resolved_tools, tool_def
from proctor.tool.execution import call_view

REQUEST_ID_HEADERS: Final = ("x-request-id", "request-id", "apim-request-id", "x-amzn-requestid")
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
        cached: what the call has to do with the cache of answers.
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
    cached: Literal["read", "write"] | None = None
    defined: Mapping[str, ToolDef] = field(factory=dict)
    _said: Exchange = field(factory=Exchange, init=False)
    _request_ids: list[ModelRequestId] = field(factory=list, init=False)

    async def run(self) -> ModelOutput:
        check_priced(self.source.name, reported=self.source.described.reports_cost)
        check_call()
        sample = current_sample()
        order = None
        if sample is not None:
            order = sample.order()
            sample.calls += 1
        config, api = self.config, self.source.described
        await self.ref.started()
        share = self.ref.state.share
        retries = Retries(
            model=self.source.name,
            policy=RetryPolicy.of(config),
            attempt=self._attempt,
            turn=turn_of(
                share,
                self.runtime,
                sample,
                order=order,
                messages=self.messages,
                max_tokens=config.max_tokens or api.max_tokens(),
                exchange=self._said,
            ),
            judge=self._judge,
            health=share,
            marks=NoMarks() if sample is None else sample.working,
        )
        began = anyio.current_time()
        event = self._event()
        into = transcript()
        into.add(event)
        token = exchange.set(self._said)
        try:
            with share.asked(asked_connections(config, api)):
                output = await retries.run()
        except BaseException as error:
            scrub(error, api.secrets())
            if isinstance(error, LimitExceededError):
                error.output = None  # what a provider was answered by another model is no answer of this call
            self._close(event, retries, error)
            into.updated(event)
            raise
        finally:
            exchange.reset(token)
        now = anyio.current_time()
        output.time = now - began
        event.working_time = now - retries.sent_at
        for choice in output.choices:
            # Within a sample ids of its own, which cost less than new ones.
            choice.message.id = choice.message.id or (into.make_id() if into.keep else self.runtime.new_id())
            for asked in choice.message.tool_calls or ():
                asked.view = asked.view or call_view(asked, self.defined.get(asked.function))
        event.output = output
        self._close(event, retries, None)
        self._spent(output, sample)
        into.updated(event)
        record_call(output.usage, output)
        if config.fail_on_refusal and any(choice.stop_reason == "content_filter" for choice in output.choices):
            said = output.error or output.completion or "the request was refused"
            raise ModelError(f"{self.source.name} refused (fail_on_refusal): {said}")
        return output

    def recalled(self, output: ModelOutput) -> ModelOutput:
        """Take an answer from the cache for the call's: it is logged and counts as a turn, and has used nothing."""
        check_call()
        if (sample := current_sample()) is not None:
            sample.calls += 1
        self.cached = "read"
        event, into = self._event(), transcript()
        into.add(event)
        output.time = 0.0
        for choice in output.choices:
            choice.message.id = into.make_id() if into.keep else self.runtime.new_id()
        event.output, event.completed = output, utc_now()
        into.updated(event)
        record_call(None, output)
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
        self._said.clear()
        api = self.ref.state.client(self.source)
        try:
            result = await api.generate(self.messages, self.tools, self.tool_choice, self.config)
        finally:
            self._note_request()
        output, self.call = result if isinstance(result, tuple) else (result, None)
        if isinstance(output, Exception):
            raise output
        if not isinstance(output, ModelOutput):
            raise ModelError(f"{self.source.name}: the provider returned {type(output).__name__}, not a ModelOutput")
        return output

    def _note_request(self) -> None:
        """Keep the vendor's id of a request, by which it can find it again."""
        said = self._said
        for name in REQUEST_ID_HEADERS if said.status is not None else ():
            if (identity := said.headers.get(name)) is not None:
                self._request_ids.append(ModelRequestId(id=identity, header=name, status=said.status or 0))
                return

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
            cache=self.cached,
        )

    def _close(self, event: ModelEvent, retries: Retries[Any], error: BaseException | None) -> None:
        event.completed = utc_now()
        event.request_ids = self._request_ids or None
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


def played_back(messages: list[ChatMessage], tools: Mapping[str, ToolDef]) -> list[ChatMessage]:
    """The messages with the results of tools as those tools want them shown to the model (`model_input`)."""
    changed = {name: tool.model_input for name, tool in tools.items() if tool.model_input is not None}
    if not changed:
        return messages
    total = Counter(each.function for each in messages if isinstance(each, ChatMessageTool))
    seen: Counter[str | None] = Counter()
    shown: list[ChatMessage] = []
    for message in messages:
        if isinstance(message, ChatMessageTool) and (present := changed.get(message.function or "")) is not None:
            name = message.function
            content = present(seen[name], total[name], message.content)
            shown.append(message.model_copy(update={"content": content}))
            seen[name] += 1
        else:
            shown.append(message)
    return shown


async def offered_tools(tools: Sequence[Any] | ToolSource, choice: ToolChoice | None) -> list[ToolInfo | ToolDef]:
    """The tools of a call, checked. A choice that names one leaves the others out.

    Raises:
        UsageError: something is no tool, lacks a description, or two have the same name.
    """
    if choice == "none" or not tools:
        return []
    offered: list[ToolInfo | ToolDef] = []
    for tool in await resolved_tools(tools):
        if isinstance(tool, ToolInfo):
            offered.append(tool)
        else:
            definition = tool_def(tool)
            definition.check()
            offered.append(definition)
    check_names([each.name for each in offered])
    if isinstance(choice, ToolFunction):
        named = [each for each in offered if each.name == choice.name]
        if not named:
            listed = ", ".join(each.name for each in offered)
            raise UsageError(f"tool_choice names the tool {choice.name!r}, which is not offered; offered: {listed}")
        return named
    return offered


def chosen(choice: ToolChoice | None, tools: Sequence[object]) -> ToolChoice:
    if not tools:
        return "none"
    return "auto" if choice is None else choice
