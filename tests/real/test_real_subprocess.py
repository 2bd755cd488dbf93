"""Real child processes: how they end, what they leave, what comes back. Nothing of them outlives its runtime."""

from __future__ import annotations

import logging
import os
import signal
import subprocess as standard
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import anyio
import pytest

from proctor.errors import ProcessTimeout
from proctor.process import gathering, open_process, run_process
from proctor.process.child import Child, Command
from proctor.process.group import survivors
from proctor.process.pool import KEY, SubprocessPool
from proctor.runtime import Runtime, Settings, open_runtime
from proctor.testing import BACKENDS, run_real
from proctor.util import collect, subprocess

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

SOON = 4.0
"""Seconds: a timeout of 1, the grace of 2 and 1 more, by which a command is back."""
MARGIN = 10.0
"""Seconds that a loaded machine may take on top: a hang is longer."""

Run = Callable[..., Any]


@pytest.fixture(params=BACKENDS)
def run(request: pytest.FixtureRequest) -> Run:
    """Runs an async function in real time, on each backend."""
    return lambda fn, *args: run_real(request.param, fn, *args)


def state(pid: int) -> str | None:
    """A process's state (proc(5)), None when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
    except OSError:
        return None


def lives(pid: int) -> bool:
    return state(pid) not in {None, "Z", "X"}


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    with anyio.fail_after(seconds):
        while not condition():
            await anyio.sleep(0.01)


def pids(file: Path) -> list[int]:
    """The numbers that processes wrote into a file."""
    with suppress(FileNotFoundError):
        return [int(word) for word in file.read_text().split()]
    return []


def zombies() -> list[int]:
    """Children of this process that have ended and were not reaped."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(") ")[2].split()
                if fields[0] == "Z" and int(fields[1]) == os.getpid():
                    found.append(int(entry))
    return found


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


@asynccontextmanager
async def running(limit: int = 4) -> AsyncIterator[Runtime]:
    """A runtime; when it has ended, nothing that was started in it lives, and nothing is a zombie."""
    pool: SubprocessPool | None = None
    async with open_runtime(Settings(max_subprocesses=limit)) as runtime:
        yield runtime
        ref = runtime.find("processes", KEY)
        if ref is not None:
            pool = ref.state
            assert (ref.limiter.used, ref.limiter.waiting, pool.live) == (0, 0, [])
    assert zombies() == []
    assert pool is None or survivors(pool.mark) == []


@pytest.fixture
def killed_at_the_end() -> Iterator[list[int]]:
    """Processes that a test lets escape on purpose."""
    escaped: list[int] = []
    yield escaped
    for pid in escaped:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# -- what comes back


