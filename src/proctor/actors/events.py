"""The ledger events of actors and supervisors.

Kinds of a `RequestEvent`, in the order a request may meet them:

    queued      it is in the mailbox
    superseded  a later tell of the same key took its turn; it ends here
    withdrawn   its caller left while it was queued: the handler never starts; it ends here
    running     its handler starts
    cancelled   its handler is asked to end, since the caller left
    value, raised, gone, stopped
                its one outcome: returned, raised, died with the actor, ended by cancellation
    overdue     the handler outlived its bound and is given up
    handled     its handler has ended, whatever became of the outcome (after overdue: the outcome is not told)
    discarded   its value's discard hook has run
    delivered   its caller took the outcome
    returned    `ask` returns or raises, the last the caller sees of it

of an `ActorEvent`: opened, failed, finished, down, given up, ended (of one incarnation), and gone (of the actor, with
incarnation 0);

of a `SupervisorEvent`: started, restarting, restarted, stopping, stopped (of a child), exhausted, escalated (of the
supervisor, `child` being the one it failed by), closed.
"""

from __future__ import annotations

import math

from attrs import frozen

from proctor.actors.ledger import Event


@frozen
class RequestEvent(Event):
    """A step of a request; the kinds are listed in this module's docstring.

    Attributes:
        number: the request, numbered from 1 within its actor.
        message: the type of its message.
        sender: the actor whose handler sent it, None when it came from elsewhere.
        told: it is a tell. detached: its handler goes on when its caller leaves.
        deadline: of its caller, in the time of the events.
        bound: seconds its handler may take to end once cancelled.
    """

    number: int = 0
    message: str = ""
    sender: str | None = None
    told: bool = False
    detached: bool = False
    deadline: float = math.inf
    bound: float = math.inf


@frozen
class ActorEvent(Event):
    """A step of an incarnation, counted from 1; 0 for the actor itself.

    Attributes:
        incarnation: which one. detail: the cause, None where the kind says all.
    """

    incarnation: int = 0
    detail: object = None


@frozen
class SupervisorEvent(Event):
    """A step of a supervisor.

    Attributes:
        child: the address of the child it is about.
        delay: seconds of backoff, of `restarting`. attempt: restarts in a row before this one, of `restarting`.
        detail: the cause, None where the kind says all.
    """

    child: str = ""
    delay: float = 0.0
    attempt: int = 0
    detail: object = None
