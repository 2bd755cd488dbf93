"""Compose files: what is understood, what is refused and in which words, and that the names are Inspect's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from inspect_ai.util._sandbox import compose as theirs

from proctor.errors import OptionError
from proctor.sandbox import compose as ours
from proctor.sandbox.compose import ComposeBuild, ComposeConfig, ComposeService, is_compose_yaml, is_dockerfile
from proctor.sandbox.compose_file import compose_text, duration, parse_compose_yaml, variables_in

FILE = """
version: "3"
name: ignored
x-proctor: {anything: goes}
services:
  web:
    image: nginx:1
    x-default: true
    x-inspect: [1, 2]
    command: serve --port 80
    environment: {A: 1, B: null, C: true}
    healthcheck: {test: [CMD, curl, localhost], interval: 1m30s, retries: 2}
    depends_on: {db: {condition: service_healthy}}
    deploy: {resources: {limits: {cpus: 0.5, memory: 512m}}}
    volumes:
      - data:/data:ro
      - {type: tmpfs, target: /scratch, tmpfs: {size: 100mb}}
    cpus: 2
    mem_limit: 1g
    restart: no
    networks: [inner]
  db:
    build: {context: db, dockerfile: Dockerfile.db, args: {VERSION: 3}}
    ulimits: {nofile: {soft: 10, hard: 20}, nproc: 5}
volumes: {data: }
networks: {inner: {internal: true}}
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str, name: str = "compose.yaml") -> str:
        path = tmp_path / name
        path.write_text(text)
        return str(path)

    return write


def services(*lines: str) -> str:
    return "services:\n  one:\n" + "".join(f"    {line}\n" for line in lines)


def test_a_file_with_everything_is_read(write: Any) -> None:
    config = parse_compose_yaml(write(FILE))
    web, db = config.services["web"], config.services["db"]
    assert web.x_default is True
    assert web.extensions == {"x-inspect": [1, 2]}
    assert config.extensions == {"x-proctor": {"anything": "goes"}}
    assert web.environment == {"A": 1, "B": None, "C": True}
    assert web.healthcheck is not None
    assert web.healthcheck.interval == "1m30s"
    assert web.deploy is not None
    assert web.deploy.resources is not None
    assert web.deploy.resources.limits == ours.ComposeResources(cpus="0.5", memory="512m")
    assert web.volumes == ["data:/data:ro", ours.ComposeVolumeMount(
        type="tmpfs", target="/scratch", tmpfs=ours.ComposeTmpfsOptions(size="100mb")
    )]  # fmt: skip
    assert web.cpus == 2.0
    assert web.restart == "no"
    assert db.build == ComposeBuild(context="db", dockerfile="Dockerfile.db", args={"VERSION": 3})
    assert db.ulimits == {"nofile": {"soft": 10, "hard": 20}, "nproc": 5}
    assert config.networks == {"inner": {"internal": True}}


def test_what_was_read_is_written_and_read_again_the_same(write: Any) -> None:
    config = parse_compose_yaml(write(FILE))
    again = parse_compose_yaml(write(compose_text(config), "again-compose.yaml"))
    assert again == config
    assert hash(again) == hash(config)
    assert "x-default" in compose_text(config)


def test_a_dollar_survives_being_written(write: Any) -> None:
    config = ComposeConfig(services={"default": ComposeService(image="a", command="echo $HOME ${A:-b}")})
    assert parse_compose_yaml(write(compose_text(config))) == config


def test_anchors_and_merges_of_yaml_work(write: Any) -> None:
    text = "x-base: &base {image: a, user: '1'}\nservices:\n  one: {<<: *base, user: '2'}\n  two: *base\n"
    config = parse_compose_yaml(write(text))
    assert [config.services[each].user for each in ("one", "two")] == ["2", "1"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("$A", "from env"), ("${A}", "from env"), ("${A:-x}", "from env"), ("${UNSET:-x}", "x"), ("${UNSET-x}", "x"),
        ("${EMPTY:-x}", "x"), ("${EMPTY-x}", ""), ("${A:+y}", "y"), ("${UNSET:+y}", ""), ("$$A", "$A"), ("$UNSET", ""),
        ("${GIVEN}", "given"), ("${BESIDE}", "beside"), ("a-${A}-$GIVEN", "a-from env-given"),
    ],
)  # fmt: skip
def test_variables(given: str, expected: str, write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"A": "from env", "EMPTY": "", "GIVEN": "not this"}.items():
        monkeypatch.setenv(name, value)
    write("BESIDE=beside\nA=not this\n", ".env")
    file = write(services(f"user: '{given}'", "image: a"))
    assert parse_compose_yaml(file, variables={"GIVEN": "given"}).services["one"].user == expected


def test_a_variable_that_must_be_set_is_named(write: Any) -> None:
    with pytest.raises(OptionError, match=r"compose\.yaml: the variable NEEDED is not set: say which"):
        parse_compose_yaml(write(services("image: ${NEEDED:?say which}")))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("imag: a", "services.one has a field 'imag' that proctor does not know; did you mean image"),
        ("privileged: maybe", "services.one.privileged must be true or false, not 'maybe'"),
        ("pids_limit: [1]", "services.one.pids_limit must be a whole number or a text"),
        ("healthcheck: {tset: a}", "services.one.healthcheck has a field 'tset'"),
        ("cap_add: SYS_PTRACE", "services.one.cap_add must be a list"),
        ("build: {context: [a]}", "services.one.build.context must be a text"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_place(line: str, said: str, write: Any) -> None:
    with pytest.raises(OptionError) as caught:
        parse_compose_yaml(write(services(line)))
    assert said in str(caught.value)
    assert "compose.yaml" in str(caught.value)


@pytest.mark.parametrize("text", ["a: [", "just text", "services:", "other: {}", "services: [a]", "$bad: ${"])
def test_what_is_no_compose_file_is_refused(text: str, write: Any) -> None:
    with pytest.raises(OptionError, match=r"compose\.yaml"):
        parse_compose_yaml(write(text))


def test_several_services_where_one_is_taken(write: Any) -> None:
    with pytest.raises(OptionError, match="web, db"):
        parse_compose_yaml(write(FILE), multiple_services=False)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        parse_compose_yaml("/nowhere/compose.yaml")


@pytest.mark.parametrize(
    ("text", "seconds"), [("1m30s", 90.0), ("500ms", 0.5), ("2h", 7200.0), ("10", 10.0), ("1.5s", 1.5), (3, 3.0)]
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "1x", "s10"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(OptionError, match="duration"):
        duration(text)


def test_which_variables_a_text_has() -> None:
    assert variables_in("a $B ${C:-d} $$E ${F") == {"B", "C"}


@pytest.mark.parametrize(
    "path", ["compose.yaml", "a/docker-compose.yml", "web-compose.yaml", ".compose.yaml", "x.yaml", "Dockerfile"]
)
def test_what_a_path_is_like_in_inspect(path: str) -> None:
    assert is_compose_yaml(path) == theirs.is_compose_yaml(path)
    assert is_dockerfile(path) == theirs.is_dockerfile(path)


@pytest.mark.parametrize(
    "name", [name for name in ours.__all__ if name.startswith("Compose") and name != "ComposeModel"]
)
def test_every_field_of_inspects_is_here(name: str) -> None:
    fields = {each.name for each in attrs.fields(getattr(ours, name))}
    missing = set(getattr(theirs, name).model_fields) - fields
    assert not missing
