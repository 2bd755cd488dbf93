"""Scorers that ask a model for a grade: `model_graded_qa`, `model_graded_fact`."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from proctor.log.records import Score
from proctor.model.messages import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageTool,
    ChatMessageUser,
    Content,
    ContentText,
)
from proctor.model.output import ModelOutput
from proctor.scorer.measure import CORRECT, INCORRECT, PARTIAL
from proctor.scorer.metrics import accuracy, stderr
from proctor.scorer.multi import multi_scorer
from proctor.scorer.reducers import ScoreReducer
from proctor.scorer.scoring import Scorer, scorer
from proctor.scorer.target import Target
from proctor.solver.templates import resource, without

if TYPE_CHECKING:
    from proctor.model import Model
    from proctor.solver.state import TaskState

History = bool | Callable[["TaskState"], str]

QA_TEMPLATE: Final = """\
Below are a task, an answer that was submitted for it, and the criterion by which the answer is to be judged.

[BEGIN DATA]
--- Task ---
{question}
--- Submitted answer ---
{answer}
--- Criterion ---
{criterion}
[END DATA]

Is the criterion satisfied by the submitted answer?

{instructions}
"""

FACT_TEMPLATE: Final = """\
Below are a question, the answer of an expert, and an answer that was submitted.

[BEGIN DATA]
--- Question ---
{question}
--- Answer of the expert ---
{criterion}
--- Submitted answer ---
{answer}
[END DATA]

Look only at the facts; wording, style and punctuation do not matter. Does the submitted answer state what the expert
states?

{instructions}
"""

_GRADES: Final = {
    "c": CORRECT,
    "correct": CORRECT,
    "i": INCORRECT,
    "incorrect": INCORRECT,
    "p": PARTIAL,
    "partial": PARTIAL,
}
_SPACE: Final = r"[\s\u200b-\u200f\u2060\u2063\ufeff]*"
_VERDICT: Final = re.compile(rf"(?<!\w)GRADE(?!\w){_SPACE}:{_SPACE}", re.IGNORECASE)
_MARKER: Final = re.compile(r"\[(BEGIN|END) (DATA)\]", re.IGNORECASE)
_PLACES: Final = ("question", "answer", "criterion", "instructions")


@scorer(metrics=[accuracy(), stderr()])
def model_graded_qa(
    template: str | None = None,
    instructions: str | None = None,
    grade_pattern: str | None = None,
    include_history: History = False,
    partial_credit: bool = False,
    model: list[str | Model] | str | Model | None = None,
    model_role: str | None = "grader",
    reducer: str | ScoreReducer = "majority",
) -> Scorer:
    """A model's grade of the answer, by the criterion in the target.

    Args:
        template: of the prompt, with the places {question}, {answer}, {criterion} and {instructions}; the sample's
            metadata can be used too. A text, or a file's path.
        instructions: how to answer. The default asks for reasoning and a last line ``GRADE: C`` or ``GRADE: I``.
        grade_pattern: regular expression whose first group takes the grade out of the answer. Default: what follows
            the last ``GRADE:``; with the default instructions it must be a grade that they offer.
        include_history: the question is the conversation up to the last answer, or what a function makes of the state.
        partial_credit: the default instructions offer P too, for 0.5.
        model: the grader, or several, each grading on its own.
        model_role: when no `model` is given, the role whose model grades; without one, the evaluated model.
        reducer: how the grades of several graders become one. A majority is of all graders: one that gave no grade
            withholds its vote.
    """
    return _graded_by(
        _Grading.of(template or QA_TEMPLATE, instructions, grade_pattern, include_history, partial_credit),
        model,
        model_role,
        reducer,
    )


@scorer(metrics=[accuracy(), stderr()])
def model_graded_fact(
    template: str | None = None,
    instructions: str | None = None,
    grade_pattern: str | None = None,
    include_history: History = False,
    partial_credit: bool = False,
    model: list[str | Model] | str | Model | None = None,
    model_role: str | None = "grader",
    reducer: str | ScoreReducer = "majority",
) -> Scorer:
    """A model's grade of the facts in the answer, by those in the target; the arguments of `model_graded_qa`."""
    return _graded_by(
        _Grading.of(template or FACT_TEMPLATE, instructions, grade_pattern, include_history, partial_credit),
        model,
        model_role,
        reducer,
    )


def default_instructions(*, partial_credit: bool) -> str:
    """What the default prompt asks of the grader."""
    partly = "P when it is partly right, " if partial_credit else ""
    letters = "C, P or I" if partial_credit else "C or I"
    return (
        "First reason step by step about the answer, without deciding at once. Then write the grade on a last line of "
        f"its own, in the form 'GRADE: $LETTER' (without quotes), where LETTER is one of {letters}: C when the answer "
        f"is right, {partly}I when it is wrong. For a right answer, for example, the last line is 'GRADE: C'."
    )


