"""What evaluations in one loop share: the runtime, its settings, its threads, and how a loop is started.

What needs a loop is imported at first use, so that what only reads settings and options (``proctor eval --help``) is
quick.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from proctor.runtime.settings import Resolved, Settings

if TYPE_CHECKING:
    from proctor.runtime.backend import current_backend, run
    from proctor.runtime.runtime import Runtime, current_runtime, new_id, open_runtime
    from proctor.runtime.sample_limits import SampleContext, WorkingTime, current_sample

_PLACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Runtime": "proctor.runtime.runtime",
        "SampleContext": "proctor.runtime.sample_limits",
        "WorkingTime": "proctor.runtime.sample_limits",
        "current_backend": "proctor.runtime.backend",
        "current_runtime": "proctor.runtime.runtime",
        "current_sample": "proctor.runtime.sample_limits",
        "new_id": "proctor.runtime.runtime",
        "open_runtime": "proctor.runtime.runtime",
        "run": "proctor.runtime.backend",
    }
)


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(place), name)


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
