"""asyncio's own cancellation (`Task.cancel`, `wait_for`), which no shield holds back, at awkward moments."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from proctor.actors import ActorContext, ChildSpec, Ref, open_supervisor
from proctor.errors import ActorGone, Fault
from proctor.testing import BACKENDS, run_virtual, settle

# anyio makes a task's coroutine when it is spawned; one that never begins is reported when it is collected.
NEVER_BEGUN = pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(params=[name for name in BACKENDS if name.startswith("asyncio")])
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, "proctor.actors"):
        yield


class State:
    def __init__(self, context: ActorContext[Any]) -> None:
        self.context = context
        self.tasks: list[asyncio.Task[Any] | None] = []

    async def handle(self, message: Callable[[], Awaitable[object]]) -> object:
        self.tasks.append(asyncio.current_task())
        return await message()


def spec(name: str = "a", **options: Any) -> ChildSpec[State]:
    @asynccontextmanager
    async def open_state(context: ActorContext[Any]) -> AsyncIterator[State]:
        yield State(context)

    return ChildSpec(name, open_state, **options)


def pending(ref: Ref[Any]) -> int:
    return len(ref._shell.pending)


def test_wait_for_around_an_ask_ends_the_handler_first(loop: str) -> None:
    ended: list[float] = []

    async def work() -> None:
        try:
            await anyio.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1)
            ended.append(anyio.current_time())

    async def main() -> None:
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(spec())
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(ref.ask(work), 2)
            assert ended == [3]
            assert pending(ref) == 0
            assert ref.state.context.incarnation == 1

    run_virtual(loop, main)


def test_a_caller_cancelled_again_while_it_waits_for_its_handler_waits_on(loop: str) -> None:
    ended: list[float] = []

    async def work() -> None:
        try:
            await anyio.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)
            ended.append(anyio.current_time())

    async def main() -> None:
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(spec())
            asking = asyncio.ensure_future(ref.ask(work))
            await settle()
            for _ in range(3):
                asking.cancel()
                await anyio.sleep(0.5)
                assert not asking.done()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert ended == [3]
            assert pending(ref) == 0

    run_virtual(loop, main)


def test_a_queued_ask_that_is_cancelled_is_withdrawn(loop: str) -> None:
    async def main() -> None:
        begun: list[str] = []

        async def begin() -> None:
            begun.append("begun")

        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(spec())
            ref.tell(lambda: anyio.sleep(5))
            asking = asyncio.ensure_future(ref.ask(begin))
            await settle()
            asking.cancel()
            await settle()
            assert asking.cancelled()
            assert pending(ref) == 1  # the tell
            await anyio.sleep(10)
            assert (begun, pending(ref)) == ([], 0)

    run_virtual(loop, main)


def test_a_value_whose_caller_was_cancelled_in_the_same_instant_is_discarded_once(loop: str) -> None:
    async def main() -> None:
        discarded: list[object] = []
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(spec())

            async def create() -> str:
                await anyio.sleep(1)
                asking.cancel()
                return "container"

            asking = asyncio.ensure_future(ref.ask(create, discard=discarded.append))
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert discarded == ["container"]
            assert pending(ref) == 0

    run_virtual(loop, main)


def test_a_handler_whose_task_is_cancelled_is_the_actors_death(loop: str) -> None:
    async def main() -> None:
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(spec())
            async with anyio.create_task_group() as nursery:

                async def ask() -> None:
                    with pytest.raises(ActorGone, match="was cancelled from outside"):
                        await ref.ask(lambda: anyio.sleep(100))

                nursery.start_soon(ask)
                await settle()
                task = ref.state.tasks[0]
                assert task is not None
                task.cancel()
            await ref.started()
            assert ref.state.context.incarnation == 2
            assert pending(ref) == 0

    run_virtual(loop, main)


@NEVER_BEGUN
def test_a_task_cancelled_before_its_first_step_is_noticed(loop: str) -> None:
    async def main() -> None:
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(spec())
            before = asyncio.all_tasks()
            asking = asyncio.ensure_future(ref.ask(lambda: anyio.sleep(100)))
            await asyncio.sleep(0)  # the ask has been made, its handler's task has not had its first step
            for task in asyncio.all_tasks() - before - {asking}:
                task.cancel()
            with pytest.raises(ActorGone, match="was cancelled from outside"):
                await asking
            await ref.started()
            assert ref.state.context.incarnation == 2
            assert pending(ref) == 0

    run_virtual(loop, main)
    gc.collect()


def test_a_background_task_that_is_cancelled_is_the_actors_death(loop: str) -> None:
    async def main() -> None:
        tasks: list[asyncio.Task[Any] | None] = []

        async def background() -> None:
            tasks.append(asyncio.current_task())
            await anyio.sleep_forever()

        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(spec())
            ref.state.context.start_soon(background)
            await settle()
            assert tasks[0] is not None
            tasks[0].cancel()
            await settle()
            await ref.started()
            assert ref.state.context.incarnation == 2

    run_virtual(loop, main)


def test_the_task_of_an_incarnation_that_is_cancelled_is_the_actors_death(loop: str) -> None:
    async def main() -> None:
        async with open_supervisor("root") as supervisor:
            before = asyncio.all_tasks()
            ref = await supervisor.start(spec())
            (task,) = asyncio.all_tasks() - before
            task.cancel()
            await settle()
            await ref.started()
            assert ref.state.context.incarnation == 2

    run_virtual(loop, main)


def test_a_cancelled_block_stops_its_actors_and_the_cancellation_goes_on(loop: str) -> None:
    async def main() -> None:
        closed: list[float] = []

        @asynccontextmanager
        async def open_it(_: ActorContext[Any]) -> AsyncIterator[None]:
            try:
                yield None
            finally:
                await anyio.sleep(2)
                closed.append(anyio.current_time())

        async def block() -> None:
            async with open_supervisor("root") as supervisor:
                await supervisor.start(ChildSpec("a", open_it))
                await anyio.sleep(100)

        task = asyncio.ensure_future(block())
        await anyio.sleep(1)
        task.cancel()
        await anyio.sleep(1)
        task.cancel()  # while it is being closed
        with pytest.raises(asyncio.CancelledError):
            await task
        assert closed == [3]

    run_virtual(loop, main)


def test_a_cancellation_that_comes_while_all_is_stopped_is_raised_afterwards(loop: str) -> None:
    async def main() -> None:
        @asynccontextmanager
        async def open_it(_: ActorContext[Any]) -> AsyncIterator[None]:
            yield None
            await anyio.sleep(2)

        async def block() -> None:
            async with open_supervisor("root") as supervisor:
                await supervisor.start(ChildSpec("a", open_it))

        task = asyncio.ensure_future(block())
        await anyio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert anyio.current_time() == 2

    run_virtual(loop, main)


@NEVER_BEGUN
@pytest.mark.parametrize("step", range(40))
def test_every_task_cancelled_at_any_step_leaves_nothing_pending_and_answers_everybody(loop: str, step: int) -> None:
    """Cancel each task that the tree has made, at the step-th turn of the loop."""

    async def main() -> None:
        refs: list[Ref[Any]] = []
        ends: list[object] = []
        values: list[object] = []
        made, discarded = 0, list[object]()

        async def client(ref: Ref[Any], seconds: float) -> None:
            nonlocal made

            async def create() -> int:
                nonlocal made
                await anyio.sleep(seconds)
                made += 1
                return made

            try:
                values.append(await ref.ask(create, discard=discarded.append))
                ends.append("answered")
            except (ActorGone, asyncio.CancelledError) as error:
                ends.append(type(error).__name__)

        async def run() -> None:
            async with open_supervisor("root") as supervisor:
                for name in "ab":
                    refs.append(await supervisor.start(spec(name)))
                async with anyio.create_task_group() as nursery:
                    for number in range(6):
                        nursery.start_soon(client, refs[number % 2], number % 3)

        outer = asyncio.all_tasks()
        running = asyncio.ensure_future(run())
        for _ in range(step):
            await asyncio.sleep(0)
        victims = sorted(asyncio.all_tasks() - outer - {running}, key=lambda task: task.get_name())
        if victims:
            victims[step % len(victims)].cancel()
        await asyncio.wait([running])
        error = running.exception()
        if error is not None:
            assert isinstance(error, ExceptionGroup)
            assert all(isinstance(each, Fault) for each in error.exceptions)
        assert [pending(ref) for ref in refs] == [0] * len(refs)
        assert len(values) + len(discarded) == made
        assert asyncio.all_tasks() == outer

    run_virtual(loop, main)
    gc.collect()
