"""Run the tool calls of a model's message.

Calls of tools that allow it (`parallel`) run at once with the parallel calls next to them; any other call is run by
itself, after those before it and before those after it, so that the order a model asked for holds where it matters.
Results keep the order of the calls. A call that is run by itself runs in the caller's own task.

What a tool may tell the model of becomes the error of its message; any other exception cancels the calls beside it,
waits for them, and ends the sample.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import anyio
from attrs import define, field

from proctor.errors import ToolParsingError, UsageError
from proctor.log.events import ToolEvent
from proctor.log.transcript import Transcript, span, transcript
from proctor.model.messages import ChatMessage, ChatMessageAssistant, ChatMessageTool
from proctor.model.output import ModelOutput
from proctor.model.toolcall import ToolCall, ToolCallContent, ToolCallError
from proctor.runtime.clock import utc_now
from proctor.tool.arguments import check_arguments
from proctor.tool.definition import ToolDef, ToolSource, tool_defs
from proctor.tool.outcome import as_content, error_for_model
from proctor.tool.signature import MISSING

logger: Final = logging.getLogger(__name__)


class ExecuteToolsResult(NamedTuple):
    """What running tools came to.

    Attributes:
        messages: to be added to the conversation: one for each call, and those of agents it was handed to.
        output: the last output of a model, where an agent has taken over the conversation.
    """

    messages: list[ChatMessage]
    output: ModelOutput | None = None


async def execute_tools(
    messages: list[ChatMessage],
    tools: Sequence[Any] | ToolSource,
    max_output: int | None = None,
    approval: Any = None,
    review: Any = None,
) -> ExecuteToolsResult:
    """Run the tools that the last message asks for.

    Args:
        messages: the conversation; nothing is done unless its last message is a model's with tool calls.
        tools: tools, `ToolDef`, or sources of tools. max_output: bytes of a result before its middle is cut out; 0 for
            any number, None for `max_tool_output` of the evaluation (16 KiB). A tool's own goes before it.
        approval, review: refused: nothing here would ask them.

    Returns:
        The messages to add, in the order of the calls.

    Raises:
        UsageError: something is no tool, or approval or review policies are given.
        LimitExceededError: of a limit that holds around this call.
        Exception: what a tool raised that is not for the model.
    """
    if approval or review:
        raise UsageError("execute_tools: there are no approval or review policies here; check calls inside the tools")
    message = messages[-1] if messages else None
    if not isinstance(message, ChatMessageAssistant) or not message.tool_calls:
        return ExecuteToolsResult([])
    known = {definition.name: definition for definition in await tool_defs(tools)}
    calls = [
        _Call(call, known.get(call.function), known, messages, max_output, transcript()) for call in message.tool_calls
    ]
    for stage in _stages(calls):
        await _run(stage)
    answered: list[ChatMessage] = []
    output: ModelOutput | None = None
    for call in calls:
        answered.extend(call.messages)
        output = call.output or output
    return ExecuteToolsResult(answered, output)


async def call_tools(
    message: ChatMessageAssistant, tools: Sequence[Any] | ToolSource, max_output: int | None = None
) -> list[ChatMessageTool]:
    """Run the tools that a message asks for; `execute_tools` is the same for a conversation.

    Args:
        max_output: as of `execute_tools`.
    """
    made, _ = await execute_tools([message], tools, max_output)
    return [each for each in made if isinstance(each, ChatMessageTool)]


@define(eq=False)
class _Call:
    """One call on its way from the model's message to the tool's."""

    call: ToolCall
    tool: ToolDef | None
    known: dict[str, ToolDef]
    conversation: list[ChatMessage]
    max_output: int | None
    into: Transcript
    event: ToolEvent | None = field(default=None, init=False)
    began: float = field(default=0.0, init=False)
    messages: list[ChatMessage] = field(factory=list, init=False)
    output: ModelOutput | None = field(default=None, init=False)

    @property
    def parallel(self) -> bool:
        return self.tool is not None and self.tool.parallel

    async def run(self) -> None:
        """Run the tool. What is not for the model is raised, after it was noted in the event."""
        self._begin()
        result: Any = ""
        error: ToolCallError | None = None
        try:
            result = await self._result()
        except BaseException as raised:
            told = error_for_model(raised)
            if told is None:
                self._failed(raised)
                raise
            error, result = told
        self._answer(result, error)

    async def _result(self) -> Any:
        call, tool = self.call, self.tool
        hand_over = None if tool is None else getattr(tool.tool, "hand_over", None)
        if hand_over is not None:
            return await self._handed_over(hand_over)
        async with span(call.function, type="tool"):
            self._record()
            if call.parse_error:
                raise ToolParsingError(call.parse_error)
            if tool is None:
                listed = ", ".join(self.known) or "none"
                raise ToolParsingError(f"There is no tool {call.function!r}; known: {listed}.")
            return await tool.tool(**bound_arguments(tool, call.arguments))

    async def _handed_over(self, hand_over: Any) -> Any:
        """The conversation goes to an agent, whose messages follow the tool's."""
        assert self.tool is not None
        async with span(self.call.function, type="handoff"), span(self.call.function, type="tool"):
            self._record()
            if self.call.parse_error:
                raise ToolParsingError(self.call.parse_error)
            check_arguments(self.call.arguments, self.tool.parameters)
            handed = await hand_over(self.call, self.conversation)
            self.messages, self.output = handed.messages, handed.output
            if self.event is not None:
                self.event.agent = handed.agent
            return handed.result

    def _begin(self) -> None:
        self.began = self.into.working()
        self.event = ToolEvent(
            id=self.call.id,
            function=self.call.function,
            arguments=self.call.arguments,
            view=self.call.view or call_view(self.call, self.tool),
            pending=True,
        )

    def _record(self) -> None:
        assert self.event is not None
        self.into.add(self.event)

    def _answer(self, result: Any, error: ToolCallError | None) -> None:
        limit = self.tool.max_output if self.tool is not None and self.tool.max_output is not None else self.max_output
        content, truncated = as_content(result, self.call.function, limit)
        message = ChatMessageTool(
            id=_new_id(self.into),
            content=content,
            tool_call_id=self.call.id,
            function=self.call.function,
            error=error,
        )
        self.messages = [message, *self.messages]
        self._close(content, error, truncated=truncated, message_id=message.id)

    def _failed(self, raised: BaseException) -> None:
        error = None
        if not isinstance(raised, Exception | BaseExceptionGroup):
            error = ToolCallError("cancelled", "The call was cancelled before it ended.")
        self._close("", error, failed=True)

    def _close(
        self,
        content: str | list[Any],
        error: ToolCallError | None,
        *,
        truncated: tuple[int, int] | None = None,
        message_id: str | None = None,
        failed: bool | None = None,
    ) -> None:
        event = self.event
        assert event is not None
        event.result, event.error, event.truncated = content, error, truncated
        event.message_id, event.failed = message_id, failed
        event.completed = utc_now()
        event.working_time = self.into.working() - self.began
        self.into.updated(event)


