"""An actor library on structured concurrency: limiters and leases, actors and supervisors.

It knows nothing of evaluations and can be used alone. Everything runs the same on asyncio and trio.
"""

from __future__ import annotations

from proctor.actors.actor import ActorStatistics, ChildSpec, Ref
from proctor.actors.admission import AdmissionPolicy, FairQueue, Ticket
from proctor.actors.backoff import Backoff, Intensity
from proctor.actors.context import ActorContext
from proctor.actors.events import ActorEvent, RequestEvent, SupervisorEvent
from proctor.actors.joint import JointLease, lease_all
from proctor.actors.lease import Lease
from proctor.actors.ledger import Event, Ledger, LimiterEvent
from proctor.actors.limiter import Limiter
from proctor.actors.mailbox import Mailbox
from proctor.actors.ranks import Rank, held_leases, holding_nothing
from proctor.actors.scope import LeaseScope, current_scope, lease_scope
from proctor.actors.statistics import GroupStatistics, LimiterStatistics
from proctor.actors.supervisor import Supervisor, open_supervisor

__all__ = [
    "ActorContext",
    "ActorEvent",
    "ActorStatistics",
    "AdmissionPolicy",
    "Backoff",
    "ChildSpec",
    "Event",
    "FairQueue",
    "GroupStatistics",
    "Intensity",
    "JointLease",
    "Lease",
    "LeaseScope",
    "Ledger",
    "Limiter",
    "LimiterEvent",
    "LimiterStatistics",
    "Mailbox",
    "Rank",
    "Ref",
    "RequestEvent",
    "Supervisor",
    "SupervisorEvent",
    "Ticket",
    "current_scope",
    "held_leases",
    "holding_nothing",
    "lease_all",
    "lease_scope",
    "open_supervisor",
]
