"""A tool's schema: the same JSON that Inspect makes of the same function, and what it makes of attrs classes."""

from __future__ import annotations

import dataclasses
import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from typing import Annotated, Any, Literal, NewType, NotRequired, Optional, TypedDict, Union

import attrs
import inspect_ai.tool
import inspect_ai.util
import pydantic
import pytest

from proctor.errors import UsageError
from proctor.tool import Tool, ToolDef, ToolParams, tool, tool_with
from proctor.tool.docstring import parse_docstring
from proctor.util import JSONSchema, json_schema


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree] = dataclasses.field(default_factory=list)


class Movie(TypedDict):
    title: str
    year: NotRequired[int]
    at: Point


class Inner(pydantic.BaseModel):
    word: str = pydantic.Field(description="A word.", min_length=1)
    number: int | None = None


class Outer(pydantic.BaseModel):
    inner: Inner
    more: list[Inner] = []
    color: Color = Color.RED


TYPES: tuple[Any, ...] = (
    int, float, str, bool, list, dict, set, datetime, date, time, type(None), Any,
    list[int], list[list[str]], set[int], tuple[int, int], tuple[int, ...], dict[str, int], dict[str, list[Point]],
    Optional[int], Union[int, str], int | None,  # noqa: UP007, UP045  # both ways to write a union
    str | int | None, list[int | None],
    Literal["a", "b"], Literal[1, 2], Literal[True], Literal["a"] | None,
    Color, Level, list[Color], Point, Tree, Movie, list[Movie], Inner, Outer, list[Outer], Outer | None,
    bytes,
)  # fmt: skip


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_a_type_has_the_schema_that_inspect_gives_it(t: Any) -> None:
    ours = json_schema(t).model_dump(exclude_none=True)
    theirs = inspect_ai.util.json_schema(t).model_dump(exclude_none=True)
    assert ours == theirs


async def everyday(command: str, timeout: int | None = None, shell: Literal["bash", "sh"] = "bash") -> str:
    """Run a command.

    It runs in the sample's sandbox and
    may take its time.

    Args:
        command (str): What to run, as it
            would be typed.

            A blank line belongs to it.
        timeout: Seconds: after them it is stopped.
        shell (Literal["bash", "sh"], optional): Which shell.

    Returns:
        Its output.

    Raises:
        ValueError: never.
    """
    return ""


async def untyped(a, b=1):  # type: ignore[no-untyped-def]
    """A function of the old kind.

    Args:
      a (str): The first.
      b (int): The second.
    """


async def nested(points: list[Point], where: Movie, extra: dict[str, Any], color: Color = Color.BLUE) -> str:
    """One line only.

    Args:
        points: The points.
        where: Where to.
        extra: What else.
        color: Which.

    Examples:
        Two of them:

            nested([], {})
    """
    return ""


async def variadic(first: int, *rest: int, **others: str) -> str:
    """Takes more.

    Arguments:
        first: The first.
        *rest: More.
        **others: By name.
    """
    return ""


async def sphinx(a: int, b: str = "x") -> str:
    """Described in the other style.

    :param a: The first number,
        on two lines.
    :param b: A text.
    :returns: nothing
    """
    return ""


async def nothing() -> None:
    """Needs no arguments."""


class Instance:
    """A class whose instances are tools.

    Args:
        query: What to look for.
    """

    async def __call__(self, query: str, limit: int = 3) -> str:
        """Look for something.

        Args:
            query: What to look for.
            limit: How many.
        """
        return ""


FUNCTIONS = (everyday, untyped, nested, variadic, sphinx, nothing)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_function_is_described_as_inspect_describes_it(function: Callable[..., Any]) -> None:
    theirs = inspect_ai.tool.ToolDef(function)
    ours = ToolDef(function)
    assert (ours.name, ours.description) == (theirs.name, theirs.description)
    assert ours.parameters.model_dump(exclude_none=True) == _plain(theirs.parameters.model_dump(exclude_none=True))


