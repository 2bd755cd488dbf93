"""`subprocess()`: run a command from a solver, a scorer or a tool, and `run_process` below it for sandboxes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, Literal, overload

from proctor.actors import Limiter
from proctor.errors import OptionError, ProcessTimeout
from proctor.process.attend import GRACE, Attendance
from proctor.process.child import Command
from proctor.process.place import Place
from proctor.process.pool import SubprocessPool, current_pool, loop_pool, opened, pool_actor
from proctor.process.result import ExecResult, as_text, decode
from proctor.runtime.runtime import current_runtime
from proctor.runtime.sample_limits import current_sample
from proctor.runtime.settings import environment, real_number, whole_number

NOT_REAPED: Final = -9  # the exit code of a process that was killed and has not ended yet
LAST_LINES: Final = 10  # of the output of a command whose time was over, in the error's note
LAST_BYTES: Final = 2000


@overload
async def subprocess(
    args: str | list[str],
    text: Literal[True] = True,
    input: str | bytes | memoryview | None = None,
    cwd: str | Path | None = None,
    env: dict[str, str] | None = None,
    capture_output: bool = True,
    output_limit: int | None = None,
    timeout: float | None = None,
    concurrency: bool = True,
) -> ExecResult[str]: ...
@overload
async def subprocess(
    args: str | list[str],
    text: Literal[False] = False,
    input: str | bytes | memoryview | None = None,
    cwd: str | Path | None = None,
    env: dict[str, str] | None = None,
    capture_output: bool = True,
    output_limit: int | None = None,
    timeout: float | None = None,
    concurrency: bool = True,
) -> ExecResult[bytes]: ...
async def subprocess(
    args: str | list[str],
    text: bool = True,
    input: str | bytes | memoryview | None = None,
    cwd: str | Path | None = None,
    env: dict[str, str] | None = None,
    capture_output: bool = True,
    output_limit: int | None = None,
    timeout: float | None = None,
    concurrency: bool = True,
) -> ExecResult[str] | ExecResult[bytes]:
    """Run a command and wait for its end.

    At most `max_subprocesses` commands run at once in a runtime (default: as many as there are processors). The
    command leads a process group of its own; when its time is over or its caller is cancelled, the whole group gets
    SIGTERM and 2 s later SIGKILL.

    Args:
        args: the program and its arguments. A string is the name of a program: no shell sees it.
        text: give the output as text (UTF-8, what is none is replaced) instead of bytes.
        input: what the command reads; without it, nothing.
        cwd: the folder it runs in.
        env: variables added to its environment, which is otherwise ours.
        capture_output: False: it writes where we do, and the result has no output.
        output_limit: bytes of each stream that are kept, the last ones; `truncated` of the result tells of the rest.
        timeout: seconds it may run. They begin when it is started, not while it waits for a place.
        concurrency: False: start it at once, however many run already.

    Raises:
        TimeoutError: its time was over (a `ProcessTimeout`, which has the output so far).
        OSError: it cannot be started: no such program, no such folder, no descriptors left.
    """
    _check(output_limit, timeout)
    command = Command(
        args=_words(args),
        input=input.encode() if isinstance(input, str) else None if input is None else bytes(input),
        cwd=cwd,
        env=None if env is None else {**environment(), **env},
        capture=capture_output,
        limit=output_limit,
    )
    runtime = current_runtime()
    ref = None if runtime is None else await pool_actor(runtime)
    limiter = None if not concurrency else loop_pool().limiter if ref is None else ref.limiter
    async with Place(limiter):
        pool = loop_pool() if ref is None else await opened(ref)
        result, in_time = await _run(pool, command, timeout, GRACE)
    given: ExecResult[Any] = as_text(result) if text else result
    if not in_time:
        raise _timed_out(command, timeout, given)
    return given


async def run_process(
    args: str | list[str],
    *,
    input: bytes | None = None,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    clear_env: bool = False,
    output_limit: int | None = None,
    timeout: float | None = None,
    grace: float = GRACE,
    limiter: Limiter | None = None,
    group: Hashable = None,
) -> ExecResult[bytes]:
    """Run a command under a limiter of the caller's, or under none. For sandboxes; see `subprocess`.

    Args:
        env: variables added to its environment; `clear_env`: it has no others.
        grace: seconds between SIGTERM and SIGKILL.
        limiter: whose lease is taken while it runs. group: whose share that is; default the current sample's task.

    Raises:
        ProcessTimeout: it still ran after `timeout` seconds, counted from its start.
        OSError: it cannot be started.
    """
    _check(output_limit, timeout)
    whole = {**({} if clear_env else environment()), **(env or {})} if clear_env or env is not None else None
    command = Command(args=_words(args), input=input, cwd=cwd, env=whole, limit=output_limit)
    async with Place(limiter, group):
        result, in_time = await _run(await current_pool(), command, timeout, grace)
    if not in_time:
        raise _timed_out(command, timeout, result)
    return result


async def _run(
    pool: SubprocessPool, command: Command, timeout: float | None, grace: float
) -> tuple[ExecResult[bytes], bool]:
    """Run a command. Returns what came of it and whether it ended in time."""
    sample = current_sample()
    in_time = False
    with nullcontext() if sample is None else sample.working.active():
        attendance = await pool.launch(command, grace=grace)
        try:
            in_time = await attendance.finished(timeout)
        finally:
            try:
                if not in_time:
                    await attendance.end()
            finally:
                pool.leave(attendance)
    return _result(attendance), in_time


def _result(attendance: Attendance) -> ExecResult[bytes]:
    running = attendance.running
    code = NOT_REAPED if running.returncode is None else running.returncode
    streams = {"stdout": running.stdout, "stderr": running.stderr}
    cut = {name: tail.total for name, tail in streams.items() if tail.cut}
    return ExecResult(code == 0, code, running.stdout.value(), running.stderr.value(), cut)


def _timed_out(command: Command, timeout: float | None, result: ExecResult[Any]) -> ProcessTimeout:
    error = ProcessTimeout(
        f"{command.name!r} ran for longer than {timeout:g} s and was ended",
        stdout=result.stdout,
        stderr=result.stderr,
        truncated=result.truncated,
    )
    for name, output in (("stdout", result.stdout), ("stderr", result.stderr)):
        if output:
            text = output if isinstance(output, str) else decode(output[-LAST_BYTES:], cut=True)
            error.add_note(f"the end of its {name}:\n{_last_lines(text)}")
    return error


def _last_lines(text: str) -> str:
    return "\n".join(text[-LAST_BYTES:].splitlines()[-LAST_LINES:])


def _words(args: str | list[str]) -> list[str]:
    words = [args] if isinstance(args, str) else list(args)
    if not words or not all(isinstance(each, str) for each in words):
        raise OptionError(f"args must be a program and its arguments, all of them text, not {args!r}")
    return words


def _check(output_limit: int | None, timeout: float | None) -> None:
    if output_limit is not None:
        whole_number(output_limit, option="output_limit")
    if timeout is not None:
        real_number(timeout, option="timeout")
