"""Jitter: extra turns of the loop at named points, so that more orders of events are seen than the plain one.

In production there is no hook at all: for the length of a block, `Jitter.installed` replaces checkpoints that the
kernel's modules make anyway by ones that yield a few times more, as a seeded `Random` says. Tests put points of their
own into their code with `await yield_point(name)`, which does nothing when no jitter is installed.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType, ModuleType
from typing import Any, Final

from anyio.lowlevel import checkpoint
from attrs import define, field

current_jitter: ContextVar[Jitter | None] = ContextVar("current_jitter", default=None)

POINTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "lease is entered": ("proctor.actors.lease", "checkpoint"),
        "lease wakes": ("proctor.actors.lease", "checkpoint_if_cancelled"),
        "joint lease is entered": ("proctor.actors.joint", "checkpoint"),
        "joint lease wakes": ("proctor.actors.joint", "checkpoint_if_cancelled"),
    }
)
"""Checkpoints of the kernel that can be given jitter, as module and name there."""


@define(eq=False)
class Jitter:
    """Yields up to `most` times at each point.

    Args:
        seed: the same seed yields the same number of times in the same order.
        most: turns of the loop.
        points: the names of `POINTS` to use.
    """

    seed: int
    most: int = 3
    points: tuple[str, ...] = tuple(POINTS)
    _random: random.Random = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._random = random.Random(self.seed)

    async def turn(self, name: str) -> None:
        """Yield a number of times that chance decides."""
        del name
        for _ in range(self._random.randint(0, self.most)):
            await checkpoint()

    @contextmanager
    def installed(self) -> Iterator[Jitter]:
        """Put jitter into the kernel and into `yield_point` for the block."""
        before: list[tuple[ModuleType, str, Any]] = []
        token = current_jitter.set(self)
        try:
            for point in self.points:
                module, name = POINTS[point]
                target = importlib.import_module(module)
                plain = getattr(target, name)
                before.append((target, name, plain))
                setattr(target, name, _with_jitter(plain, point))
            yield self
        finally:
            current_jitter.reset(token)
            for target, name, plain in reversed(before):
                setattr(target, name, plain)


async def yield_point(name: str) -> None:
    """A place where an installed `Jitter` may yield. Does nothing without one, not even a checkpoint."""
    jitter = current_jitter.get()
    if jitter is not None:
        await jitter.turn(name)


def _with_jitter(checkpoint: Callable[[], Awaitable[None]], point: str) -> Callable[[], Awaitable[None]]:
    async def turns() -> None:
        await yield_point(point)
        await checkpoint()

    return turns
