"""Running a message's tool calls: order, errors, sizes, arguments, events, cancellation."""

from __future__ import annotations

import enum
from datetime import date
from typing import Any, Literal, TypedDict

import anyio
import attrs
import pydantic
import pytest

from proctor.errors import LimitExceededError, OutputLimitExceededError, SandboxUnavailableError, UsageError
from proctor.log.events import InfoEvent, SpanBeginEvent, ToolEvent
from proctor.log.transcript import Transcript, init_transcript, transcript
from proctor.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    ChatMessageUser,
    ContentImage,
    ContentText,
    UrlCitation,
    call_tools,
    execute_tools,
)
from proctor.model.toolcall import ToolCall, ToolCallContent, ToolCallView
from proctor.tool import Tool, ToolApprovalError, ToolDef, ToolError, ToolParsingError, tool
from proctor.tool.outcome import use_max_tool_output
from proctor.util import message_limit, time_limit, token_limit


def asking(*calls: tuple[str, dict[str, Any]]) -> ChatMessageAssistant:
    return ChatMessageAssistant(
        content="", tool_calls=[ToolCall(f"call-{n}", name, arguments) for n, (name, arguments) in enumerate(calls)]
    )


async def run(definitions: list[Any], *calls: tuple[str, dict[str, Any]], **options: Any) -> list[ChatMessageTool]:
    made, output = await execute_tools([asking(*calls)], definitions, **options)
    assert output is None
    assert all(isinstance(message, ChatMessageTool) for message in made)
    return made  # type: ignore[return-value]


def raising(error: BaseException) -> ToolDef:
    async def fail() -> str:
        """Fail."""
        raise error

    return ToolDef(fail)


def returning(value: Any, **options: Any) -> ToolDef:
    async def give() -> Any:
        """Give."""
        return value

    return ToolDef(give, **options)


class Diary:
    """Tools `work` and `solo` that take their time, and what happened when."""

    def __init__(self, *, parallel: bool = True) -> None:
        self.entries: list[tuple[str, str, float]] = []

        async def work(name: str, seconds: float, fails: bool = False) -> str:
            """Work.

            Args:
                name: Who.
                seconds: How long.
                fails: Whether it breaks.
            """
            self.note("begin", name)
            try:
                await anyio.sleep(seconds)
            finally:
                self.note("end", name)
            if fails:
                raise RuntimeError(f"{name} broke")
            return f"{name} done"

        self.tools = [ToolDef(work, parallel=parallel), ToolDef(work, name="solo")]

    def note(self, what: str, name: str) -> None:
        self.entries.append((what, name, anyio.current_time()))

    def times(self, name: str) -> tuple[float, float]:
        began = next(at for what, who, at in self.entries if (what, who) == ("begin", name))
        ended = next(at for what, who, at in self.entries if (what, who) == ("end", name))
        return began, ended


# -- order ------------------------------------------------------------------------------------------------------------


async def test_parallel_calls_run_at_once_and_answer_in_the_order_of_the_calls() -> None:
    diary = Diary()
    began = anyio.current_time()
    made = await run(
        diary.tools,
        ("work", {"name": "a", "seconds": 3}),
        ("work", {"name": "b", "seconds": 1}),
        ("work", {"name": "c", "seconds": 2}),
    )
    assert anyio.current_time() - began == pytest.approx(3)
    assert [message.content for message in made] == ["a done", "b done", "c done"]
    assert [message.tool_call_id for message in made] == ["call-0", "call-1", "call-2"]
    assert len({message.id for message in made}) == 3


async def test_a_tool_is_not_parallel_unless_it_says_so() -> None:
    diary = Diary(parallel=False)
    await run(diary.tools, ("work", {"name": "a", "seconds": 3}), ("work", {"name": "b", "seconds": 1}))
    assert diary.times("b")[0] >= diary.times("a")[1]


async def test_a_serial_call_waits_for_those_before_it_and_holds_those_after_it() -> None:
    diary = Diary()
    await run(
        diary.tools,
        ("work", {"name": "a", "seconds": 2}),
        ("work", {"name": "b", "seconds": 1}),
        ("solo", {"name": "alone", "seconds": 1}),
        ("work", {"name": "c", "seconds": 1}),
    )
    assert diary.times("a")[0] == diary.times("b")[0]
    assert diary.times("alone")[0] == pytest.approx(diary.times("a")[1])
    assert diary.times("c")[0] == pytest.approx(diary.times("alone")[1])


