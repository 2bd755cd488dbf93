"""Samples in flight: the memory each takes, and how late the loop is while a run goes on with its display and log.

Memory: the peak of a process that holds many samples at once in calls of a mock model, less that of one that holds
few, by the difference. Goals: at most 40 kB a sample (aim 25). Lag: a task beside the run sleeps for 10 ms again and
again; how late it wakes is the lag. Goals: p99 at most 50 ms (aim 20). On a machine that others use, their work is
measured too.

    python bench/flight.py [--few 200] [--many 2200] [--samples 4000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile

MEMORY_GOAL = 40.0  # kB
LAG_GOAL = 50.0  # ms

HELD = """
import json, resource, sys
from proctor import Task, eval
from proctor.dataset import MemoryDataset, Sample
from proctor.scorer import includes
count, folder, backend = int(sys.argv[1]), *sys.argv[2:4]
task = Task(MemoryDataset([Sample(f"question {n}", target="Default") for n in range(4000)]), scorer=includes())
[log] = eval(task, "mock/m", model_args={"latency": 3}, limit=count, display="none", log_dir=folder,
             async_backend=backend, max_connections=count, max_samples=count)
assert log.status == "success", log.error
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))
"""
LAG = """
import json, sys, time
import anyio
from proctor import Task, eval_async
from proctor.dataset import MemoryDataset, Sample
from proctor.scorer import includes
count, folder, backend = int(sys.argv[1]), *sys.argv[2:4]
task = Task(MemoryDataset([Sample(f"question {n}", target="Default") for n in range(count)]), scorer=includes())
lags = []
async def pinger():
    while True:
        due = time.perf_counter() + 0.01
        await anyio.sleep(0.01)
        lags.append(time.perf_counter() - due)
async def main():
    async with anyio.create_task_group() as group:
        group.start_soon(pinger)
        [log] = await eval_async(task, "mock/m", model_args={"latency": 0.05}, display="plain", log_dir=folder,
                                 max_connections=100)
        group.cancel_scope.cancel()
    assert log.status == "success", log.error
anyio.run(main, backend=backend)
lags.sort()
print(json.dumps([lags[len(lags) // 2] * 1e3, lags[int(len(lags) * 0.99)] * 1e3, lags[-1] * 1e3]))
"""


def run(code: str, count: int, backend: str) -> object:
    """What a process prints last, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-W", "ignore", "-c", code, str(count), folder, backend]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"a run failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few", type=int, default=200)
    parser.add_argument("--many", type=int, default=2200)
    parser.add_argument("--samples", type=int, default=4000)
    options = parser.parse_args()
    for backend in ("asyncio", "trio"):
        few, many = (run(HELD, count, backend) for count in (options.few, options.many))
        assert isinstance(few, int)
        assert isinstance(many, int)
        each = (many - few) / (options.many - options.few)
        print(
            f"{backend:<8} {options.many} samples in flight: {each:.1f} kB each (goal {MEMORY_GOAL:g})  "
            f"{'PASS' if each <= MEMORY_GOAL else 'over'}"
        )
    for backend in ("asyncio", "trio"):
        found = run(LAG, options.samples, backend)
        assert isinstance(found, list)
        middle, late, worst = found
        print(
            f"{backend:<8} loop lag: median {middle:.1f} ms, p99 {late:.1f} ms (goal {LAG_GOAL:g}), "
            f"worst {worst:.0f} ms  {'PASS' if late <= LAG_GOAL else 'over'}"
        )


if __name__ == "__main__":
    main()
