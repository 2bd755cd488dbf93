"""Limits that a whole runtime shares, while several evaluations in it may each ask for a number of their own.

What counts is, in this order: a number set while it runs (`SharedLimit.set`); the smallest that a running evaluation
asks for; what the runtime was opened with. Whoever enforces the limit follows it, so that a change reaches everybody
in the same instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from attrs import define, field

from proctor.runtime.settings import Resolved

Follower = Callable[[int | None], object]


@define(eq=False)
class SharedLimit:
    """One limit of the runtime.

    Attributes:
        name: the option it is known by: ``max_total_samples``.
        default: what the runtime was opened with, and where that came from; None: no limit, or each owner's own rule.
    """

    name: str
    default: Resolved[int | None]
    _asked: dict[object, Resolved[int | None]] = field(factory=dict, init=False)
    _set: Resolved[int | None] | None = field(default=None, init=False)
    _followers: list[Follower] = field(factory=list, init=False)

    @property
    def resolved(self) -> Resolved[int | None]:
        """The number in force and where it came from."""
        if self._set is not None:
            return self._set
        asked = [each for each in self._asked.values() if each.value is not None]
        return min(asked, key=lambda each: each.value or 0, default=self.default)

    @property
    def value(self) -> int | None:
        """The number in force."""
        return self.resolved.value

    @contextmanager
    def asked(self, limit: Resolved[int | None]) -> Iterator[None]:
        """Hold the limit to a number for the block; None asks for nothing."""
        key = object()
        self._asked[key] = limit
        self._tell()
        try:
            yield
        finally:
            del self._asked[key]
            self._tell()

    def set(self, limit: int | None, *, source: str) -> None:
        """Change it while it is in use, whatever is asked for; None takes that back. Holders stay undisturbed."""
        self._set = None if limit is None else Resolved(limit, source)
        self._tell()

    def follow(self, follower: Follower) -> Callable[[], None]:
        """Call `follower` with the number now and at each change; returns a function that ends this."""
        self._followers.append(follower)
        follower(self.value)
        return lambda: self._followers.remove(follower)

    def _tell(self) -> None:
        value = self.value
        for follower in tuple(self._followers):
            follower(value)
