"""The provider ``bubblewrap`` through the checks that any sandbox must pass, and what it keeps apart."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.errors import ProctorError, SandboxUnavailableError, UsageError
from proctor.sandbox import jail
from proctor.sandbox.jail import find_jail
from proctor.sandbox.owned import read_notes
from proctor.testing import run_real
from proctor.testing.sandbox_check_words import COUNT
from proctor.testing.sandbox_checks import CHECKS, CheckSkipped, SandboxCheck, Subject, open_subject, run_check


def why_not() -> str:
    """Why bubblewrap cannot run here, "" when it can."""
    try:
        anyio.run(find_jail)
    except UsageError as error:
        return str(error)
    return ""


WHY_NOT = why_not()
pytestmark = [pytest.mark.real, pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("PROCTOR_STATE_DIR", str(tmp_path))
    yield tmp_path
    assert read_notes() == [], "something was left behind"


def left() -> int:
    return len(read_notes("bubblewrap"))


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_a_bubblewrap_sandbox(check: SandboxCheck, backend: str) -> None:
    try:
        run_real(backend, partial(run_check, check, "bubblewrap", left=left))
    except CheckSkipped as reason:
        pytest.skip(str(reason))


def isolated(test: Callable[[Subject], Awaitable[None]], backend: str, config: Any = None) -> None:
    async def run() -> None:
        async with open_subject("bubblewrap", config) as subject:
            await test(subject)

    run_real(backend, run)


def test_there_is_no_network_unless_asked_for(backend: str) -> None:
    """A listener of this machine cannot be reached, and can with `network`."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    script = f"exec 3<>/dev/tcp/127.0.0.1/{port}"

    async def cannot(subject: Subject) -> None:
        assert not (await subject.sandbox.exec(["bash", "-c", script])).success
        assert (await subject.out("tail -n +3 /proc/net/dev | cut -d: -f1")).split() == ["lo"]

    async def can(subject: Subject) -> None:
        assert (await subject.sandbox.exec(["bash", "-c", script])).success

    with listener:
        isolated(can, backend, {"network": True})
        isolated(cannot, backend)


