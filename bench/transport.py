"""CPU a request over loopback: our transport against httpx's own, at 10, 100 and 1,000 connections, on both backends.

Where `inspect_ai` and `openai` are installed also a call of its model, which is more than a transport: for orientation.

    python bench/transport.py [--quick] [--server ../shared/tools/fake_openai.py]

The server is a process of its own and answers after 20 ms. Ratios within one run count, absolute figures orient. The
legs of one run are interleaved, each measured several times, and the median is shown. Exits 1 when a must is missed:
at most 0.5 ms a request at 100 and at 1,000 connections, and at most 1/20 of httpx's own transport at 100 (the figures
are the project's own, from its performance page).
"""

from __future__ import annotations

import argparse
import importlib.util
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import msgspec

from proctor.model.http import HttpClient, open_client

SERVER = Path(__file__).resolve().parents[2] / "shared" / "tools" / "fake_openai.py"
BODY = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": "hello " * 50}]})
MUST_MS, MUST_SHARE = 0.5, 1 / 20
LEGS = [("ours", 10), ("httpx", 10), ("ours", 100), ("httpx", 100), ("ours", 1000)]
if all(importlib.util.find_spec(name) for name in ("inspect_ai", "openai")):
    LEGS += [("inspect", 10), ("inspect", 100)]


def cpu() -> float:
    """Seconds of CPU that this process has used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(url: str, transport: str, connections: int, requests: int) -> tuple[float, float]:
    """Milliseconds of CPU a request, and requests a second; warm: every connection has been used before."""
    call, close = opened(url, transport)

    async def worker(count: int) -> None:
        for _ in range(count):
            msgspec.json.decode(await call())

    async def all_at_once(count: int) -> None:
        async with anyio.create_task_group() as group:
            for _ in range(connections):
                group.start_soon(worker, count)

    await all_at_once(1)
    each = max(1, requests // connections)
    began, used = time.perf_counter(), cpu()
    await all_at_once(each)
    used, took = cpu() - used, time.perf_counter() - began
    await close()
    return used / (each * connections) * 1000, each * connections / took


def opened(url: str, transport: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A function that makes one call and returns the body, and one that closes."""
    if transport == "ours":
        client: HttpClient = open_client(url, headers={"Authorization": "Bearer x"})

        async def call() -> bytes:
            return (await client.post("/chat/completions", BODY)).body

        return call, client.aclose
    if transport == "inspect":
        return opened_by_inspect(url)
    theirs = httpx.AsyncClient(
        trust_env=False, timeout=600, limits=httpx.Limits(max_connections=None, max_keepalive_connections=None)
    )
    headers = {"Authorization": "Bearer x", "Content-Type": "application/json"}

    async def call_theirs() -> bytes:
        return (await theirs.post(f"{url}/chat/completions", content=BODY, headers=headers)).content

    return call_theirs, theirs.aclose


def opened_by_inspect(url: str) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The same of a call of a model of Inspect's."""
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.util._concurrency import init_concurrency

    init_concurrency()  # its limits are the process's, and those of one loop
    config = GenerateConfig(max_connections=1000, max_retries=0)
    model = get_model("openai-api/s/m", base_url=url, api_key="x", config=config, memoize=False)

    async def call() -> bytes:
        await model.generate("hello " * 50)
        return b"{}"

    async def close() -> None:
        await model.api.aclose()

    return call, close


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", type=Path, default=SERVER)
    parser.add_argument("--quick", action="store_true", help="one measurement a leg")
    options = parser.parse_args()
    command = [sys.executable, str(options.server), "--port", "0", "--latency", "0.02"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().split()[1]
        return sum(bench(url, backend, 1 if options.quick else 3) for backend in ("asyncio", "trio")) and 1
    finally:
        server.terminate()
        server.wait()


def bench(url: str, backend: str, rounds: int) -> int:
    """Measure one backend, print its table and return how many musts it misses."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {leg: [] for leg in LEGS}
    for _ in range(rounds):
        for transport, connections in LEGS:
            requests = max(3000 if transport == "ours" else 500, 3 * connections)
            one = anyio.run(measure, url, transport, connections, requests, backend=backend)
            found[transport, connections].append(one)
    median = {leg: statistics.median(ms for ms, _ in rows) for leg, rows in found.items()}
    print(f"\n{backend:8}{'connections':>12}{'ms CPU/request':>16}{'requests/s':>12}{'of httpx':>10}")
    for (transport, connections), ms in median.items():
        rate = statistics.median(rate for _, rate in found[transport, connections])
        share = ms / median["httpx", connections] if ("httpx", connections) in median else float("nan")
        print(f"{transport:8}{connections:>12}{ms:>16.3f}{rate:>12.0f}{share:>10.3f}")
    missed = [f"{c} connections: {median['ours', c]:.3f} ms" for c in (100, 1000) if median["ours", c] > MUST_MS]
    if (share := median["ours", 100] / median["httpx", 100]) > MUST_SHARE:
        missed.append(f"1/{1 / share:.0f} of httpx at 100 connections")
    for one in missed:
        print(f"MISSED: {one}")
    return len(missed)


if __name__ == "__main__":
    sys.exit(main())
