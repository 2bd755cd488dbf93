"""The life of a sample's sandbox in an evaluation, in virtual time: what comes when, and that nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from proctor import Task, open_runtime
from proctor.dataset import Sample
from proctor.errors import NotFoundError, SandboxUnavailableError
from proctor.log.events import SandboxEvent
from proctor.log.spec import SandboxEnvironmentSpec as Spec
from proctor.process import ExecResult
from proctor.runtime import Settings, current_runtime
from proctor.scorer import Score, includes, scorer
from proctor.solver import TaskState, solver
from proctor.testing import FakeModel, FakeSandbox, Fault, FaultPlan, MemoryLogs, run_virtual, settle, simulate
from proctor.util import sandbox, sandbox_with

MODEL = FakeModel(answer="yes")


@solver
def runs(*commands: str, seconds: float = 0.0) -> Any:
    async def solve(state: TaskState, generate: Any) -> TaskState:
        for command in commands or ("true",):
            await sandbox().exec(["sh", "-c", command])
        await anyio.sleep(seconds)
        return state

    return solve


@scorer(metrics=[])
def looks_into_it() -> Any:
    async def score(state: TaskState, target: Any) -> Score:
        result = await sandbox().exec(["cat", "answer"])
        return Score(value=result.stdout)

    return score


def task(fake: FakeSandbox, count: int = 1, *, solving: Any = None, **more: Any) -> Task:
    samples = [Sample(f"q{n}", id=n, target="yes") for n in range(1, count + 1)]
    return Task(more.pop("dataset", samples), solver=solving or runs(), sandbox=fake.spec, **more)


async def test_from_preparation_to_tidying_up_everything_comes_in_its_order() -> None:
    order: list[str] = []

    class Watched(FakeSandbox):
        async def make(self) -> Any:
            order.append("made")
            return await super().make()

        async def remove(self, environments: Any, *, interrupted: bool) -> None:
            order.append(f"removed {interrupted}")
            await super().remove(environments, interrupted=interrupted)

    fake = Watched(answer=lambda command: order.append(" ".join(command.cmd)) or "yes")  # type: ignore[func-returns-value]
    files = {"a.txt": "some text", "b.bin": "data:;base64,AAEC"}
    samples = [Sample("q", id=1, files=files, setup="#!/bin/sh\necho hello")]
    [log] = await simulate(task(fake, dataset=samples, solving=runs("work"), scorer=looks_into_it()), MODEL.model())
    assert log.status == "success", log.error
    assert log.samples[0].scores["looks_into_it"].value == "yes"
    setup, tidy = order[1], order[2]
    assert order == ["made", setup, tidy, "sh -c work", "cat answer", "removed False"]
    assert setup.startswith("/bin/sh /tmp/setup-")
    assert tidy.startswith("rm -f /tmp/setup-")
    assert (fake.prepared, fake.tidied, fake.live) == (1, [True], {})


async def test_files_are_in_the_sandbox_before_the_first_solver() -> None:
    seen: dict[str, bytes] = {}

    @solver
    def looks() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            for name in ("default", "other"):
                environment: Any = sandbox(name)
                seen.update({f"{name}:{path}": data for path, data in environment.environment.files.items()})
            assert await sandbox().read_file("a.txt") == "some text"
            return state

        return solve

    fake = FakeSandbox(names=("main", "other"))
    samples = [Sample("q", id=1, files={"a.txt": "some text", "other:b.bin": "data:;base64,AAEC"})]
    [log] = await simulate(task(fake, dataset=samples, solving=looks()), MODEL.model())
    assert log.status == "success", log.error
    assert seen == {"default:a.txt": b"some text", "other:b.bin": b"\0\1\2"}


async def test_what_is_done_to_a_sandbox_is_in_the_transcript() -> None:
    fake = FakeSandbox(answer=lambda command: ExecResult(success=False, returncode=3, stdout="out", stderr="err"))

    @solver
    def works() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            await sandbox().exec(["ls", "a b"], cwd="/x", timeout=5)
            await sandbox().write_file("f", "text")
            await sandbox().read_file("f")
            with pytest.raises(FileNotFoundError):
                await sandbox().read_file("nothing")
            return state

        return solve

    [log] = await simulate(task(fake, solving=works()), MODEL.model())
    events = [event for event in log.samples[0].events if isinstance(event, SandboxEvent)]
    assert [event.action for event in events] == ["exec", "write_file", "read_file", "read_file"]
    assert (events[0].cmd, events[0].result, events[0].output) == ("ls 'a b'", 3, "err\n\nout")
    assert events[0].options == {"cwd": "/x", "timeout": 5, "environment": "default"}
    assert (events[1].file, events[1].input, events[2].output) == ("f", "text", "text")
    assert "FileNotFoundError" in str(events[3].output)
    assert all(event.completed is not None for event in events)


async def test_the_providers_own_sandbox_is_behind_the_recorded_one() -> None:
    from proctor.sandbox.local import LocalSandbox
    from proctor.testing.fake_sandbox import FakeSandboxEnvironment

    @solver
    def looks() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            await sandbox().as_type(FakeSandboxEnvironment).exec(["unseen"])
            with pytest.raises(TypeError, match="is a FakeSandboxEnvironment, not a LocalSandbox"):
                sandbox().as_type(LocalSandbox)
            with pytest.raises(NotImplementedError, match="sandbox fake has no processes that can be talked to"):
                async with sandbox().open_process(["sh"]):
                    pass
            assert (await sandbox().connection(user="me")).type == "fake"
            with pytest.raises(ValueError, match="no sandbox environment called 'other'; it has default"):
                sandbox("other")
            return state

        return solve

    [log] = await simulate(task(FakeSandbox(), solving=looks()), MODEL.model())
    assert log.samples[0].error is None, log.samples[0].error
    assert [event.cmd for event in log.samples[0].events if isinstance(event, SandboxEvent)] == ["sh"]


async def test_a_sample_takes_its_place_and_that_of_its_sandbox_together() -> None:
    fake = FakeSandbox(command=1.0)
    [log] = await simulate(task(fake, 12), MODEL.model(), max_samples=12, max_sandboxes=3)
    assert log.status == "success"
    assert (fake.peak, fake.made, fake.removed) == (3, 12, 12)
    assert 4.0 <= anyio.current_time() < 4.5


async def test_the_limit_is_one_over_all_tasks_and_follows_a_change_while_it_runs() -> None:
    fake = FakeSandbox(command=1.0)
    peaks: list[int] = []
    async with open_runtime(Settings(seed=0)) as runtime, anyio.create_task_group() as nursery:
        options = {"max_samples": 20, "max_sandboxes": 2, "max_tasks": 2}
        tasks = [task(fake, 8, name="a"), task(fake, 8, name="b")]
        nursery.start_soon(lambda: simulate(tasks, MODEL.model(), **options))
        await anyio.sleep(1.5)
        peaks.append(len(fake.live))
        [pool] = [each for each in runtime.limiters() if each.name == "sandboxes fake"]
        assert (pool.limit, pool.used) == (2, 2)
        runtime.set_limit("max_sandboxes", 5)
        await anyio.sleep(1.0)
        peaks.append(len(fake.live))
    assert peaks == [2, 5]
    assert (fake.peak, fake.live) == (5, {})


async def test_a_hundred_starts_are_bounded_apart_from_what_lives() -> None:
    fake = FakeSandbox(start=1.0, command=50.0)
    [log] = await simulate(task(fake, 100), MODEL.model(), max_samples=100)
    assert log.status == "success"
    from proctor.runtime.cpus import cpus

    assert fake.peak == 100
    assert fake.peak_starting == min(100, cpus())


async def test_a_full_pool_drains_while_starts_wait() -> None:
    """Removals have their own limiter: a start that takes for ever holds none of them up."""
    hold = anyio.Event()
    fake = FakeSandbox()

    class Slow(FakeSandbox):
        async def make(self) -> Any:
            if self.made >= 4:
                self.starting += 1
                await hold.wait()
            return await super().make()

    fake = Slow(command=1.0)
    async with open_runtime(Settings(seed=0)), anyio.create_task_group() as nursery:
        nursery.start_soon(lambda: simulate(task(fake, 40), MODEL.model(), max_samples=40))
        await anyio.sleep(20)
        assert (fake.made, fake.removed) == (4, 4)
        hold.set()
    assert (fake.made, fake.live) == (40, {})


async def test_a_failing_sample_is_retried_in_a_new_sandbox_with_both_places_kept() -> None:
    fake = FakeSandbox(command=1.0, faults=FaultPlan((Fault("command", 1, times=2),)))
    [log] = await simulate(task(fake, 2), MODEL.model(), max_samples=2, max_sandboxes=1, retry_on_error=2)
    assert log.status == "success"
    assert [len(sample.error_retries or ()) for sample in log.samples] == [2, 0]
    assert (fake.made, fake.removed, fake.peak) == (4, 4, 1)
    assert fake.interrupted == [True, True, False, False]
    assert 4.0 <= anyio.current_time() < 4.5


async def test_a_sandbox_that_cannot_be_made_is_an_error_of_its_sample_alone() -> None:
    fake = FakeSandbox(faults=FaultPlan((Fault("sandbox", 2),)))
    [log] = await simulate(task(fake, 3), MODEL.model(), fail_on_error=False)
    assert [sample.error is not None for sample in log.samples] == [False, True, False]
    assert fake.live == {}


@pytest.mark.parametrize("swallowed", [False, True])
async def test_a_sandbox_that_dies_makes_its_sample_an_error_even_if_that_is_swallowed(swallowed: bool) -> None:
    fake = FakeSandbox()

    @solver
    def dies() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            await sandbox().exec(["true"])
            if state.sample_id == 2:
                fake.kill_all()
            try:
                await sandbox().exec(["true"])
            except SandboxUnavailableError:
                if not swallowed:
                    raise
            return await generate(state)  # type: ignore[no-any-return]

        return solve

    [log] = await simulate(
        task(fake, 3, solving=dies(), scorer=includes()), MODEL.model(), fail_on_error=False, max_samples=1
    )
    assert [sample.error is not None for sample in log.samples] == [False, True, False]
    assert "is gone" in str(log.samples[1].error.message)


async def test_after_its_sample_nobody_uses_a_sandbox() -> None:
    kept: list[Any] = []

    @solver
    def keeps() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            kept.append(sandbox())
            return state

        return solve

    await simulate(task(FakeSandbox(), solving=keeps()), MODEL.model())
    with pytest.raises(SandboxUnavailableError, match="has been removed"):
        await kept[0].exec(["true"])


async def test_a_removal_that_never_ends_is_cut_at_its_deadline_and_named(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeSandbox(stuck=True)
    [log] = await simulate(task(fake, 2), MODEL.model(), max_samples=2, max_sandboxes=1)
    assert log.status == "success"
    assert 60.0 <= anyio.current_time() < 60.5  # 30 s each, one after the other: the place comes back with the deadline
    assert "sample 1 (epoch 1) (default) was left behind, its removal did not end in time" in caplog.text
    assert "proctor sandbox cleanup fake" in caplog.text


async def test_a_removal_that_resists_its_end_holds_its_place_only_for_a_moment() -> None:
    began: list[float] = []

    class Resisting(FakeSandbox):
        async def make(self) -> Any:
            began.append(anyio.current_time())
            return await super().make()

    fake = Resisting(stuck=True, resisting=300.0)
    [log] = await simulate(task(fake, 2), MODEL.model(), max_samples=2, max_sandboxes=1)
    assert log.status == "success"
    assert 30 < began[1] < 35


async def test_a_removal_that_fails_is_named_and_changes_no_result(caplog: pytest.LogCaptureFixture) -> None:
    fake = FakeSandbox(faults=FaultPlan((Fault("removal", 1),)))
    [log] = await simulate(task(fake, 1), MODEL.model())
    assert log.status == "success"
    assert log.samples[0].error is None
    assert "its removal failed: planned: sample 1" in caplog.text


async def test_sandboxes_may_be_kept() -> None:
    fake = FakeSandbox()
    [log] = await simulate(task(fake, 2), MODEL.model(), sandbox_cleanup=False, max_sandboxes=1)
    assert log.status == "success"
    assert log.eval.config.sandbox_cleanup is False
    assert (len(fake.live), fake.removed, fake.tidied) == (2, 0, [False])


async def test_preparation_happens_once_for_each_configuration_and_failing_it_is_said_once() -> None:
    class Failing(FakeSandbox):
        tries = 0

    one, other = FakeSandbox(preparation=5.0), FakeSandbox()
    samples = [Sample("q", id=n, sandbox=(one if n % 2 else other).spec) for n in range(6)]
    [log] = await simulate(Task(samples, solver=runs()), MODEL.model())
    assert log.status == "success", log.error
    assert (one.prepared, other.prepared, one.made, other.made) == (1, 1, 3, 3)


async def test_the_task_goes_before_the_sample_and_the_call_before_the_task() -> None:
    of_task, of_sample, of_call = FakeSandbox(), FakeSandbox(), FakeSandbox()
    plain = Sample("q", id=1)
    own = Sample("q", id=2, sandbox=of_sample.spec)
    await simulate(Task([plain, own], solver=runs(), sandbox=of_task.spec), MODEL.model())
    assert (of_task.made, of_sample.made) == (1, 1)  # a configuration for the same type is the sample's
    await simulate(Task([plain], solver=runs(), sandbox=of_task.spec), MODEL.model(), sandbox=of_call.spec)
    assert (of_task.made, of_call.made) == (1, 1)


async def test_an_unknown_sandbox_is_refused_before_anything_runs() -> None:
    with pytest.raises(NotFoundError, match="no sandbox is called 'bubblewrp'; did you mean bubblewrap"):
        await simulate(Task([Sample("q")], solver=runs(), sandbox="bubblewrp"), MODEL.model())


async def test_a_sample_without_a_sandbox_is_told_how_to_get_one() -> None:
    [log] = await simulate(Task([Sample("q")], solver=runs()), MODEL.model())
    assert "this sample has no sandbox" in str(log.samples[0].error.message)


async def test_sandbox_with_finds_the_environment_that_has_a_file() -> None:
    found: list[str] = []

    @solver
    def finds() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            for name in ("tool", "missing"):
                environment: Any = await sandbox_with(name)
                found.append("none" if environment is None else environment.name)
            return state

        return solve

    def answer(command: Any) -> ExecResult[str]:
        has = command.environment.name == "b" and command.cmd[-1] == "tool"
        return ExecResult(success=has, returncode=int(not has), stdout="", stderr="")

    await simulate(task(FakeSandbox(names=("a", "b"), answer=answer), solving=finds()), MODEL.model())
    assert found == ["b", "none"]


async def test_when_its_pool_is_restarted_what_lives_goes_on_and_what_is_lost_is_told() -> None:
    from proctor.errors import Fault as Broken

    fake = FakeSandbox(faults=FaultPlan((Fault("sandbox", 3, times=1, error=Broken),)))

    @solver
    def lives_on() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            if state.sample_id == 2:
                environment: Any = sandbox()
                environment.environment.dead = True
            await anyio.sleep(60)
            await sandbox().exec(["true"])
            return state

        return solve

    # The third sample's start fails in a way that a provider declares to be the pool's: it is restarted.
    [log] = await simulate(task(fake, 3, solving=lives_on()), MODEL.model(), fail_on_error=False, max_samples=3)
    assert [sample.error is None for sample in log.samples] == [True, False, True]
    assert "did not outlive a restart" in log.samples[1].error.message
    assert log.samples[1].total_time < 60
    assert fake.live == {}


async def test_when_its_pool_is_given_up_its_task_ends_with_that_and_nothing_is_left() -> None:
    from proctor.errors import Fault as Broken

    broken = tuple(Fault("sandbox", n, error=Broken) for n in range(3, 31))
    fake = FakeSandbox(faults=FaultPlan(broken))
    other = Task([Sample("q", id=1)], name="other")

    @solver
    def lives_on() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            if int(state.sample_id) <= 2:
                await anyio.sleep(600)
            return state

        return solve

    using = task(fake, 30, solving=lives_on(), name="using")
    logs = await simulate([using, other], MODEL.model(), fail_on_error=False, max_samples=4, max_tasks=2)
    assert [log.status for log in logs] == ["error", "success"]
    assert "restarts within" in str(logs[0].error)
    assert fake.live == {}


async def test_a_start_that_its_pool_dies_of_is_tried_once_more_and_then_an_error_of_its_sample() -> None:
    from proctor.errors import Fault as Broken

    fake = FakeSandbox(faults=FaultPlan((Fault("sandbox", 2, error=Broken),)))
    [log] = await simulate(task(fake, 3), MODEL.model(), fail_on_error=False)
    assert [sample.error is None for sample in log.samples] == [True, False, True]
    assert fake.faults.raised["sandbox"] == 2
    assert fake.live == {}


async def test_an_evaluation_inside_a_sample_shares_its_place_and_cannot_wait_for_it() -> None:
    fake = FakeSandbox()

    @solver
    def evaluates() -> Any:
        async def solve(state: TaskState, generate: Any) -> TaskState:
            [inner] = await simulate(task(fake, 2, name="inner"), MODEL.model())
            assert inner.status == "success"
            await sandbox().exec(["true"])
            return state

        return solve

    [log] = await simulate(task(fake, 2, solving=evaluates()), MODEL.model(), max_sandboxes=1)
    assert log.status == "success", log.error
    assert (fake.made, fake.live) == (6, {})


async def test_the_status_shows_how_many_sandboxes_live() -> None:
    from proctor.display.status import run_status
    from proctor.evaluation.call import EvalCall

    fake, shown = FakeSandbox(command=5.0), []
    tasks = task(fake, 8)
    call = EvalCall.of({"tasks": tasks, "model": MODEL.model(), "display": "none", "max_sandboxes": 3, "config": {}})
    async with call.opened(open_log=MemoryLogs().open) as actor, anyio.create_task_group() as nursery:
        nursery.start_soon(actor.run)
        await anyio.sleep(2)
        shown = [
            (each.name, each.used, each.limit, each.waiting)
            for each in run_status(actor.view, anyio.current_time()).limiters
        ]
        nursery.cancel_scope.cancel()
    assert ("sandboxes fake", 3, 3) in [each[:3] for each in shown], shown


def test_a_container_file_of_a_sample_fits_whatever_takes_container_files() -> None:
    from proctor.sandbox.task import chosen, is_container_file

    of_sample = Spec("docker", "x/compose.yaml")
    assert chosen(Spec("podman"), of_sample) == Spec("podman", "x/compose.yaml")
    assert chosen(Spec("local"), of_sample) == Spec("local")
    assert chosen(Spec("podman"), Spec("docker", "image:tag")) == Spec("podman")
    assert chosen(None, of_sample) is of_sample
    assert [is_container_file(name) for name in ("a/Dockerfile", "my-compose.yml", "values.yaml", {"x": 1})] == [
        True, True, False, False,
    ]  # fmt: skip


def cancelled_at(k: int, fake: FakeSandbox, plan: FaultPlan) -> Callable[[], Any]:
    async def play() -> int:
        fake.faults = plan
        files = {"a": "text"}
        samples = [Sample(f"q{n}", id=n, files=files, setup="true") for n in range(2)]
        await simulate(
            Task(samples, solver=runs("one", "two"), scorer=looks_into_it(), sandbox=fake.spec),
            MODEL.model(),
            faults=plan,
            max_samples=2,
            max_sandboxes=2,
        )
        assert fake.live == {}, f"cancelled at await {k}: {len(fake.live)} left"
        assert current_runtime() is None
        return plan.awaits.count

    return play


def test_cancelled_at_any_await_nothing_is_left(backend: str) -> None:
    for k in range(1, 400):
        fake = FakeSandbox(names=("a", "b"), start=1.0, command=1.0, removal=1.0)
        plan = FaultPlan(cancel_at=k)
        count = run_virtual(backend, cancelled_at(k, fake, plan))
        if count < k:
            break
    assert k > 40


async def test_all_that_starts_at_once_ends_with_the_run(caplog: pytest.LogCaptureFixture) -> None:
    """Cancelled from outside in the middle of it all: every environment is removed within the ending's budget."""
    fake = FakeSandbox(start=2.0, command=100.0, removal=1.0)
    with anyio.move_on_after(11):
        await simulate(task(fake, 30), MODEL.model(), max_samples=30)
    assert fake.live == {}
    assert fake.made > 0
    assert anyio.current_time() <= 16.0
    await settle()
