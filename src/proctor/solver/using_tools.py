"""`use_tools`: which tools the model is offered from here on."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.model.toolcall import ToolChoice
from proctor.solver.solving import Generate, Solver, solver
from proctor.solver.state import TaskState
from proctor.tool.definition import Tool, ToolDef, ToolSource, resolved_tools, tool_def


@solver
def use_tools(
    *tools: Tool | ToolDef | ToolSource | Sequence[Tool | ToolDef | ToolSource],
    tool_choice: ToolChoice | None = "auto",
    append: bool = False,
) -> Solver:
    """Offer tools to the model.

    Args:
        tools: tools, lists of tools, or sources of tools; with none the state's stay as they are.
        tool_choice: ``auto``, ``any``, ``none`` or `ToolFunction`; None leaves the state's as it is.
        append: add to the state's tools instead of replacing them.

    Raises:
        UsageError: something is no tool.
    """
    listed = [each for tool in tools for each in (tool if isinstance(tool, list | tuple) else [tool])]

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        found = await resolved_tools(listed)
        for each in found:
            tool_def(each)
        if found:
            state.tools = [*state.tools, *found] if append else found
        if tool_choice is not None:
            state.tool_choice = tool_choice
        return state

    return solve
