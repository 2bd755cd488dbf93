"""Re-exports for users; imported by nobody inside."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from proctor.errors import LimitExceededError, OutputLimitExceededError, SandboxUnavailableError
from proctor.log.transcript import span
from proctor.model.schema import JSONSchema, JSONType
from proctor.process import ExecResult, subprocess
from proctor.runtime.applied import (
    LimitScope,
    SampleLimits,
    apply_limits,
    cost_limit,
    message_limit,
    sample_limits,
    time_limit,
    token_limit,
    turn_limit,
    working_limit,
)
from proctor.runtime.blocking import run_blocking
from proctor.runtime.blocks import Limit
from proctor.runtime.scopes import concurrency, resize_concurrency
from proctor.runtime.tokens import TokenLimit
from proctor.sandbox import (
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironments,
    SandboxEnvironmentSpec,
    SandboxEnvironmentType,
    sandbox,
    sandbox_default,
    sandbox_with,
    sandboxenv,
)
from proctor.solver.collect import collect
from proctor.solver.subtask import subtask
from proctor.tool.schema import json_schema

if TYPE_CHECKING:
    from proctor.sandbox.compose import (
        ComposeBuild,
        ComposeConfig,
        ComposeHealthcheck,
        ComposeService,
        ComposeVolumeMount,
        is_compose_yaml,
        is_dockerfile,
    )
    from proctor.sandbox.compose_file import parse_compose_yaml

_COMPOSE: Final = "proctor.sandbox.compose"
_LATER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ComposeBuild": _COMPOSE,
        "ComposeConfig": _COMPOSE,
        "ComposeHealthcheck": _COMPOSE,
        "ComposeService": _COMPOSE,
        "ComposeVolumeMount": _COMPOSE,
        "is_compose_yaml": _COMPOSE,
        "is_dockerfile": _COMPOSE,
        "parse_compose_yaml": "proctor.sandbox.compose_file",
    }
)
"""What few need, and is imported at first use."""


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ComposeBuild",
    "ComposeConfig",
    "ComposeHealthcheck",
    "ComposeService",
    "ComposeVolumeMount",
    "ExecResult",
    "JSONSchema",
    "JSONType",
    "Limit",
    "LimitExceededError",
    "LimitScope",
    "OutputLimitExceededError",
    "SampleLimits",
    "SandboxConnection",
    "SandboxEnvironment",
    "SandboxEnvironmentSpec",
    "SandboxEnvironmentType",
    "SandboxEnvironments",
    "SandboxUnavailableError",
    "TokenLimit",
    "apply_limits",
    "collect",
    "concurrency",
    "cost_limit",
    "is_compose_yaml",
    "is_dockerfile",
    "json_schema",
    "message_limit",
    "parse_compose_yaml",
    "resize_concurrency",
    "run_blocking",
    "sample_limits",
    "sandbox",
    "sandbox_default",
    "sandbox_with",
    "sandboxenv",
    "span",
    "subprocess",
    "subtask",
    "time_limit",
    "token_limit",
    "turn_limit",
    "working_limit",
]
