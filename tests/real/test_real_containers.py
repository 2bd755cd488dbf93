"""Containers of podman, for real: what a command does inside, what ends, what is left.

They need podman, settings for it that work on the machine and small images: `.ci/containers` makes them (and says why
where it cannot); these tests run it themselves when its settings are not in the environment.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor import Task, eval
from proctor.dataset import Sample, json_dataset
from proctor.errors import OptionError, ProcessTimeout, SandboxUnavailableError, UsageError
from proctor.log import EvalLog, read_eval_log
from proctor.process import ExecResult
from proctor.runtime import open_runtime
from proctor.sandbox.compose import ComposeConfig, ComposeService
from proctor.sandbox.compose_file import compose_text
from proctor.sandbox.container import PodmanSandboxEnvironment as Podman
from proctor.sandbox.containers import shell
from proctor.sandbox.containers.leftovers import PROJECT_LABEL
from proctor.sandbox.environment import SandboxEnvironment
from proctor.solver import Generate, Solver, TaskState, solver
from proctor.testing import BACKENDS, run_real
from proctor.testing.sandbox_check_words import COUNT
from proctor.testing.sandbox_checks import (
    CHECKS,
    LONGEST,
    CheckFailed,
    CheckSkipped,
    SandboxCheck,
    Subject,
    open_subject,
    run_check,
)
from proctor.util import sandbox

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which podman works here."""
    if "PROCTOR_TEST_CONTAINERS" in os.environ:
        wanted = ("PROCTOR_TEST", "CONTAINERS_")
        return {name: value for name, value in os.environ.items() if name.startswith(wanted)}
    if shutil.which("podman") is None:
        pytest.skip("podman is not installed (as root on Debian or Ubuntu: .ci/containers --install)")
    folder = tmp_path_factory.mktemp("containers")
    made = subprocess.run([ROOT / ".ci/containers", folder], capture_output=True, text=True, timeout=200, check=False)
    if made.returncode != 0:
        pytest.skip(made.stderr.strip().splitlines()[-1])
    found = {}
    for word in shlex.split((folder / "env").read_text()):
        name, equals, value = word.partition("=")
        if equals:
            found[name] = value
    return found


