"""The main job on real input: GSM8K with the published answers of four models, from the command line.

The model server is a process that replays them; the logs are opened with `inspect_ai`.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]
MODELS = {"6b-finetuning": 286, "6b-verification": 515, "175b-finetuning": 458, "175b-verification": 742}
"""Correct answers of 1,319, as published: 21.7, 39.0, 34.7 and 56.3 %."""
KEY = "sk-canary-5f1c"

TASK = """
from proctor import Task, task
from proctor.dataset import Sample

@task
def t():
    return Task([Sample("x") for _ in range(5)])
"""
READ_WITH_INSPECT = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_samples, read_eval_log_sample_summaries
from inspect_ai.analysis import evals_df, samples_df
out = {}
for path in sys.argv[2:]:
    log = read_eval_log(path)
    out[log.eval.model] = {
        "status": log.status,
        "samples": len(log.samples),
        # Every reader on one log of the four: each takes the reference some 5 ms a sample.
        "streamed": sum(1 for _ in read_eval_log_samples(path)) if not out else len(log.samples),
        "summaries": len(read_eval_log_sample_summaries(path)),
        "correct": sum(1 for s in log.samples if s.scores["last_answer"].value == "C"),
        "accuracy": log.results.scores[0].metrics["accuracy"].value,
        "events": sorted({e.event for s in log.samples for e in s.events}),
        "spans": sorted({e.type for e in log.samples[0].events if e.event == "span_begin"}),
        "tokens": log.stats.model_usage[log.eval.model].total_tokens,
        "timed": all(s.total_time > 0 and s.working_time <= s.total_time for s in log.samples),
        "base_url": log.eval.model_base_url,
    }
out["rows"] = [len(evals_df(sys.argv[1])), len(samples_df(sys.argv[1]))]
print(json.dumps(out))
"""


@contextmanager
def server(shared: Path, *options: str) -> Iterator[str]:
    """The replaying model server as a process; gives its address."""
    command = [sys.executable, str(shared / "tools" / "fake_openai.py"), "--port", "0", *options]
    command += ["--replay", str(shared / "data" / "gsm8k" / "solutions.jsonl")]
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


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def peaks_of(stats: Any) -> dict[str, int]:
    """The most calls of each model that the server ever had at once."""
    return {name: model["peak"] for name, model in stats["models"].items()}


def evaluate(address: str, shared: Path, logs: Path, backend: str, *options: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_", "OPENAI_"))}
    environment |= {"PROCTOR_ASYNC_BACKEND": backend, "REPLAY_API_KEY": KEY, "REPLAY_BASE_URL": f"{address}/v1"}
    models = ",".join(f"openai-api/replay/{name}" for name in MODELS)
    command = [sys.executable, "-m", "proctor", "eval", str(ROOT / "examples" / "gsm8k.py")]
    command += ["-T", f"data={shared / 'data' / 'gsm8k' / 'test.jsonl'}", "--model", models]
    command += ["--log-dir", str(logs), "--display", "plain", *options]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240, check=False)


def read_with_inspect(logs: Path) -> dict[str, Any]:
    files = [str(path) for path in sorted(logs.glob("*.eval"))]
    command = [sys.executable, "-W", "ignore", "-c", READ_WITH_INSPECT, str(logs), *files]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_four_models_score_exactly_as_published(shared: Path, tmp_path: Path, backend: str) -> None:
    with server(shared, "--latency", "0.02") as address:
        done = evaluate(address, shared, tmp_path, backend, "--max-connections", "10")
        assert done.returncode == 0, done.stdout + done.stderr
        stats = get(f"{address}/stats")
        # 40 answers of 20 ms keep a processor busy: ten of a model are not always out at one instant.
        assert 1 < max(peaks_of(stats).values()) <= 10
    assert stats["requests"] == stats["ok"] == 4 * 1319
    assert stats["repeated"] == 0
    found = read_with_inspect(tmp_path)
    assert found.pop("rows") == [4, 4 * 1319]
    assert len(found) == 4
    for name, correct in MODELS.items():
        log = found[f"openai-api/replay/{name}"]
        assert (log["status"], log["samples"], log["streamed"], log["summaries"]) == ("success", 1319, 1319, 1319)
        assert log["correct"] == correct
        assert log["accuracy"] == pytest.approx(correct / 1319)
        assert f"{correct / 1319:.3f}" in done.stdout.rpartition("\ntask ")[2]
        assert set(log["events"]) == {"sample_init", "model", "score", "span_begin", "span_end"}
        assert {"init", "solvers", "scorers", "solver", "scorer"} <= set(log["spans"])
        assert log["tokens"] == 1319 * 20
        assert log["timed"]
        assert log["base_url"] == f"{address}/v1"
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize("connections", [10, 40])
def test_connections_are_used_to_their_limit(shared: Path, tmp_path: Path, backend: str, connections: int) -> None:
    # Answers slow enough that a slow machine, too, has all its connections out before the first comes back.
    with server(shared, "--latency", "1") as address:
        options = ("--max-connections", str(connections), "--limit", "300" if connections == 40 else "60")
        done = evaluate(address, shared, tmp_path, backend, *options)
        assert done.returncode == 0, done.stdout + done.stderr
        stats = get(f"{address}/stats")
    assert stats["requests"] == 4 * (300 if connections == 40 else 60)
    assert peaks_of(stats) == dict.fromkeys(MODELS, connections)


@pytest.fixture
def failing() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `proctor eval` on mistakes; gives what it said."""

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_", "OPENAI_"))}
        command = [sys.executable, "-m", "proctor", "eval", *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=clean | environment, timeout=100, check=False
        )

    return run


def test_a_server_that_is_down_is_one_message_and_a_whole_log(tmp_path: Path, failing: Any, backend: str) -> None:
    file = tmp_path / "t.py"
    file.write_text(TASK)
    done = failing(
        str(file), "--model", "openai-api/local/m", "--model-base-url", "http://127.0.0.1:9/v1", "-M", f"api_key={KEY}",
        "--log-dir", str(tmp_path / "logs"), "--display", "plain", PROCTOR_ASYNC_BACKEND=backend,
    )  # fmt: skip
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "127.0.0.1:9" in said
    assert "Traceback" not in said
    [log] = (tmp_path / "logs").glob("*.eval")
    assert not list((tmp_path / "logs").glob("*.wal"))
    from proctor.log import read_eval_log

    read = read_eval_log(str(log))
    assert read.status == "error"
    assert "127.0.0.1:9" in read.error.message
    assert KEY.encode() not in log.read_bytes()