def test_a_command_runs_and_its_output_comes_back(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running():
            result = await subprocess(["sh", "-c", "cat; echo err >&2; exit 3"], input="in é")
            assert (result.success, result.returncode, result.stdout, result.stderr) == (False, 3, "in é", "err\n")
            assert result.truncated == {}
            raw = await subprocess(["printf", r"\377\000x"], text=False)
            assert raw.stdout == b"\xff\x00x"
            assert (await subprocess(["printf", r"\377x"])).stdout == "\ufffdx"
            told = await subprocess(["sh", "-c", "pwd; echo $ADDED; echo $PATH"], cwd=tmp_path, env={"ADDED": "yes"})
            assert told.stdout.split("\n")[:2] == [str(tmp_path), "yes"]
            assert told.stdout.split("\n")[2] == os.environ["PATH"]
            assert (await subprocess("true")).success
            assert (await subprocess(["sh", "-c", "kill -9 $$"])).returncode == -9

    run(main)


def test_input_and_output_of_any_size_pass_at_once(run: Run) -> None:
    data = bytes(range(256)) * 20_000  # more than any pipe holds

    async def main() -> None:
        async with running():
            result = await subprocess(["cat"], text=False, input=data)
            assert result.stdout == data
            assert (await subprocess(["true"], input=data)).success  # it reads nothing
            assert (await subprocess(["head", "-c", "3"], text=False, input=memoryview(data))).stdout == data[:3]
            assert (await subprocess(["cat"])).stdout == ""

    run(main)


def test_output_that_is_not_captured_goes_where_ours_goes(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    async def main() -> None:
        result = await subprocess(["sh", "-c", "echo out; echo err >&2"], capture_output=False)
        assert (result.stdout, result.stderr, result.success) == ("", "", True)

    run(main)
    assert capfd.readouterr() == ("out\n", "err\n")


@pytest.mark.parametrize(("size", "cut"), [(9_999, {}), (10_000, {}), (10_001, {"stdout": 10_001})])
def test_an_output_limit_keeps_the_end_and_says_so(run: Run, size: int, cut: dict[str, int]) -> None:
    async def main() -> None:
        async with running():
            result = await subprocess(["sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x"], output_limit=10_000)
            assert (len(result.stdout), result.truncated) == (min(size, 10_000), cut)

    run(main)


@pytest.mark.parametrize("offset", range(4))
def test_an_output_limit_never_splits_a_character(run: Run, offset: int) -> None:
    program = f"import sys; sys.stdout.buffer.write(b'x' * {offset} + '😀'.encode() * 5000)"

    async def main() -> None:
        async with running():
            result = await subprocess([sys.executable, "-c", program], output_limit=10_001)
            assert set(result.stdout) == {"😀"}
            assert result.truncated == {"stdout": 20_000 + offset}
            assert 9_997 < len(result.stdout.encode()) <= 10_001

    run(main)


def test_a_command_that_cannot_be_started_says_why(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running():
            with pytest.raises(FileNotFoundError, match="no-such-program"):
                await subprocess(["no-such-program", "x"])
            with pytest.raises(FileNotFoundError) as caught:
                await subprocess("echo hello")
            assert "a string is the name of one program" in caught.value.__notes__[0]
            with pytest.raises(FileNotFoundError, match="no-such-folder"):
                await subprocess("true", cwd=tmp_path / "no-such-folder")
            with pytest.raises(PermissionError):
                await subprocess(str(tmp_path))
            assert (await subprocess("true")).success

    run(main)


# -- how they end


HOLDS = "echo $$ > pids; sleep 300 & echo $! >> pids; echo hi"
BOTH = "echo $$ > pids; sleep 300 & echo $! >> pids; echo hi; sleep 300"
STUBBORN = "trap '' TERM; echo $$ > pids; sleep 300 & echo $! >> pids; echo hi; sleep 300 & wait; wait; wait"


def test_a_grandchild_that_holds_the_output_is_not_waited_for(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running():
            began = time.monotonic()
            result = await subprocess(["sh", "-c", HOLDS], cwd=tmp_path, timeout=20)
            assert time.monotonic() - began < SOON + MARGIN
            assert (result.success, result.stdout) == (True, "hi\n")
            assert lives(pids(tmp_path / "pids")[1])  # it may go on until the runtime ends

    run(main)
    assert not any(map(lives, pids(tmp_path / "pids")))


@pytest.mark.parametrize("script", [BOTH, STUBBORN], ids=["obeys", "stubborn"])
@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_timeout_and_a_cancellation_end_the_whole_group(run: Run, tmp_path: Path, script: str, how: str) -> None:
    file = tmp_path / "pids"

    async def main() -> None:
        async with running(limit=1):
            began = time.monotonic()
            if how == "timeout":
                with pytest.raises(ProcessTimeout) as caught:
                    await subprocess(["sh", "-c", script], cwd=tmp_path, timeout=1)
                assert caught.value.stdout == "hi\n"
                assert "hi" in caught.value.__notes__[0]
            else:
                async with anyio.create_task_group() as group:
                    group.start_soon(lambda: subprocess(["sh", "-c", script], cwd=tmp_path))
                    await until(lambda: len(pids(file)) == 2 and all(map(lives, pids(file))))
                    group.cancel_scope.cancel()
            assert len(pids(file)) == 2
            assert not any(map(lives, pids(file)))
            assert time.monotonic() - began < SOON + MARGIN
            assert (await subprocess("true")).success

    run(main)


def test_a_timed_out_command_ran_once(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running():
            with pytest.raises(TimeoutError):
                await subprocess(["sh", "-c", "echo line >> file; sleep 300"], cwd=tmp_path, timeout=1)

    run(main)
    assert (tmp_path / "file").read_text() == "line\n"


def test_the_clock_of_a_timeout_does_not_run_in_the_queue(run: Run) -> None:
    async def main() -> None:
        async with running(limit=1):
            await collect(*(subprocess(["sleep", "0.6"], timeout=5) for _ in range(10)))

    run(main)


def test_an_escapee_blocks_nobody_and_is_named(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture, killed_at_the_end: list[int]
) -> None:
    file = tmp_path / "pids"
    script = "setsid sh -c 'echo $$ > pids; exec sleep 300' & sleep 300"

    async def main() -> None:
        async with open_runtime(Settings(max_subprocesses=1)):
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await subprocess(["sh", "-c", script], cwd=tmp_path, timeout=1)
            assert time.monotonic() - began < SOON + MARGIN
            killed_at_the_end.extend(pids(file))
            assert lives(pids(file)[0])
            assert (await subprocess("true")).success

    with caplog.at_level(logging.WARNING, "proctor"):
        run(main)
    [warning] = [each.getMessage() for each in caplog.records if "have left their group" in each.getMessage()]
    assert f"{pids(file)[0]} (sleep 300)" in warning
    assert lives(pids(file)[0])


def test_much_output_and_a_timeout_do_not_hold_each_other(run: Run) -> None:
    async def yes() -> None:
        with pytest.raises(ProcessTimeout) as caught:
            await subprocess(["yes"], output_limit=1_000, timeout=1)
        assert caught.value.stdout == "y\n" * 500
        assert caught.value.truncated["stdout"] > 1_000

    async def zeros() -> None:
        result = await subprocess(["head", "-c", "200M", "/dev/zero"], output_limit=1_000)
        assert (result.success, len(result.stdout)) == (True, 1_000)
        assert result.truncated == {"stdout": 200 * 1024 * 1024}

    async def main() -> None:
        async with running(limit=2):
            await collect(*(yes() for _ in range(8)))
            await collect(*(zeros() for _ in range(8)))

    run(main)


def test_a_lost_exit_holds_neither_its_caller_nor_its_place(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lost: list[Child] = []
    plain = Child.poll

    def poll(self: Child) -> int | None:
        if "300" in self.name:
            if self not in lost:
                lost.append(self)
            return None
        return plain(self)

    monkeypatch.setattr(Child, "poll", poll)

    async def main() -> None:
        async with open_runtime(Settings(max_subprocesses=1)):
            began = time.monotonic()
            with pytest.raises(TimeoutError):
                await subprocess(["sleep", "300"], timeout=1)
            assert time.monotonic() - began < SOON + MARGIN
            with anyio.move_on_after(0.5):
                await subprocess(["sleep", "300.5"])
            assert (await subprocess("true")).success

    with caplog.at_level(logging.WARNING, "proctor"):
        run(main)
    assert len(lost) == 2
    for each in lost:
        assert not lives(each.pid)
        assert f"(process {each.pid}) was killed and has not ended" in caplog.text
        assert plain(each) == -signal.SIGTERM


def test_what_a_caller_had_to_give_up_is_reaped_later(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, slow = Child.poll, [True]
    monkeypatch.setattr(Child, "poll", lambda self: None if slow[0] and "300" in self.name else plain(self))

    async def main() -> None:
        async with running(limit=1) as runtime:
            with pytest.raises(TimeoutError):
                await subprocess(["sleep", "300"], timeout=0.2)
            assert zombies() != []
            slow[0] = False
            await until(lambda: zombies() == [])
            assert runtime.actors("processes")[0].statistics().incarnation == 1

    run(main)


def test_without_process_descriptors_all_is_the_same(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)

    async def main() -> None:
        async with running():
            assert (await subprocess(["sh", "-c", "cat; exit 3"], input="x")).returncode == 3
            assert (await subprocess(["sh", "-c", "exec >&- 2>&-; sleep 0.2; exit 4"])).returncode == 4
            assert (await subprocess(["sh", "-c", HOLDS], cwd=tmp_path)).stdout == "hi\n"
            with pytest.raises(TimeoutError):
                await subprocess(["sh", "-c", STUBBORN], cwd=tmp_path, timeout=0.5)
            async with open_process(["sh", "-c", "exit 5"]) as process:
                assert await process.wait() == 5

    run(main)


def test_it_works_in_a_loop_of_another_thread(run: Run, tmp_path: Path) -> None:
    found: list[Any] = []

    async def main() -> None:
        async with running():
            found.append((await subprocess(["echo", "hi"])).stdout)
            with suppress(TimeoutError):
                await subprocess(["sh", "-c", BOTH], cwd=tmp_path, timeout=0.5)
            found.append("timed out")

    thread = threading.Thread(target=run, args=(main,))
    thread.start()
    thread.join(60)
    assert found == ["hi\n", "timed out"]


def test_outside_a_runtime_it_works_too(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        assert (await subprocess(["echo", "hi"])).stdout == "hi\n"
        with pytest.raises(TimeoutError):
            await subprocess(["sh", "-c", BOTH], cwd=tmp_path, timeout=0.5)
        assert not any(map(lives, pids(tmp_path / "pids")))

    run(main)
    assert zombies() == []


def test_cancelled_while_it_is_being_started_it_is_ended(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, born = gathering.start, list[int]()

    def slow(command: Command) -> Child:
        child = plain(command)
        born.append(child.pid)
        if "300" in command.args:
            time.sleep(0.3)
            assert lives(child.pid)
        return child

    monkeypatch.setattr(gathering, "start", slow)

    async def main() -> None:
        async with running(limit=1):
            async with anyio.create_task_group() as group:
                group.start_soon(subprocess, ["sleep", "300"])
                await until(lambda: born)
                group.cancel_scope.cancel()
            assert not lives(born[0])
            assert (await subprocess("true")).success

    run(main)


@pytest.mark.parametrize("seed", range(3))
def test_cancelled_at_random_moments_nothing_is_left(run: Run, seed: int) -> None:
    chance = Random(seed)

    async def one() -> None:
        with anyio.move_on_after(chance.choice([0, 0.001, 0.005, 0.02, 0.05, 9])), suppress(TimeoutError):
            script = chance.choice(["sleep 0.02", "sleep 300 & echo hi", "sleep 300 & sleep 0.01", "yes", "exit 1"])
            await subprocess(["sh", "-c", script], timeout=chance.choice([0.01, 0.05, 0.3]), output_limit=100)

    async def main() -> None:
        async with running(limit=4):
            before = open_files()
            await collect(*(one() for _ in range(60)))
            assert (await subprocess("true")).success
            assert open_files() == before

    run(main)


def test_no_descriptor_leaks(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with running():
            await subprocess("true")
            before = open_files()
            for _ in range(5):
                await subprocess(["cat"], input="x" * 100_000)
                await subprocess(["sh", "-c", HOLDS], cwd=tmp_path)
                with suppress(TimeoutError):
                    await subprocess(["sleep", "300"], timeout=0.01)
                with suppress(FileNotFoundError):
                    await subprocess("no-such-program")
                async with open_process(["cat"]) as process:
                    await process.stdin.send(b"x")
            assert open_files() == before

    run(main)


PROGRAM_WITHOUT_DESCRIPTORS = """
import os, resource, sys, anyio
from proctor.util import subprocess
async def main():
    assert (await subprocess("true")).success
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    taken = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass
    for free in range(12):
        try:
            await subprocess("true")
        except OSError as error:
            print(free, error.errno, error)
        else:
            print(free, "ran")
            break
        os.close(taken.pop())
    print(len(os.listdir("/proc/self/fd")) - 1 + free)
anyio.run(main, backend=sys.argv[1])
"""


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_descriptors_that_run_out_are_told_as_such(backend: str) -> None:
    done = standard.run(
        [sys.executable, "-c", PROGRAM_WITHOUT_DESCRIPTORS, backend], capture_output=True, text=True, timeout=60
    )
    *lines, left = done.stdout.splitlines()
    assert len(lines) > 3, done.stderr
    assert lines[-1].endswith(" ran")
    for line in lines[:-1]:
        assert "24 [Errno 24] 'true' cannot be started because this process has no file descriptor left" in line
        assert "(allowed here: 64" in line
        assert "raise the limit (`ulimit -n`) or lower max_subprocesses" in line
    assert int(left) == 64  # the failures left none open


# -- open_process


def test_a_live_process_is_talked_to(run: Run) -> None:
    async def main() -> None:
        script = "while read x; do echo got $x; done; echo end >&2; exit 7"
        async with running(), open_process(["sh", "-c", script]) as process:
            assert process.returncode is None
            assert lives(process.pid)
            for word in (b"one", b"two"):
                await process.stdin.send(word + b"\n")
                assert await process.stdout.receive() == b"got " + word + b"\n"
            await process.stdin.aclose()
            assert await process.wait() == 7
            assert [part async for part in process.stderr] == [b"end\n"]
            with pytest.raises(anyio.EndOfStream):
                await process.stdout.receive()
            with pytest.raises(anyio.ClosedResourceError):
                await process.stdin.send(b"x")

    run(main)


@pytest.mark.parametrize("script", [BOTH, STUBBORN], ids=["obeys", "stubborn"])
def test_a_live_process_ends_with_its_block(run: Run, tmp_path: Path, script: str) -> None:
    file = tmp_path / "pids"

    async def main() -> None:
        async with running():
            with anyio.CancelScope() as scope:
                async with open_process(["sh", "-c", script], cwd=tmp_path, grace=0.5) as process:
                    await until(lambda: len(pids(file)) == 2 and all(map(lives, pids(file))))
                    scope.cancel()
                    await process.wait()
            assert not any(map(lives, pids(file)))

    run(main)


def test_streams_closed_under_a_waiting_task_wake_it(run: Run) -> None:
    async def main() -> None:
        seen: list[str] = []

        async def read(stream: Any) -> None:
            try:
                await stream.receive()
            except anyio.ClosedResourceError:
                seen.append("closed")

        async with running(), anyio.create_task_group() as group, open_process(["sleep", "300"]) as process:
            group.start_soon(read, process.stdout)
            group.start_soon(read, process.stderr)
            await anyio.sleep(0.1)
            with pytest.raises(anyio.BusyResourceError):
                await process.stdout.receive()
            process.stdout.close()
            await process.stderr.aclose()
            await until(lambda: seen == ["closed", "closed"])

    run(main)


def test_a_process_whose_reader_is_gone_breaks_the_stream(run: Run) -> None:
    async def main() -> None:
        async with running(), open_process(["true"]) as process:
            await process.wait()
            with pytest.raises(anyio.BrokenResourceError):
                while True:
                    await process.stdin.send(b"x" * 1000)

    run(main)


def test_run_process_has_an_environment_of_its_own(run: Run) -> None:
    async def main() -> None:
        async with running():
            result = await run_process(["/usr/bin/env"], env={"ONLY": "this"}, clear_env=True)
            names = {line.partition(b"=")[0] for line in result.stdout.splitlines()}
            assert names - {b"PROCTOR_PROCESS_OF"} == {b"ONLY"}

    run(main)
