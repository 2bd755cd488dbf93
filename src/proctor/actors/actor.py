"""Actors as the rest of the program sees them: a spec to start one, and a reference to use it.

An actor is a shell (`proctor.actors.shell`: address, limiter, mailbox, pending requests; survives restarts) around one
incarnation at a time (`proctor.actors.incarnation`: the user's state, replaced by a restart).

Ways for `ask` to end: the handler's value or exception; `ActorGone` when the incarnation died under it; the caller's
own cancellation, after the handler has ended. The last wait is in a shield and bounded (`ChildSpec.bound`): without
the bound a handler that resists would hold its callers too. When it passes, the incarnation is marked failed and the
caller goes. Waiting on for the resisting handler was rejected: it would make every caller as uncancellable as the
worst handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

import anyio
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled
from attrs import frozen

from proctor.actors.bounded import wait_bounded
from proctor.actors.request import Discard, Raised, Request, RequestState, Stopped
from proctor.actors.shell import Shell
from proctor.actors.spec import ChildSpec
from proctor.errors import ActorGone

if TYPE_CHECKING:
    from proctor.actors.limiter import Limiter

S = TypeVar("S")

__all__ = ["ActorStatistics", "ChildSpec", "Ref"]


@frozen
class ActorStatistics:
    """An actor at one moment.

    Attributes:
        address: the actor's.
        incarnation: the number of the one that is open, counted from 1; None when none is.
        queued: requests in the mailbox. running: handlers at work, of earlier incarnations too.
        lives: incarnations that have not ended: the open one and those that are being closed.
        gone: it will not be opened again.
    """

    address: str
    incarnation: int | None
    queued: int
    running: int
    lives: int
    gone: bool


@final
class Ref(Generic[S]):
    """A reference to an actor: how the rest of the program uses it. It stays valid over restarts."""

    __slots__ = ("_shell",)

    def __init__(self, shell: Shell[S]) -> None:
        self._shell = shell

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ref) and other._shell is self._shell

    def __hash__(self) -> int:
        return hash(self._shell)

    def __repr__(self) -> str:
        return f"<Ref {self.address} {'alive' if self.alive else 'gone'}>"

    @property
    def address(self) -> str:
        """The supervisor's address and the actor's name, `supervisor/…/name`."""
        return self._shell.address

    @property
    def alive(self) -> bool:
        """Whether the actor may still answer: it is open, or will be opened again."""
        return self._shell.gone is None

    @property
    def limiter(self) -> Limiter:
        """The actor's limiter.

        Raises:
            AttributeError: the actor has none.
        """
        if self._shell.spec.limiter is None:
            raise AttributeError(f"{self.address} has no limiter: give its ChildSpec one")
        return self._shell.spec.limiter

    @property
    def state(self) -> S:
        """The present incarnation's state.

        Raises:
            ActorGone: there is no incarnation at present.
        """
        life = self._shell.current
        if life is not None:
            return life.state
        self._shell.raise_if_gone()
        raise ActorGone(f"{self.address} is being restarted: await started() for its next incarnation")

    def statistics(self) -> ActorStatistics:
        """The actor as it is now."""
        shell, life = self._shell, self._shell.current
        return ActorStatistics(
            address=shell.address,
            incarnation=life.number if life is not None else None,
            queued=len(shell.mailbox),
            running=sum(len(each.running) for each in shell.lives),
            lives=len(shell.lives),
            gone=shell.gone is not None,
        )

    async def started(self) -> None:
        """Wait until the actor is open.

        Raises:
            ActorGone: it is gone and will not be opened again.
        """
        await self._shell.wait_open()

    def tell(self, message: object) -> None:
        """Put `message` into the mailbox and return at once; an exception of its handler is the actor's own failure.

        A message with an attribute `coalesce_key` (hashable, not None) supersedes the queued one of the same key.

        Raises:
            MailboxFull: the mailbox holds as many messages as its bound allows.
            ActorGone: the actor is gone.
            TypeError: the actor takes no messages.
        """
        self._shell.tell(message)

    async def ask(self, message: object, *, detach: bool = False, discard: Discard | None = None) -> Any:
        """Have the actor handle `message` and return what its handler returns.

        The handler runs with the caller's context variables and deadline. When the caller is cancelled, the handler is
        cancelled too and `ask` waits for its end.

        Args:
            message: what `handle` gets.
            detach: the handler goes on when the caller is cancelled, and has no deadline. Only for effects that must
                be completed.
            discard: called with the handler's value when the caller was cancelled before it could take it; a function
                or an async function.

        Raises:
            ActorGone: the actor died or was stopped before the handler had ended; its cause is `__cause__`.
            SelfAsk: a handler asks its own actor, directly or through others.
            TimeoutError: the deadline passed that the caller had when it asked.
            Exception: whatever the handler raised, with a note of the actor's address.
        """
        await checkpoint_if_cancelled()
        shell = self._shell
        request = shell.ask(message, detach=detach, discard=discard)
        assert request.done is not None
        try:
            await request.done.wait()
        except GeneratorExit:
            shell.leave(request, waits=False)
            raise
        except BaseException:
            await self._leave(request)
            raise
        else:
            if isinstance(request.outcome, Stopped):
                await _deadline_passed(request)
            return shell.outcome(request)
        finally:
            shell.note(request, "returned")

    async def _leave(self, request: Request) -> None:
        """Leave `request`; raises the handler's own exception if it raised one on its way out."""
        shell, bound = self._shell, self._shell.spec.bound
        end = shell.leave(request, waits=True)
        if end is not None and not await wait_bounded(end, bound):
            if request.state is RequestState.DONE:
                await wait_bounded(end, bound)  # its value is being discarded
            else:
                request.life.overdue(request)
        if isinstance(request.outcome, Raised) and request.attended:
            shell.outcome(request)


async def _deadline_passed(request: Request) -> None:
    """Let the caller's own scope raise first: its deadline is the request's, but the scopes end in any order."""
    await anyio.sleep_until(request.deadline)
    await checkpoint()
