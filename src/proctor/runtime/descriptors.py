"""How many files and sockets this process may have open: read, and raised where the system allows.

A process starts with a soft limit that is often 1,024 and may raise it itself up to the hard one. A plan with more
connections than that would otherwise fail in its middle, with a message about something else.
"""

from __future__ import annotations

import contextlib
from typing import Final

from attrs import frozen

try:
    import resource
except ImportError:  # no such limits on this system
    resource = None  # type: ignore[assignment]

AMPLE: Final = 65_536
"""What is asked for at the start: room for sixteen models at the highest adaptive ceiling (4,000 connections)."""
UNLIMITED: Final = 1 << 62


@frozen
class Descriptors:
    """The limits of open files and sockets; `UNLIMITED` where there are none."""

    soft: int
    hard: int


def descriptors() -> Descriptors:
    """The limits as they are now."""
    if resource is None:
        return Descriptors(UNLIMITED, UNLIMITED)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    infinite = resource.RLIM_INFINITY
    return Descriptors(UNLIMITED if soft == infinite else soft, UNLIMITED if hard == infinite else hard)


def raise_descriptors(needed: int = AMPLE) -> Descriptors:
    """Raise the soft limit to what is needed, as far as the hard one allows; it is never lowered.

    Returns:
        The limits afterwards.
    """
    now = descriptors()
    wanted = min(needed, now.hard)
    if resource is not None and wanted > now.soft:
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptors()
