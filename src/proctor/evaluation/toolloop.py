"""What `generate` does for a solver: call the evaluated model, run the tools it asks for, and so on."""

from __future__ import annotations

from typing import Any

from proctor.errors import LimitExceededError, UsageError
from proctor.model import GenerateConfig, ModelOutput
from proctor.model.model import Model
from proctor.model.toolcall import ToolFunction
from proctor.solver import TaskState
from proctor.tool.execution import execute_tools

WAYS = ("loop", "single", "none")


async def generate_on(
    state: TaskState, model: Model, *, tool_calls: str, cache: Any, config: GenerateConfig | None
) -> TaskState:
    """Call a model on a state's messages with its tools, and append what comes of it.

    Args:
        tool_calls: ``loop`` until the model asks for no tool or the state is completed; ``single``: run the tools of
            one answer; ``none``: run no tools.
        cache, config: as of `Model.generate`.

    Raises:
        UsageError: `tool_calls` is none of these.
        Exception: as `Model.generate`, and what a tool raised that is not for the model.
    """
    if tool_calls not in WAYS:
        raise UsageError(f"tool_calls must be one of {', '.join(WAYS)}, not {tool_calls!r}")
    choice = state.tool_choice
    size = model.config.max_tool_output if config is None or config.max_tool_output is None else config.max_tool_output
    while True:
        try:
            output = await model.generate(state.messages, state.tools, choice, config, cache)
        except LimitExceededError as met:
            if met.output is not None:
                _answered(state, met.output)
            raise
        _answered(state, output)
        if state.completed or tool_calls == "none" or not output.message.tool_calls:
            return state
        made, handed = await execute_tools(state.messages, state.tools, size)
        state.messages.extend(made)
        state.output = handed or state.output
        if state.completed or tool_calls == "single":
            return state
        if isinstance(choice, ToolFunction):
            choice = "auto"  # it has been called; forced again it would be called for ever


def _answered(state: TaskState, output: ModelOutput) -> None:
    state.output = output
    state.messages.append(output.message)
