"""What leaving a supervisor's block raises.

The leaves of the raised group are the failures that nobody handled, each once. Cancellations are none: they are how
the tree was ended. An `ActorGone` that the body raised because of a failure in the group is that failure seen a
second time.
"""

from __future__ import annotations

from collections.abc import Sequence

from proctor.actors.bounded import leaves, without_cancellations
from proctor.errors import ActorGone, SupervisorExhausted


def verdict(address: str, causes: Sequence[BaseException], raised: BaseException | None) -> BaseException | None:
    """The exception that leaves the block, None when all went well.

    Args:
        address: the supervisor's.
        causes: why it failed.
        raised: what its body raised, a cancellation too. It stays bare when it is all there is.
    """
    if raised is None:
        return grouped(address, causes) if causes else None
    body = without_cancellations(raised)
    if not causes:
        return body or raised
    known = {id(each) for cause in causes for each in (cause, *leaves(cause))}
    if body is not None:
        body = _without_echoes(body, known)
    return grouped(address, causes if body is None else [*causes, body])


def grouped(address: str, causes: Sequence[BaseException]) -> BaseException:
    """The causes as one exception; one that exhausted the supervisor is a group already."""
    if len(causes) == 1 and isinstance(causes[0], SupervisorExhausted):
        return causes[0]
    return BaseExceptionGroup(f"supervisor {address} failed", causes)


def _without_echoes(error: BaseException, known: set[int]) -> BaseException | None:
    """`error` without what only repeats a known cause."""

    def echo(each: BaseException) -> bool:
        return id(each) in known or (isinstance(each, ActorGone) and id(each.__cause__) in known)

    if isinstance(error, BaseExceptionGroup):
        return error.split(echo)[1]
    return None if echo(error) else error
