"""Resuming a large log, in a process of its own: the index alone is read, and little is held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve

from proctor import eval
from proctor.dataset import Sample
from proctor.log import SampleInitEvent, read_eval_log
from proctor.log.evalfile import EvalFile
from proctor.log.recover import reopen
from proctor.log.sample_json import encode_record

pytestmark = [pytest.mark.real, pytest.mark.timeout(3600)]

FULL = os.environ.get("PROCTOR_SIZE") == "full"
SAMPLES = 100_000 if FULL else 5_000
PER_SAMPLE = 2_000
"""Bytes a sample of the log that a resume may hold: 200 MB for 100,000."""
FIXED = 8_000_000
"""Bytes that it may hold besides: modules, a journal."""

CHILD = """
import json, sys, time
from proctor import eval, eval_retry
from proctor.log.logfile import LogFile
from sized import sized, seen

if __name__ == "__main__":
    read = []
    plain = LogFile.content
    LogFile.content = lambda self, name: read.append(name) or plain(self, name)
    what, samples, log = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    began = time.process_time()
    if what == "retry":
        [found] = eval_retry(log, display="none", model="mockllm/model")
    else:
        [found] = eval("sized.py", model="mockllm/model", task_args={"samples": samples}, limit=(samples - 1, samples),
                       display="none", log_dir="other")
    print(json.dumps({"status": found.status, "done": found.results.completed_samples, "memory": seen["memory"],
                      "asked": seen["asked"], "seconds": seen["at"] - began,
                      "samples read": sum(name.startswith("samples/") for name in read)}))
"""
SIZED = """
import sys, time
from pathlib import Path
from proctor import Task, task
from proctor.dataset import MemoryDataset, Sample
from proctor.scorer import includes
from proctor.solver import solver

seen = sys.modules.setdefault("seen by the task", type(sys)("seen")).__dict__
seen.setdefault("asked", 0)

@solver
def noting():
    async def solve(state, generate):
        if not seen["asked"]:
            status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
            seen["memory"], seen["at"] = int(status.split()[0]) * 1024, time.process_time()
        seen["asked"] += 1
        return await generate(state)
    return solve

@task
def sized(samples=10):
    data = [
        Sample(f"question {n}", target="Default", id=n, metadata={"n": n, "text": "x" * 300}) for n in range(samples)
    ]
    return Task(MemoryDataset(data), solver=noting(), scorer=includes())
"""


def grow(path: Path, samples: int) -> None:
    """Fill a log of one sample with all others but the last, as a run that is killed leaves it."""
    [first] = read_eval_log(path).samples or ()
    file: EvalFile = reopen(path, now=0.0)
    now = 0.0
    for n in range(1, samples - 1):
        text = f"question {n}"
        own = Sample(text, target="Default", id=n, metadata={"n": n, "text": "x" * 300})
        init = [evolve(e, sample=own) if isinstance(e, SampleInitEvent) else e for e in first.events]
        file.add(encode_record(evolve(first, id=n, input=text, metadata=own.metadata, events=init, uuid=f"u{n}")))
        if file.sync_due():
            now += 1.0
            file.sync(now)
    file.commit(now + 1)
    file.close()


def child(folder: Path, backend: str, *arguments: str) -> Any:
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_"))}
    done = subprocess.run(
        [sys.executable, "child.py", *arguments], cwd=folder, env=kept | {"PROCTOR_ASYNC_BACKEND": backend},
        capture_output=True, text=True, timeout=1800, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc for the peak of a process's memory")
def test_resuming_a_large_log_reads_its_index_alone(
    tmp_path: Path, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sized.py").write_text(SIZED)
    (tmp_path / "child.py").write_text(CHILD)
    [log] = eval("sized.py", model="mockllm/model", task_args={"samples": SAMPLES}, limit=1, display="none")
    path = Path(log.location)
    grow(path, SAMPLES)
    # The log says limit=1; what it is resumed with is the whole.
    file = reopen(path, now=0.0)
    start = json.loads(read_start(path))
    del start["eval"]["config"]["limit"]
    file.add_member("_journal/start.json", (json.dumps(start).encode(),))
    file.commit(1.0)
    file.close()
    plain = child(tmp_path, backend, "eval", str(SAMPLES), "none")
    found = child(tmp_path, backend, "retry", str(SAMPLES), str(path))
    assert (found["status"], found["done"], found["asked"]) == ("success", SAMPLES, 1)
    assert found["samples read"] == 0
    more = found["memory"] - plain["memory"]
    assert more < PER_SAMPLE * SAMPLES + FIXED, (
        f"{more / 1e6:.1f} MB more, first request after {found['seconds']:.1f} s of processor time"
    )
    print(f"{more / 1e6:.1f} MB more, first request after {found['seconds']:.1f} s of processor time")


def read_start(path: Path) -> bytes:
    from proctor.log.logfile import LogFile

    with LogFile.open(path) as file:
        return file.content("_journal/start.json")
