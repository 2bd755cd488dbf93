"""The mailbox of an actor: a plain synchronous queue that knows nothing of tasks.

Two kinds of entry share one order, so that what one sender does is seen in the order in which it was done:

- *tells* are bounded. Their sender does not wait, so nothing else would ever hold it back.
- *asks* are not: each has a task that waits for it, and that task is the bound. Counting them would refuse a caller
  that
  is willing to wait, or would need a second queue in front of this one.

A tell with a key supersedes the queued tell of the same key and takes its own turn, at the end. Keeping the older one's
place was rejected: the newer one would then overtake what its own sender told in between.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Any, Generic, TypeVar

from attrs import define, field

from proctor.errors import MailboxFull, OptionError

T = TypeVar("T")


def _at_least_one(mailbox: Mailbox[Any], _: object, bound: int) -> None:
    if bound < 1:
        raise OptionError(f"the bound of {mailbox.name} is {bound}: a mailbox holds at least 1 message")


@define(eq=False)
class Mailbox(Generic[T]):
    """Entries in arrival order; every operation takes constant time.

    Args:
        bound: how many tells may be queued at once, at least 1.
        name: whose mailbox it is, for error texts.
    """

    bound: int = field(validator=_at_least_one)
    name: str = "mailbox"
    tells: int = field(default=0, init=False)
    _entries: OrderedDict[int, tuple[T, Hashable | None, bool]] = field(factory=OrderedDict, init=False)
    _keyed: dict[Hashable, int] = field(factory=dict, init=False)
    _places: dict[int, int] = field(factory=dict, init=False)
    _arrivals: int = field(default=0, init=False)

    def __len__(self) -> int:
        return len(self._entries)

    def tell(self, item: T, *, key: Hashable | None = None) -> T | None:
        """Queue a tell.

        Args:
            item: what is queued.
            key: a queued tell of the same key is superseded by this one.

        Returns:
            The superseded tell, None when there was none.

        Raises:
            MailboxFull: as many tells as the bound allows are queued, and none of them may be superseded.
        """
        superseded = None
        if key is not None and (place := self._keyed.get(key)) is not None:
            superseded = self._remove(place)
        elif self.tells >= self.bound:
            raise MailboxFull(
                f"{self.name} holds {self.tells} messages, all its bound allows: tell it less often, give the messages "
                "a coalesce_key, ask instead of telling, or raise the actor's mailbox="
            )
        place = self._append(item, key, told=True)
        if key is not None:
            self._keyed[key] = place
        return superseded

    def ask(self, item: T) -> None:
        """Queue an ask, whose caller waits; never refused."""
        self._append(item, None, told=False)

    def withdraw(self, item: T) -> bool:
        """Take `item` out, wherever it stands. Returns whether it was queued."""
        place = self._places.get(id(item))
        if place is None:
            return False
        self._remove(place)
        return True

    def take(self) -> T | None:
        """Take the oldest entry, None when there is none."""
        if not self._entries:
            return None
        return self._remove(next(iter(self._entries)))

    def _append(self, item: T, key: Hashable | None, *, told: bool) -> int:
        self._arrivals = place = self._arrivals + 1
        self._entries[place] = (item, key, told)
        self._places[id(item)] = place
        self.tells += told
        return place

    def _remove(self, place: int) -> T:
        item, key, told = self._entries.pop(place)
        del self._places[id(item)]
        self.tells -= told
        if key is not None:
            del self._keyed[key]
        return item
