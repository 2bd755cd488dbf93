"""The side journal: what running samples have done survives the death of their run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest

from proctor.log import read_eval_log
from proctor.log.events import ModelEvent, ToolEvent
from proctor.log.records import EvalPlan, EvalSample, EvalSpec
from proctor.log.recover import recover_eval_log
from proctor.log.running import SampleJournal, journals_beside, read_journal, running_folder
from proctor.log.transcript import Transcript
from proctor.log.watch import EVERY, FIRST, RunningSamples
from proctor.log.writer import open_log_writer
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessageAssistant, ChatMessageUser
from proctor.model.output import ChatCompletionChoice, ModelOutput


def agent(turns: int, transcript: Transcript | None = None, *, size: int = 300) -> tuple[EvalSample, Transcript]:
    """A sample in the middle of its turns, and its transcript."""
    transcript = transcript or Transcript()
    messages: list[Any] = [ChatMessageUser(content="?" * size, id="u")]
    for turn in range(turns):
        answer = ChatMessageAssistant(content=f"{turn} " * size, id=f"a{turn}")
        event = ModelEvent(
            model="m", input=list(messages), tools=[], tool_choice="none", config=GenerateConfig(),
            output=ModelOutput(model="m", choices=[ChatCompletionChoice(message=answer, stop_reason="stop")]),
        )  # fmt: skip
        transcript.add(event)
        messages.append(answer)
    sample = EvalSample(
        id="s", epoch=1, input="?" * size, target="t", messages=messages, events=transcript.events, uuid="u1",
        started_at="2030-01-01T00:00:00+00:00",
    )  # fmt: skip
    return sample, transcript


def journalled(path: Path, steps: int = 3) -> tuple[bytes, list[int], Transcript]:
    """A journal written in steps, where each ended, and what it is of."""
    journal, transcript, ends = SampleJournal(path), Transcript(), []
    path.parent.mkdir(exist_ok=True)
    for _ in range(steps):
        sample, _ = agent(2, transcript)
        journal.append(sample, list(transcript.events))
        ends.append(path.stat().st_size)
    return path.read_bytes(), ends, transcript


def test_a_journal_says_what_its_sample_did(tmp_path: Path) -> None:
    data, _, transcript = journalled(tmp_path / "a" / "x.events")
    found = read_journal(data)
    assert found is not None
    assert (found.id, found.epoch, found.input) == ("s", 1, "?" * 300)
    assert [event.uuid for event in found.events] == [event.uuid for event in transcript.events]
    assert [list(event.input) for event in found.events] == [list(event.input) for event in transcript.events]  # type: ignore[union-attr]
    assert found.events[-1].output == transcript.events[-1].output  # type: ignore[union-attr]
    assert found.messages[-1].text == transcript.events[-1].output.completion  # type: ignore[union-attr]
    assert found.error is not None
    assert found.error.message.startswith("CancelledError(")


def test_cut_at_any_byte_a_journal_has_every_step_before(tmp_path: Path) -> None:
    data, ends, transcript = journalled(tmp_path / "a" / "x.events")
    events = len(transcript.events) // len(ends)
    for size in range(len(data)):
        whole = sum(end <= size for end in ends)
        found = read_journal(data[:size])
        count = len(found.events) if found is not None else 0
        assert count == whole * events, size


def test_an_event_that_has_ended_since_takes_its_own_place(tmp_path: Path) -> None:
    transcript, journal = Transcript(), SampleJournal(tmp_path / "x.events")
    tool = ToolEvent(id="c", function="f", arguments={}, pending=True)
    transcript.add(tool)
    transcript.info("after")
    sample, _ = agent(0, transcript)
    journal.append(sample, list(transcript.events))
    tool.result = "done"
    transcript.updated(tool)
    journal.append(sample, list(transcript.events))
    journal.append(sample, list(transcript.events))
    found = read_journal((tmp_path / "x.events").read_bytes())
    assert found is not None
    assert [event.event for event in found.events] == ["tool", "info"]
    assert found.events[0].result == "done"  # type: ignore[union-attr]


async def test_only_what_runs_for_long_is_journalled(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    running = RunningSamples(path, anyio.to_thread.run_sync)
    async with anyio.create_task_group() as group:
        group.start_soon(running.work)
        sample, transcript = agent(1)
        running.began("long", ("s", 1), transcript, lambda: sample)
        await anyio.sleep(FIRST / 2)
        short, other = agent(1)
        running.began("short", ("short", 1), other, lambda: short)
        await anyio.sleep(FIRST / 4)
        running.ended("short")
        await anyio.sleep(3 * EVERY)
        assert [file.name for file in running_folder(path).iterdir()] == ["long.events"]
        transcript.info("more")
        await anyio.sleep(3 * EVERY)
        assert [event.event for event in journals_beside(path)[0].events] == ["model", "info"]
        running.ended("long")
        await anyio.sleep(3 * EVERY)
        assert list(running_folder(path).iterdir()), "its record is not durable yet"
        running.durable([("s", 1)])
        await anyio.sleep(3 * EVERY)
        assert not list(running_folder(path).iterdir())
        await running.close()
    assert not running_folder(path).exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_recovering_a_log_brings_the_running_samples_back_as_cancelled(
    log_path: Path, spec: EvalSpec, samples: Callable[..., Any], *, overwrite: bool
) -> None:
    made: list[EvalSample] = anyio.run(samples)

    async def write() -> None:
        async with open_log_writer(log_path, spec=spec, plan=EvalPlan()) as writer:
            await writer.send(made[0])

    anyio.run(write)
    folder = running_folder(log_path)
    folder.mkdir()
    sample, transcript = agent(2)
    SampleJournal(folder / "u1.events").append(sample, list(transcript.events))
    again = attrs.evolve(sample, id=made[0].id, epoch=made[0].epoch)  # a leftover: the log has its record
    SampleJournal(folder / "u2.events").append(again, list(transcript.events))
    (folder / "u3.events").write_bytes(b"torn")
    header = recover_eval_log(log_path, overwrite=overwrite)
    assert header.status == "started"
    log = read_eval_log(header.location)
    found = {sample.id: sample for sample in log.samples or []}
    assert set(found) == {made[0].id, "s"}
    assert found["s"].error is not None
    assert (found[made[0].id].error is None) == (made[0].error is None)
    assert running_folder(log_path).exists() == (not overwrite)
    assert not running_folder(Path(header.location)).exists()
    inspect_log = pytest.importorskip("inspect_ai.log")
    theirs = inspect_log.read_eval_log(header.location, resolve_attachments=True)
    running = next(sample for sample in theirs.samples if sample.id == "s")
    assert running.error.message.startswith("CancelledError(")
    assert [event.output.completion for event in running.events] == ["0 " * 300, "1 " * 300]


async def test_a_journal_that_cannot_be_written_is_given_up_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SampleJournal, "append", full)
    running = RunningSamples(tmp_path / "log.eval", anyio.to_thread.run_sync)
    sample, transcript = agent(1)
    async with anyio.create_task_group() as group:
        group.start_soon(running.work)
        running.began("u", ("s", 1), transcript, lambda: sample)
        await anyio.sleep(3 * EVERY)
        transcript.info("more")
        running.ended("u")
        running.durable([("s", 1)])
        await anyio.sleep(3 * EVERY)
        await running.close()
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "no longer journalled" in said[0]
    assert "No space left" in said[0]


async def test_what_could_not_be_encoded_is_journalled_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, tries = SampleJournal._encoded, list[int]()

    def changing(self: SampleJournal, record: Any, events: Any) -> bytes:
        tries.append(len(events))
        if len(tries) == 1:
            raise RuntimeError("dictionary changed size during iteration")
        return plain(self, record, events)

    monkeypatch.setattr(SampleJournal, "_encoded", changing)
    path = tmp_path / "log.eval"
    running = RunningSamples(path, anyio.to_thread.run_sync)
    sample, transcript = agent(2)
    async with anyio.create_task_group() as group:
        group.start_soon(running.work)
        running.began("u", ("s", 1), transcript, lambda: sample)
        await anyio.sleep(4 * EVERY)
        assert tries == [2, 2]
        (found,) = journals_beside(path)
        assert [event.uuid for event in found.events] == [event.uuid for event in transcript.events]
        await running.close()
