"""Logs at ``s3://`` with real servers: written, listed, read, gone on in, through outages and kills.

moto answers as S3 does, ranges and preconditions included, but takes any key; rclone checks signatures, but answers
with whole objects. Both are started from an environment of their own, which `.ci/storage` makes.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define, field

pytest.importorskip("obstore", reason="obstore (the extra s3) is not installed")

from proctor import Task, eval, eval_set
from proctor.dataset import Sample, json_dataset
from proctor.errors import LogError
from proctor.log import (
    EvalConfig,
    EvalDataset,
    EvalLog,
    EvalSample,
    EvalSpec,
    list_eval_logs,
    read_eval_log,
    read_eval_log_sample,
    read_eval_log_sample_summaries,
    read_eval_log_samples,
    upload,
    write_eval_log,
)
from proctor.log.bucket import PART, Bucket
from proctor.log.places import S3Place, place_of, working_path
from proctor.scorer import includes
from proctor.solver import Generate, TaskState, solver

SERVERS = Path(os.environ.get("PROCTOR_S3_VENV") or Path(__file__).resolve().parents[2] / ".venv-moto") / "bin"
KEY, SECRET = "AKIDTEST", "a-secret-that-no-log-may-hold"
FOLDER = "s3://bucket/logs/nested"
HANG = 90.0

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not (SERVERS / "moto_server").exists() or not (SERVERS / "rclone").exists(),
        reason="the S3 servers are not installed: .ci/storage",
    ),
]


@define(eq=False)
class Server:
    """An S3 server as a process, which can be stopped and started again at the same port."""

    kind: str
    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        (self.folder / "bucket").mkdir(parents=True, exist_ok=True)
        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        command = [str(SERVERS / "moto_server"), "-H", "127.0.0.1", "-p", str(self.port)]
        if self.kind == "rclone":
            command = [
                str(SERVERS / "rclone"), "--config", os.devnull, "serve", "s3", "--auth-key", f"{KEY},{SECRET}",
                "--addr", f"127.0.0.1:{self.port}", str(self.folder),
            ]  # fmt: skip
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        self._wait()
        if self.kind == "moto":
            urllib.request.urlopen(urllib.request.Request(f"{self.url}/bucket", method="PUT"), timeout=30).close()

    def _wait(self) -> None:
        end = time.monotonic() + HANG
        while True:
            try:
                urllib.request.urlopen(self.url, timeout=5).close()
            except urllib.error.HTTPError:
                return
            except OSError:
                assert time.monotonic() < end, (self.folder / "output").read_text()
                time.sleep(0.05)
            else:
                return

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(30)
            self.process = None


@pytest.fixture(params=["moto", "rclone"])
def server(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server with one bucket, and the environment that names it."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "PROCTOR_", "INSPECT_")):
            monkeypatch.delenv(name)
    made = Server(request.param, tmp_path / "server")
    made.folder.mkdir()
    made.start()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_ENDPOINT_URL", made.url)
    monkeypatch.setenv("PROCTOR_WORK_DIR", str(tmp_path / "work"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("PROCTOR_EVAL_DISPLAY", "none")
    monkeypatch.chdir(tmp_path)
    try:
        yield made
    finally:
        made.stop()


def questions(count: int = 12, name: str = "asked", **options: Any) -> Task:
    return Task(
        dataset=[Sample(id=f"s{n}", input=f"question {n}", target="Default") for n in range(count)],
        scorer=includes(), name=name, **options,
    )  # fmt: skip


def local_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def proctor(folder: Path, *arguments: str, backend: str = "asyncio") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "proctor", *arguments], cwd=folder, env={**os.environ, "PROCTOR_ASYNC_BACKEND": backend},
        capture_output=True, text=True, timeout=HANG, check=False,
    )  # fmt: skip


def wait_for(seen: Any, what: str, running: Any = lambda: True) -> None:
    """Wait until something is seen; what does it must still be running."""
    end = time.monotonic() + HANG
    while not seen():
        assert running(), f"it has ended, and this was not seen: {what}"
        assert time.monotonic() < end, f"not seen: {what}"
        time.sleep(0.02)


def test_a_log_is_written_listed_and_read(server: Server, tmp_path: Path, backend: str) -> None:
    [log] = eval(questions(), model="mockllm/model", log_dir=FOLDER, async_backend=backend.partition("-")[0])
    assert (log.status, len(log.samples or ())) == ("success", 12)
    assert local_files(tmp_path / "work") == []
    [info] = list_eval_logs("s3://bucket/logs")
    assert (info.name, info.task, list_eval_logs(FOLDER, recursive=False)) == (log.location, "asked", [info])
    assert list_eval_logs("s3://bucket/logs", recursive=False) == []
    assert read_eval_log(info, header_only=True).results is not None
    assert read_eval_log_sample(info, "s7").scores is not None
    assert len(read_eval_log_sample_summaries(info)) == len(list(read_eval_log_samples(info))) == 12
    whole = Bucket.open("bucket")
    copy = tmp_path / "copy.eval"
    with copy.open("wb") as out:
        whole.download(place_of(info.name).key, out)  # type: ignore[union-attr]
    assert SECRET.encode() not in copy.read_bytes()
    assert all(SECRET not in json.dumps(str(sample)) for sample in read_eval_log(copy).samples or ())


def test_the_command_line_reads_it_and_inspect_does(server: Server, tmp_path: Path) -> None:
    [log] = eval(questions(), model="mockllm/model", log_dir=FOLDER)
    listed = proctor(tmp_path, "log", "list", "--log-dir", "s3://bucket/logs", "--json")
    assert [row["name"] for row in json.loads(listed.stdout)] == [log.location], listed.stderr
    assert json.loads(proctor(tmp_path, "log", "dump", log.location).stdout)["status"] == "success"
    shown = proctor(tmp_path, "log", "show", log.location)
    assert "accuracy" in shown.stdout, shown.stderr
    to_here = proctor(tmp_path, "log", "convert", FOLDER, "--to", "json", "--output-dir", "here")
    assert to_here.returncode == 0, to_here.stderr
    [converted] = (tmp_path / "here").glob("*.json")
    back = proctor(tmp_path, "log", "convert", "here", "--to", "eval", "--output-dir", "s3://bucket/back")
    assert back.returncode == 0, back.stderr
    again = read_eval_log(f"s3://bucket/back/{converted.stem}.eval")
    assert (again.status, len(again.samples or ())) == ("success", 12)
    code = "from inspect_ai.log import read_eval_log; import sys; log = read_eval_log(sys.argv[1]); "
    code += "print(log.status, len(log.samples), log.samples[3].scores)"
    place = log.location
    if server.kind == "rclone":  # which gives no ranges, and inspect needs them
        place = str(tmp_path / "copy.eval")
        with open(place, "wb") as out:
            Bucket.open("bucket").download(place_of(log.location).key, out)  # type: ignore[union-attr]
    read = subprocess.run(
        [sys.executable, "-c", code, place], capture_output=True, text=True, timeout=HANG, check=False, cwd=tmp_path
    )
    assert read.stdout.startswith("success 12 {'includes'"), read.stderr


def test_a_wrong_key_is_told_before_anything_runs(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str
) -> None:
    if server.kind == "moto":
        pytest.skip("moto takes any key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    with pytest.raises(LogError, match="SignatureDoesNotMatch") as caught:
        eval(questions(), model="mockllm/model", log_dir=FOLDER, async_backend=backend.partition("-")[0])
    assert "another-secret" not in str(caught.value)
    assert local_files(tmp_path / "work") == []


def test_a_missing_bucket_is_told_before_anything_runs(server: Server, tmp_path: Path) -> None:
    said = proctor(tmp_path, "log", "list", "--log-dir", "s3://none/logs")
    assert said.returncode != 0
    assert "NoSuchBucket" in said.stderr
    assert "Traceback" not in said.stderr
    with pytest.raises(LogError, match=r"log_dir s3://none/logs cannot be used: NoSuchBucket"):
        eval(questions(), model="mockllm/model", log_dir="s3://none/logs")


def test_an_outage_in_the_middle_is_survived(
    server: Server, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {"CADENCE": 0.1, "AGAIN": 0.1, "AGAIN_MOST": 0.3, "PATIENCE": 60.0}.items():
        monkeypatch.setattr(upload, name, value)
    reached, go = threading.Event(), threading.Event()

    @solver
    def held() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            if state.sample_id == "s5":
                reached.set()
                while not go.is_set():
                    await anyio.sleep(0.02)
            return await generate(state)

        return solve

    logs: list[Any] = []
    task = questions(solver=held())
    options: dict[str, Any] = {"log_dir": FOLDER, "max_samples": 2, "async_backend": backend.partition("-")[0]}
    thread = threading.Thread(target=lambda: logs.extend(eval(task, model="mockllm/model", **options)))
    said = caplog.text
    thread.start()
    try:
        wait_for(reached.is_set, "the sample that is held", thread.is_alive)
        server.stop()
        wait_for(lambda: "cannot be reached" in caplog.text, "the warning", thread.is_alive)
        assert str(tmp_path / "work") in caplog.text
        server.start()
        wait_for(lambda: "is uploaded again" in caplog.text, "the storage is back", thread.is_alive)
        [info] = list_eval_logs(FOLDER)
        assert read_eval_log(info).status == "started"
        go.set()
        thread.join(HANG)
    finally:
        go.set()
    assert not said
    assert [log.status for log in logs] == ["success"]
    assert len(read_eval_log(list_eval_logs(FOLDER)[0]).samples or ()) == 12
    assert local_files(tmp_path / "work") == []


def test_a_storage_that_stays_away_costs_nothing_but_its_task(
    server: Server, tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last upload of one of two tasks is refused: the other is whole, and what the first has is kept and named."""
    monkeypatch.setattr(upload, "PATIENCE", 1.0)
    put = Bucket.put

    def failing(self: Bucket, key: str, data: Any, size: int) -> str:
        if "_lost_" in key and size > 5_000:  # the first upload, of a log without samples, is let through
            raise OSError(5, "SlowDown: please reduce your request rate")
        return put(self, key, data, size)

    monkeypatch.setattr(Bucket, "put", failing)
    tasks = [questions(name="lost"), questions(name="kept")]
    lost, kept = eval(tasks, model="mockllm/model", log_dir=FOLDER, async_backend=backend.partition("-")[0])
    assert (kept.status, lost.status) == ("success", "error")
    assert len(kept.samples or ()) == len(lost.samples or ()) == 12
    place = place_of(lost.location)
    assert isinstance(place, S3Place)
    assert lost.error is not None
    assert str(working_path(place)) in lost.error.message
    assert read_eval_log(working_path(place)).status == "success"
    monkeypatch.setattr(Bucket, "put", put)
    from proctor.evaluation.retry import eval_retry

    [again] = eval_retry(lost, task=questions(name="lost"), async_backend=backend.partition("-")[0])
    assert (again.status, again.location) == ("success", lost.location)
    assert read_eval_log(again.location, header_only=True).status == "success"
    assert local_files(tmp_path / "work") == []


