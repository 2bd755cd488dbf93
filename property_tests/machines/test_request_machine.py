"""The states of a request under every order of what its actor, its caller and its shell do (5, 14, 15)."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.actors.request import Finish, Gone, Leave, Raised, Request, RequestState, Stopped, Value

OUTCOMES = st.sampled_from([Value("value"), Raised(ValueError()), Gone(None), Stopped()])


class RequestMachine(RuleBasedStateMachine):
    """Drives one request; keeps count of what a user would see."""

    @initialize(told=st.booleans(), detached=st.booleans(), discards=st.booleans())
    def make(self, told: bool, detached: bool, discards: bool) -> None:
        self.request = Request(
            1,
            "message",
            "root/a",
            told=told,
            detached=detached and not told,
            discard=print if discards and not told else None,
        )
        self.begun = False
        self.handled: list[object] = []
        self.delivered: list[object] = []
        self.discarded = 0
        self.reported = 0
        self.waits = not told
        self.given_up = False

    @precondition(lambda self: not self.begun and self.request.state is RequestState.QUEUED)
    @rule()
    def begin(self) -> None:
        self.request.begin()
        self.begun = True

    @precondition(lambda self: self.begun and not self.handled)
    @rule(outcome=OUTCOMES)
    def handler_ends(self, outcome: Value | Raised | Gone | Stopped) -> None:
        before = self.request.outcome
        due = self.request.finish(outcome)
        self.handled.append(outcome)
        assert self.request.outcome is (outcome if before is None else before), "the first outcome stands"
        if due is Finish.DELIVER:
            assert self.waits, "only somebody who waits is woken"
        elif due is Finish.DISCARD:
            assert isinstance(outcome, Value)
            self.discarded += 1
        elif due is Finish.REPORT:
            assert isinstance(outcome, Raised)
            self.reported += 1

    @precondition(lambda self: not self.request.told and not self.delivered and not self.request.left)
    @rule(waits=st.booleans())
    def caller_leaves(self, waits: bool) -> None:
        state, outcome = self.request.state, self.request.outcome
        due = self.request.leave()
        if due is Leave.WITHDRAW:
            assert state is RequestState.QUEUED
            self.waits = False
        elif due is Leave.CANCEL:
            assert state is RequestState.RUNNING
            assert not self.request.detached
            if not waits:
                self.request.unattend()
                self.waits = False
        else:
            assert self.request.detached or state is RequestState.DONE
            self.waits = False
            if due is Leave.DISCARD:
                assert isinstance(outcome, Value)
                self.discarded += 1

    @precondition(lambda self: self.request.left)
    @rule()
    def caller_leaves_again(self) -> None:
        assert self.request.leave() is Leave.NOTHING

    @precondition(lambda self: self.begun or self.request.state is RequestState.QUEUED)
    @rule()
    def shell_gives_it_up(self) -> None:
        was_done = self.request.state is RequestState.DONE
        assert self.request.give_up(None) is not was_done
        self.given_up = True

    @precondition(
        lambda self: (
            self.waits and not self.request.left and self.request.state is RequestState.DONE and not self.delivered
        )
    )
    @rule()
    def caller_takes_the_outcome(self) -> None:
        self.delivered.append(self.request.deliver())

    @rule()
    def nothing_happens(self) -> None:
        """So that there is always a step."""

    @invariant()
    def is_never_answered_twice(self) -> None:
        if hasattr(self, "request"):
            assert len(self.delivered) <= 1
            assert self.request.delivered is bool(self.delivered)

    @invariant()
    def discards_at_most_once_and_never_what_was_delivered(self) -> None:
        if hasattr(self, "request"):
            assert self.discarded + any(isinstance(outcome, Value) for outcome in self.delivered) <= 1

    @invariant()
    def discards_what_nobody_can_take_any_more(self) -> None:
        if not hasattr(self, "request") or not self.handled or self.request.discard is None:
            return
        value_made = isinstance(self.handled[0], Value)
        nobody = self.request.left or (self.given_up and self.request.outcome is not self.handled[0])
        if value_made and nobody and not self.delivered:
            assert self.discarded == 1

    @invariant()
    def loses_no_error(self) -> None:
        if not hasattr(self, "request") or not self.handled or not isinstance(self.handled[0], Raised):
            return
        kept = self.request.outcome is self.handled[0] and (self.waits or self.request.attended or self.delivered)
        assert kept or self.reported == 1

    @invariant()
    def never_begins_what_was_withdrawn(self) -> None:
        if hasattr(self, "request") and self.request.left and not self.begun:
            assert self.request.state is RequestState.DONE or self.request.detached


TestRequest = RequestMachine.TestCase
