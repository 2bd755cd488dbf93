"""Tools for testing code built on proctor: virtual time, a watchdog, a monitor, strategies, a pytest plugin.

Everything is imported at first use, so that loading the pytest plugin costs nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from proctor.testing.virtual import BACKENDS, run_real, run_virtual
    from proctor.testing.watch import VirtualDeadlock, background, outside, settle

__all__ = ["BACKENDS", "VirtualDeadlock", "background", "outside", "run_real", "run_virtual", "settle"]

_HOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "BACKENDS": "virtual",
        "VirtualDeadlock": "watch",
        "background": "watch",
        "outside": "watch",
        "run_real": "virtual",
        "run_virtual": "virtual",
        "settle": "watch",
    }
)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
