"""Where untrusted code runs: the protocol of sandboxes, the pool that owns them, and the providers."""

from __future__ import annotations

from proctor.sandbox.context import sandbox, sandbox_default, sandbox_with
from proctor.sandbox.environment import (
    HostMapping,
    PortMapping,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironments,
    SandboxEnvironmentSpec,
    SandboxEnvironmentType,
    SandboxProcess,
    sandboxenv,
)
from proctor.sandbox.jail import Bubblewrap

__all__ = [
    "Bubblewrap",
    "HostMapping",
    "PortMapping",
    "SandboxConnection",
    "SandboxEnvironment",
    "SandboxEnvironmentSpec",
    "SandboxEnvironmentType",
    "SandboxEnvironments",
    "SandboxProcess",
    "sandbox",
    "sandbox_default",
    "sandbox_with",
    "sandboxenv",
]
