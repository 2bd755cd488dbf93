"""Whole evaluations in real sandboxes: how many live at once as the machine sees it, and that nothing is ever left."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from proctor.errors import UsageError
from proctor.log import read_eval_log
from proctor.sandbox.jail import find_jail

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


def why_not() -> str:
    """Why bubblewrap cannot run here, "" when it can."""
    try:
        anyio.run(find_jail)
    except UsageError as error:
        return str(error)
    return ""


WHY_NOT = why_not()
needs_bwrap = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
KINDS = [pytest.param("bubblewrap", marks=needs_bwrap), "local"]
MOMENTS = 20 if os.environ.get("PROCTOR_SOAK") else 4
"""How many runs are ended at a random moment; PROCTOR_SOAK=1 asks for more."""
HANG = 90.0
AT_ONCE = 8
TASK = """
from proctor import Task, task
from proctor.dataset import MemoryDataset, Sample
from proctor.scorer import Score, scorer
from proctor.solver import solver
from proctor.util import sandbox

@solver
def works():
    async def solve(state, generate):
        waits = "while [ ! -e go ]; do sleep 0.02; done; echo one > f"
        for script in (waits, "echo two >> f", "cat f"):
            result = await sandbox().exec(["sh", "-c", script])
            assert result.success, result.stderr
        state.output.completion = result.stdout
        return state
    return solve

@scorer(metrics=[])
def both():
    async def score(state, target):
        return Score(value=await sandbox().read_file("f") == state.output.completion == "one\\ntwo\\n")
    return score

@task
def jailed(samples=200):
    data = MemoryDataset([Sample("x", id=n) for n in range(1, samples + 1)])
    return Task(data, solver=works(), scorer=both())
