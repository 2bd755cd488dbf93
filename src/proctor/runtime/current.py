"""The context variables that tell code below a runtime or a sample where it runs.

They stand apart from the classes they hold so that `backend.run`, which starts a loop of its own and must not let it
see the caller's runtime, can clear them without importing what is built on it.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Final

from proctor.actors.ranks import held
from proctor.actors.scope import current as lease_scope_variable
from proctor.runtime.clock import SYSTEM_CLOCK, current_clock

if TYPE_CHECKING:
    from proctor.runtime.runtime import Runtime
    from proctor.runtime.sample_limits import SampleContext

runtime_variable: Final[ContextVar[Runtime | None]] = ContextVar("proctor_runtime", default=None)
sample_variable: Final[ContextVar[SampleContext | None]] = ContextVar("proctor_sample", default=None)


def forget_surroundings() -> None:
    """Clear, in this context, what belongs to a runtime of another loop: runtime, sample, clock, leases."""
    held.set(None)
    lease_scope_variable.set(None)
    runtime_variable.set(None)
    sample_variable.set(None)
    current_clock.set(SYSTEM_CLOCK)
