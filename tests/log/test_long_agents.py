"""A long agent's transcript grows with what was said, not with its square."""

from __future__ import annotations

import copy
import functools
import json
import pickle
import tracemalloc
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from proctor import Task, eval_async, task
from proctor.dataset import Sample
from proctor.log import read_eval_log
from proctor.log.encode import decode, encode, to_builtins
from proctor.log.events import ModelEvent, ToolEvent
from proctor.log.records import EvalSample
from proctor.log.sample_json import encode_record
from proctor.log.sharing import SharedList, SharingPool
from proctor.log.transcript import Transcript
from proctor.model import ModelOutput
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessageAssistant, ChatMessageTool, ChatMessageUser
from proctor.model.output import ChatCompletionChoice, ModelCall
from proctor.solver import Generate, Solver, TaskState, solver

TURNS, SIZE = 5000, 10_000


def words(random: Random, size: int) -> str:
    return random.randbytes(size // 2).hex()


def long_agent(turns: int, size: int, *, calls: bool = False) -> tuple[EvalSample, int]:
    """A sample after many turns of a tool's results, and the bytes of its messages."""
    random, transcript = Random(1), Transcript()
    messages: list[Any] = [ChatMessageUser(content="Begin.", id="u")]
    said = 0
    for turn in range(turns):
        answer = ChatMessageAssistant(content=words(random, 100), id=f"a{turn}")
        event = ModelEvent(
            model="m", input=list(messages), tools=[], tool_choice="auto", config=GenerateConfig(),
            output=ModelOutput(model="m"), pending=True,
        )  # fmt: skip
        transcript.add(event)
        event.output = ModelOutput(model="m", choices=[ChatCompletionChoice(message=answer, stop_reason="tool_calls")])
        if calls:
            event.call = ModelCall(request={"messages": [{"role": m.role, "content": m.content} for m in messages]})
        transcript.updated(event)
        result = words(random, size)
        transcript.add(ToolEvent(id=f"c{turn}", function="look", arguments={}, result=result))
        messages += [answer, ChatMessageTool(content=result, id=f"t{turn}", tool_call_id=f"c{turn}", function="look")]
        said += len(result) + 100
    return EvalSample(id=1, epoch=1, input="Begin.", target="", messages=messages, events=transcript.events), said


def test_five_thousand_turns_take_little_more_than_what_was_said() -> None:
    tracemalloc.start()
    try:
        sample, said = long_agent(TURNS, SIZE)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        record = encode_record(sample)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert said > TURNS * SIZE
    assert held < 1.5 * said, "references of each call to all messages before would be 400 MB"
    assert most < 3 * said, "what is encoded is not held as well"
    assert sum(map(len, record.parts)) < 3.3 * said, "the conversation, the pool, and the events of the tools"
    assert max(map(len, record.parts)) < 5_000_000, "in pieces, so that no call holds up the loop"


def test_raw_requests_are_kept_once() -> None:
    tracemalloc.start()
    try:
        long_agent(300, 1000, calls=True)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 300 * 15_000, "each request with all messages before it would be 20 MB"


@pytest.mark.parametrize("calls", [False, True])
def test_what_is_shared_is_read_back(*, calls: bool) -> None:
    sample, _ = long_agent(20, 200, calls=calls)
    record = decode(b"".join(encode_record(sample).parts))
    assert record["events"][38]["input_refs"] == [[0, 39]]
    assert len(record["events_data"]["messages"]) == 39
    from proctor.log.logfile import sample_from

    again = sample_from(record, "full", None, "x")
    assert [e.input for e in again.events if isinstance(e, ModelEvent)] == [
        e.input for e in sample.events if isinstance(e, ModelEvent)
    ]
    assert [e.call for e in again.events if isinstance(e, ModelEvent)] == [
        e.call for e in sample.events if isinstance(e, ModelEvent)
    ]


def test_a_shared_list_is_like_any_list() -> None:
    pool: SharingPool[Any] = SharingPool()
    items = [object() for _ in range(6)]
    lists = [items[:3], items[:5], [items[5], *items[1:3]], [], items]
    for plain in lists:
        shared = pool.share(plain)
        assert shared == plain
        assert plain == shared
        assert len(shared) == len(plain)
        assert [shared[n] for n in range(-len(plain), len(plain))] == plain + plain
        assert shared[1:4] == plain[1:4]
        assert shared[::-1] == plain[::-1]
        assert shared != [*plain, 1]
        assert shared + [1] == [*plain, 1]  # noqa: RUF005  # as users may write it
        assert [1] + shared == [1, *plain]  # noqa: RUF005
        assert shared.copy() == plain
        with pytest.raises(IndexError):
            shared[len(plain)]
    assert len(pool.items) == 6
    numbers = SharedList([1, 2, 3], [(0, 2)])
    assert copy.deepcopy(numbers) == [1, 2] == pickle.loads(pickle.dumps(numbers))
    assert copy.deepcopy(numbers).__class__ is list
    assert json.loads(encode({"a": [numbers]})) == {"a": [[1, 2]]} == to_builtins({"a": [numbers]})


@solver
def talks(turns: int, size: int) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        for turn in range(turns):
            state = await generate(state)
            state.messages.append(ChatMessageUser(content=f"{turn} " * (size // 4)))
        return state

    return solve


async def test_the_log_of_a_long_run_holds_each_message_three_times_at_most(tmp_path: Path) -> None:
    @task
    def long() -> Task:
        return Task(dataset=[Sample(input="Begin.", id=1)], solver=talks(100, 4000))

    (log,) = await eval_async(long(), model="mock/model", log_dir=str(tmp_path), display="none")
    assert log.status == "success"
    sample = (read_eval_log(log.location).samples or [])[0]
    said = sum(len(message.text) for message in sample.messages)
    record = sum(map(len, encode_record(sample).parts))
    assert record < 3 * said, "what was read is written as short as it was"
    assert Path(log.location).stat().st_size < record
    inspect_log = pytest.importorskip("inspect_ai.log")
    read = functools.partial(inspect_log.read_eval_log, log.location, resolve_attachments=True)
    (theirs,) = (await anyio.to_thread.run_sync(read)).samples
    calls = [event for event in theirs.events if event.event == "model"]
    assert [len(call.input) for call in calls] == list(range(1, 200, 2))
    assert [message.text for message in calls[-1].input] == [message.text for message in sample.messages[:-2]]
