"""Actors as their callers see them: ask, tell, and every way for a request to end."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from attrs import define, field, frozen

from proctor.actors import ActorContext, ChildSpec, Limiter, Ref, open_supervisor
from proctor.errors import ActorGone, Fault, LeaseRevoked, MailboxFull, OptionError, SelfAsk
from proctor.testing import settle

colour: ContextVar[str] = ContextVar("colour", default="none")


@define(eq=False)
class Worker:
    """Does what its messages say; keeps a diary."""

    context: ActorContext[Any]
    diary: list[str] = field(factory=list)

    async def handle(self, message: object) -> object:
        assert callable(message)
        return await message(self)


def spec(name: str = "worker", **options: Any) -> ChildSpec[Worker]:
    @asynccontextmanager
    async def open_worker(context: ActorContext[Any]) -> AsyncIterator[Worker]:
        yield Worker(context)

    return ChildSpec(name, open_worker, **options)


@asynccontextmanager
async def worker(**options: Any) -> AsyncIterator[Ref[Worker]]:
    async with open_supervisor("root") as supervisor:
        yield await supervisor.start(spec(**options))


def sleeps(seconds: float, note: str = "slept") -> Callable[[Worker], Any]:
    async def sleep(state: Worker) -> str:
        state.diary.append(f"begin {note}")
        try:
            await anyio.sleep(seconds)
        finally:
            state.diary.append(f"end {note}")
        return note

    return sleep


def raises(error: BaseException) -> Callable[[Worker], Any]:
    async def fail(_: Worker) -> None:
        raise error

    return fail


# -- ask


async def test_ask_returns_what_the_handler_returns() -> None:
    async with worker() as ref:
        assert await ref.ask(sleeps(3)) == "slept"
        assert anyio.current_time() == 3


async def test_a_handlers_exception_reaches_its_caller_as_it_is_with_a_note_and_the_actor_lives() -> None:
    async with worker() as ref:
        with pytest.raises(ValueError, match="wrong") as caught:
            await ref.ask(raises(ValueError("wrong")))
        assert caught.value.__notes__ == ["raised in root/worker: the handler of function"]
        assert any(entry.name == "fail" for entry in caught.traceback)
        assert ref.state.context.incarnation == 1
        assert await ref.ask(sleeps(0)) == "slept"


async def test_an_oserror_of_one_request_is_that_callers_and_restarts_nothing() -> None:
    async with worker() as ref:
        with pytest.raises(FileNotFoundError):
            await ref.ask(raises(FileNotFoundError("no such program")))
        assert ref.state.context.incarnation == 1


async def test_the_handler_sees_the_callers_context_variables_and_keeps_its_own_changes() -> None:
    async def look(_: Worker) -> str:
        seen = colour.get()
        colour.set("changed by the handler")
        return seen

    async with worker() as ref:
        colour.set("green")
        assert await ref.ask(look) == "green"
        assert colour.get() == "green"
        colour.set("red")
        assert await ref.ask(look) == "red"


async def test_the_handler_sees_its_callers_deadline() -> None:
    async def look(_: Worker) -> float:
        return anyio.current_effective_deadline()

    async with worker() as ref:
        with anyio.move_on_after(7):
            assert await ref.ask(look) == 7
        assert await ref.ask(look) == float("inf")


async def test_one_request_is_handled_after_the_other_unless_more_handlers_are_allowed() -> None:
    for handlers, duration in ((1, 6), (2, 4), (None, 2)):
        began = anyio.current_time()
        async with worker(handlers=handlers) as ref, anyio.create_task_group() as nursery:
            for _ in range(3):
                nursery.start_soon(ref.ask, sleeps(2))
        assert anyio.current_time() - began == duration


async def test_requests_of_one_sender_are_handled_in_order_tells_among_them() -> None:
    async with worker() as ref:
        for number in range(5):
            ref.tell(sleeps(1, str(number)))
        await ref.ask(sleeps(0, "last"))
        begun = [entry.removeprefix("begin ") for entry in ref.state.diary if entry.startswith("begin")]
        assert begun == ["0", "1", "2", "3", "4", "last"]


async def test_a_caller_cancelled_while_queued_never_has_its_handler_started() -> None:
    async with worker() as ref:
        ref.tell(sleeps(5, "first"))
        with anyio.move_on_after(2):
            await ref.ask(sleeps(0, "second"))
        assert anyio.current_time() == 2
        await anyio.sleep(10)
        assert ref.state.diary == ["begin first", "end first"]


async def test_a_caller_in_a_cancelled_scope_asks_nothing() -> None:
    async with worker() as ref:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await ref.ask(sleeps(0))
        assert ref.state.diary == []


async def test_a_caller_cancelled_while_its_handler_runs_waits_for_the_handlers_end() -> None:
    async def tidy(state: Worker) -> None:
        try:
            await anyio.sleep(100)
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(3)
            state.diary.append("tidied")

    async with worker() as ref:
        with anyio.move_on_after(2) as scope:
            await ref.ask(tidy)
        assert scope.cancelled_caught
        assert anyio.current_time() == 5
        assert ref.state.diary == ["tidied"]


async def test_an_exception_of_a_cancelled_handlers_clean_up_is_not_lost() -> None:
    async def break_in_tidying(_: Worker) -> None:
        try:
            await anyio.sleep(100)
        finally:
            raise ValueError("broke while tidying")

    async with worker() as ref:
        with pytest.raises(ValueError, match="broke while tidying"), anyio.move_on_after(2):
            await ref.ask(break_in_tidying)
        assert ref.state.context.incarnation == 1


async def test_a_deadline_holds_for_the_handler_though_its_caller_moved_it() -> None:
    async with worker() as ref:
        with anyio.CancelScope(deadline=2) as scope:

            async def move(_: Worker) -> None:
                scope.deadline = 50
                await anyio.sleep(100)

            with pytest.raises(TimeoutError, match="root/worker: the deadline of the request passed"):
                await ref.ask(move)
        assert anyio.current_time() == 2


async def test_a_detached_handler_goes_on_without_its_caller_and_without_a_deadline() -> None:
    async with worker() as ref:
        with anyio.move_on_after(2):
            await ref.ask(sleeps(5, "effect"), detach=True)
        assert anyio.current_time() == 2
        await anyio.sleep(10)
        assert ref.state.diary == ["begin effect", "end effect"]


async def test_a_detached_request_runs_though_its_caller_left_while_it_was_queued() -> None:
    async with worker() as ref:
        ref.tell(sleeps(5, "first"))
        with anyio.move_on_after(1):
            await ref.ask(sleeps(1, "effect"), detach=True)
        await anyio.sleep(10)
        assert ref.state.diary[2:] == ["begin effect", "end effect"]


async def test_an_ask_closed_from_outside_cancels_its_handler() -> None:
    async with worker() as ref:
        asking = ref.ask(sleeps(100))
        asking.send(None)
        await settle()
        assert ref.statistics().running == 1
        asking.close()
        await settle()
        assert ref.state.diary == ["begin slept", "end slept"]
        assert ref.statistics().running == 0


# -- discard


@pytest.mark.parametrize("waits", [False, True])
async def test_a_value_that_could_not_be_delivered_is_discarded_once(waits: bool) -> None:
    discarded: list[object] = []

    async def discard_slowly(value: object) -> None:
        await anyio.sleep(2)
        discarded.append(value)

    async with worker() as ref:
        with anyio.CancelScope() as scope:

            async def create(_: Worker) -> str:
                scope.cancel()
                return "container"

            await ref.ask(create, discard=discard_slowly if waits else discarded.append)
        assert scope.cancelled_caught
        assert discarded == ["container"]
        assert anyio.current_time() == (2 if waits else 0)


async def test_a_value_of_a_handler_that_finishes_in_spite_of_cancellation_is_discarded() -> None:
    discarded: list[object] = []

    async def create(_: Worker) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3)
        return "container"

    async with worker() as ref:
        with anyio.move_on_after(1):
            await ref.ask(create, discard=discarded.append)
        assert anyio.current_time() == 3
        assert discarded == ["container"]


async def test_a_delivered_value_is_not_discarded() -> None:
    discarded: list[object] = []
    async with worker() as ref:
        assert await ref.ask(sleeps(1), discard=discarded.append) == "slept"
        with pytest.raises(ValueError, match="x"):
            await ref.ask(raises(ValueError("x")), discard=discarded.append)
        with anyio.move_on_after(1):
            await ref.ask(sleeps(5), discard=discarded.append)
    assert discarded == []


async def test_a_failing_discard_hook_is_the_actors_failure() -> None:
    def fail(_: object) -> None:
        raise OSError("could not remove it")

    async with worker() as ref:
        with anyio.CancelScope() as scope:

            async def create(_: Worker) -> str:
                scope.cancel()
                return "container"

            await ref.ask(create, discard=fail)
        await ref.started()
        assert ref.state.context.incarnation == 2


async def test_a_caller_waits_for_the_end_of_a_discard_that_begins_late() -> None:
    ends: list[float] = []

    async def discard(_: object) -> None:
        await anyio.sleep(3)
        ends.append(anyio.current_time())

    async def create(_: Worker) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(4)
        return "container"

    async with worker(bound=4) as ref:
        with anyio.move_on_after(1):
            await ref.ask(create, discard=discard)
        assert ends == [anyio.current_time()] == [7]
        assert ref.state.context.incarnation == 1


async def test_a_discard_hook_that_takes_too_long_is_cut_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def hang(_: object) -> None:
        await anyio.sleep_forever()

    async with worker(bound=4) as ref:
        with anyio.CancelScope() as scope:

            async def create(_: Worker) -> str:
                scope.cancel()
                return "container"

            await ref.ask(create, discard=hang)
        assert anyio.current_time() == 4
    assert "the discard hook of root/worker: the handler of function was cut after 4 s" in caplog.text


# -- the actor dies


async def test_an_actor_that_dies_during_an_ask_answers_it_at_once() -> None:
    async with worker() as ref:

        async def die_soon(state: Worker) -> None:
            async def die() -> None:
                await anyio.sleep(2)
                raise Fault("the connection broke")

            state.context.start_soon(die)
            await anyio.sleep(100)

        with pytest.raises(ActorGone, match="root/worker is gone: Fault: the connection broke") as caught:
            await ref.ask(die_soon)
        assert anyio.current_time() == 2
        assert isinstance(caught.value.__cause__, Fault)


async def test_a_handler_that_raises_a_fault_ends_its_actor() -> None:
    async with worker() as ref:
        with pytest.raises(ActorGone) as caught:
            await ref.ask(raises(Fault("broken")))
        assert isinstance(caught.value.__cause__, Fault)
        await ref.started()
        assert ref.state.context.incarnation == 2


async def test_requests_that_were_queued_when_it_died_are_handled_by_the_next_incarnation() -> None:
    async with worker() as ref, anyio.create_task_group() as nursery:
        answers: list[object] = []

        async def ask(message: object) -> None:
            try:
                answers.append(await ref.ask(message))
            except ActorGone:
                answers.append("gone")

        async def die(_: Worker) -> None:
            await anyio.sleep(1)
            raise Fault("dies")

        nursery.start_soon(ask, die)
        await settle()
        ref.tell(sleeps(0, "told"))
        nursery.start_soon(ask, sleeps(1))
        await anyio.sleep(10)
        assert answers == ["gone", "slept"]
        assert ref.state.diary[:1] == ["begin told"]
        assert ref.state.context.incarnation == 2


async def test_state_says_when_there_is_no_incarnation_and_started_waits_for_the_next() -> None:
    async with worker() as ref:
        ref.tell(raises(Fault("dies")))
        await settle()
        with pytest.raises(ActorGone, match="root/worker is being restarted"):
            _ = ref.state
        assert ref.alive
        assert ref.statistics().incarnation is None
        await ref.started()
        assert ref.state.context.incarnation == 2


async def test_a_stopped_actor_answers_nothing_more() -> None:
    async with open_supervisor("root") as supervisor:
        ref = await supervisor.start(spec())
        await supervisor.stop(ref)
        assert not ref.alive
        for use in (lambda: ref.tell(sleeps(0)), lambda: ref.state):
            with pytest.raises(ActorGone, match="root/worker was stopped"):
                use()
        for wait in (ref.ask(sleeps(0)), ref.started()):
            with pytest.raises(ActorGone, match="root/worker was stopped"):
                await wait


async def test_requests_in_flight_when_an_actor_is_stopped_end_queued_at_once_running_after_the_grace() -> None:
    async with open_supervisor("root", grace=3) as supervisor, anyio.create_task_group() as nursery:
        ref = await supervisor.start(spec())
        ends: list[tuple[str, float, str]] = []

        async def ask(name: str, seconds: float) -> None:
            try:
                await ref.ask(sleeps(seconds))
                ends.append((name, anyio.current_time(), "answered"))
            except ActorGone as gone:
                ends.append((name, anyio.current_time(), str(gone)))

        nursery.start_soon(ask, "running", 100)
        await settle()
        nursery.start_soon(ask, "queued", 1)
        await anyio.sleep(1)
        await supervisor.stop(ref)
        await settle()
        assert ends == [("queued", 1, "root/worker was stopped"), ("running", 4, "root/worker was stopped")]


# -- handlers that resist


async def test_a_handler_that_resists_is_named_and_its_incarnation_replaced(caplog: pytest.LogCaptureFixture) -> None:
    discarded: list[object] = []

    async def resist(_: Worker) -> str:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)
        return "late"

    async with worker(bound=5) as ref:
        with anyio.move_on_after(2) as scope:
            await ref.ask(resist, discard=discarded.append)
        assert scope.cancelled_caught
        assert anyio.current_time() == 7
        await ref.started()
        assert ref.state.context.incarnation == 2
        assert await ref.ask(sleeps(0)) == "slept"
        assert discarded == []
        await anyio.sleep_until(30)
        assert discarded == ["late"]
        assert ref.state.context.incarnation == 2
    named = [record.getMessage() for record in caplog.records if "still runs" in record.getMessage()]
    assert [text.split(" still runs ")[1].split(" after")[0] for text in named] == ["5 s", "10 s", "15 s"]
    assert all(text.startswith("root/worker: the handler of function") for text in named)


async def test_leases_of_an_incarnation_whose_handler_resists_are_revoked(caplog: pytest.LogCaptureFixture) -> None:
    async def resist(_: Worker) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)

    caplog.set_level(logging.CRITICAL)
    limiter = Limiter(4, name="places")
    async with worker(bound=5, limiter=limiter) as ref, anyio.create_task_group() as nursery:
        ends: list[float] = []

        async def hold() -> None:
            with pytest.raises(LeaseRevoked, match="resists its cancellation for 5 s"):
                async with limiter.lease(revocable=True):
                    await anyio.sleep_forever()
            ends.append(anyio.current_time())

        nursery.start_soon(hold)
        with anyio.move_on_after(1):
            await ref.ask(resist)
        await settle()
        assert ends == [6]
        assert limiter.used == 0


async def test_an_actor_that_dies_answers_within_the_bound_though_a_handler_resists(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)

    async def resist(state: Worker) -> None:
        async def die() -> None:
            await anyio.sleep(1)
            raise Fault("dies")

        state.context.start_soon(die)
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)

    async with worker(bound=5) as ref:
        with pytest.raises(ActorGone, match="Fault: dies"):
            await ref.ask(resist)
        assert anyio.current_time() == 6


async def test_an_error_of_a_handler_that_was_given_up_goes_to_the_supervisor(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)

    async def resist(_: Worker) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)
        raise ValueError("a bug, late")

    with pytest.raises(ExceptionGroup) as caught:
        async with worker(bound=5) as ref:
            with anyio.move_on_after(2):
                await ref.ask(resist)
            await anyio.sleep(100)
    assert [repr(error) for error in caught.value.exceptions] == ["ValueError('a bug, late')"]
    assert anyio.current_time() == 20


async def test_a_handler_that_resists_while_its_actor_is_stopped_is_named_and_raises_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def resist(_: Worker) -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)

    async with open_supervisor("root", grace=1) as supervisor:
        ref = await supervisor.start(spec(bound=5))
        ref.tell(resist)
        await supervisor.stop(ref)
        assert anyio.current_time() == 6
        await supervisor.start(spec())
    assert "root/worker: the handler of function still runs 5 s after it was cancelled" in caplog.text


async def test_a_task_of_the_actor_that_resists_is_named_too(caplog: pytest.LogCaptureFixture) -> None:
    async def resist() -> None:
        with anyio.CancelScope(shield=True):
            await anyio.sleep(20)

    async with worker(bound=5) as ref:
        ref.state.context.start_soon(resist)
        await settle()
        with pytest.raises(ActorGone):
            await ref.ask(raises(Fault("dies")))
        assert anyio.current_time() == 0
        await ref.started()
        assert anyio.current_time() == 5
    assert "a task that root/worker started still runs 5 s after it was cancelled" in caplog.text


# -- an actor and itself


async def test_an_actor_that_asks_itself_is_told_so_at_once() -> None:
    async with worker() as ref:

        async def ask_oneself(_: Worker) -> None:
            await ref.ask(sleeps(0))

        with pytest.raises(SelfAsk, match=r"root/worker asks itself \(root/worker <- root/worker\)"):
            await ref.ask(ask_oneself)


async def test_an_actor_that_asks_itself_through_another_is_told_so_at_once() -> None:
    async with open_supervisor("root") as supervisor:
        a = await supervisor.start(spec("a"))
        b = await supervisor.start(spec("b"))

        async def ask_back(_: Worker) -> None:
            await a.ask(sleeps(0))

        async def ask_on(_: Worker) -> None:
            async with anyio.create_task_group() as nursery:
                nursery.start_soon(b.ask, ask_back)

        with pytest.raises(ExceptionGroup) as caught:
            await a.ask(ask_on)
        (error,) = caught.value.exceptions
        assert isinstance(error, SelfAsk)
        assert "root/a <- root/b <- root/a" in str(error)


async def test_what_does_not_wait_for_itself_is_not_accused() -> None:
    async with open_supervisor("root") as supervisor:
        a = await supervisor.start(spec("a"))
        b = await supervisor.start(spec("b"))
        seen: list[object] = []

        async def later() -> None:
            seen.append(await a.ask(sleeps(0, "from the background")))

        async def start_background(state: Worker) -> None:
            state.context.start_soon(later)
            a.tell(sleeps(0, "told oneself"))
            await anyio.sleep(1)

        async def ask_a_after_its_caller_left(_: Worker) -> None:
            await anyio.sleep(5)
            seen.append(await a.ask(sleeps(0, "from a detached handler")))

        async def leave(_: Worker) -> None:
            with anyio.move_on_after(1):
                await b.ask(ask_a_after_its_caller_left, detach=True)

        await a.ask(start_background)
        await a.ask(leave)
        await anyio.sleep(10)
        assert seen == ["from the background", "from a detached handler"]


async def test_actors_of_one_address_in_two_trees_are_not_taken_for_one() -> None:
    async with worker() as outer, worker() as inner:
        assert outer.address == inner.address

        async def ask_the_other(_: Worker) -> object:
            return await inner.ask(sleeps(0))

        assert await outer.ask(ask_the_other) == "slept"


# -- tell


@frozen
class Progress:
    done: int
    coalesce_key: str = "progress"

    async def __call__(self, state: Worker) -> None:
        state.diary.append(f"progress {self.done}")


async def test_a_full_mailbox_refuses_a_tell_at_once() -> None:
    async with worker(mailbox=2) as ref:
        ref.tell(sleeps(1))  # begins at once, so it does not count
        for _ in range(2):
            ref.tell(sleeps(1))
        with pytest.raises(MailboxFull, match="the mailbox of root/worker holds 2 messages"):
            ref.tell(sleeps(1))
        await anyio.sleep(1)
        await settle()
        ref.tell(sleeps(1))


async def test_messages_of_one_key_are_coalesced_to_the_last() -> None:
    async with worker(mailbox=1) as ref:
        ref.tell(sleeps(1, "busy"))
        for done in range(50):
            ref.tell(Progress(done))
        await anyio.sleep(5)
        assert ref.state.diary == ["begin busy", "end busy", "progress 49"]


async def test_a_told_handler_has_the_actors_own_context_whoever_made_room_for_it() -> None:
    seen: list[str] = []

    async def look(_: Worker) -> None:
        seen.append(colour.get())

    async def ask_in_green(ref: Ref[Worker]) -> None:
        colour.set("green")
        await ref.ask(sleeps(2))

    async with worker() as ref, anyio.create_task_group() as nursery:
        nursery.start_soon(ask_in_green, ref)
        await settle()
        colour.set("red")
        ref.tell(look)
        await anyio.sleep(3)
        ref.tell(look)
    assert seen == ["none", "none"]


@pytest.mark.parametrize("error", [Fault("declared"), OSError("declared too")])
async def test_a_fault_in_a_told_handler_restarts_the_actor(error: Exception) -> None:
    async with worker() as ref:
        ref.tell(raises(error))
        await settle()
        await ref.started()
        assert ref.state.context.incarnation == 2


async def test_a_bug_in_a_told_handler_escalates() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        async with worker() as ref:
            ref.tell(raises(ValueError("bug")))
            await anyio.sleep(100)
    assert [repr(error) for error in caught.value.exceptions] == ["ValueError('bug')"]
    assert anyio.current_time() == 0


async def test_a_state_without_handle_takes_no_messages() -> None:
    @asynccontextmanager
    async def open_mute(_: ActorContext[Any]) -> AsyncIterator[int]:
        yield 3

    async with open_supervisor("root") as supervisor:
        ref = await supervisor.start(ChildSpec("mute", open_mute))
        assert ref.state == 3
        with pytest.raises(TypeError, match="root/mute takes no messages: its state, int, has no"):
            ref.tell("hello")
        with pytest.raises(TypeError, match="root/mute takes no messages"):
            await ref.ask("hello")
        assert ref.alive


# -- what an incarnation may do


async def test_tasks_started_while_opening_run_once_it_is_open_with_the_actors_own_context() -> None:
    seen: list[str] = []

    async def look() -> None:
        seen.append(colour.get())

    @asynccontextmanager
    async def open_it(context: ActorContext[Any]) -> AsyncIterator[Worker]:
        context.start_soon(look)
        assert seen == []
        yield Worker(context)

    async with open_supervisor("root") as supervisor:
        colour.set("the caller's")
        ref = await supervisor.start(ChildSpec("it", open_it))

        async def look_from_a_handler(state: Worker) -> None:
            state.context.start_soon(look)

        await ref.ask(look_from_a_handler)
        await settle()
    assert seen == ["none", "none"]


async def test_an_actor_knows_its_address_limiter_and_incarnation() -> None:
    limiter = Limiter(1, name="places")
    async with worker(limiter=limiter) as ref:
        context = ref.state.context
        assert (context.address, context.incarnation, context.stopping) == ("root/worker", 1, False)
        assert context.limiter is limiter
        assert ref.limiter is limiter
        assert repr(ref) == "<Ref root/worker alive>"
        statistics = ref.statistics()
        assert (statistics.incarnation, statistics.queued, statistics.running, statistics.gone) == (1, 0, 0, False)


async def test_an_actor_without_limiter_says_so() -> None:
    async with worker() as ref:
        with pytest.raises(AttributeError, match="root/worker has no limiter"):
            _ = ref.limiter


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("restart", "always"),
        ("leases", "keep"),
        ("mailbox", 0),
        ("handlers", 0),
        ("bound", -1),
        ("grace", -0.5),
    ],
)
def test_a_spec_refuses_what_makes_no_sense(option: str, value: object) -> None:
    with pytest.raises(OptionError, match=f"ChildSpec of 'worker': {option}={value!r} must be"):
        spec(**{option: value})


@pytest.mark.parametrize("name", ["", "a/b"])
def test_a_name_is_one_part_of_an_address(name: str) -> None:
    with pytest.raises(OptionError, match="non-empty text without '/'"):
        spec(name)