STEPS = """
import os, signal
from pathlib import Path
from proctor import Task, task
from proctor.dataset import Sample
from proctor.scorer import includes
from proctor.solver import solver

@solver
def step():
    async def solve(state, generate):
        with open("asked", "a") as file:
            file.write(f"{state.sample_id}\\n")
        if state.sample_id == "s15" and not os.path.exists("killed"):
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return await generate(state)
    return solve

@task
def steps():
    return Task([Sample(f"q{n}", id=f"s{n}", target="Default") for n in range(20)], solver=step(), scorer=includes())
"""


WAITS = """
from pathlib import Path
import anyio
from proctor import Task, task
from proctor.dataset import Sample
from proctor.solver import solver

@solver
def wait():
    async def solve(state, generate):
        Path("waiting").touch()
        await anyio.sleep_forever()
    return solve

@task
def waits():
    return Task([Sample("q")], solver=wait())
"""


def test_a_killed_run_is_gone_on_in(server: Server, tmp_path: Path, backend: str) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    options = ("--model", "mockllm/model", "--log-dir", FOLDER, "--max-samples", "1")
    killed = proctor(tmp_path, "eval", "steps.py", *options, backend=backend)
    assert killed.returncode == -9, killed.stderr
    [info] = list_eval_logs(FOLDER)
    assert read_eval_log(info).status == "started"
    recovered = proctor(tmp_path, "log", "recover", info.name)
    assert recovered.returncode == 0, recovered.stderr
    done = {sample.id for sample in read_eval_log(f"{FOLDER}/{Path(info.name).stem}-recovered.eval").samples or ()}
    (tmp_path / "asked").unlink()
    retried = proctor(tmp_path, "retry", info.name, backend=backend)
    assert retried.returncode == 0, retried.stdout + retried.stderr
    asked = set((tmp_path / "asked").read_text().split())
    assert asked == {f"s{n}" for n in range(20)} - done
    log = read_eval_log(info)
    assert (log.status, len(log.samples or ())) == ("success", 20)
    assert local_files(tmp_path / "work") == []


