"""Limits that are changed while an evaluation runs: growing admits at once, lowering never stops anybody."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import define, field

from proctor import Runtime, Task, eval_async, open_runtime
from proctor.dataset import Sample
from proctor.dataset.paging import Pages
from proctor.dataset.source import FileSource
from proctor.dataset.streamed import Reading, StreamedDataset
from proctor.errors import NotFoundError, OptionError
from proctor.evaluation import feed
from proctor.model import ModelUsage, get_model
from proctor.testing import FakeModel, settle, simulate


@define
class Server:
    """The model's side: every call takes ten seconds."""

    running: int = 0
    calls: int = 0
    ended: int = 0
    held: list[anyio.Event] = field(factory=list)

    async def answer(self, *_: Any) -> str:
        self.calls += 1
        self.running += 1
        try:
            await anyio.sleep(10)
        finally:
            self.running -= 1
        self.ended += 1
        return "ok"


@asynccontextmanager
async def running(
    tmp_path: Path, *tasks: Task, model: str = "m", **options: Any
) -> AsyncIterator[tuple[Runtime, Server]]:
    """An evaluation that has just filled its places; at the end of the block it is awaited, and all is a success."""
    server = Server()
    logs: list[Any] = []

    async def evaluate() -> None:
        made = get_model(f"mock/{model}", custom_outputs=server.answer)
        logs.extend(await eval_async(list(tasks), made, display="none", log_dir=str(tmp_path), **options))

    async with open_runtime() as runtime, anyio.create_task_group() as nursery:
        nursery.start_soon(evaluate)
        await anyio.sleep(1)
        yield runtime, server
    assert [log.status for log in logs] == ["success"] * len(tasks)
    assert server.ended == server.calls == sum(len(task.dataset) for task in tasks)


def many(name: str = "a", count: int = 40) -> Task:
    return Task([Sample("x") for _ in range(count)], name=name)


async def test_more_samples_start_in_the_same_second(tmp_path: Path) -> None:
    async with running(tmp_path, many(), max_samples=3, max_connections=50) as (runtime, server):
        assert server.running == 3
        assert runtime.set_limit("max_samples", 8) == 1
        await anyio.sleep(0.1)
        assert server.running == 8


async def test_lowering_lets_those_inside_end_and_none_in(tmp_path: Path) -> None:
    async with running(tmp_path, many(), max_samples=8, max_connections=50) as (runtime, server):
        runtime.set_limit("max_samples", 2)
        await anyio.sleep(5)
        assert (server.running, server.ended) == (8, 0)
        await anyio.sleep(5)
        assert (server.running, server.ended) == (2, 8)


async def test_what_was_set_can_be_taken_back(tmp_path: Path) -> None:
    async with running(tmp_path, many(), max_samples=4, max_connections=50) as (runtime, server):
        runtime.set_limit("max_samples", 1)
        await anyio.sleep(10)
        assert server.running == 1
        runtime.set_limit("max_samples", None)
        await anyio.sleep(0.1)
        assert server.running == 4


async def test_one_task_of_several(tmp_path: Path) -> None:
    async with running(tmp_path, many("a"), many("b"), max_tasks=2, max_samples=2, max_connections=50) as (
        runtime,
        server,
    ):
        assert server.running == 4
        assert runtime.set_limit("max_samples", 5, task="b") == 1
        await anyio.sleep(0.1)
        assert server.running == 7
        assert runtime.set_limit("max_samples", 6, model="mock/m") == 2
        await anyio.sleep(0.1)
        assert server.running == 12


async def test_a_task_that_has_not_started_keeps_what_was_set(tmp_path: Path) -> None:
    async with running(tmp_path, many("a", 2), many("b"), max_tasks=1, max_samples=2, max_connections=50) as (
        runtime,
        server,
    ):
        runtime.set_limit("max_samples", 7, task="b")
        await anyio.sleep(10.1)
        assert server.running == 7