def bound_arguments(tool: ToolDef, arguments: dict[str, Any]) -> dict[str, Any]:
    """A model's arguments as those of the tool's function.

    Raises:
        ToolParsingError: they do not fit.
    """
    check_arguments(arguments, tool.parameters)
    bound: dict[str, Any] = {}
    named = set()
    for parameter in tool.bound():
        name = parameter.name
        if parameter.rest:
            bound.update({key: parameter.convert(value) for key, value in arguments.items() if key not in named})
            continue
        named.add(name)
        if name in arguments:
            bound[name] = _converted(name, parameter.convert, arguments[name])
        elif parameter.default is not MISSING:
            bound[name] = parameter.default
        else:
            raise ToolParsingError(f"{name!r} is required and missing")
    return bound


def _converted(name: str, convert: Any, value: Any) -> Any:
    try:
        return convert(value)
    except ToolParsingError as error:
        raise ToolParsingError(f"{name}: {error.message}") from None


def call_view(call: ToolCall, tool: ToolDef | None) -> ToolCallContent | None:
    """How the tool's own viewer shows a call; None when it has none, or when that fails."""
    if tool is None or tool.viewer is None:
        return None
    try:
        return tool.viewer(call).call
    except Exception as error:
        logger.warning("the viewer of the tool %r failed, its call is shown plainly: %r", call.function, error)
        return None


def _stages(calls: Sequence[_Call]) -> Iterator[list[_Call]]:
    """Runs of neighbours that may run at once."""
    stage: list[_Call] = []
    for call in calls:
        if stage and not (call.parallel and stage[-1].parallel):
            yield stage
            stage = []
        stage.append(call)
    if stage:
        yield stage


async def _run(stage: Sequence[_Call]) -> None:
    """Run the calls of a stage at once.

    Raises:
        Exception: the first that was not for the model; a note tells of others that failed before they were stopped.
    """
    if len(stage) == 1:
        await stage[0].run()
        return
    errors: list[Exception] = []

    async def run(call: _Call) -> None:
        try:
            await call.run()
        except Exception as error:
            errors.append(error)
            nursery.cancel_scope.cancel()

    async with anyio.create_task_group() as nursery:
        for call in stage:
            nursery.start_soon(run, call)
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"another tool call beside it failed too: {type(other).__name__}: {other}")
        raise errors[0]


def _new_id(into: Transcript) -> str:
    if into.keep:
        return into.make_id()  # of the sample, and cheaper than a new one
    from proctor.runtime.runtime import new_id

    return new_id()
