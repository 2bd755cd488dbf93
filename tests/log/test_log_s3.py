"""Logs in a bucket, with a bucket in memory: uploaded whole, seldom, and again after an outage; read in ranges."""

from __future__ import annotations

import errno
import io
import itertools
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import IO, Any

import anyio
import pytest
from attrs import define, field

from proctor.errors import LogError
from proctor.log import EvalLog, read_eval_log, upload
from proctor.log.bucket import Bucket, Changed, NoRanges, Stored
from proctor.log.evalfile import EvalFile
from proctor.log.logfile import Bytes, LogFile
from proctor.log.places import S3Place, place_of, within, working_path
from proctor.log.records import EvalPlan, EvalSpec
from proctor.log.remote import RemoteFile
from proctor.log.storage import LocalStorage
from proctor.log.upload import UploadedLog, snapshot, uploaded
from proctor.log.working import fetched
from proctor.log.writer import open_log_writer

Made = Callable[..., Any]
PLACE = S3Place("bucket", "logs/2030-01-01T00-00-00-00-00_demo_abc.eval")


@define(eq=False)
class MemoryBucket:
    """Objects in memory; `failing` is asked before each put, and its error is raised."""

    failing: Callable[[], OSError | None] = lambda: None
    ranges: bool = True
    objects: dict[str, bytes] = field(factory=dict)
    puts: list[tuple[float, bytes]] = field(factory=list)
    tried: list[float] = field(factory=list)
    fetched: list[int] = field(factory=list)
    versions: dict[str, int] = field(factory=dict)
    clock: Callable[[], float] = lambda: 0.0

    def put(self, key: str, data: bytes | Iterable[bytes], size: int) -> str:
        self.tried.append(self.clock())
        if (error := self.failing()) is not None:
            raise error
        whole = data if isinstance(data, bytes) else b"".join(data)
        assert len(whole) == size
        self.objects[key] = whole
        self.puts.append((self.clock(), whole))
        self.versions[key] = self.versions.get(key, 0) + 1
        return str(self.versions[key])

    def head(self, key: str) -> Stored:
        if key not in self.objects:
            raise FileNotFoundError(errno.ENOENT, "NoSuchKey")
        return Stored(key, len(self.objects[key]), 0.0, str(self.versions.get(key, 0)))

    def read(self, key: str, start: int, end: int, etag: str) -> bytes:
        if not self.ranges:
            raise NoRanges(errno.ENOTSUP, "whole objects only")
        if etag != str(self.versions.get(key, 0)):
            raise Changed(errno.ESTALE, "replaced")
        self.fetched.append(end - start)
        return self.objects[key][start:end]

    def download(self, key: str, into: IO[bytes]) -> str:
        self.head(key)
        self.fetched.append(len(self.objects[key]))
        into.write(self.objects[key])
        return str(self.versions.get(key, 0))

    def list(self, folder: str, *, recursive: bool) -> Iterable[Stored]:
        return [self.head(key) for key in self.objects if key.startswith(folder)]

    def delete(self, key: str) -> None:
        self.objects.pop(key, None)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryBucket:
    """A bucket in memory in the place of every other, and a folder for the local files."""
    made = MemoryBucket()
    monkeypatch.setattr(Bucket, "open", lambda name: made)
    monkeypatch.setenv("PROCTOR_WORK_DIR", str(tmp_path / "work"))
    return made


