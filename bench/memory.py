"""Memory of a run over many rows: how much the process grows over a run of one row, at its peak.

Rows of 1 kB are streamed from a JSON lines file under a memory budget; each is one call of a mock model and one score,
and the log is written. The peak is the process's own (VmHWM), at whatever moment it is reached. Goals at 1,000,000 rows
under a budget of 64 MB: growth of at most 200 MB (aim 100), and at most 0.5 kB (aim 0.1) kept a finished sample. With
fewer rows the goal is the budget, 45 MB that any run of some thousand samples takes, and 91 bytes a row, which are
200 MB at full size.

    python bench/memory.py [--rows 100000] [--budget 6] [--ids] [--shuffle] [--trace 10000]

PROCTOR_SIZE=full makes a million rows and 64 MB the default; that takes a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FULL = os.environ.get("PROCTOR_SIZE") == "full"
ROWS, BUDGET = (1_000_000, 64) if FULL else (100_000, 6)


def goal(rows: int, budget: int) -> float:
    """Bytes by which a run may grow."""
    return (budget + 45) * 1e6 + 91 * rows


RUN = """
import json, sys, time
from proctor import Task, eval
from proctor.dataset import json_dataset
from proctor.scorer import includes
from proctor.solver import generate, solver
path, budget, folder, shuffle, trace = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5])

def now(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1]) * 1024

@solver
def tracing():
    seen = 0
    async def solve(state, generate):
        nonlocal seen
        if seen % trace == 0:
            print(f"  {seen:>9,} samples: {now('VmRSS') / 1e6:6.1f} MB now, {now('VmHWM') / 1e6:6.1f} at most",
                  file=sys.stderr, flush=True)
        seen += 1
        return state
    return solve

steps = [tracing(), generate()] if trace else [generate()]
task = Task(json_dataset(path, shuffle=bool(shuffle), seed=1 if shuffle else None), solver=steps, scorer=includes())
[log] = eval(task, "mock/m", display="none", log_dir=folder, max_connections=10, max_dataset_memory=budget)
assert log.status == "success", log.error
print(json.dumps([log.results.completed_samples, now("VmHWM")]))
"""


def write_rows(path: Path, count: int, *, ids: bool) -> None:
    """Rows of 1 kB whose text compresses about as well as prose."""
    chance = random.Random(1)
    words = ["".join(chance.choices("etaoinshrdlu", k=chance.randint(1, 9))) for _ in range(2000)]
    text = " ".join(chance.choices(words, k=200_000))
    with path.open("w") as file:
        for number in range(count):
            at = chance.randrange(len(text) - 1000)
            row = {"input": f"{number}: {text[at : at + 940]}", "target": "Default"}
            file.write(json.dumps({**row, "id": f"row-{number}"} if ids else row) + "\n")


def peak(path: Path, *, budget: int, shuffle: bool, trace: int) -> tuple[int, int, float]:
    """Samples that ran, the peak in bytes, and seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-c",
            RUN,
            str(path),
            str(budget),
            folder,
            str(int(shuffle)),
            str(trace),
        ]
        environment = {**os.environ, "TMPDIR": str(path.parent)}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
    if done.returncode:
        sys.exit("a run failed")
    samples, most = json.loads(done.stdout.splitlines()[-1])
    return samples, most, time.perf_counter() - began


def growth(rows: int, budget: int, *, ids: bool = False, shuffle: bool = False, trace: int = 0) -> tuple[float, float]:
    """By how many bytes a run of so many rows is larger than one of a single row, and its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        one, many = Path(folder) / "one.jsonl", Path(folder) / "many.jsonl"
        write_rows(one, 1, ids=ids)
        write_rows(many, rows, ids=ids)
        _, empty, _ = peak(one, budget=budget, shuffle=shuffle, trace=0)
        samples, most, seconds = peak(many, budget=budget, shuffle=shuffle, trace=trace)
    assert samples == rows
    return most - empty, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--budget", type=int, default=BUDGET, help="MB")
    parser.add_argument("--ids", action="store_true", help="rows with ids of their own")
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--trace", type=int, default=0, help="say the memory every so many samples")
    options = parser.parse_args()
    grown, seconds = growth(
        options.rows, options.budget, ids=options.ids, shuffle=options.shuffle, trace=options.trace
    )  # fmt: skip
    allowed = goal(options.rows, options.budget)
    print(
        f"{options.rows:,} rows under {options.budget} MB: {grown / 1e6:.1f} MB more than one row (goal "
        f"{allowed / 1e6:.0f}), {seconds:.0f} s, {seconds / options.rows * 1e3:.2f} ms a row  "
        f"{'PASS' if grown <= allowed else 'over'}"
    )
    if grown > allowed:
        sys.exit(1)


if __name__ == "__main__":
    main()