def test_ctrl_c_does_not_wait_for_a_storage_that_hangs(server: Server, tmp_path: Path, backend: str) -> None:
    (tmp_path / "waits.py").write_text(WAITS)
    command = [sys.executable, "-m", "proctor", "eval", "waits.py", "--model", "mockllm/model", "--log-dir", FOLDER]
    run = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PROCTOR_ASYNC_BACKEND": backend.partition("-")[0]},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    try:
        wait_for((tmp_path / "waiting").exists, "the sample that waits", lambda: run.poll() is None)
        assert server.process is not None
        server.process.send_signal(signal.SIGSTOP)
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=45)  # a request alone may take longer than that
    finally:
        run.kill()
        run.wait()
        if server.process is not None:
            server.process.send_signal(signal.SIGCONT)
    assert run.returncode == 130, said
    [kept] = (tmp_path / "work").rglob("*.eval")
    assert str(kept) in said
    assert "Traceback" not in said
    log = read_eval_log(kept)
    assert (log.status, len(log.samples or ())) == ("cancelled", 1)


def test_a_set_goes_on_in_what_the_bucket_has_on_any_machine(server: Server, tmp_path: Path, backend: str) -> None:
    broken = True
    asked: list[Any] = []

    @solver
    def step() -> Any:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            asked.append(state.sample_id)
            if state.sample_id == "s5" and broken:
                raise ValueError("not today")
            return await generate(state)

        return solve

    task = questions(solver=step())
    options: dict[str, Any] = {
        "log_dir": FOLDER, "model": "mockllm/model", "async_backend": backend.partition("-")[0], "fail_on_error": False,
        "retry_attempts": 1,
    }  # fmt: skip
    eval_set(task, **options)
    [info] = list_eval_logs(FOLDER)
    before = read_eval_log(info)
    assert len(before.samples or ()) == 12
    shutil.rmtree(tmp_path / "work")  # another machine
    broken = False
    asked.clear()
    done, [log] = eval_set(task, **{**options, "fail_on_error": True})
    assert done
    assert set(asked) <= {"s5"}
    assert [each.name for each in list_eval_logs(FOLDER)] == [info.name] == [log.location]
    asked.clear()
    done, _ = eval_set(task, **{**options, "fail_on_error": True})
    assert done
    assert not asked
    assert local_files(tmp_path / "work") == []