async def test_tasks_at_once(tmp_path: Path) -> None:
    tasks = [many(name, 4) for name in "abcd"]
    async with running(tmp_path, *tasks, max_samples=1, max_connections=50) as (runtime, server):
        assert server.running == 1
        assert runtime.set_limit("max_tasks", 3) == 1
        await anyio.sleep(0.1)
        assert server.running == 3
        runtime.set_limit("max_tasks", 1)
        await anyio.sleep(20)
        assert server.running == 3, "a task that runs goes on"
        await anyio.sleep(20.5)
        assert server.running == 1


async def test_connections_and_with_them_the_samples_that_go_by_them(tmp_path: Path) -> None:
    async with running(tmp_path, many(count=80), max_connections=3) as (runtime, server):
        assert server.running == 3
        assert runtime.set_limit("max_connections", 20, model="mock/m") == 1
        await anyio.sleep(0.1)
        assert server.running == 20
        runtime.set_limit("max_connections", 2)
        await anyio.sleep(5)
        assert server.running == 20
        await anyio.sleep(5)
        assert server.running == 2
        runtime.set_limit("max_connections", None)
        await anyio.sleep(0.1)
        assert server.running == 3


async def test_samples_in_all(tmp_path: Path) -> None:
    async with running(tmp_path, many("a"), many("b"), max_tasks=2, max_samples=4, max_connections=50) as (
        runtime,
        server,
    ):
        assert server.running == 8
        assert runtime.set_limit("max_total_samples", 3) == 1
        await anyio.sleep(10)
        assert server.running == 3
        runtime.set_limit("max_total_samples", 6)
        await anyio.sleep(0.1)
        assert server.running == 6


async def test_what_is_set_in_one_runtime_is_not_set_in_another(tmp_path: Path) -> None:
    async with running(tmp_path, many(), max_samples=2) as (_, server), open_runtime() as other:
        with pytest.raises(NotFoundError, match="nothing that runs here has it"):
            other.set_limit("max_samples", 5)
        assert server.running == 2


Change = Callable[[Runtime], Awaitable[None]]


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("max_samples", 0), OptionError, r"max_samples must be a whole number of at least 1, not 0 \(from set while"),
        (("max_tasks", 1.5), OptionError, "max_tasks must be a whole number"),
        (("max_total_samples", -1), OptionError, "max_total_samples must be"),
        (("epochs", 2), OptionError, "epochs cannot be changed while it runs; max_samples, max_tasks"),
    ],
)
async def test_what_cannot_be_set_is_refused(
    tmp_path: Path, arguments: tuple[str, Any], error: type[Exception], words: str
) -> None:
    async with running(tmp_path, many(count=3)) as (runtime, _):
        with pytest.raises(error, match=words):
            runtime.set_limit(*arguments)


async def test_a_name_that_nothing_has_is_told(tmp_path: Path) -> None:
    async with running(tmp_path, many(count=3)) as (runtime, _):
        with pytest.raises(NotFoundError, match=r"max_samples was not changed: .* for task 'zz'"):
            runtime.set_limit("max_samples", 2, task="zz")
        with pytest.raises(NotFoundError, match=r"max_connections was not changed: .* for model 'mock/zz'"):
            runtime.set_limit("max_connections", 2, model="mock/zz")


async def test_a_rate_is_raised_lowered_lifted_and_taken_back() -> None:
    fake = FakeModel(latency=0.1, max_connections=50)
    async with open_runtime() as runtime, anyio.create_task_group() as nursery:

        async def evaluate() -> None:
            await simulate(many(count=600), fake.model(), requests_per_minute=60)

        async def calls_in(seconds: float) -> int:
            before = fake.calls
            await anyio.sleep(seconds)
            return fake.calls - before

        nursery.start_soon(evaluate)
        await anyio.sleep(5)
        assert 9 <= await calls_in(10) <= 11
        assert runtime.set_limit("requests_per_minute", 600, model="fake/model") == 1
        await calls_in(2)
        assert 98 <= await calls_in(10) <= 102
        runtime.set_limit("requests_per_minute", 120.5)
        await calls_in(2)
        assert 19 <= await calls_in(10) <= 22
        runtime.set_limit("requests_per_minute", None)
        await calls_in(2)
        assert 9 <= await calls_in(10) <= 11
        runtime.set_limit("requests_per_minute", 0)
        assert fake.calls + await calls_in(2) >= 600, "no quota at all"


