"""Tools for testing code built on proctor: virtual time, a watchdog, a monitor, plans, jitter, a pytest plugin.

`run_virtual` runs async code in virtual time on every backend, the same way every time, and raises `VirtualDeadlock`
where it would hang; `settle` waits until nothing can run at the present instant. A `Monitor` checks what the kernel
promises from its ledger; `play` runs a `Plan` of clients and limiters under one; `Jitter` adds turns of the loop.
`proctor.testing.strategies` draws plans with Hypothesis. `proctor.testing.plugin` runs async tests.

`simulate` plays a whole evaluation without threads and files: a `FakeModel` answers, `MemoryLogs` keep the records, a
`FaultPlan` says which sample fails where. `Awaits` cancels code at its k-th await.

Everything is imported at first use, so that loading the pytest plugin costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from proctor.testing.awaits import Awaits
    from proctor.testing.fake_model import FakeCall, FakeModel
    from proctor.testing.fake_process import FakeProcess, FakeProcessCall, Play
    from proctor.testing.fake_sandbox import FakeSandbox, FakeSandboxCommand
    from proctor.testing.faults import Fault, FaultPlan, PlannedFault
    from proctor.testing.jitter import Jitter, yield_point
    from proctor.testing.memory_log import MemoryLog, MemoryLogs
    from proctor.testing.monitor import InvariantViolation, Monitor
    from proctor.testing.plan import Admin, Client, Outcome, Plan
    from proctor.testing.provider_check import ProviderFault, check_provider
    from proctor.testing.simulation import simulate
    from proctor.testing.stage import Played, check, play
    from proctor.testing.virtual import BACKENDS, run_real, run_virtual
    from proctor.testing.watch import VirtualDeadlock, at_idle, background, outside, settle

__all__ = [
    "Admin",
    "Awaits",
    "BACKENDS",
    "Client",
    "FakeCall",
    "FakeModel",
    "FakeProcess",
    "FakeProcessCall",
    "FakeSandbox",
    "FakeSandboxCommand",
    "Fault",
    "FaultPlan",
    "InvariantViolation",
    "Jitter",
    "MemoryLog",
    "MemoryLogs",
    "Monitor",
    "Outcome",
    "Plan",
    "Play",
    "PlannedFault",
    "Played",
    "ProviderFault",
    "VirtualDeadlock",
    "at_idle",
    "background",
    "check",
    "check_provider",
    "outside",
    "play",
    "run_real",
    "run_virtual",
    "settle",
    "simulate",
    "yield_point",
]

_HOMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "awaits": ("Awaits",),
        "fake_model": ("FakeCall", "FakeModel"),
        "fake_sandbox": ("FakeSandbox", "FakeSandboxCommand"),
        "fake_process": ("FakeProcess", "FakeProcessCall", "Play"),
        "faults": ("Fault", "FaultPlan", "PlannedFault"),
        "jitter": ("Jitter", "yield_point"),
        "monitor": ("InvariantViolation", "Monitor"),
        "memory_log": ("MemoryLog", "MemoryLogs"),
        "plan": ("Admin", "Client", "Outcome", "Plan"),
        "provider_check": ("ProviderFault", "check_provider"),
        "simulation": ("simulate",),
        "stage": ("Played", "check", "play"),
        "virtual": ("BACKENDS", "run_real", "run_virtual"),
        "watch": ("VirtualDeadlock", "at_idle", "background", "outside", "settle"),
    }
)


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
