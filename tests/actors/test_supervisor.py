"""Supervisors: starting, restarting, stopping, escalating."""

from __future__ import annotations

import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from attrs import define, field

from proctor.actors import ActorContext, Backoff, ChildSpec, Intensity, Limiter, Ref, Supervisor, open_supervisor
from proctor.errors import ActorGone, Fault, LeaseRevoked, OptionError, SupervisorExhausted
from proctor.testing import settle

AT_ONCE = Backoff(initial=0)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    with caplog.at_level(logging.CRITICAL, "proctor.actors"):
        yield


@define(eq=False)
class Log:
    """What happened to the actors of a test, in order."""

    lines: list[str] = field(factory=list)

    def __call__(self, text: str) -> None:
        self.lines.append(f"{anyio.current_time():g} {text}")

    def taken(self) -> list[str]:
        lines, self.lines = self.lines, []
        return lines


class Member:
    """An actor's state that does what it is told."""

    def __init__(self, context: ActorContext[Any]) -> None:
        self.context = context

    async def handle(self, message: object) -> object:
        if isinstance(message, BaseException):
            raise message
        assert callable(message)
        return await message()


def member(name: str, log: Log | None = None, **options: Any) -> ChildSpec[Member]:
    @asynccontextmanager
    async def open_member(context: ActorContext[Any]) -> AsyncIterator[Member]:
        if log is not None:
            log(f"open {name}")
        try:
            yield Member(context)
        finally:
            if log is not None:
                log(f"close {name}")

    return ChildSpec(name, open_member, **options)


