"""The runtime: one actor a key, ids and chance from a seed, several in one loop, nothing left afterwards."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio
import pytest

from proctor.actors import ActorContext, ChildSpec, Limiter, held_leases, lease_scope
from proctor.errors import ActorGone, Fault, OptionError, SampleEnded, SupervisorExhausted
from proctor.runtime import Runtime, Settings, current_runtime, new_id, open_runtime, run
from proctor.runtime.clock import LoopClock, iso_now, utc_now
from proctor.runtime.ranks import SUBPROCESS
from proctor.testing import settle


class Recorder:
    """Makes descriptions of actors and notes their life."""

    def __init__(self, *, opening: float = 0.0, failures: int = 0) -> None:
        self.opening, self.failures, self.notes = opening, failures, list[str]()

    def spec(self) -> ChildSpec[object]:
        self.limiter = Limiter(2, name="recorded")
        return ChildSpec("recorded", self.open, limiter=self.limiter)

    @asynccontextmanager
    async def open(self, context: object) -> AsyncIterator[object]:
        self.notes.append("opening")
        await anyio.sleep(self.opening)
        if self.failures:
            self.failures -= 1
            raise ValueError("cannot open")
        self.notes.append("open")
        try:
            yield self
        finally:
            self.notes.append("closed")


async def test_inside_there_is_a_current_runtime_and_outside_none() -> None:
    seen: list[Runtime | None] = []

    async def look() -> None:
        seen.append(current_runtime())

    assert current_runtime() is None
    async with open_runtime() as runtime:
        async with anyio.create_task_group() as group:
            group.start_soon(look)
        await look()
    await look()
    assert seen == [runtime, runtime, None]


async def test_actors_see_the_runtime_they_live_in_and_hold_no_lease_of_whoever_opened_it() -> None:
    seen: list[object] = []

    @asynccontextmanager
    async def open_looking(context: object) -> AsyncIterator[None]:
        seen.extend([current_runtime(), utc_now(), list(held_leases())])
        yield

    async with Limiter(1, name="outer", rank=SUBPROCESS).lease():
        async with open_runtime(clock=LoopClock(datetime(2031, 1, 1, tzinfo=UTC))) as runtime:
            await runtime.obtain("models", "key", lambda: ChildSpec("looking", open_looking))
        assert len(list(held_leases())) == 1
    assert seen == [runtime, datetime(2031, 1, 1, tzinfo=UTC), []]


async def test_several_in_one_loop_do_not_see_each_other() -> None:
    found: list[object] = []

    async def one(number: int) -> None:
        async with open_runtime(Settings(seed=number)) as runtime:
            recorder = Recorder(opening=1)
            ref = await runtime.obtain("models", "same key", recorder.spec)
            await anyio.sleep(number)
            assert current_runtime() is runtime
            assert ref.limiter is recorder.limiter
            assert await runtime.obtain("models", "same key", recorder.spec) is ref
            found.append(ref)
        assert current_runtime() is None
        assert recorder.notes == ["opening", "open", "closed"]

    async with anyio.create_task_group() as group:
        for number in (3, 1, 2):
            group.start_soon(one, number)
    assert len(set(map(id, found))) == 3


async def test_an_inner_runtime_hides_the_outer_one() -> None:
    async with open_runtime() as outer:
        async with open_runtime() as inner:
            assert current_runtime() is inner
        assert current_runtime() is outer


async def test_those_who_ask_at_once_share_one_start() -> None:
    recorder, refs = Recorder(opening=2), []
    async with open_runtime() as runtime:

        async def ask() -> None:
            refs.append(await runtime.obtain("models", "key", recorder.spec))

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(ask)
        assert len(refs) == 5
        assert len(set(map(id, refs))) == 1
        assert recorder.notes == ["opening", "open"]
        assert runtime.find("models", "key") is refs[0]
        assert runtime.find("scopes", "key") is None
    assert recorder.notes == ["opening", "open", "closed"]


async def test_a_start_that_fails_fails_for_all_who_waited_and_can_be_tried_again() -> None:
    recorder, errors = Recorder(opening=1, failures=1), []
    async with open_runtime() as runtime:

        async def ask() -> None:
            try:
                await runtime.obtain("models", "key", recorder.spec)
            except ValueError as error:
                errors.append(str(error))

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(ask)
        assert errors == ["cannot open"] * 3
        assert runtime.find("models", "key") is None
        await runtime.obtain("models", "key", recorder.spec)
    assert recorder.notes == ["opening", "opening", "open", "closed"]


async def test_when_the_one_who_started_is_cancelled_another_takes_over() -> None:
    recorder, refs = Recorder(opening=2), []
    async with open_runtime() as runtime:

        async def ask(patience: float) -> None:
            with anyio.move_on_after(patience):
                refs.append(await runtime.obtain("models", "key", recorder.spec))

        async with anyio.create_task_group() as group:
            for patience in (1, 10, 10):
                group.start_soon(ask, patience)
                await settle()
        assert len(refs) == 2
        assert len(set(map(id, refs))) == 1
        assert recorder.notes == ["opening", "opening", "open"]


async def test_a_forgotten_actor_is_stopped_and_the_next_one_is_new() -> None:
    recorder = Recorder()
    async with open_runtime() as runtime:
        first = await runtime.obtain("models", "key", recorder.spec)
        await runtime.forget("models", "key")
        await runtime.forget("models", "key")
        assert recorder.notes == ["opening", "open", "closed"]
        with pytest.raises(ActorGone):
            first.tell("anything")
        assert await runtime.obtain("models", "key", recorder.spec) is not first


async def test_the_limiters_of_its_actors_are_listed() -> None:
    shown, hidden = Recorder(), Recorder()
    async with open_runtime() as runtime:
        await runtime.obtain("models", "a", shown.spec)  # both are called the same
        await runtime.obtain("models", "b", hidden.spec, shown=False)
        assert runtime.limiters() == [shown.limiter, runtime.user_threads.limiter]


async def test_ids_are_repeated_by_a_seed_and_have_the_form_that_log_names_need() -> None:
    async def ids(seed: int | None, *, draw: int = 0) -> list[str]:
        async with open_runtime(Settings(seed=seed)) as runtime:
            for _ in range(draw):
                runtime.random.random()
            return [new_id() for _ in range(500)]

    first = await ids(7)
    assert first == await ids(7, draw=3)
    assert first != await ids(8)
    assert await ids(None) != await ids(None)
    assert len(set(first)) == 500
    assert {len(each) for each in first} == {22}
    used = Counter("".join(first))
    assert len(used) == 57
    assert not set("-_0O1Il") & set(used)
    assert max(used.values()) < 2 * min(used.values())  # no letter is preferred: 11,000 draws over 57 letters
    assert len(new_id()) == 22  # outside too


async def test_dates_come_from_the_runtimes_clock() -> None:
    async with open_runtime(clock=LoopClock(datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC))) as runtime:
        await anyio.sleep(60)
        assert iso_now() == "2031-05-06T07:09:09+00:00"
        assert runtime.clock.now() == utc_now() == datetime(2031, 5, 6, 7, 9, 9, tzinfo=UTC)
    assert abs((utc_now() - datetime.now(UTC)).total_seconds()) < 60


async def test_settings_are_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_EVAL_MAX_SUBPROCESSES", "3")
    async with open_runtime() as runtime:
        assert runtime.settings.max_subprocesses == 3
    monkeypatch.setenv("PROCTOR_EVAL_MAX_SUBPROCESSES", "0")
    with pytest.raises(OptionError, match="PROCTOR_EVAL_MAX_SUBPROCESSES"):
        async with open_runtime():
            pass


async def test_what_user_code_leaves_in_a_thread_is_named_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    begun, go = threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        go.wait(20)

    async with open_runtime() as runtime:
        assert await runtime.to_thread(len, "abc") == 3
        assert await runtime.run_user(len, "abcd") == 4
        async with anyio.create_task_group() as group:
            group.start_soon(runtime.run_user, stuck)
            await anyio.to_thread.run_sync(begun.wait, 20)
            group.cancel_scope.cancel()
    go.set()
    assert "user code still runs in a thread" in caplog.text
    assert stuck.__qualname__ in caplog.text


async def test_leaving_is_bounded_although_an_actor_does_not_close() -> None:
    @asynccontextmanager
    async def open_stubborn(context: object) -> AsyncIterator[None]:
        try:
            yield
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(1000)

    async with open_runtime() as runtime:
        await runtime.obtain("models", "key", lambda: ChildSpec("stubborn", open_stubborn))
    assert anyio.current_time() < 1001


async def test_in_an_ending_it_closes_within_what_is_left() -> None:
    class Slow:
        async def handle(self, message: object) -> None:
            await anyio.sleep(1000)

    @asynccontextmanager
    async def open_slow(context: object) -> AsyncIterator[Slow]:
        yield Slow()

    async def close(seconds: float | None) -> float:
        async with open_runtime() as runtime:
            ref = await runtime.obtain("models", "key", lambda: ChildSpec("slow", open_slow))
            ref.tell("begin")
            if seconds is not None:
                runtime.hurry(seconds)
            began = anyio.current_time()
        return anyio.current_time() - began

    assert await close(None) == 30
    assert await close(3) == 3


async def test_one_actor_whose_restarts_are_used_up_leaves_the_others_alone() -> None:
    class Fragile:
        async def handle(self, message: object) -> str:
            if message == "fail":
                raise Fault("again")
            return "answered"

    @asynccontextmanager
    async def open_fragile(context: ActorContext[Fragile]) -> AsyncIterator[Fragile]:
        async def fail() -> None:
            raise OSError("connection lost")

        if broken:
            context.start_soon(fail)
        yield Fragile()

    broken = False
    async with open_runtime() as runtime:
        sound = await runtime.obtain("models", "sound", lambda: ChildSpec("sound", open_fragile))
        broken = True
        given_up = await runtime.obtain("models", "broken", lambda: ChildSpec("broken", open_fragile))
        await anyio.sleep(600)
        with pytest.raises(ActorGone) as caught:
            await given_up.ask("anything")
        assert isinstance(caught.value.__cause__, SupervisorExhausted)
        assert await sound.ask("anything") == "answered"
        assert await runtime.obtain("models", "broken", lambda: ChildSpec("broken", open_fragile)) is given_up
        broken = False
        await runtime.forget("models", "broken")
        again = await runtime.obtain("models", "broken", lambda: ChildSpec("broken", open_fragile))
        assert await again.ask("anything") == "answered"


async def test_leases_of_a_sample_that_has_ended_are_revoked_and_refused() -> None:
    model, outcomes = Limiter(1, name="model"), dict[str, str]()

    async def call(name: str, begin: float) -> None:
        try:
            await anyio.sleep(begin)
            async with model.lease():
                await anyio.sleep(100)
        except SampleEnded as error:
            outcomes[name] = str(error)

    async with anyio.create_task_group() as stray:
        async with lease_scope(ended=SampleEnded, name="sample 7"):
            for name, begin in [("holds", 0.0), ("waits", 0.5), ("comes late", 5.0)]:
                stray.start_soon(call, name, begin)
            await anyio.sleep(1)
        await settle()
        assert (model.used, model.waiting, anyio.current_time()) == (0, 0, 1)
        assert set(outcomes) == {"holds", "waits"}
    assert set(outcomes) == {"holds", "waits", "comes late"}
    assert all(text.startswith("sample 7 has ended") for text in outcomes.values())


@pytest.mark.parametrize("name", ["asyncio"])
def test_the_calls_of_a_failed_gather_give_their_leases_back(name: str) -> None:
    import asyncio

    async def main() -> None:
        model, outcomes = Limiter(2, name="model"), dict[str, str]()

        async def fail() -> None:
            await anyio.sleep(0.01)
            raise ValueError("one of three")

        async def call(name: str) -> None:
            try:
                async with model.lease():
                    await anyio.sleep(100)
            except Exception as error:
                outcomes[name] = type(error).__name__

        with pytest.raises(ValueError, match="one of three"):
            async with lease_scope(ended=SampleEnded):
                await asyncio.gather(fail(), call("first"), call("second"))
        await anyio.sleep(0.01)
        assert (model.used, model.waiting) == (0, 0)
        assert outcomes == {"first": "SampleEnded", "second": "SampleEnded"}

    run(main, backend=name)


def test_five_runtimes_in_one_process_alternate_backends() -> None:
    async def main(name: str) -> tuple[str, list[str]]:
        recorder = Recorder()
        async with open_runtime() as runtime:
            ref = await runtime.obtain("models", "key", recorder.spec)
            async with ref.limiter.lease():
                await runtime.to_thread(len, name)
        return name, recorder.notes

    names = ["asyncio", "trio", "asyncio", "trio", "asyncio"]
    assert [run(main, name, backend=name) for name in names] == [
        (name, ["opening", "open", "closed"]) for name in names
    ]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("proctor engine")]
