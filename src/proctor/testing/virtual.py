"""Run async code in virtual time, the same on every backend.

A test of timeouts, back-off and ties takes milliseconds, and its order of events is the same every time. Time
starts at 0 and moves only when no task can run. See `proctor.testing.watch` for what happens then.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import Any, Final, TypeVar, TypeVarTuple

import anyio

from proctor.testing.blocked import describe_blocked
from proctor.testing.watch import Watch, current_watch

T = TypeVar("T")
Args = TypeVarTuple("Args")

BACKENDS: Final = ("asyncio", "asyncio-eager", "trio") if sys.version_info >= (3, 12) else ("asyncio", "trio")
"""The backends every test runs on; eager tasks exist from Python 3.12."""


def run_virtual(
    backend: str,
    fn: Callable[[*Args], Awaitable[T]],
    *args: *Args,
    seed: int = 0,
    timeout: float = 60.0,
    patience: float = 5.0,
) -> T:
    """Run `fn(*args)` in virtual time and return its result.

    Args:
        backend: ``asyncio``, ``asyncio-eager`` (Python 3.12 and later) or ``trio``.
        fn: an async function.
        seed: the order in which trio runs tasks that can run at once; 0 is a plain fixed order. asyncio
            promises its order, so there the seed changes nothing.
        timeout: real seconds the run may take.
        patience: real seconds to wait for a worker thread while nothing else happens.

    Raises:
        VirtualDeadlock: nothing can run and no timer is pending; the text says who waits for what.
    """
    watch = Watch(patience, timeout, describe=lambda: describe_blocked(backend))
    options, order = _options(backend, watch, seed)
    try:
        with order:
            result = anyio.run(_main, watch, fn, args, backend=backend.partition("-")[0], backend_options=options)
    except BaseException as error:
        if watch.failure is not None and error is not watch.failure:
            raise watch.failure from error
        raise
    if watch.failure is not None:
        raise watch.failure
    return result


def run_real(backend: str, fn: Callable[[*Args], Awaitable[T]], *args: *Args) -> T:
    """Run `fn(*args)` in real time on a backend named as for `run_virtual`."""
    options: dict[str, Any] = {}
    if backend == "asyncio-eager":
        from proctor.testing.asyncio_clock import real_eager_loop

        options["loop_factory"] = real_eager_loop
    return anyio.run(fn, *args, backend=backend.partition("-")[0], backend_options=options)


async def _main(watch: Watch, fn: Callable[[*Args], Awaitable[T]], args: tuple[*Args]) -> T:
    current_watch.set(watch)
    try:
        with anyio.CancelScope() as watch.scope:
            return await fn(*args)
    finally:
        watch.closing = True
    raise watch.failure or AssertionError("cancelled from outside")


def _options(backend: str, watch: Watch, seed: int) -> tuple[dict[str, Any], Any]:
    """anyio's options for a backend, and a context manager to run in."""
    if backend == "trio":
        from proctor.testing.trio_clock import RealTimeCheck, fixed_order, virtual_clock

        options = {
            "clock": virtual_clock(watch),
            "instruments": [RealTimeCheck(watch)],
            "restrict_keyboard_interrupt_to_checkpoints": True,
        }
        return options, fixed_order(seed)
    if backend not in BACKENDS:
        raise ValueError(f"unknown backend {backend!r}: choose one of {', '.join(BACKENDS)}")
    from proctor.testing.asyncio_clock import loop_factory

    return {"loop_factory": loop_factory(watch, eager=backend == "asyncio-eager")}, nullcontext()
