"""The sandbox of one sample, from its making to its removal: what the engine puts around solvers and scorers.

``async with open_sandbox_sample(...) as sandboxed:`` begins with nothing; `start` makes the environments, copies files
and runs the set-up script, inside the block, so that a failure there is a failure of the sample like any other. Leaving
the block removes what was made, in a shield whose deadline the engine moves when a run ends. It runs in the sample's
own task, so `sandbox()` finds the environments in whatever that task starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import Token
from types import TracebackType
from typing import Any, Final, Self

import anyio
from attrs import define, field

from proctor.errors import SandboxUnavailableError
from proctor.runtime import current_sample, new_id
from proctor.sandbox.context import Surroundings, surroundings_variable
from proctor.sandbox.files import copy_files, run_setup
from proctor.sandbox.pool import Ticket
from proctor.sandbox.recording import recorded
from proctor.sandbox.task import Bounded, Want, removal

logger: Final = logging.getLogger(__name__)


@define(eq=False, kw_only=True)
class SandboxSample:
    """One sample's environments in one attempt. Made by `open_sandbox_sample` only.

    Attributes:
        want: the sandbox it is to have; None: it has none. label: the sample, in words.
        files, setup: as the sample has them.
        bounded: the shield of the removal.
        failed: whether the attempt has failed so far.
    """

    want: Want | None
    label: str
    files: Mapping[str, str] | None
    setup: str | None
    bounded: Bounded
    failed: Callable[[], bool]
    _ticket: Ticket | None = field(default=None, init=False)
    _scope: anyio.CancelScope = field(factory=anyio.CancelScope, init=False)
    _token: Token[Surroundings | None] | None = field(default=None, init=False)

    @property
    def lost(self) -> SandboxUnavailableError | None:
        """Why the environments are no longer there; None as far as is known."""
        return None if self._ticket is None else self._ticket.lost

    async def __aenter__(self) -> Self:
        self._token = surroundings_variable.set(None)
        self._scope.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        try:
            swallowed = bool(self._scope.__exit__(kind, error, traceback))
        finally:
            if self._token is not None:
                surroundings_variable.reset(self._token)
            await self._remove(interrupted=error is not None or self.failed())
        return swallowed

    async def start(self) -> None:
        """Make the environments, copy the files, run the set-up script; nothing for a sample without a sandbox.

        Raises:
            Exception: what the provider raised; `SetupFailed`; `UsageError` for a file that cannot be had.
        """
        want = self.want
        if want is None:
            return
        if want.error is not None:
            raise want.error
        assert want.provider is not None
        assert want.pool is not None
        await want.task.prepare(want)
        # No step from here on may lie between what is made and its ticket.
        ticket = self._ticket = Ticket(
            id=new_id(),
            label=self.label,
            provider=want.provider,
            task_name=want.task.task_name,
            config=want.spec.config,
            metadata=want.metadata,
        )
        ticket.scope = self._scope
        await want.pool.create(ticket)
        environments = recorded(ticket)
        surroundings_variable.set(Surroundings(environments, next(iter(environments))))
        if (sample := current_sample()) is not None:
            sample.sandboxed = True
        if self.files:
            await copy_files(self.files, environments, want.task.folders)
        if self.setup:
            await run_setup(self.setup, next(iter(environments.values())), ticket.id, want.task.folders)

    async def _remove(self, *, interrupted: bool) -> None:
        ticket, want = self._ticket, self.want
        if ticket is None or want is None or want.pool is None:
            return
        ticket.over = True
        ticket.scope = None
        if not want.task.cleanup:
            want.pool.estate.released(ticket)
            return
        ended: Exception | None = None
        with self.bounded():
            try:
                await want.pool.destroy(ticket, interrupted=interrupted)
            except Exception as error:
                ended = error
        if ticket.environments is None:
            return
        why = "did not end in time" if ended is None else f"failed: {ended or type(ended).__name__}"
        names = [str(getattr(each, "id", name)) for name, each in ticket.environments.items()]
        want.pool.estate.released(ticket)
        logger.warning(
            "the sandbox of %s (%s) was left behind, its removal %s; %s",
            self.label,
            ", ".join(names),
            why,
            removal(want.spec.type),
        )


def open_sandbox_sample(want: Want | None, **given: Any) -> SandboxSample:
    """The block around one attempt at a sample; see `SandboxSample` for its arguments."""
    return SandboxSample(want=want, **given)