def _plain(value: Any) -> Any:
    """Defaults as JSON has them: Inspect keeps an enum's member in Python's dump."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.value if isinstance(value, enum.Enum) else value


def test_a_callable_object_is_described_by_its_call() -> None:
    definition = ToolDef(Instance(), parameters={"limit": "At most so many."})
    assert definition.name == "Instance"
    assert definition.parameters.required == ["query"]
    assert definition.parameters.properties["limit"].model_dump(exclude_none=True) == {
        "type": "integer", "default": 3, "description": "At most so many.",
    }  # fmt: skip


def test_descriptions_and_whole_schemas_can_be_given() -> None:
    theirs = inspect_ai.tool.ToolDef(everyday, name="run", description="Runs.", parameters={"command": "The command."})
    ours = ToolDef(everyday, name="run", description="Runs.", parameters={"command": "The command."})
    assert ours.info.model_dump(exclude_none=True) == {
        "name": theirs.name,
        "description": theirs.description,
        "parameters": theirs.parameters.model_dump(exclude_none=True),
    }
    schema = ToolParams(properties={"n": JSONSchema(type="integer", description="A number.")}, required=["n"])
    assert ToolDef(variadic, parameters=schema).parameters is schema


@attrs.frozen
class Shape:
    name: str = attrs.field(metadata={"description": "What it is called."})
    _corners: list[Point] = attrs.field(factory=list)
    parent: Shape | None = None
    area: float = attrs.field(default=0.0, init=False)


def test_an_attrs_class_is_an_object_of_what_its_constructor_takes() -> None:
    assert json_schema(Shape).model_dump(exclude_none=True) == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "What it is called."},
            "corners": {"type": "array", "items": json_schema(Point).model_dump(exclude_none=True)},
            "parent": {"anyOf": [{}, {"type": "null"}]},
        },
        "required": ["name"],
        "additionalProperties": False,
    }


UserId = NewType("UserId", int)


@pytest.mark.parametrize(
    ("t", "schema"),
    [
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (frozenset[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, str, int], {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}),
        (Annotated[int, "of things"], {"type": "integer"}),
        (UserId, {"type": "integer"}),
        (list[Annotated[UserId, 1]], {"type": "array", "items": {"type": "integer"}}),
    ],
    ids=str,
)
def test_types_that_name_or_annotate_another(t: Any, schema: dict[str, Any]) -> None:
    assert json_schema(t).model_dump(exclude_none=True) == schema


# -- mistakes ---------------------------------------------------------------------------------------------------------


async def no_text(a: int) -> str:
    return ""


async def parameter_without_text(a: int, b: int) -> str:
    """Adds.

    Args:
        a: The first.
    """
    return ""


async def no_type(a) -> str:  # type: ignore[no-untyped-def]
    """Does something.

    Args:
        a: Something.
    """
    return ""


async def type_nobody_can_find(a: Missing) -> str:  # type: ignore[name-defined]  # noqa: F821
    """Does something.

    Args:
        a: Something.
    """
    return ""


def test_a_tool_without_a_description_is_refused_when_it_is_offered() -> None:
    with pytest.raises(UsageError, match="'no_text' has no description: give its function a docstring"):
        ToolDef(no_text).check()
    with pytest.raises(UsageError, match="parameter 'b' of the tool 'parameter_without_text' has no description"):
        ToolDef(parameter_without_text).check()
    ToolDef(no_text, description="Does it.", parameters={"a": "A number."}).check()


def test_a_parameter_without_a_type_is_refused() -> None:
    with pytest.raises(UsageError, match="parameter 'a' of the tool 'no_type' has no type annotation"):
        ToolDef(no_type)
    with pytest.raises(UsageError, match=r"'type_nobody_can_find' cannot be resolved: name 'Missing' is not defined"):
        ToolDef(type_nobody_can_find)


def test_describing_a_parameter_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="'everyday' has no parameter 'comand'; it has: command, timeout, shell"):
        ToolDef(everyday, parameters={"comand": "What to run."})


def test_a_maker_of_tools_must_make_an_async_function() -> None:
    @tool(name="sync")
    def make_sync() -> Any:
        def execute() -> str:
            """Does it."""
            return ""

        return execute

    @tool(name="forgot")
    def make_nothing() -> Any:
        pass

    with pytest.raises(UsageError, match="the tool 'sync' must be an async function"):
        make_sync()
    with pytest.raises(UsageError, match=r"forgot\(\) returned nothing"):
        make_nothing()
    with pytest.raises(UsageError, match="max_output"):
        tool(max_output=-1)


# -- variants ---------------------------------------------------------------------------------------------------------


@tool(parallel=True, max_output=100)
def run() -> Tool:
    return everyday_copy()


def everyday_copy() -> Any:
    async def execute(command: str) -> str:
        """Run a command.

        Args:
            command: What to run.
        """
        return command

    return execute


@tool
def wrapped() -> Tool:
    return run()


def test_a_tool_made_from_another_takes_over_what_it_does_not_say() -> None:
    definition = ToolDef(wrapped())
    assert (definition.name, definition.parallel, definition.max_output) == ("wrapped", True, 100)


def test_tool_with_changes_the_tool_it_is_given() -> None:
    first, other = run(), run()
    assert tool_with(first, name="exec", parameters={"command": "A line of shell."}, parallel=False) is first
    assert (ToolDef(first).name, ToolDef(first).parallel) == ("exec", False)
    assert ToolDef(first).parameters.properties["command"].description == "A line of shell."
    assert ToolDef(other).name == "run"
    assert ToolDef(other).parameters.properties["command"].description == "What to run."


def test_a_definition_made_into_a_tool_leaves_its_function_alone() -> None:
    first, second = ToolDef(everyday, name="one").as_tool(), ToolDef(everyday, name="two").as_tool()
    assert (ToolDef(first).name, ToolDef(second).name, ToolDef(everyday).name) == ("one", "two", "everyday")
    assert inspect.iscoroutinefunction(first)


# -- docstrings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [None, "", "  \n ", "Args:\n", "Args:\n    no colon here\n"])
def test_a_docstring_that_says_nothing(text: str | None) -> None:
    found = parse_docstring(text)
    assert (found.whole, found.parameters) == ("", {})
