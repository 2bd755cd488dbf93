"""Solvers: the steps from a sample to an answer."""

from __future__ import annotations

from proctor.solver.chaining import Chain, chain, fork
from proctor.solver.choices import Choice, Choices
from proctor.solver.critique import self_critique
from proctor.solver.lettered import MultipleChoiceTemplate, multiple_choice
from proctor.solver.prompting import (
    assistant_message,
    chain_of_thought,
    prompt_template,
    system_message,
    user_message,
)
from proctor.solver.solving import Generate, Solver, generate, solver
from proctor.solver.state import TaskState
from proctor.solver.submitting import basic_agent
from proctor.solver.using_tools import use_tools

__all__ = [
    "Chain",
    "Choice",
    "Choices",
    "Generate",
    "MultipleChoiceTemplate",
    "Solver",
    "TaskState",
    "assistant_message",
    "basic_agent",
    "chain",
    "chain_of_thought",
    "fork",
    "generate",
    "multiple_choice",
    "prompt_template",
    "self_critique",
    "solver",
    "system_message",
    "use_tools",
    "user_message",
]
