"""Reading, listing and writing whole logs."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import LogError
from proctor.log import (
    EvalLog,
    list_eval_logs,
    list_eval_logs_async,
    read_eval_log,
    read_eval_log_async,
    read_eval_log_sample,
    read_eval_log_sample_async,
    read_eval_log_sample_summaries,
    read_eval_log_sample_summaries_async,
    read_eval_log_samples,
    read_eval_log_samples_async,
    recover_eval_log,
    write_eval_log,
    write_eval_log_async,
)
from proctor.log.build import build
from proctor.log.encode import encode
from proctor.log.evalfile import EvalFile
from proctor.log.logfile import LogFile
from proctor.log.records import EvalConfig, EvalResults, EvalSample, EvalSpec, LogStart
from proctor.log.resolve import prepared
from proctor.log.sample_json import encode_record

Made = Callable[..., Any]


@pytest.fixture
def whole(finished: EvalLog, samples: Made, log_path: Path) -> EvalLog:
    """A log of the realistic set, written to `log_path`."""
    finished.samples = anyio.run(samples)
    write_eval_log(finished, log_path)
    return finished


def test_only_what_is_asked_for_is_read(whole: EvalLog, log_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    content = LogFile._content
    monkeypatch.setattr(LogFile, "_content", lambda self, member: read.append(member.name) or content(self, member))
    assert read_eval_log(log_path, header_only=True).samples is None
    assert read == ["header.json", "reductions.json"]
    read.clear()
    assert read_eval_log_sample(log_path, "x_epoch_2", 2).id == "x_epoch_2"
    assert read == ["samples/x_epoch_2_epoch_2.json"]
    read.clear()
    assert len(read_eval_log_sample_summaries(log_path)) == 10
    assert read == ["summaries.json"]
    read.clear()
    assert read_eval_log_sample(log_path, uuid="uuid-1-2").epoch == 2
    assert read == ["summaries.json", "samples/1_epoch_2.json"]


def test_samples_come_in_dataset_order(whole: EvalLog, log_path: Path) -> None:
    found = [(sample.id, sample.epoch) for sample in read_eval_log_samples(log_path)]
    ids = whole.eval.dataset.sample_ids or []
    assert found == [(id, epoch) for id in ids for epoch in (1, 2)]


def test_a_log_that_is_not_complete_is_refused_unless_that_is_wanted(whole: EvalLog, log_path: Path) -> None:
    whole.samples = (whole.samples or [])[:3]
    write_eval_log(whole, log_path)
    with pytest.raises(IndexError, match="the log has no sample '2' in epoch 2"):
        list(read_eval_log_samples(log_path))
    whole.status = "started"
    write_eval_log(whole, log_path)
    with pytest.raises(LogError, match="the log is started; all_samples_required=False"):
        list(read_eval_log_samples(log_path))
    assert len(list(read_eval_log_samples(log_path, all_samples_required=False))) == 3


def test_samples_of_a_log_that_does_not_name_them_come_as_they_are(whole: EvalLog, log_path: Path) -> None:
    whole.eval.dataset.sample_ids = None
    write_eval_log(whole, log_path)
    with pytest.raises(LogError, match="all_samples_required=False"):
        next(iter(read_eval_log_samples(log_path)))
    found = [(s.id, s.epoch) for s in read_eval_log_samples(log_path, all_samples_required=False)]
    assert sorted(found, key=str) == sorted(((s.id, s.epoch) for s in whole.samples or ()), key=str)


def test_what_is_not_there_is_said(whole: EvalLog, log_path: Path, tmp_path: Path) -> None:
    with pytest.raises(IndexError, match="no sample 7 in epoch 1"):
        read_eval_log_sample(log_path, 7)
    with pytest.raises(IndexError, match="no sample with the uuid 'x'"):
        read_eval_log_sample(log_path, uuid="x")
    with pytest.raises(ValueError, match="give the id or the uuid"):
        read_eval_log_sample(log_path)
    with pytest.raises(LogError, match=r"none\.eval: the log cannot be read: No such file"):
        read_eval_log(tmp_path / "none.eval")
    with pytest.raises(LogError, match="logs can be read and written on local paths and at s3"):
        read_eval_log("gs://bucket/x.eval")
    (tmp_path / "text.eval").write_text("hello")
    with pytest.raises(LogError, match=r"does not end in the directory of an \.eval log; proctor log recover"):
        read_eval_log(tmp_path / "text.eval")
    (tmp_path / "text.json").write_text("[1]")
    with pytest.raises(LogError, match="this is no log: it is no JSON object"):
        read_eval_log(tmp_path / "text.json")
    (tmp_path / "part.json").write_text('{"eval": {}}')
    with pytest.raises(LogError, match=r"this is no log: .*created"):
        read_eval_log(tmp_path / "part.json")


@pytest.mark.parametrize("name", ["b.eval", "b.json"])
def test_a_log_is_written_as_it_was_read(whole: EvalLog, log_path: Path, tmp_path: Path, name: str) -> None:
    first = read_eval_log(log_path, resolve_attachments="full")
    write_eval_log(first, tmp_path / name)
    again = read_eval_log(tmp_path / name, resolve_attachments="full")
    assert again.location == str(tmp_path / name)
    assert encode(again) == encode(first)
    header = read_eval_log(tmp_path / name, header_only=True)
    assert header.samples is None
    assert header.status == "success"
    assert read_eval_log_sample(tmp_path / name, "2", 2).uuid == "uuid-2-2"
    assert len(read_eval_log_sample_summaries(tmp_path / name)) == 10
    assert len(list(read_eval_log_samples(tmp_path / name))) == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({log_path.name, name})


def test_open_files_are_read_too(whole: EvalLog, log_path: Path, tmp_path: Path) -> None:
    assert len(read_eval_log(io.BytesIO(log_path.read_bytes())).samples or []) == 10
    write_eval_log(whole, tmp_path / "b.json")
    with (tmp_path / "b.json").open("rb") as file:
        assert len(read_eval_log(file).samples or []) == 10


def test_a_log_that_cannot_be_written_is_left_as_it_was(whole: EvalLog, log_path: Path) -> None:
    before = log_path.read_bytes()
    whole.samples = [None]  # type: ignore[list-item]
    with pytest.raises(AttributeError):
        write_eval_log(whole, log_path)
    assert log_path.read_bytes() == before
    assert [path.name for path in log_path.parent.iterdir()] == [log_path.name]
    with pytest.raises(LogError, match="where should the log be written"):
        write_eval_log(EvalLog(eval=whole.eval))


def test_logs_are_listed_newest_first(whole: EvalLog, log_path: Path) -> None:
    folder = log_path.parent
    (folder / "sub").mkdir()
    shutil.copyfile(log_path, folder / "sub" / "other.eval")
    (folder / "2030-01-01T00-00-00_t_id-scored.json").write_text("{}")
    (folder / "data.json").write_text("{}")
    (folder / ".hidden.eval").write_text("")
    for age, name in enumerate([log_path.name, "sub/other.eval", "2030-01-01T00-00-00_t_id-scored.json"]):
        os.utime(folder / name, (1000 - age, 1000 - age))
    found = list_eval_logs(folder)
    assert [(info.task, info.task_id, info.suffix) for info in found] == [
        ("demo", "taskid", None), ("demo", "taskid", None), ("t", "id", "-scored"),
    ]  # fmt: skip
    assert found[0].name == str(log_path)
    assert found[0].size == log_path.stat().st_size
    assert read_eval_log(found[0], header_only=True).eval.task == "demo"
    assert [Path(i.name).name for i in list_eval_logs(str(folder), descending=False)][-1] == log_path.name
    assert len(list_eval_logs(folder, recursive=False)) == 2
    assert len(list_eval_logs(folder, formats=["eval"])) == 2
    assert len(list_eval_logs(folder, formats=["eval"], filter=lambda log: log.status == "error")) == 0
    assert list_eval_logs(folder / "none") == []


def test_attachments_are_put_back_where_they_belong() -> None:
    record = {
        "input": "attachment://a",
        "messages": [{"role": "user", "content": "attachment://a"}],
        "events": [
            {"event": "model", "input": ["attachment://a"], "call": {"request": {"x": "attachment://b"}}},
            {"event": "info", "data": {"deep": ["attachment://b", "attachment://none"]}},
        ],
        "attachments": {"a": "A", "b": "B"},
    }
    core = prepared(record, True)
    assert core["input"] == core["messages"][0]["content"] == core["events"][0]["input"][0] == "A"
    assert core["events"][1]["data"]["deep"] == ["B", "attachment://none"]
    assert core["events"][0]["call"]["request"]["x"] == "attachment://b"
    assert core["attachments"] == {"b": "B"}
    full = prepared(record, "full")
    assert full["events"][0]["call"]["request"]["x"] == "B"
    assert full["attachments"] == {}
    assert prepared(record)["input"] == "attachment://a"


def test_logs_of_old_versions_are_read() -> None:
    old = {
        "id": 1, "epoch": 1, "input": "?", "target": "", "score": {"value": 1}, "sandbox": ["docker", "c.yaml"],
        "transcript": {"events": [{"event": "step", "action": "begin", "name": "x"}], "content": {"a": "A"}},
    }  # fmt: skip
    sample = build(old, EvalSample)
    assert sample.scores is not None
    assert sample.scores["score"].value == 1
    assert (sample.events[0].event, sample.attachments) == ("step", {"a": "A"})
    assert sample.sandbox is not None
    assert (sample.sandbox.type, sample.sandbox.config) == ("docker", "c.yaml")
    results = build({"scorer": {"name": "match"}, "metrics": {"m": {"name": "m", "value": 1}}}, EvalResults)
    assert results.scores[0].scorer == "match"
    assert results.scores[0].metrics["m"].value == 1
    assert build({"max_messages": 5}, EvalConfig).message_limit == 5


def test_events_of_kinds_that_we_never_make_are_kept(whole: EvalLog, tmp_path: Path) -> None:
    review = {"event": "review", "message": "m", "call": {}, "reviewer": "r", "decision": "continue", "new": [1]}
    sample = build({"id": 1, "epoch": 1, "input": "?", "target": "", "events": [review]}, EvalSample)
    whole.samples = [sample]
    write_eval_log(whole, tmp_path / "b.eval")
    with LogFile.open(tmp_path / "b.eval") as file:
        assert file.json("samples/1_epoch_1.json")["events"] == [review]


def test_a_crashed_log_is_recovered_into_a_copy(log_path: Path, spec: EvalSpec, sample: Made) -> None:
    file = EvalFile.create(log_path, encode(LogStart(eval=spec)), now=0.0)
    for number in range(3):
        file.add(encode_record(anyio.run(sample, number)))
        file.sync(0.1)
    os.close(os.dup(0))  # the process ends here: nothing is closed
    assert len(read_eval_log(log_path).samples or []) == 0
    copy = log_path.parent / "copy" / log_path.name
    copy.parent.mkdir()
    for path in log_path.parent.glob("*.eval*"):
        shutil.copyfile(path, copy.parent / path.name)
    header = recover_eval_log(copy)
    recovered = copy.with_name(f"{copy.stem}-recovered.eval")
    assert (header.status, header.location) == ("started", str(recovered))
    log = read_eval_log(recovered)
    assert [sample.id for sample in log.samples or []] == [0, 1, 2]
    assert len(read_eval_log_sample_summaries(recovered)) == 3
    assert len(read_eval_log(copy).samples or []) == 0
    file.close()


async def test_async_code_reads_without_holding_the_loop(whole: EvalLog, log_path: Path) -> None:
    assert len((await read_eval_log_async(log_path)).samples or []) == 10
    assert (await read_eval_log_sample_async(log_path, 1)).id == 1
    assert len(await read_eval_log_sample_summaries_async(log_path)) == 10
    assert len([sample async for sample in read_eval_log_samples_async(log_path)]) == 10
    assert len(await list_eval_logs_async(log_path.parent)) == 1
    await write_eval_log_async(whole, log_path)


def test_a_read_that_meets_a_commit_is_repeated(
    whole: EvalLog, log_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = log_path.read_bytes()
    log_path.write_bytes(sound[:-50])
    looks = []
    monkeypatch.setattr(
        "proctor.log.logfile.threading.Event",
        lambda: type("Wait", (), {"wait": lambda self, timeout: looks.append(log_path.write_bytes(sound))})(),
    )
    assert read_eval_log(log_path, header_only=True).status == "success"
    assert len(looks) == 1
