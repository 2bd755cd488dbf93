"""Answers that are used again: what makes a call the same, what is kept, and what the log says of it."""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import Epochs, Task, eval_async
from proctor.cli.app import main
from proctor.dataset import Sample
from proctor.errors import LimitExceededError, ModelError, OptionError
from proctor.log.events import ModelEvent
from proctor.log.transcript import Transcript, init_transcript
from proctor.model import (
    CachePolicy,
    ChatMessageUser,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
    StopDetails,
    cache_clear,
    cache_list_expired,
    cache_path,
    cache_prune,
    cache_size,
    get_model,
)
from proctor.model.schema import ToolParams
from proctor.model.toolcall import ToolInfo
from proctor.runtime import open_runtime
from proctor.runtime.applied import token_limit, turn_limit
from proctor.runtime.clock import utc_now
from proctor.scorer import includes
from proctor.solver import Generate, Solver, TaskState, solver


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PROCTOR_CACHE_DIR", str(tmp_path / "kept"))
    return tmp_path / "kept" / "generate"


class Counting:
    """A model that numbers its answers."""

    def __init__(self, name: str = "mock/counting", **more: Any) -> None:
        self.calls = 0
        self.more = more
        self.model = get_model(name, memoize=False, custom_outputs=self.answer)

    def answer(self, *_: Any) -> Any:
        self.calls += 1
        output = ModelOutput.from_content("m", f"answer {self.calls}")
        output.usage = ModelUsage(input_tokens=3, output_tokens=2, total_tokens=5)
        for name, value in self.more.items():
            setattr(output.choices[0], name, value)
        return output


TOOL = ToolInfo(name="t", description="d", parameters=ToolParams())


async def test_the_same_call_is_answered_again_and_costs_nothing() -> None:
    counting = Counting()
    async with open_runtime():
        first = await counting.model.generate("q", cache=True)
        again = await counting.model.generate([ChatMessageUser(content="q", id="another id")], cache=True)
        assert (first.completion, again.completion) == ("answer 1", "answer 1")
        assert counting.calls == 1
        assert again.usage == first.usage
        assert again.message.id != first.message.id
        assert (await counting.model.generate("q")).completion == "answer 2"
        with token_limit(1):
            await counting.model.generate("q", cache=True)  # nothing is used, so no limit is met
        with pytest.raises(LimitExceededError), turn_limit(1):
            for _ in range(2):
                await counting.model.generate("q", cache=True)


DIFFERENT: list[dict[str, Any]] = [
    {"input": "other"},
    {"input": [ChatMessageUser(content=[ContentText(text="q")])]},
    {"config": GenerateConfig(temperature=0.5)},
    {"tools": [TOOL]},
    {"tools": [TOOL], "tool_choice": "any"},
    {"cache": CachePolicy(scopes={"a": "b"})},
    {"cache": CachePolicy(expiry="2W")},
]


@pytest.mark.parametrize("change", DIFFERENT)
async def test_another_call_has_another_answer(change: dict[str, Any]) -> None:
    counting = Counting()
    async with open_runtime():
        await counting.model.generate("q", cache=True)
        output = await counting.model.generate(**{"input": "q", "cache": True, **change})
    assert output.completion == "answer 2"


async def test_what_does_not_change_answers_is_no_difference() -> None:
    counting = Counting()
    async with open_runtime():
        await counting.model.generate("q", cache=True)
        config = GenerateConfig(max_retries=1, timeout=5, max_connections=3, attempt_timeout=4, stream_idle_timeout=9)
        assert (await counting.model.generate("q", config=config, cache=True)).completion == "answer 1"
        kept = GenerateConfig(cache=True)
        assert (await counting.model.generate("q", config=kept)).completion == "answer 1"


async def test_another_model_base_url_or_argument_has_its_own_answers() -> None:
    async with open_runtime():
        for name, more in (("mock/a", {}), ("mock/b", {}), ("mock/b", {"latency": 0.5})):
            outputs = iter([f"{name} {more}"])
            model = get_model(name, memoize=False, custom_outputs=outputs, **more)
            assert (await model.generate("q", cache=True)).completion == f"{name} {more}"
    assert len(cache_size()) == 2


@pytest.mark.parametrize(
    "more", [{"stop_reason": "content_filter"}, {"stop_details": StopDetails(type="refusal", explanation="no")}]
)
async def test_refusals_are_not_kept(more: dict[str, Any]) -> None:
    counting = Counting(**more)
    async with open_runtime():
        for _ in range(2):
            await counting.model.generate("q", cache=True)
    assert counting.calls == 2
    assert cache_size() == []


async def test_errors_are_not_kept() -> None:
    outputs: Any = iter([ModelError("no"), "yes"])
    model = get_model("mock/m", memoize=False, custom_outputs=outputs)
    async with open_runtime():
        with pytest.raises(ModelError):
            await model.generate("q", cache=True)
        assert (await model.generate("q", cache=True)).completion == "yes"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "output": {"choices": 5}}'])