@frozen(kw_only=True)
class _Grading:
    """How to ask for a grade and how to read it; `offered` is None where the prompt is the author's own."""

    template: str
    instructions: str
    pattern: re.Pattern[str] | None
    history: History
    offered: Collection[str] | None

    @staticmethod
    def of(
        template: str, instructions: str | None, pattern: str | None, history: History, partial_credit: bool
    ) -> _Grading:
        offered = (CORRECT, PARTIAL, INCORRECT) if partial_credit else (CORRECT, INCORRECT)
        return _Grading(
            template=resource(template),
            instructions=instructions or default_instructions(partial_credit=partial_credit),
            pattern=None if pattern is None else re.compile(pattern),
            history=history,
            offered=None if instructions else offered,
        )

    def grade(self, completion: str) -> str | None:
        """The grade in a grader's answer, None when there is none that can be used.

        The last verdict counts, whatever it is: an earlier one may be quoted from the answer under judgement.
        """
        if self.pattern is not None:
            found = self.pattern.search(completion)
            return None if found is None else found[1]
        verdicts = [completion[match.end() :] for match in _VERDICT.finditer(completion)]
        if self.offered is None:
            return next((text[0].upper() for text in reversed(verdicts) if text[:1].lower() in _LETTERS), None)
        word = re.match(r"\w*", verdicts[-1]) if verdicts else None
        grade = _GRADES.get(word[0].lower()) if word else None
        return grade if grade in self.offered else None

    def prompt(self, state: TaskState, target: Target) -> ChatMessageUser:
        """What the grader is sent."""
        if callable(self.history):
            question = self.history(state)
        else:
            question = conversation(state) if self.history else state.input_text
        answer, media = neutral(state.output.completion), _media(state.output)
        if media:
            answer = f"{answer} (see also the attached media)" if answer else "See the attached media."
        text = self.template.format(
            question=neutral(question),
            answer=answer,
            criterion=neutral(target.text),
            instructions=self.instructions,
            **{name: neutral(value) for name, value in without(state.metadata, *_PLACES).items()},
        )
        return ChatMessageUser(content=[ContentText(text=text), *media] if media else text)


_LETTERS: Final = frozenset("cpi")


def _graded_by(
    grading: _Grading,
    model: list[str | Model] | str | Model | None,
    role: str | None,
    reducer: str | ScoreReducer,
) -> Scorer:
    if isinstance(model, list):
        return multi_scorer([_one_grader(grading, each) for each in model], reducer)
    if model is not None or role is None:
        return _one_grader(grading, model)

    async def score(state: TaskState, target: Target) -> Score | None:
        from proctor.model.model import get_model, model_roles

        # Which models a role has is known only while the task runs.
        bound = model_roles().get(role)
        graders: Any = list(bound) if isinstance(bound, Sequence) else get_model(role=role)
        return await _graded_by(grading, graders, None, reducer)(state, target)

    return score


def _one_grader(grading: _Grading, model: str | Model | None) -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        from proctor.model import get_model

        prompt = grading.prompt(state, target)
        output = await get_model(model).generate([prompt])
        grade = grading.grade(output.completion)
        metadata = {"grading": [prompt, output.message]}
        if grade is None:
            return Score.unscored(
                reason="grader_failed",
                answer=state.output.completion,
                explanation=f"There is no grade in the grader's output: {output.completion}",
                metadata=metadata,
            )
        return Score(value=grade, answer=state.output.completion, explanation=output.completion, metadata=metadata)

    return score


def neutral(value: Any) -> Any:
    """`value` with the markers of the prompt's data defused in every text in it, so that no answer can close the data
    and speak as the prompt."""
    if isinstance(value, str):
        return _MARKER.sub(r"[\1-\2]", value)
    if isinstance(value, Mapping):
        return {key: neutral(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [neutral(item) for item in value]
        return tuple(items) if isinstance(value, tuple) else items
    return value


def _media(output: ModelOutput) -> list[Content]:
    if output.empty or isinstance(output.message.content, str):
        return []
    return [part for part in output.message.content if part.type in {"image", "audio", "video"}]


def conversation(state: TaskState) -> str:
    """The conversation without system messages, up to the last answer, which the prompt shows apart."""
    messages = [message for message in state.messages if not isinstance(message, ChatMessageSystem)]
    answers = [place for place, message in enumerate(messages) if isinstance(message, ChatMessageAssistant)]
    if answers:
        messages = messages[: answers[-1]]
    return "\n\n".join([message.text for message in messages[:1]] + [_turn(message) for message in messages[1:]])


def _turn(message: ChatMessage) -> str:
    if isinstance(message, ChatMessageAssistant):
        calls = [
            f"{call.function}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
            for call in message.tool_calls or ()
        ]
        return "Assistant: " + "\n\n".join([message.text] * bool(message.text) + calls)
    if isinstance(message, ChatMessageTool):
        return f"Tool ({message.function}): {message.error.message if message.error else ''}{message.text}"
    return f"User: {message.text}"
