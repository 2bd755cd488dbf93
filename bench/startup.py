"""How long it takes until something is there: ``--help`` and the import, of proctor and of Inspect, in one run.

The commands take turns, so that a busy machine is busy for all of them; of each the median counts. Exit code 1 when
``proctor --help`` takes more than a sixth of ``inspect --help``, which is the bound that performance.md sets.

    python bench/startup.py [--rounds N] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

BIN = Path(sys.executable).parent
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "proctor --version": [str(BIN / "proctor"), "--version"],
    "proctor --help": [str(BIN / "proctor"), "--help"],
    "proctor eval --help": [str(BIN / "proctor"), "eval", "--help"],
    "import proctor": [sys.executable, "-c", "import proctor"],
    "from proctor import eval": [sys.executable, "-c", "from proctor import eval"],
    "inspect --help": [str(BIN / "inspect"), "--help"],
    "import inspect_ai": [sys.executable, "-c", "import inspect_ai"],
}
MUST = 1 / 6
AIM = 1 / 10


def seconds(command: list[str]) -> float:
    """Wall clock of one run."""
    before = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - before


def measure(rounds: int) -> dict[str, float]:
    """The median of each command; one round before warms the disk's cache."""
    found: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for round_number in range(rounds + 1):
        for name, command in COMMANDS.items():
            took = seconds(command)
            if round_number:
                found[name].append(took)
    return {name: statistics.median(times) for name, times in found.items()}


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    medians = measure(options.rounds)
    ratios = {
        "help": medians["proctor --help"] / medians["inspect --help"],
        "import": medians["from proctor import eval"] / medians["import inspect_ai"],
    }
    if options.json:
        print(json.dumps({"seconds": medians, "ratios": ratios}, indent=2))
    else:
        for name, took in medians.items():
            print(f"{name:<26}{took * 1000:8.0f} ms")
        print(f"proctor --help is 1/{1 / ratios['help']:.1f} of inspect --help (must be 1/6, aim 1/10)")
        print(f"from proctor import eval is 1/{1 / ratios['import']:.1f} of import inspect_ai")
    return 0 if ratios["help"] <= MUST else 1


if __name__ == "__main__":
    sys.exit(main())
