"""Solvers that write the prompt: `system_message`, `user_message`, `assistant_message`, `prompt_template`,
`chain_of_thought`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from proctor.model.messages import ChatMessageAssistant, ChatMessageSystem, ChatMessageUser
from proctor.solver.solving import Generate, Solver, solver
from proctor.solver.state import TaskState
from proctor.solver.store import store_data
from proctor.solver.templates import format_template, resource, without

DEFAULT_COT_TEMPLATE: Final = """
{prompt}

Reason step by step before you answer. End with your answer on a line of its own, in the form "ANSWER: $ANSWER" (without
quotes), where $ANSWER is the answer to the question.
"""


@solver
def prompt_template(template: str, **params: Any) -> Solver:
    """Put the user prompt into a template.

    Args:
        template: with the place {prompt}; a text, or a file's path. Metadata and store can be used too.
        params: further values; they go before those of metadata and store.
    """
    text = resource(template)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        prompt = state.user_prompt
        values = without(_values(state, {}), "prompt")
        prompt.text = format_template(text, {"prompt": prompt.text, **values, **params})
        return state

    return solve


@solver
def system_message(template: str, **params: Any) -> Solver:
    """Add a system message after those there are, else at the beginning.

    Args:
        template: a text, or a file's path. Metadata and store can be used in it.
        params: further values; they go before those of metadata and store.
    """
    text = resource(template)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        places = [place for place, message in enumerate(state.messages) if isinstance(message, ChatMessageSystem)]
        message = ChatMessageSystem(content=format_template(text, _values(state, params)))
        state.messages.insert(places[-1] + 1 if places else 0, message)
        return state

    return solve


@solver
def user_message(template: str, **params: Any) -> Solver:
    """Add a user message to the end of the conversation.

    Args:
        template: a text, or a file's path. Metadata and store can be used in it.
        params: further values; they go before those of metadata and store.
    """
    text = resource(template)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.messages.append(ChatMessageUser(content=format_template(text, _values(state, params))))
        return state

    return solve


@solver
def assistant_message(template: str, **params: Any) -> Solver:
    """Add an assistant message to the end of the conversation, as if the evaluated model had written it.

    Args:
        template: a text, or a file's path. Metadata and store can be used in it.
        params: further values; they go before those of metadata and store.
    """
    text = resource(template)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        content = format_template(text, _values(state, params))
        model = str(getattr(state.model, "name", state.model))
        state.messages.append(ChatMessageAssistant(content=content, model=model))
        return state

    return solve


@solver
def chain_of_thought(template: str = DEFAULT_COT_TEMPLATE) -> Solver:
    """Ask for reasoning before the answer, and for the answer on a last line ``ANSWER: …``.

    Args:
        template: with the place {prompt}; a text, or a file's path.
    """
    text = resource(template)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        prompt = state.user_prompt
        prompt.text = format_template(text, {"prompt": prompt.text})
        return state

    return solve


def _values(state: TaskState, params: Mapping[str, Any]) -> dict[str, Any]:
    return {**state.metadata, **store_data(state.store), **params}
