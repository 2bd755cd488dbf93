"""The file of a log: whole after a crash at any byte, never damaged by a full disk, small in what it writes twice."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from proctor.errors import LogError
from proctor.log import archive, evalfile
from proctor.log.archive import Packer, directory, find_directory
from proctor.log.evalfile import EvalFile, wal_path
from proctor.log.recover import reopen
from proctor.log.sample_json import Record, sample_member
from proctor.log.storage import LocalStorage

LOG = Path("/logs/a.eval")
START = b'{"version":2,"eval":{"created":"x","task":"t","model":"m","dataset":{},"config":{}},"plan":{}}'

Made = Callable[..., Any]


@pytest.fixture(autouse=True, params=["whole", "in pieces"])
def pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test also as a log that is too large for memory: copied in pieces, directory and long members on disk."""
    if request.param == "in pieces":
        for name in ("WRITTEN", "SUMMARY_BYTES", "HELD"):
            monkeypatch.setattr(evalfile, name, 100)


def record(id: int, size: int = 40) -> Record:
    content = {"id": id, "epoch": 1, "input": "?" * size, "target": ""}
    summary = {**content, "completed": True}
    return Record(
        (id, 1), sample_member(id, 1), (json.dumps(content).encode(),), json.dumps(summary).encode()
    )  # fmt: skip


def names(data: bytes) -> list[str]:
    """The members that the directory at the end of a file lists."""
    found = find_directory(lambda offset, size: bytes(data[offset : offset + size]), len(data))
    assert found is not None, "the file does not end in a directory"
    return [member.name for member in directory(bytes(data[found[0] : sum(found)]))]


def ids(data: bytes) -> set[int]:
    return {int(name[8:].partition("_")[0]) for name in names(data) if name.startswith("samples/")}


def run(storage: Any, *, records: int, seconds: float = 0.4) -> Iterator[set[int]]:
    """Write records, one at a time; yields the ids acknowledged so far after each step."""
    acknowledged: set[int] = set()
    log = EvalFile.create(LOG, START, now=0.0, storage=storage)
    try:
        for number in range(records):
            log.add(record(number))
            if number % 2:
                acknowledged |= {int(id) for id, _ in log.sync(seconds * number)}
            yield set(acknowledged)
        acknowledged |= {int(id) for id, _ in log.finish(b"{}", None, seconds * records)}
        yield set(acknowledged)
    finally:
        log.close()


def test_a_finished_log_is_an_ordinary_archive(disk: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packer, "_zstd", None)  # Python's own module cannot read zstd
    storage = disk()
    *_, acknowledged = run(storage, records=9)
    assert acknowledged == set(range(9))
    assert list(storage.files) == [LOG]
    with zipfile.ZipFile(io.BytesIO(storage.files[LOG])) as found:
        assert found.testzip() is None
        assert found.namelist() == names(storage.files[LOG])
        assert [item["id"] for item in json.loads(found.read("summaries.json"))] == list(range(9))
        journals = [name for name in found.namelist() if name.startswith("_journal/summaries/")]
        assert journals == [f"_journal/summaries/{n}.json" for n in range(1, len(journals) + 1)]


def test_outside_of_a_commit_the_file_ends_in_a_directory(disk: Made) -> None:
    storage = disk()
    for _ in run(storage, records=20):
        assert names(storage.files[LOG])[0] == "_journal/start.json"


def test_a_log_cut_at_any_byte_keeps_every_record_before_the_cut(disk: Made) -> None:
    storage = disk()
    for _ in run(storage, records=6):
        pass
    whole = bytes(storage.files[LOG])
    found = find_directory(lambda offset, size: whole[offset : offset + size], len(whole))
    assert found is not None
    members = list(directory(whole[found[0] : sum(found)]))
    ends = {member.name: member.offset + 30 + len(member.name) + member.packed for member in members}
    for cut in range(len(whole)):
        left = disk({LOG: bytearray(whole[:cut])})
        expected = {name for name, end in ends.items() if end <= cut}
        if "_journal/start.json" not in expected:
            with pytest.raises(LogError, match="nothing can be recovered"):
                reopen(LOG, now=0.0, storage=left)
            continue
        reopen(LOG, now=0.0, storage=left).close()
        found_names = set(names(left.files[LOG]))
        kept = {name for name in expected if name.startswith(("samples/", "_journal/start"))}
        assert kept <= found_names
        assert not found_names & {"header.json", "summaries.json"}
        assert summaries(left.files[LOG]) == {f"{id}" for id in ids(left.files[LOG])}