async def test_a_damaged_answer_is_none(folder: Path, damage: bytes) -> None:
    counting = Counting()
    async with open_runtime():
        await counting.model.generate("q", cache=True)
        [file] = folder.rglob("*.answer")
        file.write_bytes(damage)
        assert (await counting.model.generate("q", cache=True)).completion == "answer 2"
        assert (await counting.model.generate("q", cache=True)).completion == "answer 2"


async def test_a_folder_that_cannot_be_written_is_no_failure(folder: Path) -> None:
    folder.parent.mkdir(parents=True)
    folder.write_text("a file where the folder should be")
    counting = Counting()
    async with open_runtime():
        for i in (1, 2):
            assert (await counting.model.generate("q", cache=True)).completion == f"answer {i}"


async def test_an_answer_is_used_until_its_time_is_over(folder: Path) -> None:
    counting = Counting()
    async with open_runtime():
        await counting.model.generate("q", cache=CachePolicy(expiry="12h"))
        [file] = folder.rglob("*.answer")
        data = json.loads(file.read_bytes())
        kept = datetime.fromisoformat(data["expiry"]) - utc_now()
        assert timedelta(hours=11) < kept <= timedelta(hours=12)
        assert cache_list_expired() == []
        data["expiry"] = "2001-01-01T00:00:00+00:00"
        file.write_text(json.dumps(data))
        assert cache_list_expired() == [file]
        assert (await counting.model.generate("q", cache=CachePolicy(expiry="12h"))).completion == "answer 2"
        assert cache_list_expired() == []


async def test_an_expiry_that_is_none_is_refused() -> None:
    assert CachePolicy.from_string("soon") is None
    with pytest.raises(OptionError, match="soon"):
        GenerateConfig(cache="soon")
    assert GenerateConfig(cache="3D").cache == CachePolicy(expiry="3D")
    async with open_runtime():
        for wrong in (CachePolicy(expiry="soon"), "yes"):
            with pytest.raises(OptionError, match="cache"):
                await Counting().model.generate("q", cache=wrong)


async def test_many_callers_of_one_answer_leave_one_whole_file(folder: Path) -> None:
    counting = Counting()
    async with open_runtime(), anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(lambda: counting.model.generate("q", cache=True))
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert len(files) == 1
    assert json.loads(files[0].read_bytes())["output"]


@solver
def asked(policy: Any) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        return await generate(state, cache=policy)

    return solve


@pytest.mark.parametrize(("policy", "calls"), [(True, 4), (CachePolicy(per_epoch=False), 2), (False, 8)])
async def test_each_epoch_has_its_own_answers_unless_told_otherwise(tmp_path: Path, policy: Any, calls: int) -> None:
    counting = Counting()
    questions = [Sample(input=f"q{i}", target="answer") for i in range(2)]
    for _ in range(2):
        task = Task(dataset=questions, solver=asked(policy), scorer=includes(), epochs=Epochs(2), name="t")
        [log] = await eval_async(task, counting.model, display="none", log_dir=str(tmp_path), max_samples=1)
        assert log.status == "success"
    assert counting.calls == calls


async def test_the_log_says_what_was_read_and_written() -> None:
    counting = Counting()
    events = Transcript(new_id=iter(map(str, range(100))).__next__)
    async with open_runtime():
        with init_transcript(events):
            for cached in (True, True, False):
                await counting.model.generate("q", cache=cached)
    found = [event for event in events.events if isinstance(event, ModelEvent)]
    assert [event.cache for event in found] == ["write", "read", None]
    assert all(event.completed and event.pending is None for event in found)


def test_the_names_of_models_stay_within_the_folder(folder: Path) -> None:
    for name in ("openai/../../etc", "a/./b", "/abs/olute", "we:ird\\na*me?"):
        assert folder in cache_path(name).parents
        assert ".." not in cache_path(name).parts


async def test_the_command_lists_prunes_and_clears(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with open_runtime():
        await Counting("mock/one").model.generate("q", cache=True)
        await Counting("mock/two").model.generate("q", cache=True)
    assert main(["cache", "list"]) == 0
    assert re.findall(r"mock/\w+", capsys.readouterr().out) == ["mock/one", "mock/two"]
    [file] = (folder / "mock" / "one").iterdir()
    file.write_text("damaged")
    assert main(["cache", "prune"]) == 0
    assert capsys.readouterr().out == "1 removed\n"
    assert main(["cache", "list", "--json"]) == 0
    assert [row["model"] for row in json.loads(capsys.readouterr().out)] == ["mock/two"]
    assert main(["cache", "clear"]) == 2
    assert "--all" in capsys.readouterr().err
    assert main(["cache", "clear", "--model", "mock/two"]) == 0
    assert main(["cache", "list"]) == 0
    assert capsys.readouterr().out.endswith("no answers\n")
    assert cache_clear() is False
    outside = folder.parent / "mine.answer"
    outside.write_text("x")
    cache_prune([outside])
    assert outside.exists()
    assert main(["cache", "path"]) == 0
    assert str(folder) in capsys.readouterr().out