def test_nothing_of_this_machine_is_seen_or_changed(backend: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")

    async def test(subject: Subject) -> None:
        for place in ("/etc/x", "/usr/x", "/x", "/home/x", "/dev/x"):
            assert not (await subject.sh('touch "$0"', place)).success
        assert not (await subject.sh('cat "$0"', str(tmp_path / "secret"))).success
        assert not (await subject.sh("cat /etc/shadow")).success
        assert (await subject.out("ls -A /home /root /run /tmp | grep -v :")).split() == []
        assert (await subject.out("env | cut -d= -f1 | sort")).split() == ["HOME", "LANG", "PATH", "PWD"]
        assert "CapEff:\t0000000000000000" in await subject.out("cat /proc/self/status")
        assert (await subject.out("id -u")).strip() != "0"

    isolated(test, backend)


def test_commands_have_processes_of_their_own(backend: str) -> None:
    async def test(subject: Subject) -> None:
        numbers = (await subject.out("cd /proc; echo [0-9]*")).split()
        assert len(numbers) < 6
        assert not (await subject.sh('kill -0 "$0"', str(os.getpid()))).success

    isolated(test, backend)


def test_what_a_command_leaves_running_is_dead_when_it_ends(backend: str) -> None:
    async def test(subject: Subject) -> None:
        await subject.out(f"setsid sh -c '{COUNT}' count >/dev/null 2>&1 & until [ -s count ]; do sleep 0.01; done")
        await subject.is_dead("count")

    isolated(test, backend)


def test_a_link_leads_nowhere_out(backend: str, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")

    async def test(subject: Subject) -> None:
        await subject.out('ln -s "$0" link; ln -s "$1" folder', str(secret), str(tmp_path))
        with pytest.raises(FileNotFoundError):
            await subject.sandbox.read_file("link")
        with pytest.raises((OSError, ProctorError)):
            await subject.sandbox.write_file("folder/new", "x")
        assert [path.name for path in tmp_path.iterdir() if path.name == "new"] == []

    isolated(test, backend)


def test_memory_processes_and_files_are_limited(backend: str) -> None:
    async def test(subject: Subject) -> None:
        assert not (await subject.sh("head -c 200000000 /dev/zero | tail -c 190000000 > /dev/null")).success
        assert not (await subject.sh("head -c 2000000 /dev/zero > big")).success
        assert await subject.size("big") <= 1024 * 1024
        result = await subject.sh("for i in $(seq 60); do sleep 5 & done; echo all", timeout=60)
        assert "all" not in result.stdout
        assert await subject.out("echo works") == "works\n"

    isolated(test, backend, {"memory": 128, "processes": 20, "file_size": 1})


def test_more_can_be_bound_and_set(backend: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        Path(folder, "data").write_text("of this machine")

        async def test(subject: Subject) -> None:
            assert await subject.out('cat "$0/data"', folder) == "of this machine"
            assert not (await subject.sh('echo x > "$0/data"', folder)).success
            assert await subject.out("echo $SOME") == "value\n"

        isolated(test, backend, {"bind": [folder], "environment": {"SOME": "value"}})


def test_one_whose_folder_is_gone_is_no_longer_there(backend: str) -> None:
    async def test(subject: Subject) -> None:
        [note] = read_notes("bubblewrap")
        shutil.rmtree(note.things["folder"])
        with pytest.raises(SandboxUnavailableError, match="is gone"):
            await subject.sandbox.exec(["true"])

    isolated(test, backend)


def test_words_like_those_of_bubblewrap_are_the_commands_own(backend: str) -> None:
    async def test(subject: Subject) -> None:
        result = await subject.sh("echo 'bwrap: broken' >&2; exit 1")
        assert (result.returncode, result.stderr) == (1, "bwrap: broken\n")

    isolated(test, backend)


def test_where_it_is_missing_or_refused_the_text_says_what_to_do(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(subject: Subject) -> None:
        raise AssertionError("it was made")

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        monkeypatch.setenv("PATH", folder)
        with pytest.raises(UsageError, match=r"bwrap is not installed; install it with: apt-get install bubblewrap"):
            isolated(test, backend)
        for name in ("bwrap", "prlimit", "setpriv"):
            program = Path(folder, name)
            program.write_text("#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2; exit 1\n")
            program.chmod(0o755)
        with pytest.raises(UsageError, match="No permissions to create a new namespace; allow user namespaces"):
            isolated(test, backend)


def test_a_configuration_that_it_does_not_know_is_refused(backend: str) -> None:
    async def test(subject: Subject) -> None:
        raise AssertionError("it was made")

    for config in ({"memry": 1}, "compose.yaml", {"memory": 0}, "{memory}", "[1]"):
        with pytest.raises(UsageError, match="sandbox bubblewrap"):
            isolated(test, backend, config)


@pytest.mark.skipif(os.geteuid() != 0, reason="without namespaces of users only root can make the others")
def test_where_the_kernel_refuses_namespaces_of_users_root_makes_the_others(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = jail._probe

    async def refused(tried: jail.Jail) -> Any:
        result = await probe(tried)
        if tried.namespace:
            result.success = False
        return result

    async def test(subject: Subject) -> None:
        status = await subject.out("cat /proc/self/status")
        for rights in ("CapInh", "CapPrm", "CapEff"):
            assert f"{rights}:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        assert (await subject.out("id -u; pwd", cwd=".")).split() == ["65534", "/work"]
        await subject.sandbox.write_file("a/b", "x")
        assert await subject.out("cat b", cwd="a") == "x"
        assert not (await subject.sh("touch /etc/x")).success

    monkeypatch.setattr(jail, "_probe", refused)
    isolated(test, backend)


def test_a_configuration_may_be_json_or_a_file_of_it(tmp_path: Path) -> None:
    file = tmp_path / "jail.json"
    file.write_text('{"memory": 512, "network": true}')
    wanted = jail.Bubblewrap(memory=512, network=True)
    assert [jail.Bubblewrap.of(config) for config in (wanted, str(file), file.read_text())] == [wanted] * 3
    assert jail.Bubblewrap.of(None) == jail.Bubblewrap()
