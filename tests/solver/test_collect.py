"""`collect`: several awaitables at once, on either backend."""

from __future__ import annotations

import gc
from contextvars import ContextVar

import anyio
import pytest

from proctor.log.transcript import Transcript, init_transcript
from proctor.solver.collect import collect


async def after(seconds: float, value: object) -> object:
    await anyio.sleep(seconds)
    if isinstance(value, Exception):
        raise value
    return value


async def test_results_come_in_the_order_of_the_awaitables() -> None:
    began = anyio.current_time()
    assert await collect(after(3, "a"), after(1, "b"), after(2, None)) == ["a", "b", None]
    assert anyio.current_time() - began == 3
    assert await collect() == []


async def test_the_first_error_cancels_the_rest_and_is_raised_as_itself() -> None:
    ended: list[str] = []

    async def other() -> None:
        try:
            await anyio.sleep(100)
        finally:
            ended.append("cancelled")

    error = ValueError("mine")
    began = anyio.current_time()
    with pytest.raises(ValueError, match="mine") as caught:
        await collect(other(), after(1, error), other())
    assert caught.value is error
    assert anyio.current_time() - began == 1
    assert ended == ["cancelled", "cancelled"]


async def test_an_error_group_is_raised_as_it_is() -> None:
    group = ExceptionGroup("two", [ValueError("a"), TypeError("b")])
    with pytest.raises(ExceptionGroup) as caught:
        await collect(after(1, group), after(2, 1))
    assert caught.value is group


async def test_errors_that_came_too_late_are_told_in_a_note() -> None:
    async def stubborn() -> None:
        try:
            await anyio.sleep(100)
        finally:
            raise KeyError("on the way out")

    with pytest.raises(ValueError, match="first") as caught:
        await collect(after(1, ValueError("first")), stubborn())
    assert caught.value.__notes__ == ["another one that was collected failed too: KeyError: 'on the way out'"]


async def test_what_was_not_begun_is_closed_without_a_warning() -> None:
    begun: list[int] = []

    async def fails_at_once() -> None:
        raise ValueError("at once")

    async def begin(n: int) -> None:
        begun.append(n)
        await anyio.sleep(1)

    with pytest.raises(ValueError, match="at once"):
        await collect(*(each for n in range(25) for each in (fails_at_once(), begin(n))))
    assert len(begun) < 25
    gc.collect()  # a coroutine that was never awaited would warn here, and warnings are errors


async def test_a_cancelled_caller_cancels_all() -> None:
    ended: list[int] = []

    async def one(n: int) -> None:
        try:
            await anyio.sleep(100)
        finally:
            ended.append(n)

    with anyio.move_on_after(2) as scope:
        await collect(one(1), one(2))
    assert scope.cancelled_caught
    assert sorted(ended) == [1, 2]


async def test_context_is_that_of_the_caller_and_spans_keep_events_together() -> None:
    variable: ContextVar[str] = ContextVar("variable", default="unset")
    variable.set("set")
    transcript = Transcript()

    async def tell(seconds: float) -> str:
        await anyio.sleep(seconds)
        transcript.info(variable.get())
        return variable.get()

    with init_transcript(transcript):
        assert await collect(tell(2), tell(1)) == ["set", "set"]
    begun = {event.id: event.name for event in transcript.events if event.event == "span_begin"}  # type: ignore[union-attr]
    infos = [begun[str(event.span_id)] for event in transcript.events if event.event == "info"]  # type: ignore[union-attr]
    assert infos == ["task-2", "task-1"]
