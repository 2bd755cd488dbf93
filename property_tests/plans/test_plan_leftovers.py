"""After a run nothing of ours is left: no task, no thread, no descriptor (invariant 31)."""

from __future__ import annotations

import gc
import os
import threading

import anyio
from hypothesis import given

from proctor.testing import run_virtual
from proctor.testing.plan import Plan
from proctor.testing.stage import Stage
from proctor.testing.strategies import plans, scaled


def tasks_alive(backend: str) -> int:
    """Tasks of the running loop, the libraries' own among them."""
    if backend == "trio":
        import trio

        return trio.lowlevel.current_statistics().tasks_living
    import asyncio

    return len(asyncio.all_tasks())


def open_descriptors() -> int:
    """Descriptors of this process, where the system tells."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@scaled(4)
@given(plan=plans())
def test_no_task_is_left_when_a_plan_has_ended(backend: str, plan: Plan) -> None:
    async def main() -> None:
        before = tasks_alive(backend)
        stage = Stage(plan, backend)
        await stage.play()
        assert tasks_alive(backend) == before
        for limiter in stage.limiters:
            assert (limiter.used, limiter.waiting) == (0, 0)

    run_virtual(backend, main)


def test_no_thread_and_no_descriptor_is_left_when_a_run_has_ended(backend: str) -> None:
    plan = Plan()

    async def main() -> None:
        await Stage(plan, backend).play()

    run_virtual(backend, main)  # what libraries keep after their first use
    gc.collect()
    # By name, not by number: a thread that an earlier test left idle may end meanwhile.
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    for _ in range(5):
        run_virtual(backend, main)
    gc.collect()
    assert [thread.name for thread in threading.enumerate() if thread not in threads] == []
    assert open_descriptors() <= descriptors


async def test_a_cancelled_run_leaves_no_task(backend: str) -> None:
    before = tasks_alive(backend)
    from proctor.testing.plan import Client

    plan = Plan(limits=(1,), clients=tuple(Client(hold=5, delay=n % 3) for n in range(9)))
    with anyio.move_on_after(7):
        await Stage(plan, backend).play()
    assert tasks_alive(backend) == before


def test_a_runtime_leaves_no_task_no_thread_and_no_descriptor(backend: str) -> None:
    from proctor.runtime import open_runtime
    from proctor.runtime.scopes import concurrency

    async def main() -> None:
        before = tasks_alive(backend)
        async with open_runtime() as runtime:
            async with concurrency("a scope", 2):
                assert await runtime.to_thread(len, "abc") == 3
            assert await runtime.run_user(len, "abcd") == 4
            assert tasks_alive(backend) > before
        assert tasks_alive(backend) == before

    run_virtual(backend, main)  # what libraries keep after their first use
    gc.collect()
    descriptors = open_descriptors()
    for _ in range(3):
        run_virtual(backend, main)
    gc.collect()
    assert open_descriptors() <= descriptors
    for thread in [each for each in threading.enumerate() if each.name.startswith("proctor ")]:
        thread.join(timeout=10)
        assert not thread.is_alive()
