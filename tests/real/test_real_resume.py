"""Runs that are killed and gone on in, any number of times: nothing finished is lost, none of it is asked again.

The server counts for itself. After each kill the log is recovered in a copy, which says what was finished then; the
next process may send no more requests than are left.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from proctor.log import read_eval_log, recover_eval_log

pytestmark = [pytest.mark.real, pytest.mark.shared, pytest.mark.timeout(300)]

SAMPLES = 60
FULL = bool(os.environ.get("PROCTOR_SOAK")) or os.environ.get("PROCTOR_SIZE") == "full"
KILLS = 40 if FULL else 4
TASK = """
from proctor import Task, task
from proctor.dataset import Sample
from proctor.scorer import includes

@task
def counted(samples=60, word="sample"):
    return Task([Sample(f"{word} {n}", id=f"s{n}", target="Default") for n in range(samples)], scorer=includes())
"""


@contextmanager
def server(shared: Path, *options: str) -> Iterator[str]:
    """The model server as a process; gives its address."""
    command = [sys.executable, str(shared / "tools" / "fake_openai.py"), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", line)
        assert found, f"the server said {line!r}"
        yield f"http://{found[0]}"
    finally:
        process.terminate()
        process.communicate(timeout=10)


def asked(address: str) -> int:
    """Requests that the server has seen."""
    with urllib.request.urlopen(f"{address}/stats", timeout=10) as answer:
        return int(json.load(answer)["requests"])


class Folder:
    """A folder with a task, and processes of the command line that work there."""

    def __init__(self, path: Path, backend: str, address: str) -> None:
        self.path, self.address = path, address
        (path / "counted.py").write_text(TASK)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_", "OPENAI_"))}
        self.environment = kept | {"PROCTOR_ASYNC_BACKEND": backend, "LOCAL_API_KEY": "k"}

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "proctor", *arguments, "--display", "plain"],
            cwd=self.path, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def begin(self, *options: str) -> subprocess.Popen[str]:
        model = ["--model", "openai-api/local/m", "--model-base-url", f"{self.address}/v1", "--max-connections", "6"]
        return self.start("eval", "counted.py", *model, *options)

    def retry(self, *options: str) -> subprocess.Popen[str]:
        return self.start("retry", str(self.log), *options)

    @property
    def log(self) -> Path:
        [path] = (self.path / "logs").glob("*.eval")
        return path

    def finished(self) -> set[Any]:
        """What is finished in the log as the kill left it."""
        copy = self.path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        for path in (self.path / "logs").iterdir():
            shutil.copy(path, copy)
        recovered = recover_eval_log(copy / self.log.name, overwrite=True)
        return {sample.id for sample in read_eval_log(recovered.location).samples or () if sample.error is None}


def kill_at(process: subprocess.Popen[str], folder: Folder, count: int, after: float) -> bool:
    """Kill it when the server has seen so many requests, or after a time; False when it ended by itself."""
    end, hang = time.monotonic() + after, time.monotonic() + 60
    while process.poll() is None:
        seen = asked(folder.address)
        if seen >= count or (after and time.monotonic() > end):
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=30)
            return process.returncode == -signal.SIGKILL
        assert time.monotonic() < hang, "the run does nothing"
        time.sleep(0.005)
    process.communicate(timeout=30)
    return False


def test_no_kill_loses_what_is_finished_or_has_it_asked_again(shared: Path, tmp_path: Path, backend: str) -> None:
    chance = random.Random(f"kills {backend}")
    with server(shared, "--latency", "0.1") as address:
        folder = Folder(tmp_path, backend, address)
        kill_at(folder.begin(), folder, chance.randrange(1, SAMPLES // 2), 0)
        kept = folder.finished()
        for number in range(1, KILLS):
            before = asked(address)
            left = SAMPLES - len(kept)
            count = before + chance.randrange(1, max(2, left // 3)) if number % 2 else before + SAMPLES
            killed = kill_at(folder.retry(), folder, count, chance.uniform(0.2, 2.0) if not number % 2 else 0)
            now = folder.finished()
            assert now >= kept, "a finished sample was lost"
            assert asked(address) - before <= left, "a finished sample was asked again"
            kept = now
            if not killed:
                break
        before = asked(address)
        last = folder.retry()
        said, _ = last.communicate(timeout=120)
        assert last.returncode == 0, said
        assert asked(address) - before == SAMPLES - len(kept)
        assert f"{len(kept)} samples reused without a request" in said
    check_whole(folder)


def check_whole(folder: Folder) -> None:
    log = read_eval_log(folder.log)
    assert log.status == "success"
    assert log.eval.dataset.sample_ids == [f"s{n}" for n in range(SAMPLES)]
    assert Counter(sample.id for sample in log.samples or ()) == Counter(f"s{n}" for n in range(SAMPLES))
    assert log.results is not None
    assert (log.results.total_samples, log.results.completed_samples) == (SAMPLES, SAMPLES)
    assert log.results.scores[0].metrics["accuracy"].value == 1.0
    assert log.reductions is not None
    assert [score.sample_id for score in log.reductions[0].samples] == log.eval.dataset.sample_ids
    assert not list(folder.log.parent.glob("*.wal"))
    read = "import sys; from inspect_ai.log import read_eval_log; print(len(read_eval_log(sys.argv[1]).samples))"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", read, str(folder.log)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == [str(SAMPLES)]


def test_a_set_picks_up_after_a_kill(shared: Path, tmp_path: Path, backend: str) -> None:
    with server(shared, "--latency", "0.1") as address:
        folder = Folder(tmp_path, backend, address)
        folder.environment["LOCAL_BASE_URL"] = f"{address}/v1"
        options = ["eval-set", "counted.py", "--log-dir", "logs", "--max-connections", "6", "--retry-wait", "0.1"]
        options += ["--model", "openai-api/local/m"]
        kill_at(folder.start(*options), folder, 20, 0)
        kept, before = folder.finished(), asked(address)
        again = folder.start(*options)
        said, _ = again.communicate(timeout=120)
        assert again.returncode == 0, said
        assert asked(address) - before == SAMPLES - len(kept)
        check_whole(folder)
        before = asked(address)
        once_more = folder.start(*options)
        said, _ = once_more.communicate(timeout=120)
        assert once_more.returncode == 0, said
        assert asked(address) == before


def test_a_resume_that_is_interrupted_is_resumed(shared: Path, tmp_path: Path, backend: str) -> None:
    with server(shared, "--latency", "0.3") as address:
        folder = Folder(tmp_path, backend, address)
        assert kill_at(folder.begin(), folder, 10, 0)
        kept, before = folder.finished(), asked(address)
        second = folder.retry()
        while asked(address) < before + 8:
            assert second.poll() is None
            time.sleep(0.01)
        second.send_signal(signal.SIGINT)
        said, _ = second.communicate(timeout=60)
        assert second.returncode == 130, said
        log = read_eval_log(folder.log)
        assert log.status == "cancelled"
        now = folder.finished()
        assert now >= kept
        before = asked(address)
        last = folder.retry()
        said, _ = last.communicate(timeout=120)
        assert last.returncode == 0, said
        assert asked(address) - before == SAMPLES - len(now)
        assert "cancelled" in said
    check_whole(folder)


def test_an_interrupted_set_makes_no_further_attempt(shared: Path, tmp_path: Path, backend: str) -> None:
    with server(shared, "--latency", "0.2") as address:
        folder = Folder(tmp_path, backend, address)
        options = ["eval-set", "counted.py", "--log-dir", "logs", "--max-connections", "4", "--retry-wait", "0.01"]
        options += ["--model", "openai-api/local/m", "--model-base-url", f"{address}/v1"]
        process = folder.start(*options)
        while asked(address) < 8:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 130, said
        assert "attempt 2" not in said
        assert read_eval_log(folder.log).status == "cancelled"
        assert asked(address) < SAMPLES