async def test_an_error_that_is_not_for_the_model_stops_the_calls_beside_it() -> None:
    diary = Diary()
    with pytest.raises(RuntimeError, match="b broke"):
        await run(
            diary.tools,
            ("work", {"name": "a", "seconds": 50}),
            ("work", {"name": "b", "seconds": 1, "fails": True}),
            ("solo", {"name": "never", "seconds": 1}),
        )
    assert diary.times("a")[1] == pytest.approx(diary.times("b")[1])
    assert "never" not in [name for _, name, _ in diary.entries]


async def test_cancelled_calls_are_over_when_the_cancellation_is() -> None:
    diary = Diary()
    with init_transcript(Transcript()) as kept, anyio.move_on_after(2) as scope:
        await run(diary.tools, ("work", {"name": "a", "seconds": 9}), ("work", {"name": "b", "seconds": 9}))
    assert scope.cancelled_caught
    assert [what for what, _, _ in diary.entries] == ["begin", "begin", "end", "end"]
    events = [event for event in kept.events if isinstance(event, ToolEvent)]
    assert [(event.pending, event.failed, event.error and event.error.type) for event in events] == [
        (None, True, "cancelled")
    ] * 2


async def test_only_the_calls_of_a_models_last_message_are_run() -> None:
    assert (await execute_tools([], [])).messages == []
    assert (await execute_tools([ChatMessageUser(content="hi")], [])).messages == []
    assert (await execute_tools([asking(("x", {})), ChatMessageUser(content="hi")], [])).messages == []
    assert await call_tools(ChatMessageAssistant(content="no calls"), []) == []
    assert [message.content for message in await call_tools(asking(("give", {})), [returning(7)])] == ["7"]


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "type", "says"),
    [
        (ToolError("no such city"), "unknown", "no such city"),
        (ToolParsingError("what is that"), "parsing", "what is that"),
        (ToolApprovalError(), "approval", "not approved"),
        (TimeoutError(), "timeout", "ran out of time"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "unicode_decode", "no utf-8: invalid start"),
        (PermissionError(13, "Permission denied", "/etc/shadow"), "permission", "Permission denied: '/etc/shadow'."),
        (PermissionError("not you"), "permission", "not you."),
        (FileNotFoundError(2, "No such file or directory", "/x"), "file_not_found", "no file '/x'"),
        (FileNotFoundError("nothing here"), "file_not_found", "nothing here"),
        (IsADirectoryError(21, "Is a directory", "/tmp"), "is_a_directory", "Is a directory: '/tmp'."),
        (OutputLimitExceededError("10 MiB", "the end"), "limit", "limit of 10 MiB"),
        (SandboxUnavailableError("container gone"), "sandbox_unavailable", "container gone"),
        (LimitExceededError("custom", value=2, limit=1), "limit", "custom limit of 1"),
        (ValueError("embedded null byte"), "parsing", "null byte"),
        (ExceptionGroup("", [ToolError("inside")]), "unknown", "inside"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
async def test_an_error_that_the_model_is_told_of(error: Exception, type: str, says: str) -> None:
    [message] = await run([raising(error)], ("fail", {}))
    assert message.error is not None
    assert message.error.type == type
    assert says in message.error.message
    assert message.content == ("the end" if isinstance(error, OutputLimitExceededError) else "")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"),
        KeyError("x"),
        OSError("disk"),
        UsageError("misused"),
        ExceptionGroup("", [ToolError("a"), ValueError("b")]),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_any_other_error_ends_the_sample_as_it_is(error: Exception) -> None:
    with init_transcript(Transcript()) as kept, pytest.raises(type(error)) as raised:
        await run([raising(error)], ("fail", {}))
    assert raised.value is error
    [event] = [event for event in kept.events if isinstance(event, ToolEvent)]
    assert (event.failed, event.error, event.pending) == (True, None, None)


async def test_a_limit_of_a_block_inside_a_tool_is_the_tools_failure() -> None:
    async def slow() -> str:
        """Take long."""
        with time_limit(1):
            await anyio.sleep(60)
        return ""

    [message] = await run([ToolDef(slow)], ("slow", {}))
    assert message.error is not None
    assert (message.error.type, "time limit of 1" in message.error.message) == ("limit", True)


async def test_a_limit_around_the_tools_is_no_failure_of_the_tool() -> None:
    with token_limit(10) as tokens, pytest.raises(LimitExceededError):
        await run([raising(LimitExceededError("token", value=11, limit=10, source=tokens))], ("fail", {}))


async def test_what_the_model_got_wrong_is_told_to_it() -> None:
    diary = Diary()
    call = ToolCall("1", "work", {}, parse_error="that was no JSON")
    made = await call_tools(ChatMessageAssistant(content="", tool_calls=[call]), diary.tools)
    assert [message.error and (message.error.type, message.error.message) for message in made] == [
        ("parsing", "that was no JSON")
    ]
    [unknown, wrong] = await run(diary.tools, ("wrok", {}), ("work", {"name": 3, "seconds": "x", "what": 1}))
    assert unknown.error is not None
    assert "no tool 'wrok'; known: work, solo" in unknown.error.message
    assert wrong.error is not None
    assert wrong.error.type == "parsing"
    assert wrong.error.message.splitlines()[1:] == [
        "- name: 3 is not of type string",
        "- seconds: 'x' is not of type number",
        "- there is no 'what'; known: name, seconds, fails",
    ]
    assert diary.entries == []


@pytest.mark.parametrize("depth", [101, 20_000])
async def test_arguments_nested_too_deeply_are_refused(depth: int) -> None:
    async def take(value: Any) -> str:
        """Take it.

        Args:
            value: Anything.
        """
        return "taken"

    value: Any = 1
    for _ in range(depth):
        value = [value]
    [message] = await run([ToolDef(take)], ("take", {"value": value}))
    assert message.error is not None
    assert "100 levels" in message.error.message
    [fine] = await run([ToolDef(take)], ("take", {"value": [[[1]]]}))
    assert fine.content == "taken"
    while isinstance(value, list):
        value = value.pop()  # taken apart here: Python's own deallocation of it recurses


async def test_tools_that_are_none_are_refused() -> None:
    @tool
    def maker() -> Tool:
        async def execute() -> str:
            """Do it."""
            return ""

        return execute

    async def plain() -> str:
        """Do it."""
        return ""

    with pytest.raises(UsageError, match=r"maker makes a tool: call it, as in tools=\[maker\(\)\]"):
        await run([maker], ("maker", {}))
    with pytest.raises(UsageError, match=r"plain is no tool: .* ToolDef\(plain\)"):
        await run([plain], ("plain", {}))
    with pytest.raises(UsageError, match="more than one tool is called maker"):
        await run([maker(), maker()], ("maker", {}))


async def test_policies_that_nobody_would_ask_are_refused() -> None:
    with pytest.raises(UsageError, match="no approval or review policies"):
        await execute_tools([asking(("give", {}))], [returning(1)], approval=[object()])


class Source:
    async def tools(self) -> list[Tool]:
        return [returning("from the source").as_tool()]


async def test_sources_are_asked_for_their_tools() -> None:
    for tools in (Source(), [Source()], [returning(1, name="other"), Source()]):
        made, _ = await execute_tools([asking(("give", {}))], tools)  # type: ignore[arg-type]
        assert [message.content for message in made] == ["from the source"]


# -- results ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "content"),
    [("text", "text"), (3, "3"), (0.5, "0.5"), (True, "True"), (None, "None"), ([1, 2], "[1, 2]"), ([], "[]")],
    ids=str,
)
async def test_a_result_becomes_text(value: Any, content: str) -> None:
    assert [message.content for message in await run([returning(value)], ("give", {}))] == [content]


async def test_contents_are_passed_on_as_they_are() -> None:
    image = ContentImage(image="data:image/png;base64,aaaa")
    text = ContentText(text="x" * 20_000, citations=[UrlCitation(url="http://x")])
    [alone] = await run([returning(image)], ("give", {}))
    assert alone.content == [image]
    [both] = await run([returning([text, image])], ("give", {}))
    assert both.content == [ContentText(text="x" * 20_000), image]


@pytest.mark.parametrize(
    ("own", "given", "around", "kept"),
    [
        (None, None, None, 16 * 1024),
        (None, None, 100, 100),
        (None, 200, 100, 200),
        (50, 200, 100, 50),
        (None, 0, None, None),
        (0, 200, None, None),
    ],
)
async def test_the_size_of_results(own: int | None, given: int | None, around: int | None, kept: int | None) -> None:
    text = "".join(f"{n:>9}\n" for n in range(3_000))
    with init_transcript(Transcript()) as record, use_max_tool_output(around):
        [message] = await run([returning(text, max_output=own)], ("give", {}), max_output=given)
    [event] = [event for event in record.events if isinstance(event, ToolEvent)]
    content = message.content
    assert isinstance(content, str)
    if kept is None:
        assert (content, event.truncated) == (text, None)
        return
    head, _, rest = content.partition("\n\n[The output of give was 30,000 bytes long.")
    _, _, tail = rest.partition("]\n\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len(head) + len(tail) == kept
    assert abs(len(head) - len(tail)) <= 1
    assert event.truncated == (30_000, kept)


@pytest.mark.parametrize("limit", range(1, 40))
async def test_no_character_is_split_where_a_result_is_cut(limit: int) -> None:
    text = "aé€😀\ud800" * 10
    [message] = await run([returning(text)], ("give", {}), max_output=limit)
    content = message.content
    assert isinstance(content, str)
    head, _, rest = content.partition("\n\n[The output")
    tail = rest.partition("]\n\n")[2]
    assert text.startswith(head)
    assert text.endswith(tail)
    assert len((head + tail).encode("utf-8", "surrogatepass")) <= limit


# -- arguments --------------------------------------------------------------------------------------------------------


class Color(enum.Enum):
    RED = "red"


@attrs.frozen
class Corner:
    x: int
    y: float = 0.5


class Place(TypedDict, total=False):
    name: str
    corner: Corner


class Person(pydantic.BaseModel):
    name: str
    age: int = 0


@attrs.frozen
class Even:
    number: int = attrs.field()

    @number.validator
    def _(self, _: Any, number: int) -> None:
        if number % 2:
            raise ValueError(f"{number} is odd")


@pytest.mark.parametrize(
    ("t", "given", "value"),
    [
        (int, 3.0, 3),
        (float, 3, 3.0),
        (str, "x", "x"),
        (bool, True, True),
        (date, "2024-02-29", date(2024, 2, 29)),
        (Color, "red", Color.RED),
        (Literal["a", "b"], "b", "b"),
        (list[Corner], [{"x": 1}, {"x": 2, "y": 3}], [Corner(1), Corner(2, 3.0)]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (set[int], [1, 1, 2], {1, 2}),
        (dict[str, Corner], {"a": {"x": 1}}, {"a": Corner(1)}),
        (Corner | None, None, None),
        (Corner | None, {"x": 1}, Corner(1)),
        (int | str, "5", "5"),
        (date | str, "soon", "soon"),
        (str | list[str], ["a"], ["a"]),
        (Place, {"corner": {"x": 1}}, {"corner": Corner(1)}),
        (Person, {"name": "Ada"}, Person(name="Ada")),
        (list, [1, "a"], [1, "a"]),
        (dict, {"a": [1]}, {"a": [1]}),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
    ids=str,
)
async def test_arguments_become_values_of_the_annotated_types(t: Any, given: Any, value: Any) -> None:
    [got, message] = await taken(t, given)
    assert message.error is None
    assert got == [value]
    assert type(got[0]) is type(value)


@pytest.mark.parametrize(
    ("t", "given", "says"),
    [
        (int, "3", "not of type integer"),
        (int, True, "not of type integer"),
        (int, 3.5, "not of type integer"),
        (str, None, "not of type string"),
        (date, "soon", "no date in ISO 8601"),
        (Color, "blue", "'blue' is none of 'red'"),
        (Literal["a", "b"], "c", "none of 'a', 'b'"),
        (list[int], [1, "x"], r"value[1]: 'x' is not of type integer"),
        (tuple[int, int], [1], "2 values are needed, not 1"),
        (Corner, {"y": 1}, "'x' is required and missing"),
        (Corner, {"x": 1, "z": 1}, "there is no 'z'; known: x, y"),
        (int | None, "x", "none of integer or null"),
        (Even, {"number": 3}, "3 is odd"),
        (Person, {"name": "Ada", "age": "old"}, "value.age: 'old' is not of type integer"),
        (dict[str, int], {"a": "x"}, "value.a: 'x' is not of type integer"),
    ],
    ids=str,
)
async def test_arguments_that_do_not_fit_are_told_to_the_model(t: Any, given: Any, says: str) -> None:
    [got, message] = await taken(t, given)
    assert got == []
    assert message.error is not None
    assert message.error.type == "parsing"
    assert says in message.error.message


async def taken(t: Any, given: Any) -> tuple[list[Any], ChatMessageTool]:
    got: list[Any] = []

    async def take(value: Any) -> str:
        """Take it.

        Args:
            value: Anything.
        """
        got.append(value)
        return ""

    take.__annotations__["value"] = t
    [message] = await run([ToolDef(take)], ("take", {"value": given}))
    return got, message


async def test_defaults_and_other_arguments() -> None:
    got: list[Any] = []

    async def take(first: int, second: int | None, third: str = "x", **others: int) -> str:
        """Take them.

        Args:
            first: The first.
            second: The second.
            third: The third.
        """
        got.append((first, second, third, others))
        return ""

    definition = ToolDef(take)
    definition.parameters.additionalProperties = True
    definition.parameters.required.remove("second")
    await run([definition], ("take", {"first": 1}), ("take", {"first": 1, "more": 2.0}))
    assert got == [(1, None, "x", {}), (1, None, "x", {"more": 2})]


async def test_a_tool_that_changes_its_arguments_changes_no_message() -> None:
    async def spoil(value: dict, items: list[Any]) -> str:  # type: ignore[type-arg]
        """Change them.

        Args:
            value: One.
            items: Others.
        """
        value["x"] = 1
        value["deep"].append(1)
        items[0].append(1)
        return ""

    message = asking(("spoil", {"value": {"deep": []}, "items": [[]]}))
    await call_tools(message, [ToolDef(spoil)])
    assert message.tool_calls is not None
    assert message.tool_calls[0].arguments == {"value": {"deep": []}, "items": [[]]}


# -- events -----------------------------------------------------------------------------------------------------------


async def test_a_call_is_an_event_in_a_span_with_what_the_tool_did_inside_it() -> None:
    async def work() -> str:
        """Work."""
        transcript().info("working")
        await anyio.sleep(2)
        return "done"

    seen: list[tuple[bool | None, float | None]] = []
    clock = anyio.current_time()
    kept = Transcript(working=lambda: anyio.current_time() - clock)
    kept.listeners.append(
        lambda event: seen.append((event.pending, event.working_time)) if isinstance(event, ToolEvent) else None
    )
    with init_transcript(kept):
        [message] = await run([ToolDef(work)], ("work", {}))
    begin, event, info, end = kept.events
    assert isinstance(begin, SpanBeginEvent)
    assert (begin.name, begin.type) == ("work", "tool")
    assert isinstance(event, ToolEvent)
    assert isinstance(info, InfoEvent)
    assert event.span_id == info.span_id == end.span_id == begin.id
    assert (event.id, event.function, event.arguments, event.result) == ("call-0", "work", {}, "done")
    assert (event.message_id, event.pending, event.completed is not None) == (message.id, None, True)
    assert event.working_time == pytest.approx(2)
    assert seen == [(True, None), (None, pytest.approx(2))]


async def test_a_viewer_shows_a_call_and_may_fail(caplog: pytest.LogCaptureFixture) -> None:
    def viewer(call: ToolCall) -> ToolCallView:
        return ToolCallView(call=ToolCallContent(format="text", content=f"{call.function} it"))

    def broken(call: ToolCall) -> ToolCallView:
        raise ValueError("no view")

    with init_transcript(Transcript()) as kept:
        await run([returning(1, viewer=viewer), returning(1, name="b", viewer=broken)], ("give", {}), ("b", {}))
    events = [event for event in kept.events if isinstance(event, ToolEvent)]
    assert [event.view and event.view.content for event in events] == ["give it", None]
    assert "the viewer of the tool 'b' failed" in caplog.text


async def test_messages_of_a_conversation_count_towards_the_limit_around_it() -> None:
    """A tool that adds to a limited conversation meets the sample's limit, which ends the sample."""
    from proctor.solver.conversation import Conversation

    with message_limit(1) as limit:
        conversation: list[ChatMessage] = Conversation()

        async def add() -> str:
            """Add a message."""
            conversation.append(ChatMessageUser(content="x"))
            return "added"

        definition = ToolDef(add)
        assert [message.error for message in await run([definition], ("add", {}))] == [None]
        with pytest.raises(LimitExceededError) as raised:
            await run([definition], ("add", {}))
        assert raised.value.source is limit
