"""Writing a log while samples end: acknowledged when durable, held back when full, whole whatever ends the run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import LogError
from proctor.log import EvalLog, read_eval_log, read_eval_log_sample_summaries
from proctor.log.evalfile import wal_path
from proctor.log.naming import log_file_name, parse_name
from proctor.log.records import EvalPlan, EvalSpec
from proctor.log.writer import LogWriter, open_log_writer

Made = Callable[..., Any]


async def inline(function: Callable[..., Any], *args: Any) -> Any:
    """Blocking calls in no time."""
    return function(*args)


async def acknowledged(writer: LogWriter, into: list[tuple[float, Any]]) -> None:
    async for message in writer.acknowledgements:
        into += [(anyio.current_time(), key) for key in message.samples]


async def test_the_log_is_there_and_started_when_the_block_is_entered(log_path: Path, spec: EvalSpec) -> None:
    async with open_log_writer(log_path, spec=spec, plan=EvalPlan()):
        log = read_eval_log(log_path)
        assert (log.status, log.eval.task, log.samples) == ("started", "demo", [])
    assert read_eval_log(log_path).status == "started"


async def test_what_was_sent_is_read_back(log_path: Path, spec: EvalSpec, finished: EvalLog, samples: Made) -> None:
    made = await samples()
    async with open_log_writer(log_path, spec=spec, plan=finished.plan) as writer:
        for sample in made:
            await writer.send(sample)
        await writer.finish(finished)
    assert not wal_path(log_path).exists()
    log = read_eval_log(log_path, resolve_attachments="full")
    assert log.samples is not None
    assert log.status == "success"
    assert log.reductions is not None
    assert len(read_eval_log_sample_summaries(log_path)) == len(made)
    found = {(sample.id, sample.epoch): sample for sample in log.samples}
    for sample in made:
        again = found[sample.id, sample.epoch]
        if sample.error is None:
            assert again.messages == sample.messages
            assert again.scores == sample.scores
            assert [event.event for event in again.events] == [event.event for event in sample.events]
            assert again.events[3] == sample.events[3]


async def test_acknowledgements_come_with_the_sync_and_syncs_are_shared(
    log_path: Path, spec: EvalSpec, finished: EvalLog, sample: Made, disk: Made
) -> None:
    storage = disk()
    done: list[tuple[float, Any]] = []
    made = [await sample(number) for number in range(200)]
    writing = open_log_writer(log_path, spec=spec, plan=EvalPlan(), run_in_thread=inline, storage=storage)
    async with writing as writer, anyio.create_task_group() as group:
        group.start_soon(acknowledged, writer, done)
        await anyio.sleep(1)
        before, sent = storage.syncs, {}
        for one in made:
            await anyio.sleep(0.01)
            sent[one.id, 1] = anyio.current_time()
            await writer.send(one)
        await anyio.sleep(0.2)
        assert len(done) == 200
        assert [key for _, key in done] == list(sent)
        assert done[0][0] == sent[0, 1], "the first record after a pause is synced at once"
        assert max(at - sent[key] for at, key in done) <= 0.1 + 1e-9
        assert storage.syncs - before <= 25, "two seconds, a sync every 100 ms, and commits"
        await writer.finish(finished)


async def test_a_full_channel_holds_its_senders(log_path: Path, spec: EvalSpec, sample: Made) -> None:
    gate = anyio.Event()

    async def slow(function: Callable[..., Any], *args: Any) -> Any:
        if log_path.exists():
            await gate.wait()
        return function(*args)

    handed_over = 0
    made = [await sample(number) for number in range(30)]

    async def send(writer: LogWriter) -> None:
        nonlocal handed_over
        for one in made:
            await writer.send(one)
            handed_over += 1

    async with (
        open_log_writer(log_path, spec=spec, plan=EvalPlan(), buffer=4, run_in_thread=slow) as writer,
        anyio.create_task_group() as group,
    ):
        group.start_soon(send, writer)
        await anyio.sleep(5)
        assert handed_over <= 4 + 4, "what the channel holds, and one batch in the thread"
        gate.set()
    assert len(read_eval_log(log_path).samples or []) == 30


async def test_flush_returns_when_all_is_durable(log_path: Path, spec: EvalSpec, sample: Made, disk: Made) -> None:
    done: list[tuple[float, Any]] = []
    async with (
        open_log_writer(log_path, spec=spec, plan=EvalPlan(), run_in_thread=inline, storage=disk()) as writer,
        anyio.create_task_group() as group,
    ):
        group.start_soon(acknowledged, writer, done)
        for number in range(5):
            await writer.send(await sample(number))
        began = anyio.current_time()
        await writer.flush()
        assert anyio.current_time() == began
        await anyio.sleep(0)
        assert len(done) == 5
        group.cancel_scope.cancel()


async def test_a_block_that_fails_leaves_what_was_sent(log_path: Path, spec: EvalSpec, sample: Made) -> None:
    with pytest.raises(ZeroDivisionError):
        async with open_log_writer(log_path, spec=spec, plan=EvalPlan()) as writer:
            for number in range(5):
                await writer.send(await sample(number))
            raise ZeroDivisionError
    assert len(read_eval_log(log_path).samples or []) == 5
    assert not wal_path(log_path).exists()


async def test_a_cancelled_block_leaves_what_was_sent_and_can_be_finished(
    log_path: Path, spec: EvalSpec, finished: EvalLog, sample: Made
) -> None:
    for finish in (False, True):
        path = log_path.with_name(f"{finish}.eval")
        with anyio.move_on_after(1) as scope:
            async with open_log_writer(path, spec=spec, plan=EvalPlan()) as writer:
                try:
                    for number in range(5):
                        await writer.send(await sample(number))
                    await anyio.sleep_forever()
                finally:
                    if finish:
                        finished.status = "cancelled"
                        with anyio.CancelScope(shield=True):
                            await writer.send(await sample(9))
                            await writer.finish(finished)
        assert scope.cancelled_caught
        log = read_eval_log(path)
        assert log.status == ("cancelled" if finish else "started")
        assert len(log.samples or []) == (6 if finish else 5)


async def test_a_full_disk_cancels_the_block_and_keeps_what_was_acknowledged(
    log_path: Path, spec: EvalSpec, sample: Made, disk: Made
) -> None:
    storage = disk(room=6000)
    done: list[tuple[float, Any]] = []
    sent = 0

    async def run() -> None:
        nonlocal sent
        async with open_log_writer(
            log_path, spec=spec, plan=EvalPlan(), run_in_thread=inline, storage=storage
        ) as writer, anyio.create_task_group() as group:  # fmt: skip
            group.start_soon(acknowledged, writer, done)
            for number in range(100):
                await writer.send(await sample(number))
                sent += 1
                await anyio.sleep(0.2)

    with pytest.raises(LogError, match=r"cannot be written: No space left on device; every record .* is kept"):
        await run()
    assert 0 < len(done) <= sent < 100
    storage.room = 10**9
    log_path.write_bytes(storage.files[log_path])
    if wal_path(log_path) in storage.files:
        wal_path(log_path).write_bytes(storage.files[wal_path(log_path)])
    from proctor.log import recover_eval_log

    recover_eval_log(log_path, overwrite=True)
    kept = {(sample.id, sample.epoch) for sample in read_eval_log(log_path).samples or []}
    assert {key for _, key in done} <= kept


async def test_after_a_failure_senders_and_flush_are_told(
    log_path: Path, spec: EvalSpec, finished: EvalLog, sample: Made, disk: Made
) -> None:
    storage = disk(room=2500)
    one = await sample(1)
    with pytest.raises(LogError, match="No space"):
        async with open_log_writer(
            log_path, spec=spec, plan=EvalPlan(), buffer=1, run_in_thread=inline, storage=storage
        ) as writer:
            with anyio.CancelScope(shield=True):
                with pytest.raises(LogError):
                    for _ in range(100):
                        await writer.send(one)
                assert isinstance(writer.failure, LogError)
                for call in (writer.flush(), writer.finish(finished), writer.send(one)):
                    with pytest.raises(LogError, match="No space"):
                        await call
                assert len([message async for message in writer.acknowledgements]) <= 1, "the stream ends"


async def test_senders_who_wait_are_told_of_a_failure(log_path: Path, spec: EvalSpec, sample: Made) -> None:
    gate, told = anyio.Event(), list[int]()

    async def failing(function: Callable[..., Any], *args: Any) -> Any:
        if not log_path.exists():
            return function(*args)
        await gate.wait()
        raise OSError(5, "Input/output error")

    async def send(writer: LogWriter, number: int) -> None:
        one = await sample(number)
        with anyio.CancelScope(shield=True):
            try:
                await writer.send(one)
            except LogError:
                told.append(number)

    with pytest.raises(LogError, match="Input/output error"):
        async with (
            open_log_writer(log_path, spec=spec, plan=EvalPlan(), buffer=2, run_in_thread=failing) as writer,
            anyio.create_task_group() as group,
        ):
            for number in range(10):
                group.start_soon(send, writer, number)
            await anyio.sleep(1)
            assert told == []
            gate.set()
    assert len(told) >= 5


async def test_a_finished_log_takes_nothing_more(
    log_path: Path, spec: EvalSpec, finished: EvalLog, sample: Made
) -> None:
    async with open_log_writer(log_path, spec=spec, plan=EvalPlan()) as writer:
        await writer.finish(finished)
        with pytest.raises(LogError, match="finished"):
            await writer.send(await sample(1))


async def test_a_log_is_resumed_in_the_same_file(
    log_path: Path, spec: EvalSpec, finished: EvalLog, sample: Made
) -> None:
    for attempt in range(3):
        writing = open_log_writer(log_path, spec=spec, plan=EvalPlan(), resume=attempt > 0)
        async with writing as writer:
            assert read_eval_log(log_path, header_only=True).status == "started"
            for number in range(attempt, attempt + 3):
                await writer.send(await sample(number, size=30 + attempt))
            await writer.finish(finished)
        log = read_eval_log(log_path)
        assert log.status == "success"
        assert {made.id: len(str(made.input)) for made in log.samples or []} == {
            number: 30 + min(number, attempt) for number in range(attempt + 3)
        }
        assert len(read_eval_log_sample_summaries(log_path)) == attempt + 3


async def test_odd_ids_do_not_end_the_log(log_path: Path, spec: EvalSpec, finished: EvalLog, sample: Made) -> None:
    ids = ["\ud800", "a\x00b", "", " ", "x" * 5000, "é/..\\", 2**70, -1]
    async with open_log_writer(log_path, spec=spec, plan=EvalPlan()) as writer:
        for id in ids:
            await writer.send(await sample(id))
        await writer.finish(finished)
    found = [made.id for made in read_eval_log(log_path).samples or []]
    assert sorted(map(str, found)) == sorted([r"\ud800", *map(str, ids[1:])])


async def test_a_log_that_exists_is_not_overwritten(log_path: Path, spec: EvalSpec) -> None:
    log_path.write_bytes(b"mine")
    with pytest.raises(LogError, match="cannot be created: File exists"):
        async with open_log_writer(log_path, spec=spec, plan=EvalPlan()):
            pass
    assert log_path.read_bytes() == b"mine"


async def test_a_place_that_cannot_be_written_is_said(tmp_path: Path, spec: EvalSpec) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LogError, match=r"file/x\.eval: the log cannot be created"):
        async with open_log_writer(tmp_path / "file" / "x.eval", spec=spec, plan=EvalPlan()):
            pass


async def test_a_specification_that_readers_refuse_is_refused_before_anything_runs(
    log_path: Path, spec: EvalSpec
) -> None:
    spec.model = 7  # type: ignore[assignment]
    with pytest.raises(LogError, match=r"Expected `str`, got `int` - at `\$.eval.model`"):
        async with open_log_writer(log_path, spec=spec, plan=EvalPlan()):
            pass
    assert not log_path.exists()


async def test_a_header_that_readers_refuse_is_written_without_what_is_wrong(
    log_path: Path, spec: EvalSpec, finished: EvalLog, caplog: pytest.LogCaptureFixture
) -> None:
    assert finished.results is not None
    finished.results.scores[0].metrics["accuracy"].value = None  # type: ignore[assignment]
    async with open_log_writer(log_path, spec=spec, plan=EvalPlan()) as writer:
        await writer.finish(finished)
    log = read_eval_log(log_path)
    assert (log.status, log.results) == ("success", None)
    assert "accuracy" in str(log.metadata["proctor_left_out"])
    assert "left out" in caplog.text


async def test_a_late_commit_makes_records_readable(log_path: Path, spec: EvalSpec, sample: Made) -> None:
    async with open_log_writer(log_path, spec=spec, plan=EvalPlan(), run_in_thread=inline) as writer:
        await anyio.sleep(10)
        for number in range(3):
            await writer.send(await sample(number))
            await anyio.sleep(0.2)
        await anyio.sleep(1.5)
        assert len(read_eval_log(log_path).samples or []) == 3


def test_names_say_when_what_and_which() -> None:
    name = log_file_name("2030-01-01T12:00:00+00:00", "my_task/x", "4NqAb")
    assert name == "2030-01-01T12-00-00-00-00_my-task-x_4NqAb.eval"
    assert parse_name(name) == ("my-task-x", "4NqAb", None)
    assert parse_name(name.replace(".eval", "-scored.eval")) == ("my-task-x", "4NqAb", "-scored")
    assert parse_name("mine.eval") is None
    long = log_file_name("2030-01-01T12:00:00+00:00", "x" * 500, "4NqAb")
    assert len(long) < 255
    assert parse_name(long) == ("x" * 194, "4NqAb", None)


def test_a_pattern_may_name_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_EVAL_LOG_FILE_PATTERN", "{task}_{model}_{id}")
    assert log_file_name("2030-01-01", "t", "i", model="a/b") == "2030-01-01_t_a-b_i.eval"
