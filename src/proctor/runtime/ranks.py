"""The engine's ladder of ranks: leases are taken in increasing rank, so that no two tasks can wait for each other.

The kernel knows no names; these are the engine's. `SUBPROCESS` and `THREAD` are leaves: under them no lease may be
taken at all; under `CONNECTION`, where a provider's call runs, only those two may be. `SCOPE` nests: one
`concurrency()` scope may be entered inside another, and a cycle among scopes is found from the wait-for graph instead.
A call back from a worker thread and a nested evaluation start with nothing held.
"""

from __future__ import annotations

from typing import Final

from proctor.actors import Rank

RUN: Final = Rank("run", 10)
TASK: Final = Rank("task", 20)
SAMPLE: Final = Rank("sample", 30)
SANDBOX: Final = Rank("sandbox", 40)
SCOPE: Final = Rank("scope", 50, nests=True)
CONNECTION: Final = Rank("connection", 60, only=frozenset({"subprocess", "thread"}))
START: Final = Rank("start", 70)
ENGINE: Final = Rank("engine", 80)
SUBPROCESS: Final = Rank("subprocess", 90, leaf=True)
THREAD: Final = Rank("thread", 100, leaf=True)

LADDER: Final = (RUN, TASK, SAMPLE, SANDBOX, SCOPE, CONNECTION, START, ENGINE, SUBPROCESS, THREAD)
