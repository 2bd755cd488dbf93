"""`think`: a tool that does nothing, for models that think better when they can write it down."""

from __future__ import annotations

from proctor.model.toolcall import ToolCall, ToolCallContent, ToolCallView
from proctor.tool.definition import Tool, ToolDef, tool


@tool(parallel=True)
def think(description: str | None = None, thought_description: str | None = None) -> Tool:
    """A tool with which a model notes a thought; it answers nothing.

    Args:
        description: told to the model instead of the usual one. thought_description: the same for the thought.
    """

    async def execute(thought: str) -> str:
        """Note a thought.

        It brings nothing new and changes nothing, but the thought is kept. Use it for reasoning in several steps.

        Args:
            thought: The thought.
        """
        return ""

    return ToolDef(
        execute,
        name="think",
        description=description,
        parameters={"thought": thought_description} if thought_description else None,
        viewer=_viewer,
    ).as_tool()


def _viewer(call: ToolCall) -> ToolCallView:
    return ToolCallView(call=ToolCallContent(format="markdown", content=str(call.arguments.get("thought", ""))))
