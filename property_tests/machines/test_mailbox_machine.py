"""The mailbox against a list: order per sender, the bound kept, coalescing drops nothing that it may not (37)."""

from __future__ import annotations

from attrs import define, field, frozen
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from proctor.actors import Mailbox
from proctor.errors import MailboxFull


@frozen(eq=False)
class Letter:
    sender: int
    number: int
    told: bool
    key: str | None = None


@define
class Naive:
    """A mailbox as plain as can be."""

    bound: int
    letters: list[Letter] = field(factory=list)

    def tell(self, letter: Letter) -> Letter | MailboxFull | None:
        old = next((each for each in self.letters if letter.key is not None and each.key == letter.key), None)
        if old is not None:
            self.letters.remove(old)
        elif sum(each.told for each in self.letters) >= self.bound:
            return MailboxFull()
        self.letters.append(letter)
        return old


class MailboxMachine(RuleBasedStateMachine):
    @initialize(bound=st.integers(1, 4))
    def open(self, bound: int) -> None:
        self.mailbox = Mailbox[Letter](bound)
        self.naive = Naive(bound)
        self.sent = 0
        self.accepted: list[Letter] = []
        self.withdrawn: list[Letter] = []
        self.taken: list[Letter] = []
        self.superseded: list[Letter] = []

    @rule(sender=st.integers(0, 2), key=st.sampled_from([None, None, "a", "b"]))
    def tell(self, sender: int, key: str | None) -> None:
        self.sent += 1
        letter = Letter(sender, self.sent, True, key)
        expected = self.naive.tell(letter)
        try:
            old = self.mailbox.tell(letter, key=key)
        except MailboxFull:
            assert isinstance(expected, MailboxFull)
            return
        assert old is expected
        self.accepted.append(letter)
        if old is not None:
            assert old.key == key
            self.superseded.append(old)

    @rule(sender=st.integers(0, 2))
    def ask(self, sender: int) -> None:
        self.sent += 1
        letter = Letter(sender, self.sent, False)
        self.naive.letters.append(letter)
        self.mailbox.ask(letter)
        self.accepted.append(letter)

    @rule()
    def take(self) -> None:
        letter = self.mailbox.take()
        if letter is None:
            assert not self.naive.letters
            return
        assert letter is self.naive.letters.pop(0)
        self.taken.append(letter)

    @precondition(lambda self: self.accepted)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        letter = data.draw(st.sampled_from(self.accepted))
        queued = letter in self.naive.letters
        assert self.mailbox.withdraw(letter) is queued
        if queued:
            self.naive.letters.remove(letter)
            self.accepted.remove(letter)
            self.withdrawn.append(letter)

    @invariant()
    def agrees_with_the_naive_one(self) -> None:
        assert len(self.mailbox) == len(self.naive.letters)
        assert self.mailbox.tells == sum(letter.told for letter in self.naive.letters)

    @invariant()
    def keeps_its_bound(self) -> None:
        assert self.mailbox.tells <= self.naive.bound

    @invariant()
    def keeps_the_order_of_each_sender(self) -> None:
        for sender in range(3):
            numbers = [letter.number for letter in self.taken if letter.sender == sender]
            assert numbers == sorted(numbers)

    def teardown(self) -> None:
        if not hasattr(self, "mailbox"):
            return
        while (letter := self.mailbox.take()) is not None:
            self.taken.append(letter)
        gone = set(self.accepted) - set(self.taken)
        assert gone == set(self.superseded), "what was accepted is taken, unless a later one of its key superseded it"
        for old in self.superseded:
            assert any(later.key == old.key and later.number > old.number for later in self.accepted + self.withdrawn)
        self.keeps_the_order_of_each_sender()


TestMailbox = MailboxMachine.TestCase