def reprs(error: BaseException) -> list[str]:
    """The leaves of a group."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in reprs(each)]
    return [repr(error)]


async def kill(ref: Ref[Member], error: BaseException | None = None) -> None:
    ref.tell(error or Fault("killed"))
    await settle()


# -- starting


async def test_start_returns_when_the_actor_is_open() -> None:
    @asynccontextmanager
    async def open_slowly(context: ActorContext[Any]) -> AsyncIterator[Member]:
        await anyio.sleep(3)
        yield Member(context)

    async with open_supervisor("root") as supervisor:
        ref = await supervisor.start(ChildSpec("slow", open_slowly))
        assert anyio.current_time() == 3
        assert supervisor.children == (ref,)


async def test_start_raises_what_open_raised_and_leaves_no_child() -> None:
    @asynccontextmanager
    async def refuse(_: ActorContext[Any]) -> AsyncIterator[None]:
        raise PermissionError("no key")
        yield

    async with open_supervisor("root") as supervisor:
        with pytest.raises(PermissionError, match="no key"):
            await supervisor.start(ChildSpec("a", refuse))
        assert supervisor.children == ()
        await supervisor.start(member("a"))


async def test_a_failed_start_gives_the_limiter_back() -> None:
    @asynccontextmanager
    async def refuse(_: ActorContext[Any]) -> AsyncIterator[None]:
        raise PermissionError("no key")
        yield

    limiter = Limiter(1, name="places")
    async with open_supervisor("root") as supervisor:
        with pytest.raises(PermissionError):
            await supervisor.start(ChildSpec("a", refuse, limiter=limiter))
        ref = await supervisor.start(member("a", limiter=limiter))
        async with ref.limiter.lease():
            pass


async def test_a_start_cancelled_while_opening_leaves_nothing() -> None:
    log = Log()

    @asynccontextmanager
    async def open_slowly(context: ActorContext[Any]) -> AsyncIterator[Member]:
        try:
            await anyio.sleep(50)
            yield Member(context)
        finally:
            log("closed")

    async with open_supervisor("root") as supervisor:
        with anyio.move_on_after(2):
            await supervisor.start(ChildSpec("slow", open_slowly))
        assert log.lines == ["2 closed"]
        assert supervisor.children == ()


async def test_a_start_cancelled_in_the_instant_of_opening_leaves_nothing_and_gives_the_limiter_back() -> None:
    log = Log()
    limiter = Limiter(1, name="places")
    async with open_supervisor("root") as supervisor:
        with anyio.CancelScope() as scope:

            @asynccontextmanager
            async def open_it(context: ActorContext[Any]) -> AsyncIterator[Member]:
                scope.cancel()
                try:
                    yield Member(context)
                finally:
                    log("closed")

            await supervisor.start(ChildSpec("a", open_it, limiter=limiter))
        assert scope.cancelled_caught
        assert log.lines == ["0 closed"]
        assert supervisor.children == ()
        async with limiter.lease():
            pass


async def test_a_limiter_grants_no_lease_before_its_actor_is_open() -> None:
    @asynccontextmanager
    async def open_slowly(context: ActorContext[Any]) -> AsyncIterator[Member]:
        await anyio.sleep(3)
        yield Member(context)

    limiter = Limiter(1, name="places")
    granted: list[float] = []

    async def lease() -> None:
        async with limiter.lease():
            granted.append(anyio.current_time())

    async with open_supervisor("root") as supervisor, anyio.create_task_group() as nursery:
        nursery.start_soon(supervisor.start, ChildSpec("slow", open_slowly, limiter=limiter))
        await settle()
        nursery.start_soon(lease)
        await anyio.sleep(5)
        assert granted == [3]


async def test_two_children_of_one_name_are_refused() -> None:
    async with open_supervisor("root") as supervisor:
        await supervisor.start(member("a"))
        with pytest.raises(ValueError, match="root has a child 'a' already"):
            await supervisor.start(member("a"))
        with pytest.raises(ValueError, match="root has a child 'a' already"):
            await supervisor.start_supervisor("a")


async def test_a_name_is_free_again_after_a_stop() -> None:
    async with open_supervisor("root") as supervisor:
        first = await supervisor.start(member("a"))
        await supervisor.stop(first)
        second = await supervisor.start(member("a"))
        assert (first.alive, second.alive) == (False, True)


async def test_nothing_is_started_once_the_supervisor_has_closed() -> None:
    async with open_supervisor("root") as supervisor:
        pass
    with pytest.raises(ActorGone, match="root is closing and starts nothing: it cannot start 'a'"):
        await supervisor.start(member("a"))


# -- stopping


async def test_children_are_stopped_in_the_reverse_order_of_their_starting() -> None:
    log = Log()
    async with open_supervisor("root") as supervisor:
        for name in "abc":
            await supervisor.start(member(name, log))
        log.taken()
    assert log.lines == ["0 close c", "0 close b", "0 close a"]


async def test_running_handlers_may_finish_within_the_grace_then_they_are_cancelled() -> None:
    log = Log()

    async def work(name: str, seconds: float) -> None:
        try:
            await anyio.sleep(seconds)
            log(f"{name} finished")
        except BaseException:
            log(f"{name} cancelled")
            raise

    async with open_supervisor("root", grace=5) as supervisor:
        for name, seconds in (("quick", 3), ("slow", 30)):
            ref = await supervisor.start(member(name))
            ref.tell(lambda name=name, seconds=seconds: work(name, seconds))
    assert log.lines == ["3 quick finished", "5 slow cancelled"]


async def test_a_child_may_have_a_grace_of_its_own() -> None:
    async with open_supervisor("root", grace=5) as supervisor:
        ref = await supervisor.start(member("a", grace=1))
        ref.tell(lambda: anyio.sleep(100))
    assert anyio.current_time() == 1


async def test_the_grace_is_for_all_children_together() -> None:
    async with open_supervisor("root", grace=5) as supervisor:
        for name in "abc":
            ref = await supervisor.start(member(name))
            ref.tell(lambda: anyio.sleep(100))
    assert anyio.current_time() == 5


async def test_a_cancelled_block_stops_its_actors_in_order_after_its_own_clean_up() -> None:
    log = Log()

    async def answer() -> str:
        return "still here"

    with anyio.move_on_after(2):
        async with open_supervisor("root") as supervisor:
            refs = [await supervisor.start(member(name, log)) for name in "ab"]
            log.taken()
            try:
                await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    await anyio.sleep(1)
                    log(await refs[0].ask(answer))
    assert log.lines == ["3 still here", "3 close b", "3 close a"]


async def test_closing_a_context_is_bounded_and_named_if_it_resists(caplog: pytest.LogCaptureFixture) -> None:
    @asynccontextmanager
    async def open_it(_: ActorContext[Any]) -> AsyncIterator[None]:
        try:
            yield None
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(30)

    with caplog.at_level(logging.WARNING, "proctor.actors"):
        async with open_supervisor("root") as supervisor:
            other = await supervisor.start(member("other"))
            stubborn = await supervisor.start(ChildSpec("stubborn", open_it, bound=2))
            await supervisor.stop(stubborn)
            assert anyio.current_time() == 4
            assert other.alive
    assert anyio.current_time() == 30
    assert "the closing of root/stubborn still runs" in caplog.text


async def test_closing_that_hangs_is_cut_after_the_bound() -> None:
    @asynccontextmanager
    async def open_it(_: ActorContext[Any]) -> AsyncIterator[None]:
        try:
            yield None
        finally:
            await anyio.sleep_forever()

    async with open_supervisor("root") as supervisor:
        await supervisor.start(ChildSpec("hanging", open_it, bound=3))
    assert anyio.current_time() == 3


async def test_stop_raises_what_the_child_raised_while_it_ended() -> None:
    @asynccontextmanager
    async def open_it(_: ActorContext[Any]) -> AsyncIterator[None]:
        yield None
        raise OSError("could not remove the folder")

    async with open_supervisor("root") as supervisor:
        ref = await supervisor.start(ChildSpec("a", open_it))
        with pytest.raises(OSError, match="could not remove the folder"):
            await supervisor.stop(ref)
        await supervisor.stop(ref)


async def test_what_children_raise_while_all_is_stopped_is_raised_together() -> None:
    def failing(name: str) -> ChildSpec[None]:
        @asynccontextmanager
        async def open_it(_: ActorContext[Any]) -> AsyncIterator[None]:
            yield None
            raise OSError(name)

        return ChildSpec(name, open_it)

    with pytest.raises(ExceptionGroup) as caught:
        async with open_supervisor("root") as supervisor:
            await supervisor.start(failing("a"))
            await supervisor.start(failing("b"))
    assert reprs(caught.value) == ["OSError('b')", "OSError('a')"]


async def test_stopping_what_belongs_elsewhere_is_refused() -> None:
    async with open_supervisor("one") as one, open_supervisor("two") as two:
        ref = await one.start(member("a"))
        with pytest.raises(ValueError, match="one/a is no child of two"):
            await two.stop(ref)
        with pytest.raises(ValueError, match="one is no child of two"):
            await two.stop(one)


async def test_a_stop_whose_caller_is_cancelled_goes_on() -> None:
    async with open_supervisor("root", grace=10) as supervisor:
        ref = await supervisor.start(member("a"))
        ref.tell(lambda: anyio.sleep(4))
        with anyio.move_on_after(1):
            await supervisor.stop(ref)
        assert anyio.current_time() == 1
        await anyio.sleep(5)
        assert supervisor.children == ()


@pytest.mark.parametrize("error", [OSError("declared"), ValueError("bug")])
async def test_what_a_child_raises_while_it_is_stopped_is_not_lost_with_the_one_who_stops_it(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    @asynccontextmanager
    async def open_it(_: ActorContext[Any]) -> AsyncIterator[None]:
        yield None
        await anyio.sleep(2)
        raise error

    raised = None
    with caplog.at_level(logging.WARNING, "proctor.actors"):
        try:
            async with open_supervisor("root") as supervisor:
                ref = await supervisor.start(ChildSpec("a", open_it))
                with anyio.move_on_after(1):
                    await supervisor.stop(ref)
                await anyio.sleep(100)
        except ExceptionGroup as group:
            raised = group.exceptions
    if isinstance(error, OSError):
        assert raised is None
        assert "root/a failed while it ended: OSError: declared" in caplog.text
    else:
        assert raised == (error,)
        assert anyio.current_time() == 2


# -- restart kinds


@pytest.mark.parametrize(
    ("restart", "end", "comes_back"),
    [
        ("permanent", "fault", True),
        ("permanent", "done", True),
        ("transient", "fault", True),
        ("transient", "done", False),
        ("temporary", "fault", False),
        ("temporary", "done", False),
    ],
)
async def test_who_comes_back_after_what(restart: str, end: str, comes_back: bool) -> None:
    async with open_supervisor("root") as supervisor:
        ref = await supervisor.start(member("a", restart=restart))
        other = await supervisor.start(member("b"))
        if end == "fault":
            await kill(ref)
        else:
            ref.state.context.stop()
        await anyio.sleep(10)
        assert ref.alive is comes_back
        if comes_back:
            assert ref.state.context.incarnation == 2
        else:
            assert [child.address for child in supervisor.children] == ["root/b"]
        assert other.state.context.incarnation == 1


async def test_what_is_gone_answers_with_its_cause() -> None:
    async with open_supervisor("root") as supervisor:
        limiter = Limiter(1, name="places")
        ref = await supervisor.start(member("a", restart="temporary", limiter=limiter))
        async with limiter.lease(), anyio.create_task_group() as nursery:

            async def wait() -> None:
                with pytest.raises(ActorGone, match="root/a is gone: Fault: killed"):
                    async with limiter.lease():
                        pass

            nursery.start_soon(wait)
            await settle()
            await kill(ref)
        with pytest.raises(ActorGone, match="root/a is gone: Fault: killed") as caught:
            await ref.ask(anyio.lowlevel.checkpoint)
        assert isinstance(caught.value.__cause__, Fault)


# -- strategies


async def generations(strategy: Any, victim: int, log: Log) -> list[int]:
    async with open_supervisor("root", strategy=strategy, backoff=AT_ONCE) as supervisor:
        refs = [await supervisor.start(member(name, log)) for name in "abcd"]
        log.taken()
        await kill(refs[victim])
        await anyio.sleep(1)
        lines = log.taken()
        result = [ref.state.context.incarnation for ref in refs]
    log.lines = lines
    return result


async def test_one_for_one_leaves_siblings_alone() -> None:
    log = Log()
    assert await generations("one_for_one", 1, log) == [1, 2, 1, 1]
    assert log.lines == ["0 close b", "0 open b"]


async def test_rest_for_one_restarts_exactly_those_started_after_in_order() -> None:
    log = Log()
    assert await generations("rest_for_one", 1, log) == [1, 2, 2, 2]
    assert sorted(log.lines[:3]) == ["0 close b", "0 close c", "0 close d"]
    assert [line for line in log.lines if "close" in line and " b" not in line] == ["0 close d", "0 close c"]
    assert log.lines[3:] == ["0 open b", "0 open c", "0 open d"]


async def test_one_for_all_restarts_all_in_order() -> None:
    log = Log()
    assert await generations("one_for_all", 2, log) == [2, 2, 2, 2]
    assert log.lines[4:] == ["0 open a", "0 open b", "0 open c", "0 open d"]


async def test_a_temporary_sibling_that_is_ended_for_a_restart_does_not_come_back() -> None:
    async with open_supervisor("root", strategy="one_for_all", backoff=AT_ONCE) as supervisor:
        a = await supervisor.start(member("a"))
        b = await supervisor.start(member("b", restart="temporary"))
        await kill(a)
        await anyio.sleep(1)
        assert (a.alive, b.alive) == (True, False)


async def test_a_request_to_a_sibling_that_is_ended_for_a_restart_gets_the_cause() -> None:
    async with open_supervisor("root", strategy="one_for_all", backoff=AT_ONCE, grace=2) as supervisor:
        a = await supervisor.start(member("a"))
        b = await supervisor.start(member("b"))
        async with anyio.create_task_group() as nursery:

            async def ask() -> None:
                with pytest.raises(ActorGone, match="Fault: killed"):
                    await b.ask(lambda: anyio.sleep(100))
                assert anyio.current_time() == 2

            nursery.start_soon(ask)
            await settle()
            await kill(a)


async def test_a_failure_during_a_recovery_joins_it() -> None:
    log = Log()
    async with open_supervisor("root", strategy="rest_for_one", backoff=Backoff(initial=4, jitter=0)) as supervisor:
        refs = [await supervisor.start(member(name, log)) for name in "abc"]
        log.taken()
        await kill(refs[1])
        await anyio.sleep(1)
        await kill(refs[0])
        await anyio.sleep(20)
        assert [ref.state.context.incarnation for ref in refs] == [2, 2, 2]
        assert log.lines[-3:] == ["5 open a", "5 open b", "5 open c"]


async def test_those_that_were_ended_for_a_failed_child_come_back_though_it_is_stopped_meanwhile() -> None:
    backoff = Backoff(initial=4, jitter=0)
    async with open_supervisor("root", strategy="rest_for_one", backoff=backoff) as supervisor:
        a = await supervisor.start(member("a"))
        b = await supervisor.start(member("b"))
        await kill(a)
        await anyio.sleep(1)
        await supervisor.stop(a)
        await b.started()
        assert b.state.context.incarnation == 2


async def test_one_that_cannot_be_opened_again_is_tried_again_with_those_after_it() -> None:
    log = Log()
    attempts = 0

    @asynccontextmanager
    async def open_b(context: ActorContext[Any]) -> AsyncIterator[Member]:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            raise OSError("port in use")
        log("open b")
        yield Member(context)

    async with open_supervisor("root", strategy="rest_for_one", backoff=Backoff(initial=1, jitter=0)) as supervisor:
        a = await supervisor.start(member("a", log))
        await supervisor.start(ChildSpec("b", open_b))
        await supervisor.start(member("c", log))
        log.taken()
        await kill(a)
        await anyio.sleep(10)
        assert [line for line in log.lines if "open" in line] == ["1 open a", "2 open b", "2 open c"]


# -- intensity and backoff


async def test_one_restart_too_many_exhausts_the_supervisor_with_all_causes() -> None:
    with pytest.raises(SupervisorExhausted, match="root: more than 2 restarts within 10 s") as caught:
        async with open_supervisor("root", intensity=Intensity(restarts=2, window=10), backoff=AT_ONCE) as supervisor:
            ref = await supervisor.start(member("a"))
            for number in range(9):
                await ref.started()
                await kill(ref, Fault(str(number)))
                await anyio.sleep(1)
    assert reprs(caught.value) == ["Fault('0')", "Fault('1')", "Fault('2')"]
    assert anyio.current_time() == 2


async def test_restarts_that_are_far_enough_apart_never_exhaust_it() -> None:
    async with open_supervisor("root", intensity=Intensity(restarts=1, window=10), backoff=AT_ONCE) as supervisor:
        ref = await supervisor.start(member("a"))
        for _ in range(9):
            await kill(ref)
            await anyio.sleep(10)
        assert ref.state.context.incarnation == 10


async def test_a_restart_that_did_not_take_place_does_not_count() -> None:
    async with open_supervisor("root", intensity=Intensity(restarts=1, window=100)) as supervisor:
        a = await supervisor.start(member("a"))
        b = await supervisor.start(member("b"))
        await kill(a)
        await supervisor.stop(a)
        await kill(b)
        await b.started()
        assert b.state.context.incarnation == 2


async def test_no_restarts_at_all_may_be_allowed() -> None:
    with pytest.raises(SupervisorExhausted) as caught:
        async with open_supervisor("root", intensity=Intensity(restarts=0)) as supervisor:
            await kill(await supervisor.start(member("a")))
    assert reprs(caught.value) == ["Fault('killed')"]


async def test_a_supervisor_that_abandons_gives_up_one_child_and_keeps_the_others() -> None:
    async with open_supervisor(
        "root", intensity=Intensity(restarts=1, window=100), backoff=AT_ONCE, exhausted="abandon"
    ) as supervisor:
        a = await supervisor.start(member("a"))
        b = await supervisor.start(member("b"))
        for ref in (b, a, a):
            await ref.started()
            await kill(ref)
            await anyio.sleep(1)
        with pytest.raises(ActorGone, match="root/a is gone: SupervisorExhausted") as caught:
            await a.ask(anyio.lowlevel.checkpoint)
        assert isinstance(caught.value.__cause__, SupervisorExhausted)
        assert reprs(caught.value.__cause__) == ["Fault('killed')"] * 2
        await b.ask(anyio.lowlevel.checkpoint)
        assert b.state.context.incarnation == 2


async def test_the_delay_grows_up_to_its_maximum_and_begins_anew_after_stability() -> None:
    opened: list[float] = []

    @asynccontextmanager
    async def open_it(context: ActorContext[Any]) -> AsyncIterator[Member]:
        opened.append(anyio.current_time())
        yield Member(context)

    async with open_supervisor(
        "root",
        intensity=Intensity(restarts=99, window=1000),
        backoff=Backoff(initial=1, factor=2, maximum=5, jitter=0),
        stable_after=20,
    ) as supervisor:
        ref = await supervisor.start(ChildSpec("a", open_it))
        delays = []
        for stable in (0, 0, 0, 0, 19, 20, 0):
            await ref.started()
            await anyio.sleep(stable)
            died = anyio.current_time()
            await kill(ref)
            await ref.started()
            delays.append(opened[-1] - died)
    assert delays == [1, 2, 4, 5, 5, 1, 2]


async def test_jitter_takes_away_at_most_its_share_and_is_repeatable_from_the_seed() -> None:
    backoff = Backoff(initial=8, jitter=0.25)
    delays = [backoff.delay(0, random.Random(seed)) for seed in range(200)]
    assert all(6 < delay <= 8 for delay in delays)
    assert max(delays) - min(delays) > 1.5
    assert delays == [backoff.delay(0, random.Random(seed)) for seed in range(200)]
    assert backoff.delay(0, None) == 8


def test_a_delay_is_bounded_however_often_it_fails() -> None:
    assert Backoff(maximum=30).ceiling(100_000) == 30
    assert Backoff(initial=0).ceiling(100_000) == 0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Intensity(restarts=-1),
        lambda: Intensity(window=0),
        lambda: Backoff(initial=-1),
        lambda: Backoff(factor=0.5),
        lambda: Backoff(maximum=-1),
        lambda: Backoff(jitter=1.5),
    ],
)
def test_values_that_make_no_sense_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(OptionError):
        make()


@pytest.mark.parametrize(
    ("option", "value"),
    [("strategy", "all"), ("grace", -1), ("stable_after", -1), ("exhausted", "ignore"), ("name", "a/b"), ("name", "")],
)
async def test_options_that_make_no_sense_are_refused(option: str, value: Any) -> None:
    options = {"name": "root", option: value}
    with pytest.raises(OptionError, match=option):
        async with open_supervisor(**options):
            pass


# -- escalation


@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_a_programming_error_is_never_restarted(restart: Any) -> None:
    log = Log()
    with pytest.raises(ExceptionGroup) as caught:
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(member("a", log, restart=restart))
            await kill(ref, ZeroDivisionError("bug"))
            await anyio.sleep(100)
    assert reprs(caught.value) == ["ZeroDivisionError('bug')"]
    assert log.lines == ["0 open a", "0 close a"]


async def test_a_fault_with_a_bug_beside_it_is_no_declared_fault() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(member("a"))
            await kill(ref, ExceptionGroup("both", [Fault("fault"), KeyError("bug")]))
            await anyio.sleep(100)
    assert reprs(caught.value) == ["Fault('fault')", "KeyError('bug')"]


async def test_other_faults_can_be_declared() -> None:
    async with open_supervisor("root", faults=(LookupError,), backoff=AT_ONCE) as supervisor:
        ref = await supervisor.start(member("a"))
        await kill(ref, KeyError("declared"))
        await ref.started()
        assert ref.state.context.incarnation == 2


async def test_escalation_answers_who_waits_and_cancels_the_block_at_once() -> None:
    async def ask(ref: Ref[Member]) -> None:
        with pytest.raises(ActorGone, match="ValueError: bug"):
            await ref.ask(anyio.lowlevel.checkpoint)

    async with anyio.create_task_group() as nursery:
        with pytest.raises(ExceptionGroup) as caught:
            async with open_supervisor("root") as supervisor:
                ref = await supervisor.start(member("a"))
                ref.tell(lambda: anyio.sleep(1))
                ref.tell(ValueError("bug"))
                nursery.start_soon(ask, ref)
                await anyio.sleep(100)
        assert reprs(caught.value) == ["ValueError('bug')"]
        assert anyio.current_time() == 1


async def test_what_the_block_itself_raises_stays_as_it_is() -> None:
    with pytest.raises(KeyError, match="mine"):
        async with open_supervisor("root") as supervisor:
            await supervisor.start(member("a"))
            raise KeyError("mine")


async def test_what_the_block_raises_beside_an_escalation_is_in_the_group_too() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(member("a"))
            try:
                await kill(ref, ValueError("bug"))
                await anyio.sleep(100)
            finally:
                raise KeyError("mine")
    assert reprs(caught.value) == ["ValueError('bug')", "KeyError('mine')"]


async def test_the_blocks_own_view_of_a_failure_is_not_a_second_failure() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(member("a"))
            async with anyio.create_task_group() as nursery:
                nursery.start_soon(ref.ask, lambda: anyio.sleep(100))
                await settle()
                ref.state.context.start_soon(fail, ValueError("bug"))
                await anyio.sleep(100)
    assert reprs(caught.value) == ["ValueError('bug')"]


async def fail(error: BaseException) -> None:
    raise error


async def test_several_failures_at_once_are_all_raised() -> None:
    async def fail_tidying(number: int) -> None:
        try:
            await anyio.sleep(100)
        finally:
            raise ValueError(number)

    with pytest.raises(ExceptionGroup) as caught:
        async with open_supervisor("root") as supervisor:
            ref = await supervisor.start(member("a"))
            for number in (1, 2):
                ref.state.context.start_soon(fail_tidying, number)
            await settle()
            ref.state.context.start_soon(fail, KeyError("first"))
            await anyio.sleep(100)
    assert sorted(reprs(caught.value)) == ["KeyError('first')", "ValueError(1)", "ValueError(2)"]


async def test_an_error_of_closing_joins_the_one_it_died_of() -> None:
    @asynccontextmanager
    async def open_it(context: ActorContext[Any]) -> AsyncIterator[Member]:
        try:
            yield Member(context)
        finally:
            raise OSError("close failed")

    with pytest.raises(ExceptionGroup) as caught:
        async with open_supervisor("root", intensity=Intensity(restarts=1), backoff=AT_ONCE) as supervisor:
            ref = await supervisor.start(ChildSpec("a", open_it, leases="revoke"))
            await kill(ref, Fault("1"))
            await ref.started()
            await kill(ref, Fault("2"))
            await anyio.sleep(100)
    assert sorted(reprs(caught.value)) == [
        "Fault('1')",
        "Fault('2')",
        "OSError('close failed')",
        "OSError('close failed')",
    ]


# -- trees


async def test_a_child_supervisor_stops_and_starts_with_its_parents_order() -> None:
    log = Log()
    async with open_supervisor("root") as root:
        await root.start(member("a", log))
        branch = await root.start_supervisor("branch")
        b = await branch.start(member("b", log))
        await root.start(member("c", log))
        await branch.start(member("d", log))
        assert b.address == "root/branch/b"
        assert [child.address for child in root.children] == ["root/a", "root/branch", "root/c"]
        log.taken()
    assert log.lines == ["0 close c", "0 close d", "0 close b", "0 close a"]


async def test_a_child_supervisor_can_be_stopped_alone() -> None:
    log = Log()
    async with open_supervisor("root") as root:
        branch = await root.start_supervisor("branch")
        await branch.start(member("a", log))
        await root.start(member("b", log))
        await root.stop(branch)
        assert log.taken()[2:] == ["0 close a"]
        assert [child.address for child in root.children] == ["root/b"]


async def test_what_a_child_supervisors_actors_raise_while_it_is_stopped_is_raised_by_stop() -> None:
    @asynccontextmanager
    async def open_it(_: ActorContext[Any]) -> AsyncIterator[None]:
        yield None
        raise OSError("could not remove the folder")

    async with open_supervisor("root") as root:
        branch = await root.start_supervisor("branch")
        await branch.start(ChildSpec("a", open_it))
        with pytest.raises(OSError, match="could not remove the folder"):
            await root.stop(branch)


async def test_a_failure_in_a_branch_right_after_it_was_ended_for_a_restart_is_answered_too() -> None:
    backoff = Backoff(initial=2, jitter=0)
    async with open_supervisor("root", strategy="rest_for_one", backoff=backoff) as root:
        a = await root.start(member("a"))
        branch = await root.start_supervisor("branch")
        b = await branch.start(member("b"))
        await kill(b)
        await anyio.sleep(1)
        await kill(a)
        await b.started()
        await kill(b)
        await anyio.sleep(10)
        assert [ref.state.context.incarnation for ref in (a, b)] == [2, 3]


async def test_an_exhausted_child_supervisor_fails_its_parent_with_every_cause() -> None:
    log = Log()
    with pytest.raises(ExceptionGroup) as caught:
        async with open_supervisor("root") as root:
            await root.start(member("a", log))
            branch = await root.start_supervisor("branch", intensity=Intensity(restarts=1), backoff=AT_ONCE)
            b = await branch.start(member("b", log))
            await kill(b, Fault("1"))
            await b.started()
            await kill(b, Fault("2"))
            await anyio.sleep(100)
    assert isinstance(caught.value, SupervisorExhausted)
    assert caught.value.message == "root/branch: more than 1 restarts within 60 s"
    assert reprs(caught.value) == ["Fault('1')", "Fault('2')"]
    assert log.lines[-1] == "0 close a"


async def test_a_branch_is_restarted_as_a_whole_when_a_sibling_before_it_fails() -> None:
    log = Log()
    async with open_supervisor("root", strategy="rest_for_one", backoff=AT_ONCE) as root:
        a = await root.start(member("a", log))
        branch = await root.start_supervisor("branch", strategy="one_for_one")
        b = await branch.start(member("b", log))
        c = await branch.start(member("c", log))
        log.taken()
        await kill(a)
        await anyio.sleep(1)
        assert [ref.state.context.incarnation for ref in (a, b, c)] == [2, 2, 2]
        assert log.lines[-3:] == ["0 open a", "0 open b", "0 open c"]
        assert [line for line in log.lines if "close" in line and " a" not in line] == ["0 close c", "0 close b"]


async def test_what_a_child_supervisor_is_not_given_it_has_from_its_parent() -> None:
    async with open_supervisor("root", strategy="one_for_all", grace=7, exhausted="abandon") as root:
        branch = await root.start_supervisor("branch")
        assert isinstance(branch, Supervisor)
        assert (branch.strategy, branch.grace, branch.exhausted) == ("one_for_one", 7, "abandon")


# -- leases over a restart


async def hold(limiter: Limiter, seconds: float, ends: list[str], name: str) -> None:
    try:
        async with limiter.lease(revocable=True):
            await anyio.sleep(seconds)
        ends.append(f"{anyio.current_time():g} {name} left")
    except LeaseRevoked as revoked:
        ends.append(f"{anyio.current_time():g} {name} revoked: {revoked}")


async def test_drained_leases_go_on_with_the_old_state_which_stays_open_until_they_are_left() -> None:
    log, ends = Log(), list[str]()
    limiter = Limiter(2, name="places")
    async with open_supervisor("root", backoff=AT_ONCE) as supervisor, anyio.create_task_group() as nursery:
        ref = await supervisor.start(member("a", log, limiter=limiter, leases="drain"))
        nursery.start_soon(hold, limiter, 3, ends, "x")
        nursery.start_soon(hold, limiter, 5, ends, "y")
        await settle()
        log.taken()
        await kill(ref)
        assert ref.state.context.incarnation == 2
        assert limiter.used == 2
        nursery.start_soon(hold, limiter, 5, ends, "z")
        await anyio.sleep(4)
        assert log.lines == ["0 open a"]
        await anyio.sleep(4)
        assert log.lines == ["0 open a", "5 close a"]
    assert ends == ["3 x left", "5 y left", "8 z left"]


async def test_adopted_leases_go_over_and_those_that_were_lost_are_revoked() -> None:
    ends: list[str] = []
    limiter = Limiter(3, name="places")

    class Pool(Member):
        def adopts(self, lease: Any) -> bool:
            return lease.group != "lost"

    @asynccontextmanager
    async def open_pool(context: ActorContext[Any]) -> AsyncIterator[Pool]:
        yield Pool(context)

    async def hold_for(group: str, seconds: float) -> None:
        try:
            async with limiter.lease(group=group, revocable=True):
                await anyio.sleep(seconds)
            ends.append(f"{anyio.current_time():g} {group} left")
        except LeaseRevoked as revoked:
            ends.append(f"{anyio.current_time():g} {group} revoked: {revoked}")

    backoff = Backoff(initial=2, jitter=0)
    async with open_supervisor("root", backoff=backoff) as supervisor, anyio.create_task_group() as nursery:
        ref = await supervisor.start(ChildSpec("pool", open_pool, limiter=limiter, leases="adopt"))
        nursery.start_soon(hold_for, "kept", 5)
        nursery.start_soon(hold_for, "lost", 5)
        await settle()
        await kill(ref)
        assert limiter.used == 2
        await ref.started()
        await settle()
        assert limiter.used == 1
    assert ends == [
        "2 lost revoked: root/pool was restarted and has lost what the lease was for",
        "5 kept left",
    ]


async def test_revoked_leases_end_at_once() -> None:
    ends: list[str] = []
    limiter = Limiter(2, name="places")
    async with open_supervisor("root", backoff=AT_ONCE) as supervisor, anyio.create_task_group() as nursery:
        ref = await supervisor.start(member("a", limiter=limiter, leases="revoke"))
        nursery.start_soon(hold, limiter, 5, ends, "x")
        await settle()
        await kill(ref)
        await settle()
        assert limiter.used == 0
    assert ends == ["0 x revoked: killed"]


@pytest.mark.parametrize("leases", ["drain", "adopt", "revoke"])
async def test_no_lease_is_granted_between_two_incarnations(leases: Any) -> None:
    granted: list[float] = []
    limiter = Limiter(2, name="places")

    async def lease() -> None:
        async with limiter.lease():
            granted.append(anyio.current_time())

    backoff = Backoff(initial=3, jitter=0)
    async with open_supervisor("root", backoff=backoff) as supervisor, anyio.create_task_group() as nursery:
        ref = await supervisor.start(member("a", limiter=limiter, leases=leases))
        await kill(ref)
        nursery.start_soon(lease)
        await anyio.sleep(5)
    assert granted == [3]


async def test_a_stopped_actors_leases_have_the_grace_to_be_left() -> None:
    ends: list[str] = []
    log = Log()
    limiter = Limiter(2, name="places")
    async with anyio.create_task_group() as nursery:
        async with open_supervisor("root", grace=4) as supervisor:
            await supervisor.start(member("a", log, limiter=limiter))
            nursery.start_soon(hold, limiter, 3, ends, "x")
            await settle()
        assert log.lines == ["0 open a", "3 close a"]
    with pytest.raises(ActorGone, match="root/a was stopped"):
        async with limiter.lease():
            pass
