"""The file of a log while it is gone on in: a crash at any byte of that loses nothing, whatever crash came before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.log import evalfile
from proctor.log.archive import directory, find_directory, local_member, unpack
from proctor.log.digests import sample_digest
from proctor.log.evalfile import EvalFile, wal_path
from proctor.log.logfile import LogFile
from proctor.log.recover import reopen
from proctor.log.sample_json import Record, sample_member

LOG = Path("/logs/a.eval")
START = b'{"version":2,"eval":{"created":"x","task":"t","model":"m","dataset":{},"config":{}},"plan":{}}'
AGAIN = START.replace(b'"created":"x"', b'"created":"y"')

Made = Callable[..., Any]
Files = dict[Path, bytearray]


@pytest.fixture(autouse=True, params=["whole", "in pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in pieces":
        for name in ("WRITTEN", "SUMMARY_BYTES", "HELD"):
            monkeypatch.setattr(evalfile, name, 100)


def record(id: int) -> Record:
    own = {"input": f"question {id}", "target": "", "id": id}
    content = {**own, "epoch": 1, "events": [{"event": "sample_init", "sample": own}]}
    summary = {**own, "epoch": 1, "completed": True}
    return Record(
        (id, 1),
        sample_member(id, 1),
        (json.dumps(content).encode(),),
        json.dumps(summary).encode(),
        sample_digest(own),
    )


def first_run(storage: Any, records: int, *, finished: bool) -> None:
    log = EvalFile.create(LOG, START, now=0.0, storage=storage)
    for number in range(records):
        log.add(record(number))
        log.sync(0.3 * number)
    if finished:
        log.finish(b"{}", None, 9.0)
        log.close()


def resume(storage: Any) -> Iterator[set[int]]:
    """Go on, write two records and finish; yields the ids acknowledged so far after each step."""
    log = reopen(LOG, now=0.0, storage=storage, start=AGAIN)
    try:
        done: set[int] = set()
        yield set(done)
        for number in (20, 21):
            log.add(record(number))
            done |= {int(id) for id, _ in log.sync(0.3)}
            yield set(done)
        done |= {int(id) for id, _ in log.finish(b"{}", None, 9.0, without=[("0", 1)])}
        yield set(done)
    finally:
        log.close()


def listed(files: Files) -> dict[str, Any]:
    """The members by name, of several the last."""
    data = bytes(files[LOG])
    found = find_directory(lambda offset, size: data[offset : offset + size], len(data))
    assert found is not None, "the file does not end in a directory"
    return {member.name: member for member in directory(data[found[0] : sum(found)])}


def content(files: Files, member: Any) -> Any:
    data = bytes(files[LOG])
    local = local_member(lambda offset, size: data[offset : offset + size], member.offset)
    assert local is not None
    return json.loads(unpack(member.method, local[1], member.size))


def ids(files: Files) -> set[int]:
    return {int(name[8:].partition("_")[0]) for name in listed(files) if name.startswith("samples/")}


def after_crash(before: Files, operations: list[Any], count: int, cut: int, *, lost: bool) -> Files:
    """The files as a crash in the middle of an operation leaves them."""
    files = {path: bytearray(data) for path, data in before.items()}
    synced = {operation[1]: at for at, operation in enumerate(operations[:count]) if operation[0] == "sync"}
    for at, operation in enumerate(operations[: count + 1]):
        kind, path = operation[0], operation[1]
        if kind == "create":
            files[path] = bytearray()
        elif kind == "remove" and at < count:
            files.pop(path, None)
        elif kind in {"write", "truncate"} and lost and at > synced.get(path, -1):
            continue
        elif kind == "write":
            data = operation[3] if at < count else operation[3][:cut]
            files[path][operation[2] : operation[2] + len(data)] = data
        elif kind == "truncate" and at < count:
            del files[path][operation[2] :]
    return files


@pytest.mark.parametrize("lost", [False, True], ids=["in order", "unsynced writes lost"])
@pytest.mark.parametrize("state", ["killed", "killed in a commit", "finished"])
def test_no_crash_of_a_resume_loses_a_record(disk: Made, state: str, *, lost: bool) -> None:
    first = disk()
    first_run(first, 7, finished=state == "finished")
    before: Files = {path: bytearray(data) for path, data in first.files.items()}
    if state == "killed in a commit":
        del before[LOG][-30:]
    assert (wal_path(LOG) in before) == (state != "finished")
    storage = disk({path: bytearray(data) for path, data in before.items()})
    steps: list[tuple[int, set[int]]] = []
    for acknowledged in resume(storage):
        steps.append((len(storage.operations), acknowledged))
    assert ids(storage.files) == {1, 2, 3, 4, 5, 6, 20, 21}, "what is left out is left out"
    tried = 0
    for count, operation in enumerate(storage.operations):
        size = len(operation[3]) if operation[0] == "write" else 0
        for cut in sorted({0, 1, size // 3, size // 2, size - 1, size} & set(range(size + 1))):
            left = disk(after_crash(before, storage.operations, count, cut, lost=lost))
            done = [acknowledged for at, acknowledged in steps if at <= count]
            reopen(LOG, now=0.0, storage=left).close()
            kept = ids(left.files)
            assert set(range(1, 7)) | (done[-1] if done else set()) <= kept, (count, operation[:3], cut)
            start = content(left.files, listed(left.files)["_journal/start.json"])
            assert start["eval"]["created"] in {"x", "y"}
            check_index(left.files, kept)
            tried += 1
    assert tried > 20


def check_index(files: Files, kept: set[int]) -> None:
    """Every sample has a summary, and beside it the digest of the dataset's sample."""
    found: dict[int, str | None] = {}
    members = listed(files)
    numbers = sorted(int(name[19:-5]) for name in members if name.startswith("_journal/summaries/"))
    assert numbers == list(range(1, len(numbers) + 1))
    for number in numbers:
        summaries = content(files, members[f"_journal/summaries/{number}.json"])
        digests = content(files, members[f"_proctor/digests/{number}.json"])
        found |= {summary["id"]: digest for summary, digest in zip(summaries, digests, strict=True)}
    assert kept <= set(found)
    for id in kept:
        assert found[id] == sample_digest({"input": f"question {id}", "target": "", "id": id})


def test_a_log_cut_at_any_byte_is_gone_on_in(tmp_path: Path) -> None:
    """On a real disk: whatever a crash or a copy left of the file, the index has what is whole."""
    path = tmp_path / "a.eval"
    log = EvalFile.create(path, START, now=0.0)
    for number in range(5):
        log.add(record(number))
        log.commit(float(number))
    log.finish(b"{}", None, 9.0)
    log.close()
    whole = path.read_bytes()
    with LogFile.open(path) as file:
        ends = {
            int(n[8:].partition("_")[0]): m.offset + m.packed for n, m in file.members.items() if n[:8] == "samples/"
        }
        first = file.members["_journal/start.json"]
    for size in range(len(whole), first.offset + first.packed + 60, -11):
        path.write_bytes(whole[:size])
        reopen(path, now=0.0).close()
        files = {LOG: bytearray(path.read_bytes())}
        kept = ids(files)
        assert {id for id, end in ends.items() if end + 60 <= size} <= kept, size
        check_index(files, kept)
