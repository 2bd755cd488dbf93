"""``concurrency()`` around calls of a REST API with httpx, in solvers, tools and scorers, counted by the server."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from attrs import define, field

from proctor import Task, eval_async, open_runtime
from proctor.dataset import Sample
from proctor.model import ModelOutput, get_model
from proctor.scorer import Score, Target, mean, scorer
from proctor.solver import Generate, Solver, TaskState, generate, solver, use_tools
from proctor.tool import Tool, tool
from proctor.util import concurrency, resize_concurrency

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

SAMPLES = 12


@define
class Rest:
    """A REST API that counts its requests by path, and how many are inside at once.

    Nobody leaves before as many as `full` have been inside together.
    """

    url: str = ""
    full: int = 3
    inside: int = 0
    peak: int = 0
    seen: dict[str, int] = field(factory=dict)
    held: threading.Condition = field(factory=threading.Condition)

    def enter(self, path: str) -> None:
        with self.held:
            self.seen[path] = self.seen.get(path, 0) + 1
            self.inside += 1
            self.peak = max(self.peak, self.inside)
            self.held.notify_all()
            assert self.held.wait_for(lambda: self.peak >= self.full, timeout=60)
        time.sleep(0.03)  # time for one too many to come

    def leave(self) -> None:
        with self.held:
            self.inside -= 1


@pytest.fixture
def rest() -> Iterator[Rest]:
    counted = Rest()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            counted.enter(self.path)
            try:
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
            finally:
                counted.leave()  # before the client can know: whoever comes next is not counted beside this one
            self.wfile.write(b"ok")

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    counted.url = f"http://127.0.0.1:{server.server_port}"
    yield counted
    server.shutdown()
    server.server_close()


async def ask(url: str, client: httpx.AsyncClient, number: int) -> str:
    async with concurrency("search", number):
        return (await client.get(url)).text


@solver
def asks(rest: Rest, client: httpx.AsyncClient, number: int) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        state.metadata["solver"] = await ask(f"{rest.url}/solver", client, number)
        return state

    return solve


@tool
def search(rest: Rest, client: httpx.AsyncClient, number: int) -> Tool:
    async def execute(query: str) -> str:
        """Search.

        Args:
            query: what for.
        """
        return await ask(f"{rest.url}/tool", client, number)

    return execute


@scorer(metrics=[mean()])
def checks(rest: Rest, client: httpx.AsyncClient, number: int) -> Any:
    async def score(state: TaskState, target: Target) -> Score:
        found = [state.metadata["solver"], await ask(f"{rest.url}/scorer", client, number)]
        return Score(value=found == ["ok", "ok"] and any(m.role == "tool" and m.text == "ok" for m in state.messages))

    return score


def answer(messages: Any, *_: Any) -> ModelOutput:
    if any(message.role == "tool" for message in messages):
        return ModelOutput.from_content("m", "done")
    return ModelOutput.for_tool_call("m", "search", {"query": "x"})


def task(rest: Rest, client: httpx.AsyncClient, number: int, *steps: Solver) -> Task:
    return Task(
        [Sample(f"q{n}") for n in range(SAMPLES)],
        solver=[asks(rest, client, number), *steps, use_tools(search(rest, client, number)), generate()],
        scorer=checks(rest, client, number),
    )


async def test_solvers_tools_and_scorers_share_the_places_of_an_api(rest: Rest, tmp_path: Path) -> None:
    usage: list[tuple[int, int | None]] = []

    async with httpx.AsyncClient() as client, open_runtime() as runtime, anyio.create_task_group() as around:

        async def watch() -> None:
            while True:
                usage.extend(
                    (each.used, each.limit)
                    for each in (limiter.statistics() for limiter in runtime.limiters())
                    if each.name == "concurrency search"
                )
                await anyio.sleep(0.002)

        around.start_soon(watch)
        [log] = await eval_async(
            task(rest, client, 3), get_model("mock/m", custom_outputs=answer), display="none", log_dir=str(tmp_path)
        )
        around.cancel_scope.cancel()
    assert log.status == "success", log.error
    assert log.results is not None
    assert [score.metrics["mean"].value for score in log.results.scores] == [1.0]
    assert rest.seen == {"/solver": SAMPLES, "/tool": SAMPLES, "/scorer": SAMPLES}
    assert rest.peak == 3
    assert max(used for used, _ in usage) == 3
    assert {limit for _, limit in usage} == {3}


async def test_the_places_of_an_api_are_changed_while_it_is_used(rest: Rest, tmp_path: Path) -> None:
    @solver
    def resizing() -> Solver:
        done = 0

        async def solve(state: TaskState, generate: Generate) -> TaskState:
            nonlocal done
            done += 1
            if done == 4:  # the first ones have come back from the API
                peaks.append(rest.peak)
                rest.full = 6
                resize_concurrency("search", 6)
            return state

        return solve

    peaks: list[int] = []
    rest.full = 2
    async with httpx.AsyncClient() as client:
        [log] = await eval_async(
            task(rest, client, 2, resizing()),
            get_model("mock/m", custom_outputs=answer),
            display="none",
            log_dir=str(tmp_path),
        )
    assert log.status == "success", log.error
    assert (peaks, rest.peak) == ([2], 6)
