"""How often and how fast a supervisor restarts: values, and the record of what it did."""

from __future__ import annotations

from collections import deque
from typing import Protocol

from attrs import define, field, frozen

from proctor.actors.checks import check


class Chance(Protocol):
    """Where jitter comes from; `random.Random` is one."""

    def random(self) -> float:
        """A number from 0 up to but without 1."""
        ...


@frozen(kw_only=True)
class Intensity:
    """At most `restarts` restarts in any `window` seconds; the next failure exhausts the supervisor.

    A window is half open: a restart at 0 and one at 60 are not in the same window of 60 seconds.
    """

    restarts: int = 5
    window: float = 60.0

    def __attrs_post_init__(self) -> None:
        check("Intensity", "restarts", self.restarts, self.restarts >= 0, "at least 0")
        check("Intensity", "window", self.window, self.window > 0, "more than 0 seconds")


@frozen(kw_only=True)
class Backoff:
    """Seconds between a failure and its restart: `initial * factor ** n`, at most `maximum`, the n-th time in a row.

    `jitter` is the share of it that chance takes away, so that what failed together does not come back together: the
    delay lies between `(1 - jitter)` of it and all of it.
    """

    initial: float = 0.1
    factor: float = 2.0
    maximum: float = 30.0
    jitter: float = 0.5

    def __attrs_post_init__(self) -> None:
        check("Backoff", "initial", self.initial, self.initial >= 0, "at least 0 seconds")
        check("Backoff", "factor", self.factor, self.factor >= 1, "at least 1")
        check("Backoff", "maximum", self.maximum, self.maximum >= 0, "at least 0 seconds")
        check("Backoff", "jitter", self.jitter, 0 <= self.jitter <= 1, "from 0 to 1")

    def delay(self, attempt: int, chance: Chance | None) -> float:
        """Seconds before the restart number `attempt` in a row, counted from 0; without chance there is no jitter."""
        ceiling = self.ceiling(attempt)
        return ceiling if chance is None else ceiling * (1.0 - self.jitter * chance.random())

    def ceiling(self, attempt: int) -> float:
        """The most that `delay` may return for this attempt."""
        if self.initial == 0:
            return 0.0
        try:
            return min(self.maximum, self.initial * self.factor**attempt)
        except OverflowError:
            return self.maximum


@define(eq=False)
class Restart:
    """A failure that is answered by a restart.

    Attributes:
        causes: why; more than one when the incarnation met more failures while it ended.
        due: when its backoff is over. at: when the restart began, None until then.
    """

    causes: list[BaseException]
    due: float = 0.0
    at: float | None = None


@define(eq=False)
class RestartRecord:
    """The restarts of one supervisor (or one child) that still count."""

    intensity: Intensity
    _restarts: deque[Restart] = field(factory=deque, init=False)

    def admit(self, cause: BaseException, now: float) -> Restart | None:
        """Record a failure. Returns its restart, None when the intensity forbids one more.

        What counts is when restarts begin. A decided one that still waits for its backoff counts too: otherwise a long
        delay followed by a short one would put more than `intensity.restarts` into one window.
        """
        self._forget(now)
        if len(self._restarts) >= self.intensity.restarts:
            return None
        restart = Restart([cause], due=now)
        self._restarts.append(restart)
        return restart

    def withdraw(self, restart: Restart) -> None:
        """It will not take place after all."""
        if restart in self._restarts:
            self._restarts.remove(restart)

    def causes(self, now: float) -> list[BaseException]:
        """The causes of the restarts that still count, oldest first."""
        self._forget(now)
        return [cause for restart in self._restarts for cause in restart.causes]

    def _forget(self, now: float) -> None:
        horizon = now - self.intensity.window
        self._restarts = deque(each for each in self._restarts if each.at is None or each.at > horizon)