async def inline(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def opened(bucket: MemoryBucket, spec: EvalSpec, **options: Any) -> Any:
    """A log at `PLACE`; the bucket is told the virtual time."""
    times = [anyio.current_time()]

    async def run(function: Callable[..., Any], *args: Any) -> Any:
        times[0] = anyio.current_time()
        return function(*args)

    bucket.clock = lambda: times[0]
    path = working_path(PLACE)
    inner = partial(open_log_writer, path, spec=spec, plan=EvalPlan(), run_in_thread=inline)
    return _InlineUploads(uploaded(PLACE, path, inner, bucket=bucket, **options), run)


class _InlineUploads:
    """Uploads run in the loop, so that the virtual clock alone says when they are."""

    def __init__(self, block: Any, run: Any) -> None:
        self.block, self.run = block, run

    async def __aenter__(self) -> UploadedLog:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(upload.EngineThreads, "run", lambda _, function, *args: self.run(function, *args))
        try:
            log: UploadedLog = await self.block.__aenter__()
        except BaseException:
            self.patch.undo()
            raise
        return log

    async def __aexit__(self, *error: object) -> Any:
        try:
            return await self.block.__aexit__(*error)
        finally:
            self.patch.undo()


def read(data: bytes) -> EvalLog:
    return read_eval_log(io.BytesIO(data))


def test_a_place_is_named_like_a_path() -> None:
    place = place_of("s3://bucket/a/b.c/log-1.eval")
    assert isinstance(place, S3Place)
    assert (place.bucket, place.name, place.stem, place.suffix) == ("bucket", "log-1.eval", "log-1", ".eval")
    assert str(place.parent / "x.json") == str(place.with_name("x.json")) == "s3://bucket/a/b.c/x.json"
    assert str(place_of("s3://bucket/") / "x") == "s3://bucket/x"
    assert within(place, S3Place("bucket", "a")) == "b.c/log-1.eval"
    assert within(place, place) == "log-1.eval"
    for wrong in ("s3://", "s3:///x"):
        with pytest.raises(LogError, match="a bucket is missing"):
            place_of(wrong)


def test_each_folder_at_each_endpoint_has_local_files_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    here = working_path(PLACE)
    assert working_path(S3Place("bucket", f"other/{PLACE.name}")) != here
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    assert working_path(PLACE) != here


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(LogError, match=r"pip install 'proctor\[s3\]'"):
        read_eval_log("s3://bucket/x.eval")


async def test_the_object_is_there_when_the_log_begins_and_complete_when_it_ends(
    bucket: MemoryBucket, spec: EvalSpec, finished: EvalLog, samples: Made
) -> None:
    made = await samples()
    async with opened(bucket, spec) as log:
        assert read(bucket.objects[PLACE.key]).status == "started"
        for sample in made:
            await log.send(sample)
        await log.finish(finished)
    whole = read(bucket.objects[PLACE.key])
    assert (whole.status, len(whole.samples or ())) == ("success", len(made))
    assert not working_path(PLACE).exists(), "a local file that is uploaded is removed"


async def test_uploads_are_seldom_and_each_is_a_whole_log(
    bucket: MemoryBucket, spec: EvalSpec, finished: EvalLog, samples: Made
) -> None:
    made = await samples()
    async with opened(bucket, spec) as log:
        for number in range(120):
            await log.send(made[number % len(made)])
            await anyio.sleep(0.5)
        await log.finish(finished)
    times = [time for time, _ in bucket.puts]
    assert 5 <= len(times) <= 60 / upload.CADENCE + 2
    pauses = [later - before for before, later in itertools.pairwise(times[:-1])]
    assert min(pauses[1:]) >= upload.CADENCE
    sizes = [len(read(data).samples or ()) for _, data in bucket.puts]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0 < sizes[2]


async def test_a_large_log_is_uploaded_less_often(
    bucket: MemoryBucket, spec: EvalSpec, samples: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload, "RATE", 100)
    made = await samples()
    async with opened(bucket, spec) as log:
        for number in range(20):
            await log.send(made[number % len(made)])
            await anyio.sleep(30)
    sent = sum(len(data) for _, data in bucket.puts[:-2])
    assert len(bucket.puts) > 2
    assert sent <= 100 * 600 + len(bucket.puts[0][1])


async def test_nothing_is_uploaded_while_nothing_changes(bucket: MemoryBucket, spec: EvalSpec) -> None:
    async with opened(bucket, spec):
        await anyio.sleep(1000)
    assert len(bucket.puts) == 1


async def test_an_outage_is_survived(
    bucket: MemoryBucket, spec: EvalSpec, finished: EvalLog, samples: Made, caplog: pytest.LogCaptureFixture
) -> None:
    down = False
    bucket.failing = lambda: OSError(errno.EIO, "the storage cannot be reached") if down else None
    made = await samples()
    async with opened(bucket, spec) as log:
        down = True
        for sample in made:
            await log.send(sample)
            await anyio.sleep(60)
        before = len(bucket.puts)
        tries = [time for time in bucket.tried if time > upload.CADENCE]
        assert len(tries) > 3
        assert max(later - before for before, later in itertools.pairwise(tries)) <= upload.AGAIN_MOST
        down = False
        await anyio.sleep(2 * upload.AGAIN_MOST)
        assert len(bucket.puts) == before + 1
        await log.finish(finished)
    assert read(bucket.objects[PLACE.key]).status == "success"
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2, "the outage is told of once, and its end"
    assert str(working_path(PLACE)) in said[0]


async def test_an_outage_at_the_end_is_waited_for(
    bucket: MemoryBucket, spec: EvalSpec, finished: EvalLog, samples: Made
) -> None:
    until = anyio.current_time() + 200
    made = await samples()
    async with opened(bucket, spec) as log:
        bucket.failing = lambda: OSError(errno.EIO, "down") if bucket.clock() < until else None
        await log.send(made[0])
        await log.finish(finished)
    assert read(bucket.objects[PLACE.key]).status == "success"


async def test_a_storage_that_never_comes_back_leaves_the_local_file_and_names_it(
    bucket: MemoryBucket, spec: EvalSpec, finished: EvalLog, samples: Made
) -> None:
    made = await samples()
    with pytest.raises(LogError) as caught:
        async with opened(bucket, spec) as log:
            bucket.failing = lambda: OSError(errno.EIO, "it is gone")
            for sample in made:
                await log.send(sample)
            await log.finish(finished)
    path = working_path(PLACE)
    assert str(path) in str(caught.value)
    assert "it is gone" in str(caught.value)
    kept = read_eval_log(path)
    assert (kept.status, len(kept.samples or ())) == ("success", len(made))


async def test_an_ending_without_time_names_the_local_file(
    bucket: MemoryBucket, spec: EvalSpec, finished: EvalLog, samples: Made, caplog: pytest.LogCaptureFixture
) -> None:
    made = await samples()
    began = anyio.current_time()
    async with opened(bucket, spec) as log:
        bucket.failing = lambda: OSError(errno.EIO, "down")
        await log.send(made[0])
        with anyio.CancelScope(shield=True, deadline=anyio.current_time() + 5):
            await log.finish(finished)
    assert anyio.current_time() - began <= 6
    assert read_eval_log(working_path(PLACE)).status == "success"
    assert str(working_path(PLACE)) in caplog.records[-1].getMessage()


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "AccessDenied: no")])
async def test_a_refusal_at_the_start_is_final(bucket: MemoryBucket, spec: EvalSpec, error: OSError) -> None:
    bucket.failing = lambda: error
    began = anyio.current_time()
    with pytest.raises(LogError, match="the log cannot be created: AccessDenied"):
        async with opened(bucket, spec):
            pytest.fail("the block was entered")
    assert anyio.current_time() == began
    assert not working_path(PLACE).exists()


