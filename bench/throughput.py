"""Samples a second against connections, over HTTP with answers of 100 ms: what more bring, and that they never cost.

A sample is one call of a model server on loopback and one `includes` scorer, its log is written. Each figure is the
rate of the whole call of `eval`, start and end included, so its ideal (connections / latency) is approached by longer
runs only. Goals: at 100 connections 850 samples a second, at 1,000 connections 900, and from 32 to 1,000 connections
the rate never falls by more than 15 %. `inspect_ai` runs in the same round, at 100 connections.

    python bench/throughput.py [--rounds 1] [--seconds 5] [--connections 32,100,128,512,1000] [--no-reference]

The server is a process of its own: `fake_openai.py` from the folder of tools beside the project.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

from samples import SERVER, server

LATENCY = 0.1
FALL = 0.15
GOALS = {100: 850.0, 1000: 900.0}
CAPACITY = 1500
"""Samples a second that a processor is taken to do at most, for the size of a run."""

OURS = """
import json, resource, sys, time
from proctor import Task, eval
from proctor.dataset import MemoryDataset, Sample
from proctor.scorer import includes
count, connections, url, folder, backend = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6]
task = Task(MemoryDataset([Sample(f"question {n}", target="Default") for n in range(count)]), scorer=includes())
begun = time.perf_counter()
[log] = eval(task, "openai-api/bench/m", display="none", log_dir=folder, async_backend=backend,
             max_connections=connections, model_base_url=url, model_args={"api_key": "k"})
took = time.perf_counter() - begun
assert log.status == "success" and log.results.completed_samples == count, log.error
print(json.dumps([count / took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""
THEIRS = """
import json, resource, sys, time
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import includes
count, connections, url, folder = int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5]
task = Task(MemoryDataset([Sample(input=f"question {n}", target="Default") for n in range(count)]), scorer=includes())
begun = time.perf_counter()
[log] = eval(task, model="openai-api/bench/m", display="none", log_dir=folder, max_connections=connections,
             max_samples=connections, model_base_url=url, model_args={"api_key": "k"})
took = time.perf_counter() - begun
assert log.status == "success", log.error
print(json.dumps([count / took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def rate(code: str, count: int, connections: int, url: str, *backend: str) -> tuple[float, float]:
    """Samples a second, and the peak of memory in MB, of a process that evaluates `count` samples."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-c", code, str(count), str(connections), url, folder, *backend]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"a run failed:\n{done.stderr[-2000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return float(found[0]), float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", default="32,100,128,512,1000")
    parser.add_argument("--no-reference", action="store_true")
    options = parser.parse_args()
    if not SERVER.is_file():
        sys.exit("the model server is not beside the project")
    steps = [int(each) for each in options.connections.split(",")]
    figures: dict[tuple[str, int], list[float]] = {}
    reference: list[float] = []
    with server(LATENCY) as url:
        assert url is not None
        for _ in range(options.rounds):
            for connections in steps:
                count = int(min(connections / LATENCY, CAPACITY) * options.seconds)
                for backend in ("asyncio", "trio"):
                    found, memory = rate(OURS, count, connections, url, backend)
                    figures.setdefault((backend, connections), []).append(found)
                    print(f"  {backend:<8}{connections:>6} connections {found:>8.0f}/s {memory:>7.0f} MB", flush=True)
            if not options.no_reference:
                reference.append(rate(THEIRS, 300, 100, url)[0])
    print(f"{'connections':<12}{'ideal':>8}{'asyncio':>9}{'trio':>8}   goal")
    best = {"asyncio": 0.0, "trio": 0.0}
    for connections in steps:
        rates = {backend: statistics.median(figures[backend, connections]) for backend in best}
        falls = [backend for backend in best if rates[backend] < best[backend] * (1 - FALL)]
        wanted = GOALS.get(connections)
        says = "" if wanted is None else f"{wanted:.0f}: {'PASS' if min(rates.values()) >= wanted else 'under'}"
        says += f"  fell on {', '.join(falls)}" if falls else "  not falling"
        print(f"{connections:<12}{connections / LATENCY:>8.0f}{rates['asyncio']:>9.0f}{rates['trio']:>8.0f}   {says}")
        best = {backend: max(best[backend], rates[backend]) for backend in best}
    if reference:
        print(f"inspect_ai at 100 connections: {statistics.median(reference):.0f} samples/s")


if __name__ == "__main__":
    main()
