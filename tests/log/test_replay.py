"""Answers recorded earlier, given again: by sample, epoch and order of call, from a log or from JSON lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proctor import Epochs, Task, eval_async
from proctor.dataset import Sample
from proctor.errors import ModelError, NotFoundError, UsageError
from proctor.model import ModelOutput, ModelUsage, get_model
from proctor.runtime import open_runtime
from proctor.scorer import includes
from proctor.solver import Generate, Solver, TaskState, generate, solver


@solver
def twice() -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state = await generate(state)
        return await generate(state)

    return solve


def task(samples: int = 3, epochs: int = 2) -> Task:
    questions = [Sample(input=f"q{i}", target="a", id=f"s{i}") for i in range(samples)]
    return Task(name="t", dataset=questions, solver=twice(), scorer=includes(), epochs=Epochs(epochs))


async def recorded(folder: Path) -> Any:
    numbers = iter(range(1000))

    def answer(*_: Any) -> ModelOutput:
        output = ModelOutput.from_content("m", f"answer {next(numbers)}")
        output.usage = ModelUsage(input_tokens=3, output_tokens=2, total_tokens=5)
        return output

    model = get_model("mock/recorded", custom_outputs=answer)
    [log] = await eval_async(task(), model, display="none", log_dir=str(folder))
    return log


def said(log: Any) -> dict[Any, list[str]]:
    return {
        (sample.id, sample.epoch): [message.text for message in sample.messages if message.role == "assistant"]
        for sample in log.samples
    }


async def test_an_evaluation_is_played_again_from_its_log(tmp_path: Path) -> None:
    log = await recorded(tmp_path)
    [again] = await eval_async(task(), f"replay/{log.location}", display="none", log_dir=str(tmp_path / "again"))
    assert again.status == "success", again.error
    assert said(again) == said(log)
    assert len({text for texts in said(log).values() for text in texts}) == 12
    [usage] = again.stats.model_usage.values()
    assert usage.total_tokens == 60


async def test_a_call_that_was_not_recorded_is_an_error_of_its_sample(tmp_path: Path) -> None:
    log = await recorded(tmp_path)
    more = task(samples=4)
    [again] = await eval_async(
        more, f"replay/{log.location}", display="none", log_dir=str(tmp_path / "again"), fail_on_error=False
    )
    failed = {sample.id for sample in again.samples if sample.error is not None}
    assert failed == {"s3"}


async def test_json_lines_answer_by_sample_and_epoch_and_in_order(tmp_path: Path) -> None:
    rows = [
        {"id": "s0", "epoch": 1, "output": "first"},
        {"id": "s0", "epoch": 1, "output": ModelOutput.from_content("m", "second").model_dump()},
        {"id": "s0", "epoch": 2, "output": "other epoch"},
        {"id": "s0", "epoch": 2, "output": "again"},
        {"id": "s1", "output": "any epoch"},
        {"id": "s1", "output": "any epoch, again"},
    ]
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps(row) + "\n\n" for row in rows))
    [log] = await eval_async(task(samples=2), f"replay/{file}", display="none", log_dir=str(tmp_path))
    assert said(log) == {
        ("s0", 1): ["first", "second"],
        ("s0", 2): ["other epoch", "again"],
        ("s1", 1): ["any epoch", "any epoch, again"],
        ("s1", 2): ["any epoch", "any epoch, again"],
    }


async def test_lines_without_an_id_answer_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text('{"output": "one"}\n{"output": "two"}\n')
    async with open_runtime():
        model = get_model(f"replay/{file}")
        assert [(await model.generate("x")).completion for _ in range(2)] == ["one", "two"]
        with pytest.raises(ModelError, match="2 recorded answers; call 3"):
            await model.generate("x")


@pytest.mark.parametrize("line", ['{"id": 1}', "[]", "nonsense", '{"output": 5}'])
async def test_a_line_that_is_none_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "answers.jsonl"
    file.write_text(f'{{"output": "one"}}\n{line}\n')
    async with open_runtime():
        with pytest.raises(UsageError, match="line 2"):
            await get_model(f"replay/{file}").generate("x")


def test_a_file_that_there_is_not_is_said_at_once() -> None:
    with pytest.raises(NotFoundError, match=r"no file nowhere\.eval"):
        get_model("replay/nowhere.eval")


async def test_no_model_is_for_evaluations_that_call_none(tmp_path: Path) -> None:
    @solver
    def silent() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            state.output = ModelOutput.from_content("none", "a")
            return state

        return solve

    def made(used: Solver) -> Task:
        return Task(name="n", dataset=[Sample(input="q", target="a")], solver=used, scorer=includes())

    [good] = await eval_async(made(silent()), "none/none", display="none", log_dir=str(tmp_path))
    assert good.status == "success"
    [bad] = await eval_async(made(generate()), "none/none", display="none", log_dir=str(tmp_path))
    assert "without one" in bad.error.message