def summaries(data: bytes) -> set[str]:
    """The samples that the journals of a log's file summarise."""
    items: list[dict[str, Any]] = []
    found = find_directory(lambda offset, size: bytes(data[offset : offset + size]), len(data))
    assert found is not None
    for member in directory(bytes(data[found[0] : sum(found)])):
        if member.name.startswith("_journal/summaries/"):
            local = archive.local_member(lambda offset, size: bytes(data[offset : offset + size]), member.offset)
            assert local is not None
            items += json.loads(archive.unpack(member.method, local[1], member.size))
    return {str(item["id"]) for item in items}


@pytest.mark.parametrize("lost", [False, True], ids=["in order", "unsynced writes lost"])
def test_no_crash_loses_an_acknowledged_record(disk: Made, *, lost: bool) -> None:
    storage = disk()
    acknowledged_at: list[tuple[int, set[int]]] = []
    for acknowledged in run(storage, records=14):
        acknowledged_at.append((len(storage.operations), acknowledged))
    for count, operation in enumerate(storage.operations):
        size = len(operation[3]) if operation[0] == "write" else 0
        for cut in sorted({0, 1, size // 3, size // 2, size - 1, size} & set(range(size + 1))):
            left = disk(after_crash(storage.operations, count, cut, lost=lost))
            done = [acknowledged for at, acknowledged in acknowledged_at if at <= count]
            if not done:
                continue
            reopen(LOG, now=0.0, storage=left).close()
            assert done[-1] <= ids(left.files[LOG]), (count, operation[:3], cut)
            assert summaries(left.files[LOG]) >= {str(id) for id in done[-1]}
            assert wal_path(LOG) not in left.files


def after_crash(operations: list[Any], count: int, cut: int, *, lost: bool) -> dict[Path, bytearray]:
    """The files as a crash in the middle of an operation leaves them."""
    files: dict[Path, bytearray] = {}
    last_sync = {op[1]: at for at, op in enumerate(operations[:count]) if op[0] == "sync"}
    for at, operation in enumerate(operations[: count + 1]):
        kind, path = operation[0], operation[1]
        if kind == "create":
            files[path] = bytearray()
        elif kind == "remove" and at < count:
            files.pop(path, None)
        elif kind in {"write", "truncate"} and lost and at > last_sync.get(path, -1):
            continue
        elif kind == "write":
            data = operation[3] if at < count else operation[3][:cut]
            files[path][operation[2] : operation[2] + len(data)] = data
        elif kind == "truncate" and at < count:
            del files[path][operation[2] :]
    return files


def test_a_full_disk_damages_nothing(disk: Made) -> None:
    unbounded = disk()
    for _ in run(unbounded, records=12):
        pass
    failures = 0
    for room in range(250, unbounded.written, 7):
        storage = disk(room=room)
        acknowledged: set[int] = set()
        try:
            for acknowledged in run(storage, records=12):  # noqa: B007
                pass
        except OSError:
            failures += 1
        else:
            break
        if LOG not in storage.files:
            continue  # not even the first record had room: nothing was begun
        assert names(storage.files[LOG]), "the old directory was put back"
        storage.room = 10**9
        reopen(LOG, now=0.0, storage=storage).close()
        assert acknowledged <= ids(storage.files[LOG])
    assert failures > 20


def test_a_log_that_cannot_be_begun_leaves_no_file(disk: Made) -> None:
    storage = disk(room=100)
    with pytest.raises(OSError, match="No space"):
        EvalFile.create(LOG, START, now=0.0, storage=storage)
    assert storage.files == {}


@pytest.mark.parametrize("seconds", [0.0001, 0.001, 0.05])
def test_little_is_written_twice(disk: Made, seconds: float) -> None:
    storage = disk()
    log = EvalFile.create(LOG, START, now=0.0, storage=storage)
    for number in range(3000):
        log.add(record(number))
        if number % max(1, int(0.1 / seconds)) == 0:
            log.sync(seconds * number)
    log.finish(b"{}", None, seconds * 3000)
    assert storage.written < 4 * len(storage.files[LOG]) + 200_000 * seconds * 3000


def test_a_log_goes_on_where_it_was(disk: Made) -> None:
    storage = disk()
    for _ in run(storage, records=5):
        pass
    for start in (5, 7):
        log = reopen(LOG, now=0.0, storage=storage)
        assert "header.json" not in names(storage.files[LOG])
        log.add(record(start))
        log.add(record(2, size=99))  # run again: it replaces the first
        log.sync(0.1)
        log.finish(b"{}", None, 9.0)
        log.close()
    data = bytes(storage.files[LOG])
    assert sorted(names(data)) == sorted(set(names(data)))
    assert ids(data) == {0, 1, 2, 3, 4, 5, 7}
    member = next(m for m in members(data) if m.name == "summaries.json")
    local = archive.local_member(lambda offset, size: data[offset : offset + size], member.offset)
    assert local is not None
    found = {item["id"]: item for item in json.loads(archive.unpack(member.method, local[1], member.size))}
    assert sorted(found) == [0, 1, 2, 3, 4, 5, 7]
    assert len(found[2]["input"]) == 99


def members(data: bytes) -> list[archive.Member]:
    found = find_directory(lambda offset, size: data[offset : offset + size], len(data))
    assert found is not None
    return list(directory(data[found[0] : sum(found)]))


def test_two_writers_of_one_log_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.eval"
    first = EvalFile.create(path, START, now=0.0, storage=LocalStorage())
    with pytest.raises(LogError, match="another process is writing"):
        reopen(path, now=0.0)
    first.close()
    reopen(path, now=0.0).close()


def test_a_torn_commit_is_replayed_from_the_wal(disk: Made) -> None:
    storage = disk()
    log = EvalFile.create(LOG, START, now=0.0, storage=storage)
    log.add(record(1))
    assert log.sync(0.1) == [(1, 1)]
    assert wal_path(LOG) in storage.files
    end = len(storage.files[LOG])
    storage.files[LOG][end - 80 :] = b"\x00" * 130
    reopen(LOG, now=0.0, storage=storage).close()
    assert ids(storage.files[LOG]) == {1}


def test_a_wal_whose_records_are_in_the_log_already_adds_nothing(disk: Made) -> None:
    storage = disk()
    log = EvalFile.create(LOG, START, now=0.0, storage=storage)
    log.add(record(1))
    log.sync(0.1)
    wal = bytes(storage.files[wal_path(LOG)])
    log.commit(5.0)
    before = bytes(storage.files[LOG])
    storage.files[wal_path(LOG)][:] = wal  # the crash was before it was emptied
    reopen(LOG, now=0.0, storage=storage).close()
    assert bytes(storage.files[LOG]) == before


@pytest.mark.parametrize("count", [3, 70_001])
def test_logs_of_any_size_have_a_directory(count: int) -> None:
    entries = b"".join(archive.entry(f"samples/{n}_epoch_1.json", 0, 0, 1, 1, n) for n in range(count))
    data = bytes(100) + entries + archive.end_record(count, len(entries), 100)
    found = find_directory(lambda offset, size: data[offset : offset + size], len(data))
    assert found == (100, len(entries))
    assert sum(1 for _ in directory(data[100 : 100 + len(entries)])) == count
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        assert len(opened.namelist()) == count


def test_offsets_over_four_gigabytes_are_kept() -> None:
    (member,) = directory(archive.entry("a", 93, 1, 2, 3, 5 * 2**30))
    assert (member.packed, member.size, member.offset) == (2, 3, 5 * 2**30)
    end = archive.end_record(1, 10, 5 * 2**30)
    base = 5 * 2**30 + 10
    found = find_directory(lambda offset, size: end[max(0, offset - base) :][:size], base + len(end))
    assert found == (5 * 2**30, 10)


def test_large_members_are_split_into_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "FRAME", 1000)
    parts = (b"a" * 700, b"b" * 700, b"c" * 2500)
    data, _ = Packer().record("x", parts, 0)
    assert data.count(b"\x28\xb5\x2f\xfd") >= 4
    found = archive.local_member(lambda offset, size: data[offset : offset + size], 0)
    assert found is not None
    assert archive.unpack(found[0].method, found[1], found[0].size) == b"".join(parts)


def test_a_record_with_one_wrong_byte_is_not_taken(disk: Made) -> None:
    data, _ = Packer().record("samples/1_epoch_1.json", (b"content " * 50,), 0)
    for place in (0, 14, len(data) - 3):
        wrong = bytearray(data)
        wrong[place] ^= 0xFF
        assert archive.local_member(lambda offset, size, w=wrong: bytes(w[offset : offset + size]), 0) is None
