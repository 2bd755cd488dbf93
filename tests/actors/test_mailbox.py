"""The mailbox: order, bound, coalescing; synchronous."""

from __future__ import annotations

import pytest

from proctor.actors import Mailbox
from proctor.errors import MailboxFull, OptionError


def drained(mailbox: Mailbox[str]) -> list[str]:
    taken = []
    while (item := mailbox.take()) is not None:
        taken.append(item)
    return taken


def test_messages_are_taken_in_the_order_in_which_they_were_sent() -> None:
    mailbox = Mailbox[str](8)
    mailbox.tell("a")
    mailbox.ask("b")
    mailbox.tell("c")
    assert len(mailbox) == 3
    assert drained(mailbox) == ["a", "b", "c"]
    assert len(mailbox) == 0


def test_a_tell_beyond_the_bound_is_refused_and_says_what_to_do() -> None:
    mailbox = Mailbox[str](2, "the mailbox of root/a")
    mailbox.tell("a")
    mailbox.tell("b")
    with pytest.raises(MailboxFull, match=r"the mailbox of root/a holds 2 messages.*coalesce_key"):
        mailbox.tell("c")
    assert drained(mailbox) == ["a", "b"]


def test_a_refused_tell_leaves_no_trace_and_room_comes_back() -> None:
    mailbox = Mailbox[str](1)
    mailbox.tell("a")
    with pytest.raises(MailboxFull):
        mailbox.tell("b", key="k")
    assert mailbox.take() == "a"
    assert mailbox.tell("c", key="k") is None
    assert drained(mailbox) == ["c"]


def test_asks_are_not_bounded_since_their_callers_wait() -> None:
    mailbox = Mailbox[str](1)
    mailbox.tell("told")
    for number in range(10):
        mailbox.ask(f"asked {number}")
    assert len(mailbox) == 11
    with pytest.raises(MailboxFull):
        mailbox.tell("one too many")


def test_a_later_tell_of_the_same_key_supersedes_the_queued_one_and_takes_its_own_turn() -> None:
    mailbox = Mailbox[str](3)
    assert mailbox.tell("old", key="progress") is None
    mailbox.tell("between")
    assert mailbox.tell("new", key="progress") == "old"
    assert drained(mailbox) == ["between", "new"]


def test_a_full_mailbox_still_takes_what_supersedes() -> None:
    mailbox = Mailbox[str](1)
    mailbox.tell("old", key=1)
    assert mailbox.tell("new", key=1) == "old"
    assert drained(mailbox) == ["new"]


def test_different_keys_and_no_keys_never_supersede() -> None:
    mailbox = Mailbox[str](9)
    for key in (None, None, "a", "b", 1, 2):
        assert mailbox.tell(f"{key!r}", key=key) is None
    assert len(mailbox) == 6


def test_a_key_is_free_again_once_its_message_was_taken() -> None:
    mailbox = Mailbox[str](9)
    mailbox.tell("first", key="k")
    assert mailbox.take() == "first"
    assert mailbox.tell("second", key="k") is None


def test_withdrawing_takes_out_exactly_that_entry() -> None:
    mailbox = Mailbox[str](2)
    mailbox.ask("a")
    mailbox.ask("b")
    mailbox.tell("c", key="k")
    assert mailbox.withdraw("b")
    assert not mailbox.withdraw("b")
    assert mailbox.withdraw("c")
    assert mailbox.tells == 0
    assert mailbox.tell("d", key="k") is None
    assert drained(mailbox) == ["a", "d"]


@pytest.mark.parametrize("bound", [0, -1])
def test_a_bound_below_one_is_refused(bound: int) -> None:
    with pytest.raises(OptionError, match=f"the bound of mailbox is {bound}"):
        Mailbox[str](bound)
