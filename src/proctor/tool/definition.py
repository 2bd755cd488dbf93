"""What a tool is: the `@tool` decorator, `ToolDef`, and how either is described to a model.

A tool is an async function that carries its `ToolDef` (an attribute), so that it is described once, not at every call.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, Protocol, TypeAlias, TypeGuard, cast, overload, runtime_checkable

from proctor import registry
from proctor.errors import OptionError, UsageError
from proctor.model.messages import (
    Content,
    ContentAudio,
    ContentDocument,
    ContentImage,
    ContentText,
    ContentVideo,
)
from proctor.model.schema import ToolParams
from proctor.model.toolcall import ToolCall, ToolCallView, ToolInfo
from proctor.tool.signature import Parameter, described, parameters_of, schema_of

P = ParamSpec("P")

ResultContent: TypeAlias = ContentText | ContentImage | ContentAudio | ContentVideo | ContentDocument
ToolResult: TypeAlias = str | int | float | bool | ResultContent | list[ResultContent]
ToolCallViewer: TypeAlias = Callable[[ToolCall], ToolCallView]
ToolCallModelInput: TypeAlias = Callable[[int, int, "str | list[Content]"], "str | list[Content]"]

DEFINITION: Final = "__proctor_tool__"


@runtime_checkable
class Tool(Protocol):
    """An async function that a model may call; made by a function that `@tool` decorates, or by `ToolDef.as_tool`.

    It raises `ToolError` for what the model should know of, and any other exception for what ends the sample.
    """

    async def __call__(self, *args: Any, **kwargs: Any) -> ToolResult: ...


@runtime_checkable
class ToolSource(Protocol):
    """Something that gives tools when it is asked, such as a server of them."""

    async def tools(self) -> list[Tool]: ...


class ToolDef:
    """A function as a tool, with what a model is told of it. What is not given is taken from the function.

    Args:
        tool: an async function, or a tool whose definition is the starting point.
        name: default the function's. description: default its docstring's.
        parameters: descriptions by parameter name, or the whole schema.
        parallel: whether calls may run at the same time as others of the same message; default False.
        viewer: shows a call to people. model_input: what of a result the model sees when it is played back.
        max_output: bytes of a result before its middle is cut out; 0 for never, None for `max_tool_output`.
        options: for a provider that has an implementation of its own.

    Raises:
        UsageError: there is no description of the tool or of a parameter, or no type of a parameter.
    """

    tool: Callable[..., Any]
    name: str
    description: str
    parameters: ToolParams
    parallel: bool
    viewer: ToolCallViewer | None
    model_input: ToolCallModelInput | None
    max_output: int | None
    options: dict[str, Any] | None

    def __init__(
        self,
        tool: Callable[..., Any],
        name: str | None = None,
        description: str | None = None,
        parameters: Mapping[str, str] | ToolParams | None = None,
        parallel: bool | None = None,
        viewer: ToolCallViewer | None = None,
        model_input: ToolCallModelInput | None = None,
        max_output: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> None:
        check_max_output(max_output)
        known: ToolDef | None = getattr(tool, DEFINITION, None)
        self.tool = tool if known is None else known.tool
        self._parameters_of: list[Parameter] | None = None
        if known is None:
            said_name, said = described(tool)
            self.name = name or said_name
            self.description = description or said.whole
            own = parameters if isinstance(parameters, ToolParams) else schema_of(self.name, tool, said)
        else:
            known.check()
            self.name, self.description = name or known.name, description or known.description
            own = parameters if isinstance(parameters, ToolParams) else known.parameters.model_copy(deep=True)
        self.parameters = own
        if parameters is not None and not isinstance(parameters, ToolParams):
            describe_parameters(self.name, own, parameters)
        self.parallel = bool(known is not None and known.parallel) if parallel is None else parallel
        self.viewer = viewer or (known.viewer if known is not None else None)
        self.model_input = model_input or (known.model_input if known is not None else None)
        self.max_output = known.max_output if max_output is None and known is not None else max_output
        self.options = options or (known.options if known is not None else None)

    @property
    def info(self) -> ToolInfo:
        """What a model is told of it."""
        return ToolInfo(name=self.name, description=self.description, parameters=self.parameters, options=self.options)

    def bound(self) -> list[Parameter]:
        """The function's parameters, with how a model's argument becomes each; made once."""
        if self._parameters_of is None:
            self._parameters_of = parameters_of(self.name, self.tool)
        return self._parameters_of

    def bind(self, parameters: list[Parameter]) -> None:
        """Take others in place of the function's parameters, of a function that passes on what it is given."""
        self._parameters_of = parameters

    def check(self) -> None:
        """Refuse a tool that a model could not understand.

        Raises:
            UsageError: it has no description, or a parameter has none.
        """
        if not self.description:
            raise UsageError(
                f"the tool {self.name!r} has no description: give its function a docstring, or description="
            )
        for name, schema in self.parameters.properties.items():
            if not schema.description:
                raise UsageError(
                    f"the parameter {name!r} of the tool {self.name!r} has no description: name it under 'Args:' in "
                    f"the docstring, or give parameters={{{name!r}: '…'}}"
                )

    def as_tool(self) -> Tool:
        """The tool: a function of its own that calls this definition's."""
        function = self.tool

        @functools.wraps(function, assigned=("__name__", "__qualname__", "__doc__", "__module__"), updated=())
        async def call(*args: Any, **kwargs: Any) -> Any:
            return await function(*args, **kwargs)

        attach(call, self, registry.info_of(function))
        return call

    def __repr__(self) -> str:
        return f"ToolDef({self.name!r})"


