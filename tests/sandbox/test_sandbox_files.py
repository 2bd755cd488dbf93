"""Where the contents of a sample's files come from, and how its set-up script is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proctor.errors import UsageError
from proctor.process import ExecResult
from proctor.sandbox.files import SetupFailed, contents, copy_files, interpreter, read, run_setup
from proctor.sandbox.limits import exec_output_limit, read_file_limit, readable, too_large
from proctor.testing import FakeSandbox
from proctor.testing.fake_sandbox import FakeSandboxEnvironment


async def whole(content: str, *folders: Path) -> dict[str, bytes]:
    return {inner: await read(source) for inner, source in await contents(content, folders)}


async def test_text_is_its_own_content(tmp_path: Path) -> None:
    assert await whole("some\ntext é", tmp_path) == {"": "some\ntext é".encode()}
    assert await whole("", tmp_path) == {"": b""}
    assert await whole("no/such/file", tmp_path) == {"": b"no/such/file"}
    assert await whole("x" * 10_000, tmp_path) == {"": b"x" * 10_000}


async def test_a_data_uri_is_decoded() -> None:
    assert await whole("data:application/octet-stream;base64,AAH/") == {"": b"\0\1\xff"}
    assert await whole("data:,a%20b") == {"": b"a b"}
    with pytest.raises(UsageError, match="no base64"):
        await whole("data:;base64,###")
    with pytest.raises(UsageError, match="has a comma"):
        await whole("data:text/plain")


async def test_a_path_is_looked_for_beside_the_dataset_and_the_task_then_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two, here = tmp_path / "one", tmp_path / "two", tmp_path / "here"
    for folder in (one, two, here):
        folder.mkdir()
        (folder / "f").write_bytes(folder.name.encode())
    (two / "g").write_bytes(b"\xff")
    (here / "h").write_bytes(b"h")
    monkeypatch.chdir(here)
    assert await whole("f", one, two) == {"": b"one"}
    assert await whole("g", one, two) == {"": b"\xff"}
    assert await whole("h", one, two) == {"": b"h"}
    assert await whole(str(two / "f"), one) == {"": b"two"}


async def test_a_folder_is_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/a").write_text("A")
    (tmp_path / "d/e/b").write_text("B")
    assert await whole("d", tmp_path) == {"a": b"A", "e/b": b"B"}


def environment(answer: Any = "") -> FakeSandboxEnvironment:
    made = FakeSandboxEnvironment(FakeSandbox(answer=answer), "default")
    made.script.live[made] = None
    return made


async def test_a_path_may_name_an_environment_and_a_folder_goes_below_its_path(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d/a").write_text("A")
    one, two = environment(), environment()
    await copy_files({"x": "X", "two:y": "Y", "two:/z/": "d", "default:w": "W"}, {"one": one, "two": two}, [tmp_path])
    assert one.files == {"x": b"X", "w": b"W"}
    assert two.files == {"y": b"Y", "/z/a": b"A"}
    with pytest.raises(
        UsageError, match=r"names the sandbox environment 'three', and there is none; there is one, two"
    ):
        await copy_files({"three:x": "X"}, {"one": one, "two": two}, [])


async def test_a_setup_script_runs_by_its_own_interpreter_and_is_removed() -> None:
    sandbox = environment()
    await run_setup("#!/usr/bin/env python3\nprint()", sandbox, "1", [])
    assert sandbox.files == {"/tmp/setup-1": b"#!/usr/bin/env python3\nprint()"}
    assert [command.cmd for command in sandbox.script.commands] == [
        ("/usr/bin/env", "python3", "/tmp/setup-1"),
        ("rm", "-f", "/tmp/setup-1"),
    ]
    assert interpreter(b"echo x") == ["bash"]


async def test_a_setup_script_that_fails_or_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = environment(ExecResult(success=False, returncode=4, stdout="", stderr="no such thing"))
    with pytest.raises(SetupFailed, match="ended with code 4: no such thing"):
        await run_setup("false", failing, "1", [])
    monkeypatch.setenv("INSPECT_SANDBOX_SETUP_TIMEOUT", "7")
    slow = environment()
    slow.script.command = 8.0
    with pytest.raises(SetupFailed, match="took longer than 7 s"):
        await run_setup("sleep 100", slow, "1", [])


def test_the_limits_of_what_comes_out_are_changed_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (exec_output_limit(), read_file_limit()) == (10 * 1024**2, 100 * 1024**2)
    monkeypatch.setenv("INSPECT_SANDBOX_MAX_EXEC_OUTPUT_SIZE", "10")
    monkeypatch.setenv("PROCTOR_SANDBOX_MAX_READ_FILE_SIZE", "20")
    assert (exec_output_limit(), read_file_limit()) == (10, 20)
    assert str(too_large(2048)) == "the sandbox gave more than the limit of 2 KiB"
    assert readable(100 * 1024**2) == "100 MiB"
