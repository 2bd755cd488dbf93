"""Starting a loop: which backend, what comes out, and inside a loop that runs already."""

from __future__ import annotations

import asyncio
import asyncio.base_events
import contextvars
import threading
from collections.abc import Awaitable, Callable

import anyio
import pytest
import trio

from proctor.errors import OptionError, SupervisorExhausted
from proctor.runtime.backend import Waker, collapse, current_backend, foreign_call_hint, run
from proctor.runtime.current import runtime_variable

BACKENDS = ["asyncio", "trio"]


async def where(*args: object) -> tuple[object, ...]:
    await anyio.sleep(0)
    return current_backend(), threading.current_thread() is threading.main_thread(), *args


@pytest.mark.parametrize("name", BACKENDS)
def test_the_named_backend_runs_in_this_thread(name: str) -> None:
    assert run(where, 1, 2, backend=name) == (name, True, 1, 2)
    assert current_backend() is None


@pytest.mark.parametrize("variable", ["PROCTOR_ASYNC_BACKEND", "INSPECT_ASYNC_BACKEND"])
def test_the_environment_names_the_backend(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PROCTOR_ASYNC_BACKEND", raising=False)
    monkeypatch.setenv(variable, "trio")
    assert run(where)[0] == "trio"


def test_an_unknown_backend_is_refused_before_anything_runs() -> None:
    with pytest.raises(OptionError, match="async_backend must be one of asyncio, trio, not 'gevent'"):
        run(where, backend="gevent")


def test_five_runs_in_one_process_alternate_backends() -> None:
    assert [run(where, backend=name)[0] for name in ["asyncio", "trio", "asyncio", "trio", "asyncio"]] == [
        "asyncio", "trio", "asyncio", "trio", "asyncio",
    ]  # fmt: skip


def patched_places() -> list[object]:
    """What libraries that allow nested loops replace."""
    loop = asyncio.base_events.BaseEventLoop
    return [
        asyncio.run, asyncio.get_event_loop, asyncio.Task, asyncio.Future, asyncio.tasks.Task, asyncio.Runner,
        loop.run_until_complete, loop.run_forever, loop._run_once, loop._check_running, trio.run, anyio.run,
    ]  # fmt: skip


def inside_asyncio(call: Callable[[], object]) -> object:
    async def main() -> object:
        return call()

    return asyncio.run(main())


def inside_an_asyncio_callback(call: Callable[[], object]) -> object:
    async def main() -> object:
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        loop.call_soon(lambda: future.set_result(call()))
        return await future

    return asyncio.run(main())


def inside_trio(call: Callable[[], object]) -> object:
    async def main() -> object:
        return call()

    return trio.run(main)


def inside_a_thread(call: Callable[[], object]) -> object:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def inside_a_worker_thread_of_a_loop(call: Callable[[], object]) -> object:
    async def main() -> object:
        return await anyio.to_thread.run_sync(call)

    return anyio.run(main, backend="trio")


@pytest.mark.parametrize(
    "place",
    [inside_asyncio, inside_an_asyncio_callback, inside_trio, inside_a_thread, inside_a_worker_thread_of_a_loop],
)
@pytest.mark.parametrize("name", BACKENDS)
def test_inside_a_running_loop_or_a_thread_nothing_is_patched(
    place: Callable[[Callable[[], object]], object], name: str
) -> None:
    before = patched_places()
    assert place(lambda: run(where, 7, backend=name)) == (name, False, 7)
    assert patched_places() == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("proctor")]


@pytest.mark.parametrize("name", BACKENDS)
def test_nested_twice(name: str) -> None:
    async def middle() -> object:
        return run(where, backend=name)[0]

    async def outer() -> object:
        return run(middle, backend="asyncio")

    assert run(outer, backend="trio") == name


@pytest.mark.parametrize("place", [inside_asyncio, inside_trio, lambda call: call()])
@pytest.mark.parametrize("name", BACKENDS)
def test_the_new_loop_sees_the_callers_context_but_not_its_runtime(
    place: Callable[[Callable[[], object]], object], name: str
) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    async def look() -> tuple[str, object]:
        return variable.get(), runtime_variable.get()

    def call() -> object:
        variable.set("set")
        token = runtime_variable.set("the caller's")  # type: ignore[arg-type]
        try:
            return run(look, backend=name)
        finally:
            runtime_variable.reset(token)

    assert place(call) == ("set", None)


