"""``concurrency()``: one limit for each key, in a runtime and outside of one."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import anyio
import pytest

from proctor.errors import DeadlockError, NotFoundError, OptionError, RankError
from proctor.runtime import SampleContext, open_runtime, run
from proctor.runtime.ranks import SANDBOX
from proctor.runtime.scopes import Scope, concurrency, resize_concurrency
from proctor.testing import settle


@asynccontextmanager
async def outside() -> AsyncIterator[None]:
    yield


both = pytest.mark.parametrize("place", [open_runtime, outside])
Place = Callable[[], "asynccontextmanager[object]"]


class Crowd:
    """Tasks that enter a scope, and how many are inside at once."""

    def __init__(self) -> None:
        self.inside, self.peak, self.done = 0, 0, 0

    async def enter(self, name: str, number: int, key: str | None = None, hold: float = 1) -> None:
        async with concurrency(name, number, key=key):
            self.inside += 1
            self.peak = max(self.peak, self.inside)
            await anyio.sleep(hold)
            self.inside -= 1
            self.done += 1


@both
async def test_no_more_are_inside_than_the_number(place) -> None:
    crowd = Crowd()
    async with place(), anyio.create_task_group() as group:
        for _ in range(10):
            group.start_soon(crowd.enter, "service", 3)
    assert (crowd.peak, crowd.done, anyio.current_time()) == (3, 10, 4)


@both
async def test_scopes_of_other_keys_have_limits_of_their_own(place) -> None:
    crowd = Crowd()
    async with place(), anyio.create_task_group() as group:
        for key in ("a", "b", "a", "b"):
            group.start_soon(crowd.enter, "service", 1, key)
    assert (crowd.peak, anyio.current_time()) == (2, 2)


@both
async def test_one_key_under_two_names_is_one_scope(place) -> None:
    crowd = Crowd()
    async with place(), anyio.create_task_group() as group:
        group.start_soon(crowd.enter, "first", 1, "key")
        group.start_soon(crowd.enter, "second", 1, "key")
    assert crowd.peak == 1


@both
async def test_another_number_for_a_key_is_refused_naming_both_places(place) -> None:
    async with place():
        async with concurrency("service", 3):
            pass
        with pytest.raises(ValueError, match="number") as caught:
            async with concurrency("service", 4):
                pass
        places = re.findall(rf"{re.escape(__file__)}:(\d+)", str(caught.value))
        assert len(places) == 2
        assert int(places[0]) == int(places[1]) + 3
        assert "concurrency('service', 4)" in str(caught.value)


@both
@pytest.mark.parametrize("number", [0, -1, True, 2.5, "3x", None])
async def test_a_number_below_one_or_none_at_all_is_refused(place, number: object) -> None:
    async with place():
        with pytest.raises(OptionError, match=r"concurrency\('service', …\): the number must be a whole number"):
            concurrency("service", number)  # type: ignore[arg-type]


@both
async def test_nesting_the_same_key_says_so_instead_of_blocking(place) -> None:
    async with place():
        async with concurrency("service", 2), concurrency("service", 2):
            pass
        async with concurrency("one", 1):
            with pytest.raises(DeadlockError, match=f"(?s)one.*{re.escape(__file__)}"):
                async with concurrency("one", 1):
                    pass


@both
async def test_other_scopes_may_be_nested_but_sandboxes_come_first(place) -> None:
    from proctor.actors import Limiter

    async with place(), concurrency("outer", 1), concurrency("inner", 1):
        with pytest.raises(RankError):
            async with Limiter(1, name="sandboxes", rank=SANDBOX).lease():
                pass


@both
async def test_a_resize_takes_effect_while_in_use(place) -> None:
    crowd = Crowd()
    async with place(), anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(crowd.enter, "service", 1)
        await settle()
        assert crowd.inside == 1
        resize_concurrency("service", 3)
        await settle()
        assert crowd.inside == 3
        with anyio.move_on_after(0):  # the number in the code is still the one that counts
            async with concurrency("service", 1):
                raise AssertionError("there was no room")
        resize_concurrency("service", 1)
        await settle()
        assert crowd.inside == 3
        await anyio.sleep(1)
        await settle()
        assert crowd.inside == 1
    assert crowd.done == 6


@both
async def test_resizing_what_nobody_entered_is_refused(place) -> None:
    async with place():
        with pytest.raises(NotFoundError, match="'nothing'"):
            resize_concurrency("nothing", 2)
        async with concurrency("service", 1):
            with pytest.raises(OptionError):
                resize_concurrency("service", 0)


@both
async def test_the_scope_shows_its_use(place) -> None:
    async with place(), concurrency("service", 2, key="secret") as scope:
        assert isinstance(scope, Scope)
        assert (scope.name, scope.key, scope.concurrency, scope.value) == ("service", "secret", 2, 1)
        assert "secret" not in scope.limiter.name


async def test_two_runtimes_and_the_loop_around_them_do_not_share() -> None:
    async def enter(inside: Callable[[], Awaitable[None]] | None = None) -> None:
        async with concurrency("service", 1):
            await anyio.sleep(1)

    async def in_a_runtime() -> None:
        async with open_runtime():
            await enter()

    async with anyio.create_task_group() as group:
        for each in (enter, in_a_runtime, in_a_runtime):
            group.start_soon(each)
    assert anyio.current_time() == 1


def test_outside_a_runtime_nothing_is_left_for_the_next_loop() -> None:
    async def enter(number: int) -> int:
        async with concurrency("service", number) as scope:
            return scope.concurrency

    assert [run(enter, number, backend=name) for number, name in [(1, "asyncio"), (2, "trio"), (3, "asyncio")]] == [
        1, 2, 3,
    ]  # fmt: skip


async def test_an_invisible_scope_is_not_listed() -> None:
    async with open_runtime() as runtime, concurrency("shown", 1), concurrency("hidden", 1, visible=False):
        names = [limiter.name for limiter in runtime.limiters()]
    assert [name for name in names if "shown" in name]
    assert not [name for name in names if "hidden" in name]


async def test_waiting_for_a_place_is_no_working_time_of_the_sample() -> None:
    clocks: list[tuple[float, float]] = []

    async def sample() -> None:
        with SampleContext(group="task") as context:
            async with concurrency("service", 1):
                await anyio.sleep(2)
            clocks.append((context.working.elapsed(), context.working.working()))

    async with open_runtime(), anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(sample)
    assert sorted(clocks) == [(2, 2), (4, 2), (6, 2)]


async def test_places_are_shared_fairly_between_tasks() -> None:
    entered: list[str] = []

    async def sample(task: str) -> None:
        with SampleContext(group=task):
            async with concurrency("service", 1):
                entered.append(task)
                await anyio.sleep(1)

    async with open_runtime(), anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(sample, "big")
        await settle()
        for _ in range(2):
            group.start_soon(sample, "small")
    assert entered.index("small") <= 2
    assert [index for index, task in enumerate(entered) if task == "small"][-1] <= 4


@both
async def test_a_cancelled_entrance_leaves_no_place_taken(place) -> None:
    async with place():
        async with concurrency("service", 1) as scope, anyio.create_task_group() as group:
            group.start_soon(Crowd().enter, "service", 1)
            await settle()
            assert scope.limiter.waiting == 1
            group.cancel_scope.cancel()
        assert (scope.limiter.used, scope.limiter.waiting) == (0, 0)
