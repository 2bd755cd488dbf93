"""Ctrl-C with 500 samples in flight: seconds until the process is gone and its log is whole, against `inspect_ai`.

Each process evaluates samples against a server on loopback that answers after ten minutes; when 500 calls are in flight
it is sent one SIGINT. The log is then opened: it must be whole, its status `cancelled`, with a record of every sample
that had started. Goal: one second.

    python bench/ending.py [--rounds 1] [--in-flight 500] [--no-reference]

The server is a process of its own: `fake_openai.py` from the folder of tools beside the project.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from samples import SERVER, server

LATENCY = 600.0
GOAL = 1.0

OURS = """
import sys
from proctor import Task, eval
from proctor.dataset import MemoryDataset, Sample
from proctor.scorer import includes
count, url, folder, backend = int(sys.argv[1]), *sys.argv[2:5]
task = Task(MemoryDataset([Sample(f"question {n}", target="Default") for n in range(2 * count)]), scorer=includes())
eval(task, "openai-api/bench/m", display="plain", log_dir=folder, async_backend=backend, max_connections=count,
     max_samples=count, model_base_url=url, model_args={"api_key": "k"})
"""
THEIRS = """
import sys
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import includes
count, url, folder = int(sys.argv[1]), *sys.argv[2:4]
task = Task(MemoryDataset([Sample(input=f"question {n}", target="D") for n in range(2 * count)]), scorer=includes())
eval(task, model="openai-api/bench/m", display="plain", log_dir=folder, max_connections=count,
     max_samples=count, model_base_url=url, model_args={"api_key": "k"})
"""


def in_flight(url: str) -> int:
    """Calls that the server has open."""
    with urllib.request.urlopen(url.removesuffix("/v1") + "/stats", timeout=10) as answer:
        return int(json.load(answer)["in_flight"])


def ending(code: str, count: int, url: str, *backend: str) -> tuple[float, str]:
    """Seconds from SIGINT to the end of the process, and what its log says."""
    from inspect_ai.log import list_eval_logs, read_eval_log

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-c", code, str(count), url, folder, *backend]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while in_flight(url) < count:
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                sys.exit(f"the run did not come to {count} calls in flight")
            time.sleep(0.05)
        begun = time.monotonic()
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        took = time.monotonic() - begun
        [found] = list_eval_logs(folder) if any(Path(folder).iterdir()) else [None]
        if found is None:
            return took, "no log"
        try:
            log = read_eval_log(found.name)
        except Exception as error:  # what the reference leaves behind is its own affair
            return took, f"unreadable: {type(error).__name__}"
        return took, f"{log.status}, {len(log.samples or [])} samples"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--in-flight", type=int, default=500)
    parser.add_argument("--no-reference", action="store_true")
    options = parser.parse_args()
    if not SERVER.is_file():
        sys.exit("the model server is not beside the project")
    legs = {"asyncio": (OURS, "asyncio"), "trio": (OURS, "trio")}
    if not options.no_reference:
        legs["inspect_ai"] = (THEIRS,)  # type: ignore[assignment]
    took: dict[str, list[float]] = {name: [] for name in legs}
    said: dict[str, str] = {}
    for _ in range(options.rounds):
        for name, (code, *backend) in legs.items():
            with server(LATENCY) as address:
                assert address is not None
                seconds, said[name] = ending(code, options.in_flight, address, *backend)
            took[name].append(seconds)
    print(f"Ctrl-C with {options.in_flight} in flight, to the end of the process (goal {GOAL:g} s)")
    for name, values in took.items():
        verdict = "" if name == "inspect_ai" else "  PASS" if statistics.median(values) <= GOAL else "  over"
        print(f"  {name:<12}{statistics.median(values):>6.2f} s   log: {said[name]}{verdict}")


if __name__ == "__main__":
    main()
