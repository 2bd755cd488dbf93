"""Re-exports for users; imported by nobody inside."""

from __future__ import annotations

from proctor.log.transcript import span
from proctor.runtime.scopes import concurrency, resize_concurrency
from proctor.solver.collect import collect

__all__ = ["collect", "concurrency", "resize_concurrency", "span"]