def test_a_large_log_goes_in_parts(server: Server, tmp_path: Path) -> None:
    chance = random.Random(5)
    many = [EvalSample(id=n, epoch=1, input=chance.randbytes(500_000).hex(), target="t") for n in range(24)]
    spec = EvalSpec(created="2030-01-01", task="large", model="m", dataset=EvalDataset(), config=EvalConfig())
    write_eval_log(EvalLog(status="success", eval=spec, samples=many), f"{FOLDER}/large.eval")
    [info] = list_eval_logs(FOLDER)
    assert info.size > PART
    assert (info.task, read_eval_log_sample(info, 17).input) == ("large", many[17].input)


def test_whole_logs_and_datasets(server: Server, tmp_path: Path) -> None:
    rows = "".join(json.dumps({"input": f"row {n}", "target": "Default"}) + "\n" for n in range(5))
    Bucket.open("bucket").put("data/rows.jsonl", rows.encode(), len(rows))
    dataset = json_dataset("s3://bucket/data/rows.jsonl")
    [log] = eval(
        Task(dataset=dataset, scorer=includes(), name="rows"),
        model="mockllm/model", log_dir=FOLDER, log_format="json", limit=3,
    )  # fmt: skip
    assert log.location.endswith(".json")
    read = read_eval_log(log.location)
    assert [sample.input for sample in read.samples or ()] == ["row 0", "row 1", "row 2"]
    assert read.eval.dataset.location == "s3://bucket/data/rows.jsonl"
    result = write_eval_log(read, "s3://bucket/copies/copy.eval")
    assert result.etag
    assert read_eval_log("s3://bucket/copies/copy.eval").status == "success"
    assert [Path(each.name).suffix for each in list_eval_logs(FOLDER)] == [".json"]
