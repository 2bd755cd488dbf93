"""What the tests of the engine share: a folder for logs, and a call of `eval_async` that writes there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from proctor import eval_async
from proctor.log import EvalLog, read_eval_log

Evaluate = Callable[..., Awaitable[list[EvalLog]]]


@pytest.fixture
def evaluate(tmp_path: Path) -> Evaluate:
    """`eval_async` with logs in a temporary folder and no display; the logs are those read back from the files."""

    async def run(*args: Any, **options: Any) -> list[EvalLog]:
        options.setdefault("display", "none")
        logs = await eval_async(*args, log_dir=str(tmp_path / "logs"), **options)
        return [read_eval_log(log.location) if log.location else log for log in logs]

    return run