async def test_a_log_that_is_gone_on_in_begins_though_the_storage_is_down(
    bucket: MemoryBucket, spec: EvalSpec, finished: EvalLog, samples: Made
) -> None:
    down = True
    bucket.failing = lambda: OSError(errno.EIO, "down") if down else None
    made = await samples()
    async with opened(bucket, spec, fresh=False) as log:
        await log.send(made[0])
        await anyio.sleep(30)
        down = False
        await log.finish(finished)
    assert read(bucket.objects[PLACE.key]).status == "success"


async def test_a_log_that_is_not_finished_is_uploaded_as_it_is(
    bucket: MemoryBucket, spec: EvalSpec, samples: Made
) -> None:
    made = await samples()
    with pytest.raises(ZeroDivisionError):
        async with opened(bucket, spec) as log:
            await log.send(made[0])
            raise ZeroDivisionError
    kept = read(bucket.objects[PLACE.key])
    assert (kept.status, len(kept.samples or ())) == ("started", 1)
    assert working_path(PLACE).exists()


def test_a_snapshot_of_a_commit_half_written_is_not_taken(
    log_path: Path, monkeypatch: pytest.MonkeyPatch, many_members: Made
) -> None:
    many_members(log_path, 5)
    whole = log_path.read_bytes()
    many_members(log_path, 9)
    longer = log_path.read_bytes()
    end, _ = snapshot(Bytes(whole))  # type: ignore[arg-type]
    torn = [longer[:cut] + whole[cut:] for cut in range(end + 1, len(whole), 7)]

    @define(eq=False)
    class Disk:
        """A file that is torn for the first reads, and then whole."""

        states: list[bytes]

        def size(self) -> int:
            if len(self.states) > 1:
                self.states.pop(0)
            return len(self.states[0])

        def read_at(self, offset: int, size: int) -> bytes:
            return self.states[0][offset : offset + size]

    monkeypatch.setattr(upload, "PAUSE", 0.0)
    for state in torn:
        disk: Any = Disk([b"", state, state, longer])
        at, tail = snapshot(disk)
        assert longer[:at] + tail in {whole, longer}


