"""What evaluations in one loop share: the runtime, its settings, its threads, and how a loop is started."""

from __future__ import annotations

from proctor.runtime.backend import current_backend, run
from proctor.runtime.runtime import Runtime, current_runtime, new_id, open_runtime
from proctor.runtime.sample_limits import SampleContext, WorkingTime, current_sample
from proctor.runtime.settings import Resolved, Settings

__all__ = [
    "Resolved",
    "Runtime",
    "SampleContext",
    "Settings",
    "WorkingTime",
    "current_backend",
    "current_runtime",
    "current_sample",
    "new_id",
    "open_runtime",
    "run",
]
