"""CPU of a tool-calling sample of ten turns, in process, log written: proctor against `inspect_ai`, in one run.

A sample is ten calls of the model, of which nine ask for one tool, and one `includes` scorer. Each figure is the CPU
time of a whole process, less that of the same process with few samples, divided by the difference: what one more
sample costs. Goal: a tenth of `inspect_ai`; aim: a twenty-fifth. Exit code 1 when the goal is missed.

    python bench/tools.py [--rounds 3] [--samples 150] [--reference-samples 40]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile

FEW = 5
GOAL = 10
AIM = 25

TASK = """
import json, resource, sys
from {package} import Task, eval
from {package}.dataset import MemoryDataset, Sample
from {package}.model import ModelOutput, ModelUsage, get_model
from {package}.scorer import includes
from {package}.solver import generate, use_tools
from {package}.tool import tool

@tool
def add():
    async def execute(x: int, y: int) -> int:
        '''Add two numbers.

        Args:
            x: The first number.
            y: The second number.
        '''
        return x + y
    return execute

def answer(input, tools, tool_choice, config):
    turn = sum(message.role == "tool" for message in input)
    if turn < 9:
        output = ModelOutput.for_tool_call("model", "add", {{"x": turn, "y": 1}})
    else:
        output = ModelOutput.from_content("model", "Default")
    output.usage = ModelUsage(input_tokens=12, output_tokens=8, total_tokens=20)
    return output

count, folder = int(sys.argv[1]), sys.argv[2]
task = Task(
    MemoryDataset([Sample(input=f"question {{n}}", target="Default") for n in range(count)]),
    solver=[use_tools(add()), generate()], scorer=includes(),
)
options = dict(async_backend=sys.argv[3]) if sys.argv[3:] else {{}}
model = get_model("mockllm/model", custom_outputs=answer)
[log] = eval(task, model=model, display="none", log_dir=folder, max_connections=10, **options)
assert log.status == "success" and log.results.completed_samples == count, log.error
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps(usage.ru_utime + usage.ru_stime))
"""


def cpu(package: str, count: int, *arguments: str) -> float:
    """CPU seconds of a process that evaluates `count` samples."""
    with tempfile.TemporaryDirectory() as folder:
        code = TASK.format(package=package)
        command = [sys.executable, "-W", "ignore", "-c", code, str(count), folder, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"a run failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def a_sample(package: str, count: int, *arguments: str) -> float:
    """CPU milliseconds that one more sample takes."""
    return (cpu(package, count, *arguments) - cpu(package, FEW, *arguments)) / (count - FEW) * 1000


def main() -> int:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--reference-samples", type=int, default=40)
    options = parser.parse_args()
    figures: dict[str, list[float]] = {"asyncio": [], "trio": [], "reference": []}
    for _ in range(options.rounds):
        for backend in ("asyncio", "trio"):
            figures[backend].append(a_sample("proctor", options.samples, backend))
        figures["reference"].append(a_sample("inspect_ai", options.reference_samples))
    asyncio, trio, reference = (statistics.median(values) for values in figures.values())
    ratio = reference / max(asyncio, trio)
    print(
        f"{'CPU a sample, ms':<18}{'asyncio':>9}{'trio':>9}{'inspect_ai':>12}{'ratio':>8}  goal 1/{GOAL}, aim 1/{AIM}"
    )
    verdict = "PASS" if ratio >= GOAL else "over"
    print(f"{'ten turns':<18}{asyncio:>9.3f}{trio:>9.3f}{reference:>12.2f}{f'1/{ratio:.1f}':>8}  {verdict}")
    return int(ratio < GOAL)


if __name__ == "__main__":
    sys.exit(main())
