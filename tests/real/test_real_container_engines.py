"""Engines that are played by a small program: what is said to them, word for word, and what follows from their answers.

The program stands first on the path as ``docker`` or ``podman``. It writes down what it was called with, plays
containers as files, and runs what is to be run in a container on this machine.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from attrs import frozen

from proctor.errors import OptionError, ProcessTimeout, SandboxUnavailableError, UsageError
from proctor.runtime import open_runtime
from proctor.sandbox.compose import ComposeConfig, ComposeService
from proctor.sandbox.container import ContainerSandbox, DockerSandboxEnvironment, PodmanSandboxEnvironment
from proctor.sandbox.containers.state import describe
from proctor.sandbox.environment import SandboxEnvironment
from proctor.testing import BACKENDS, run_real

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

PROGRAM = r"""
import json, os, subprocess, sys, time
me, here = os.path.basename(sys.argv[0]), os.environ["STANDIN"]
args = sys.argv[1:]
number = f"{time.monotonic_ns()}-{os.getpid()}"
busy = os.path.join(here, "busy", number)
open(busy, "w").close()
with open(os.path.join(here, "calls"), "a") as calls:
    print(json.dumps([me, *args]), len(os.listdir(os.path.join(here, "busy"))), file=calls, flush=True)
import atexit
atexit.register(os.unlink, busy)

def fail(text, code=125):
    print(text, file=sys.stderr)
    sys.exit(code)

def boxes():
    return sorted(os.listdir(os.path.join(here, "boxes")))

def box(id):
    try:
        with open(os.path.join(here, "boxes", id)) as file:
            return json.load(file)
    except FileNotFoundError:
        fail(f"Error response from daemon: No such container: {id}", 1)

def make(id, name, labels, service=None):
    state = {"Running": True, "Status": "running", "ExitCode": 0}
    if service:
        labels = {**labels, "com.docker.compose.service": service}
    with open(os.path.join(here, "boxes", id), "w") as file:
        json.dump({"Id": id, "Name": "/" + name, "State": state,
                   "Config": {"WorkingDir": here + "/work", "User": "", "Labels": labels},
                   "NetworkSettings": {"Ports": {"80/tcp": [{"HostIp": "127.0.0.1", "HostPort": "4000"}]}}}, file)

def after(flag):
    return [args[i + 1] for i, each in enumerate(args) if each == flag]

answers = json.load(open(os.path.join(here, "answers")))
for start, (text, code) in answers.items():
    if " ".join(args).startswith(start) or f" {start} " in " " + " ".join(args) + " ":
        (print(text) if code == 0 else fail(text, code))
        sys.exit(0)

if args[0] == "compose":
    project = after("--project-name")[0]
    files = after("--file")
    verb = next(each for each in args if each in ("config", "build", "up", "ps", "down"))
    if verb == "config":
        print(json.dumps(json.load(open(os.path.join(here, "compose")))))
    elif verb == "up":
        for name in json.load(open(os.path.join(here, "compose")))["services"]:
            override = json.load(open(files[-1]))
            with open(os.path.join(here, "override"), "w") as file:
                json.dump(override, file)
            make(f"id-{name}-{project}", f"{project}-{name}-1", override["services"][name]["labels"], name)
        if os.path.exists(os.path.join(here, "late")):
            if os.fork() == 0:
                os.setsid()
                open(os.path.join(here, "late-begun"), "w").close()
                while boxes():  # until they were removed for the first time
                    time.sleep(0.01)
                make(f"late-{project}", "late", override["services"][name]["labels"], name)
                open(os.path.join(here, "late-made"), "w").close()
                os._exit(0)
            time.sleep(60)
    elif verb == "ps":
        print("\n".join(each for each in boxes() if each.endswith(project)))
    elif verb == "down":
        for each in boxes():
            if each.endswith(project):
                os.unlink(os.path.join(here, "boxes", each))
elif args[0] == "run":
    if "--init" in args and os.path.exists(os.path.join(here, "no-init")):
        fail("Error: container-init binary not found on the host: stat /usr/libexec/podman/catatonit")
    name = after("--name")[0]
    make("id-" + name, name, dict(each.split("=", 1) for each in after("--label")))
    print("id-" + name)
elif args[:2] == ["container", "inspect"]:
    meeting = os.path.join(here, "meeting")
    if os.path.exists(meeting):  # of so many calls at once, which is waited for once
        wanted, until = int(open(meeting).read()), time.monotonic() + 20
        while os.path.exists(meeting) and time.monotonic() < until:
            if len(os.listdir(os.path.join(here, "busy"))) >= wanted:
                try:
                    os.unlink(meeting)
                except FileNotFoundError:
                    pass
            time.sleep(0.01)
    print(json.dumps([box(each) for each in args[2:]]))