async def test_a_rate_of_tokens() -> None:
    used = ModelUsage(input_tokens=60, output_tokens=40, total_tokens=100)
    fake = FakeModel(latency=0.1, max_connections=50, usage=used)
    async with open_runtime() as runtime, anyio.create_task_group() as nursery:

        async def evaluate() -> None:
            await simulate(many(count=300), fake.model())

        nursery.start_soon(evaluate)
        await settle()
        runtime.set_limit("tokens_per_minute", 12_000)
        await anyio.sleep(5)
        before = fake.calls
        await anyio.sleep(10)
        assert 18 <= fake.calls - before <= 22
        nursery.cancel_scope.cancel()


async def test_the_most_that_connections_adapt_to() -> None:
    fake = FakeModel(latency=1.0, adaptive=True)
    async with open_runtime() as runtime, anyio.create_task_group() as nursery:

        async def evaluate() -> None:
            await simulate(many(count=3000), fake.model())

        nursery.start_soon(evaluate)
        await anyio.sleep(8)
        assert fake.in_flight > 20
        assert runtime.set_limit("adaptive_connections", 5) == 1
        await anyio.sleep(3)
        assert fake.in_flight == 5
        runtime.set_limit("adaptive_connections", None)
        await anyio.sleep(20)
        assert fake.in_flight > 20
        nursery.cancel_scope.cancel()


async def test_where_connections_are_a_number_there_is_nothing_to_adapt(tmp_path: Path) -> None:
    async with running(tmp_path, many(count=3)) as (runtime, _):
        with pytest.raises(NotFoundError, match="adaptive_connections was not changed"):
            runtime.set_limit("adaptive_connections", 5)


async def test_the_memory_of_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a kilobyte in megabytes that are a kilobyte: so many are held at most, as asked for and as set."""
    monkeypatch.setattr(feed, "MB", 1000)
    sources: list[FileSource] = []
    opened = feed.open_source

    async def open_source(*arguments: Any) -> Any:
        sources.append(await opened(*arguments))
        return sources[-1]

    monkeypatch.setattr(feed, "open_source", open_source)
    reached: list[int] = []

    def rows() -> Iterator[Sample]:
        for number in range(60):
            reached.append(number)
            if number == 20:
                runtime.set_limit("max_dataset_memory", 30)
            if number == 40:
                runtime.set_limit("max_dataset_memory", None)
            yield Sample("x" * 900)

    held: list[int] = []
    append = Pages.append

    def noting(pages: Pages[Any], value: Any) -> None:
        append(pages, value)
        held.append(pages.held)

    monkeypatch.setattr(Pages, "append", noting)
    fake = FakeModel()
    async with open_runtime() as runtime:
        [log] = await simulate(
            Task(StreamedDataset(Reading(read=rows, source="rows"))), fake.model(), max_dataset_memory=5
        )
    assert log.status == "success"
    assert [len(reached), len(held), fake.calls] == [60, 60, 60]
    assert max(held[:20]) <= 5000
    assert 5000 < max(held[20:40]) <= 30_000
    assert max(held[45:]) <= 5000


async def test_a_dataset_that_is_in_memory_has_no_such_limit(tmp_path: Path) -> None:
    async with running(tmp_path, many(count=3)) as (runtime, _):
        with pytest.raises(NotFoundError, match="max_dataset_memory was not changed"):
            runtime.set_limit("max_dataset_memory", 5)
        with pytest.raises(OptionError, match="requests_per_minute must be a number of at least 0"):
            runtime.set_limit("requests_per_minute", -1)