@pytest.mark.parametrize("place", [inside_asyncio, inside_trio, lambda call: call()])
@pytest.mark.parametrize("name", BACKENDS)
def test_an_exception_of_a_nursery_comes_out_bare_with_its_traceback(
    place: Callable[[Callable[[], object]], object], name: str
) -> None:
    async def fail() -> None:
        raise ValueError("in a child")

    async def main() -> None:
        async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
            inner.start_soon(fail)
            outer.start_soon(anyio.sleep_forever)

    with pytest.raises(ValueError, match="in a child") as caught:
        place(lambda: run(main, backend=name))
    assert caught.value.__context__ is None
    assert "fail" in [entry.name for entry in caught.traceback]


@pytest.mark.parametrize("name", BACKENDS)
def test_several_exceptions_stay_a_group(name: str) -> None:
    async def fail(error: Exception) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise error

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for each in (ValueError("a"), KeyError("b")):
                group.start_soon(fail, each)
            await anyio.sleep(0.01)
            group.cancel_scope.cancel()

    with pytest.raises(ExceptionGroup) as caught:
        run(main, backend=name)
    assert {type(each) for each in caught.value.exceptions} == {ValueError, KeyError}


@pytest.mark.parametrize("name", BACKENDS)
def test_a_keyboard_interrupt_in_a_child_comes_out_as_one(name: str) -> None:
    async def interrupt() -> None:
        await anyio.sleep(0)
        raise KeyboardInterrupt

    async def main() -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(interrupt)
            await anyio.sleep_forever()

    with pytest.raises(KeyboardInterrupt):
        run(main, backend=name)


def test_collapse_keeps_notes_meaningful_groups_and_the_rest_beside_an_interrupt() -> None:
    leaf = ValueError("leaf")
    outer = ExceptionGroup("outer", [ExceptionGroup("inner", [leaf])])
    outer.add_note("in the models")
    assert collapse(outer) is leaf
    assert leaf.__notes__ == ["in the models"]

    exhausted = SupervisorExhausted("models", [leaf])
    assert collapse(ExceptionGroup("group", [exhausted])) is exhausted

    several = ExceptionGroup("two", [leaf, KeyError()])
    assert collapse(several) is several
    assert collapse(leaf) is leaf

    interrupt = collapse(BaseExceptionGroup("group", [leaf, BaseExceptionGroup("deep", [KeyboardInterrupt()])]))
    assert isinstance(interrupt, KeyboardInterrupt)
    assert isinstance(interrupt.__context__, ExceptionGroup)
    assert interrupt.__context__.exceptions == (leaf,)


@pytest.mark.parametrize(
    ("name", "call", "hint"),
    [
        ("trio", lambda: asyncio.sleep(0.01), "calls asyncio, but the run is on trio"),
        ("trio", lambda: asyncio.gather(anyio.sleep(0)), "calls asyncio, but the run is on trio"),
        ("asyncio", lambda: trio.sleep(0.01), "calls trio, but the run is on asyncio"),
        ("trio", lambda: trio.sleep(0.01), None),
        ("asyncio", lambda: asyncio.sleep(0.01), None),
    ],
)
@pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    "ignore:There is no current event loop:DeprecationWarning",
)
def test_a_call_of_the_other_loops_library_is_explained(
    name: str, call: Callable[[], Awaitable[object]], hint: str | None
) -> None:
    async def main() -> str | None:
        try:
            await call()
        except Exception as error:
            return foreign_call_hint(error)
        return foreign_call_hint(ValueError("any other"))

    said = run(main, backend=name)
    assert said is None if hint is None else hint in (said or "")


async def test_a_waker_wakes_the_loop_from_another_thread() -> None:
    event, waker = anyio.Event(), Waker()
    await anyio.to_thread.run_sync(waker, event.set)
    await event.wait()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_waker_of_a_loop_that_has_ended_does_nothing(name: str) -> None:
    async def main() -> Waker:
        return Waker()

    run(main, backend=name)(print, "never")