@pytest.fixture(autouse=True)
def surroundings(settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """That environment, notes of its own, and no container left at the end."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PROCTOR_STATE_DIR", str(tmp_path / "state"))
    yield
    assert not there("containers")
    assert not list((tmp_path / "state").rglob("*.json"))


@pytest.fixture
def image(settings: dict[str, str]) -> str:
    """An image with the usual programs."""
    return f"{settings['PROCTOR_TEST_IMAGE']}:gnu"


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs an async function in real time, on each backend."""
    return lambda fn, *args: run_real(request.param, fn, *args)


def podman(*args: str) -> str:
    done = subprocess.run(["podman", *args], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


KINDS = {"containers": ("ps", "--all"), "networks": ("network", "ls"), "volumes": ("volume", "ls")}


def there(kind: str) -> list[str]:
    """What of ours the engine has."""
    return podman(*KINDS[kind], "--quiet", "--filter", f"label={PROJECT_LABEL}").split()


# -- what every sandbox must do


TOGETHER = [check for check in CHECKS if not check.kills and "left" not in check.name and "remov" not in check.name]
BY_ROOT = [check for check in TOGETHER[::2] if "may_not" not in check.name]
HALVES = (BY_ROOT, [check for check in TOGETHER if check not in BY_ROOT])
APART = [check for check in CHECKS if check not in TOGETHER]
"""Those that end something, or make environments of their own."""


@pytest.mark.parametrize("half", [0, 1])
def test_self_checks_in_one_container(half: int, image: str) -> None:
    """Each half of them on one backend, one after the other in one container: a container for each takes minutes.

    One half as root, the other as a user who may not read and write everything.
    """
    one = ComposeService(
        image=image, command="tail -f /dev/null", network_mode="none", user="ann", working_dir="/home/ann"
    )
    config = [image, ComposeConfig(services={"default": one})][half]

    async def checked() -> list[str]:
        failed = []
        async with open_subject(Podman, config) as subject:
            for check in HALVES[half]:
                try:
                    with anyio.fail_after(LONGEST):
                        await check.run(subject)
                except CheckSkipped:
                    continue
                except Exception as error:
                    failed.append(f"{check}: {error!r}")
        return failed

    assert len(HALVES[half]) > 15
    assert run_real(BACKENDS[half], checked) == []


def shared_out() -> Iterator[Any]:
    """The others apart, on every backend, but those that cancel at every await, which take longest."""
    for number, check in enumerate(APART):
        for backend in [BACKENDS[number % len(BACKENDS)]] if "any_await" in check.name else BACKENDS:
            yield pytest.param(check, backend, id=f"{check}-{backend}")


@pytest.mark.parametrize(("check", "backend"), list(shared_out()))
def test_self_check(check: SandboxCheck, backend: str, image: str) -> None:
    async def checked() -> None:
        await run_check(check, Podman, image, left=lambda: len(there("containers")))

    try:
        run_real(backend, checked)
    except CheckSkipped as reason:
        pytest.skip(str(reason))


async def an_orphan_in_a_session_of_its_own_is_dead(subject: Subject) -> None:
    """Its session is another one and its parent is gone: only the environment it inherited tells whose it is."""
    script = f"(setsid sh -c '{COUNT}' \"$0\" &); sleep 100"
    async with anyio.create_task_group() as nursery:
        nursery.start_soon(lambda: subject.sandbox.exec(["sh", "-c", script, "count"]))
        await subject.lives("count")
        nursery.cancel_scope.cancel()
    await subject.is_dead("count")


ORPHAN = SandboxCheck("an orphan in a session of its own", an_orphan_in_a_session_of_its_own_is_dead, kills=True)
KILLER_MUTANTS = {
    "nothing is ended": ("exit 0", "what_timed_out_is_dead"),
    "nothing is ended, too": ("exit 0", "what_was_cancelled_is_dead"),
    "no second signal": (
        shell.KILLER.replace("-KILL", "-TERM").replace("-ge 60", "-ge 15"), "what_ignores_signals_is_dead"
    ),
    "no look at the token": (shell.KILLER.replace('*"$t"*) v=', '"no token") v='), str(ORPHAN)),
}  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_orphan_in_a_session_of_its_own(backend: str, image: str) -> None:
    run_real(backend, lambda: run_check(ORPHAN, Podman, image))


@pytest.mark.parametrize("mutant", KILLER_MUTANTS)
def test_checks_of_kills_can_fail(mutant: str, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changed, name = KILLER_MUTANTS[mutant]
    assert changed != shell.KILLER
    monkeypatch.setattr(shell, "KILLER", changed)
    [check] = [check for check in (*CHECKS, ORPHAN) if check.name == name]

    async def checked() -> None:
        # A container in which nothing could be ended is killed, as a last resort.
        with pytest.raises((CheckFailed, SandboxUnavailableError)):
            await run_check(check, Podman, image)

    run_real("asyncio", checked)


# -- in an evaluation


def evaluate(backend: str, tmp_path: Path, samples: int, solve: Solver, sandbox: Any, **options: Any) -> EvalLog:
    task = Task(
        [Sample(f"sample {number}") for number in range(samples)], solver=solve, sandbox=sandbox, name="contained"
    )
    options = {"model": "mock/model", "display": "none", "log_dir": str(tmp_path / "logs"), **options}
    return eval(task, async_backend=backend, **options)[0]


@solver
def step(act: Callable[[TaskState], Any]) -> Solver:
    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await act(state)
        return state

    return solve


def lives(since: str) -> list[int]:
    """How many containers of the task there were after each that was started or removed."""
    said = podman("events", "--since", since, "--stream=false", "--format", "{{.Name}} {{.Status}}")
    counts, living = [0], set()
    for line in said.splitlines():
        name, _, status = line.partition(" ")
        if name.startswith("proctor-contained-"):
            living = living | {name} if status == "start" else living - {name} if status == "remove" else living
            counts.append(len(living))
    return counts


@pytest.mark.parametrize("backend", BACKENDS)
def test_as_many_containers_live_as_are_allowed(backend: str, tmp_path: Path, image: str) -> None:
    inside: list[str] = []

    async def act(state: TaskState) -> None:
        result = await sandbox().exec(["sh", "-c", "echo $$ > mine && cat mine"])
        assert result.success
        inside.append(result.stdout)
        # Wait for another one, so that two do live at once whatever the machine does.
        with anyio.fail_after(60):
            while len(inside) < 2:
                await anyio.sleep(0.01)

    since = str(int(tmp_path.stat().st_ctime))
    log = evaluate(backend, tmp_path, 5, step(act), ("podman", image), max_sandboxes=2, max_samples=5)
    assert log.status == "success", log.error
    counts = lives(since)
    assert max(counts) == 2
    assert counts[-1] == 0
    assert len(inside) == 5


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_container_killed_from_outside_is_an_error_of_its_sample(backend: str, tmp_path: Path, image: str) -> None:
    async def act(state: TaskState) -> None:
        name = (await sandbox().connection()).container
        assert name is not None
        assert (await sandbox().exec(["true"])).success
        if state.input_text == "sample 1":
            await anyio.to_thread.run_sync(podman, "kill", name)
            with suppress(SandboxUnavailableError):  # whoever swallows it does not make a success of it
                await sandbox().exec(["true"])

    log = evaluate(backend, tmp_path, 3, step(act), ("podman", image), fail_on_error=False)
    assert log.status == "success"
    errors = [sample.error for sample in log.samples or []]
    assert [error is not None for error in errors] == [False, True, False]
    assert errors[1] is not None
    assert "has ended" in errors[1].message
    assert "137" in errors[1].message


@pytest.mark.parametrize("kind", ["object", "beside the task", "of a sample"])
def test_where_a_configuration_comes_from(kind: str, tmp_path: Path, image: str, write: Any) -> None:
    service = {"image": image, "command": "tail -f /dev/null", "network_mode": "none", "environment": {"KIND": kind}}
    config = ComposeConfig.model_validate({"services": {"default": service}})
    write(compose_text(config))
    (tmp_path / "words.jsonl").write_text('{"input": "a", "target": "b"}\n')
    dataset = json_dataset(str(tmp_path / "words.jsonl"))
    dataset[0].files = {"given/file": "content"}
    dataset[0].setup = "#!/bin/sh\necho set up >> given/file"
    if kind == "of a sample":
        dataset[0].sandbox = ("podman", config)  # type: ignore[assignment]
    seen = []

    async def act(state: TaskState) -> None:
        seen.append(out(await sandbox().exec(["sh", "-c", "echo $KIND"])))
        seen.append(await sandbox().read_file("given/file"))

    task = Task(dataset, solver=step(act), sandbox=("podman", config) if kind == "object" else "podman")
    [log] = eval(task, "mock/model", display="none", log_dir=str(tmp_path / "logs"))
    assert log.status == "success", log.samples and log.samples[0].error
    assert seen == [kind, "contentset up\n"]
    again = read_eval_log(log.location)
    logged = again.samples[0].sandbox if again.samples and kind == "of a sample" else again.eval.sandbox
    assert logged is not None
    assert logged.type == "podman"


TASK = """
from proctor import Task, task
from proctor.dataset import Sample
from proctor.solver import solver
from proctor.util import sandbox

@solver
def long():
    async def solve(state, generate):
        await sandbox().exec(["sh", "-c", "while :; do sleep 1; done"])
        return state
    return solve

@task
def contained():
    return Task([Sample(f"s{number}") for number in range(4)], solver=long())
"""


@contextmanager
def running(tmp_path: Path, image: str, backend: str) -> Iterator[subprocess.Popen[str]]:
    """A run of the command line whose samples never end by themselves."""
    (tmp_path / "contained.py").write_text(TASK)
    command = [
        sys.executable, "-m", "proctor", "eval", "contained.py", "--model", "mock/model", "--display", "plain",
        "--sandbox", f"podman:{image}", "--max-sandboxes", "3", "--max-samples", "3", "--async-backend", backend,
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


def wait_for(true: Callable[[], bool], what: str, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.02)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("number", "live"), [(signal.SIGINT, 1), (signal.SIGTERM, 3)])
def test_a_signal_leaves_nothing(number: int, live: int, backend: str, tmp_path: Path, image: str) -> None:
    """With one container live the others are being started, with three all commands run."""
    with running(tmp_path, image, backend) as process:
        wait_for(lambda: len(there("containers")) >= live, f"{live} containers")
        process.send_signal(number)
        said, _ = process.communicate(timeout=60)
    assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[number], said
    assert not there("containers"), said


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_killed_run_left_is_removed_by_the_command(backend: str, tmp_path: Path, image: str) -> None:
    with running(tmp_path, image, backend) as process:
        wait_for(lambda: len(there("containers")) >= 2, "2 containers")
        process.kill()
        process.communicate(timeout=60)
    assert len(there("containers")) >= 2
    assert "left behind" in proctor("sandbox", "list")
    proctor("sandbox", "cleanup", "podman")
    assert not there("containers")


def test_what_belongs_to_a_living_run_is_not_removed(tmp_path: Path, image: str) -> None:
    with running(tmp_path, image, "asyncio"):
        wait_for(lambda: len(there("containers")) >= 3, "3 containers")
        assert "in use" in proctor("sandbox", "list")
        proctor("sandbox", "cleanup", "podman")
        assert len(there("containers")) == 3


def proctor(*args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "proctor", *args], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# -- configurations


@asynccontextmanager
async def sample(config: Any, metadata: dict[str, str] | None = None) -> AsyncIterator[dict[str, SandboxEnvironment]]:
    """The environments of one sample, made and removed as the engine does it."""
    async with open_runtime():
        await Podman.task_init("config", config)
        made = await Podman.sample_init("config", config, metadata or {})
        try:
            yield made
        finally:
            await Podman.sample_cleanup("config", config, made, False)
    assert not there("networks")
    assert not there("volumes")


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., str]:
    def write(text: str, name: str = "compose.yaml") -> str:
        (tmp_path / name).write_text(textwrap.dedent(text))
        return str(tmp_path / name)

    return write


def out(result: ExecResult[str]) -> str:
    assert result.success, result
    return result.stdout.strip()


def test_a_single_image_has_no_network(run: Any, image: str) -> None:
    async def check() -> None:
        async with sample(image) as made:
            assert list(made) == ["default"]
            assert out(await made["default"].exec(["sh", "-c", "cat /proc/net/dev | grep -c :"])) == "1"  # lo only

    run(check)


def test_fields_of_a_service_are_what_its_container_is_like(run: Any, image: str, write: Any) -> None:
    file = write(f"""
        services:
          default:
            image: {image}
            command: tail -f /dev/null
            init: false
            network_mode: none
            working_dir: /work
            user: ann
            hostname: here
            environment: {{A: "1", WHO: "${{SAMPLE_METADATA_WHO:-nobody}}"}}
            volumes: ["./in:/in:ro", "kept:/kept"]
            tmpfs: /scratch
            read_only: true
        volumes: {{kept: }}
        """)
    Path(file).parent.joinpath("in").mkdir()
    Path(file).parent.joinpath("in/f").write_text("from outside")

    async def check() -> None:
        async with sample(file, {"who": "me"}) as made:
            box = made["default"]
            assert out(await box.exec(["pwd"])) == "/work"
            assert out(await box.exec(["id", "-u"])) == "1000"
            assert out(await box.exec(["id", "-u"], user="root")) == "0"
            assert out(await box.exec(["sh", "-c", "echo $A $WHO"])) == "1 me"
            assert out(await box.exec(["uname", "-n"])) == "here"
            assert await box.read_file("/in/f") == "from outside"
            with pytest.raises(OSError, match="Read-only"):
                await box.write_file("/in/g", "x")
            await box.write_file("/kept/x", "x")
            with pytest.raises(PermissionError):
                await box.exec(["/etc/passwd"])

    run(check)


def test_limits_of_resources_hold(settings: dict[str, str], run: Any, image: str, write: Any) -> None:
    if settings["PROCTOR_TEST_CONTAINER_LIMITS"] != "there":
        pytest.skip("containers have no control groups here")
    file = write(f"""
        x-base: &base {{image: {image}, command: tail -f /dev/null, network_mode: none}}
        services:
          default: {{<<: *base, mem_limit: 64m}}
          few: {{<<: *base, pids_limit: 20}}
        """)
    grow = "x=$(head -c 300000000 /dev/zero | tr '\\0' a); echo ${#x}"
    fork = "i=0; while [ $i -lt 40 ]; do sleep 300 & i=$((i+1)); done; echo all"

    async def check() -> None:
        async with sample(file) as made:
            big = await made["default"].exec(["sh", "-c", grow], timeout=60)
            assert big.returncode == 137, big
            assert out(await made["default"].exec(["echo", "alive"])) == "alive"
            many = await made["few"].exec(["sh", "-c", fork], timeout=60)
            assert not many.success
            assert "all" not in many.stdout
            for _ in range(8):  # the shell that failed has ended, and made room for one or two more
                full = await made["few"].exec(["echo", "no room"])
                if not full.success:
                    break
                await made["few"].exec(["sh", "-c", fork], timeout=60)
            assert not full.success
            assert "no room for another process" in full.stderr

    run(check)


def test_commands_end_in_an_image_with_nothing_but_a_shell(settings: dict[str, str], run: Any) -> None:
    name = f"{settings['PROCTOR_TEST_IMAGE']}:dash"
    if subprocess.run(["podman", "image", "exists", name], check=False).returncode != 0:
        pytest.skip("there is no such image: dash is not installed here")
    look = (
        'for d in /proc/[0-9]*; do c=; read -r c < $d/cmdline; case $c in *vic""tim*) echo $d;; esac; done 2>/dev/null'
    )
    script = "trap '' TERM; : victim; while :; do :; done & echo part; while :; do :; done"

    async def check() -> None:
        async with sample(name) as made:
            box = made["default"]

            with pytest.raises(ProcessTimeout) as caught:
                await box.exec(["sh", "-c", script], timeout=1)
            assert caught.value.stdout == "part\n"
            assert out(await box.exec(["sh", "-c", look])) == ""
            async with anyio.create_task_group() as nursery:
                nursery.start_soon(box.exec, ["sh", "-c", script])
                with anyio.fail_after(60):
                    while not out(await box.exec(["sh", "-c", look])):
                        pass
                nursery.cancel_scope.cancel()
            assert out(await box.exec(["sh", "-c", look])) == ""

    run(check)


def test_services_start_in_order_and_reach_each_other(
    settings: dict[str, str], run: Any, image: str, write: Any
) -> None:
    if settings["PROCTOR_TEST_CONTAINER_NETWORK"] != "yes":
        pytest.skip("containers can have no network here")
    busybox = image.replace(":gnu", ":busybox")
    file = write(f"""
        services:
          web:
            image: {busybox}
            x-default: true
            command: tail -f /dev/null
            depends_on:
              server: {{condition: service_healthy}}
              prepare: {{condition: service_completed_successfully}}
            volumes: ["shared:/shared"]
          server:
            image: {busybox}
            command: sh -c "mkdir /www; echo served >/www/index.html; touch /ready; exec httpd -f -p 8080 -h /www"
            healthcheck: {{test: [CMD, test, -f, /ready], interval: 200ms, timeout: 10s, retries: 50}}
            networks: {{default: {{aliases: [other-name]}}}}
          prepare:
            image: {busybox}
            command: sh -c "echo prepared > /shared/it"
            network_mode: none
            volumes: ["shared:/shared"]
        volumes: {{shared: }}
        networks: {{default: {{internal: true}}}}
        """)

    async def check() -> None:
        async with sample(file) as made:
            assert list(made) == ["web", "server"]
            fetch = "i=0; until wget -q -O - http://%s:8080/ || [ $i -gt 50 ]; do sleep 0.1; i=$((i+1)); done"
            for name in ("server", "other-name"):
                assert out(await made["web"].exec(["sh", "-c", fetch % name], timeout=30)) == "served"
            assert await made["web"].read_file("/shared/it") == "prepared\n"
            assert out(await made["server"].exec(["test", "-f", "/ready"])) == ""

    run(check)


def test_a_service_that_never_becomes_healthy(run: Any, image: str, write: Any) -> None:
    file = write(f"""
        services:
          default:
            image: {image}
            command: tail -f /dev/null
            network_mode: none
            healthcheck: {{test: "echo not yet; exit 1", interval: 100ms, retries: 2}}
        """)

    async def check() -> None:
        with pytest.raises(
            UsageError, match=r"'default' did not become healthy: 2 failed checks in a row; the last: not yet"
        ):
            async with sample(file):
                pass

    run(check)


def test_a_service_that_ends_at_once_says_what_it_said(run: Any, image: str, write: Any) -> None:
    file = write(f"""
        services:
          default: {{image: {image}, command: sh -c "echo my last words; exit 3", network_mode: none}}
        """)

    async def check() -> None:
        with pytest.raises((UsageError, SandboxUnavailableError), match=r"(?s)with code 3.*my last words.*tail -f"):
            async with sample(file):
                await anyio.sleep(5)

    run(check)


def test_an_image_is_built_once_from_a_dockerfile(run: Any, image: str, write: Any) -> None:
    file = write(f"FROM {image}\nRUN echo built > /built\nWORKDIR /work\nENV A=b\n", "Dockerfile")

    async def check() -> None:
        async with sample(file) as made:
            box = made["default"]
            assert out(await box.exec(["sh", "-c", "pwd; cat /built; echo $A"])) == "/work\nbuilt\nb"

    run(check)


def test_a_build_that_fails_says_so(run: Any, image: str, write: Any) -> None:
    file = write(f"FROM {image}\nRUN echo the reason; exit 5\n", "Dockerfile")

    async def check() -> None:
        with pytest.raises(UsageError, match=r"(?s)building the image.*the reason"):
            async with sample(file):
                pass

    run(check)


def test_an_image_that_is_not_there(run: Any, write: Any) -> None:
    file = write("services: {default: {image: localhost/not-there:1, pull_policy: never}}")

    async def check() -> None:
        for config, said in ((file, "build or load it first"), ("./no/such.yaml", "no compose file")):
            with pytest.raises((UsageError, OptionError), match=said):
                async with sample(config):
                    pass

    run(check)


def test_a_full_pool_of_calls_does_not_hold_up_what_runs(run: Any, image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_PODMAN_CLI_CONCURRENCY", "1")

    async def check() -> None:
        async with sample(image) as made:
            box = made["default"]
            async with anyio.create_task_group() as nursery:
                for _ in range(3):
                    nursery.start_soon(box.exec, ["sh", "-c", "while ! [ -e go ]; do sleep 0.1; done"])
                assert out(await box.exec(["touch", "go"])) == ""

    run(check)
