"""What is said to an engine for a service: argument by argument, without an engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import OptionError, SandboxUnavailableError, UsageError
from proctor.runtime.cpus import cpus
from proctor.sandbox.compose import ComposeConfig, ComposeService
from proctor.sandbox.container import PodmanSandboxEnvironment
from proctor.sandbox.containers.arguments import (
    Health,
    Placement,
    dependencies,
    health,
    run_arguments,
    service_networks,
    start_order,
)
from proctor.sandbox.containers.engine import Engine, calls_at_once, explain
from proctor.sandbox.containers.images import image_name, qualified
from proctor.sandbox.containers.leftovers import new_project_id
from proctor.sandbox.containers.project import default_service

PLACE = Placement(name="n", image="img", labels={"l": "1"}, folder=Path("/base"), volumes={"data": "p-data"})


def service(**given: Any) -> ComposeService:
    return ComposeService.model_validate({"image": "img", **given})


def arguments(engine: Any = "podman", **given: Any) -> list[str]:
    return run_arguments(engine, service(**given), PLACE)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"mem_limit": "64m"}, "--memory 64m"),
        ({"deploy": {"resources": {"limits": {"memory": "1g", "cpus": 0.5, "pids": 7}}}},
         "--memory 1g --cpus 0.5 --pids-limit 7"),
        ({"deploy": {"resources": {"reservations": {"memory": "1g"}}}}, "--memory-reservation 1g"),
        ({"memswap_limit": "2g", "mem_reservation": "1m"}, "--memory-reservation 1m --memory-swap 2g"),
        ({"cpus": 1.5, "pids_limit": 64, "shm_size": "1g"}, "--cpus 1.5 --pids-limit 64 --shm-size 1g"),
        ({"ulimits": {"nofile": {"soft": 1, "hard": 2}, "nproc": 3}}, "--ulimit nofile=1:2 --ulimit nproc=3"),
        ({"working_dir": "/w", "user": "1000", "hostname": "h"}, "--workdir /w --user 1000 --hostname h"),
        ({"environment": {"A": 1, "B": True, "C": None}}, "--env A=1 --env B=true --env C"),
        ({"environment": ["A=1", "B"]}, "--env A=1 --env B"),
        ({"env_file": "vars.env"}, "--env-file /base/vars.env"),
        ({"cap_add": ["A"], "cap_drop": ["ALL"], "security_opt": ["x"]}, "--cap-add A --cap-drop ALL --security-opt x"),
        ({"privileged": True, "read_only": True, "init": True}, "--init --privileged --read-only"),
        ({"tmpfs": "/t"}, "--tmpfs /t"),
        ({"volumes": ["./in:/in:ro", "data:/data", "/abs:/abs", "/anon"]},
         "--volume /base/in:/in:ro --volume p-data:/data --volume /abs:/abs --volume /anon"),
        ({"volumes": [{"type": "bind", "source": "in", "target": "/in", "read_only": True,
                       "bind": {"propagation": "shared"}}]},
         "--mount type=bind,source=/base/in,destination=/in,readonly,bind-propagation=shared"),
        ({"volumes": [{"source": "data", "target": "/d"}]}, "--mount type=volume,source=p-data,destination=/d"),
        ({"volumes": [{"type": "tmpfs", "target": "/d", "tmpfs": {"size": "1m", "mode": "0770"}}]},
         "--mount type=tmpfs,destination=/d,tmpfs-size=1m,tmpfs-mode=0770"),
        ({"ports": ["8080:80", 90], "expose": [70]}, "--publish 8080:80 --publish 90 --expose 70"),
        ({"extra_hosts": {"a": "1.2.3.4"}}, "--add-host a:1.2.3.4"),
        ({"extra_hosts": ["a=1.2.3.4"]}, "--add-host a:1.2.3.4"),
        ({"devices": ["/dev/kvm"]}, "--device /dev/kvm"),
        ({"labels": {"a": "b"}}, "--label a=b --label l=1"),
        ({"stdin_open": True, "tty": True}, "--tty --interactive"),
        ({"platform": "linux/arm64", "restart": "no"}, "--platform linux/arm64 img"),
        ({"dns": "1.1.1.1", "sysctls": {"a.b": 1}, "group_add": [5]}, "--group-add 5 --dns 1.1.1.1 --sysctl a.b=1"),
    ],
)  # fmt: skip
def test_a_field_becomes_arguments(given: dict[str, Any], said: str) -> None:
    assert said in " ".join(arguments(**given))


def test_the_whole_of_a_plain_one() -> None:
    assert arguments() == [
        "run", "--detach", "--name", "n", "--label", "l=1", "--pull", "never", "--no-healthcheck", "img"
    ]  # fmt: skip
    assert arguments("docker") == ["run", "--detach", "--name", "n", "--label", "l=1", "--pull", "never", "img"]


@pytest.mark.parametrize(
    ("given", "tail"),
    [
        ({"command": "tail -f '/dev/null x'"}, ["img", "tail", "-f", "/dev/null x"]),
        ({"command": ["a", "b c"]}, ["img", "a", "b c"]),
        ({"entrypoint": ["e", "f"], "command": "g"}, ["--entrypoint", "e", "img", "f", "g"]),
        ({"entrypoint": "e f"}, ["--entrypoint", "e", "img", "f"]),
        ({"entrypoint": [], "command": "g"}, ["--entrypoint", "", "img", "g"]),
    ],
)
def test_what_it_runs(given: dict[str, Any], tail: list[str]) -> None:
    assert arguments(**given)[-len(tail) :] == tail


@pytest.mark.parametrize(
    ("engine", "device", "said"),
    [
        ("docker", {"count": "all"}, "--gpus all"),
        ("docker", {"device_ids": ["0", "1"]}, '--gpus "device=0,1"'),
        ("podman", {"count": "all"}, "--device nvidia.com/gpu=all"),
        ("podman", {"count": 2}, "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1"),
        ("podman", {"device_ids": ["3"]}, "--device nvidia.com/gpu=3"),
    ],
)
def test_graphics_processors(engine: Any, device: dict[str, Any], said: str) -> None:
    deploy = {"resources": {"reservations": {"devices": [{"capabilities": ["gpu"], **device}]}}}
    assert said in " ".join(arguments(engine, deploy=deploy))


def test_a_volume_that_is_not_defined() -> None:
    with pytest.raises(OptionError, match="'cache' is not defined"):
        arguments(volumes=["cache:/c"])


def test_the_order_follows_what_waits_for_what() -> None:
    services = {
        "web": service(depends_on=["api"]),
        "api": service(depends_on={"db": {"condition": "service_healthy"}, "init": None}),
        "db": service(),
        "init": service(network_mode="service:db"),
    }
    order = start_order(services)
    assert sorted(order) == sorted(services)
    assert order.index("db") < order.index("init") < order.index("api") < order.index("web")
    assert dependencies(services["api"]) == {"db": "service_healthy", "init": "service_started"}


@pytest.mark.parametrize(
    ("services", "said"),
    [
        ({"a": service(depends_on=["b"]), "b": service(depends_on=["a"])}, "a -> b -> a"),
        ({"a": service(depends_on=["c"])}, "'c', which is no service"),
        ({"a": service(depends_on={"a2": {"condition": "soon"}}), "a2": service()}, "no such condition: 'soon'"),
    ],
)
def test_an_order_that_cannot_be(services: dict[str, ComposeService], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        start_order(services)


def test_networks_of_a_service() -> None:
    assert service_networks(service()) == {"default": ()}
    assert service_networks(service(network_mode="none")) == {}
    assert service_networks(service(networks=["a", "b"])) == {"a": (), "b": ()}
    assert service_networks(service(networks={"a": {"aliases": ["x"]}, "b": None})) == {"a": ("x",), "b": ()}


def test_health_checks() -> None:
    assert health(service()) is None
    assert health(service(healthcheck={"disable": True, "test": "x"})) is None
    assert health(service(healthcheck={"test": ["NONE"]})) is None
    assert health(service(healthcheck={"test": "a | b"})) == Health(("/bin/sh", "-c", "a | b"))
    assert health(service(healthcheck={"test": ["CMD-SHELL", "a"]})) == Health(("/bin/sh", "-c", "a"))
    made = health(service(healthcheck={"test": ["CMD", "a", "b"], "interval": "1s", "timeout": "2s", "retries": 5}))
    assert made == Health(("a", "b"), interval=1.0, timeout=2.0, retries=5)
    assert made is not None
    assert made.longest == 0 + 2 + 5 * (1 + 2)


def test_which_service_is_the_default() -> None:
    assert default_service({"a": service(), "b": service(**{"x-default": True})}) == "b"
    assert default_service({"a": service(), "default": service()}) == "default"
    assert default_service({"a": service()}) == "a"
    with pytest.raises(OptionError, match="no service is the default one"):
        default_service({"a": service(), "b": service()})


def test_names_of_images() -> None:
    engine = Engine("podman")
    assert qualified("python:3") == "docker.io/library/python:3"
    assert qualified("me/img") == "docker.io/me/img"
    assert qualified("localhost/x") == "localhost/x"
    assert qualified("quay.io/a/b") == "quay.io/a/b"
    built = [image_name(engine, "s", ComposeService.model_validate({"build": each}), Path("/x")) for each in (
        ".", "y", {"context": ".", "target": "t"}, {"context": ".", "args": {"A": 1}}, "."
    )]  # fmt: skip
    assert len(set(built)) == 4
    assert built[0] == built[4]
    with pytest.raises(OptionError, match="neither an image nor a build"):
        image_name(engine, "s", ComposeService(), Path("/x"))
    with pytest.raises(OptionError, match="container_name"):
        image_name(engine, "s", ComposeService(image="a", container_name="mine"), Path("/x"))


@pytest.mark.parametrize("name", ["", "My Task!", "x" * 50, "--a__b--"])
def test_a_project_id_is_a_name_that_engines_take(name: str) -> None:
    import re

    first, second = new_project_id(name), new_project_id(name)
    assert first != second
    assert re.fullmatch(r"proctor-[a-z0-9][a-z0-9-]*-[0-9a-f]{12}", first)
    assert len(first) < 40


@pytest.mark.parametrize(
    ("engine", "stderr", "kind", "said"),
    [
        ("docker", "Cannot connect to the Docker daemon at unix:///x.", UsageError, "start it"),
        ("docker", "permission denied while trying to connect to the Docker daemon", UsageError, "group 'docker'"),
        ("docker", "docker: 'compose' is not a docker command.", UsageError, "docker-compose-plugin"),
        ("docker", "unknown command: docker compose", UsageError, "docker-compose-plugin"),
        ("docker", "could not find an available, non-overlapping IPv4 address pool among the defaults", UsageError,
         "no free network left"),
        ("docker", "Error response from daemon: all predefined address pools have been fully subnetted", UsageError,
         "no free network left"),
        ("podman", "Error: could not find free subnet from subnet pools", UsageError, "no free network left"),
        ("podman", "Error: write /x: no space left on device", UsageError, "disk is full"),
        ("podman", "fork: Resource temporarily unavailable", UsageError, "ran out of descriptors"),
        ("docker", "open /x: too many open files", UsageError, "ran out of descriptors"),
        ("docker", "Error response from daemon: No such image: nope:1", UsageError, "no such image"),
        ("podman", "Error: nope: image not known", UsageError, "no such image"),
        ("podman", 'exec: "/bin/sh": stat /bin/sh: no such file or directory', UsageError, "/bin/sh"),
        ("podman", "Error: something odd", SandboxUnavailableError, "failed with code 125: Error: something odd"),
        ("podman", "", SandboxUnavailableError, "it said nothing"),
    ],
)  # fmt: skip
def test_what_an_engine_says_is_explained(engine: Any, stderr: str, kind: type[Exception], said: str) -> None:
    error = explain(engine, ("run", "--detach", "x"), 125, stderr.encode())
    assert type(error) is kind
    assert said in str(error)


def test_log_lines_of_an_engine_are_left_out() -> None:
    text = b'time="now" level=warning msg="noise"\nError: the thing\n'
    assert "noise" not in str(explain("podman", ("run",), 1, text))


def test_a_configuration_is_hashable_and_comes_out_of_a_log() -> None:
    config = ComposeConfig(services={"default": ComposeService(image="a", x_default=True)})
    assert ComposeConfig.model_validate(config.to_compose()) == config
    assert len({config, ComposeConfig.model_validate(config.to_compose())}) == 1


def test_how_many_samples_have_containers_at_once_by_default() -> None:
    assert PodmanSandboxEnvironment.default_concurrency() == 2 * cpus()
    assert PodmanSandboxEnvironment.is_docker_compatible()
    assert PodmanSandboxEnvironment.config_files()[-1] == "Dockerfile"


def test_how_many_calls_of_an_engine_are_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls_at_once("docker") == calls_at_once("podman") == 4 * cpus()
    monkeypatch.setenv("INSPECT_DOCKER_CLI_CONCURRENCY", "7")
    assert calls_at_once("docker") == 7
    monkeypatch.setenv("PROCTOR_DOCKER_CLI_CONCURRENCY", "5")
    monkeypatch.setenv("PROCTOR_PODMAN_CLI_CONCURRENCY", "0")
    assert calls_at_once("docker") == 5
    with pytest.raises(OptionError, match="PROCTOR_PODMAN_CLI_CONCURRENCY"):
        calls_at_once("podman")
