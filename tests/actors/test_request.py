"""The request state machine, driven by hand through the orders that matter."""

from __future__ import annotations

import pytest

from proctor.actors.request import Finish, Gone, Leave, Raised, Request, RequestState, Stopped, Value
from proctor.errors import Fault


def request(*, told: bool = False, detached: bool = False, discards: bool = True) -> Request:
    return Request(1, "message", "root/a", told=told, detached=detached, discard=print if discards else None)


def test_an_ask_goes_from_queued_through_running_to_done() -> None:
    it = request()
    states = [it.state]
    it.begin()
    states.append(it.state)
    assert it.finish(Value(3)) is Finish.DELIVER
    states.append(it.state)
    assert states == [RequestState.QUEUED, RequestState.RUNNING, RequestState.DONE]
    assert it.deliver() == Value(3)


def test_leaving_while_queued_withdraws() -> None:
    it = request()
    assert it.leave() is Leave.WITHDRAW
    assert it.state is RequestState.DONE


def test_a_withdrawn_request_cannot_begin() -> None:
    it = request()
    it.leave()
    with pytest.raises(AssertionError, match="begun while done"):
        it.begin()


def test_leaving_while_running_cancels_and_a_value_that_comes_all_the_same_is_discarded_once() -> None:
    it = request()
    it.begin()
    assert it.leave() is Leave.CANCEL
    assert it.finish(Value("container")) is Finish.DISCARD
    assert it.leave() is Leave.NOTHING
    assert it.discarded


def test_leaving_when_done_discards_the_value_once() -> None:
    it = request()
    it.begin()
    it.finish(Value("container"))
    assert it.leave() is Leave.DISCARD
    assert it.leave() is Leave.NOTHING


def test_without_a_hook_nothing_is_discarded() -> None:
    it = request(discards=False)
    it.begin()
    it.finish(Value(1))
    assert it.leave() is Leave.NOTHING
    assert not it.discarded


@pytest.mark.parametrize("outcome", [Raised(ValueError()), Gone(None), Stopped()])
def test_only_values_are_discarded(outcome: Raised | Gone | Stopped) -> None:
    it = request()
    it.begin()
    it.finish(outcome)
    assert it.leave() is Leave.NOTHING


def test_a_delivered_value_is_not_discarded() -> None:
    it = request()
    it.begin()
    it.finish(Value(1))
    it.deliver()
    assert it.leave() is Leave.NOTHING


def test_an_outcome_is_delivered_once() -> None:
    it = request()
    it.begin()
    it.finish(Value(1))
    it.deliver()
    with pytest.raises(AssertionError, match="delivered twice"):
        it.deliver()


def test_the_first_outcome_stands() -> None:
    it = request()
    it.begin()
    assert it.give_up(Fault("died"))
    assert not it.give_up(Fault("again"))
    assert it.finish(Value("late")) is Finish.DISCARD
    assert isinstance(it.outcome, Gone)


def test_a_caller_that_left_and_waits_is_told_of_an_error_of_the_handler() -> None:
    it = request()
    it.begin()
    it.leave()
    assert it.finish(Raised(ValueError())) is Finish.DELIVER


def test_an_error_that_nobody_waits_for_is_reported_to_the_actor() -> None:
    given_up = request()
    given_up.begin()
    given_up.leave()
    given_up.unattend()
    assert given_up.finish(Raised(ValueError())) is Finish.REPORT

    tell = request(told=True)
    tell.begin()
    assert tell.finish(Raised(ValueError())) is Finish.REPORT


def test_the_value_of_a_tell_is_nobodys() -> None:
    it = request(told=True, discards=False)
    it.begin()
    assert it.finish(Value(1)) is Finish.NOTHING


def test_a_detached_request_goes_on_when_its_caller_leaves() -> None:
    queued = request(detached=True)
    assert queued.leave() is Leave.NOTHING
    queued.begin()
    assert queued.finish(Value(1)) is Finish.DISCARD

    running = request(detached=True)
    running.begin()
    assert running.leave() is Leave.NOTHING
    assert running.finish(Raised(ValueError())) is Finish.REPORT