@pytest.fixture
def many_members(spec: EvalSpec) -> Made:
    """Makes a log of so many members; equal calls make equal bytes."""

    def make(path: Path, count: int) -> None:
        path.unlink(missing_ok=True)
        file = EvalFile.create(path, b"{}", now=0.0)
        for number in range(count):
            file.add_member(f"_proctor/{number}.json", (f'{{"number":{number}}}'.encode() * 50,))
            file.commit(0.0)
        file.close()

    return make


def test_reading_one_sample_does_not_read_the_rest(bucket: MemoryBucket, big_log: bytes) -> None:
    bucket.objects[PLACE.key] = big_log
    assert read_eval_log(str(PLACE), header_only=True).status == "success"
    assert sum(bucket.fetched) < len(big_log) / 10
    assert len(bucket.fetched) <= 3
    bucket.fetched.clear()
    from proctor.log import read_eval_log_sample

    assert read_eval_log_sample(str(PLACE), "s7").id == "s7"
    assert sum(bucket.fetched) < len(big_log) / 5


def test_a_storage_without_ranges_is_read_whole_once(bucket: MemoryBucket, big_log: bytes) -> None:
    bucket.objects[PLACE.key], bucket.ranges = big_log, False
    assert len(read_eval_log(str(PLACE)).samples or ()) == 20
    assert bucket.fetched == [len(big_log)]


def test_an_object_that_is_replaced_meanwhile_is_read_as_the_new_one(bucket: MemoryBucket, big_log: bytes) -> None:
    bucket.put(PLACE.key, big_log, len(big_log))
    with LogFile.open(PLACE) as file:
        name = file.find("s7", 1, None)
        bucket.put(PLACE.key, big_log, len(big_log))
        assert isinstance(file.file, RemoteFile)
        file.file._pieces.clear()
        assert file.sample(name, resolve=False).id == "s7"


@pytest.fixture
def big_log(tmp_path: Path) -> bytes:
    """A log of 20 samples that do not compress: some 4 MB."""
    import random

    from proctor.log import EvalConfig, EvalDataset, EvalSample, write_eval_log

    chance = random.Random(7)
    many = [
        EvalSample(id=f"s{number}", epoch=1, input=chance.randbytes(100_000).hex(), target="t") for number in range(20)
    ]
    spec = EvalSpec(created="2030-01-01", task="big", model="m", dataset=EvalDataset(), config=EvalConfig())
    write_eval_log(EvalLog(status="success", eval=spec, samples=many), tmp_path / "big.eval")
    return (tmp_path / "big.eval").read_bytes()


def test_a_local_file_that_has_more_than_the_bucket_is_gone_on_in(bucket: MemoryBucket, many_members: Made) -> None:
    path = working_path(PLACE)
    many_members(path, 3)
    bucket.objects[PLACE.key] = path.read_bytes()
    many_members(path, 8)
    mine = path.read_bytes()
    assert fetched(PLACE) == (path, "")
    assert path.read_bytes() == mine


def test_a_local_file_is_kept_aside_when_the_log_was_gone_on_in_elsewhere(
    bucket: MemoryBucket, many_members: Made
) -> None:
    path = working_path(PLACE)
    many_members(path, 8)
    bucket.objects[PLACE.key] = path.read_bytes()
    many_members(path, 3)
    mine = path.read_bytes()
    found, note = fetched(PLACE)
    assert found.read_bytes() == bucket.objects[PLACE.key]
    aside = path.with_name(f"{path.name}.kept-1")
    assert str(aside) in note
    assert aside.read_bytes() == mine


def test_a_log_that_another_process_writes_is_left_to_it(bucket: MemoryBucket, many_members: Made) -> None:
    path = working_path(PLACE)
    many_members(path, 8)
    bucket.objects[PLACE.key] = path.read_bytes()
    many_members(path, 3)
    file = LocalStorage().open(path, write=True)
    try:
        assert fetched(PLACE) == (path, "")
    finally:
        file.close()


def test_without_a_local_file_the_object_is_copied(bucket: MemoryBucket, many_members: Made, tmp_path: Path) -> None:
    many_members(tmp_path / "x.eval", 3)
    bucket.objects[PLACE.key] = (tmp_path / "x.eval").read_bytes()
    path, note = fetched(PLACE)
    assert (path, note) == (working_path(PLACE), "")
    assert path.read_bytes() == bucket.objects[PLACE.key]
    with pytest.raises(LogError, match="NoSuchKey"):
        fetched(S3Place("bucket", "logs/none.eval"))