def attach(tool: Any, definition: ToolDef, info: registry.RegistryInfo | None = None) -> None:
    """Let a function carry its definition, and where it is from."""
    try:
        setattr(tool, DEFINITION, definition)
        registry.tag(tool, info or registry.RegistryInfo("tool", definition.name))
    except AttributeError:
        raise UsageError(
            f"the tool {definition.name!r} is {tool!r}, which cannot carry attributes (a bound method, a class with "
            "slots): return a function from what @tool decorates"
        ) from None


def tool_def(tool: Any) -> ToolDef:
    """The definition of a tool.

    Raises:
        UsageError: it is none.
    """
    if isinstance(tool, ToolDef):
        return tool
    known = getattr(tool, DEFINITION, None)
    if isinstance(known, ToolDef):
        return known
    name = getattr(tool, "__name__", None) or type(tool).__name__
    info = registry.info_of(tool)
    if info is not None and info.kind == "tool":
        raise UsageError(f"{name} makes a tool: call it, as in tools=[{name}()]")
    raise UsageError(
        f"{name} is no tool: decorate with @tool the function that returns it, or wrap it as ToolDef({name})"
    )


async def tool_defs(tools: Sequence[Any] | ToolSource) -> list[ToolDef]:
    """The definitions of tools; sources among them are asked for theirs.

    Raises:
        UsageError: something is no tool, or two have the same name.
    """
    found = [tool_def(tool) for tool in await resolved_tools(tools)]
    check_names([each.name for each in found])
    return found


async def resolved_tools(tools: Sequence[Any] | ToolSource) -> list[Any]:
    """The tools, with those that sources give in the places of the sources."""
    listed = await tools.tools() if is_source(tools) else cast("Sequence[Any]", tools)
    if not any(is_source(each) for each in listed):
        return list(listed)
    found: list[Any] = []
    for each in listed:
        found.extend(await each.tools() if is_source(each) else [each])
    return found


def is_source(value: Any) -> TypeGuard[ToolSource]:
    """Whether it is a `ToolSource` rather than a tool or a list."""
    return not isinstance(value, (list, tuple)) and not callable(value) and callable(getattr(value, "tools", None))


def check_names(names: Sequence[str]) -> None:
    """Refuse two tools of one name: a call could mean either.

    Raises:
        UsageError: naming them.
    """
    if len(names) == len(set(names)):
        return
    twice = sorted({name for name in names if list(names).count(name) > 1})
    raise UsageError(f"more than one tool is called {', '.join(twice)}: give one another name (tool_with(t, name='…'))")


def check_max_output(max_output: int | None) -> None:
    """Refuse what is no size.

    Raises:
        OptionError: it is negative.
    """
    if max_output is not None and max_output < 0:
        raise OptionError(f"max_output: 0 (never cut) or a number of bytes is needed, not {max_output}")


