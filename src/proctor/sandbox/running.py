"""Commands of sandboxes that run on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from proctor.actors import Limiter
from proctor.process import ExecResult, run_process
from proctor.process.pool import loop_pool, pool_actor
from proctor.process.result import as_text
from proctor.runtime import current_runtime
from proctor.sandbox.limits import exec_output_limit
from proctor.sandbox.pool import cleanup_limiter

NOT_FOUND = 127
"""The exit code by which shells say that there is no such program."""


async def process_limiter() -> Limiter:
    """Whose places commands take: the runtime's child processes; in a removal the reserve that is kept for it."""
    if (reserve := cleanup_limiter()) is not None:
        return reserve
    runtime = current_runtime()
    return loop_pool().limiter if runtime is None else (await pool_actor(runtime)).limiter


async def run_command(
    args: list[str],
    *,
    input: str | bytes | None,
    cwd: Path | None,
    env: Mapping[str, str] | None,
    clear_env: bool = False,
    timeout: float | None,
    concurrency: bool,
    output_limit: int | None = None,
) -> ExecResult[bytes]:
    """Run a command of a sandbox on this machine; see `SandboxEnvironment.exec`.

    Raises:
        TimeoutError: it took longer than `timeout`; its group is dead.
        OSError: it cannot be started.
    """
    return await run_process(
        args,
        input=input.encode() if isinstance(input, str) else input,
        cwd=cwd,
        env=env,
        clear_env=clear_env,
        output_limit=output_limit or exec_output_limit(),
        timeout=timeout,
        limiter=await process_limiter() if concurrency else None,
    )


def no_program(name: str) -> ExecResult[str]:
    """The result of a program that does not exist."""
    return ExecResult(success=False, returncode=NOT_FOUND, stdout="", stderr=f"{name}: command not found\n")


__all__ = ["as_text", "no_program", "process_limiter", "run_command"]