elif args[:2] == ["image", "inspect"]:
    print('[{"Id": "there"}]')
elif args[0] == "ps":
    wanted = [each.split("=", 1)[1] for each in after("--filter")]
    for each in boxes():
        labels = box(each)["Config"]["Labels"]
        if all(name in labels and value in ("", labels[name]) for name, _, value in (w.partition("=") for w in wanted)):
            print(each)
elif args[0] == "rm":
    for each in args[1:]:
        if os.path.exists(os.path.join(here, "boxes", each)):
            os.unlink(os.path.join(here, "boxes", each))
elif args[0] == "logs":
    print("the last line of its log")
elif args[0] == "kill":
    found = box(args[-1])
    found["State"] = {"Running": False, "Status": "exited", "ExitCode": 137, "OOMKilled": True}
    json.dump(found, open(os.path.join(here, "boxes", args[-1]), "w"))
elif args[0] == "exec":
    rest, env = args[1:], dict(os.environ)
    while rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag == "--env":
            name, _, value = rest.pop(0).partition("=")
            env[name] = value
        elif flag == "--user":
            rest.pop(0)
    if not box(rest[0])["State"]["Running"]:
        fail("Error response from daemon: container is not running", 1)
    os.unlink(busy)
    atexit.unregister(os.unlink)
    # As engines do, in a session of its own that does not end with this program.
    stdin = None if "--interactive" in args else subprocess.DEVNULL
    sys.exit(subprocess.Popen(rest[1:], env=env, stdin=stdin, start_new_session=True).wait() & 255)
"""


@frozen
class Standin:
    """The played engine.

    Attributes:
        folder: what it remembers.
    """

    folder: Path

    def answer(self, **answers: Any) -> None:
        """What it says to calls that contain these words, with which code."""
        self.write("answers", {name.replace("_", " "): value for name, value in answers.items()})

    def write(self, name: str, value: Any) -> None:
        (self.folder / name).write_text(json.dumps(value))

    @property
    def calls(self) -> list[list[str]]:
        """What it was called with."""
        return [json.loads(line.rpartition(" ")[0]) for line in (self.folder / "calls").read_text().splitlines()]

    @property
    def peak(self) -> int:
        """The most of its calls that ran at once."""
        return max(int(line.rpartition(" ")[2]) for line in (self.folder / "calls").read_text().splitlines())

    @property
    def boxes(self) -> list[str]:
        return sorted(os.listdir(self.folder / "boxes"))


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Standin:
    folder, bin = tmp_path / "standin", tmp_path / "bin"
    for each in (folder / "boxes", folder / "busy", folder / "work", bin):
        each.mkdir(parents=True)
    (folder / "calls").touch()
    (folder / "answers").write_text("{}")
    for name in ("docker", "podman"):
        (bin / name).write_text(f"#!{sys.executable} -IS\n{PROGRAM}")
        (bin / name).chmod(0o755 | stat.S_IEXEC)
    monkeypatch.setenv("PATH", f"{bin}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STANDIN", str(folder))
    monkeypatch.setenv("PROCTOR_STATE_DIR", str(tmp_path / "state"))
    return Standin(folder)


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Runs an async function in real time, on each backend."""
    return lambda fn, *args: run_real(request.param, fn, *args)


@asynccontextmanager
async def sample(
    provider: type[ContainerSandbox], config: Any, metadata: dict[str, str] | None = None
) -> AsyncIterator[dict[str, SandboxEnvironment]]:
    async with open_runtime():
        await provider.task_init("My Task", config)
        made = await provider.sample_init("My Task", config, metadata or {})
        try:
            yield made
        finally:
            await provider.sample_cleanup("My Task", config, made, False)


def without_names(calls: list[list[str]]) -> list[str]:
    """Calls on one line each, with what differs between two runs left out."""
    import re

    out = []
    for words in calls:
        line = " ".join(words)
        line = re.sub(r"proctor-my-task-[0-9a-f]{12}", "PROJECT", line)
        line = re.sub(r"\d+:[0-9a-f-]{36}/\d+", "RUN", line)
        line = re.sub(r"/\S*/PROJECT\S*?/override", "OVERRIDE", re.sub(r"/\S*proctor-compose-\S*?/", "OWN/", line))
        out.append(line)
    return out


