"""What must be the same for a finished sample to be reused: everything that decides what a model is asked and how it is
scored. What only decides how fast (connections, timeouts, retries), where (base URL) or which samples run is not in it:
samples are told apart one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from proctor.log.encode import decode, encode
from proctor.log.records import EvalLog, EvalPlan, EvalSpec

NO_MATTER: Final = frozenset(
    {
        "max_retries", "timeout", "attempt_timeout", "stream_idle_timeout", "max_connections", "adaptive_connections",
        "batch", "cache", "cache_prompt", "extra_headers",
    }
)  # fmt: skip
"""Fields of a configuration that do not decide what a model answers."""

LIMITS: Final = {
    "message": "message_limit",
    "token": "token_limit",
    "turn": "turn_limit",
    "time": "time_limit",
    "working": "working_limit",
    "cost": "cost_limit",
}
SHOWN: Final = 60
"""Characters of a value in a reason."""


def differences(log: EvalLog, spec: EvalSpec, plan: EvalPlan) -> list[str]:
    """Why no sample of a log may be reused by a run with this specification; none when some may.

    Args:
        log: its header is enough.
    """
    old, foreign = log.eval, is_foreign(log)
    found: list[str] = []
    for name in ("task", "task_version", "model"):
        found += _differs(name, getattr(old, name), getattr(spec, name))
    arguments = "task_args_passed" if foreign else "task_args"
    for name in (arguments, "model_args"):
        found += _mappings_differ(name, getattr(old, name), getattr(spec, name))
    found += _differs("model_roles", _roles(old), _roles(spec))
    found += _solvers_differ(log.plan, plan, foreign=foreign)
    found += _mappings_differ("", _config(log.plan), _config(plan))
    found += _differs("scorer", _scorers(old, foreign=foreign), _scorers(spec, foreign=foreign))
    for name in LIMITS.values():
        before, now = getattr(old.config, name), getattr(spec.config, name)
        if now is not None and (before is None or now < before):
            found.append(f"{name} is lower: {_shown(now)} instead of {_shown(before)}")
    found += _differs("token_limit_type", old.config.token_limit_type, spec.config.token_limit_type)
    return found


def raised_limits(log: EvalLog, spec: EvalSpec) -> frozenset[str]:
    """The kinds of limits that are higher now: a sample that met one would go on further."""
    return frozenset(
        kind
        for kind, name in LIMITS.items()
        if getattr(log.eval.config, name) != getattr(spec.config, name) and getattr(log.eval.config, name) is not None
    )


def is_foreign(log: EvalLog) -> bool:
    """Whether what a log says was said by another program; a copy of ours says so too until a run goes on in it."""
    return set(log.eval.packages) != {"proctor"}


def _plain(value: Any) -> Any:
    """As a log holds it, so that what was read and what is made now compare."""
    return decode(encode(value))


def _differs(name: str, before: Any, now: Any) -> Iterator[str]:
    before, now = _plain(before), _plain(now)
    if before != now:
        yield f"{name} is {_shown(now)}, was {_shown(before)}"


def _mappings_differ(name: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    old, new = _plain(before), _plain(now)
    for key in sorted({*old, *new}):
        yield from _differs(f"{name}.{key}" if name else key, old.get(key), new.get(key))


def _solvers_differ(before: EvalPlan, now: EvalPlan, *, foreign: bool) -> Iterator[str]:
    names = [[step.solver for step in plan.steps] for plan in (before, now)]
    if names[0] != names[1]:
        yield from _differs("solver", names[0], names[1])
        return
    for old, new in zip(before.steps, now.steps, strict=True):
        old_params, new_params = (old.params_passed, new.params_passed) if foreign else (old.params, new.params)
        yield from _mappings_differ(f"solver {new.solver}", old_params, new_params)


def _config(plan: EvalPlan) -> dict[str, Any]:
    return {name: value for name, value in _plain(plan.config).items() if name not in NO_MATTER}


def _roles(spec: EvalSpec) -> Any:
    roles: dict[str, Any] = {}
    for role, models in (_plain(spec.model_roles) or {}).items():
        listed = models if isinstance(models, list) else [models]
        roles[role] = [
            [model["model"], {k: v for k, v in (model.get("config") or {}).items() if k not in NO_MATTER}]
            for model in listed
        ]
    return roles


def _scorers(spec: EvalSpec, *, foreign: bool) -> Any:
    return [[scorer.name, {} if foreign else scorer.options or {}] for scorer in spec.scorers or []]


def _shown(value: Any) -> str:
    text = "unset" if value is None else repr(value)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"
