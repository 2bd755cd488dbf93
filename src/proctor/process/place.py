"""A place among the commands that run at once: a lease whose queue counts as waiting in the sample's working time."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import AbstractAsyncContextManager
from types import TracebackType

from anyio.lowlevel import checkpoint
from attrs import define, field

from proctor.actors import Lease, Limiter
from proctor.runtime.sample_limits import current_sample


@define(eq=False)
class Place(AbstractAsyncContextManager[None]):
    """``async with Place(limiter):`` runs the block under a lease that the limiter may take back.

    Args:
        limiter: whose lease; None takes none.
        group: whose share it is counted to; default the current sample's task.
    """

    limiter: Limiter | None
    group: Hashable = None
    _lease: Lease | None = field(default=None, init=False)

    async def __aenter__(self) -> None:
        if self.limiter is None:
            await checkpoint()
            return
        sample = current_sample()
        if sample is None:
            lease = self.limiter.lease(group=self.group, revocable=True)
            await lease.__aenter__()
        elif self.group is None:
            lease = self.limiter.lease(group=sample.group, weight=sample.weight, order=sample.order(), revocable=True)
            with sample.working.waiting():
                await lease.__aenter__()
        else:
            lease = self.limiter.lease(group=self.group, revocable=True)
            with sample.working.waiting():
                await lease.__aenter__()
        self._lease = lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lease is not None:
            await self._lease.__aexit__(kind, error, traceback)