def test_a_compose_file_goes_through_docker_compose(standin: Standin, run: Any, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text("services: {web: {build: .}, db: {image: 'db:1'}}")
    services = {
        "web": {"build": {"context": str(tmp_path), "dockerfile": "Dockerfile"}, "x-default": True},
        "db": {
            "image": "db:1",
            "healthcheck": {"test": ["CMD", "ok"], "interval": "1s", "timeout": "2s", "retries": 3},
        },
    }
    standin.write("compose", {
        "services": services, "networks": {"default": {"name": "x"}, "out": {"external": True}}, "volumes": {"data": {}}
    })  # fmt: skip

    async def check() -> None:
        async with sample(DockerSandboxEnvironment, str(file)) as made:
            assert list(made) == ["web", "db"]
            assert (await made["web"].exec(["echo", "hi"])).stdout == "hi\n"
            connection = await made["web"].connection(user="me")
            assert connection.type == "docker"
            assert connection.command.startswith("docker exec -it --user me proctor-my-task-")
            assert connection.ports is not None
            assert connection.ports[0].mappings[0].host_port == 4000

    run(check)
    assert not standin.boxes
    said = without_names(standin.calls)
    base = f"docker compose --ansi never --project-name PROJECT --file {file}"
    both = f"{base} --file OWN/override.json"
    assert said[:8] == [
        f"{base} config --format json",
        f"{both} build",
        "docker image inspect db:1",
        f"{base} config --format json",
        f"{both} up --detach --wait --wait-timeout 71 --no-build",  # 2 + 3 * (1 + 2), and a minute
        f"{both} ps --all --quiet",
        "docker container inspect id-db-PROJECT id-web-PROJECT",
        said[7],
    ]
    assert said[7].startswith("docker exec --env PROCTOR_EXEC=proctor-")
    assert said[-1] == f"{both} down --volumes --remove-orphans"
    override = json.loads((standin.folder / "override").read_text())
    assert override["services"]["web"]["image"].startswith("proctor-")
    assert "image" not in override["services"]["db"]
    for part in (override["services"]["db"], override["networks"]["default"], override["volumes"]["data"]):
        assert set(part["labels"]) >= {"proctor.run", "proctor.project", "proctor.task"}
    assert "out" not in override["networks"]


def test_a_configuration_object_is_written_for_docker_compose(standin: Standin, run: Any) -> None:
    config = ComposeConfig(services={"default": ComposeService(image="img", command="tail -f /dev/null")})
    standin.write("compose", config.to_compose())

    async def check() -> None:
        async with sample(DockerSandboxEnvironment, config) as made:
            assert list(made) == ["default"]

    run(check)
    first = without_names(standin.calls)[0]
    assert first == (
        f"docker compose --ansi never --project-name PROJECT --project-directory {Path.cwd()} "
        "--file OWN/compose.json config --format json"
    )


def test_variables_of_a_sample_reach_docker_compose(standin: Standin, run: Any, tmp_path: Path) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text("services: {default: {image: 'img:${SAMPLE_METADATA_VERSION}', user: $SAMPLE_METADATA_WHO}}")
    metadata = {"version": "3", "who": "me", "not this": "x"}

    async def check() -> None:
        found = await DockerSandboxEnvironment.task_init_environment(str(file), metadata)
        assert found == {"SAMPLE_METADATA_VERSION": "3"}  # of the others no image depends

    run(check)


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_a_single_image_needs_no_compose(engine: str, standin: Standin, run: Any) -> None:
    provider = DockerSandboxEnvironment if engine == "docker" else PodmanSandboxEnvironment

    async def check() -> None:
        async with sample(provider, "me/img:1") as made:
            assert (await made["default"].exec(["cat"], input="hi")).stdout == "hi"

    run(check)
    said = without_names(standin.calls)
    assert said[0] == f"{engine} image inspect me/img:1"
    assert said[1].startswith(f"{engine} run --detach --name PROJECT-default --label proctor.run=RUN --label")
    own = " --no-healthcheck" if engine == "podman" else ""
    assert f"--pull never{own} --network none --interactive me/img:1 /bin/sh -c trap" in said[1]
    assert said[3].startswith(f"{engine} exec --interactive --env PROCTOR_EXEC=proctor-")
    wait = " --time 0" if engine == "podman" else ""
    assert said[-1] == f"{engine} rm --force --volumes{wait} id-PROJECT-default"
    assert not standin.boxes


def test_podman_without_an_init_process(
    standin: Standin, run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "compose.yaml").write_text("services: {a: {image: i, init: true, command: c, network_mode: none}}")
    standin.write("no-init", 1)

    async def check() -> None:
        async with sample(PodmanSandboxEnvironment, str(tmp_path / "compose.yaml")) as made:
            assert list(made) == ["a"]

    run(check)
    assert "install catatonit" in caplog.text
    assert ["--init" in call for call in standin.calls if call[1] == "run"] == [True, False]


def test_calls_of_an_engine_have_a_limit_of_their_own(
    standin: Standin, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROCTOR_DOCKER_CLI_CONCURRENCY", "3")

    async def check() -> None:
        async with sample(DockerSandboxEnvironment, "img") as made, anyio.create_task_group() as nursery:
            standin.write("meeting", 3)
            for _ in range(30):
                nursery.start_soon(made["default"].connection)

    run(check)
    assert standin.peak == 3


def test_a_command_that_timed_out_is_dead_though_the_engines_exec_outlives_nothing(
    standin: Standin, run: Any, tmp_path: Path
) -> None:
    counter = tmp_path / "counter"

    async def check() -> None:
        async with sample(DockerSandboxEnvironment, "img") as made:
            script = f"echo part; while :; do echo x >> {counter}; sleep 0.05; done"
            with pytest.raises(ProcessTimeout) as caught:
                await made["default"].exec(["sh", "-c", script], timeout=1)
            assert caught.value.stdout == "part\n"
            size = counter.stat().st_size
            assert size > 0
            await anyio.sleep(0.5)
            assert counter.stat().st_size == size

    run(check)


def test_a_dead_container_says_its_state_and_its_last_lines(standin: Standin, run: Any) -> None:
    async def check() -> None:
        async with sample(DockerSandboxEnvironment, "img") as made:
            box = made["default"]
            assert isinstance(box, ContainerSandbox)
            assert await box.alive()
            await box.container.engine.call("kill", box.container.id)
            assert not await box.alive()
            wanted = r"(?s)has ended: exited with code 137 \(out of memory\).*the last line of its log"
            with pytest.raises(SandboxUnavailableError, match=wanted):
                await box.exec(["true"])
            with pytest.raises(SandboxUnavailableError, match=wanted):
                await box.read_file("x")
            with pytest.raises(ConnectionError):
                await box.connection()

    run(check)


def test_a_container_that_dies_under_a_command(standin: Standin, run: Any) -> None:
    async def check() -> None:
        async with sample(DockerSandboxEnvironment, "img") as made:
            box = made["default"]
            assert isinstance(box, ContainerSandbox)
            await box.container.engine.call("kill", box.container.id)  # the next command dies with it
            found = standin.folder / "boxes" / box.container.id
            text = found.read_text()
            found.write_text(text.replace('"Running": false', '"Running": true'))
            dies = f"printf '%s' '{text}' > {found}; kill -9 $PPID; kill -9 $$"
            with pytest.raises(SandboxUnavailableError, match="137"):
                await box.exec(["sh", "-c", dies])

    run(check)


@pytest.mark.parametrize(
    ("answers", "kind", "said"),
    [
        ({"image_inspect": ["Cannot connect to the Docker daemon. Is the docker daemon running?", 1]}, UsageError,
         "its service does not run: start it"),
        ({"image_inspect": ["[]", 0], "pull": ["Error: manifest unknown", 1]}, UsageError,
         "'img' is not here and could not be pulled"),
        ({"run": ["no available, non-overlapping IPv4 address pool", 125]}, UsageError, "no free network"),
        ({"run": ["something odd", 125]}, SandboxUnavailableError, "'default' could not be started.*something odd"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said(
    answers: dict[str, Any], kind: type[Exception], said: str, standin: Standin, run: Any
) -> None:
    standin.answer(**answers)

    async def check() -> None:
        with pytest.raises(kind, match=said):
            async with sample(DockerSandboxEnvironment, "img"):
                pass

    run(check)
    assert not standin.boxes


def test_docker_without_compose(standin: Standin, run: Any, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {default: {image: a}}")
    standin.answer(compose=["docker: 'compose' is not a docker command.", 1])

    async def check() -> None:
        with pytest.raises(UsageError, match="docker-compose-plugin"):
            async with sample(DockerSandboxEnvironment, str(tmp_path / "compose.yaml")):
                pass

    run(check)


@pytest.mark.parametrize(
    ("said", "kind", "wanted"),
    [
        ("all predefined address pools have been fully subnetted", UsageError, "no free network left"),
        ("port is already allocated", SandboxUnavailableError, "started no service.*port is already allocated"),
    ],
)
def test_services_that_compose_cannot_start(
    said: str, kind: type[Exception], wanted: str, standin: Standin, run: Any, tmp_path: Path
) -> None:
    (tmp_path / "compose.yaml").write_text("services: {default: {image: a}}")
    standin.write("compose", {"services": {"default": {"image": "a"}}})
    standin.answer(up=[said, 1])

    async def check() -> None:
        with pytest.raises(kind, match=wanted):
            async with sample(DockerSandboxEnvironment, str(tmp_path / "compose.yaml")):
                pass

    run(check)
    assert not standin.boxes
    assert not list(Path(tempfile.gettempdir()).glob("proctor-compose-proctor-my-task-*"))
    assert not list((tmp_path / "state").rglob("*.json"))


def test_a_start_that_is_cancelled_leaves_nothing(standin: Standin, run: Any, tmp_path: Path) -> None:
    (tmp_path / "compose.yaml").write_text("services: {default: {image: a}}")
    standin.write("compose", {"services": {"default": {"image": "a"}}})
    standin.write("late", "up")  # it goes on making containers when its client has gone

    async def check(config: str) -> None:
        async with open_runtime():
            with anyio.CancelScope() as scope:
                async with anyio.create_task_group() as nursery:
                    nursery.start_soon(DockerSandboxEnvironment.sample_init, "My Task", config, {})
                    while not (standin.folder / "late-begun").exists():
                        await anyio.sleep(0.01)
                    scope.cancel()
            with anyio.fail_after(20):
                while standin.boxes or not (standin.folder / "late-made").exists():
                    await anyio.sleep(0.05)

    run(check, str(tmp_path / "compose.yaml"))
    assert not list((tmp_path / "state").rglob("*.json"))


def test_an_engine_that_is_not_installed(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    async def check() -> None:
        with pytest.raises(UsageError, match=r"needs podman, which is not installed here.*bubblewrap"):
            async with sample(PodmanSandboxEnvironment, "img"):
                pass

    run(check)


@pytest.mark.parametrize("config", ["./no/compose.yaml", "no/Dockerfile", "/tmp", 3])
def test_a_configuration_that_is_none(config: Any, standin: Standin, run: Any) -> None:
    async def check() -> None:
        with pytest.raises(OptionError, match=r"there is no|neither a compose file|not 3"):
            async with sample(PodmanSandboxEnvironment, config):
                pass

    run(check)
    assert not standin.calls


def test_what_dead_runs_left_is_removed_and_nothing_else(standin: Standin, run: Any) -> None:
    dead = {"proctor.run": "1:other-boot/5", "proctor.project": "proctor-old-1"}

    async def check() -> None:
        async with sample(DockerSandboxEnvironment, "img") as made:
            box = made["default"]
            assert isinstance(box, ContainerSandbox)
            container = json.loads((standin.folder / "boxes" / box.container.id).read_text())
            container["Config"]["Labels"] = dead
            (standin.folder / "boxes/old").write_text(json.dumps({**container, "Id": "old"}))
            await DockerSandboxEnvironment.cli_cleanup(None)
            assert standin.boxes == [box.container.id]
            (standin.folder / "boxes/old").write_text(json.dumps({**container, "Id": "old"}))
            await DockerSandboxEnvironment.cli_cleanup("proctor-old-1")
            assert standin.boxes == [box.container.id]

    run(check)


def test_a_user_that_the_image_does_not_have(standin: Standin, run: Any) -> None:
    async def check() -> None:
        async with sample(DockerSandboxEnvironment, "img") as made:
            standin.answer(exec=["unable to find user nobody2: no matching entries in passwd file", 126])
            result = await made["default"].exec(["id"], user="nobody2")
            assert result.returncode == 126
            assert "unable to find user" in result.stderr

    run(check)


def test_an_exec_that_the_engine_cannot_begin(standin: Standin, run: Any) -> None:
    async def check() -> None:
        async with sample(DockerSandboxEnvironment, "img") as made:
            for said, wanted in (
                ('exec: "/bin/sh": stat /bin/sh: no such file or directory', "no /bin/sh"),
                ("something odd", "something odd"),
            ):
                standin.answer(exec=[said, 126])
                with pytest.raises(SandboxUnavailableError, match=wanted):
                    await made["default"].exec(["id"])
            standin.answer(exec=["runc: exec failed: resource temporarily unavailable", 126])
            assert "no room for another process" in (await made["default"].exec(["id"])).stderr

    run(check)


def test_a_state_in_words() -> None:
    assert describe({"Running": True, "Status": "running"}) == "is running"
    assert describe({"Status": "exited", "ExitCode": 3, "Error": "why"}) == "has ended: exited with code 3 (why)"
    assert describe(None) == "is in an unknown state"