"""


class Machine:
    """A run of `proctor eval`, and what this machine sees of its sandboxes.

    Attributes:
        peak: folders of sandboxes at once. let_go: let the commands that wait in them go on.
    """

    def __init__(self, folder: Path, kind: str, backend: str, *, samples: int = 200) -> None:
        self.temporary = Path(tempfile.mkdtemp(prefix="real-sandboxes-"))
        self.temporary.chmod(0o755)  # commands run as nobody where we are root
        self.folder, self.kind = folder, kind
        (folder / "jailed.py").write_text(TASK)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PROCTOR_", "INSPECT_"))}
        self.environment = kept | {
            "PROCTOR_ASYNC_BACKEND": backend,
            "PROCTOR_STATE_DIR": str(folder / "state"),
            "TMPDIR": str(self.temporary),
        }
        options = ["--max-sandboxes", str(AT_ONCE), "--max-samples", "50", "--max-subprocesses", "32"]
        self.process = self.popen(
            "eval", "jailed.py", "--model", "mock/m", "--sandbox", kind, "-T", f"samples={samples}", *options
        )
        self.peak = 0
        self.let_go = False
        self._over = False
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()

    def popen(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "proctor", *arguments],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def command(self, *arguments: str) -> str:
        process = self.popen(*arguments)
        said, _ = process.communicate(timeout=HANG)
        assert process.returncode == 0, said
        return said

    def folders(self) -> list[Path]:
        return sorted(self.temporary.glob("proctor-sandbox-*"))

    def processes(self) -> dict[int, str]:
        """Processes of its sandboxes by number, and in which sandbox they run: by their words or their folder."""
        found = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) == self.process.pid:
                continue
            try:
                words = Path(f"/proc/{entry}/cmdline").read_bytes().decode(errors="replace")
                place = os.readlink(f"/proc/{entry}/cwd")
                state = Path(f"/proc/{entry}/stat").read_bytes().rpartition(b") ")[2][:1]
            except OSError:
                continue
            for text in (words, place):
                if str(self.temporary) in text and state not in b"ZX":
                    name = text.partition(f"{self.temporary}/")[2].partition("/")[0].partition("\0")[0]
                    found[int(entry)] = name
        return found

    def _watch(self) -> None:
        while not self._over:
            folders = self.folders()
            self.peak = max(self.peak, len(folders))
            if self.let_go:
                for each in folders:
                    try:
                        work = each / "work" if self.kind == "bubblewrap" else each
                        if not (work / "go").exists():
                            (work / "go").touch()
                    except OSError:
                        pass
            time.sleep(0.002)

    def wait_until(self, what: str, seen: Callable[[], object]) -> None:
        end = time.monotonic() + HANG
        while not seen():
            assert time.monotonic() < end, f"{what} was not seen; {len(self.folders())} folders"
            time.sleep(0.02)

    def full(self) -> bool:
        """Whether a command runs in as many sandboxes as there may be."""
        assert self.process.poll() is None, self.process.communicate()[0]
        return len(set(self.processes().values())) == AT_ONCE

    def end(self) -> str:
        said, _ = self.process.communicate(timeout=HANG)
        return said

    def nothing_is_left(self) -> None:
        assert self.folders() == []
        assert self.processes() == {}
        assert str(self.temporary) not in Path("/proc/self/mounts").read_text()
        assert not list((self.folder / "state").glob("**/*.json"))

    def close(self) -> None:
        self._over = True
        self._watching.join()
        if self.process.poll() is None:
            self.process.kill()
        if self.process.stdout is not None:
            self.process.communicate()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.temporary, ignore_errors=True)


@pytest.fixture
def started(tmp_path: Path, backend: str) -> Iterator[Callable[..., Machine]]:
    machines: list[Machine] = []

    def start(kind: str, **more: int) -> Machine:
        machines.append(Machine(tmp_path, kind, backend, **more))
        return machines[-1]

    yield start
    for machine in machines:
        machine.close()


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_samples_never_have_more_sandboxes_than_they_may(
    kind: str, started: Callable[..., Machine]
) -> None:
    machine = started(kind)
    machine.wait_until("a command in each of 8 sandboxes", machine.full)
    for _ in range(10):  # nobody else comes in while they are full
        assert set(machine.processes().values()) == {each.name for each in machine.folders()}
        time.sleep(0.05)
    machine.let_go = True
    said = machine.end()
    assert machine.process.returncode == 0, said
    assert machine.peak == AT_ONCE
    machine.nothing_is_left()
    [path] = (machine.folder / "logs").glob("*.eval")
    log = read_eval_log(str(path))
    assert log.status == "success"
    assert [sample.scores["both"].value for sample in log.samples] == [True] * 200
    assert log.eval.config.max_sandboxes == AT_ONCE


@pytest.mark.parametrize("moment", range(MOMENTS))
@needs_bwrap
def test_ended_at_any_moment_it_leaves_nothing(moment: int, started: Callable[..., Machine]) -> None:
    chance = random.Random(moment)
    machine = started("bubblewrap")
    machine.let_go = chance.random() < 0.7  # else its commands still wait when they are ended
    machine.wait_until("a sandbox", machine.folders)
    time.sleep(chance.random() * 3)
    number = signal.SIGINT if moment % 2 else signal.SIGTERM
    machine.process.send_signal(number)
    said = machine.end()
    assert machine.process.returncode in {0, 128 + number}, said
    assert "left behind" not in said
    machine.nothing_is_left()


@pytest.mark.parametrize("kind", KINDS)
def test_what_kill_9_leaves_is_listed_and_removed(kind: str, started: Callable[..., Machine]) -> None:
    machine = started(kind, samples=20)
    machine.wait_until("a command in each of 8 sandboxes", machine.full)
    rows = json.loads(machine.command("sandbox", "list", "--json"))
    assert [row["state"] for row in rows] == ["in use"] * AT_ONCE
    assert machine.command("sandbox", "cleanup") == "0 removed\n"  # nothing of a run that lives
    machine.process.kill()
    machine.end()
    if kind == "bubblewrap":
        machine.wait_until("the end of its commands, which die with their parent", lambda: not machine.processes())
    else:
        assert machine.processes()
    rows = json.loads(machine.command("sandbox", "list", "--json"))
    assert [(row["state"], row["type"]) for row in rows] == [("left behind", kind)] * AT_ONCE
    assert sorted(Path(row["folder"]) for row in rows) == machine.folders()
    assert machine.command("sandbox", "cleanup") == f"{AT_ONCE} removed\n"
    machine.nothing_is_left()
    assert machine.command("sandbox", "list") == "no sandboxes\n"
