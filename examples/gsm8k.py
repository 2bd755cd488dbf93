"""Grade-school arithmetic (GSM8K). The data is a file of JSON lines {"question": …, "answer": "… #### 18"}.

Run it::

    proctor eval examples/gsm8k.py -T data=path/to/test.jsonl --model openai-api/SERVICE/MODEL
"""

from __future__ import annotations

import re

from proctor import Task, task
from proctor.dataset import Sample, json_dataset
from proctor.scorer import Score, Scorer, Target, accuracy, scorer, stderr
from proctor.solver import TaskState, generate

ANSWER = re.compile(r"A:\s*(-?\$?[\d,]*\.?\d+)")


@task
def gsm8k(data: str = "test.jsonl") -> Task:
    """The question is the whole prompt; the answer is the last "A: <number>"."""
    return Task(dataset=json_dataset(data, question), solver=generate(), scorer=last_answer())


def question(record: dict[str, str]) -> Sample:
    return Sample(input=record["question"], target=number(record["answer"].rsplit("####", 1)[-1]))


def number(text: str) -> str:
    return text.strip().replace(",", "").replace("$", "").rstrip(".")


@scorer(metrics=[accuracy(), stderr()])
def last_answer() -> Scorer:
    """Correct when the last number after "A:" equals the target, commas ignored."""

    async def score(state: TaskState, target: Target) -> Score:
        found = ANSWER.findall(state.output.completion)
        answer = number(found[-1]) if found else None
        return Score(value="C" if answer == target.text else "I", answer=answer, explanation=state.output.completion)

    return score
