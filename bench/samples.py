"""CPU of a trivial sample, log written: proctor against `inspect_ai`, in one interleaved run.

A sample is one call of the model and one `includes` scorer. Each figure is the CPU time of a whole process, less that
of the same process with few samples, divided by the difference: what one more sample costs. Goals: a fifteenth of
`inspect_ai`, in process and over HTTP on loopback.

    python bench/samples.py [--rounds 3] [--samples 1000] [--reference-samples 150]

The server is a process of its own: `fake_openai.py` from the folder of tools beside the project; without it the HTTP
rows are left out.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SERVER = ROOT.parent / "shared" / "tools" / "fake_openai.py"
FEW = 20
GOAL = 15

OURS = """
import json, resource, sys
from proctor import Task, eval
from proctor.dataset import MemoryDataset, Sample
from proctor.scorer import includes
count, model, url, folder, backend = int(sys.argv[1]), *sys.argv[2:6]
options = dict(model_base_url=url, model_args={"api_key": "k"}) if url else {}
task = Task(MemoryDataset([Sample(f"question {n}", target="Default") for n in range(count)]), scorer=includes())
[log] = eval(task, model, display="none", log_dir=folder, async_backend=backend, max_connections=10, **options)
assert log.status == "success" and log.results.completed_samples == count, log.error
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps(usage.ru_utime + usage.ru_stime))
"""
THEIRS = """
import json, resource, sys
from inspect_ai import Task, eval
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import includes
count, model, url, folder = int(sys.argv[1]), *sys.argv[2:5]
options = dict(model_base_url=url, model_args={"api_key": "k"}) if url else {}
if not url:  # usage given, so that no tokenizer is fetched
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    def outputs():
        while True:
            output = ModelOutput.from_content("model", "Default")
            output.usage = ModelUsage(input_tokens=12, output_tokens=8, total_tokens=20)
            yield output
    model = get_model(model, custom_outputs=outputs())
task = Task(MemoryDataset([Sample(input=f"question {n}", target="Default") for n in range(count)]), scorer=includes())
[log] = eval(task, model=model, display="none", log_dir=folder, max_connections=10, **options)
assert log.status == "success", log.error
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps(usage.ru_utime + usage.ru_stime))
"""


def cpu(code: str, count: int, *arguments: str) -> float:
    """CPU seconds of a process that evaluates `count` samples."""
    with tempfile.TemporaryDirectory() as folder:
        model, url, *rest = arguments
        command = [sys.executable, "-W", "ignore", "-c", code, str(count), model, url, folder, *rest]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        sys.exit(f"a run failed:\n{done.stderr[-2000:]}")
    return float(json.loads(done.stdout.splitlines()[-1]))


def a_sample(code: str, count: int, *arguments: str) -> float:
    """CPU milliseconds that one more sample takes."""
    return (cpu(code, count, *arguments) - cpu(code, FEW, *arguments)) / (count - FEW) * 1000


@contextmanager
def server(latency: float = 0.0) -> Iterator[str | None]:
    if not SERVER.is_file():
        yield None
        return
    command = [sys.executable, str(SERVER), "--port", "0", "--latency", str(latency)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        yield found[0]
    finally:
        process.terminate()
        process.communicate(timeout=10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--reference-samples", type=int, default=150)
    options = parser.parse_args()
    with server() as url:
        legs = {"in process": ("mock/m", "mockllm/model", "")}
        if url:
            legs["over HTTP"] = ("openai-api/bench/m", "openai-api/bench/m", url)
        print(f"{'CPU a sample, ms':<18}{'asyncio':>9}{'trio':>9}{'inspect_ai':>12}{'ratio':>8}  goal 1/{GOAL}")
        for name, (ours, theirs, address) in legs.items():
            figures: dict[str, list[float]] = {"asyncio": [], "trio": [], "reference": []}
            for _ in range(options.rounds):
                for backend in ("asyncio", "trio"):
                    figures[backend].append(a_sample(OURS, options.samples, ours, address, backend))
                figures["reference"].append(a_sample(THEIRS, options.reference_samples, theirs, address))
            asyncio, trio, reference = (statistics.median(values) for values in figures.values())
            ratio = reference / max(asyncio, trio)
            verdict = "PASS" if ratio >= GOAL else "over"
            print(f"{name:<18}{asyncio:>9.3f}{trio:>9.3f}{reference:>12.2f}{f'1/{ratio:.1f}':>8}  {verdict}")


if __name__ == "__main__":
    main()