def describe_parameters(name: str, schema: ToolParams, texts: Mapping[str, str]) -> None:
    """Replace descriptions of parameters.

    Raises:
        UsageError: there is no such parameter.
    """
    for parameter, text in texts.items():
        if parameter not in schema.properties:
            known = ", ".join(schema.properties) or "none"
            raise UsageError(f"the tool {name!r} has no parameter {parameter!r}; it has: {known}")
        schema.properties[parameter].description = text


@overload
def tool(func: Callable[P, Tool]) -> Callable[P, Tool]: ...
@overload
def tool(
    func: None = None,
    *,
    name: str | None = None,
    viewer: ToolCallViewer | None = None,
    model_input: ToolCallModelInput | None = None,
    parallel: bool | None = None,
    max_output: int | None = None,
    prompt: str | None = None,
) -> Callable[[Callable[P, Tool]], Callable[P, Tool]]: ...
def tool(
    func: Callable[P, Tool] | None = None,
    *,
    name: str | None = None,
    viewer: ToolCallViewer | None = None,
    model_input: ToolCallModelInput | None = None,
    parallel: bool | None = None,
    max_output: int | None = None,
    prompt: str | None = None,
) -> Any:
    """Register a function that returns a tool.

    Args:
        name: what the model calls it; default the decorated function's name.
        viewer: shows a call to people. model_input: what of a result the model sees when it is played back.
        parallel: whether calls may run at the same time as others of the same message. Say True only of a tool that
            changes nothing others of the message rely on; default False.
        max_output: bytes of a result before its middle is cut out; 0 for never, None for `max_tool_output`.
        prompt: added to the description; better written into the docstring.
    """
    check_max_output(max_output)

    def decorate(factory: Callable[P, Tool]) -> Callable[P, Tool]:
        known_as = name or str(getattr(factory, "__name__", "tool"))

        def finish(made: Tool) -> Tool:
            return _finished(made, known_as, viewer, model_input, parallel, max_output, prompt)

        return registry.registered("tool", factory, name=known_as, finish=finish)

    return decorate if func is None else decorate(func)


def _finished(
    made: Any,
    name: str,
    viewer: ToolCallViewer | None,
    model_input: ToolCallModelInput | None,
    parallel: bool | None,
    max_output: int | None,
    prompt: str | None,
) -> Tool:
    if isinstance(made, ToolDef):
        made = made.as_tool()
    if not callable(made) or not is_async(made):
        what = "nothing" if made is None else repr(made)
        raise UsageError(f"the tool {name!r} must be an async function; {name}() returned {what}")
    definition = ToolDef(made, name, parallel=parallel, viewer=viewer, model_input=model_input, max_output=max_output)
    if prompt:
        text, more = definition.description, " ".join(prompt.split())
        definition.description = f"{text}. {more}" if text else more
    attach(made, definition)
    return cast("Tool", made)


def is_async(function: Any) -> bool:
    """Whether calling it gives something to await."""
    while isinstance(function, functools.partial):
        function = function.func
    call = function if inspect.isroutine(function) else type(function).__call__
    return inspect.iscoroutinefunction(inspect.unwrap(call)) or inspect.iscoroutinefunction(call)


def tool_with(
    tool: Tool,
    name: str | None = None,
    description: str | None = None,
    parameters: Mapping[str, str] | None = None,
    parallel: bool | None = None,
    viewer: ToolCallViewer | None = None,
    model_input: ToolCallModelInput | None = None,
) -> Tool:
    """Change what is said of a tool, in place, and return it. For two variants make the tool twice.

    Args:
        name, description: of the tool. parameters: descriptions by name.
        parallel, viewer, model_input: as of `tool`.

    Raises:
        UsageError: it is no tool, or has no such parameter.
    """
    definition = tool_def(tool)
    definition.name = name or definition.name
    definition.description = description or definition.description
    describe_parameters(definition.name, definition.parameters, parameters or {})
    definition.parallel = definition.parallel if parallel is None else parallel
    definition.viewer = viewer or definition.viewer
    definition.model_input = model_input or definition.model_input
    return tool
