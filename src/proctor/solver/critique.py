"""`self_critique`: a model criticizes the answer, and the evaluated model answers anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from proctor.model.messages import ChatMessageUser
from proctor.solver.solving import Generate, Solver, solver
from proctor.solver.state import TaskState
from proctor.solver.templates import resource, without

if TYPE_CHECKING:
    from proctor.model import Model

DEFAULT_CRITIQUE_TEMPLATE: Final = """\
Below are a question and an answer to it. Criticize the answer: is it right, is it complete, does it answer at all? If
there is nothing to improve, reply only 'The answer is right as it is'.

[BEGIN DATA]
--- Question ---
{question}
--- Answer ---
{completion}
[END DATA]

Your critique:"""

DEFAULT_COMPLETION_TEMPLATE: Final = """\
Below are a question, your first answer and a critique of it. Write a better answer to the question.

[BEGIN DATA]
--- Question ---
{question}
--- First answer ---
{completion}
--- Critique ---
{critique}
[END DATA]

If the first answer is right as it is, repeat it word for word. End with your answer on a line of its own, in the form
"ANSWER: $ANSWER" (without quotes), where $ANSWER is the answer to the question."""


@solver
def self_critique(
    critique_template: str | None = None,
    completion_template: str | None = None,
    model: str | Model | None = None,
) -> Solver:
    """Ask for a critique of the answer, show it to the evaluated model, and let it answer anew.

    Args:
        critique_template: with the places {question} and {completion}; the sample's metadata can be used too. A text,
            or a file's path.
        completion_template: with {critique} besides.
        model: who criticizes; default the evaluated model.
    """
    ask = resource(critique_template or DEFAULT_CRITIQUE_TEMPLATE)
    tell = resource(completion_template or DEFAULT_COMPLETION_TEMPLATE)

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        from proctor.model import get_model

        critic = get_model(model)
        values = {
            **without(state.metadata, "question", "completion", "critique"),
            "question": state.input_text,
            "completion": state.output.completion,
        }
        critique = await critic.generate(ask.format(**values))
        content = tell.format(**values, critique=critique.completion)
        state.messages.append(ChatMessageUser(content=content))
        return await generate(state)

    return solve
