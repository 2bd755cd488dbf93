"""The options of an evaluation: one table from which parameters, flags and environment variables are read alike."""

from __future__ import annotations

from proctor.runtime.options.environment import said_in_environment
from proctor.runtime.options.option import Option, from_flags
from proctor.runtime.options.table import OPTIONS

__all__ = ["OPTIONS", "Option", "from_flags", "said_in_environment"]
